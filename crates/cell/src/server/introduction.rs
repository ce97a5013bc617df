//! The handshakes in which a server gets to know our connections.
//!
//! An OpenAFS file server asks for the identity of the client (TellMeAboutYourself) on each new connection, before
//! it answers the first call on it; calls on other new connections of that host meanwhile get VBUSY. So a host does
//! the handshakes of its connections one after the other: the next one soon after the server has asked on the
//! connection before, which makes nearly one a round trip. Meanwhile each call of that host that arrives keeps one of
//! the server's threads waiting, of which there are about ten.
//!
//! So the first host makes few connections. Where many are needed and the path is long, [readers](super::hosts) fetch
//! data: each of them makes all its connections before it makes calls on them, and all readers do so at the same time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use afar_net::PeerStats;
use afar_rpc::rxafs;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::hosts::{Host, READERS};
use super::lanes::{CHANNELS, Link};
use super::{FileServer, NEAR, OLD_TIME, Verdict, verdict};

/// Channels of the first host that are enough where readers fetch data, and on a short path.
const BASIC_LANES: usize = 16;
/// Between our answer to a server's question and the next connection.
const ANSWER_TIME: Duration = Duration::from_millis(2);
/// Times the client asks a busy server to take a connection.
const INTRODUCTIONS: usize = 6;
/// The first pause between these.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Connections of a reader.
const READER_CONNECTIONS: usize = 8;
/// Channels of all readers.
const READING_LANES: usize = READERS * READER_CONNECTIONS * CHANNELS;
/// A server that has not asked a reader for its identity within this time cannot reach it.
const READER_PATIENCE: Duration = Duration::from_secs(3);
/// How long a server counts as one that the first host reads from best.
const DIRECT_TIME: Duration = Duration::from_secs(60);

impl FileServer {
    /// Prepares channels for this many calls at a time, in the background. Where readers fetch data, the calls may
    /// never come.
    pub(crate) fn prepare(self: &Arc<Self>, number: usize) {
        self.prepared.store(number, Ordering::Relaxed);
        if self.is_read_by_readers() {
            self.want(number.min(BASIC_LANES));
        } else {
            self.want(number);
        }
    }

    /// Has the first host make as many connections as it needs.
    pub(super) fn want_more(self: &Arc<Self>) {
        let needed = if self.is_read_by_readers() {
            BASIC_LANES
        } else {
            self.calls_allowed()
        };
        self.want(needed.max(self.prepared.load(Ordering::Relaxed)));
    }

    /// Has the readers do their handshakes.
    pub(super) fn want_readers(self: &Arc<Self>) {
        // Until they have, the first host reads too.
        self.want(BASIC_LANES);
        if self.is_known() && !self.reading.are_open() && self.reading.want(READING_LANES) {
            let server = Arc::clone(self);
            tokio::spawn(async move { server.grow_readers().await });
        }
    }

    fn calls_allowed(&self) -> usize {
        self.window.limit().max(self.idle.limit())
    }

    /// Whether readers fetch its data.
    pub(super) fn is_read_by_readers(&self) -> bool {
        !self.peer.direct.within(DIRECT_TIME) && !self.peer.refusing.within(OLD_TIME)
    }

    /// Has the first host make connections until it has this many channels, in the background.
    fn want(self: &Arc<Self>, number: usize) {
        if self.is_known() && self.lanes.want(number) {
            let server = Arc::clone(self);
            tokio::spawn(async move { server.grow().await });
        }
    }

    /// Makes connections of the first host with their handshakes, one after the other, until there are enough.
    async fn grow(self: Arc<Self>) {
        let host = &self.hosts.first;
        let round_trip = round_trip(self.path().await);
        let most = if round_trip < NEAR {
            BASIC_LANES
        } else {
            usize::MAX
        };
        while !self.lanes.has_grown(self.lanes.count(), most) {
            let Some(link) = self.try_connect(host).await else {
                self.lanes.stop_growing();
                break;
            };
            let number = self.lanes.add(link.clone());
            let server = Arc::clone(&self);
            let introduced = tokio::spawn(async move {
                introduce(&link.client).await;
                // Errors come again at the first call that matters, and are told then.
                server.lanes.open(number);
            });
            let asked = self.is_asked(host);
            tokio::select! {
                _ = introduced => {}
                () = asked => {}
            }
        }
    }

