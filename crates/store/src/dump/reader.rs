//! Reading a dump.

use std::io::{self, BufRead, Read};
use std::mem;

use afar_types::{Uniquifier, UnixTime, VnodeId, VolumeId};

use super::error::{DumpError, DumpProblem};
use super::fields::{DumpHeader, VnodeRecord, VolumeHeader};
use super::format::{
    Form, MAGIC_BEGIN, MAGIC_END, Section, TAG_CRITICAL, TAG_DUMP_END, TAG_DUMP_HEADER,
    TAG_SECTION_LAST, TAG_VNODE, TAG_VOLUME_HEADER, Unknown, VERSION, unknown_form,
};
use super::limits::Limits;
use super::seen::Seen;
use super::source::Source;

const DATA: &str = "the data of a vnode";

/// Takes a dump apart, as it comes: header, volume header, vnodes one by one, each with its data.
///
/// It holds one vnode's fields and no data. What it checks is what one vnode shows: that vnodes
/// come once, in some order, and that directories and vnodes agree is for the caller to see to.
/// After an error it reads no further.
#[derive(Debug)]
pub struct DumpReader<R> {
    source: Source<R>,
    limits: Limits,
    state: State,
    /// The fields of the section being read.
    seen: Seen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The dump header is read, and this section tag behind it.
    Opened(u8),
    /// The volume header or a vnode is read, and this section tag behind it.
    Between(u8),
    /// So many bytes of a vnode's data are left, and perhaps fields behind them.
    Data(u64),
    Ended,
    Failed,
}

impl<R: BufRead> DumpReader<R> {
    /// Begins to read a dump, and gives its first section. Nothing is read ahead of what is asked
    /// for, so that a stream may go on behind the dump; the buffer is the caller's.
    ///
    /// # Errors
    /// The stream does not start with a dump header of version 1 that has a volume and one span of
    /// time (merged dumps of several spans are not supported; nothing makes them).
    pub fn new(input: R, limits: Limits) -> Result<(Self, DumpHeader), DumpError> {
        let mut reader = Self {
            source: Source::new(input),
            limits,
            state: State::Failed,
            seen: Seen::default(),
        };
        let header = reader.dump_header()?;
        Ok((reader, header))
    }

    fn dump_header(&mut self) -> Result<DumpHeader, DumpError> {
        let tag = self.source.tag("a dump header")?;
        if tag != TAG_DUMP_HEADER {
            return Err(self.misplaced(tag, "a dump header (0x01)"));
        }
        self.magic("the dump header", MAGIC_BEGIN)?;
        let version = self.source.word("the version of the dump")?;
        if version != VERSION {
            return Err(self.source.wrong(DumpProblem::Version(version)));
        }
        let mut header = DumpHeader::default();
        let (mut name, mut times) = (None, None);
        let next = loop {
            match self.field(Section::DumpHeader)? {
                Field::Special(tag, Form::Text) => self.text(tag, "the volume name", &mut name)?,
                Field::Special(tag, _) => {
                    let span = self.times()?;
                    self.once(tag, &mut times, span)?;
                }
                Field::Section(tag) => break tag,
            }
        };
        header.volume = VolumeId(self.seen.word(b'v'));
        header.name = name.unwrap_or_default();
        let missing = |what| self.source.wrong(DumpProblem::Missing(what));
        if header.volume.is_none() {
            return Err(missing("the volume of the dump header"));
        }
        (header.from, header.to) = times.ok_or_else(|| missing("the time of the dump header"))?;
        self.state = State::Opened(next);
        Ok(header)
    }

