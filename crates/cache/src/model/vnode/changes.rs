//! Our own changes of a directory, repeated in the copy of it that is cached.
//!
//! Each change counts the directory's version on by one. If the version a server tells after a change
//! is just the next one, nobody else changed the directory between, and the copy is still right with
//! the same change made in it. Answers to changes made at the same time may come in any order, so one
//! that comes early waits for those before it.

use afar_types::DataVersion;

use super::VnodeState;
use crate::model::directory::{DirectoryCopy, Early};

impl VnodeState {
    /// A change ended. Makes those that are next in the copy.
    pub(crate) fn end_change(&mut self, change: Option<Early>) {
        debug_assert!(self.rare.changing > 0, "nothing was begun");
        self.rare.changing = self.rare.changing.saturating_sub(1);
        self.rare.early.extend(change);
        loop {
            let current = self.status().map(|status| status.data_version);
            let Some(current) = current else {
                break;
            };
            // spec: afs-rpc#changing-directories
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
        // A server that came to another length placed the entry elsewhere: its pages are read.
        // spec: volumes#copies-of-directories
        if copy.edit(&change.edits) && copy.pages.len() as u64 == change.status.length {
            self.rare.pages = Some(copy);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use afar_dir::{Directory, DirectoryBuilder, EntryId};
    use afar_types::{FetchStatus, FileType};
    use tokio::time::Instant;

    use super::*;
    use crate::model::directory::Edit;
    use crate::model::promise::Promise;

    fn status(version: u64, length: usize) -> FetchStatus {
        FetchStatus {
            file_type: FileType::Directory,
            data_version: DataVersion(version),
            length: length as u64,
            ..FetchStatus::default()
        }
    }

    fn directory(version: u64) -> VnodeState {
        let own = EntryId::new(1, 1);
        let pages = DirectoryBuilder::new(own, own).finish();
        let mut state = VnodeState::default();
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

    fn has(state: &VnodeState, name: &str) -> Option<bool> {
        let copy = state.rare.pages.as_ref()?;
        let directory = Directory::new(&copy.pages).unwrap();
        Some(directory.lookup(name.as_bytes()).unwrap().is_some())
    }

    #[test]
    fn answers_in_any_order_lead_to_the_same_copy() {
        let mut state = directory(5);
        state.rare.changing = 3;
        state.end_change(add(8, "c"));
        assert_eq!(has(&state, "c"), Some(false));
        state.end_change(add(6, "a"));
        assert_eq!(
            (has(&state, "a"), has(&state, "c")),
            (Some(true), Some(false))
        );
        state.end_change(add(7, "b"));
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
        state.end_change(add(7, "b"));
        assert!(state.promised().is_none() && state.valid().is_zero());
        state.end_change(add(6, "a"));
        assert!(state.promised().is_some() && !state.valid().is_zero());
    }

    #[test]
    fn a_change_of_somebody_else_between_drops_the_copy() {
        let mut state = directory(5);
        state.rare.changing = 1;
        state.end_change(add(7, "a"));
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
        state.end_change(Some(change));
        assert_eq!(has(&state, "a"), None);
    }
}
