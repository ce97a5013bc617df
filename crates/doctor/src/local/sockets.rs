//! The buffers of sockets, and what the kernel dropped because they were full.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};

use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, socket_recv_buffer_size,
};

/// What afar's sockets ask for.
pub(super) const WANTED: usize = 8 << 20;

/// `net.core.rmem_max`.
pub(super) fn receive_buffer_max() -> Option<u64> {
    let text = fs::read_to_string("/proc/sys/net/core/rmem_max").ok()?;
    text.trim().parse().ok()
}

/// The receive buffer that a socket gets here.
pub(super) fn receive_buffer() -> Option<u64> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // As `afar-net` asks: root may exceed the limit.
    if set_socket_recv_buffer_size_force(&socket, WANTED).is_err() {
        set_socket_recv_buffer_size(&socket, WANTED).ok()?;
    }
    // The kernel tells the double, for its own overhead.
    Some(socket_recv_buffer_size(&socket).ok()? as u64 / 2)
}

/// Datagrams that the kernel has dropped so far because a socket's buffer was full.
pub(crate) fn datagrams_dropped() -> Option<u64> {
    dropped(&fs::read_to_string("/proc/self/net/snmp").ok()?)
}

/// Two lines that begin with `Udp:`, the names and the numbers (proc_pid_net(5)).
fn dropped(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let place = names
        .split_whitespace()
        .position(|name| name == "RcvbufErrors")?;
    numbers.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_found_by_its_name() {
        let text = "Tcp: A\nTcp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors X\n\
                    Udp: 10 1 2 11 312 0\nUdpLite: RcvbufErrors\nUdpLite: 5\n";
        assert_eq!(dropped(text), Some(312));
        assert_eq!(dropped("Udp: InDatagrams\nUdp: 10\n"), None);
        assert_eq!(dropped(""), None);
    }

    #[test]
    fn this_machine_has_buffers() {
        assert!(receive_buffer().is_some_and(|bytes| bytes > 0));
        assert!(receive_buffer_max().is_some() && datagrams_dropped().is_some());
    }
}
