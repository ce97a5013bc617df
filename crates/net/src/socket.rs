//! The seam between the shell and a network.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use afar_rx::{Ecn, Transmit};
use bytes::Bytes;

/// One datagram that arrived.
#[derive(Clone, Debug)]
pub struct Received {
    /// The sender.
    pub from: SocketAddr,
    /// Our address that it was sent to, if that is known.
    pub to: Option<IpAddr>,
    /// Its ECN field.
    pub ecn: Option<Ecn>,
    /// Its payload.
    pub data: Bytes,
}

/// What ended a [`Socket::wait`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Datagrams may have arrived.
    pub datagrams: bool,
    /// `wake` was readable. It stays so, and ends every later wait at once, until it is read.
    pub wake: bool,
}

/// A network as one I/O thread sees it: datagrams in and out, and a clock.
///
/// [`Udp`](crate::Udp) is the real one. A simulated network implements this to run the shipped code.
pub trait Socket: Send + 'static {
    /// The address peers see as the sender of our datagrams, as far as it is known.
    fn local_addr(&self) -> SocketAddr;

    /// The time. It must not go back.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Takes a batch of what has arrived, without waiting. Says whether more may be there.
    ///
    /// # Errors
    /// Those of the network; [`receive`](Self::receive) is tried again later.
    fn receive(&mut self, sink: impl FnMut(Received)) -> io::Result<bool>;

    /// Sends the datagrams of one [`Transmit`], without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no room now: the same transmit has to be given
    /// again after [`wait`](Self::wait). EMSGSIZE means that these datagrams are too large for the
    /// way to that destination, any other error that none can go there.
    fn send(&mut self, transmit: &Transmit, data: &[u8]) -> io::Result<()>;

    /// Takes the refusals by the network that arrived since the last time: whose datagrams, and why.
    fn refusals(&mut self, sink: impl FnMut(SocketAddr, io::ErrorKind));

    /// Sleeps until datagrams may have arrived, `wake` is readable, `timeout` has passed or, if
    /// `writable`, there may be room to send. It may return early.
    ///
    /// # Errors
    /// Those of the system.
    fn wait(
        &mut self,
        wake: BorrowedFd<'_>,
        writable: bool,
        timeout: Option<Duration>,
    ) -> io::Result<Ready>;

    /// Whether only who may can send here, so that everybody is believed.
    fn is_private(&self) -> bool {
        false
    }

    /// Counters.
    fn stats(&self) -> SocketStats;

    /// One line that says which limit of the system keeps this socket from full speed and how to
    /// raise it, if one does.
    fn buffer_hint(&self) -> Option<String> {
        None
    }
}

/// Counters of a [`Socket`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketStats {
    /// System calls that sent datagrams.
    pub send_calls: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Times there was no room to send.
    pub send_blocked: u64,
    /// Batches sent datagram by datagram because the kernel refused them whole.
    pub segmentation_refused: u64,
    /// Datagrams the kernel refused to send.
    pub send_failed: u64,
    /// System calls that received datagrams.
    pub receive_calls: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// System calls that slept, or looked whether there was a reason not to.
    pub wait_calls: u64,
}
