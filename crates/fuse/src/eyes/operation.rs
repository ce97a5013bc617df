//! Kinds of requests, and what comes of them.

use afar_cache::{Attr, Entry, Handle, StatFs};
use bytes::Bytes;

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
    Fsyncdir "fsyncdir",
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
        matches!(
            self,
            Self::Lookup
                | Self::Getattr
                | Self::Readlink
                | Self::Open
                | Self::Read
                | Self::Opendir
                | Self::Readdir
                | Self::Access
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_in_their_order() {
        for (number, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, number);
        }
    }
}
