//! Keeps what a client and a server say to each other.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long until a relay notices that it is to end.
const NOTICE: Duration = Duration::from_millis(50);

/// The datagrams of one conversation.
#[derive(Clone, Default)]
pub(crate) struct Capture {
    pub(crate) to_server: Vec<Vec<u8>>,
    pub(crate) to_client: Vec<Vec<u8>>,
}

/// Stands between one client and a server.
pub(crate) struct Relay {
    address: SocketAddr,
    kept: Arc<Mutex<Capture>>,
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    pub(crate) fn new(server: SocketAddr) -> Self {
        let bind = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(NOTICE)).unwrap();
            socket
        };
        let (front, back) = (bind(), bind());
        let address = front.local_addr().unwrap();
        let (kept, ended) = (
            Arc::<Mutex<Capture>>::default(),
            Arc::<AtomicBool>::default(),
        );
        // Whom answers go to: the last to have asked.
        let client = Arc::new(Mutex::new(address));
        let mut threads = Vec::new();
        for to_server in [true, false] {
            let (from, to) = match to_server {
                true => (front.try_clone().unwrap(), back.try_clone().unwrap()),
                false => (back.try_clone().unwrap(), front.try_clone().unwrap()),
            };
            let (kept, ended, client) = (kept.clone(), ended.clone(), client.clone());
            threads.push(std::thread::spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                while !ended.load(Ordering::Relaxed) {
                    let Ok((len, peer)) = from.recv_from(&mut buffer) else {
                        continue;
                    };
                    let datagram = buffer[..len].to_vec();
                    let to_whom = if to_server {
                        *client.lock().unwrap() = peer;
                        kept.lock().unwrap().to_server.push(datagram);
                        server
                    } else {
                        kept.lock().unwrap().to_client.push(datagram);
                        *client.lock().unwrap()
                    };
                    // What is lost is sent again.
                    to.send_to(&buffer[..len], to_whom).ok();
                }
            }));
        }
        Self {
            address,
            kept,
            ended,
            threads,
        }
    }

    /// Where the client finds the server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it; what was said.
    pub(crate) fn end(self) -> Capture {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        std::mem::take(&mut *self.kept.lock().unwrap())
    }
}
