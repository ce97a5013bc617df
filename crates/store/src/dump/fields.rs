//! The values in a dump.

use afar_dir::{MAX_PAGES, PAGE_SIZE};
use afar_types::{PtsId, Uniquifier, UnixTime, VnodeId, VolumeId, VolumeType};

use super::error::DumpProblem;
use super::format::{ACL_SIZE, DATA_MAX, SYMLINK_MAX};

/// What a dump is of, and of which time: the first section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DumpHeader {
    /// The volume dumped; not 0.
    pub volume: VolumeId,
    /// Its name; empty if the dump does not give one.
    pub name: Vec<u8>,
    /// 0 for a full dump. An incremental one has what the server changed at this time or later.
    pub from: UnixTime,
    /// The state dumped: the last update of a read-write volume, the making of a clone.
    pub to: UnixTime,
}

impl DumpHeader {
    /// Whether vnodes may be listed without their content.
    #[must_use]
    pub const fn is_incremental(&self) -> bool {
        self.from.0 != 0
    }
}

/// A volume's header as the stream carries it: the second section.
///
/// The reader takes a field that a dump leaves out as 0 or empty, as OpenAFS does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeHeader {
    /// The volume's number.
    pub id: VolumeId,
    /// Version of the volume's header on the disk it came from; 1 from OpenAFS, of no use.
    pub stamp_version: u32,
    /// Its name. A server that restores takes the name it is told instead.
    pub name: Vec<u8>,
    /// Whether it is meant to be used.
    pub in_service: bool,
    /// Whether an administrator has let it be used.
    pub blessed: bool,
    /// Greater than any uniquifier given to a vnode.
    pub uniquifier: Uniquifier,
    /// Read-write, read-only or backup.
    pub kind: VolumeType,
    /// Its read-write volume.
    pub parent: VolumeId,
    /// The last clone made of it, 0 if none.
    pub clone_id: VolumeId,
    /// Space it may use in KiB; 0 is no limit.
    pub max_quota: u32,
    /// Space kept for it in KiB.
    pub min_quota: u32,
    /// Space it uses in KiB.
    pub disk_used: u32,
    /// Vnodes in it.
    pub file_count: u32,
    /// An accounting number, of no use.
    pub account: u32,
    /// Its owner.
    pub owner: PtsId,
    /// When it, or this clone of it, was made.
    pub creation: UnixTime,
    /// When a user last reached it.
    pub access: UnixTime,
    /// When it was last changed.
    pub update: UnixTime,
    /// When it expires; not used.
    pub expiration: UnixTime,
    /// When a backup clone of it was last made.
    pub backup: UnixTime,
    /// Why it is offline.
    pub offline_message: Vec<u8>,
    /// Its message of the day; always empty from OpenAFS.
    pub motd: Vec<u8>,
    /// Accesses on the seven days before [`day_use_date`](Self::day_use_date), the latest first.
    pub week_use: [u32; 7],
    /// The day that [`day_use`](Self::day_use) counts.
    pub day_use_date: UnixTime,
    /// Accesses on that day.
    pub day_use: u32,
}

impl VolumeHeader {
    /// A read-write volume in service, with nothing in it and all else 0.
    #[must_use]
    pub fn new(id: VolumeId, name: &[u8]) -> Self {
        let zero = UnixTime(0);
        Self {
            id,
            stamp_version: 1,
            name: name.to_vec(),
            in_service: true,
            blessed: true,
            uniquifier: Uniquifier(0),
            kind: VolumeType::ReadWrite,
            parent: id,
            clone_id: VolumeId(0),
            max_quota: 0,
            min_quota: 0,
            disk_used: 0,
            file_count: 0,
            account: 0,
            owner: PtsId(0),
            creation: zero,
            access: zero,
            update: zero,
            expiration: zero,
            backup: zero,
            offline_message: Vec::new(),
            motd: Vec::new(),
            week_use: [0; 7],
            day_use_date: zero,
            day_use: 0,
        }
    }
}

