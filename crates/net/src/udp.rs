//! UDP of Linux: segmentation offload both ways, ECN, ICMP errors, socket buffers.

mod buffers;
mod options;
mod refusals;
mod segments;

use std::array;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use afar_rx::{Ecn, Transmit};
use bytes::Bytes;
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::queue::Queue;
use crate::socket::{Ready, Received, Socket, SocketStats};
use buffers::{BUFFER_SIZE, Pool};
use refusals::{Refusal, is_refusal, take_refusals};
use segments::Segmentation;

/// Bytes in a buffer from which they are handed on in place; fewer are copied, so that what an
/// application holds on to never keeps more than four times its size.
const IN_PLACE: usize = BUFFER_SIZE / 4;
/// Buffers offered at a time while large datagrams arrive: enough to save system calls, and few
/// enough to stay in the processor's cache.
const LARGE_BATCH: usize = 8;
/// How long a datagram is tried that the device does not take.
const PATIENCE: Duration = Duration::from_millis(20);
/// Largest UDP payload over IPv4.
const PAYLOAD_MAX: usize = 65_507;

/// A UDP socket.
#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    state: UdpSocketState,
    local_addr: SocketAddr,
    buffer_hint: Option<String>,
    /// Whether the kernel must not fragment, at present.
    dont_fragment: bool,
    segmentation: Segmentation,
    /// Bytes of the transmit at hand that were sent before the socket had no more room.
    resume: usize,
    /// A queue below the socket was full.
    queue: Queue,
    /// An address that was ours, and is not any more.
    gone: Option<IpAddr>,
    /// Where datagrams are received, each of [`BUFFER_SIZE`].
    slots: [Vec<u8>; BATCH_SIZE],
    /// How many of them to offer next time.
    batch: usize,
    pool: Pool,
    refusals: Vec<Refusal>,
    stats: SocketStats,
}

impl Udp {
    /// Opens a socket at that address and asks for buffers of those sizes, in bytes.
    ///
    /// # Errors
    /// The system's: the address is taken or not ours, or there are no more sockets.
    pub fn bind(addr: SocketAddr, receive_buffer: usize, send_buffer: usize) -> io::Result<Self> {
        Self::with_socket(options::bind(addr)?, receive_buffer, send_buffer)
    }

    /// Takes a socket that is bound already, as a service manager hands it over.
    ///
    /// # Errors
    /// The system's.
    pub fn with_socket(
        socket: UdpSocket,
        receive_buffer: usize,
        send_buffer: usize,
    ) -> io::Result<Self> {
        let buffer_hint = options::set_buffers(&socket, receive_buffer, send_buffer)?;
        let state = options::prepare(&socket)?;
        Ok(Self {
            local_addr: socket.local_addr()?,
            socket,
            state,
            buffer_hint,
            dont_fragment: false,
            segmentation: Segmentation::default(),
            resume: 0,
            queue: Queue::new(PATIENCE),
            gone: None,
            slots: array::from_fn(|_| vec![0; BUFFER_SIZE]),
            batch: BATCH_SIZE,
            pool: Pool::default(),
            refusals: Vec::new(),
            stats: SocketStats::default(),
        })
    }

