//! Our own changes of a directory, repeated in the copy of it that is cached.
//!
//! Each change counts the directory's version on by one. If the version a server tells after a change
//! is just the next one, nobody else changed the directory between, and the copy is still right with
//! the same change made in it. Answers to changes made at the same time may come in any order, so one
//! that comes early waits for those before it.

use std::sync::Arc;

use afar_dir::{Chains, Editor, EntryId, Room};
use afar_types::{DataVersion, FetchStatus};

use crate::breaks::Breaks;
use crate::vnode::{State, Vnode};

/// Pages of a directory from which on it is remembered what a change has found out about them: by
/// then hash chains are long, and there are many pages to look for room in.
const LARGE: usize = 32;

/// A directory's pages as they are cached.
#[derive(Debug)]
pub(crate) struct DirectoryCopy {
    /// The directory's version they are of.
    pub(crate) version: DataVersion,
    pub(crate) pages: Arc<Vec<u8>>,
    /// What the last change has found out, for the next one.
    known: Option<Box<(Room, Chains)>>,
}

/// A change of one entry.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    /// A name that was not there.
    Add(Vec<u8>, EntryId),
    /// A name that was there.
    Remove(Vec<u8>),
    /// A name that was there stands for something else.
    Replace(Vec<u8>, EntryId),
}

/// A change that was answered before one it follows.
#[derive(Debug)]
pub(crate) struct Early {
    status: FetchStatus,
    edits: Vec<Edit>,
}

impl Early {
    /// The directory's version after it.
    pub(crate) fn version(&self) -> DataVersion {
        self.status.data_version
    }
}

/// A change of a directory that is under way. If it ends without an answer, what is cached of the
/// directory is in doubt.
#[derive(Debug)]
pub(crate) struct Changing<'a> {
    breaks: &'a Breaks,
    directory: &'a Arc<Vnode>,
    answered: bool,
}

impl<'a> Changing<'a> {
    pub(crate) fn begin(breaks: &'a Breaks, directory: &'a Arc<Vnode>) -> Self {
        directory.lock().rare.changing += 1;
        Self {
            breaks,
            directory,
            answered: false,
        }
    }

    /// A server refused: nothing was changed.
    pub(crate) fn refused(mut self) {
        self.answered = true;
        self.directory.lock().end(None);
    }

    /// The change is done. Without the directory's new status, nobody knows what came between.
    pub(crate) fn done(mut self, status: Option<FetchStatus>, edits: Vec<Edit>) {
        let Some(status) = status else {
            return;
        };
        self.answered = true;
        // What is on its way may be from before this change.
        self.breaks.count(self.directory.fid);
        self.directory.lock().end(Some(Early { status, edits }));
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.breaks.count(self.directory.fid);
            let mut state = self.directory.lock();
            state.promise = None;
            state.rare.pages = None;
            state.end(None);
        }
    }
}

impl State {
    /// A change ended. Makes those that are next in the copy.
    fn end(&mut self, change: Option<Early>) {
        self.rare.changing = self.rare.changing.saturating_sub(1);
        self.rare.early.extend(change);
        loop {
            let current = self.status().map(|status| status.data_version);
            let Some(current) = current else {
                break;
            };
            let next = DataVersion(current.0 + 1);
            let Some(place) = self
                .rare
                .early
                .iter()
                .position(|early| early.status.data_version == next)
            else {
                break;
            };
            let early = self.rare.early.swap_remove(place);
            self.edit(current, &early);
        }
        let current = self.status().map(|status| status.data_version);
        self.rare
            .early
            .retain(|early| Some(early.status.data_version) > current);
        if self.rare.changing > 0 {
            return;
        }
        // Somebody else changed the directory between, and will have broken the promise.
        if let Some(last) = self
            .rare
            .early
            .iter()
            .max_by_key(|early| early.status.data_version)
        {
            let status = last.status;
            self.set_status(status);
            self.promise = None;
            self.rare.early.clear();
        }
        let current = self.status().map(|status| status.data_version);
        let other = |copy: &mut DirectoryCopy| Some(copy.version) != current;
        self.rare.pages.take_if(other);
    }

    /// Makes one change in the copy, if there is one of the version before it.
    fn edit(&mut self, before: DataVersion, change: &Early) {
        self.set_status(change.status);
        let copy = self.rare.pages.take();
        let Some(mut copy) = copy.filter(|copy| copy.version == before) else {
            return;
        };
        copy.version = change.status.data_version;
        if copy.edit(&change.edits) && copy.pages.len() as u64 == change.status.length {
            self.rare.pages = Some(copy);
        }
    }
}

impl DirectoryCopy {
    pub(crate) fn new(version: DataVersion, pages: Arc<Vec<u8>>) -> Self {
        Self {
            version,
            pages,
            known: None,
        }
    }