/// What a vnode in a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VnodeKind {
    /// An ordinary file.
    File = 1,
    /// A directory; its data are pages.
    Directory = 2,
    /// A symbolic link or mount point; its data is the target.
    Symlink = 3,
}

impl VnodeKind {
    /// From its number in the stream.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::File),
            2 => Some(Self::Directory),
            3 => Some(Self::Symlink),
            _ => None,
        }
    }
}

/// One vnode of the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VnodeRecord {
    /// Its number; not 0.
    pub vnode: VnodeId,
    /// Which user of the number it is.
    pub uniquifier: Uniquifier,
    /// What it is now. `None`: it is still there and unchanged since [`DumpHeader::from`].
    pub body: Option<VnodeFields>,
}

/// What a vnode is, but for its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VnodeFields {
    /// File, directory or symlink.
    pub kind: VnodeKind,
    /// Names it has; for a directory, 2 and one for each directory in it.
    pub link_count: u16,
    /// The low word of its data version, which is all the stream carries.
    pub data_version: u32,
    /// When its user last changed it, as told by the client.
    pub modify_time: UnixTime,
    /// The user who wrote it last.
    pub author: PtsId,
    /// The owner.
    pub owner: PtsId,
    /// Its Unix group; not in the stream if 0.
    pub group: PtsId,
    /// Its Unix permission bits.
    pub mode: u16,
    /// The directory it is in; 0 for the root.
    pub parent: VnodeId,
    /// When the server last changed it, which is what incremental dumps go by.
    pub server_modify_time: UnixTime,
    /// A directory's access list, in its form on OpenAFS's disks with big-endian words. OpenAFS
    /// leaves it out if it is damaged.
    pub acl: Option<[u8; ACL_SIZE]>,
    /// Bytes of data that follow. `None` if the vnode has no data at all, not even an empty one,
    /// as a damaged one may.
    pub length: Option<u64>,
}

impl VnodeFields {
    /// A vnode of some kind without data and all else 0.
    #[must_use]
    pub const fn new(kind: VnodeKind) -> Self {
        Self {
            kind,
            link_count: 0,
            data_version: 0,
            modify_time: UnixTime(0),
            author: PtsId(0),
            owner: PtsId(0),
            group: PtsId(0),
            mode: 0,
            parent: VnodeId(0),
            server_modify_time: UnixTime(0),
            acl: None,
            length: None,
        }
    }

    /// Whether this can be what vnode `vnode` is, with data up to `data_max` bytes.
    pub(super) fn check(&self, vnode: VnodeId, data_max: u64) -> Result<(), DumpProblem> {
        // spec: volumes#vnodes
        if vnode.is_directory() != (self.kind == VnodeKind::Directory) {
            return Err(DumpProblem::Value {
                what: "the type of the vnode",
                found: self.kind as u64,
                allowed: if vnode.is_directory() {
                    "2 as the odd number of the vnode demands"
                } else {
                    "1 or 3 as the even number of the vnode demands"
                },
            });
        }
        if self.acl.is_some() && self.kind != VnodeKind::Directory {
            return Err(DumpProblem::Value {
                what: "the type of a vnode with an access list",
                found: self.kind as u64,
                allowed: "2",
            });
        }
        self.length
            .map_or(Ok(()), |length| self.check_length(length, data_max))
    }

    fn check_length(&self, length: u64, data_max: u64) -> Result<(), DumpProblem> {
        let page = PAGE_SIZE as u64;
        let wrong = |what, max| Err(DumpProblem::TooLong { what, max });
        match self.kind {
            VnodeKind::Directory => {
                let pages = length / page;
                if !length.is_multiple_of(page) || !(1..=MAX_PAGES as u64).contains(&pages) {
                    return Err(DumpProblem::Value {
                        what: "the length of a directory",
                        found: length,
                        allowed: "1 to 1023 times 2048",
                    });
                }
                Ok(())
            }
            VnodeKind::Symlink if length > SYMLINK_MAX => {
                wrong("the target of a link", SYMLINK_MAX)
            }
            _ if length > data_max.min(DATA_MAX) => wrong("the data", data_max.min(DATA_MAX)),
            _ => Ok(()),
        }
    }
}
