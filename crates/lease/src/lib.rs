//! Leases of directories and files: a server's word to one host that nobody else reads or changes them until it has
//! asked for them back. docs/protocol/leases.md is the protocol.
//!
//! - [`wire`]: what the two ends say
//! - [`Server`]: who has leases, what another host's call has to wait for, who is asked to give back
//! - [`Holder`]: what a client may do without asking, until when, and what it has to send first
//!
//! **Invariant:** this crate has no clock, socket, thread, lock or async. Time is an argument, and what has to be done
//! comes out of `poll_action`.
//!
//! **Invariant:** a holder stops using a lease before the server lets others at the vnode, as long as the clocks of
//! both run equally fast within 5 %. Messages that are late, lost, repeated or overtaken do not change that.
//!
//! # In a file server
//!
//! One [`Server`] for all volumes, below a lock that is held for one of its methods and what [`Server::poll_action`]
//! gives behind it. A task sleeps until [`Server::poll_timeout`]. `now` is read below the lock.
//!
//! ## Around a call
//!
//! 1. **Hear.** When the call is decoded and its host known, [`Server::hear`] with the note, and 8 random bytes from
//!    the system. A host without an identity, or one whose machine could not be asked for it, has no note.
//! 2. **Refuse.** What is refused by rights, or because a vnode is not there, is refused now, from what the store has:
//!    nobody without rights causes a recall. Access lists are no part of a lease, so the store's are right. A vnode
//!    that is not there may be born at any moment, and a caller that did not find it hears so even then.
//! 3. **Enter.** [`Server::enter`] with *all* fids of the table below at once. On [`Entry::Wait`] the call waits,
//!    holding nothing that another call needs (no turn at a file, no turn of the committer, no volume), until
//!    [`Action::Freed`] of one of them, [`Action::FreedVolume`], or the time; then it goes on at step 2. At most half
//!    of the calls a server has in progress wait so; more get VBUSY, or else the holders' batches, for which they wait,
//!    find no room. Room for the bytes of batches is halved in the same way.
//! 4. **Do it.** As without leases, in the store, with rights checked as today. Where names gave the fids, they are
//!    looked up again in the step that changes them; if they are others now, [`Server::leave`] and step 2. Promises of
//!    others are broken and waited for.
//! 5. **Answer.** [`Server::answer`], with those wishes of the note that were entered, of which the caller could have
//!    changed the vnode and no other host has a promise ([`Wish::alone`], asked now). Then [`Server::reserve`] if a
//!    block is wanted. The word goes into the reply.
//! 6. **Leave.** [`Server::leave`], by a guard, since calls fail and clients go away.
//!
//! A call may leave before it ends, once everything its reply says is read and promised: a fetch leaves, and has its
//! word, before it sends the data of its snapshot. A store enters before it waits for its turn at the file, and leaves
//! at its end.
//!
//! | operation of RXAFS | fids to enter |
//! |---|---|
//! | FetchStatus, FetchData (64; out of band too), FetchACL | the vnode |
//! | BulkStatus, InlineBulkStatus | all vnodes, in one step; InlineBulkStatus leaves those out that step 2 refuses |
//! | StoreStatus, StoreData (64; out of band too), StoreACL | the vnode |
//! | CreateFile, MakeDir, Symlink | the directory |
//! | Link | the directory, the file |
//! | RemoveFile, RemoveDir | the directory, what the name stands for |
//! | Rename in a directory | the directory; what is replaced |
//! | Rename to another directory | both directories, what is moved, what is replaced: up to 4 |
//! | SetLock | the vnode |
//! | FetchTree | its root. Of the others, [`Server::enter_free`] for each part before it is read and promised, and [`Server::leave`] behind it; what is not free is left out |
//! | FetchFollowing, FetchFiles | none to wait at; each as those of a tree |
//! | Batch | of each operation that is not [covered](Server::covers), as the single one; in one step for all |
//! | ExtendLock, ReleaseLock, GiveUpCallBacks, GetVolumeStatus, SetVolumeStatus, GetTime and all others | none |
//!
//! A step that only reads may ask for each vnode by [`Server::read`] in place of `enter`, after its host was promised word of
//! changes, if wishes are granted by promises that are looked at below the same lock: then nothing is kept of it.
//!
//! Read-only volumes need none of this, and volumes of other servers are not here. A call without fids to enter has
//! [`Server::word`] in place of `answer`.
//!
//! ## Batches
//!
//! A batch whose note does not [fit](Server::fits) is answered with the word, and not run; nothing is remembered of it
//! under its number. Each operation has the number of the lease of each fid that it touches (0: none, or it is lost)
//! and the version it expects of each. Covered is one of which all are. *All versions are compared, below the store's
//! lock, of covered operations too*: a lease may end between the look at it and the commit, and another host may have
//! come then. What has another version is refused.
//!
//! What has a `wanted` fid: the fid must not be there; then [`Server::born`] with the directory's lease, in the step
//! that makes it. If the store does not make it after that, [`Server::unborn`]. A
//! covered store takes what it needs of [`Server::spend`] before it looks at the quota, which
//! [`Server::reserved_quota`] is counted against.
//!
//! ## Reserves and claims
//!
//! For [`Server::reserve`] the store sets fids aside: it advances the volume's counters and notes the block with its host and
//! session in one commit. [`Action::Returned`] removes the note. A claim is for the session's blocks that are noted,
//! with the quota noted, and for leases of what is there and the caller may change, or is in such a block.
//!
//! ## Volumes as a whole
//!
//! A transaction that takes a read-write volume from its clients (TransCreate that holds it busy or offline, the
//! conversion of a read-only one), and each that reads it (Dump, Forward, Clone, ReClone): [`Server::close_volume`],
//! then [`Server::enter_volume`] until it proceeds, *then* the hold, since the holders' batches must get in;
//! [`Server::open_volume`] by a guard when the transaction ends.
//!
//! ## Actions and rows
//!
//! [`Action::Recall`]: the host's callback service is called with [`Server::recall_of`] at that moment; the answer goes
//! to [`Server::recall_answered`]; a call that fails is dropped, as it comes again. 512 calls at a time, others in the
//! order they came. [`Action::Persist`], then [`Server::persisted`]; [`Action::Forget`]; [`Action::Returned`] to the
//! store's counters; [`Action::Revoked`] to the log. Rows are read before the first call is served, and `instance` is
//! durable by then.
//!
//! In `crates/fileserver`, `Files::visit` is step 1 (the service's requests carry the note), `Visit::step` gets a twin
//! that takes the fids and does steps 2 to 4, and `Visit::end` is the place of steps 5 and 6. `entries::remove` and
//! `entries::move_entry` look their names up once before (`Volume::lookup`), the steps of `fetch::open`, `status`,
//! `acl::replace` (the second one) and `lock::set` name what they are at, `status::bulk` all its fids. `store::store`
//! enters before `stores.turn`; a batch enters before `stores.turns` and `batches.turn`, and compares in the committer.
//! `volser`'s `hold` is the place for volumes. Promises need a question more: whether another host has one.
//!
//! # In a cache
//!
//! One [`Holder`] for each file server (by its UUID), below the lock of what is cached from it. The clock is looked at
//! below that lock as well.
//!
//! - **Calls.** [`Holder::note`] before a call is sent the first time; its [`Sent`] stays with the call over all
//!   repetitions, and goes to [`Holder::answered`] with the word before anything else of the reply is believed. Wishes:
//!   the directory or file that the call is at, if the program seems to go on there. A reserve: when
//!   [`Holder::reserved`] is below 64. Statuses of what is leased are taken from the reply in which it was granted.
//! - **Before an operation**, [`Holder::may`] of each vnode it needs; with all of them it is made here, and the journal
//!   gets it with these numbers, the expected versions and the time:
//!
//!   | operation | leases |
//!   |---|---|
//!   | lookup, readdir, stat, read, readlink | the vnode's, or a promise as today |
//!   | write, truncate, chmod, utimes | the file's or directory's |
//!   | create, mkdir, symlink | the directory's, and a fid of [`Holder::born`] |
//!   | link | the directory's and the file's |
//!   | unlink, rmdir | the directory's and the victim's ([`Holder::forget`] when the server has removed it) |
//!   | rename | both directories', that of what is replaced; in another directory, also that of what moves |
//!
//!   Everything else is a call: access lists, locks, volumes, a directory that moves to another one (the server alone
//!   sees loops), and each operation that lacks a lease. Such a call waits until the journal has nothing of its vnodes.
//! - **Sending.** In the journal's order. [`Holder::number`] when a batch is made, or 0 if the change was marked late.
//!   What the server refused, or did not make, is a conflict: [`Holder::forget`], `lost+found`, the log, the next
//!   fsync.
//! - **Actions.** [`Flush`](holder::Action::Flush): the promise counts as broken, everything up to the last change of
//!   the vnode (and the last birth in it) is sent, then [`Holder::flushed`]. [`Lost`](holder::Action::Lost): the same
//!   as a broken promise, and unsent changes of it are marked late for good. [`Say`](holder::Action::Say): a renewal if
//!   no other call goes within a second. [`Claim`](holder::Action::Claim): [`Holder::claim`], each second until
//!   [`Holder::claimed`] or it gives none.
//! - **Recalls.** The callback service gives what comes from a server to its holder, and answers what
//!   [`Holder::recalled`] says, at once.
//! - **Start and end.** The journal has [`Holder::session`] before it has a change. [`Holder::resume`] with it and the
//!   numbers of what is there. [`Holder::leave`] at the end, then the batches, then one call with a note.

