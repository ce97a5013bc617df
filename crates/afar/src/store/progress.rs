//! How far long work has come.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line on standard error, if that is a terminal, of which 40 columns show what matters.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Of so many things.
    pub(crate) fn of_things(total: u64) -> Self {
        Self::new(
            total,
            "{percent}% {human_pos}/{human_len} {eta} left {wide_msg}",
        )
    }

    /// Of so many bytes.
    pub(crate) fn of_octets(total: u64) -> Self {
        Self::new(
            total,
            "{percent}% of {total_bytes} {binary_bytes_per_sec} {eta} left {wide_msg}",
        )
    }

    /// Of bytes, nobody knows how many.
    pub(crate) fn of_unknown() -> Self {
        let template = "{spinner} {bytes} {binary_bytes_per_sec} {elapsed} {wide_msg}";
        Self::bar(ProgressBar::no_length(), template)
    }

    fn new(total: u64, template: &str) -> Self {
        Self::bar(ProgressBar::new(total), template)
    }

    fn bar(bar: ProgressBar, template: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        bar.set_draw_target(ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// What it is at.
    pub(crate) fn tell(&self, what: impl Into<std::borrow::Cow<'static, str>>) {
        self.0.set_message(what);
    }

    /// So much is done.
    pub(crate) fn set(&self, done: u64) {
        self.0.set_position(done);
    }

    /// So much is done, of so much.
    pub(crate) fn set_of(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }

    /// So much more is done.
    pub(crate) fn advance(&self, more: u64) {
        self.0.inc(more);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
