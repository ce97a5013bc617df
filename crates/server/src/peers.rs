//! The database servers that this server asks: in this process, or elsewhere.

use std::net::SocketAddr;
use std::sync::Arc;

use afar_fileserver::protection::{Clients, Connect};
use afar_net::{Connection, Endpoint, RxNull, ServiceId};
use afar_rpc::{pr, vl, vote};
use afar_security::Level;
use anyhow::Context;

use crate::config::Role;
use crate::resolve;
use crate::security::Security;

/// Servers of one kind, and how they are reached.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    addresses: Vec<SocketAddr>,
    way: Way,
}

#[derive(Debug, Clone)]
enum Way {
    /// They are in this process, where we are the administrator.
    Home(Endpoint),
    /// They are elsewhere, and want to know who we are.
    Network(Endpoint, Arc<Security>),
}

impl Peers {
    /// The one in this process, which is known by this address.
    pub(crate) fn here(address: SocketAddr, home: &Endpoint) -> Self {
        Self {
            addresses: vec![address],
            way: Way::Home(home.clone()),
        }
    }

    /// Those that the configuration names.
    pub(crate) async fn elsewhere(
        role: Role,
        servers: &[String],
        endpoint: &Endpoint,
        security: &Arc<Security>,
    ) -> anyhow::Result<Self> {
        let mut addresses = Vec::new();
        for server in servers {
            let found = resolve::addresses(server, role.port())
                .await
                .with_context(|| format!("cannot find the {} {server}", role.program()))?;
            addresses.extend(found);
        }
        Ok(Self {
            addresses,
            way: Way::Network(endpoint.clone(), Arc::clone(security)),
        })
    }

    /// Their addresses.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// A new connection. To others it is encrypted, and shows a ticket of the newest key.
    fn connect(&self, address: SocketAddr, service: ServiceId) -> Connection {
        match &self.way {
            Way::Home(home) => home.connect(address, service, Arc::new(RxNull)),
            Way::Network(endpoint, security) => {
                endpoint.connect(address, service, security.localauth(Level::Crypt))
            }
        }
    }

    /// New connections to all of them, as location servers.
    pub(crate) fn location(&self) -> Vec<vl::Client> {
        let addresses = self.addresses.iter();
        addresses
            .map(|&address| vl::Client::new(self.connect(address, vl::SERVICE)))
            .collect()
    }

    /// Ways to connect to each of them, as protection servers.
    pub(crate) fn protection(&self) -> Vec<Connect> {
        let addresses = self.addresses.iter();
        addresses
            .map(|&address| {
                let peers = self.clone();
                let connect = move || Clients {
                    users: pr::Client::new(peers.connect(address, pr::SERVICE)),
                    versions: Some(vote::Client::new(peers.connect(address, vote::SERVICE))),
                };
                Box::new(connect) as Connect
            })
            .collect()
    }
}
