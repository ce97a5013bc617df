//! A path to a file server that loses what it is told to.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// The largest packet.
const PACKET: usize = 65_536;
/// Long ones have data.
const LONG: usize = 1000;

/// Packets that are lost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Lost {
    #[default]
    None,
    Long,
    All,
}

impl Lost {
    fn has(self, length: usize) -> bool {
        match self {
            Self::None => false,
            Self::Long => length >= LONG,
            Self::All => true,
        }
    }
}

/// Between one machine and a server on this host.
pub(crate) struct Relay {
    pub(crate) port: u16,
    /// Of calls and of answers.
    lost: Arc<Mutex<[Lost; 2]>>,
    _tasks: JoinSet<()>,
}

impl Relay {
    pub(crate) async fn new(server: u16) -> Self {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let near = Arc::new(UdpSocket::bind(here).await.unwrap());
        let far = Arc::new(UdpSocket::bind(here).await.unwrap());
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, server));
        let port = near.local_addr().unwrap().port();
        let lost = Arc::<Mutex<[Lost; 2]>>::default();
        let (machine, machines) = tokio::sync::watch::channel(None);
        let mut tasks = JoinSet::new();
        let (from, to, losing) = (Arc::clone(&near), Arc::clone(&far), Arc::clone(&lost));
        tasks.spawn(async move {
            let mut packet = vec![0; PACKET];
            while let Ok((length, sender)) = from.recv_from(&mut packet).await {
                machine.send_replace(Some(sender));
                let [calls, _] = *losing.lock();
                if !calls.has(length) {
                    // One that is not there just now is as a lost packet.
                    drop(to.send_to(&packet[..length], server).await);
                }
            }
        });
        let losing = Arc::clone(&lost);
        tasks.spawn(async move {
            let mut packet = vec![0; PACKET];
            loop {
                let Ok((length, _)) = far.recv_from(&mut packet).await else {
                    continue;
                };
                let machine = *machines.borrow();
                let [_, answers] = *losing.lock();
                if let Some(machine) = machine
                    && !answers.has(length)
                {
                    drop(near.send_to(&packet[..length], machine).await);
                }
            }
        });
        Self {
            port,
            lost,
            _tasks: tasks,
        }
    }

    /// What is lost of what the machine sends, and of what the server sends.
    pub(crate) fn loses(&self, calls: Lost, answers: Lost) {
        *self.lost.lock() = [calls, answers];
    }
}
