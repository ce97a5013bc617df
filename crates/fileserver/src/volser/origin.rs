//! Clients that have ended, whose transactions nobody will go on with.
//!
//! A tool that is killed ends no transaction, and until one is given up, which takes ten minutes, no
//! client can change anything in its volume. But the host of a process that is gone says so at once
//! to everybody who sends it something. So the server sends something.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use afar_net::{CallError, Endpoint, RxNull};
use afar_rpc::{Caller, afsvol};
use afar_types::TransactionId;
use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::transactions::Transactions;

/// How long a transaction is idle before its client is asked, how long the server waits for each answer, and
/// how often this is done.
pub(super) const PERIOD: Duration = Duration::from_secs(1);
/// Refusals in turn after which a client is taken for gone. One alone may be of a router that starts.
const REFUSALS: u32 = 2;

/// The client that began a transaction, as the endpoint reaches it to which it came.
#[derive(Clone)]
pub(super) struct Origin {
    endpoint: Endpoint,
    peer: SocketAddr,
}

impl Origin {
    /// The client of a call that came to this endpoint.
    pub(super) fn of(caller: &Caller, at: &Endpoint) -> Self {
        Self {
            endpoint: at.clone(),
            peer: caller.peer,
        }
    }

    /// Whether its host says that nobody is there. A client that is there need not answer: tools
    /// serve nothing.
    async fn is_refused(&self) -> bool {
        let security = Arc::new(RxNull);
        let connection = self.endpoint.connect(self.peer, afsvol::SERVICE, security);
        let asking = async {
            let mut call = connection.call().await?;
            // No operation has this number.
            call.send(Bytes::from_static(&[0; 4])).await?;
            call.finish().await?;
            call.recv().await
        };
        let refused = CallError::Unreachable(io::ErrorKind::ConnectionRefused);
        timeout(PERIOD, asking).await == Ok(Err(refused))
    }
}

/// Counts in turn how often clients were refused.
#[derive(Default)]
pub(super) struct Refusals(HashMap<TransactionId, u32>);

impl Refusals {
    /// Asks the clients of idle transactions. Returns those whose clients are gone.
    pub(super) async fn ask(&mut self, transactions: &Transactions) -> Vec<TransactionId> {
        let mut origins: HashMap<_, (Origin, Vec<TransactionId>)> = HashMap::new();
        for (id, origin) in transactions.idle(PERIOD) {
            let place = (origin.endpoint.local_addr(), origin.peer);
            let known = origins.entry(place).or_insert((origin, Vec::new()));
            known.1.push(id);
        }
        let mut asking = JoinSet::new();
        for (origin, ids) in origins.into_values() {
            asking.spawn(async move { origin.is_refused().await.then_some(ids) });
        }
        let before = std::mem::take(&mut self.0);
        for id in asking.join_all().await.into_iter().flatten().flatten() {
            let refusals = before.get(&id).map_or(1, |before| before + 1);
            self.0.insert(id, refusals);
        }
        let gone = self.0.iter().filter(|(_, refusals)| **refusals >= REFUSALS);
        gone.map(|(id, _)| *id).collect()
    }
}