    /// The volume's header, which is the second section.
    ///
    /// # Errors
    /// Another section is there, the header is damaged, or it has been read before.
    pub fn volume_header(&mut self) -> Result<VolumeHeader, DumpError> {
        let State::Opened(tag) = mem::replace(&mut self.state, State::Failed) else {
            return Err(self.out_of_order("the volume header is read once, before vnodes"));
        };
        if tag != TAG_VOLUME_HEADER {
            return Err(self.misplaced(tag, "the volume header (0x02)"));
        }
        let start = self.source.mark();
        self.seen = Seen::default();
        let (mut name, mut message, mut motd, mut week) = (None, None, None, None);
        let next = loop {
            match self.field(Section::VolumeHeader)? {
                Field::Special(tag @ b'n', _) => self.text(tag, "the volume name", &mut name)?,
                Field::Special(tag @ b'O', _) => self.text(tag, "the message", &mut message)?,
                Field::Special(tag @ b'M', _) => self.text(tag, "the message", &mut motd)?,
                Field::Special(tag, _) => {
                    let uses = self.week_use()?;
                    self.once(tag, &mut week, uses)?;
                }
                Field::Section(tag) => break tag,
            }
        };
        let numbers = self.seen.volume_header();
        let numbers = numbers.map_err(|problem| self.source.wrong_at(start, problem))?;
        let header = VolumeHeader {
            name: name.unwrap_or_default(),
            offline_message: message.unwrap_or_default(),
            motd: motd.unwrap_or_default(),
            week_use: week.unwrap_or_default(),
            ..numbers
        };
        self.state = State::Between(next);
        Ok(header)
    }

    /// The next vnode; `None` once the right end of the dump is reached. What is left of the
    /// previous vnode's data is skipped.
    ///
    /// # Errors
    /// What is there is no vnode and not the end, or a vnode that cannot be; or the volume header
    /// has not been read.
    pub fn next_vnode(&mut self) -> Result<Option<VnodeRecord>, DumpError> {
        let tag = match mem::replace(&mut self.state, State::Failed) {
            State::Between(tag) => tag,
            State::Data(left) => {
                self.source.skip(left, DATA)?;
                self.behind_data()?
            }
            State::Ended => {
                self.state = State::Ended;
                return Ok(None);
            }
            State::Opened(_) => return Err(self.out_of_order("the volume header comes first")),
            State::Failed => return Err(self.out_of_order("reading has failed before")),
        };
        self.source.vnode = None;
        match tag {
            TAG_VNODE => self.vnode().map(Some),
            TAG_DUMP_END => {
                self.magic("the end of the dump", MAGIC_END)?;
                self.state = State::Ended;
                Ok(None)
            }
            _ => Err(self.misplaced(tag, "a vnode (0x03) or the end of the dump (0x04)")),
        }
    }

    fn vnode(&mut self) -> Result<VnodeRecord, DumpError> {
        let start = self.source.mark();
        let vnode = VnodeId(self.source.word("the number of a vnode")?);
        if vnode.0 == 0 {
            return Err(self.value("the number of the vnode", 0u32, "1 or more"));
        }
        self.source.vnode = Some(vnode);
        let uniquifier = Uniquifier(self.source.word("the uniquifier of a vnode")?);
        self.seen = Seen::default();
        let (mut acl, mut length) = (None, None);
        let state = loop {
            match self.field(Section::Vnode)? {
                Field::Special(tag, Form::Acl) => {
                    let list = self.source.array("the access list of a directory")?;
                    self.once(tag, &mut acl, list)?;
                }
                Field::Special(_, form) => {
                    let announced = self.data_length(form)?;
                    length = Some(announced);
                    break State::Data(announced);
                }
                Field::Section(tag) => break State::Between(tag),
            }
        };
        let body = if self.seen.any() || acl.is_some() || length.is_some() {
            let fields = self.seen.vnode(vnode, acl, length, &self.limits);
            Some(fields.map_err(|problem| self.source.wrong_at(start, problem))?)
        } else {
            None
        };
        self.state = state;
        Ok(VnodeRecord {
            vnode,
            uniquifier,
            body,
        })
    }

