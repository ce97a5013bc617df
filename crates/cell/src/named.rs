//! Location servers by the names of their hosts, which stay when addresses change.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::cellservdb::VL_PORT;
use crate::dns::SERVERS_MAX;

/// How long a name is looked up. The system's resolver goes on with it in a thread, which nobody can end.
const LOOKUP: Duration = Duration::from_secs(3);
/// Names are looked up no more often, however many requests ask: without a network each lookup keeps a thread for
/// as long as the resolver tries.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The addresses of a cell's hosts.
#[derive(Debug, Default)]
pub(crate) struct Named(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    looked: Option<Instant>,
    /// What each name last had. A name that cannot be looked up now keeps it.
    addresses: BTreeMap<String, Vec<SocketAddr>>,
}

impl Named {
    /// The location servers of these hosts.
    pub(crate) async fn servers(&self, hosts: &[String]) -> Vec<SocketAddr> {
        let mut found = self.0.lock().await;
        found.addresses.retain(|host, _| hosts.contains(host));
        let is_due = found.looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY);
        if is_due && !hosts.is_empty() {
            found.look_up(hosts).await;
        }
        found.servers()
    }
}

impl Found {
    async fn look_up(&mut self, hosts: &[String]) {
        self.looked = Some(Instant::now());
        let mut lookups = JoinSet::new();
        for host in hosts.iter().cloned() {
            lookups.spawn(async move {
                let name = host.clone();
                let answer = timeout(LOOKUP, lookup_host((name.as_str(), VL_PORT))).await;
                let found = match answer {
                    Ok(Ok(found)) => Some(found.filter(SocketAddr::is_ipv4).collect()),
                    Ok(Err(error)) => {
                        tracing::debug!("cannot look up {host}: {error}");
                        None
                    }
                    Err(_late) => {
                        tracing::debug!("cannot look up {host} in time");
                        None
                    }
                };
                (host, found)
            });
        }
        for (host, found) in lookups.join_all().await {
            self.take(host, found);
        }
    }

    fn take(&mut self, host: String, found: Option<Vec<SocketAddr>>) {
        if let Some(found) = found {
            self.addresses.insert(host, found);
        }
    }

    fn servers(&self) -> Vec<SocketAddr> {
        let all = self.addresses.values().flatten();
        all.copied().take(SERVERS_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stays_while_its_name_cannot_be_looked_up() {
        let mut found = Found::default();
        let address = SocketAddr::from(([192, 0, 2, 1], VL_PORT));
        found.take("nas.example".to_owned(), Some(vec![address]));
        found.take("nas.example".to_owned(), None);
        assert_eq!(found.servers(), [address]);
        let moved = SocketAddr::from(([192, 0, 2, 2], VL_PORT));
        found.take("nas.example".to_owned(), Some(vec![moved]));
        assert_eq!(found.servers(), [moved]);
    }

    #[test]
    fn a_resolver_that_lies_fills_no_list() {
        let mut found = Found::default();
        let address = |number| SocketAddr::from(([198, 51, 100, number], VL_PORT));
        found.take(
            "nas.example".to_owned(),
            Some((0..=255).map(address).collect()),
        );
        assert_eq!(found.servers().len(), SERVERS_MAX);
    }
}
