//! What rows hold, and their bytes. All numbers are big-endian.

use afar_types::VolumeType;

use crate::segment::Compression;

/// Takes fixed parts off the front of a row.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(part)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn slice(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.bytes(len.into())
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        self.slice().map(<[u8]>::to_vec)
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let len = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&text[..usize::from(len)]);
}

/// What is needed of a volume to serve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VolumeRow {
    /// The tree its vnodes are in.
    pub(crate) tree: u64,
    /// A read-write volume writes at this generation; a clone reads as of it.
    pub(crate) generation: u32,
    pub(crate) kind: VolumeType,
    /// Bits `IN_SERVICE` to `DESTROY_ME`.
    pub(crate) flags: u8,
    /// How new data is packed.
    pub(crate) compression: Compression,
    /// The read-write volume of the group.
    pub(crate) parent: u32,
    /// The newest read-only clone, or 0.
    pub(crate) clone: u32,
    /// The backup clone, or 0.
    pub(crate) backup: u32,
    /// The uniquifier given out last.
    pub(crate) uniquifier: u32,
    /// The greatest directory vnode ever used.
    pub(crate) last_directory: u32,
    /// The greatest file vnode ever used.
    pub(crate) last_file: u32,
    /// KiB; 0 is no limit.
    pub(crate) max_quota: u64,
    /// KiB: each vnode's length, rounded up, and at least one.
    pub(crate) disk_used: u64,
    /// Vnodes.
    pub(crate) file_count: u32,
    pub(crate) creation_date: u32,
    pub(crate) update_date: u32,
    pub(crate) copy_date: u32,
}

impl VolumeRow {
    /// Clients may use it.
    pub(crate) const IN_SERVICE: u8 = 1;
    /// An administrator has let it be used.
    pub(crate) const BLESSED: u8 = 2;
    /// Taken offline on purpose.
    pub(crate) const OFFLINE: u8 = 4;
    /// Half made: to be removed if whoever makes it does not finish.
    pub(crate) const DESTROY_ME: u8 = 8;

    pub(crate) fn at(&self) -> super::At {
        super::At {
            tree: self.tree,
            generation: self.generation,
        }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn set(&mut self, flag: u8, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(88);
        out.extend_from_slice(&self.tree.to_be_bytes());
        out.extend_from_slice(&self.generation.to_be_bytes());
        out.push(self.kind as u8);
        out.push(self.flags);
        out.extend_from_slice(&self.compression.to_u16().to_be_bytes());
        for number in [
            self.parent,
            self.clone,
            self.backup,
            self.uniquifier,
            self.last_directory,
            self.last_file,
        ] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&self.max_quota.to_be_bytes());
        out.extend_from_slice(&self.disk_used.to_be_bytes());
        for number in [
            self.file_count,
            self.creation_date,
            self.update_date,
            self.copy_date,
        ] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let row = Self {
            tree: fields.u64()?,
            generation: fields.u32()?,
            kind: match fields.u8()? {
                0 => VolumeType::ReadWrite,
                1 => VolumeType::ReadOnly,
                2 => VolumeType::Backup,
                _ => return None,
            },
            flags: fields.u8()?,
            compression: Compression::from_u16(fields.u16()?).ok()?,
            parent: fields.u32()?,
            clone: fields.u32()?,
            backup: fields.u32()?,
            uniquifier: fields.u32()?,
            last_directory: fields.u32()?,
            last_file: fields.u32()?,
            max_quota: fields.u64()?,
            disk_used: fields.u64()?,
            file_count: fields.u32()?,
            creation_date: fields.u32()?,
            update_date: fields.u32()?,
            copy_date: fields.u32()?,
        };
        fields.end()?;
        Some(row)
    }
}

/// What else there is to tell of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VolumeInfo {
    pub(crate) name: Vec<u8>,
    pub(crate) min_quota: u64,
    pub(crate) owner: i32,
    pub(crate) account: u32,
    pub(crate) access_date: u32,
    pub(crate) expiration_date: u32,
    pub(crate) backup_date: u32,
    pub(crate) restored_from: u32,
    pub(crate) update_counter: u32,
    pub(crate) day_use_date: u32,
    pub(crate) day_use: u32,
    pub(crate) week_use: [u32; 7],
    pub(crate) offline_message: Vec<u8>,
    pub(crate) motd: Vec<u8>,
}

