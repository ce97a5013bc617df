//! Calls that fail: a full disk, a bad one, one that went read-only.

/// Groups of calls that fail alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// write, pwrite, writev, pwritev.
    Write,
    /// fsync, fdatasync.
    Sync,
    /// ftruncate, fallocate.
    Size,
    /// Making, linking, renaming and removing of names.
    Name,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It does nothing and returns this error number.
    Error(i32),
    /// A write writes the first half only; other calls do not heed this.
    Short,
}

/// Makes calls fail, from a certain one on.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// Which calls; all if empty.
    pub(crate) calls: Vec<Call>,
    /// How the file's name ends.
    pub(crate) suffix: &'static str,
    /// So many matching calls succeed first.
    pub(crate) after: u64,
    /// So many matching calls fail then.
    pub(crate) times: u64,
    /// What the calls return.
    pub(crate) failure: Failure,
}

impl Fault {
    /// Counts a call; what it returns if it is to fail.
    pub(crate) fn strikes(&mut self, call: Call, name: &str) -> Option<Failure> {
        let meant = self.calls.is_empty() || self.calls.contains(&call);
        if !meant || !name.ends_with(self.suffix) || self.times == 0 {
            return None;
        }
        if self.after > 0 {
            self.after -= 1;
            return None;
        }
        self.times -= 1;
        Some(self.failure)
    }
}
