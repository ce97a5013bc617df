//! Where this server is: told to the location servers and to clients on this machine, again whenever its addresses
//! change.
//!
//! A machine may get its addresses after its servers are started, and others later. Clients that knew the old ones
//! ask the location servers for the new ones.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use afar_fileserver::registration;
use afar_net::Routes;
use afar_types::{AfsUuid, CellName};
use anyhow::Context;

use crate::config::{Config, Role};
use crate::local_cell::{self, LocalServer};
use crate::peers::Peers;
use crate::private;
use crate::process::listen;
use crate::security;
use crate::sockets::{addresses, own_addresses};

/// Changes come several at a time: a link, its address, its routes.
const SETTLE: Duration = Duration::from_millis(500);
/// How often the server lists its addresses where the system does not report changes.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Where a server is, and who is told.
pub(crate) struct Whereabouts {
    pub(crate) cell: CellName,
    pub(crate) config: Config,
    /// The directory of its sockets, where clients on this machine look.
    pub(crate) run: PathBuf,
    pub(crate) location: Peers,
    /// The file server, if it is one.
    pub(crate) uuid: Option<AfsUuid>,
}

impl Whereabouts {
    /// Writes where the servers are, for clients on this machine.
    pub(crate) fn write(&self, addresses: &[Ipv4Addr]) -> anyhow::Result<()> {
        let local = LocalServer {
            addresses: own_addresses(&self.config, addresses),
            keys: security::key_files(&self.config),
        };
        let run = self.run.display();
        let written = local.write(&self.run);
        written.with_context(|| format!("cannot write to {run}"))?;
        let location: Vec<IpAddr> = match self.config.has(Role::Vl) {
            true => vec![listen(&self.config, addresses)],
            false => {
                let servers = self.location.addresses().iter();
                servers.map(|server| server.ip()).collect()
            }
        };
        write_cellservdb(&self.run, &self.cell, &location)
    }

    /// Tells of the addresses there are and will be, as long as this is polled.
    pub(crate) async fn follow(self, started: Vec<Ipv4Addr>) {
        let mut routes = Routes::watch()
            .inspect_err(|error| {
                tracing::warn!(%error, "changes of this machine's addresses are noticed late");
            })
            .ok();
        // These were written when the server was started.
        let (mut written, mut told) = (started, None);
        loop {
            let now = match addresses(&self.config) {
                Ok(now) => now,
                Err(error) => {
                    tracing::warn!("{error:#}");
                    written.clone()
                }
            };
            if now != written {
                tracing::info!(before = ?written, ?now, "the addresses of this machine have changed");
                if let Err(error) = self.write(&now) {
                    tracing::warn!("clients on this machine look at the old address: {error:#}");
                }
                written.clone_from(&now);
            }
            let tell = async {
                match self.uuid {
                    Some(uuid) if told.as_ref() != Some(&now) && self.is_of_use(&now) => {
                        let servers = || self.location.location();
                        registration::keep_trying(servers, uuid, now.clone()).await;
                    }
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                () = tell => told = Some(now),
                () = changed(&mut routes) => tokio::time::sleep(SETTLE).await,
            }
        }
    }

    /// Whether others can do anything with these addresses. Without a network the server waits for one, unless
    /// the whole cell is on this machine.
    fn is_of_use(&self, addresses: &[Ipv4Addr]) -> bool {
        let alone = self.config.has(Role::Vl);
        let named = !self.config.addresses.is_empty() || !self.config.listen.0.is_unspecified();
        let useful = alone || named || addresses.iter().any(|address| !address.is_loopback());
        if !useful {
            tracing::warn!(
                "this machine has no address yet; the file server registers as soon as it has one"
            );
        }
        useful
    }
}

/// Returns when something has changed, or may have.
async fn changed(routes: &mut Option<Routes>) {
    if let Some(watched) = routes {
        match watched.changed().await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(%error, "changes of this machine's addresses are noticed late from now on");
                *routes = None;
            }
        }
    }
    tokio::time::sleep(LOOK_EVERY).await;
}

fn write_cellservdb(run: &Path, cell: &CellName, servers: &[IpAddr]) -> anyhow::Result<()> {
    let mut text = format!(">{cell} #by afar on this machine\n");
    for address in servers {
        text.push_str(&format!("{address} #{address}\n"));
    }
    let path = run.join(local_cell::CELLSERVDB);
    private::write_public(&path, &text).with_context(|| format!("cannot write {}", path.display()))
}
