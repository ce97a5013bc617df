//! Writing a dump.

use std::io::Write;

use afar_types::VnodeId;

use super::error::{DumpError, DumpProblem};
use super::fields::{DumpHeader, VnodeFields, VnodeRecord, VolumeHeader};
use super::format::{
    DATA_MAX, MAGIC_BEGIN, MAGIC_END, MESSAGE_MAX, NAME_MAX, TAG_DUMP_END, TAG_DUMP_HEADER,
    TAG_VNODE, TAG_VOLUME_HEADER, VERSION,
};

/// Puts a dump together: header, volume header, vnodes one by one, each with its data, the end.
///
/// The fields of a section go out in one write, data as it is given; the output needs no buffer.
/// OpenAFS gives directories first, then all else, by rising number in both; that order, and that
/// a vnode comes once, is up to the caller. After an error it writes no more.
#[derive(Debug)]
pub struct DumpWriter<W> {
    output: W,
    offset: u64,
    state: State,
    vnode: Option<VnodeId>,
    /// A section's fields on their way out.
    fields: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Opened,
    /// So many bytes of data were announced, and so many have come.
    Vnodes {
        announced: u64,
        given: u64,
    },
    Failed,
}

impl<W: Write> DumpWriter<W> {
    /// Begins a dump with its header.
    ///
    /// # Errors
    /// The volume is 0, its name is longer than 31 bytes or has a NUL in it, or the output fails.
    pub fn new(output: W, header: &DumpHeader) -> Result<Self, DumpError> {
        let mut writer = Self {
            output,
            offset: 0,
            state: State::Failed,
            vnode: None,
            fields: Vec::with_capacity(512),
        };
        if header.volume.is_none() {
            let missing = "the volume of the dump header";
            return Err(writer.wrong(DumpProblem::Missing(missing)));
        }
        writer.fields.push(TAG_DUMP_HEADER);
        for word in [MAGIC_BEGIN, VERSION] {
            writer.fields.extend(word.to_be_bytes());
        }
        writer.word(b'v', header.volume.0);
        writer.text(b'n', "the volume name", &header.name, NAME_MAX)?;
        writer.words(b't', [header.from.0, header.to.0]);
        writer.flush_fields()?;
        writer.state = State::Opened;
        Ok(writer)
    }

    /// Writes the volume's header, which is the second section.
    ///
    /// # Errors
    /// It has been written, its name or a message is too long or has a NUL in it, or the output
    /// fails.
    pub fn volume_header(&mut self, header: &VolumeHeader) -> Result<(), DumpError> {
        if std::mem::replace(&mut self.state, State::Failed) != State::Opened {
            return Err(self.out_of_order("the volume header is written once, before vnodes"));
        }
        self.fields.push(TAG_VOLUME_HEADER);
        self.word(b'i', header.id.0);
        self.word(b'v', header.stamp_version);
        self.text(b'n', "the volume name", &header.name, NAME_MAX)?;
        self.fields.extend([b's', header.in_service.into()]);
        self.fields.extend([b'b', header.blessed.into()]);
        self.word(b'u', header.uniquifier.0);
        self.fields.extend([b't', header.kind as u8]);
        self.word(b'p', header.parent.0);
        self.word(b'c', header.clone_id.0);
        self.word(b'q', header.max_quota);
        self.word(b'm', header.min_quota);
        self.word(b'd', header.disk_used);
        self.word(b'f', header.file_count);
        self.word(b'a', header.account);
        self.word(b'o', header.owner.0.cast_unsigned());
        self.word(b'C', header.creation.0);
        self.word(b'A', header.access.0);
        self.word(b'U', header.update.0);
        self.word(b'E', header.expiration.0);
        self.word(b'B', header.backup.0);
        self.text(b'O', "the message", &header.offline_message, MESSAGE_MAX)?;
        self.text(b'M', "the message", &header.motd, MESSAGE_MAX)?;
        self.words(b'W', header.week_use);
        self.word(b'D', header.day_use_date.0);
        self.word(b'Z', header.day_use);
        self.flush_fields()?;
        self.state = State::Vnodes {
            announced: 0,
            given: 0,
        };
        Ok(())
    }

    /// Writes a vnode, except its data: [`VnodeFields::length`] bytes of [`data`](Self::data) are
    /// to follow.
    ///
    /// # Errors
    /// The data of the vnode before is not complete, the vnode cannot be (number 0, number and
    /// type that do not go together, a length its type cannot have, an access list on a file), the
    /// volume header has not been written, or the output fails.
    pub fn vnode(&mut self, record: &VnodeRecord) -> Result<(), DumpError> {
        self.complete()?;
        self.state = State::Failed;
        self.vnode = Some(record.vnode);
        if record.vnode.0 == 0 {
            return Err(self.wrong(DumpProblem::Value {
                what: "the number of the vnode",
                found: 0,
                allowed: "1 or more",
            }));
        }
        self.fields.push(TAG_VNODE);
        self.fields.extend(record.vnode.0.to_be_bytes());
        self.fields.extend(record.uniquifier.0.to_be_bytes());
        let mut announced = 0;
        if let Some(fields) = &record.body {
            fields
                .check(record.vnode, DATA_MAX)
                .map_err(|problem| self.wrong(problem))?;
            self.vnode_fields(fields);
            announced = fields.length.unwrap_or(0);
        }
        self.flush_fields()?;
        self.state = State::Vnodes {
            announced,
            given: 0,
        };
        Ok(())
    }

