//! Whole trees that are listed: the directories that come next are read before they are asked for.
//!
//! A program that lists a directory with what its files are, and then two of the directories in it, is
//! taken to go through all of them: in the order of their names, as `ls -R` does, or as they were
//! listed, as `find` does.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::model::vnode::Vnode;

/// Directories that are read before they are asked for.
const AHEAD: usize = 8;
/// Directories whose directories may be gone through at the same time.
const WALKS: usize = 16;
/// Directories in one directory beyond which the rest is not looked at.
const CHILDREN: usize = 16_384;
/// Directories that may be listed once more.
const AGAIN: usize = 256;

/// The directories that were listed lately.
#[derive(Debug, Default)]
pub(crate) struct Walks(Mutex<VecDeque<Walk<Weak<Vnode>>>>);

/// A directory that was listed, and how far one is in it.
#[derive(Debug)]
struct Walk<T> {
    of: T,
    /// Its directories with their names, in the order in which they are taken.
    children: Vec<(Vec<u8>, T)>,
    /// The one that was opened last.
    last: Option<usize>,
    /// Those before this one need not be read ahead any more.
    read: usize,
}

impl<T> Walk<T> {
    const fn new(of: T) -> Self {
        Self {
            of,
            children: Vec::new(),
            last: None,
            read: 0,
        }
    }

    /// One of the directories is opened. Returns which of them are to be read now.
    fn open(&mut self, mut place: usize) -> &[(Vec<u8>, T)] {
        let Some(last) = self.last.replace(place) else {
            return &[];
        };
        // Not the next one as listed: so the program goes by names.
        if self.read == 0 && place != last + 1 {
            let name = self.children[place].0.clone();
            self.children
                .sort_unstable_by(|one, other| one.0.cmp(&other.0));
            place = self.children.partition_point(|child| child.0 < name);
            self.last = Some(place);
        }
        let from = self.read.max(place + 1);
        let end = self.children.len().min(place + 1 + AHEAD);
        self.read = self.read.max(end);
        debug_assert!(self.read <= self.children.len() && from <= self.read);
        self.children.get(from..end).unwrap_or_default()
    }
}

impl Walks {
    /// A directory is listed; this much of it has these directories.
    pub(crate) fn listed<'a>(
        &self,
        directory: &Arc<Vnode>,
        first: bool,
        found: impl Iterator<Item = (&'a [u8], Weak<Vnode>)>,
    ) {
        let mut walks = self.0.lock();
        let place = walks.iter().position(|walk| is(&walk.of, directory));
        let mut walk = match place.and_then(|place| walks.remove(place)) {
            Some(walk) if !first => walk,
            _ => Walk::new(Arc::downgrade(directory)),
        };
        for (name, vnode) in found {
            // What the kernel had no room for is listed again.
            let mut latest = walk.children.iter().rev().take(AGAIN);
            let known = latest.any(|(_, known)| known.ptr_eq(&vnode));
            if !known && walk.children.len() < CHILDREN {
                walk.children.push((name.to_vec(), vnode));
            }
        }
        if !walk.children.is_empty() {
            walks.push_front(walk);
            walks.truncate(WALKS);
        }
    }

    /// A directory is opened. Returns those to read now, as they will be opened soon.
    pub(crate) fn opened(&self, directory: &Arc<Vnode>) -> Vec<Arc<Vnode>> {
        let mut walks = self.0.lock();
        for walk in walks.iter_mut() {
            let mut children = walk.children.iter();
            if let Some(place) = children.position(|(_, child)| is(child, directory)) {
                let next = walk.open(place).iter();
                return next.filter_map(|(_, child)| child.upgrade()).collect();
            }
        }
        Vec::new()
    }
}

fn is(weak: &Weak<Vnode>, vnode: &Arc<Vnode>) -> bool {
    weak.as_ptr() == Arc::as_ptr(vnode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(names: &str) -> Walk<()> {
        let mut walk = Walk::new(());
        walk.children = names.bytes().map(|name| (vec![name], ())).collect();
        walk
    }

    /// The directories to be read when this one is opened.
    fn open(walk: &mut Walk<()>, name: u8) -> String {
        let place = walk.children.iter().position(|child| child.0 == [name]);
        let next = walk.open(place.unwrap()).iter();
        next.map(|(name, ())| char::from(name[0])).collect()
    }

    #[test]
    fn one_directory_is_no_walk() {
        let mut walk = walk("caebd");
        assert_eq!(open(&mut walk, b'e'), "");
    }

    #[test]
    fn directories_are_read_as_they_were_listed() {
        let mut walk = walk("qwertyuiopas");
        assert_eq!(open(&mut walk, b'q'), "");
        assert_eq!(open(&mut walk, b'w'), "ertyuiop");
        assert_eq!(open(&mut walk, b'e'), "a");
        assert_eq!(open(&mut walk, b't'), "s");
        assert_eq!(open(&mut walk, b's'), "");
    }

    #[test]
    fn directories_are_read_by_their_names() {
        let mut walk = walk("qwertyuiopas");
        assert_eq!(open(&mut walk, b'a'), "");
        assert_eq!(open(&mut walk, b'e'), "iopqrstu");
        assert_eq!(open(&mut walk, b'i'), "w");
        assert_eq!(open(&mut walk, b'o'), "y");
        assert_eq!(open(&mut walk, b'a'), "", "again");
    }
}
