//! What goes in and out of an endpoint besides packets.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;

use crate::{CallError, CallId, ConnectionId, ServiceId};

/// The ECN field of an IP packet, where it says anything (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// ECN-capable transport, codepoint 10.
    Ect0,
    /// ECN-capable transport, codepoint 01.
    Ect1,
    /// Congestion experienced.
    Ce,
}

/// Datagrams to send to one address, back to back in the buffer that was filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Transmit {
    /// Where to send.
    pub destination: SocketAddr,
    /// Our address to send from, where there may be several; `None` leaves it to the system.
    pub source: Option<IpAddr>,
    /// The ECN field to send with.
    pub ecn: Option<Ecn>,
    /// Bytes in the buffer.
    pub size: usize,
    /// Each datagram's size, if there is more than one; the last may be shorter (as for UDP GSO).
    pub segment_size: Option<usize>,
    /// Whether the network must not fragment it (it is an MTU probe).
    pub dont_fragment: bool,
}

/// A service this endpoint answers for.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its number in packet headers.
    pub id: ServiceId,
    /// What `rxdebug` and traces call it.
    pub name: &'static str,
    /// How many of its calls may be in the application's hands; further ones wait, then get VBUSY.
    pub max_calls: usize,
    /// How long a client may leave a call without bringing, or taking, any of its data; `None` is for
    /// ever. It gains all its time back with every 32 KiB, so that a slow client is no idle one. Users have
    /// twice as long, administrators ten times.
    pub idle_limit: Option<Duration>,
    /// Whether a call runs only when its client has proved that it receives, as at OpenAFS's file server. For what
    /// costs much or has the server ask the client; of other services only the reply waits for that, if it is
    /// long.
    // spec: rx#reach-check
    pub check_reach: bool,
}

impl Service {
    /// A service with the defaults: 4,096 calls at a time, a minute for idle clients, no reach check.
    #[must_use]
    pub const fn new(id: ServiceId, name: &'static str) -> Self {
        Self {
            id,
            name,
            max_calls: 4096,
            idle_limit: Some(Duration::from_secs(60)),
            check_reach: false,
        }
    }
}

/// What the application must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client began a call to one of our services, and may (authentication is done).
    Incoming {
        /// The call.
        call: CallId,
        /// Its connection.
        connection: ConnectionId,
        /// The client's address.
        peer: SocketAddr,
        /// The service it asks for.
        service: ServiceId,
    },
    /// [`Endpoint::read`](crate::Endpoint::read) has something after it said [`Read::Pending`].
    Readable(CallId),
    /// [`Endpoint::write`](crate::Endpoint::write) has room again after it said that it has not.
    Writable(CallId),
    /// The call is over without success; its name is no longer valid.
    Failed(CallId, CallError),
    /// The call is over: everything was sent and received. Its name is no longer valid.
    ///
    /// A client call is complete when the reply was read to its end, a server call when the client
    /// has acknowledged the whole reply.
    Completed(CallId),
    /// A connection on which [`Endpoint::start_call`](crate::Endpoint::start_call) found no channel
    /// free has one.
    ChannelFree(ConnectionId),
    /// The path to a peer proved to drop packets as large as Rx has always sent. Smaller ones are sent
    /// from now on.
    Narrow {
        /// The peer's address.
        peer: SocketAddr,
        /// The largest UDP payload that gets through, in bytes.
        size: usize,
    },
}

/// What a read gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The next bytes of the stream; never empty.
    Data(Bytes),
    /// Nothing yet: a [`Event::Readable`] will follow.
    Pending,
    /// The peer's last packet has been read.
    End,
}
