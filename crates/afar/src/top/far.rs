//! Snapshots of servers of afar elsewhere, which tell administrators what they tell on their own machine.

use std::net::SocketAddr;
use std::time::Duration;

use afar_admin::Servers;
use afar_rpc::{RpcError, eyes};
use afar_server::view::{Snapshot, View};
use afar_types::CellName;
use afar_types::error::BZACCESS;
use afar_xdr::XdrString;
use anyhow::{Context, bail, ensure};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::source::{ANSWER_MAX, LEASE_MORE, LIMIT};
use crate::afs_args::{self, Common, OwnArgs};
use crate::fetch::session;
use crate::top::server_address;

/// The UDP port of overseers.
const PORT: u16 = 7007;
/// How long a host has to say whether it has such a server.
const FIRST: Duration = Duration::from_secs(3);

/// A server elsewhere that tells us all.
pub(super) struct Far {
    name: String,
    runtime: Runtime,
    servers: Servers,
    client: eyes::Client,
}

/// What became of the first question.
pub(super) enum Met {
    /// It answers.
    All(Far),
    /// It tells only administrators.
    Refused,
    /// There is no server of afar that can be asked so.
    Nobody,
}

impl std::fmt::Debug for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Far").field(&self.name).finish()
    }
}

impl Far {
    /// Asks the host of this name for what a viewer wants to see: as its cell with `localauth`, as the user otherwise.
    ///
    /// # Errors
    /// With `localauth` there are no keys; the system gives no socket.
    pub(super) fn meet(
        name: &str,
        cell: Option<&CellName>,
        localauth: bool,
        view: View,
    ) -> anyhow::Result<Met> {
        let address = SocketAddr::new(server_address(name)?.ip(), PORT);
        let runtime = session::runtime()?;
        let common = Common {
            cell: cell.cloned(),
            localauth,
            own: OwnArgs {
                vl_server: vec![address.ip().to_string()],
                ..OwnArgs::default()
            },
            ..Common::default()
        };
        let (servers, _) = runtime.block_on(afs_args::open(&common))?;
        let far = Self {
            name: name.to_owned(),
            client: servers.eyes(address),
            runtime,
            servers,
        };
        let first = far
            .runtime
            .block_on(async { timeout(FIRST, far.ask(view, 0)).await });
        Ok(match first {
            Ok(Ok(_)) => Met::All(far),
            Ok(Err(error)) if error.aborted().is_some_and(|code| code.0 == BZACCESS) => {
                Met::Refused
            }
            _ => Met::Nobody,
        })
    }

    /// A table as it is now.
    ///
    /// # Errors
    /// The server does not answer, or not as one does.
    pub(super) fn fetch(&self, view: View, interval: Duration) -> anyhow::Result<Snapshot> {
        let seconds = interval.as_secs() + LEASE_MORE;
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        let ask = async { timeout(LIMIT, self.ask(view, seconds)).await };
        let told = self.runtime.block_on(ask);
        let told = told.with_context(|| format!("{} does not answer in time", self.name))?;
        let told = told.with_context(|| format!("cannot ask {}", self.name))?;
        ensure!(
            told.len() as u64 <= ANSWER_MAX,
            "{} answers more than a table can have",
            self.name
        );
        match serde_json::from_slice(&told) {
            Ok(snapshot) => Ok(snapshot),
            Err(_) => bail!(
                "{}: the answer is not one of afar's; is it another version?",
                self.name
            ),
        }
    }

    /// The text of an answer, as far as it may be one.
    async fn ask(&self, view: View, seconds: u32) -> Result<Vec<u8>, RpcError> {
        let table = XdrString::new(view.name()).unwrap_or_default();
        let mut answer = self.client.snapshot(table, seconds).await?;
        let mut whole = Vec::new();
        while let Some(bytes) = answer.chunk().await? {
            whole.extend_from_slice(&bytes);
            if whole.len() as u64 > ANSWER_MAX {
                break;
            }
        }
        Ok(whole)
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.runtime.block_on(self.servers.shutdown());
    }
}
