//! ICMP errors: the network refused a datagram of ours.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};

/// Room for the control messages of an error: the error with the address of who reported it, and
/// what this socket asks to have with every datagram.
const CONTROL: usize = 512;
/// Errors taken in a row; a flood of them must not stop the traffic.
const TAKEN: usize = 64;

/// A datagram to that destination was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) destination: SocketAddr,
    pub(super) kind: io::ErrorKind,
}

/// Whether an error of a system call is the echo of an ICMP error, or one that means the same.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    is_refusal_kind(error.kind())
        || matches!(
            error.raw_os_error().map(Errno::from_raw),
            Some(Errno::EPROTO | Errno::EHOSTDOWN)
        )
}

fn is_refusal_kind(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::PermissionDenied
    )
}

/// Empties the socket's error queue into `refusals`. Errors that say something else, such as
/// the MTU of a hop, are dropped.
pub(super) fn take_refusals(socket: &UdpSocket, refusals: &mut Vec<Refusal>) {
    for _ in 0..TAKEN {
        match take_one(socket) {
            Ok(Some(refusal)) => refusals.push(refusal),
            Ok(None) => {}
            Err(Errno::EAGAIN) => return,
            Err(error) => {
                tracing::debug!("reading the error queue failed: {error}");
                return;
            }
        }
    }
}

fn take_one(socket: &UdpSocket) -> Result<Option<Refusal>, Errno> {
    let mut control = [0; CONTROL];
    // The refused datagram itself is cut off.
    let mut payload = [0; 1];
    let mut payload = [IoSliceMut::new(&mut payload)];
    let message = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut payload,
        Some(&mut control),
        MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT,
    )?;
    let Some(destination) = message.address.as_ref().and_then(to_socket_addr) else {
        return Ok(None);
    };
    for control in message.cmsgs()? {
        let (ControlMessageOwned::Ipv4RecvErr(error, _)
        | ControlMessageOwned::Ipv6RecvErr(error, _)) = control
        else {
            continue;
        };
        let Ok(errno) = i32::try_from(error.ee_errno) else {
            continue;
        };
        let kind = io::Error::from_raw_os_error(errno).kind();
        if is_refusal_kind(kind) {
            return Ok(Some(Refusal { destination, kind }));
        }
    }
    Ok(None)
}

fn to_socket_addr(addr: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = addr
        .as_sockaddr_in()
        .map(|v4| SocketAddrV4::new(v4.ip(), v4.port()).into());
    v4.or_else(|| {
        let v6 = addr.as_sockaddr_in6()?;
        Some(SocketAddrV6::new(v6.ip(), v6.port(), v6.flowinfo(), v6.scope_id()).into())
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::udp::options;

    #[test]
    fn a_closed_port_is_reported_with_the_destination() {
        let closed = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let destination = closed.local_addr().unwrap();
        drop(closed);
        let socket = options::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        options::prepare(&socket).unwrap();
        socket.send_to(b"anybody there?", destination).unwrap();
        // Loopback delivers before send_to returns.
        let mut refusals = Vec::new();
        take_refusals(&socket, &mut refusals);
        let kind = io::ErrorKind::ConnectionRefused;
        assert_eq!(refusals, [Refusal { destination, kind }]);
        take_refusals(&socket, &mut refusals);
        assert_eq!(refusals.len(), 1, "each is reported once");
    }
}