    fn vnode_fields(&mut self, fields: &VnodeFields) {
        self.fields.extend([b't', fields.kind as u8]);
        self.short(b'l', fields.link_count);
        self.word(b'v', fields.data_version);
        self.word(b'm', fields.modify_time.0);
        self.word(b'a', fields.author.0.cast_unsigned());
        self.word(b'o', fields.owner.0.cast_unsigned());
        if fields.group.0 != 0 {
            self.word(b'g', fields.group.0.cast_unsigned());
        }
        self.short(b'b', fields.mode);
        self.word(b'p', fields.parent.0);
        self.word(b's', fields.server_modify_time.0);
        if let Some(acl) = &fields.acl {
            self.fields.push(b'A');
            self.fields.extend(acl);
        }
        match fields.length.map(|length| (length, u32::try_from(length))) {
            None => {}
            Some((_, Ok(length))) => self.word(b'f', length),
            Some((length, Err(_))) => {
                self.fields.push(b'h');
                self.fields.extend(length.to_be_bytes());
            }
        }
    }

    /// Writes the next bytes of the last vnode's data.
    ///
    /// # Errors
    /// It would be more than was announced (nothing of it is written), or the output fails.
    pub fn data(&mut self, bytes: &[u8]) -> Result<(), DumpError> {
        let State::Vnodes { announced, given } = self.state else {
            return Err(self.out_of_order("data follows a vnode"));
        };
        let given = given.saturating_add(bytes.len() as u64);
        if given > announced {
            return Err(self.wrong(DumpProblem::DataLength { announced, given }));
        }
        self.state = State::Failed;
        self.put(bytes)?;
        self.state = State::Vnodes { announced, given };
        Ok(())
    }

    /// Ends the dump, flushes the output and gives it back.
    ///
    /// # Errors
    /// The data of the last vnode is not complete, there is no volume header, or the output fails.
    pub fn finish(mut self) -> Result<W, DumpError> {
        self.complete()?;
        self.vnode = None;
        self.word(TAG_DUMP_END, MAGIC_END);
        self.flush_fields()?;
        match self.output.flush() {
            Ok(()) => Ok(self.output),
            Err(error) => Err(self.wrong(DumpProblem::Io(error))),
        }
    }

    /// Bytes written so far.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.offset
    }

    /// That a vnode, or the end, may follow.
    const fn complete(&self) -> Result<(), DumpError> {
        match self.state {
            State::Vnodes { announced, given } if given < announced => {
                Err(self.wrong(DumpProblem::DataLength { announced, given }))
            }
            State::Vnodes { .. } => Ok(()),
            State::Opened => Err(self.out_of_order("the volume header comes first")),
            State::Failed => Err(self.out_of_order("writing has failed before")),
        }
    }

    fn word(&mut self, tag: u8, word: u32) {
        self.fields.push(tag);
        self.fields.extend(word.to_be_bytes());
    }

    fn short(&mut self, tag: u8, short: u16) {
        self.fields.push(tag);
        self.fields.extend(short.to_be_bytes());
    }

    fn words<const N: usize>(&mut self, tag: u8, words: [u32; N]) {
        let count = const { u8_count(N) };
        self.fields.extend([tag, 0, count]);
        for word in words {
            self.fields.extend(word.to_be_bytes());
        }
    }

    fn text(
        &mut self,
        tag: u8,
        what: &'static str,
        text: &[u8],
        max: usize,
    ) -> Result<(), DumpError> {
        if text.len() > max {
            let max = max as u64;
            return Err(self.wrong(DumpProblem::TooLong { what, max }));
        }
        if text.contains(&0) {
            return Err(self.wrong(DumpProblem::Nul(what)));
        }
        self.fields.push(tag);
        self.fields.extend(text);
        self.fields.push(0);
        Ok(())
    }

    fn flush_fields(&mut self) -> Result<(), DumpError> {
        let mut fields = std::mem::take(&mut self.fields);
        let result = self.put(&fields);
        fields.clear();
        self.fields = fields;
        result
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), DumpError> {
        match self.output.write_all(bytes) {
            Ok(()) => {
                self.offset += bytes.len() as u64;
                Ok(())
            }
            Err(error) => Err(self.wrong(DumpProblem::Io(error))),
        }
    }

    const fn wrong(&self, problem: DumpProblem) -> DumpError {
        DumpError {
            offset: self.offset,
            vnode: self.vnode,
            problem,
        }
    }

    const fn out_of_order(&self, message: &'static str) -> DumpError {
        self.wrong(DumpProblem::Order(message))
    }
}

/// How many words an array has, which the stream counts in two bytes.
const fn u8_count(count: usize) -> u8 {
    assert!(count < 256);
    count.to_le_bytes()[0]
}