    /// Receives one batch into the slots. None: nothing is there.
    fn receive_batch(&mut self, meta: &mut [RecvMeta]) -> io::Result<Option<usize>> {
        // An ICMP error makes one call fail, whatever that call was about.
        for _ in 0..4 {
            let mut slots = self.slots.iter_mut();
            let mut buffers: [IoSliceMut<'_>; BATCH_SIZE] = array::from_fn(|_| {
                IoSliceMut::new(slots.next().expect("as many slots as buffers"))
            });
            self.stats.receive_calls += 1;
            let offered = &mut buffers[..self.batch];
            match self
                .state
                .recv(UdpSockRef::from(&self.socket), offered, meta)
            {
                Ok(received) => return Ok(Some(received)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stats.receive_calls -= 1;
                    return Ok(None);
                }
                Err(error) if is_refusal(&error) => {
                    take_refusals(&self.socket, &mut self.refusals);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The content of a slot, to be kept.
    fn take_slot(&mut self, slot: usize, len: usize) -> Bytes {
        if len < IN_PLACE {
            return Bytes::copy_from_slice(&self.slots[slot][..len]);
        }
        let full = std::mem::replace(&mut self.slots[slot], self.pool.take());
        self.pool.lend(full, len)
    }

    /// One system call.
    fn send_once(&mut self, transmit: &quinn_udp::Transmit<'_>) -> io::Result<()> {
        // As when receiving: an earlier datagram's error comes out here, and this one is not sent.
        for _ in 0..4 {
            self.stats.send_calls += 1;
            let result = self
                .state
                .try_send(UdpSockRef::from(&self.socket), transmit);
            let Err(error) = result else { return Ok(()) };
            self.stats.send_calls -= 1;
            if !is_refusal(&error) {
                return Err(error);
            }
            let before = self.refusals.len();
            take_refusals(&self.socket, &mut self.refusals);
            if self.refusals.len() == before {
                return Err(error);
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Sends `contents` in pieces as large as the kernel takes.
    fn send_pieces(&mut self, transmit: &Transmit, contents: &[u8]) -> io::Result<()> {
        let destination = self.to_socket_family(transmit.destination);
        let segment = transmit.segment_size.unwrap_or(contents.len()).max(1);
        let mut source = self.source(transmit);
        while self.resume < contents.len() {
            let rest = &contents[self.resume..];
            let most = self
                .segmentation
                .most(destination.ip(), segment, PAYLOAD_MAX);
            let piece = &rest[..rest.len().min(segment * most)];
            let attempt = self.send_once(&quinn_udp::Transmit {
                destination,
                ecn: transmit.ecn.map(to_codepoint),
                contents: piece,
                segment_size: Some(segment),
                src_ip: source,
            });
            match attempt {
                Ok(()) => {
                    self.stats.datagrams_sent += piece.len().div_ceil(segment) as u64;
                    self.resume += piece.len();
                }
                Err(error) if source.is_some() && is_no_source(&error) => {
                    self.gone = source.take();
                    self.state = options::prepare(&self.socket)?;
                    self.dont_fragment = false;
                }
                Err(error) if piece.len() > segment && segments::is_refusal(&error) => {
                    self.stats.segmentation_refused += 1;
                    self.segmentation.refuse(destination.ip(), segment);
                    self.state = options::prepare(&self.socket)?;
                    self.dont_fragment = false;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Lets the kernel fragment, or not, what is sent from now on.
    fn set_dont_fragment(&mut self, dont_fragment: bool) -> io::Result<()> {
        if self.dont_fragment != dont_fragment {
            options::set_dont_fragment(&self.socket, dont_fragment)?;
            self.dont_fragment = dont_fragment;
        }
        Ok(())
    }

    /// The address to send from, where the socket has several. A client takes answers only from the one it asked.
    fn source(&self, transmit: &Transmit) -> Option<IpAddr> {
        let is_several = self.local_addr.ip().is_unspecified();
        (transmit.source).filter(|ip| is_several && self.gone != Some(*ip))
    }

    /// A socket of IPv6 reaches IPv4 under mapped addresses.
    fn to_socket_family(&self, addr: SocketAddr) -> SocketAddr {
        match addr.ip() {
            IpAddr::V4(ip) if self.local_addr.is_ipv6() => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), addr.port())
            }
            _ => addr,
        }
    }
}

impl Socket for Udp {
    fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    fn receive(&mut self, mut sink: impl FnMut(Received)) -> io::Result<bool> {
        let mut meta = [RecvMeta::default(); BATCH_SIZE];
        let Some(received) = self.receive_batch(&mut meta)? else {
            return Ok(false);
        };
        let offered = self.batch;
        let mut octets = 0;
        for (slot, meta) in meta[..received].iter().enumerate() {
            octets += meta.len;
            let from = SocketAddr::new(meta.addr.ip().to_canonical(), meta.addr.port());
            let to = meta.dst_ip.map(|ip| ip.to_canonical());
            self.gone = self.gone.filter(|ip| to != Some(*ip));
            // Nobody can be answered at port 0.
            if meta.len == 0 || from.port() == 0 {
                continue;
            }
            let mut rest = self.take_slot(slot, meta.len);
            let stride = if meta.stride == 0 {
                meta.len
            } else {
                meta.stride
            };
            while !rest.is_empty() {
                let data = rest.split_to(stride.min(rest.len()));
                self.stats.datagrams_received += 1;
                sink(Received {
                    from,
                    to,
                    ecn: meta.ecn.map(from_codepoint),
                    data,
                });
            }
        }
        let large = octets >= received * IN_PLACE;
        self.batch = if large { LARGE_BATCH } else { BATCH_SIZE };
        Ok(received == offered)
    }

    fn send(&mut self, transmit: &Transmit, data: &[u8]) -> io::Result<()> {
        self.set_dont_fragment(transmit.dont_fragment)?;
        match self.send_pieces(transmit, data) {
            Ok(()) => {
                self.resume = 0;
                self.queue.passed();
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.stats.send_blocked += 1;
                Err(error)
            }
            Err(error) if options::is_queue_full(&error) => {
                // A probe that is too large for the device is lost at once.
                if transmit.dont_fragment || self.queue.found_full() {
                    self.stats.send_failed += 1;
                    self.resume = 0;
                    self.queue.passed();
                    return Ok(());
                }
                self.stats.send_blocked += 1;
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(error) => {
                self.stats.send_failed += 1;
                self.resume = 0;
                if segments::is_refusal(&error) && !quinn_udp::is_msg_size_err(&error) {
                    // The helper library takes this for an old kernel's, and would send no more ECN.
                    self.state = options::prepare(&self.socket)?;
                    self.dont_fragment = false;
                }
                Err(error)
            }
        }
    }

    fn refusals(&mut self, mut sink: impl FnMut(SocketAddr, io::ErrorKind)) {
        for refusal in self.refusals.drain(..) {
            let ip = refusal.destination.ip().to_canonical();
            sink(
                SocketAddr::new(ip, refusal.destination.port()),
                refusal.kind,
            );
        }
    }

    fn wait(
        &mut self,
        wake: BorrowedFd<'_>,
        writable: bool,
        timeout: Option<Duration>,
    ) -> io::Result<Ready> {
        self.stats.wait_calls += 1;
        let queue_full = self.queue.take_full();
        let timeout = match queue_full {
            true => Some(Queue::pause(timeout)),
            false => timeout,
        };
        // A wait too long for the system's type is as good as one without end.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, writable && !queue_full);
        let mut fds = [
            PollFd::new(&self.socket, flags),
            PollFd::from_borrowed_fd(wake, PollFlags::IN),
        ];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => {
                return Ok(Ready {
                    datagrams: true,
                    wake: false,
                });
            }
            Err(error) => return Err(error.into()),
        }
        let ready = fds[0].revents();
        if ready.contains(PollFlags::ERR) {
            take_refusals(&self.socket, &mut self.refusals);
        }
        Ok(Ready {
            datagrams: ready.intersects(PollFlags::IN | PollFlags::ERR),
            wake: fds[1].revents().contains(PollFlags::IN),
        })
    }

    fn stats(&self) -> SocketStats {
        self.stats
    }

    fn buffer_hint(&self) -> Option<String> {
        self.buffer_hint.clone()
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether the system says that an address to send from is not this machine's.
fn is_no_source(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(Errno::INVAL | Errno::ADDRNOTAVAIL | Errno::NETUNREACH)
    )
}

fn to_codepoint(ecn: Ecn) -> EcnCodepoint {
    match ecn {
        Ecn::Ect0 => EcnCodepoint::Ect0,
        Ecn::Ect1 => EcnCodepoint::Ect1,
        Ecn::Ce => EcnCodepoint::Ce,
    }
}

fn from_codepoint(ecn: EcnCodepoint) -> Ecn {
    match ecn {
        EcnCodepoint::Ect0 => Ecn::Ect0,
        EcnCodepoint::Ect1 => Ecn::Ect1,
        EcnCodepoint::Ce => Ecn::Ce,
    }
}
