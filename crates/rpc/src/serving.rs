//! The call that is being served, for the lines that are logged meanwhile, and what it waits for.
//!
//! This is what a span would be, at a price that each call can pay: a span of the level that is
//! logged by default has its fields formatted and kept when the call begins, which takes several
//! allocations and as long as some calls do. What is here stays as it is until a line is written,
//! and travels with the task.

use std::fmt::{self, Write};
use std::pin::pin;
use std::time::Instant;

use afar_telemetry::Going;
use tokio::task::JoinHandle;

use crate::wait::Wait;
use crate::{Caller, Operation, Subject};

tokio::task_local! {
    static SERVED: Served;
}

/// What a task serves.
struct Served {
    call: Serving,
    /// Its place in the list of calls that are being served; none in a part of its work that runs elsewhere.
    going: Option<Going<Serving>>,
}

/// The call of this task waits for this from now on, or for nothing.
fn note(wait: Option<Wait>) {
    let number = wait.map_or(0, Wait::number);
    // Outside of a call there is nothing to note.
    let _elsewhere = SERVED.try_with(|served| {
        if let Some(going) = &served.going {
            going.waits(number);
        }
    });
}

/// A call that a server has begun to serve: which operation, for which caller, about what.
///
/// Its text is what a span would add to a line of the log:
/// `call{operation=RXAFS.fetch_status peer=192.0.2.1:7001 who=ann fid=7.8.9}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// The operation.
    pub operation: &'static Operation,
    /// The caller.
    pub caller: Caller,
    /// The file or volume that the arguments name.
    pub subject: Subject,
}

impl Serving {
    pub(crate) fn new(operation: &'static Operation, caller: &Caller, subject: Subject) -> Self {
        Self {
            operation,
            caller: caller.clone(),
            subject,
        }
    }

    /// The call that this task serves, or this thread of [`spawn_blocking`].
    #[must_use]
    pub fn current() -> Option<Self> {
        Self::with_current(Clone::clone)
    }

    /// The same where it is.
    pub fn with_current<T>(look: impl FnOnce(&Self) -> T) -> Option<T> {
        SERVED.try_with(|served| look(&served.call)).ok()
    }

    /// Has what is logged while `serving` runs belong to this call, and the call keep its place in a list
    /// of those that go on.
    pub(crate) fn scope<F: Future>(
        self,
        going: Option<Going<Self>>,
        serving: F,
    ) -> impl Future<Output = F::Output> {
        SERVED.scope(Served { call: self, going }, serving)
    }

    /// Does a part of a call's work that runs elsewhere than in its task.
    pub fn within<T>(call: Option<Self>, work: impl FnOnce() -> T) -> T {
        match call {
            Some(call) => SERVED.sync_scope(Served { call, going: None }, work),
            None => work(),
        }
    }
}

impl fmt::Display for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation {
            interface, name, ..
        } = self.operation;
        let peer = self.caller.peer;
        write!(f, "call{{operation={interface}.{name} peer={peer} who=")?;
        match self.caller.identity.name() {
            // A name is what a KDC says it is: no line of the log ends in it.
            Some(name) => write!(f, "{}", name.escape_debug())?,
            None => write!(f, "{}", self.caller.identity)?,
        }
        match self.subject {
            Subject::None => {}
            Subject::Fid(fid) => write!(f, " fid={fid}")?,
            Subject::Volume(volume) => write!(f, " volume={volume}")?,
            Subject::Transaction(transaction) => write!(f, " transaction={transaction}")?,
        }
        f.write_char('}')
    }
}

impl Wait {
    /// Does `work`, on which the call waits as long as it is not done.
    pub async fn on<F: Future>(self, work: F) -> F::Output {
        let mut work = pin!(work);
        let mut since = None;
        let done = std::future::poll_fn(|cx| {
            let polled = work.as_mut().poll(cx);
            if polled.is_pending() {
                since.get_or_insert_with(Instant::now);
                note(Some(self));
            } else {
                note(None);
            }
            polled
        })
        .await;
        if let Some(since) = since {
            afar_probes::wait_done(self.label(), since);
        }
        done
    }

    /// Does `work`, which blocks the thread; the call waits for it.
    pub fn blocking<T>(self, work: impl FnOnce() -> T) -> T {
        note(Some(self));
        let since = Instant::now();
        let done = work();
        note(None);
        afar_probes::wait_done(self.label(), since);
        done
    }
}

/// As [`tokio::task::spawn_blocking`]; what the work logs belongs to the call that is served here.
pub fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let served = Serving::current();
    tokio::task::spawn_blocking(move || Serving::within(served, work))
}

#[cfg(test)]
mod tests;
