//! A path to a file server that loses what it is told to.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// The largest packet.
const PACKET: usize = 65_536;

/// Between one machine and a server on this host.
pub(crate) struct Relay {
    pub(crate) port: u16,
    loses: Arc<Loses>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Loses {
    calls: AtomicBool,
    answers: AtomicBool,
}

impl Relay {
    pub(crate) async fn new(server: u16) -> Self {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let near = Arc::new(UdpSocket::bind(here).await.unwrap());
        let far = Arc::new(UdpSocket::bind(here).await.unwrap());
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, server));
        let port = near.local_addr().unwrap().port();
        let loses = Arc::new(Loses::default());
        let (machine, machines) = tokio::sync::watch::channel(None);
        let mut tasks = JoinSet::new();
        let (from, to, lost) = (Arc::clone(&near), Arc::clone(&far), Arc::clone(&loses));
        tasks.spawn(async move {
            let mut packet = vec![0; PACKET];
            while let Ok((length, sender)) = from.recv_from(&mut packet).await {
                machine.send_replace(Some(sender));
                if !lost.calls.load(Ordering::Relaxed) {
                    // One that is not there just now is as a lost packet.
                    drop(to.send_to(&packet[..length], server).await);
                }
            }
        });
        let lost = Arc::clone(&loses);
        tasks.spawn(async move {
            let mut packet = vec![0; PACKET];
            loop {
                let Ok((length, _)) = far.recv_from(&mut packet).await else {
                    continue;
                };
                let machine = *machines.borrow();
                if let Some(machine) = machine
                    && !lost.answers.load(Ordering::Relaxed)
                {
                    drop(near.send_to(&packet[..length], machine).await);
                }
            }
        });
        Self {
            port,
            loses,
            _tasks: tasks,
        }
    }

    /// Whether what the machine sends is lost, and what the server sends.
    pub(crate) fn loses(&self, calls: bool, answers: bool) {
        self.loses.calls.store(calls, Ordering::Relaxed);
        self.loses.answers.store(answers, Ordering::Relaxed);
    }
}
