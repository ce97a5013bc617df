//! From which of its addresses this machine reaches others, and when that may have changed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Links, IPv4 addresses and IPv4 routes (`RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV4_ROUTE`).
const GROUPS: u32 = 0x1 | 0x10 | 0x40;
/// What the kernel says at a time fits in.
const MESSAGES: usize = 16 << 10;
/// Messages taken at a time.
const TAKEN_MOST: usize = 64;

/// Tells when links, addresses or routes of this machine have changed (rtnetlink(7)).
#[derive(Debug)]
pub struct Routes(AsyncFd<OwnedFd>);

impl Routes {
    /// Tells of changes from now on.
    ///
    /// # Errors
    /// The system's: it has no such sockets, or no more.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn watch() -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        // Without a protocol named it is NETLINK_ROUTE.
        let socket = socket_with(family, kind, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self(register(socket)?))
    }

    /// Returns when something has changed since this returned last. What has, it does not tell: that is to be
    /// [looked at](source_of).
    ///
    /// # Errors
    /// The system's.
    pub async fn changed(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            if let Ok(taken) = ready.try_io(|socket| take(socket.get_ref())) {
                return taken;
            }
        }
    }
}

#[expect(
    unsafe_code,
    reason = "tokio asks for a promise that a safe trait does not make"
)]
fn register(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is its own, and stays open and the same until it is dropped.
    let registered = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
    Ok(registered?)
}

/// Takes what the kernel has said. [`io::ErrorKind::WouldBlock`] if that is nothing.
fn take(socket: &OwnedFd) -> io::Result<()> {
    let mut buffer = [0; MESSAGES];
    for taken in 0..TAKEN_MOST {
        match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            // Of some it does not tell when there are more than it keeps.
            Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
            Err(Errno::AGAIN) if taken > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The address from which packets to this one leave, by the routes there are now; none if there is no route.
#[must_use]
pub fn source_of(peer: SocketAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // It sends nothing: the kernel looks the route up.
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_reached_from_itself() {
        let peer = "127.0.0.1:7000".parse().unwrap();
        assert_eq!(source_of(peer), Some(Ipv4Addr::LOCALHOST.into()));
    }

    #[tokio::test]
    async fn nothing_is_told_when_nothing_changes() {
        let mut routes = Routes::watch().unwrap();
        let waited = std::time::Duration::from_millis(50);
        // Another test may well set links up; the kernel's own answer must not be an error.
        match tokio::time::timeout(waited, routes.changed()).await {
            Ok(told) => told.unwrap(),
            Err(_elapsed) => {}
        }
    }
}
