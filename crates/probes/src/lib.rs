//! USDT probes: places where `bpftrace`, `perf` and SystemTap attach to a server that runs.
//!
//! Each function here is a probe of the provider `afar` with the function's name, and [`ALL`] says what its
//! arguments are. While nobody is attached a probe costs one load and one branch, and its arguments are not made.
//! There are six arguments at most, because bpftrace reads no more. An address is that of IPv4 as `ntop` takes it,
//! and 0 for one of IPv6.
//!
//! The task of a call goes from thread to thread. So no probe has to be matched with an earlier one of its thread:
//! each tells how long it took.

use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use probe::probe_lazy;

/// A probe, as docs/admin/eyes.md lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Its name.
    pub name: &'static str,
    /// Its arguments in their order.
    pub arguments: &'static [&'static str],
}

/// All probes.
pub const ALL: [Probe; 6] = [
    Probe {
        name: "rpc_start",
        arguments: &["operation", "client"],
    },
    Probe {
        name: "rpc_done",
        arguments: &["operation", "client", "ns", "code", "received", "sent"],
    },
    Probe {
        name: "io_done",
        arguments: &["volume", "file", "kind", "ns", "read", "written"],
    },
    Probe {
        name: "wait_done",
        arguments: &["what", "ns"],
    },
    Probe {
        name: "cb_break",
        arguments: &["client", "files", "ns", "answered"],
    },
    Probe {
        name: "rx_lost",
        arguments: &["peer", "port", "packets"],
    },
];

/// A call of an operation, such as `RXAFS.fetch_status`, begins to be served.
#[inline]
pub fn rpc_start(operation: &CStr, client: SocketAddr) {
    probe_lazy!(afar, rpc_start, operation.as_ptr(), ipv4(client));
}

/// A call has been served.
#[derive(Debug, Clone, Copy)]
pub struct Rpc<'a> {
    /// The operation, such as `RXAFS.fetch_status`.
    pub operation: &'a CStr,
    /// Where it came from.
    pub client: SocketAddr,
    /// How long it took.
    pub took: Duration,
    /// The code it was aborted with; 0 if it was not.
    pub code: i32,
    /// Bytes from the client.
    pub received: u64,
    /// Bytes to the client.
    pub sent: u64,
}

/// A call has been served.
#[inline]
pub fn rpc_done(rpc: &Rpc<'_>) {
    probe_lazy!(
        afar,
        rpc_done,
        rpc.operation.as_ptr(),
        ipv4(rpc.client),
        nanoseconds(rpc.took),
        rpc.code,
        rpc.received,
        rpc.sent
    );
}

/// What a call did in a volume.
#[derive(Debug, Clone, Copy)]
pub struct Io {
    /// The volume.
    pub volume: u32,
    /// Vnode and uniquifier of the file whose data was asked for; 0 if there was none.
    pub file: [u32; 2],
    /// Whether it was to change something.
    pub changes: bool,
    /// Whether it failed.
    pub failed: bool,
    /// How long the call took.
    pub took: Duration,
    /// Bytes of the file sent to the client.
    pub read: u64,
    /// Bytes of the file received from the client.
    pub written: u64,
}

impl Io {
    /// The uniquifier in the higher half.
    fn file(&self) -> u64 {
        let [vnode, uniquifier] = self.file.map(u64::from);
        uniquifier << 32 | vnode
    }

    fn kind(&self) -> u8 {
        u8::from(self.changes) | u8::from(self.failed) << 1
    }
}

/// A call in a volume has been served.
#[inline]
pub fn io_done(io: &Io) {
    probe_lazy!(
        afar,
        io_done,
        io.volume,
        io.file(),
        io.kind(),
        nanoseconds(io.took),
        io.read,
        io.written
    );
}

/// A call has waited since then for what this word says.
#[inline]
pub fn wait_done(what: &CStr, since: Instant) {
    probe_lazy!(afar, wait_done, what.as_ptr(), nanoseconds(since.elapsed()));
}

/// A client was told that promises of so many files are broken, and has answered or not.
#[inline]
pub fn cb_break(client: SocketAddr, files: usize, took: Duration, answered: bool) {
    probe_lazy!(
        afar,
        cb_break,
        ipv4(client),
        files,
        nanoseconds(took),
        answered
    );
}

/// So many packets to a peer count as lost.
#[inline]
pub fn rx_lost(peer: SocketAddr, packets: u64) {
    probe_lazy!(afar, rx_lost, ipv4(peer), peer.port(), packets);
}

/// An address as `ntop` takes it: its bytes in their order.
fn ipv4(address: SocketAddr) -> u32 {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => u32::from_ne_bytes(ip.octets()),
        IpAddr::V6(_) => 0,
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
