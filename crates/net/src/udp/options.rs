//! Options of UDP sockets.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::Ipv6DontFrag;
use quinn_udp::{UdpSockRef, UdpSocketState};
use rustix::io::Errno;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
    set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force, socket_recv_buffer_size,
    socket_send_buffer_size,
};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Opens a socket. One of IPv6 at the unspecified address serves IPv4 as well.
pub(super) fn bind(addr: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    if addr.is_ipv6() {
        socket.set_only_v6(!addr.ip().is_unspecified())?;
    }
    socket.bind(&addr.into())?;
    Ok(socket.into())
}

/// Switches on segmentation offload for receiving, ECN and the queue of ICMP errors. Lets the kernel
/// fragment, which Rx relies on where the MTU of a path is smaller than its packets.
pub(super) fn prepare(socket: &UdpSocket) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(UdpSockRef::from(socket))?;
    state.enable_transport_errors(UdpSockRef::from(socket))?;
    set_dont_fragment(socket, false)?;
    Ok(state)
}

/// Sets whether datagrams larger than the MTU are refused instead of fragmented.
pub(super) fn set_dont_fragment(socket: &UdpSocket, dont_fragment: bool) -> io::Result<()> {
    let (v4, v6) = if dont_fragment {
        (Ipv4PathMtuDiscovery::PROBE, Ipv6PathMtuDiscovery::PROBE)
    } else {
        (Ipv4PathMtuDiscovery::DONT, Ipv6PathMtuDiscovery::DONT)
    };
    // On a socket of IPv6 as well: that is what counts for mapped addresses.
    set_ip_mtu_discover(socket, v4)?;
    if socket.local_addr()?.is_ipv6() {
        set_ipv6_mtu_discover(socket, v6)?;
        setsockopt(socket, Ipv6DontFrag, &dont_fragment)?;
    }
    Ok(())
}

/// Asks for socket buffers. Gives the hint to print if they came out smaller.
pub(super) fn set_buffers(
    socket: &UdpSocket,
    receive: usize,
    send: usize,
) -> io::Result<Option<String>> {
    // Root may exceed the limits; where that is denied, up to the limit is better than nothing.
    if set_socket_recv_buffer_size_force(socket, receive).is_err() {
        SockRef::from(socket).set_recv_buffer_size(receive)?;
    }
    if set_socket_send_buffer_size_force(socket, send).is_err() {
        SockRef::from(socket).set_send_buffer_size(send)?;
    }
    // The kernel doubles what is asked, for its own overhead, and tells the double.
    let received = socket_recv_buffer_size(socket)? / 2;
    let sent = socket_send_buffer_size(socket)? / 2;
    Ok(hint(received, receive, sent, send))
}

/// The line that says which limits bind: what was got and what was asked for, in bytes.
fn hint(received: usize, receive: usize, sent: usize, send: usize) -> Option<String> {
    let mut kinds = Vec::new();
    let mut settings = Vec::new();
    if received < receive {
        kinds.push(format!("receive buffers to {} KiB", received >> 10));
        settings.push(format!("net.core.rmem_max={receive}"));
    }
    if sent < send {
        kinds.push(format!("send buffers to {} KiB", sent >> 10));
        settings.push(format!("net.core.wmem_max={send}"));
    }
    if kinds.is_empty() {
        return None;
    }
    Some(format!(
        "the kernel limits UDP {}; for full speed: sysctl -w {}",
        kinds.join(" and "),
        settings.join(" ")
    ))
}

/// Whether a queue between the socket and the wire had no room.
pub(super) fn is_queue_full(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_names_what_binds() {
        assert_eq!(hint(8 << 20, 8 << 20, 8 << 20, 8 << 20), None);
        assert_eq!(
            hint(208 << 10, 8 << 20, 8 << 20, 8 << 20).unwrap(),
            "the kernel limits UDP receive buffers to 208 KiB; \
             for full speed: sysctl -w net.core.rmem_max=8388608"
        );
        assert_eq!(
            hint(208 << 10, 4 << 20, 100 << 10, 4 << 20).unwrap(),
            "the kernel limits UDP receive buffers to 208 KiB and send buffers to 100 KiB; \
             for full speed: sysctl -w net.core.rmem_max=4194304 net.core.wmem_max=4194304"
        );
    }

    #[test]
    fn fragmentation_can_be_switched_on_both_families() {
        for addr in ["127.0.0.1:0", "[::]:0"] {
            let socket = bind(addr.parse().unwrap()).unwrap();
            prepare(&socket).unwrap();
            set_dont_fragment(&socket, true).unwrap();
            set_dont_fragment(&socket, false).unwrap();
        }
    }
}
