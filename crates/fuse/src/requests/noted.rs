//! Requests as they are noted: for counters, and for those who read along.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use afar_cache::SetAttr;
use fuser::{INodeNo, Request};

use super::Requests;
use crate::eyes::{Noted, Operation, args, quoted};
use crate::reply::who;

impl Requests {
    /// A request begins.
    pub(super) fn note(
        &self,
        request: &Request,
        operation: Operation,
        args: impl FnOnce() -> String,
    ) -> Noted {
        Noted::begin(&self.eyes, operation, who(request), args)
    }

    /// The same of one about a name in a directory.
    pub(super) fn note_name(
        &self,
        request: &Request,
        operation: Operation,
        parent: INodeNo,
        name: &OsStr,
    ) -> Noted {
        let args = || args(&[&parent.0, &quoted(name.as_bytes())]);
        self.note(request, operation, args)
    }

    /// Does a request that was noted, and notes what it waits for.
    pub(super) fn run_noted<F>(&self, noted: Noted, request: impl FnOnce(Noted) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let waits = noted.waits();
        // What notes it would have room for it twice, and the thread that begins it has a small stack.
        let request = Box::pin(request(noted));
        self.run(async move { waits.during(request).await });
    }
}

/// What a change of attributes changes.
pub(super) fn setattr_args(number: INodeNo, set: &SetAttr) -> String {
    let mut all = number.0.to_string();
    let octal = set.mode.map(|mode| format!("{mode:o}"));
    let numbers = [
        ("mode", octal),
        ("uid", set.uid.map(|uid| uid.to_string())),
        ("gid", set.gid.map(|gid| gid.to_string())),
        ("size", set.size.map(|size| size.to_string())),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            all.push_str(&format!(",{name}={value}"));
        }
    }
    if set.mtime.is_some() {
        all.push_str(",mtime");
    }
    all
}
