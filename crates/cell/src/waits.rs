//! What a request waits for: the servers that are asked for it, and how many calls that took.
//!
//! A program that wants to know makes a [`Waits`] for each of its requests and does the request [in](Waits::during) it.
//! Work that a request leaves to a task of its own [carries](carried) it along; what several requests wait for has
//! one that they [follow](Waits::follow). Without any, nothing is noted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use afar_rpc::Asker;
use parking_lot::Mutex;

tokio::task_local! {
    static CURRENT: Arc<Waits>;
}

/// Servers that are noted of a request at a time.
const SERVERS_MOST: usize = 64;

/// What a request waits for.
#[derive(Debug, Default)]
pub struct Waits {
    /// The process that asks, if servers are to know.
    asker: Option<Asker>,
    calls: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The one that it has asked for the longest time first.
    servers: Vec<SocketAddr>,
    /// What somebody does that this waits for.
    follows: Option<Arc<Waits>>,
}

impl Waits {
    /// One of a request of this process, which is told to the servers that are asked to change something.
    #[must_use]
    pub fn of(asker: Option<Asker>) -> Self {
        Self {
            asker,
            ..Self::default()
        }
    }

    /// Does a request, and notes what it waits for.
    pub fn during<F: Future>(
        self: &Arc<Self>,
        request: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        // No `async fn`, which would hold the request twice: it may be large, and stand on the stack.
        Asker::scope(self.asker, CURRENT.scope(Arc::clone(self), request))
    }

    /// That of the request which is being done here.
    #[must_use]
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// The request which is being done here waits for what somebody else does.
    pub fn follow(other: &Arc<Self>) {
        // One that follows itself would count its calls twice.
        if let Some(own) = Self::current().filter(|own| !Arc::ptr_eq(own, other)) {
            own.state.lock().follows = Some(Arc::clone(other));
        }
    }

    /// How many calls to servers it took so far; those it waited for count too.
    #[must_use]
    pub fn calls(&self) -> u32 {
        let own = self.calls.load(Relaxed);
        let follows = self.state.lock().follows.clone();
        own.saturating_add(follows.map_or(0, |other| other.calls.load(Relaxed)))
    }

    /// The server that it has waited for the longest time, if it waits for one.
    #[must_use]
    pub fn server(&self) -> Option<SocketAddr> {
        let state = self.state.lock();
        let (own, follows) = (state.servers.first().copied(), state.follows.clone());
        // Requests may follow each other: with both locked they would wait for each other.
        drop(state);
        own.or_else(|| follows.and_then(|other| other.state.lock().servers.first().copied()))
    }

    /// A server is called; the request waits for it until the guard is dropped.
    pub(crate) fn call(server: SocketAddr) -> Waiting {
        let waiting = Self::on(server);
        if let Some((waits, _)) = &waiting.0 {
            waits.calls.fetch_add(1, Relaxed);
        }
        waiting
    }

    /// The same where there is no call yet.
    pub(crate) fn on(server: SocketAddr) -> Waiting {
        let noted = Self::current().filter(|waits| {
            let mut state = waits.state.lock();
            let has_room = state.servers.len() < SERVERS_MOST;
            if has_room {
                state.servers.push(server);
            }
            has_room
        });
        Waiting(noted.map(|waits| (waits, server)))
    }
}

/// A request waits for a server until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(Option<(Arc<Waits>, SocketAddr)>);

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some((waits, server)) = &self.0 else {
            return;
        };
        let mut state = waits.state.lock();
        let place = state.servers.iter().position(|one| one == server);
        debug_assert!(place.is_some(), "{server} was never noted");
        if let Some(place) = place {
            state.servers.remove(place);
        }
    }
}

/// Work for a task of its own, which is done for the request that is being done here.
pub(crate) fn carried<F: Future>(work: F) -> impl Future<Output = F::Output> {
    // Without a request, one that nobody looks at: so the work has one form, and is held once.
    Waits::current().unwrap_or_default().during(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 7000))
    }

    #[tokio::test]
    async fn servers_are_noted_as_long_as_a_request_waits_for_them() {
        let waits = Arc::new(Waits::default());
        waits
            .during(async {
                let first = Waits::call(server(1));
                let second = Waits::on(server(2));
                assert_eq!(waits.server(), Some(server(1)));
                drop(first);
                assert_eq!(waits.server(), Some(server(2)));
                drop(second);
                let task = tokio::spawn(carried(async { Waits::call(server(3)) }));
                let third = task.await.unwrap();
                assert_eq!(waits.server(), Some(server(3)));
                drop(third);
            })
            .await;
        assert_eq!((waits.server(), waits.calls()), (None, 2));
        // Elsewhere nothing is noted.
        drop(Waits::call(server(4)));
        carried(async { drop(Waits::call(server(5))) }).await;
        assert_eq!(waits.calls(), 2);
    }

    #[tokio::test]
    async fn a_request_waits_for_what_another_does() {
        let (own, other) = (Arc::new(Waits::default()), Arc::new(Waits::default()));
        let call = other.during(async { Waits::call(server(1)) }).await;
        own.during(async { Waits::follow(&other) }).await;
        assert_eq!((own.server(), own.calls()), (Some(server(1)), 1));
        drop(call);
        assert_eq!(own.server(), None);
        // Following oneself is following nobody.
        own.during(async { Waits::follow(&own) }).await;
        assert_eq!(own.calls(), 1);
    }

    #[tokio::test]
    async fn what_is_noted_is_bounded() {
        let waits = Arc::new(Waits::default());
        waits
            .during(async {
                let all: Vec<_> = (0..1000).map(|_| Waits::on(server(1))).collect();
                assert_eq!(waits.state.lock().servers.len(), SERVERS_MOST);
                drop(all);
                assert_eq!(waits.server(), None);
            })
            .await;
    }
}
