//! What is in a dump, without its data.

use std::collections::BTreeMap;
use std::io::{self, BufReader, PipeWriter, Read, Write};
use std::thread::JoinHandle;

use afar_store::dump::{DumpHeader, DumpReader, Limits, VnodeFields, VnodeKind, VolumeHeader};
use xxhash_rust::xxh3::Xxh3;

/// A vnode, its data as a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vnode {
    pub(crate) uniquifier: u32,
    pub(crate) fields: Option<VnodeFields>,
    pub(crate) hash: u128,
}

impl Vnode {
    pub(crate) fn is(&self, kind: VnodeKind) -> bool {
        self.fields
            .as_ref()
            .is_some_and(|fields| fields.kind == kind)
    }

    /// Given with its content, and no directory.
    pub(crate) fn is_file(&self) -> bool {
        self.fields
            .as_ref()
            .is_some_and(|fields| fields.kind != VnodeKind::Directory)
    }
}

/// A dump.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) dump: DumpHeader,
    pub(crate) header: VolumeHeader,
    pub(crate) vnodes: BTreeMap<u32, Vnode>,
    /// Bytes of the stream, and their hash.
    pub(crate) sum: (u64, u128),
}

impl Index {
    pub(crate) fn assert_same(&self, other: &Self) {
        assert_eq!(self.dump, other.dump);
        assert_eq!(self.header, other.header);
        self.assert_same_vnodes(other);
    }

    pub(crate) fn assert_same_vnodes(&self, other: &Self) {
        for (number, vnode) in &self.vnodes {
            assert_eq!(Some(vnode), other.vnodes.get(number), "vnode {number}");
        }
        assert!(
            self.vnodes.keys().eq(other.vnodes.keys()),
            "one has other vnodes"
        );
    }
}

/// Makes an index of a stream that passes by.
pub(crate) struct Indexer {
    pipe: PipeWriter,
    thread: JoinHandle<Index>,
}

impl Indexer {
    pub(crate) fn new() -> Self {
        let (reader, pipe) = io::pipe().unwrap();
        Self {
            pipe,
            thread: std::thread::spawn(move || index(reader)),
        }
    }

    /// Notes what is read.
    pub(crate) fn tee<R: Read>(&mut self, input: R) -> impl Read {
        Tee(input, &mut self.pipe)
    }

    pub(crate) fn finish(self) -> Index {
        drop(self.pipe);
        self.thread.join().unwrap()
    }
}

impl Write for Indexer {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.pipe.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Tee<'i, S>(S, &'i mut PipeWriter);

impl<S: Read> Read for Tee<'_, S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.0.read(buf)?;
        self.1.write_all(&buf[..len])?;
        Ok(len)
    }
}

/// A stream that is counted and hashed as it passes by.
pub(crate) struct Hashed<S> {
    stream: S,
    hash: Xxh3,
    bytes: u64,
}

impl<S> Hashed<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            hash: Xxh3::new(),
            bytes: 0,
        }
    }

    /// Bytes and their hash.
    pub(crate) fn sum(&self) -> (u64, u128) {
        (self.bytes, self.hash.digest128())
    }

    fn note(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.stream.read(buf)?;
        self.note(&buf[..len]);
        Ok(len)
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = self.stream.write(buf)?;
        self.note(&buf[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

pub(crate) fn index(input: impl Read) -> Index {
    let input = BufReader::with_capacity(1 << 20, Hashed::new(input));
    let (mut reader, dump) = DumpReader::new(input, Limits::default()).unwrap();
    let header = reader.volume_header().unwrap();
    let mut vnodes = BTreeMap::new();
    let mut buffer = vec![0; 1 << 20];
    while let Some(record) = reader.next_vnode().unwrap() {
        let mut hash = Xxh3::new();
        loop {
            let len = reader.data().read(&mut buffer).unwrap();
            if len == 0 {
                break;
            }
            hash.update(&buffer[..len]);
        }
        let vnode = Vnode {
            uniquifier: record.uniquifier.0,
            fields: record.body,
            hash: hash.digest128(),
        };
        assert!(vnodes.insert(record.vnode.0, vnode).is_none());
    }
    let input = reader.finish().unwrap().into_inner();
    Index {
        dump,
        header,
        vnodes,
        sum: input.sum(),
    }
}