    /// Makes changes in the pages; false if that does not work.
    fn edit(&mut self, edits: &[Edit]) -> bool {
        let pages = Arc::make_mut(&mut self.pages);
        let Ok(editor) = Editor::open(std::mem::take(pages)) else {
            return false;
        };
        let (room, chains) = self.known.take().map(|known| *known).unwrap_or_default();
        let mut editor = editor.knowing(room, chains);
        let all = edits.iter().all(|edit| match edit {
            Edit::Add(name, id) => editor.insert(name, *id).is_ok(),
            Edit::Remove(name) => editor.remove(name).is_ok(),
            Edit::Replace(name, id) => editor.replace(name, *id).is_ok(),
        });
        if editor.page_count() >= LARGE {
            self.known = Some(Box::new(editor.known()));
        }
        *pages = editor.into_pages();
        all
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use afar_dir::{Directory, DirectoryBuilder};
    use afar_types::FileType;
    use tokio::time::Instant;

    use super::*;
    use crate::vnode::Promise;

    fn status(version: u64, length: usize) -> FetchStatus {
        FetchStatus {
            file_type: FileType::Directory,
            data_version: DataVersion(version),
            length: length as u64,
            ..FetchStatus::default()
        }
    }

    fn directory(version: u64) -> State {
        let own = EntryId::new(1, 1);
        let pages = DirectoryBuilder::new(own, own).finish();
        let mut state = State::default();
        state.set_status(status(version, pages.len()));
        state.rare.pages = Some(DirectoryCopy::new(DataVersion(version), Arc::new(pages)));
        state
    }

    fn add(version: u64, name: &str) -> Option<Early> {
        Some(Early {
            status: status(version, 2048),
            edits: vec![Edit::Add(name.into(), EntryId::new(2, 1))],
        })
    }

    fn has(state: &State, name: &str) -> Option<bool> {
        let copy = state.rare.pages.as_ref()?;
        let directory = Directory::new(&copy.pages).unwrap();
        Some(directory.lookup(name.as_bytes()).unwrap().is_some())
    }

    #[test]
    fn answers_in_any_order_lead_to_the_same_copy() {
        let mut state = directory(5);
        state.rare.changing = 3;
        state.end(add(8, "c"));
        assert_eq!(has(&state, "c"), Some(false));
        state.end(add(6, "a"));
        assert_eq!(
            (has(&state, "a"), has(&state, "c")),
            (Some(true), Some(false))
        );
        state.end(add(7, "b"));
        for name in ["a", "b", "c"] {
            assert_eq!(has(&state, name), Some(true), "{name}");
        }
        assert_eq!(state.status().unwrap().data_version, DataVersion(8));
    }

    #[test]
    fn what_is_known_of_a_large_copy_changes_nothing_but_the_time() {
        let id = EntryId::new(2, 1);
        let pages = DirectoryBuilder::new(id, id).finish();
        let copy = || DirectoryCopy::new(DataVersion(1), Arc::new(pages.clone()));
        let (mut knowing, mut unknowing) = (copy(), copy());
        let name = |number: usize| format!("{number:0>200}").into_bytes();
        let mut make = |edits: &[Edit]| {
            unknowing.known = None;
            assert!(knowing.edit(edits) && unknowing.edit(edits));
            assert!(knowing.pages == unknowing.pages);
            knowing.known.is_some()
        };
        assert!(!make(&[Edit::Add(name(0), id)]));
        for number in 1..10 * LARGE {
            make(&[Edit::Add(name(number), id)]);
        }
        for number in (1..10 * LARGE).step_by(9) {
            let moved = [
                Edit::Add(format!("new{number}").into_bytes(), id),
                Edit::Remove(name(number)),
            ];
            assert!(make(&moved), "there are more than {LARGE} pages");
        }
    }

    #[test]
    fn while_a_change_waits_for_one_before_it_nothing_is_promised() {
        let mut state = directory(5);
        state.promise = Promise::new(1, Instant::now() + Duration::from_secs(60));
        state.rare.changing = 2;
        state.end(add(7, "b"));
        assert!(state.promised().is_none() && state.valid().is_zero());
        state.end(add(6, "a"));
        assert!(state.promised().is_some() && !state.valid().is_zero());
    }

    #[test]
    fn a_change_of_somebody_else_between_drops_the_copy() {
        let mut state = directory(5);
        state.rare.changing = 1;
        state.end(add(7, "a"));
        assert_eq!(has(&state, "a"), None);
        assert_eq!(state.status().unwrap().data_version, DataVersion(7));
        assert!(state.rare.early.is_empty());
    }

    #[test]
    fn a_copy_of_another_length_than_the_servers_is_dropped() {
        let mut state = directory(5);
        state.rare.changing = 1;
        let mut change = add(6, "a").unwrap();
        change.status.length = 4096;
        state.end(Some(change));
        assert_eq!(has(&state, "a"), None);
    }
}
