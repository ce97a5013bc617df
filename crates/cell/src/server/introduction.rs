//! How a server gets to know our connections.
//!
//! An OpenAFS file server asks who the client is (TellMeAboutYourself) for each new connection, before
//! it answers the first call on it; calls on other new connections of that host meanwhile get VBUSY. So
//! connections are introduced one after the other: the next one soon after the server has asked for
//! the one before, which makes nearly one a round trip. Meanwhile calls of that host that arrive keep a thread
//! each waiting, of which there are about ten.
//!
//! So the first host gets few connections, or those that will be needed early, and few are added later. Where many
//! are needed and the way is long, data is read by [others](super::hosts): each of them makes all its connections
//! before it makes calls on them, and several of them do at a time.

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

/// Lanes of the first host there may be whatever the window is.
const BASIC_LANES: usize = 16;
/// When the window allows this many calls more, there are to be more.
const LANES_SHORT: usize = 8;
/// Lanes that are enough on a short link.
const NEAR_LANES: usize = 16;
/// Between our answer to a server's question and the next connection, at least.
const ANSWER_TIME: Duration = Duration::from_millis(2);
/// The part of a round trip that is left to the calls that have waited meanwhile: a server whose threads all
/// wait begins few at a time. Of the parts tried at 230 ms, this one fills the link soonest.
const ANSWER_TRIPS: f64 = 0.25;
/// Times a busy server is asked to take a connection.
const INTRODUCTIONS: usize = 6;
/// The first pause between these.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Connections of one who reads.
const READER_CONNECTIONS: usize = 8;
/// Lanes of all who read.
const READING_LANES: usize = READERS * READER_CONNECTIONS * CHANNELS;
/// Number of readers that do the handshake at a time: each takes one of the server's threads.
const READERS_AT_A_TIME: usize = 3;
/// Lanes of theirs to make ready for each call that is allowed: at the start that grows as long as they take.
const READER_LANES: usize = 8;
/// How long after a reply the server has been told the window for certain: its last packet is acknowledged after a
/// tenth of a second.
// spec: rx#when-acknowledgements-come
const WINDOW_TIME: Duration = Duration::from_millis(150);
/// A server that does not ask one of them who it is, for so long and so many round trips, cannot reach it.
const READER_PATIENCE: Duration = Duration::from_secs(3);
const READER_TRIPS: u32 = 6;
/// For how long a server counts as one that is best read from by the first host.
const DIRECT_TIME: Duration = Duration::from_secs(60);

impl FileServer {
    /// Makes ready for so many calls at a time, in the background. Where others read data, so many may never come.
    pub(crate) fn prepare(self: &Arc<Self>, number: usize) {
        self.prepared.store(number, Ordering::Relaxed);
        if self.is_read_by_readers() {
            self.want(number.min(BASIC_LANES));
        } else {
            self.want(number);
        }
    }

    /// Has connections of the first host added, if there are few.
    pub(super) fn want_more(self: &Arc<Self>) {
        self.want(self.prepared.load(Ordering::Relaxed));
        let lanes = self.lanes.count();
        let limit = self.calls_allowed();
        if self.window.is_starting() && limit > lanes {
            // Until it is known how many suffice, one after the other without a pause.
            self.want(limit + LANES_SHORT);
        } else if are_few(lanes, limit) {
            self.want(lanes + 1);
        }
    }

    /// Has those who read introduced, if they are few.
    pub(super) fn want_readers(self: &Arc<Self>) {
        // Until they are, the first host reads too.
        self.want(BASIC_LANES);
        let limit = self.calls_allowed();
        if self.window.is_starting() {
            self.want_lanes_of_readers(READER_LANES * limit);
        } else if self.reading.is_taken() {
            self.want_lanes_of_readers(limit);
        }
    }

    fn calls_allowed(&self) -> usize {
        self.window.limit().max(self.idle.limit())
    }

    /// Whether data is read from it by other hosts than the first.
    pub(super) fn is_read_by_readers(&self) -> bool {
        !self.peer.direct.within(DIRECT_TIME) && !self.peer.refusing.within(OLD_TIME)
    }

    /// Has connections of the first host introduced until there are so many lanes, in the background.
    fn want(self: &Arc<Self>, number: usize) {
        if self.is_known() && self.lanes.want(number) {
            self.window.introducing(true);
            let server = Arc::clone(self);
            tokio::spawn(async move { server.grow().await });
        }
    }

