//! A server that does not answer: the client logs it once, all requests wait, and one of them asks the server.

use std::sync::Arc;
use std::time::Duration;

use super::{FileServer, Lane, Verdict, verdict};
use crate::pauses::Pauses;

/// How long to wait for its answer to that. The next question reaches it sooner than this one, sent again,
/// would.
const ANSWER: Duration = Duration::from_secs(5);
/// Most calls end before the client checks whether their server is silent.
const BEGINNING: Duration = Duration::from_secs(1);
/// A server that lives answers pings, of which one goes five seconds after it was heard last at the latest. One of
/// which nothing was heard for so long, while it has a call, is silent.
const SILENCE: Duration = Duration::from_secs(6);

impl FileServer {
    /// Says that somebody waits for it, unless that was said.
    pub(crate) fn awaited(&self) {
        if !self.peer.awaited.note_first() {
            return;
        }
        tracing::warn!("server {} does not answer, waiting", self.address);
    }

    /// It has answered: logs that, if its silence was logged.
    pub(super) fn is_back(&self) {
        if let Some(time) = self.peer.awaited.take() {
            let seconds = time.as_secs();
            tracing::warn!("server {} answers again, after {seconds} s", self.address);
        }
    }

    /// For how long somebody has waited for it to answer.
    pub(crate) fn awaited_for(&self) -> Option<Duration> {
        self.peer.awaited.time()
    }

    /// Returns when it answers, or may be asked for some other reason.
    pub(crate) async fn back(self: &Arc<Self>) {
        if self.peer.silent.time().is_none() {
            return;
        }
        self.awaited();
        // One asks, the others wait for what comes of that.
        let _asking = self.peer.asking.lock().await;
        let mut pauses = Pauses::default();
        while self.peer.silent.time().is_some() {
            tokio::time::sleep(pauses.next()).await;
            if !self.ask().await {
                return;
            }
        }
    }

    /// Asks whether it is there. Says whether it could be asked.
    async fn ask(self: &Arc<Self>) -> bool {
        let Ok((mut lane, _introduction)) = self.lane().await else {
            return false;
        };
        let answer = lane.client();
        match tokio::time::timeout(ANSWER, answer.get_capabilities()).await {
            Ok(Ok(_)) => self.answered(),
            Ok(Err(error)) if verdict(&error) != Verdict::Down => self.answered(),
            Ok(Err(_)) | Err(_) => {
                lane.failed();
                self.silent();
            }
        }
        true
    }

    /// Nobody waits for it any more: what was wanted of it is elsewhere.
    pub(crate) fn left(&self) {
        if self.peer.awaited.take().is_some() {
            tracing::warn!(
                "no longer waiting for server {}: the volume is elsewhere",
                self.address
            );
        }
    }
}

impl Lane {
    /// Whose it is.
    pub(crate) fn server(&self) -> &FileServer {
        &self.server
    }

    /// Returns when nothing has come from its server for a while during a call.
    pub(crate) async fn falls_silent(&self) {
        tokio::time::sleep(BEGINNING).await;
        // Another call has found it silent: this one need not find out for itself.
        if self.server.is_down() {
            return;
        }
        let mut heard = self.heard().await;
        loop {
            tokio::time::sleep(SILENCE).await;
            let now = self.heard().await;
            if heard == now {
                return;
            }
            heard = now;
            self.server.is_back();
        }
    }

    /// Bytes that came from its server. Each host has a way of its own to it.
    async fn heard(&self) -> Option<u64> {
        let endpoint = &self.link.host.endpoint;
        let path = endpoint.peer_stats(self.server.address).await;
        path.map(|path| path.bytes_received)
    }
}
