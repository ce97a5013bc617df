//! A NAT made by hand: it gives each client a port of its own towards the server, and forgets it after a silence.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use afar_link::netns;

use crate::site::Link;

/// A NAT in a thread, ended when dropped.
pub(crate) struct Nat {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Nat {
    /// One at the client's end of a link: port 7000 of its loopback device leads to the server's.
    pub(crate) fn between(link: &Link, forgets: Duration) -> Self {
        let at = |host: &str, port| SocketAddr::new(host.parse().unwrap(), port);
        let (outside, server) = (at(&link.client, 0), at(&link.server, 7000));
        // The thread's sockets are where it was begun.
        let nat = netns::within(&link.namespace("cli"), || {
            let inside = UdpSocket::bind("127.0.0.1:7000").unwrap();
            Self::start(inside, outside, server, forgets)
        });
        nat.unwrap()
    }

    fn start(
        inside: UdpSocket,
        outside: SocketAddr,
        server: SocketAddr,
        forgets: Duration,
    ) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        let thread = thread::spawn(move || {
            inside.set_nonblocking(true).unwrap();
            let mut clients: BTreeMap<SocketAddr, (UdpSocket, Instant)> = BTreeMap::new();
            let mut buffer = [0; 65_536];
            while !until.load(Ordering::Relaxed) {
                let mut idle = true;
                while let Some((length, from)) = received(&inside, &mut buffer) {
                    idle = false;
                    let (socket, used) = clients.entry(from).or_insert_with(|| {
                        let socket = UdpSocket::bind(outside).unwrap();
                        socket.set_nonblocking(true).unwrap();
                        (socket, Instant::now())
                    });
                    *used = Instant::now();
                    socket.send_to(&buffer[..length], server).unwrap();
                }
                for (client, (socket, used)) in &mut clients {
                    while let Some((length, _)) = received(socket, &mut buffer) {
                        idle = false;
                        *used = Instant::now();
                        inside.send_to(&buffer[..length], client).unwrap();
                    }
                }
                clients.retain(|_, (_, used)| used.elapsed() < forgets);
                if idle {
                    thread::sleep(Duration::from_micros(300));
                }
            }
        });
        Self {
            ended,
            thread: Some(thread),
        }
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || thread::panicking());
        }
    }
}

fn received(socket: &UdpSocket, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Ok(received) => return Some(received),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            // An ICMP message for an earlier packet.
            Err(_) => {}
        }
    }
}
