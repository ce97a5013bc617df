//! Telling the cell's location servers where this file server is (VL RegisterAddrs).

use std::net::Ipv4Addr;
use std::time::Duration;

use afar_net::AbortCode;
use afar_rpc::{RpcError, vl};
use afar_types::AfsUuid;
use afar_types::error::VL_MULTIPADDR;
use afar_xdr::List;

/// Addresses a location server keeps of one file server.
pub const MAX_ADDRESSES: usize = 15;
/// How long to wait before an attempt is repeated, as OpenAFS's file server does.
const PAUSE: Duration = Duration::from_secs(30);
/// The first pauses are shorter: a whole cell that starts at once takes a moment.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Why a registration failed.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// More than a location server keeps.
    #[error("{0} addresses, but the location servers keep {MAX_ADDRESSES}")]
    TooMany(usize),
    /// The server refused.
    #[error("these addresses belong to several servers already")]
    Conflict,
    /// No location server took it.
    #[error("no location server accepted the registration: {0}")]
    Failed(RpcError),
    /// There is no location server to ask.
    #[error("no location server is known")]
    NoServer,
}

/// Registers the addresses of the file server with this UUID, at the first server that takes it. A
/// server too old for this needs none.
///
/// # Errors
/// [`RegistrationError`].
pub async fn register(
    servers: &[vl::Client],
    uuid: AfsUuid,
    addresses: &[Ipv4Addr],
) -> Result<(), RegistrationError> {
    if addresses.len() > MAX_ADDRESSES {
        return Err(RegistrationError::TooMany(addresses.len()));
    }
    let mut last = RegistrationError::NoServer;
    for server in servers {
        let words: Vec<u32> = addresses
            .iter()
            .map(|address| u32::from(*address))
            .collect();
        let list = List::new(words).map_err(|_| RegistrationError::TooMany(addresses.len()))?;
        match server.register_addrs(uuid, 0, list).await {
            Ok(_) => return Ok(()),
            // spec: afs-rpc#registering-addresses
            Err(error) if error.code() == AbortCode::RXGEN_OPCODE => return Ok(()),
            // The others have the same database, and would say the same.
            Err(error) if error.code() == AbortCode(VL_MULTIPADDR) => {
                return Err(RegistrationError::Conflict);
            }
            Err(error) => last = RegistrationError::Failed(error),
        }
    }
    Err(last)
}

/// Registers, and tries again until a location server takes it: each time at new connections, as
/// this server may have got a key meanwhile.
// spec: afs-rpc#registering-addresses
pub async fn keep_trying(
    servers: impl Fn() -> Vec<vl::Client>,
    uuid: AfsUuid,
    addresses: Vec<Ipv4Addr>,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        match register(&servers(), uuid, &addresses).await {
            Ok(()) => {
                tracing::info!(%uuid, ?addresses, "registered with the location servers");
                return;
            }
            Err(error) => tracing::warn!(%error, retry_in = ?pause, "not registered yet"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE);
    }
}
