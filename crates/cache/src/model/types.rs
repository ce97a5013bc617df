//! What requests and answers are made of.

use std::time::{Duration, SystemTime};

use afar_cell::Class;
use afar_types::DataVersion;
use rustix::fs::OFlags;

/// The number of a file, directory or symlink, which holds as long as anybody knows it: until
/// [`forget`](crate::Cache::forget) has taken back every answer that carried it.
///
/// What is reached through two mount points has two numbers, so that no directory is below itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The top directory.
    pub const ROOT: Self = Self(1);
    /// The directory of [all volumes](crate::VOLUMES), if the top is the list of cells.
    pub(crate) const VOLUMES: Self = Self(2);
}

/// What something is. A mount point is the directory it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An ordinary file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
}

/// The attributes of a file, directory or symlink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Its number.
    pub ino: Ino,
    /// The number that programs see. It is that one, but for the root of a volume that is reached
    /// through several mount points: this is the same for all of these, so that who goes through a whole
    /// tree sees when a mount point leads back to where it is in.
    pub file: Ino,
    /// What it is.
    pub kind: Kind,
    /// Bytes of data, those not yet stored included.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// When the data was changed, as the one who changed it set it.
    pub mtime: SystemTime,
    /// When anything was changed, by the server's clock.
    pub ctime: SystemTime,
    /// The twelve permission bits. Access goes by the directory's access list; of these, those of
    /// the owner take away from it.
    pub mode: u32,
    /// Names it has.
    pub nlink: u32,
    /// The owner's number on this machine, if it has that [user](crate::Owners); else AFS's.
    pub uid: u32,
    /// That user's group; else AFS's number of the group, which means nothing.
    pub gid: u32,
    /// Counts the changes of its data.
    pub data_version: DataVersion,
    /// How long these may be used without asking: while a promise holds that any change will be
    /// told by an [`Invalidation`].
    pub valid: Duration,
}

/// What a name stands for. Each one given out counts until it is [forgotten](crate::Cache::forget).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its attributes.
    pub attr: Attr,
    /// Tells users of one number apart; nobody knows a number any more when it is used again, so it is always 0.
    pub generation: u64,
    /// How long the name may be used without asking.
    pub valid: Duration,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The number to show. It holds only if there is an `entry`.
    pub ino: Ino,
    /// What it is, if that is known without asking a server.
    pub kind: Option<Kind>,
    /// The name; not always UTF-8.
    pub name: Vec<u8>,
    /// Where reading goes on behind this entry.
    pub offset: u64,
    /// For `plus`: what a look-up of the name would answer. It is counted as one, but for `.` and
    /// `..`, which have none.
    pub entry: Option<Entry>,
}

/// The user and process that ask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Who {
    /// The user on this machine.
    pub uid: u32,
    /// The group on this machine.
    pub gid: u32,
    /// The process.
    pub pid: u32,
}

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Every write goes to the end: it is to be [appended](crate::Cache::append).
    pub append: bool,
    /// Its data is dropped first.
    pub truncate: bool,
    /// It must not exist yet; for [`create`](crate::Cache::create) only.
    pub exclusive: bool,
    /// Nothing is read ahead.
    pub direct: bool,
    /// Whether what is read gives way to all else on the way to its server, or comes first.
    pub class: Class,
}

impl OpenFlags {
    /// From the flags of Linux's open(2) (as on x86 and ARM).
    #[must_use]
    pub fn from_linux(flags: i32) -> Self {
        Self {
            read: matches!(flags & 3, 0 | 2),
            write: matches!(flags & 3, 1 | 2),
            exclusive: flags & 0o200 != 0,
            truncate: flags & 0o1000 != 0,
            append: flags & 0o2000 != 0,
            direct: OFlags::from_bits_retain(flags.cast_unsigned()).contains(OFlags::DIRECT),
            class: Class::default(),
        }
    }
}

/// Whether data the asker kept from an earlier time it was open is still good.
pub type KeepCache = bool;

/// What rename is to do besides, as Linux's renameat2(2) says it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RenameFlags(pub u32);

impl RenameFlags {
    /// Nothing may have the new name yet.
    pub const NO_REPLACE: u32 = 1;
}

/// Attributes to set: those that are there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// The permission bits.
    pub mode: Option<u32>,
    /// The length.
    pub size: Option<u64>,
    /// When the data was changed.
    pub mtime: Option<SystemTime>,
    /// The owner, as [`Attr::uid`] shows it.
    pub uid: Option<u32>,
    /// The group, by AFS's number.
    pub gid: Option<u32>,
}

/// Space of a volume or of the partition it is on, in blocks of [`StatFs::BLOCK`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Blocks there are: the quota, or the partition's if there is none.
    pub blocks: u64,
    /// Blocks that the volume does not use.
    pub free: u64,
    /// Blocks that can be written: of the former, what its partition has room for.
    pub available: u64,
}

impl StatFs {
    /// The space of a volume that uses so many blocks of its quota, 0 for none, where so many of the
    /// partition's are free.
    pub(crate) fn new(quota: u64, used: u64, partition: u64, partition_free: u64) -> Self {
        let most = if quota == 0 { partition } else { quota };
        let available = partition_free.min(most.saturating_sub(used));
        // A volume may use more than its quota, or than it takes on the disk.
        let blocks = most.max(used.saturating_add(available));
        Self {
            blocks,
            free: blocks - used,
            available,
        }
    }
}

impl StatFs {
    /// Bytes of a block.
    pub const BLOCK: u32 = 1024;
    /// Bytes of the longest name.
    pub const NAME_MAX: u32 = 255;
}

/// What kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Others may read too.
    Read,
    /// Nobody else may have one.
    Write,
    /// None: what is there is given up.
    Unlock,
}

/// A lock on a part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// What kind.
    pub kind: LockKind,
    /// The first byte.
    pub start: u64,
    /// The last byte; [`u64::MAX`] for all there will be.
    pub end: u64,
    /// The process that has or wants it.
    pub pid: u32,
}

/// Something handed out earlier with a time that it holds no longer does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidation {
    /// Attributes of this number, and its data too.
    Inode {
        /// The number.
        ino: Ino,
        /// Whether data may have changed as well.
        data: bool,
    },
    /// What a name stands for.
    Entry {
        /// The directory's number.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
    },
    /// Nothing: whoever [acknowledges](crate::Acknowledger) this has carried out all that came
    /// before it.
    Mark(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_of_a_volume_is_what_it_uses() {
        let used = |space: StatFs| space.blocks - space.free;
        // A quota larger than what the partition has left.
        let space = StatFs::new(2_000_000, 1_000, 500_000, 100_000);
        assert_eq!(
            (used(space), space.blocks, space.available),
            (1_000, 2_000_000, 100_000)
        );
        let space = StatFs::new(5_000, 1_000, 500_000, 100_000);
        assert_eq!(
            (used(space), space.blocks, space.available),
            (1_000, 5_000, 4_000)
        );
        // No quota: the partition's size.
        let space = StatFs::new(0, 1_000, 500_000, 100_000);
        assert_eq!(
            (used(space), space.blocks, space.available),
            (1_000, 500_000, 100_000)
        );
        // Over the quota, and more than it takes on the disk.
        let space = StatFs::new(5_000, 6_000, 500_000, 100_000);
        assert_eq!(
            (used(space), space.blocks, space.available),
            (6_000, 6_000, 0)
        );
        let space = StatFs::new(0, 600_000, 500_000, 100_000);
        assert_eq!((used(space), space.available), (600_000, 0));
    }
}
