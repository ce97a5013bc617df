//! Bulk data out of band: clients that were made an offer by RXAFS fetch and store over TLS on TCP, and such of AFSVol
//! dump and restore.
//!
//! - `config`: settings
//! - `offers`: what is offered, and what a client must show
//! - `accept`: who may connect, and how many
//! - `session`: one connection
//! - `transfer`: what all transfers share
//! - `sending`, `receiving`: data on its way to a client, and from it
//! - `fetch`, `store`, `volumes`: that of a file, or of a volume
//! - `counts`: what is counted of all this
//!
//! A transfer is served by the same function as a FetchData64, StoreData64, DumpV2 or Restore that comes in by Rx
//! ([`Server::fetch_out_of_band`](afar_rpc::rxafs::Server::fetch_out_of_band)): with the same rights, promises and
//! codes, as a call of the host that was made the offer.
// spec: oob#connection

mod accept;
mod config;
mod counts;
mod fetch;
pub(crate) mod offers;
mod receiving;
mod sending;
mod session;
mod store;
mod transfer;
mod volumes;

use std::fmt;
use std::sync::Arc;

use afar_net::Endpoint;
use afar_telemetry::Registry;
use tokio::net::TcpListener;

use crate::files::Files;
use crate::server::FileServer;
use crate::volser::VolumeServer;
use accept::Door;
use counts::Counts;
use transfer::Serving;

pub use config::OobConfig;
pub use offers::{Offers, OobError};

/// A file server's part of it: gives offers, and serves those who take them up.
#[derive(Clone)]
pub struct Oob {
    offers: Arc<Offers>,
    counts: Arc<Counts>,
    config: OobConfig,
    volumes: Option<VolumeServer>,
}

impl Oob {
    /// With a new key, which clients learn from their offers.
    ///
    /// # Errors
    /// No key can be made.
    pub fn new(config: OobConfig, registry: &Registry) -> Result<Self, OobError> {
        let counts = Arc::new(Counts::new(registry));
        Ok(Self {
            offers: Arc::new(Offers::new(config.port, Arc::clone(&counts))?),
            counts,
            config,
            volumes: None,
        })
    }

    /// What offers are made with, for [`Files::offering`] and
    /// [`VolserConfig::out_of_band`](crate::volser::VolserConfig::out_of_band).
    #[must_use]
    pub fn offers(&self) -> &Arc<Offers> {
        &self.offers
    }

    /// The same, which also serves the clients of a volume server.
    #[must_use]
    pub fn with_volumes(self, volumes: VolumeServer) -> Self {
        let volumes = Some(volumes);
        Self { volumes, ..self }
    }

    /// Serves the clients of a file server at this socket, until the future is dropped. They are called back from the
    /// endpoint, which must be the one where they were made their offers.
    pub async fn serve(self, listener: TcpListener, server: Arc<FileServer>, endpoint: Endpoint) {
        let files = Files::new(server, endpoint);
        let serving = Serving::new(files, self.volumes, &self.config, self.offers, self.counts);
        afar_tls::serve(Arc::new(Door::new(serving)), listener).await;
    }
}

impl fmt::Debug for Oob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oob")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
