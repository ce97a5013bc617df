//! This machine at another address: servers are told, and asked what we have missed.
//!
//! A file server calls a client where it called from last. When that address is gone, breaks of promises come to
//! nothing, and what is cached here seems right until a promise ends. So when links, addresses or routes change,
//! each server is asked whether it is there. By that it learns our new address, and before it answers it says
//! whether it could not tell us something meanwhile (InitCallBackState). An OpenAFS server answers a connection
//! where it began; so where packets leave from another address than before, connections are made again.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use afar_net::{Routes, source_of};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::server::FileServer;

/// Changes come several at a time: an address, its routes.
const SETTLE: Duration = Duration::from_millis(100);
/// Between two rounds of questions, however often something changes.
const PAUSE: Duration = Duration::from_millis(500);

/// Follows the addresses of this machine.
#[derive(Debug)]
pub struct Moves {
    routes: Routes,
    /// From where each server was reached when something had changed last.
    sources: BTreeMap<SocketAddr, IpAddr>,
    /// Questions under way.
    asked: JoinSet<()>,
}

impl Moves {
    /// Follows them from now on.
    ///
    /// # Errors
    /// When the system does not tell of changes.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn watch() -> io::Result<Self> {
        Ok(Self {
            routes: Routes::watch()?,
            sources: BTreeMap::new(),
            asked: JoinSet::new(),
        })
    }

    /// Returns a moment after something has changed.
    ///
    /// # Errors
    /// The system's.
    pub async fn changed(&mut self) -> io::Result<()> {
        self.routes.changed().await?;
        tokio::time::sleep(SETTLE).await;
        Ok(())
    }

    /// Tells all servers of a client where it is. Returns before they have answered, after a pause.
    pub async fn tell(&mut self, client: &Client) {
        let now = sources(client);
        let moved = |server: SocketAddr| {
            // Of one that was not looked at before it is not known.
            let (before, after) = (self.sources.get(&server), now.get(&server));
            after.is_some() && before != after
        };
        client.reconnect(moved);
        // Those of a moment ago, which may never be answered, end here.
        self.asked = JoinSet::new();
        let servers = client.servers().into_iter();
        let each: BTreeMap<_, _> = servers.map(|server| (server.address(), server)).collect();
        for (address, server) in each {
            if now.contains_key(&address) {
                self.asked.spawn(ask(server));
            }
        }
        // One that cannot be reached now is compared with what was before.
        self.sources.extend(now);
        tokio::time::sleep(PAUSE).await;
    }
}

async fn ask(server: Arc<FileServer>) {
    let answers = server.probe().await;
    tracing::debug!(server = %server.address(), answers, "asked from where we are now");
}

fn sources(client: &Client) -> BTreeMap<SocketAddr, IpAddr> {
    let servers = client.servers();
    let mut all: Vec<_> = servers.iter().map(|server| server.address()).collect();
    all.extend(client.location_servers());
    let sources = all
        .into_iter()
        .map(|server| Some((server, source_of(server)?)));
    sources.flatten().collect()
}