    /// The data of the vnode last given, as far as it has not been read: as many bytes as
    /// [`VnodeFields::length`](super::VnodeFields::length) says. It need not be read to the end.
    ///
    /// Reading it fails, with a [`DumpError`] inside, if the stream ends before.
    pub const fn data(&mut self) -> Data<'_, R> {
        Data { reader: self }
    }

    /// Ends reading, and gives the stream back.
    ///
    /// # Errors
    /// [`next_vnode`](Self::next_vnode) has not said that the dump has ended, or the stream goes
    /// on behind it.
    pub fn finish(self) -> Result<R, DumpError> {
        let mut source = self.ended()?;
        if source.at_end()? {
            Ok(source.into_input())
        } else {
            Err(source.wrong(DumpProblem::Trailing))
        }
    }

    /// Ends reading, and gives the stream back, standing behind the dump.
    ///
    /// # Errors
    /// [`next_vnode`](Self::next_vnode) has not said that the dump has ended.
    pub fn finish_within(self) -> Result<R, DumpError> {
        self.ended().map(Source::into_input)
    }

    fn ended(self) -> Result<Source<R>, DumpError> {
        if self.state == State::Ended {
            Ok(self.source)
        } else {
            Err(self.out_of_order("the dump has not been read to its end"))
        }
    }

    /// The next field that the caller must read itself, or the section tag that ends the fields.
    /// Plain numbers go to `self.seen`, unknown ones are skipped.
    fn field(&mut self, section: Section) -> Result<Field, DumpError> {
        let mut critical = false;
        loop {
            let tag = self.source.tag("a field or section")?;
            if tag <= TAG_SECTION_LAST {
                return Ok(Field::Section(tag));
            }
            if tag == TAG_CRITICAL {
                critical = true;
                continue;
            }
            let after_critical = mem::take(&mut critical);
            let number = match section.form(tag) {
                Some(Form::Byte) => self.source.byte("a byte")?.into(),
                Some(Form::Short) => self.source.short("a 2-byte number")?.into(),
                Some(Form::Word) => self.source.word("a 4-byte number")?,
                Some(form) => return Ok(Field::Special(tag, form)),
                None => {
                    self.skip_unknown(tag, after_critical)?;
                    continue;
                }
            };
            self.seen
                .put(tag, number)
                .map_err(|problem| self.source.wrong(problem))?;
        }
    }

    fn skip_unknown(&mut self, tag: u8, critical: bool) -> Result<(), DumpError> {
        let form = if critical { None } else { unknown_form(tag) };
        let length = match form {
            None => return Err(self.source.wrong(DumpProblem::UnknownField { tag })),
            Some(Unknown::Bare) => 0,
            Some(Unknown::Word) => 4,
            Some(Unknown::Counted) => self.unknown_length(tag)?,
        };
        if length > self.limits.unknown {
            return Err(self.source.wrong(DumpProblem::TooLong {
                what: "a field that is not known",
                max: self.limits.unknown,
            }));
        }
        self.source.skip(length, "a field that is not known")
    }

    /// A length as ASN.1 has it. That of no stated size (0x80) and those of more than 8 bytes
    /// (OpenAFS names two of them, for single bits, and skips neither) cannot be skipped.
    fn unknown_length(&mut self, tag: u8) -> Result<u64, DumpError> {
        let first = self.source.byte("the length of a field")?;
        if first < 0x80 {
            return Ok(first.into());
        }
        let count = first & 0x7f;
        if !(1..=8).contains(&count) {
            return Err(self.source.wrong(DumpProblem::UnknownField { tag }));
        }
        let mut length = 0;
        for _ in 0..count {
            length = length << 8 | u64::from(self.source.byte("the length of a field")?);
        }
        Ok(length)
    }

    /// Fields may stand behind the data, but say nothing that was not said before it: the vnode
    /// is in the caller's hands already.
    fn behind_data(&mut self) -> Result<u8, DumpError> {
        self.seen.close();
        match self.field(Section::Vnode)? {
            Field::Section(tag) => Ok(tag),
            Field::Special(tag, _) => Err(self.source.wrong(DumpProblem::Repeated { tag })),
        }
    }

    fn text(
        &mut self,
        tag: u8,
        what: &'static str,
        slot: &mut Option<Vec<u8>>,
    ) -> Result<(), DumpError> {
        let text = self.source.text(what, self.limits.text)?;
        self.once(tag, slot, text)
    }

    fn times(&mut self) -> Result<(UnixTime, UnixTime), DumpError> {
        let count = self.source.short("the number of times")?;
        if count != 2 {
            return Err(self.value("the number of times in the dump header", count, "2"));
        }
        let from = UnixTime(self.source.word("the time a dump starts from")?);
        Ok((from, UnixTime(self.source.word("the time a dump is of")?)))
    }

    /// OpenAFS takes any number of days and keeps seven.
    fn week_use(&mut self) -> Result<[u32; 7], DumpError> {
        let mut uses = [0; 7];
        for day in 0..self.source.short("the number of days")?.into() {
            let count = self.source.word("the accesses of a day")?;
            if let Some(slot) = uses.get_mut::<usize>(day) {
                *slot = count;
            }
        }
        Ok(uses)
    }

    fn data_length(&mut self, form: Form) -> Result<u64, DumpError> {
        let what = "the length of the data";
        if form == Form::LongData {
            self.source.array(what).map(u64::from_be_bytes)
        } else {
            self.source.word(what).map(Into::into)
        }
    }

    fn magic(&mut self, part: &'static str, expected: u32) -> Result<(), DumpError> {
        let found = self.source.word("a magic number")?;
        if found == expected {
            return Ok(());
        }
        Err(self.source.wrong(DumpProblem::Magic {
            part,
            found,
            expected,
        }))
    }

    fn once<T: PartialEq>(&self, tag: u8, slot: &mut Option<T>, value: T) -> Result<(), DumpError> {
        match slot {
            Some(before) if *before != value => {
                Err(self.source.wrong(DumpProblem::Repeated { tag }))
            }
            _ => {
                *slot = Some(value);
                Ok(())
            }
        }
    }

    fn value(&self, what: &'static str, found: impl Into<u64>, allowed: &'static str) -> DumpError {
        self.source.wrong(DumpProblem::Value {
            what,
            found: found.into(),
            allowed,
        })
    }

    const fn misplaced(&self, found: u8, expected: &'static str) -> DumpError {
        self.source.wrong(DumpProblem::Section { found, expected })
    }

    const fn out_of_order(&self, message: &'static str) -> DumpError {
        self.source.wrong(DumpProblem::Order(message))
    }
}

/// The data of one vnode (see [`DumpReader::data`]).
#[derive(Debug)]
pub struct Data<'a, R> {
    reader: &'a mut DumpReader<R>,
}

impl<R> Data<'_, R> {
    /// Bytes not read yet.
    #[must_use]
    pub const fn left(&self) -> u64 {
        match self.reader.state {
            State::Data(left) => left,
            _ => 0,
        }
    }
}

impl<R: BufRead> Read for Data<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let there = self.fill_buf()?;
        let count = there.len().min(buf.len());
        buf[..count].copy_from_slice(&there[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Data<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let left = self.left();
        if left == 0 {
            return Ok(&[]);
        }
        let there = self.reader.source.fill(DATA)?;
        Ok(&there[..usize::try_from(left).map_or(there.len(), |left| left.min(there.len()))])
    }

    fn consume(&mut self, count: usize) {
        if let State::Data(left) = &mut self.reader.state {
            let count = usize::try_from(*left).map_or(count, |left| left.min(count));
            *left -= count as u64;
            self.reader.source.consume(count);
        }
    }
}

enum Field {
    /// A field of a form that is not a plain number.
    Special(u8, Form),
    /// No field: the tag of the next section.
    Section(u8),
}
