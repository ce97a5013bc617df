//! What is being recorded at the moment: one watched directory of the process, or none.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::event::{Event, Kind, NodeId, Tree};
use crate::fault::{Call, Failure, Fault};

/// Device and inode number.
pub(crate) type Inode = (u64, u64);

static RECORDING: AtomicBool = AtomicBool::new(false);
static SESSION: Mutex<Option<Session>> = Mutex::new(None);

thread_local! {
    /// Set while this thread is inside an interposed call, so that what the recording itself does
    /// (a panic's message, at worst) does not wait for its own lock.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Knows the watched nodes by inode, and what was done to them.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) events: Vec<Event>,
    /// As found at the start; all of it is on disk.
    pub(crate) base: Tree,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) faults: Vec<Fault>,
    /// Names of files that play no part.
    ignored: Vec<String>,
    /// The name each node was last given, which faults go by.
    pub(crate) names: Vec<String>,
    nodes: BTreeMap<Inode, NodeId>,
}

impl Session {
    pub(crate) fn new(ignored: &[&str]) -> Self {
        Self {
            ignored: ignored.iter().map(ToString::to_string).collect(),
            ..Self::default()
        }
    }

    /// A watched node by its inode.
    pub(crate) fn node(&self, inode: Inode) -> Option<NodeId> {
        self.nodes.get(&inode).copied()
    }

    /// Adds a node that has just been made. An inode number known before belonged to a file that
    /// is gone.
    pub(crate) fn add(&mut self, inode: Inode, name: &str, kind: Kind) -> NodeId {
        let node = NodeId(self.kinds.len());
        let ignored = kind == Kind::File && self.ignored.iter().any(|ignored| ignored == name);
        self.kinds.push(if ignored { Kind::Ignored } else { kind });
        self.names.push(name.to_owned());
        self.nodes.insert(inode, node);
        node
    }

    /// Records an event, unless its file plays no part.
    pub(crate) fn push(&mut self, event: Event) {
        if let Event::Link { name, node, .. } = &event {
            self.names[node.0].clone_from(name);
        }
        match event.changes() {
            Some(node) if self.kinds[node.0] == Kind::Ignored => {}
            _ => self.events.push(event),
        }
    }

    /// Whether a call is to fail, and how. The error is EIO, ENOSPC, …
    pub(crate) fn fault(&mut self, call: Call, node: NodeId) -> Option<Failure> {
        if self.kinds[node.0] == Kind::Ignored {
            return None;
        }
        let name = self.names[node.0].clone();
        self.fault_by_name(call, &name)
    }

    /// The same for a call that makes or removes a name.
    pub(crate) fn fault_by_name(&mut self, call: Call, name: &str) -> Option<Failure> {
        if self.ignored.iter().any(|ignored| ignored == name) {
            return None;
        }
        self.faults
            .iter_mut()
            .find_map(|fault| fault.strikes(call, name))
    }
}

/// The session, held by a thread inside an interposed call.
pub(crate) struct Entered(MutexGuard<'static, Option<Session>>);

impl Deref for Entered {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.0
            .as_ref()
            .expect("entered only while there is a session")
    }
}

impl DerefMut for Entered {
    fn deref_mut(&mut self) -> &mut Session {
        self.0
            .as_mut()
            .expect("entered only while there is a session")
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// The session, if something is recorded and this thread is not inside a call already.
pub(crate) fn enter() -> Option<Entered> {
    if !RECORDING.load(Ordering::Relaxed) || INSIDE.get() {
        return None;
    }
    INSIDE.set(true);
    let session = SESSION.lock();
    if session.is_none() {
        INSIDE.set(false);
        return None;
    }
    Some(Entered(session))
}

/// Starts a session, or ends it, giving back the one that ran.
pub(crate) fn replace(session: Option<Session>) -> Option<Session> {
    let mut current = SESSION.lock();
    RECORDING.store(session.is_some(), Ordering::Relaxed);
    std::mem::replace(&mut current, session)
}