pub mod holder;
pub mod server;
pub mod wire;

use std::time::Duration;

pub use holder::{Holder, Sent};
pub use server::{Action, Entry, Heard, Limits, NotBorn, Row, Server, VisitId, VolumeEntry, Wish};

/// A moment: the time since any one of the caller's choice, on a clock that never goes back and that counts the time
/// that the machine was suspended (CLOCK_BOOTTIME of Linux).
pub type Time = Duration;

/// How long a lease lasts for the server after it received a note of the holder.
// spec: leases#time
pub const TERM: Duration = Duration::from_secs(20);

/// How long a lease lasts for the holder after it sent a note that was answered. The difference is the margin for
/// clocks that do not run equally fast.
// spec: leases#time
pub const HOLDER_TERM: Duration = Duration::from_secs(19);

/// How long a holder that has heard of a recall may send what it has.
// spec: leases#recall
pub const FLUSH_LIMIT: Duration = Duration::from_secs(15);

/// How long a server waits for the next message of a holder that has heard of a recall.
// spec: leases#recall
pub const STALL: Duration = Duration::from_secs(5);

/// After what time without an answer a recall is sent again.
// spec: leases#recall
pub const RESEND: Duration = Duration::from_secs(1);

/// After what time without a note a holder sends one for its own sake.
// spec: leases#time
pub const RENEWAL: Duration = Duration::from_secs(6);

/// After what time without use a holder gives its leases back.
// spec: leases#giving-back
pub const IDLE: Duration = Duration::from_secs(60);

/// How long a vnode is not leased after a first recall.
// spec: leases#damping
pub const DAMPING: Duration = Duration::from_secs(10);

/// How often that time doubles: 640 s at most.
// spec: leases#damping
pub const DAMPING_DOUBLINGS: u8 = 6;
