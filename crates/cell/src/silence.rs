//! Volumes whose servers do not answer: requests wait for them, and the client looks for them elsewhere.
//!
//! A server that gets another address registers it with the volume location servers, and a client that knows the
//! old one would not hear of that by itself. So while a server is silent, the client looks the volume up now and
//! then. A call to an address that the volume no longer has, or for which another answers, ends there: the client
//! makes its request again as after any lost answer.

use std::sync::Arc;
use std::time::Duration;

use afar_net::CallError;
use afar_rpc::{RpcCause, RpcError, rxafs};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::Error;
use crate::mountpoint::Wanted;
use crate::patience;
use crate::pauses::Pauses;
use crate::server::{FileServer, Lane};
use crate::vldb::{Cell, Effort, Found, HEDGE};
use crate::volume::Volume;
use crate::waits::Waits;

/// How often the client looks up a volume whose servers are silent.
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl Client {
    /// How long the longest wait has lasted by now, if there is one.
    #[must_use]
    pub fn waiting(&self) -> Option<Duration> {
        let servers = self.all_servers();
        let files = servers.iter().filter_map(|server| server.awaited_for());
        let cells = self.known_cells();
        let locations = cells.iter().filter_map(|cell| cell.awaited_for());
        files.chain(locations).max()
    }

    /// Whether to wait for the servers of a volume when they do not answer.
    pub(crate) fn waits_for(&self, volume: &Volume) -> bool {
        let sites = volume.sites();
        let patience = self.patience();
        let met = volume.is_met() || sites.iter().any(|site| site.is_met());
        !sites.is_empty() && patience.is_for(met)
    }

    /// Waits until one of the servers of a volume answers, or it has others. Says whether that is so in time.
    pub(crate) async fn wait(&self, volume: &Arc<Volume>) -> bool {
        let sites = volume.sites();
        let _waiting = sites.first().map(|site| Waits::on(site.address()));
        let waited = sites.iter().filter_map(|site| site.awaited_for()).min();
        let until = self.patience().until(waited.unwrap_or_default());
        let mut back = JoinSet::new();
        for site in &sites {
            let own = self.own(site);
            back.spawn(async move { own.back().await });
        }
        let elsewhere = async {
            loop {
                self.look_where(volume).await;
                if !is_same(&volume.sites(), &sites) {
                    return;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            biased;
            _ = back.join_next() => true,
            () = elsewhere => true,
            () = patience::at(until) => false,
            () = self.hurried() => false,
        }
    }

    /// Makes a call, unless its server falls silent and the volume is found elsewhere meanwhile: then it ends as if
    /// the server were dead.
    pub(crate) async fn unless_elsewhere<T>(
        &self,
        volume: &Arc<Volume>,
        lane: &Lane,
        call: impl Future<Output = Result<T, RpcError>>,
    ) -> Result<T, RpcError> {
        if !self.waits_for(volume) {
            return call.await;
        }
        tokio::select! {
            biased;
            answer = call => answer,
            () = self.moves_away(volume, lane) => Err(RpcError {
                // Whatever it was: nobody is told more than the cause.
                operation: rxafs::get_capabilities::OPERATION,
                peer: lane.server().address(),
                cause: RpcCause::Call(CallError::Dead),
            }),
        }
    }

    /// Returns when a server that has a call is silent, and there is another for the volume.
    async fn moves_away(&self, volume: &Arc<Volume>, lane: &Lane) {
        let server = lane.server();
        loop {
            lane.falls_silent().await;
            server.awaited();
            self.look_where(volume).await;
            let sites = volume.sites();
            let is_other = |site: &&Arc<FileServer>| site.address() != server.address();
            if sites.iter().filter(is_other).any(|site| !site.is_down()) {
                return;
            }
        }
    }

    /// Looks where a volume is, unless that was done a moment ago.
    async fn look_where(&self, volume: &Arc<Volume>) {
        // Held while the client looks, so that all requests that wait use one answer.
        let mut looked = volume.looked().lock().await;
        if looked.is_some_and(|since| since.elapsed() < LOOK_EVERY) {
            return;
        }
        let before = volume.sites();
        let cell = volume.cell();
        if let Err(error) = self.ask_moved(cell, || self.look_up_again(volume)).await {
            tracing::debug!("keeping the old sites of {volume}: {error}");
        }
        *looked = Some(Instant::now());
        let now = volume.sites();
        for site in before {
            if !now.iter().any(|other| other.address() == site.address()) {
                site.left();
            }
        }
    }

    /// Asks the location servers of a cell. Where those that are known are silent, the cell may have others by now,
    /// which are asked then: the user's request waits for both, and a silent server takes long to count as dead.
    async fn ask_moved<T, F>(&self, cell: &Arc<Cell>, ask: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let moves = async {
            tokio::time::sleep(HEDGE).await;
            if !self.has_moved(cell).await {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            answer = ask() => match answer {
                Err(Error::VlUnreachable { .. }) if self.has_moved(cell).await => {}
                answer => return answer,
            },
            () = moves => {}
        }
        ask().await
    }

    /// Finds a volume by name (with or without suffix) or number; waits for the location servers if none answers.
    pub(crate) async fn find(
        &self,
        cell: &Arc<Cell>,
        volume: &str,
        wanted: Wanted,
    ) -> Result<Found, Error> {
        let mut pauses = Pauses::default();
        loop {
            let find = || cell.find(volume, wanted, Effort::Quick);
            let error = match self.ask_moved(cell, find).await {
                Err(error @ Error::VlUnreachable { .. }) => error,
                found => return found,
            };
            let patience = self.patience();
            let is_over = patience.is_over(cell.awaited_for().unwrap_or_default());
            if is_over || !patience.is_for(cell.is_met()) {
                return Err(error);
            }
            cell.awaited();
            tokio::time::sleep(pauses.next()).await;
        }
    }
}

fn is_same(now: &[Arc<FileServer>], before: &[Arc<FileServer>]) -> bool {
    let are_in = |some: &[Arc<FileServer>], others: &[Arc<FileServer>]| {
        let is_in = |one: &Arc<FileServer>| others.iter().any(|other| Arc::ptr_eq(one, other));
        some.iter().all(is_in)
    };
    are_in(now, before) && are_in(before, now)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use afar_types::CellName;

    use crate::cellservdb::VL_PORT;
    use crate::{Client, Config};

    /// At home addresses change, and what stays is a name.
    #[tokio::test]
    async fn the_name_a_user_gave_is_looked_up_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("CellServDB");
        let text =
            ">named.example\n192.0.2.1 #localhost\n>numbered.example\n192.0.2.1 #192.0.2.1\n";
        std::fs::write(&path, text).unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let endpoint = afar_net::Endpoint::bind(address, afar_net::Config::default()).unwrap();
        let config = Config {
            cellservdb: Some(path),
            ..Config::default()
        };
        let client = Client::new(endpoint, config).unwrap();
        for (cell, moves) in [("named.example", true), ("numbered.example", false)] {
            let name: CellName = cell.parse().unwrap();
            let cell = client.cell(&name).await.unwrap();
            assert_eq!(client.has_moved(&cell).await, moves, "{name}");
            assert!(!client.has_moved(&cell).await, "{name}: and stays there");
            let here = SocketAddr::from(([127, 0, 0, 1], VL_PORT));
            let servers = cell.ranks(client.preferences()).await;
            let found = servers.iter().any(|&(address, _)| address == here);
            assert_eq!(found, moves, "{name}");
        }
    }
}
