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
//! Each operation on a read-write volume is between two calls, below the one lock that the server's [`Server`] is in:
//!
//! 1. [`Server::hear`] with the caller's note, if it has one, as soon as the call is decoded.
//! 2. The vnodes are looked up: a call ends here for which one is missing, since it may be born at any moment. Then
//!    [`Server::enter`] with all fids that the operation reads or changes. [`Entry::Wait`] names the latest time to ask
//!    again; [`Action::Freed`] and [`Action::FreedVolume`] wake earlier. Nothing is held while a call waits.
//!    A call that only reads asks by [`Server::read`] instead, once its host was promised word of changes.
//! 3. The operation: store, then promises broken, as without leases. In a batch, [`Server::covers`] says of each
//!    change whether it is made under a lease; others are made only on the version that they expect.
//!    [`Server::born`] comes before a reserved fid is made, [`Server::unborn`] if it is not made then.
//! 4. [`Server::answer`], with each wish of which the caller could have changed the vnode, and whether no other host
//!    has a promise on it. Its word goes back with the reply.
//! 5. [`Server::leave`], also when the operation failed or its client went away.
//!
//! `vos` transactions, and whatever else needs a volume as a whole, use [`Server::close_volume`],
//! [`Server::enter_volume`] and [`Server::open_volume`].
//!
//! # In a cache
//!
//! Before a call, [`Holder::note`] makes the note. Its [`Sent`] is kept until the reply, and goes with the word to
//! [`Holder::answered`], before anything else of the reply is believed. Before an operation, [`Holder::may`] says
//! whether it can be done here; a change notes the number it gives in the journal. [`Holder::born`] takes a fid for
//! something new. On [`Action::Flush`](holder::Action::Flush) the cache stops, sends what it has of that vnode, and
//! says [`Holder::flushed`] when the server has it.

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