    /// Does the handshakes of all readers at the same time.
    async fn grow_readers(self: Arc<Self>) {
        let path = self.path().await;
        // An afar server fills any path by a few calls.
        if round_trip(path) < NEAR || path.is_some_and(|path| path.afar) {
            self.peer.direct.note();
        }
        let mut growing = JoinSet::new();
        for number in 0..READERS {
            if !self.is_read_by_readers() {
                break;
            }
            match self.hosts.reader(number) {
                Ok(Some(host)) => {
                    let server = Arc::clone(&self);
                    growing.spawn(async move { server.grow_reader(&host).await });
                }
                none => {
                    tracing::debug!("no other port to read from: {none:?}");
                    self.peer.direct.note();
                }
            }
        }
        while let Some(taken) = growing.join_next().await {
            if !matches!(taken, Ok(true)) {
                self.peer.refusing.note();
                self.want_more();
            }
        }
        self.reading.stop_growing();
        if !self.is_read_by_readers() {
            self.want_more();
        }
    }

    /// Makes all connections of a reader with their handshakes. Says whether the server has taken any.
    async fn grow_reader(self: Arc<Self>, host: &Arc<Host>) -> bool {
        let (mut introduced, mut left) = (JoinSet::new(), READER_PATIENCE);
        for _ in 0..READER_CONNECTIONS {
            let Some(link) = self.try_connect(host).await else {
                break;
            };
            let asked = self.is_asked(host);
            let (answered, answer) = oneshot::channel::<()>();
            introduced.spawn(async move {
                let taken = introduce(&link.client).await;
                drop(answered);
                taken.then_some(link)
            });
            // Other servers than OpenAFS's need not ask.
            let asked_or_answered = async {
                tokio::select! {
                    () = asked => {}
                    _ = answer => {}
                }
            };
            if tokio::time::timeout(READER_PATIENCE, asked_or_answered)
                .await
                .is_err()
            {
                let port = host.endpoint.local_addr().port();
                tracing::debug!(
                    "{} does not ask for the identity of port {port}",
                    self.address
                );
                left = Duration::ZERO;
                break;
            }
        }
        let mut links = Vec::new();
        while let Ok(Some(link)) = tokio::time::timeout(left, introduced.join_next()).await {
            links.extend(link.ok().flatten());
        }
        let any = !links.is_empty();
        // All together, at the end: calls would wait while the server asks on the next one.
        for link in links {
            self.reading.open(self.reading.add(link));
        }
        any
    }

    async fn try_connect(&self, host: &Arc<Host>) -> Option<Link> {
        match self.connect(host).await {
            Ok(link) => Some(link),
            Err(error) => {
                tracing::debug!("no more connections to {}: {error}", self.address);
                None
            }
        }
    }

    /// Ends when the server has asked a host for its identity, from now on, and has had the answer for a while.
    fn is_asked(&self, host: &Host) -> impl Future<Output = ()> + use<> {
        let mut questions = host.callbacks.questions();
        let server = self.address;
        async move {
            loop {
                match questions.recv().await {
                    Ok(address) if address != server => {}
                    _ => break,
                }
            }
            tokio::time::sleep(ANSWER_TIME).await;
        }
    }
}

/// The round trip of a path, 0 if unknown.
fn round_trip(path: Option<PeerStats>) -> Duration {
    path.and_then(|path| path.rtt_min).unwrap_or_default()
}

/// Makes the first call on a connection. Says whether the server answers.
// spec: afs-rpc#identity-of-a-client
async fn introduce(connection: &rxafs::Client) -> bool {
    let mut pause = BUSY_PAUSE;
    for _ in 0..INTRODUCTIONS {
        match connection
            .get_capabilities()
            .await
            .map_err(|error| verdict(&error))
        {
            Err(Verdict::Busy) => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            answer => return answer != Err(Verdict::Down),
        }
    }
    true
}
