//! What leases need of hosts: who else was promised word, and a way to those that hold one.

use std::sync::Arc;
use std::time::Duration;

use afar_lease::wire::{self, RecallAnswer};
use afar_types::{AfsUuid, Fid};
use afar_xdr::{Opaque, to_bytes};
use tokio::time::timeout;

use super::breaks::{SLOT_TIME, callback_client};
use super::{Host, Hosts};

impl Hosts {
    /// Whether any other host than this one was promised word of a change of a file.
    pub(crate) fn is_promised_to_others(&self, host: &Arc<Host>, fid: Fid) -> bool {
        let state = self.shared.state.lock();
        let own = state.registry.knows(host) && state.table.is_held(host.index(), fid);
        state.table.holders(fid) > u32::from(own)
    }

    /// Calls a host, at the address where breaks go, and returns what it says of recalled leases; nothing if it does not
    /// answer within the limit. As many hosts are called at a time as are told of breaks, and one that does not answer
    /// soon no longer counts.
    // spec: leases#storms
    pub(crate) async fn recall(
        &self,
        host: AfsUuid,
        recall: &wire::Recall,
        limit: Duration,
    ) -> Option<RecallAnswer> {
        let (endpoint, peer) = {
            let state = self.shared.state.lock();
            let host = state.registry.with_uuid(host)?.lock();
            (host.endpoint.clone(), host.peers.first().copied()?)
        };
        let endpoint = endpoint.or_else(|| self.shared.endpoint())?;
        let recall = Opaque::new(&to_bytes(recall)[..]).ok()?;
        let slot = self.shared.slots.acquire().await.ok()?;
        let client = callback_client(&endpoint, peer);
        let call = timeout(limit, client.recall_leases(recall));
        tokio::pin!(call);
        let soon = timeout(SLOT_TIME, &mut call).await;
        drop(slot);
        let answered = match soon {
            Ok(answered) => answered,
            Err(_) => call.await,
        };
        let reply = answered.ok()?;
        let reply = reply.inspect_err(|error| tracing::debug!(%peer, %error, "recalling leases"));
        wire::decode(&reply.ok()?.answer).ok()
    }
}
