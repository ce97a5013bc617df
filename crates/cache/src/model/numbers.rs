//! What the kernel knows of a vnode: numbers, what was opened by them, and names in directories.

use std::num::NonZeroU32;

use afar_types::DataVersion;

use crate::model::types::Ino;

/// Names of one directory that the kernel is told to forget one by one.
const NAMES_MOST: usize = 65_536;

/// The number of a vnode that has none.
pub(crate) const NONE: Ino = Ino(0);

/// The version of a file that was opened last by one of its numbers: what the kernel keeps is of this
/// one or older. Only the lower half is kept: that many are never stored between two times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Opened(Option<NonZeroU32>);

impl Opened {
    pub(crate) fn new(version: DataVersion) -> Self {
        let [.., a, b, c, d] = version.0.to_be_bytes();
        // One more, so that none has a number of its own.
        Self(NonZeroU32::new(
            u32::from_be_bytes([a, b, c, d]).wrapping_add(1),
        ))
    }

    /// Whether this is known to be the same version.
    pub(crate) fn is(self, other: Self) -> bool {
        self.0.is_some() && self == other
    }
}

/// A number of a vnode besides its first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number {
    pub(crate) ino: Ino,
    pub(crate) opened: Opened,
}

/// Names in a directory that the kernel may know, one behind the other.
#[derive(Debug)]
pub(crate) struct Names {
    /// Each with its length before it.
    bytes: Vec<u8>,
    /// Where each begins, in the order of the names.
    order: Vec<u32>,
}

impl Names {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            order: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn at(&self, place: u32) -> &[u8] {
        let (length, rest) = self.bytes[place as usize..].split_at(2);
        &rest[..usize::from(u16::from_be_bytes([length[0], length[1]]))]
    }

    /// Adds a name, if there is room.
    pub(crate) fn insert(&mut self, name: &[u8]) {
        let found = self
            .order
            .binary_search_by(|place| self.at(*place).cmp(name));
        let (Err(at), true) = (found, self.has_room()) else {
            return;
        };
        // No name of a file is as long as that.
        let sizes = (u32::try_from(self.bytes.len()), u16::try_from(name.len()));
        let (Ok(place), Ok(length)) = sizes else {
            return;
        };
        reserve(&mut self.bytes, 2 + name.len());
        self.bytes.extend(length.to_be_bytes());
        self.bytes.extend(name);
        reserve(&mut self.order, 1);
        self.order.insert(at, place);
        debug_assert_eq!(self.at(place), name);
    }

    /// Whether another name could be kept.
    pub(crate) fn has_room(&self) -> bool {
        self.order.len() < NAMES_MOST
    }

    /// The names, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> + '_ {
        self.order.iter().map(|place| self.at(*place))
    }
}

/// Makes room for some more without doubling what is there.
fn reserve<T>(vec: &mut Vec<T>, more: usize) {
    if vec.capacity() - vec.len() < more {
        vec.reserve_exact(more.max(vec.len() / 4));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_once_and_in_order() {
        let mut names = Names::new();
        for name in ["b", "", "abc", "b", "ab", "abc"] {
            names.insert(name.as_bytes());
        }
        let all: Vec<_> = names.iter().collect();
        assert_eq!(all, [&b""[..], b"ab", b"abc", b"b"]);
        for number in 0..NAMES_MOST {
            names.insert(format!("{number}").as_bytes());
        }
        assert!(!names.has_room());
        assert_eq!(names.iter().count(), NAMES_MOST);
        assert!(names.iter().is_sorted());
    }
}
