//! A socket whose wire can be cut.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use afar_net::{Config, Endpoint, Ready, Received, Socket, SocketStats, Udp};
use afar_rx::Transmit;

const WHOLE: u8 = 0;
const CUT: u8 = 1;
const GONE: u8 = 2;
/// How long one that is gone sleeps.
const NAP: Duration = Duration::from_millis(20);
const BUFFER: usize = 4 << 20;

/// What cuts the wire of one endpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Switch(Arc<AtomicU8>);

impl Switch {
    /// Nothing comes or goes from now on.
    pub(crate) fn cut(&self) {
        self.0.store(CUT, Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.0.store(WHOLE, Ordering::SeqCst);
    }

    /// The machine is gone, and its port is free soon.
    pub(crate) fn kill(&self) {
        self.0.store(GONE, Ordering::SeqCst);
    }

    /// An endpoint with this switch.
    pub(crate) fn bind(&self, address: SocketAddr, config: Config) -> io::Result<Endpoint> {
        let udp = Udp::bind(address, BUFFER, BUFFER)?;
        let socket = Switched {
            local: udp.local_addr(),
            udp: Some(udp),
            switch: self.clone(),
        };
        Endpoint::with_socket(socket, config)
    }

    fn is(&self, state: u8) -> bool {
        self.0.load(Ordering::SeqCst) == state
    }
}

struct Switched {
    local: SocketAddr,
    udp: Option<Udp>,
    switch: Switch,
}

impl Switched {
    fn udp(&mut self) -> Option<&mut Udp> {
        if self.switch.is(GONE) {
            self.udp = None;
        }
        self.udp.as_mut()
    }
}

impl Socket for Switched {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn receive(&mut self, mut sink: impl FnMut(Received)) -> io::Result<bool> {
        let switch = self.switch.clone();
        let Some(udp) = self.udp() else {
            return Ok(false);
        };
        udp.receive(|datagram| {
            if switch.is(WHOLE) {
                sink(datagram);
            }
        })
    }

    fn send(&mut self, transmit: &Transmit, data: &[u8]) -> io::Result<()> {
        let whole = self.switch.is(WHOLE);
        match self.udp() {
            Some(udp) if whole => udp.send(transmit, data),
            _ => Ok(()),
        }
    }

    fn refusals(&mut self, mut sink: impl FnMut(SocketAddr, io::ErrorKind)) {
        let whole = self.switch.is(WHOLE);
        if let Some(udp) = self.udp() {
            udp.refusals(|peer, kind| {
                if whole {
                    sink(peer, kind);
                }
            });
        }
    }

    fn wait(
        &mut self,
        wake: BorrowedFd<'_>,
        writable: bool,
        timeout: Option<Duration>,
    ) -> io::Result<Ready> {
        match self.udp() {
            Some(udp) => udp.wait(
                wake,
                writable,
                Some(timeout.map_or(NAP, |time| time.min(NAP))),
            ),
            None => {
                std::thread::sleep(timeout.map_or(NAP, |time| time.min(NAP)));
                Ok(Ready::default())
            }
        }
    }

    fn stats(&self) -> SocketStats {
        self.udp
            .as_ref()
            .map_or_else(SocketStats::default, Socket::stats)
    }
}
