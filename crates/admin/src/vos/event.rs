//! What a verb tells while it works, and how it fails.

use std::fmt;

use super::Vos;
use super::words::error_text;

/// What a verb tells. Texts are lines or parts of lines, in the words of OpenAFS's `vos`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// What everybody gets to see.
    Said(&'a str),
    /// A step that begins or is done, for those who want to know each.
    Step(&'a str),
    /// The same of verbs whose data may go to standard output.
    StepAside(&'a str),
    /// What is wrong.
    Complaint(&'a str),
    /// So many bytes of a dump have gone by.
    Moved(u64),
}

/// The receiver of a verb's progress.
pub trait Watch: Send + Sync {
    /// Takes an event.
    fn event(&self, event: Event<'_>);
}

/// Nobody is told.
impl Watch for () {
    fn event(&self, _: Event<'_>) {}
}

/// A verb that failed; why, was said by events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", afar_types::error::describe(*.0))]
pub struct Failure(pub i32);

/// A call's answer, or the code it failed with.
pub(super) type Answer<T> = Result<T, i32>;

/// Ways to say what failed.
pub(super) trait OrFail<T> {
    /// Says it.
    fn or_fail(self, vos: &Vos, what: impl FnOnce() -> String) -> Result<T, Failure>;
    /// Says it on a line of its own, and what the code means.
    fn or_fail_loudly(self, vos: &Vos, what: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T> OrFail<T> for Answer<T> {
    fn or_fail(self, vos: &Vos, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|code| {
            vos.watch.event(Event::Complaint(&what()));
            Failure(code)
        })
    }

    fn or_fail_loudly(self, vos: &Vos, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|code| {
            vos.complain_loudly(code, &what());
            Failure(code)
        })
    }
}

impl Vos {
    pub(super) fn say(&self, text: fmt::Arguments<'_>) {
        self.watch.event(Event::Said(&text.to_string()));
    }

    pub(super) fn step(&self, text: fmt::Arguments<'_>) {
        self.watch.event(Event::Step(&text.to_string()));
    }

    pub(super) fn step_aside(&self, text: fmt::Arguments<'_>) {
        self.watch.event(Event::StepAside(&text.to_string()));
    }

    pub(super) fn complain(&self, text: fmt::Arguments<'_>) {
        self.watch.event(Event::Complaint(&text.to_string()));
    }

    pub(super) fn done(&self) {
        self.watch.event(Event::Step(" done\n"));
    }

    pub(super) fn moved(&self, bytes: usize) {
        self.watch.event(Event::Moved(bytes as u64));
    }

    pub(super) fn complain_loudly(&self, code: i32, what: &str) {
        let text = format!("\n{what}   {}", error_text(code));
        self.watch.event(Event::Complaint(&text));
    }

    /// Says what a code means, after some words.
    pub(super) fn explain(&self, words: &str, code: i32) {
        let text = format!("{words}{}", error_text(code));
        self.watch.event(Event::Complaint(&text));
    }

    /// Ends a verb: says what its code means.
    pub(super) fn end<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(Failure(code)) = result {
            self.explain("", code);
        }
        result
    }
}
