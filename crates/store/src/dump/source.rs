//! A stream of which the position is known.

use std::io::{self, BufRead};

use afar_types::VnodeId;

use super::error::{DumpError, DumpProblem};

/// The input of a reader: counts bytes and knows what errors refer to.
#[derive(Debug)]
pub(super) struct Source<R> {
    input: R,
    offset: u64,
    /// Where the field being read began.
    mark: u64,
    /// The vnode being read.
    pub(super) vnode: Option<VnodeId>,
}

impl<R: BufRead> Source<R> {
    pub(super) const fn new(input: R) -> Self {
        Self {
            input,
            offset: 0,
            mark: 0,
            vnode: None,
        }
    }

    pub(super) fn into_input(self) -> R {
        self.input
    }

    /// The error that a value read is wrong.
    pub(super) const fn wrong(&self, problem: DumpProblem) -> DumpError {
        DumpError {
            offset: self.mark,
            vnode: self.vnode,
            problem,
        }
    }

    /// The error that something further back is wrong.
    pub(super) const fn wrong_at(&self, offset: u64, problem: DumpProblem) -> DumpError {
        DumpError {
            offset,
            vnode: self.vnode,
            problem,
        }
    }

    /// Where the last tag was.
    pub(super) const fn mark(&self) -> u64 {
        self.mark
    }

    const fn truncated(&self, expected: &'static str) -> DumpError {
        DumpError {
            offset: self.offset,
            vnode: self.vnode,
            problem: DumpProblem::Truncated { expected },
        }
    }

    const fn failed(&self, error: io::Error) -> DumpError {
        DumpError {
            offset: self.offset,
            vnode: self.vnode,
            problem: DumpProblem::Io(error),
        }
    }

    /// Waits for bytes; whether the stream has ended instead.
    fn is_empty(&mut self) -> Result<bool, DumpError> {
        loop {
            match self.input.fill_buf() {
                Ok(there) => return Ok(there.is_empty()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// What is there to be read; an error at the end of the stream.
    pub(super) fn fill(&mut self, expected: &'static str) -> Result<&[u8], DumpError> {
        if self.is_empty()? {
            return Err(self.truncated(expected));
        }
        let (offset, vnode) = (self.offset, self.vnode);
        // Answered from the buffer that the call before has filled.
        self.input.fill_buf().map_err(|error| DumpError {
            offset,
            vnode,
            problem: DumpProblem::Io(error),
        })
    }

    /// Takes `count` of the bytes that [`fill`](Self::fill) showed.
    pub(super) fn consume(&mut self, count: usize) {
        self.input.consume(count);
        self.offset += count as u64;
    }

    pub(super) fn at_end(&mut self) -> Result<bool, DumpError> {
        self.mark = self.offset;
        self.is_empty()
    }

    pub(super) fn byte(&mut self, expected: &'static str) -> Result<u8, DumpError> {
        let byte = self.fill(expected)?[0];
        self.consume(1);
        Ok(byte)
    }

    /// A tag: errors about what follows refer to its place.
    pub(super) fn tag(&mut self, expected: &'static str) -> Result<u8, DumpError> {
        self.mark = self.offset;
        self.byte(expected)
    }

    pub(super) fn array<const N: usize>(
        &mut self,
        expected: &'static str,
    ) -> Result<[u8; N], DumpError> {
        let mut array = [0; N];
        let mut done = 0;
        while done < N {
            let there = self.fill(expected)?;
            let count = there.len().min(N - done);
            array[done..done + count].copy_from_slice(&there[..count]);
            self.consume(count);
            done += count;
        }
        Ok(array)
    }

    pub(super) fn short(&mut self, expected: &'static str) -> Result<u16, DumpError> {
        self.array(expected).map(u16::from_be_bytes)
    }

    pub(super) fn word(&mut self, expected: &'static str) -> Result<u32, DumpError> {
        self.array(expected).map(u32::from_be_bytes)
    }

    /// Bytes up to a NUL, which is taken too. Memory grows with bytes that arrived.
    pub(super) fn text(&mut self, what: &'static str, max: usize) -> Result<Vec<u8>, DumpError> {
        let mut text = Vec::new();
        loop {
            let there = self.fill(what)?;
            let end = there.iter().position(|&byte| byte == 0);
            let part = &there[..end.unwrap_or(there.len())];
            if text.len() + part.len() > max {
                let max = max as u64;
                return Err(self.wrong(DumpProblem::TooLong { what, max }));
            }
            text.extend_from_slice(part);
            let count = part.len();
            if end.is_some() {
                self.consume(count + 1);
                return Ok(text);
            }
            self.consume(count);
        }
    }

    pub(super) fn skip(&mut self, mut count: u64, what: &'static str) -> Result<(), DumpError> {
        while count > 0 {
            let there = self.fill(what)?.len();
            let part = usize::try_from(count).map_or(there, |count| there.min(count));
            self.consume(part);
            count -= part as u64;
        }
        Ok(())
    }
}