impl VolumeInfo {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96 + self.name.len());
        put_text(&mut out, &self.name);
        out.extend_from_slice(&self.min_quota.to_be_bytes());
        out.extend_from_slice(&self.owner.to_be_bytes());
        for number in [
            self.account,
            self.access_date,
            self.expiration_date,
            self.backup_date,
            self.restored_from,
            self.update_counter,
            self.day_use_date,
            self.day_use,
        ] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for day in self.week_use {
            out.extend_from_slice(&day.to_be_bytes());
        }
        put_text(&mut out, &self.offline_message);
        put_text(&mut out, &self.motd);
        out
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let mut info = Self {
            name: fields.text()?,
            min_quota: fields.u64()?,
            owner: fields.i32()?,
            account: fields.u32()?,
            access_date: fields.u32()?,
            expiration_date: fields.u32()?,
            backup_date: fields.u32()?,
            restored_from: fields.u32()?,
            update_counter: fields.u32()?,
            day_use_date: fields.u32()?,
            day_use: fields.u32()?,
            ..Self::default()
        };
        for day in &mut info.week_use {
            *day = fields.u32()?;
        }
        info.offline_message = fields.text()?;
        info.motd = fields.text()?;
        fields.end()?;
        Some(info)
    }

    /// The owner alone; what follows it is not looked at.
    pub(crate) fn owner_of(bytes: &[u8]) -> Option<i32> {
        let mut fields = Fields(bytes);
        fields.slice()?;
        fields.u64()?;
        fields.i32()
    }
}

/// A file, directory or symlink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VnodeRow {
    /// 1 file, 2 directory, 3 symlink.
    pub(crate) kind: u8,
    /// Two to this power is the length of a record: 17 or 20.
    pub(crate) record_shift: u8,
    /// The twelve permission bits.
    pub(crate) mode: u16,
    pub(crate) link_count: u32,
    pub(crate) uniquifier: u32,
    pub(crate) data_version: u64,
    pub(crate) length: u64,
    pub(crate) modify_time: u32,
    pub(crate) server_modify_time: u32,
    pub(crate) author: i32,
    pub(crate) owner: i32,
    pub(crate) group: i32,
    /// The directory it is in; 0 for the root.
    pub(crate) parent: u32,
    /// A directory's ACL, as [`AclRecord`](afar_types::AclRecord) bytes without their unused
    /// tail; empty for others.
    pub(crate) acl: Vec<u8>,
}

impl VnodeRow {
    pub(crate) const FILE: u8 = 1;
    pub(crate) const DIRECTORY: u8 = 2;
    pub(crate) const SYMLINK: u8 = 3;

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == Self::DIRECTORY
    }

    /// KiB it counts for.
    pub(crate) fn blocks(&self) -> u64 {
        blocks(self.length)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(56 + self.acl.len());
        out.push(self.kind);
        out.push(self.record_shift);
        out.extend_from_slice(&self.mode.to_be_bytes());
        out.extend_from_slice(&self.link_count.to_be_bytes());
        out.extend_from_slice(&self.uniquifier.to_be_bytes());
        out.extend_from_slice(&self.data_version.to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
        out.extend_from_slice(&self.modify_time.to_be_bytes());
        out.extend_from_slice(&self.server_modify_time.to_be_bytes());
        out.extend_from_slice(&self.author.to_be_bytes());
        out.extend_from_slice(&self.owner.to_be_bytes());
        out.extend_from_slice(&self.group.to_be_bytes());
        out.extend_from_slice(&self.parent.to_be_bytes());
        out.extend_from_slice(&self.acl);
        out
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let row = Self {
            kind: fields.u8().filter(|kind| (1..=3).contains(kind))?,
            record_shift: fields.u8().filter(|shift| (12..=20).contains(shift))?,
            mode: fields.u16()?,
            link_count: fields.u32()?,
            uniquifier: fields.u32()?,
            data_version: fields.u64()?,
            length: fields.u64().filter(|length| *length <= i64::MAX as u64)?,
            modify_time: fields.u32()?,
            server_modify_time: fields.u32()?,
            author: fields.i32()?,
            owner: fields.i32()?,
            group: fields.i32()?,
            parent: fields.u32()?,
            acl: fields.0.to_vec(),
        };
        (row.acl.len() <= 192).then_some(row)
    }
}

/// KiB a length counts for in a quota: rounded up, and at least one (as OpenAFS counts).
pub(crate) fn blocks(length: u64) -> u64 {
    length.div_ceil(1024).max(1)
}

/// How far a segment file is written, and what of it is alive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SegmentRow {
    /// One past the last committed byte.
    pub(crate) end: u32,
    /// Bytes of live records.
    pub(crate) live: u64,
}

impl SegmentRow {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(12);
        out.extend_from_slice(&self.end.to_be_bytes());
        out.extend_from_slice(&self.live.to_be_bytes());
        out
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let row = Self {
            end: fields.u32()?,
            live: fields.u64()?,
        };
        fields.end()?;
        Some(row)
    }
}

/// Whether a tree's member still counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// A volume there is.
    Live = 0,
    /// A removed one, whose rows are not all gone.
    Shade = 1,
    /// One that is being filled: its rows count, and nobody reads them yet.
    Filling = 2,
}

impl MemberState {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        vec![self as u8]
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0] => Some(Self::Live),
            [1] => Some(Self::Shade),
            [2] => Some(Self::Filling),
            _ => None,
        }
    }
}
