//! What a volume holds: directories, files, links, and who may see them.

use std::io::{self, Write};

/// Numbers the protection database gives to the built-in groups.
pub(super) const ADMINISTRATORS: i32 = -204;
pub(super) const ANYUSER: i32 = -101;
pub(super) const AUTHUSER: i32 = -102;

/// Rights on a directory, as AFS counts them.
pub(super) const READ: u32 = 1;
pub(super) const LOOKUP: u32 = 8;
pub(super) const ALL: u32 = 0x7f;
/// All but administration.
pub(super) const WRITE: u32 = 0x3f;

/// Bytes of an access list as a volume stores it, and the entries it has room for.
const ACL_BYTES: usize = 192;

/// Rights in a directory: positive entries only.
#[derive(Clone, Debug)]
pub(super) struct Acl(Vec<(i32, u32)>);

impl Acl {
    /// Administrators may do everything; anyone has these rights (none: no entry at all).
    pub(super) fn anyuser(rights: u32) -> Self {
        let mut entries = vec![(ADMINISTRATORS, ALL)];
        if rights != 0 {
            entries.push((ANYUSER, rights));
        }
        Self(entries)
    }

    /// Gives somebody rights.
    fn grant(&mut self, who: i32, rights: u32) {
        self.0.push((who, rights));
        self.0.sort_unstable();
    }

    /// Whether anyone at all may read files.
    pub(super) fn readable(&self) -> bool {
        self.0
            .iter()
            .any(|&(id, rights)| id == ANYUSER && rights & READ != 0)
    }

    /// Whether anyone at all may list the directory.
    pub(super) fn listable(&self) -> bool {
        self.0
            .iter()
            .any(|&(id, rights)| id == ANYUSER && rights & LOOKUP != 0)
    }

    /// The stored form: size, version, counts, entries in ascending order of id.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let count = u32::try_from(self.0.len()).expect("an access list has at most 20 entries");
        let mut bytes = Vec::with_capacity(ACL_BYTES);
        for word in [20 + 8 * count, 1, count, count, 0] {
            bytes.extend(word.to_be_bytes());
        }
        for &(id, rights) in &self.0 {
            bytes.extend(id.to_be_bytes());
            bytes.extend(rights.to_be_bytes());
        }
        bytes.resize(ACL_BYTES, 0);
        bytes
    }
}

/// A directory and its entries in the order they were made.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    pub(super) acl: Acl,
    pub(super) mode: u16,
    pub(super) entries: Vec<(Vec<u8>, Node)>,
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Directory(Directory),
    File(File),
    Symlink(Vec<u8>),
    MountPoint(String),
    /// Another name for a file of the same directory.
    HardLink(Vec<u8>),
}

/// A file whose bytes follow from its length and seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    pub(super) len: u64,
    pub(super) seed: u64,
    pub(super) mode: u16,
}

impl Directory {
    /// An empty directory anyone may read.
    pub(super) fn new() -> Self {
        Self {
            acl: Acl::anyuser(READ | LOOKUP),
            mode: 0o755,
            entries: Vec::new(),
        }
    }

    /// Sets the rights of anyone.
    pub(super) fn anyuser(mut self, rights: u32) -> Self {
        self.acl = Acl::anyuser(rights);
        self
    }

    /// Gives a user or group, by number, rights too.
    pub(super) fn grant(mut self, who: i32, rights: u32) -> Self {
        self.acl.grant(who, rights);
        self
    }

    /// Adds a file of this many bytes.
    pub(super) fn file(self, name: impl AsRef<[u8]>, len: u64) -> Self {
        self.file_with_mode(name, len, 0o644)
    }

    /// Adds a file with other permission bits.
    pub(super) fn file_with_mode(self, name: impl AsRef<[u8]>, len: u64, mode: u16) -> Self {
        let seed = name
            .as_ref()
            .iter()
            .fold(len, |sum, &b| mix(sum ^ u64::from(b)));
        self.node(name, Node::File(File { len, seed, mode }))
    }

    /// Adds a symbolic link.
    pub(super) fn symlink(self, name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        self.node(name, Node::Symlink(target.as_ref().to_vec()))
    }

    /// Adds a mount point: `#volume` or `%volume`, a cell before the name where wanted.
    pub(super) fn mount(self, name: &str, target: impl Into<String>) -> Self {
        self.node(name, Node::MountPoint(target.into()))
    }

    /// Adds another name for a file already in this directory.
    pub(super) fn hard_link(self, name: &str, other: &str) -> Self {
        self.node(name, Node::HardLink(other.as_bytes().to_vec()))
    }

    /// Adds a directory.
    pub(super) fn directory(self, name: impl AsRef<[u8]>, directory: Self) -> Self {
        self.node(name, Node::Directory(directory))
    }

    fn node(mut self, name: impl AsRef<[u8]>, node: Node) -> Self {
        self.entries.push((name.as_ref().to_vec(), node));
        self
    }
}

impl File {
    /// Writes the file's bytes.
    pub(super) fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut chunk = Vec::with_capacity(1 << 16);
        let mut state = self.seed;
        let mut left = self.len;
        while left > 0 {
            chunk.clear();
            while chunk.len() < 1 << 16 {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                chunk.extend(mix(state).to_be_bytes());
            }
            let take = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
            out.write_all(&chunk[..take])?;
            left -= take as u64;
        }
        Ok(())
    }
}

/// Scrambles 64 bits (the finisher of SplitMix64).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_list_counts_its_entries() {
        let bytes = Acl::anyuser(READ | LOOKUP).to_bytes();
        assert_eq!(bytes.len(), 192);
        assert_eq!(
            bytes[..20],
            [0, 0, 0, 36, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0]
        );
        assert_eq!(bytes[20..28], [0xff, 0xff, 0xff, 0x34, 0, 0, 0, 0x7f]);
        assert_eq!(bytes[28..36], [0xff, 0xff, 0xff, 0x9b, 0, 0, 0, 9]);
    }

    #[test]
    fn files_have_their_length_and_differ() {
        let bytes = |seed, len| {
            let mut out = Vec::new();
            File {
                len,
                seed,
                mode: 0o644,
            }
            .write_to(&mut out)
            .unwrap();
            out
        };
        assert!(bytes(1, 0).is_empty());
        assert_eq!(bytes(1, 100_001).len(), 100_001);
        assert_ne!(bytes(1, 64), bytes(2, 64));
        assert_eq!(bytes(3, 70_000)[..64], bytes(3, 64)[..]);
    }
}
