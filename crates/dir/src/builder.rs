//! Making the pages of a whole directory.

use std::convert::Infallible;

use crate::{EditError, Editor, EntryId};

/// Makes a directory's pages by adding entries, as a file server would over time.
#[derive(Debug)]
pub struct DirectoryBuilder {
    editor: Editor<Vec<u8>>,
}

impl DirectoryBuilder {
    /// A directory with its first two entries, `.` for itself and `..` for its parent. The root
    /// of a volume is its own parent.
    #[must_use]
    pub fn new(own: EntryId, parent: EntryId) -> Self {
        let Ok(editor) = Editor::create(Vec::new(), own, parent);
        Self { editor }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// When the name is there already or cannot be one, or the directory is full.
    pub fn add(&mut self, name: &[u8], id: EntryId) -> Result<(), EditError<Infallible>> {
        self.editor.insert(name, id)
    }

    /// The pages.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.editor.into_pages()
    }
}