    /// Introduces connections of the first host, one after the other, until there are enough.
    async fn grow(self: Arc<Self>) {
        let host = &self.hosts.first;
        let round_trip = round_trip(self.path().await);
        let most = if round_trip < NEAR {
            NEAR_LANES
        } else {
            usize::MAX
        };
        let pause = round_trip.mul_f64(ANSWER_TRIPS).max(ANSWER_TIME);
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
            // Other servers than OpenAFS's need not ask: there it is the answer that tells.
            let asked = self.is_asked(host, pause);
            tokio::select! {
                _ = introduced => {}
                () = asked => {}
            }
        }
        self.window.introducing(false);
    }

    /// Has those who read introduced until they have so many lanes, in the background.
    fn want_lanes_of_readers(self: &Arc<Self>, number: usize) {
        if self.is_known() && self.reading.want(number.min(READING_LANES)) {
            let server = Arc::clone(self);
            tokio::spawn(async move { server.grow_readers().await });
        }
    }

    /// Introduces those who read, until they have enough lanes.
    async fn grow_readers(self: Arc<Self>) {
        let path = self.path().await;
        let round_trip = round_trip(path);
        // An afar server fills any way by a few calls.
        if round_trip < NEAR || path.is_some_and(|path| path.afar) {
            self.peer.direct.note();
        }
        let patience = READER_PATIENCE.max(READER_TRIPS * round_trip);
        let mut begun = self.reading.of_each_host().len();
        let mut growing = JoinSet::new();
        while self.is_read_by_readers() {
            let lanes = begun * READER_CONNECTIONS * CHANNELS;
            if growing.len() < READERS_AT_A_TIME && !self.reading.are_enough(lanes) {
                match self.hosts.reader(begun) {
                    Ok(Some(host)) => {
                        begun += 1;
                        let server = Arc::clone(&self);
                        growing.spawn(async move { server.grow_reader(&host, patience).await });
                    }
                    none => {
                        tracing::debug!("no other port to read from: {none:?}");
                        self.peer.direct.note();
                    }
                }
                continue;
            }
            match growing.join_next().await {
                Some(Ok(true)) => {}
                Some(_) => {
                    self.peer.refusing.note();
                }
                None if self.reading.has_grown(lanes, READING_LANES) => return,
                None => {}
            }
        }
        // Those that are under way end by themselves.
        growing.detach_all();
        self.reading.stop_growing();
        self.want_more();
    }

    /// Introduces all connections of one who reads. Says whether the server has taken any.
    async fn grow_reader(self: Arc<Self>, host: &Arc<Host>, patience: Duration) -> bool {
        let (mut introduced, mut left) = (JoinSet::new(), patience);
        for _ in 0..READER_CONNECTIONS {
            let Some(link) = self.try_connect(host).await else {
                break;
            };
            let asked = self.is_asked(host, ANSWER_TIME);
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
            if tokio::time::timeout(patience, asked_or_answered)
                .await
                .is_err()
            {
                let port = host.endpoint.local_addr().port();
                tracing::debug!(
                    "{} does not ask for the identity of port {port}",
                    self.address
                );
                // Those that it has answered already are of use all the same.
                left = Duration::ZERO;
                break;
            }
        }
        let mut used = JoinSet::new();
        while let Ok(Some(link)) = tokio::time::timeout(left, introduced.join_next()).await {
            if let Ok(Some(link)) = link {
                used.spawn(async move {
                    use_channels(&link.client).await;
                    tokio::time::sleep(WINDOW_TIME).await;
                    link
                });
            }
        }
        let any = !used.is_empty();
        while let Some(link) = used.join_next().await {
            if let Ok(link) = link {
                self.reading.open(self.reading.add(link));
            }
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

    /// Ends when the server has asked a host who it is, from now on, and has had its answer for so long.
    fn is_asked(&self, host: &Host, pause: Duration) -> impl Future<Output = ()> + use<> {
        let mut questions = host.callbacks.questions();
        let server = self.address;
        async move {
            loop {
                match questions.recv().await {
                    Ok(address) if address != server => {}
                    _ => break,
                }
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// How long a way is, as far as is known.
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

/// Makes a call on each channel of a connection. An OpenAFS server takes the window of a channel's last call for that
/// of the next, and 16 packets for the first: a thread would then be busy with the first piece for a round trip. A
/// next call that begins before the reply is acknowledged takes the place of that, and tells no window.
// spec: rx#windows
async fn use_channels(connection: &rxafs::Client) {
    let calls: JoinSet<_> = (0..CHANNELS)
        .map(|_| {
            let connection = connection.clone();
            async move { connection.get_capabilities().await }
        })
        .collect();
    // Errors come again at the first call that matters.
    calls.join_all().await;
}

/// Whether there should be another connection when all lanes are taken. While a server is introduced
/// to one, it begins no call on any other, and those that waited burst together: that costs more
/// than a few calls bring.
fn are_few(lanes: usize, limit: usize) -> bool {
    lanes < BASIC_LANES || limit >= lanes + LANES_SHORT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_added_for_many_calls_only() {
        assert!(are_few(12, 4));
        assert!(are_few(72, 80));
        assert!(!are_few(72, 79) && !are_few(16, 16));
    }
}
