//! Our own changes of a directory, repeated in the copy of it that is cached.
//!
//! Each change counts the directory's version on by one. If the version a server tells after a change
//! is just the next one, nobody else changed the directory between, and the copy is still right with
//! the same change made in it. Answers to changes made at the same time may come in any order, so one
//! that comes early waits for those before it.

use std::sync::Arc;

use afar_dir::{Editor, EntryId};
use afar_types::{DataVersion, FetchStatus};

use crate::breaks::Breaks;
use crate::vnode::{State, Vnode};

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
        if self
            .rare
            .pages
            .as_ref()
            .is_some_and(|(version, _)| Some(*version) != current)
        {
            self.rare.pages = None;
        }
    }

    /// Makes one change in the copy, if there is one of the version before it.
    fn edit(&mut self, before: DataVersion, change: &Early) {
        self.set_status(change.status);
        let Some((_, mut pages)) = self
            .rare
            .pages
            .take()
            .filter(|(version, _)| *version == before)
        else {
            return;
        };
        let same = edited(Arc::make_mut(&mut pages), &change.edits);
        if same && pages.len() as u64 == change.status.length {
            self.rare.pages = Some((change.status.data_version, pages));
        }
    }
}

/// Makes changes in a directory's pages; false if that does not work.
fn edited(pages: &mut Vec<u8>, edits: &[Edit]) -> bool {
    let Ok(mut editor) = Editor::open(std::mem::take(pages)) else {
        return false;
    };
    let all = edits.iter().all(|edit| match edit {
        Edit::Add(name, id) => editor.insert(name, *id).is_ok(),
        Edit::Remove(name) => editor.remove(name).is_ok(),
        Edit::Replace(name, id) => editor.replace(name, *id).is_ok(),
    });
    *pages = editor.into_pages();
    all
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
        state.rare.pages = Some((DataVersion(version), Arc::new(pages)));
        state
    }

    fn add(version: u64, name: &str) -> Option<Early> {
        Some(Early {
            status: status(version, 2048),
            edits: vec![Edit::Add(name.into(), EntryId::new(2, 1))],
        })
    }

    fn has(state: &State, name: &str) -> Option<bool> {
        let (_, pages) = state.rare.pages.as_ref()?;
        let directory = Directory::new(pages).unwrap();
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
