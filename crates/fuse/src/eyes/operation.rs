//! Kinds of requests, and one request from its beginning to its end.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use afar_cache::{Attr, Entry, Errno, Handle, StatFs, Waits, Who};
use afar_telemetry::Going;
use bytes::Bytes;

use super::Eyes;
use super::line::line;
use super::processes::UnderWay;

/// Makes the kinds of requests and their names.
macro_rules! operations {
    ($($kind:ident $name:literal,)*) => {
        /// What a request asks for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Operation {
            $(#[doc = concat!("The request `", $name, "`.")] $kind,)*
        }

        impl Operation {
            /// All there are.
            pub(crate) const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// Its name in lines and metrics.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

operations! {
    Lookup "lookup",
    Getattr "getattr",
    Setattr "setattr",
    Readlink "readlink",
    Mknod "mknod",
    Mkdir "mkdir",
    Unlink "unlink",
    Rmdir "rmdir",
    Symlink "symlink",
    Rename "rename",
    Link "link",
    Open "open",
    Create "create",
    Read "read",
    Write "write",
    Flush "flush",
    Release "release",
    Fsync "fsync",
    Opendir "opendir",
    Readdir "readdir",
    Releasedir "releasedir",
    Statfs "statfs",
    Setxattr "setxattr",
    Getxattr "getxattr",
    Listxattr "listxattr",
    Access "access",
    Getlk "getlk",
    Setlk "setlk",
}

impl Operation {
    /// Whether it reads something that the cache may have.
    pub(super) fn is_reading(self) -> bool {
        use Operation as Op;
        matches!(
            self,
            Op::Lookup
                | Op::Getattr
                | Op::Readlink
                | Op::Open
                | Op::Read
                | Op::Opendir
                | Op::Readdir
                | Op::Access
        )
    }
}

/// What came of a request that succeeded.
pub(crate) trait Outcome {
    /// Bytes of data that were read or written.
    fn bytes(&self) -> u64 {
        0
    }

    /// The same in words, for a line.
    fn words(&self) -> String {
        String::new()
    }
}

impl Outcome for () {}

impl Outcome for StatFs {}

impl Outcome for u32 {
    fn bytes(&self) -> u64 {
        u64::from(*self)
    }

    fn words(&self) -> String {
        format!("({self})")
    }
}

impl Outcome for usize {
    fn words(&self) -> String {
        format!("({self})")
    }
}

impl Outcome for Bytes {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn words(&self) -> String {
        format!("({})", self.len())
    }
}

impl Outcome for Attr {
    fn words(&self) -> String {
        let Self {
            ino, mode, size, ..
        } = self;
        format!("({},{mode:o},{size})", ino.0)
    }
}

impl Outcome for Entry {
    fn words(&self) -> String {
        self.attr.words()
    }
}

impl Outcome for Handle {
    fn words(&self) -> String {
        format!("(handle {})", self.0)
    }
}

/// A request that was noted when it began. It is counted when it [ends](Self::end); one that is dropped was never
/// answered.
#[derive(Debug)]
pub(crate) struct Noted {
    eyes: Arc<Eyes>,
    operation: Operation,
    who: Who,
    began: Instant,
    waits: Arc<Waits>,
    _under_way: Going<UnderWay>,
    /// If somebody reads along.
    args: Option<String>,
}

impl Noted {
    /// A request begins. `args` is called if somebody reads along.
    pub(crate) fn begin(
        eyes: &Arc<Eyes>,
        operation: Operation,
        who: Who,
        args: impl FnOnce() -> String,
    ) -> Self {
        let (began, waits) = (Instant::now(), Arc::new(Waits::default()));
        let under_way = eyes.processes.begin(operation, who, began, &waits);
        Self {
            eyes: Arc::clone(eyes),
            operation,
            who,
            began,
            waits,
            _under_way: under_way,
            args: eyes.log.is_read().then(args),
        }
    }

    /// What it waits for.
    pub(crate) fn waits(&self) -> Arc<Waits> {
        Arc::clone(&self.waits)
    }

    /// It is about to be answered so.
    pub(crate) fn end<T: Outcome>(self, result: &Result<T, Errno>) {
        let took = self.began.elapsed();
        let bytes = result.as_ref().map(Outcome::bytes).ok();
        self.eyes.counts.count(self.operation, took, bytes);
        let asked = (self.operation, self.who);
        self.eyes.processes.count(asked, took, bytes, &self.waits);
        let Some(args) = &self.args else {
            return;
        };
        let words = match result {
            Ok(outcome) => Ok(outcome.words()),
            Err(error) => Err(*error),
        };
        let text = line(
            SystemTime::now(),
            self.who,
            self.operation,
            args,
            words.as_deref().map_err(|error| *error),
            took,
        );
        self.eyes.log.push(&text);
    }
}

#[cfg(test)]
mod tests {
    use afar_telemetry::Registry;

    use super::*;

    #[test]
    fn kinds_are_numbered_in_their_order() {
        for (number, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, number);
        }
    }

    #[tokio::test]
    async fn a_request_has_a_line_if_somebody_reads_along_when_it_begins() {
        let eyes = Eyes::new(&Registry::default());
        let begin = |args: &'static str| {
            let args = || args.to_owned();
            Noted::begin(&eyes, Operation::Read, Who::default(), args)
        };
        let unread = Noted::begin(&eyes, Operation::Read, Who::default(), || {
            panic!("nobody reads it")
        });
        eyes.log.open(1).unwrap();
        let read = begin("7,0,3");
        unread.end(&Ok(Bytes::from_static(b"abc")));
        read.end(&Ok(Bytes::from_static(b"abc")));
        begin("8").end::<Bytes>(&Err(Errno::EIO));
        drop(begin("9"));
        let text = eyes.log.read(1, 10_000, true).await.unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains("] read (7,0,3): OK (3) <"), "{text}");
        assert!(lines[1].contains("] read (8): error 5 ("), "{text}");
    }
}
