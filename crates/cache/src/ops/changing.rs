//! Changes of directories that are under way.

use std::sync::Arc;

use afar_types::FetchStatus;

use crate::model::directory::{Early, Edit};
use crate::model::vnode::Vnode;
use crate::table::breaks::Breaks;

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
        self.directory.lock().end_change(None);
    }

    /// The change is done. Without the directory's new status, nobody knows what came between.
    pub(crate) fn done(mut self, status: Option<FetchStatus>, edits: Vec<Edit>) {
        let Some(status) = status else {
            return;
        };
        self.answered = true;
        // What is on its way may be from before this change.
        self.breaks.count(self.directory.fid);
        self.directory
            .lock()
            .end_change(Some(Early { status, edits }));
    }
}

/// A call that sets a file's attributes, stores it or names it again is under way, and its answer is not taken yet.
#[derive(Debug)]
pub(crate) struct Calling<'a>(&'a Vnode);

impl<'a> Calling<'a> {
    pub(crate) fn begin(vnode: &'a Vnode) -> Self {
        vnode.lock().rare.calls += 1;
        Self(vnode)
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.rare.calls = state.rare.calls.saturating_sub(1);
        state.rare.tidy();
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.breaks.count(self.directory.fid);
            let mut state = self.directory.lock();
            state.promise = None;
            state.rare.pages = None;
            state.end_change(None);
        }
    }
}
