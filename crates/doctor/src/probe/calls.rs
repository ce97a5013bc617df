//! Calls that ask for next to nothing: how long they take, and the server's clock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use afar_net::{Endpoint, RxNull};
use afar_rpc::{RpcError, rxafs, vl};
use tokio::time::{Instant, timeout};

use crate::measured::{Clock, SmallCall};

/// Calls made, one after the other.
const CALLS: u32 = 5;
/// How long one may take.
const LIMIT: Duration = Duration::from_secs(3);
/// The port of location servers.
pub(super) const LOCATION_PORT: u16 = 7003;

/// What small calls tell.
#[derive(Debug, Default)]
pub(crate) struct Small {
    pub(crate) call: SmallCall,
    pub(crate) clock: Option<Clock>,
}

/// Makes a few. A server that does not answer two of them is asked no more.
pub(crate) async fn small_calls(endpoint: &Endpoint, server: SocketAddr) -> Small {
    let asker = Asker::new(endpoint, server);
    let mut times = Vec::new();
    let mut best: Option<(f64, f64)> = None;
    let mut made = 0;
    while made < CALLS && made < u32::try_from(times.len()).unwrap_or(CALLS) + 2 {
        made += 1;
        let (begin, clock) = (Instant::now(), SystemTime::now());
        let Ok(Ok(told)) = timeout(LIMIT, asker.ask()).await else {
            continue;
        };
        let took = begin.elapsed().as_secs_f64();
        times.push(took);
        let here = clock
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64()
            + took / 2.0;
        if let Some(there) = told
            && best.is_none_or(|(least, _)| took < least)
        {
            best = Some((took, there - here));
        }
    }
    times.sort_by(f64::total_cmp);
    Small {
        call: SmallCall {
            answered: u32::try_from(times.len()).unwrap_or(made),
            made,
            median_s: times.get(times.len() / 2).copied().unwrap_or(0.0),
        },
        clock: best.map(|(took, offset_s)| Clock {
            offset_s,
            error_s: took / 2.0,
        }),
    }
}

/// The smallest call of a service.
pub(super) enum Asker {
    File(rxafs::Client),
    Location(vl::Client),
}

impl Asker {
    pub(super) fn new(endpoint: &Endpoint, server: SocketAddr) -> Self {
        let connect = |service| endpoint.connect(server, service, Arc::new(RxNull));
        match server.port() {
            LOCATION_PORT => Self::Location(vl::Client::new(connect(vl::SERVICE))),
            _ => Self::File(rxafs::Client::new(connect(rxafs::SERVICE))),
        }
    }

    /// Asks, and gives the server's time if it tells that. A refusal is an answer.
    pub(super) async fn ask(&self) -> Result<Option<f64>, RpcError> {
        let answer = match self {
            Self::File(client) => client.get_time().await.map(|time| {
                Some(f64::from(time.seconds) + f64::from(time.microseconds.min(999_999)) * 1e-6)
            }),
            Self::Location(client) => client.probe_server().await.map(|_| None),
        };
        match answer {
            Err(error) if error.aborted().is_some() => Ok(None),
            other => other,
        }
    }
}
