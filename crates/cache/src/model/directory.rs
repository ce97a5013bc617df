//! A directory's pages as they are cached, and changes made in them.

use std::sync::Arc;

use afar_dir::{Chains, Editor, EntryId, Room};
use afar_types::{DataVersion, FetchStatus};

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
    pub(crate) status: FetchStatus,
    pub(crate) edits: Vec<Edit>,
}

impl Early {
    /// The directory's version after it.
    pub(crate) fn version(&self) -> DataVersion {
        self.status.data_version
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
    pub(crate) fn edit(&mut self, edits: &[Edit]) -> bool {
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
    use afar_dir::DirectoryBuilder;

    use super::*;

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
}
