//! A socket at the end of a long way.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use afar_net::{Ready, Received, Socket, SocketStats, Transmit, Udp};

/// A UDP socket to which all that arrives has been on its way for some time more.
pub(crate) struct Slow {
    pub(crate) udp: Udp,
    pub(crate) delay: Duration,
    /// What has yet to arrive, and when it will.
    pub(crate) coming: VecDeque<(Instant, Received)>,
}

impl Socket for Slow {
    fn local_addr(&self) -> SocketAddr {
        self.udp.local_addr()
    }

    fn receive(&mut self, mut sink: impl FnMut(Received)) -> io::Result<bool> {
        let now = Instant::now();
        let Self { udp, delay, coming } = self;
        let more = udp.receive(|datagram| coming.push_back((now + *delay, datagram)))?;
        while let Some((_, datagram)) = coming.pop_front_if(|(at, _)| *at <= now) {
            sink(datagram);
        }
        Ok(more)
    }

    fn send(&mut self, transmit: &Transmit, data: &[u8]) -> io::Result<()> {
        self.udp.send(transmit, data)
    }

    fn refusals(&mut self, sink: impl FnMut(SocketAddr, io::ErrorKind)) {
        self.udp.refusals(sink);
    }

    fn wait(
        &mut self,
        wake: BorrowedFd<'_>,
        writable: bool,
        timeout: Option<Duration>,
    ) -> io::Result<Ready> {
        let Some((at, _)) = self.coming.front() else {
            return self.udp.wait(wake, writable, timeout);
        };
        let left = at.saturating_duration_since(Instant::now());
        let timeout = timeout.map_or(left, |timeout| timeout.min(left));
        let ready = self.udp.wait(wake, writable, Some(timeout))?;
        Ok(Ready {
            datagrams: true,
            ..ready
        })
    }

    fn stats(&self) -> SocketStats {
        self.udp.stats()
    }
}
