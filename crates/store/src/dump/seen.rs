//! The numbers of a section, as they are collected.

use afar_types::{PtsId, Uniquifier, UnixTime, VnodeId, VolumeId, VolumeType};

use super::error::DumpProblem;
use super::fields::{VnodeFields, VnodeKind, VolumeHeader};
use super::format::ACL_SIZE;
use super::limits::Limits;

/// The numbers found in a section, by tag. All tags of numbers are ASCII letters.
#[derive(Debug)]
pub(super) struct Seen([Option<u32>; 0x40]);

impl Default for Seen {
    fn default() -> Self {
        Self([None; 0x40])
    }
}

impl Seen {
    const fn place(tag: u8) -> usize {
        (tag & 0x3f) as usize
    }

    pub(super) fn put(&mut self, tag: u8, number: u32) -> Result<(), DumpProblem> {
        let slot = &mut self.0[Self::place(tag)];
        if slot.is_some_and(|before| before != number) {
            return Err(DumpProblem::Repeated { tag });
        }
        *slot = Some(number);
        Ok(())
    }

    /// From now on, what has not been given is 0.
    pub(super) fn close(&mut self) {
        for slot in &mut self.0 {
            slot.get_or_insert(0);
        }
    }

    pub(super) fn any(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    pub(super) fn word(&self, tag: u8) -> u32 {
        self.0[Self::place(tag)].unwrap_or(0)
    }

    fn time(&self, tag: u8) -> UnixTime {
        UnixTime(self.word(tag))
    }

    fn user(&self, tag: u8) -> PtsId {
        PtsId(self.word(tag).cast_signed())
    }

    /// A number that was one byte in the stream.
    fn byte(&self, tag: u8) -> Option<u8> {
        self.0[Self::place(tag)].map(|number| number.to_be_bytes()[3])
    }

    /// A number that was two bytes in the stream.
    fn short(&self, tag: u8) -> u16 {
        let [_, _, high, low] = self.word(tag).to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    fn volume_type(&self) -> Result<VolumeType, DumpProblem> {
        let number = self.word(b't');
        let found = VolumeType::ALL
            .into_iter()
            .find(|kind| *kind as u32 == number);
        found.ok_or_else(|| DumpProblem::Value {
            what: "the type of the volume",
            found: number.into(),
            allowed: "0, 1 or 2",
        })
    }

    fn vnode_kind(&self) -> Result<VnodeKind, DumpProblem> {
        let missing = "the type of a vnode that has other fields";
        let number = self.byte(b't').ok_or(DumpProblem::Missing(missing))?;
        VnodeKind::from_number(number).ok_or_else(|| DumpProblem::Value {
            what: "the type of the vnode",
            found: number.into(),
            allowed: "1, 2 or 3",
        })
    }

    /// The header, but for its texts and the week's use.
    pub(super) fn volume_header(&self) -> Result<VolumeHeader, DumpProblem> {
        Ok(VolumeHeader {
            id: VolumeId(self.word(b'i')),
            stamp_version: self.word(b'v'),
            name: Vec::new(),
            in_service: self.word(b's') != 0,
            blessed: self.word(b'b') != 0,
            uniquifier: Uniquifier(self.word(b'u')),
            kind: self.volume_type()?,
            parent: VolumeId(self.word(b'p')),
            clone_id: VolumeId(self.word(b'c')),
            max_quota: self.word(b'q'),
            min_quota: self.word(b'm'),
            disk_used: self.word(b'd'),
            file_count: self.word(b'f'),
            account: self.word(b'a'),
            owner: self.user(b'o'),
            creation: self.time(b'C'),
            access: self.time(b'A'),
            update: self.time(b'U'),
            expiration: self.time(b'E'),
            backup: self.time(b'B'),
            offline_message: Vec::new(),
            motd: Vec::new(),
            week_use: [0; 7],
            day_use_date: self.time(b'D'),
            day_use: self.word(b'Z'),
        })
    }

    /// The vnode, if it is one that can be.
    pub(super) fn vnode(
        &self,
        vnode: VnodeId,
        acl: Option<[u8; ACL_SIZE]>,
        length: Option<u64>,
        limits: &Limits,
    ) -> Result<VnodeFields, DumpProblem> {
        let fields = VnodeFields {
            kind: self.vnode_kind()?,
            link_count: self.short(b'l'),
            data_version: self.word(b'v'),
            modify_time: self.time(b'm'),
            author: self.user(b'a'),
            owner: self.user(b'o'),
            group: self.user(b'g'),
            mode: self.short(b'b'),
            parent: VnodeId(self.word(b'p')),
            server_modify_time: self.time(b's'),
            acl,
            length,
        };
        fields.check(vnode, limits.data)?;
        Ok(fields)
    }
}
