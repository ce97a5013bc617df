//! Files and volumes by TCP, out of band.

use std::net::SocketAddr;
use std::time::Duration;

use afar_fileserver::oob::{Oob, OobConfig};
use afar_telemetry::Registry;
use tokio::net::TcpListener;

use crate::config::{Config, Role};

/// Opens what the configuration says; nothing if that is nothing. A server does not do without Rx for want of a port.
pub(crate) fn open(config: &Config, registry: &Registry) -> Option<(Oob, TcpListener)> {
    if !config.oob.enabled.0 {
        return None;
    }
    let port = config.oob.port.0;
    let address = SocketAddr::new(config.listen.0, port);
    let listener = match afar_tls::listen(address) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(
                %address,
                %error,
                "cannot open a TCP port for files and volumes; they pass by Rx alone (oob.port = … names another port)"
            );
            return None;
        }
    };
    let settings = OobConfig {
        port,
        // As much again as Rx may have for the same.
        memory: config.net.memory_of(Role::File),
        idle_limit: Duration::from_secs(config.net.idle_seconds.0.into()),
    };
    match Oob::new(settings, registry) {
        Ok(oob) => Some((oob, listener)),
        Err(error) => {
            tracing::warn!(%error, "no files and volumes out of band");
            None
        }
    }
}
