//! Users of this machine, and who each of them is to cells.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use afar_cell::Client;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::model::user::{Identity, Stamp, User, UserId, Users};

/// How long it is not looked again what tokens a user has.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a look may take before the user keeps the previous identity.
const LOOK_LIMIT: Duration = Duration::from_secs(20);
/// Number of requests of an unknown user that look up the identity at a time.
const LOOKS_MOST: u32 = 4;
/// Users remembered.
const USERS_MOST: usize = 4096;

/// All users who make requests.
#[derive(Debug)]
pub(crate) struct UserTable {
    source: Option<Arc<dyn Users>>,
    /// The client's identity.
    base: Arc<User>,
    anonymous: Arc<User>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: BTreeMap<u32, Known>,
    /// How many are looking for each user.
    looking: BTreeMap<u32, u32>,
    last: u32,
}

/// What is to be done to know who a user is.
enum Now {
    /// Nothing: it is known well enough.
    Known(Arc<User>),
    /// It is to be looked, whether it is something else than this.
    Look(Option<Stamp>),
}

/// What was seen of a user.
#[derive(Debug)]
struct Known {
    user: Arc<User>,
    stamp: Stamp,
    looked: Instant,
}

impl UserTable {
    /// Without a source all are whoever the client is.
    pub(crate) fn new(client: &Client, source: Option<Arc<dyn Users>>) -> Self {
        let user = |number, client| Arc::new(User::new(UserId(number), client));
        Self {
            source,
            base: user(1, client.clone()),
            anonymous: user(2, client.with_credentials(None)),
            state: Mutex::new(State {
                last: 2,
                ..State::default()
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The user, if the identity need not be looked up again. A caller that is told to look is counted until it
    /// [takes](Self::take) what it sees; others go on with what is known meanwhile.
    fn now(&self, uid: u32) -> Now {
        let mut guard = self.lock();
        let state = &mut *guard;
        let looking = state.looking.entry(uid).or_default();
        let stamp = match state.known.get(&uid) {
            Some(known) if *looking > 0 || known.looked.elapsed() < LOOK_EVERY => {
                return Now::Known(Arc::clone(&known.user));
            }
            Some(known) => Some(known.stamp),
            // The place of the user's tokens does not answer, and no more requests are to wait for it.
            None if *looking >= LOOKS_MOST => return Now::Known(Arc::clone(&self.anonymous)),
            None => None,
        };
        *looking += 1;
        Now::Look(stamp)
    }

    /// Takes what was seen; `None` if it was the same as before.
    fn take(&self, uid: u32, seen: Option<(Stamp, Identity)>) -> Option<Arc<User>> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if let Some(looking) = state.looking.get_mut(&uid) {
            *looking = looking.saturating_sub(1);
        }
        state.looking.retain(|_, number| *number > 0);
        if let Some(known) = state.known.get_mut(&uid) {
            known.looked = Instant::now();
        }
        let Some((stamp, identity)) = seen else {
            return state.known.get(&uid).map(|known| Arc::clone(&known.user));
        };
        if let Some(known) = state.known.get(&uid)
            && known.stamp == stamp
        {
            // Another request saw it first.
            return Some(Arc::clone(&known.user));
        }
        let user = match identity {
            Identity::Client => Arc::clone(&self.base),
            Identity::Anonymous => Arc::clone(&self.anonymous),
            Identity::Own(credentials) => match state.last.checked_add(1) {
                Some(number) => {
                    state.last = number;
                    let client = self.base.client.with_credentials(Some(credentials));
                    Arc::new(User::new(UserId(number), client))
                }
                // Nobody has the rights of another because numbers start over.
                None => Arc::clone(&self.anonymous),
            },
        };
        if state.known.len() >= USERS_MOST {
            let oldest = state.known.iter().min_by_key(|(_, known)| known.looked);
            let oldest = oldest.map(|(uid, _)| *uid);
            oldest.and_then(|uid| state.known.remove(&uid));
        }
        let known = Known {
            user: Arc::clone(&user),
            stamp,
            looked: Instant::now(),
        };
        state.known.insert(uid, known);
        debug_assert!(state.known.len() <= USERS_MOST);
        Some(user)
    }

    /// A user of this machine as cells are to see him now.
    pub(crate) async fn user(self: &Arc<Self>, uid: u32) -> Arc<User> {
        let Some(source) = &self.source else {
            return Arc::clone(&self.base);
        };
        let stamp = match self.now(uid) {
            Now::Known(user) => return user,
            Now::Look(stamp) => stamp,
        };
        let (source, table) = (Arc::clone(source), Arc::clone(self));
        let look = tokio::task::spawn_blocking(move || {
            // Taken by this task, so that a look that ends late serves the next request.
            let seen = source.look(uid, stamp);
            table.take(uid, seen)
        });
        // Where a user keeps tokens may be a place that never answers.
        match tokio::time::timeout(LOOK_LIMIT, look).await {
            Ok(Ok(Some(user))) => user,
            _ => {
                tracing::warn!(uid, "it cannot be seen what tokens a user has");
                Arc::clone(&self.anonymous)
            }
        }
    }

    /// Whether this is nobody: a user without tokens.
    pub(crate) fn is_anonymous(&self, user: &User) -> bool {
        user.id == self.anonymous.id
    }

    /// The identity of the client itself.
    pub(crate) fn base(&self) -> &Arc<User> {
        &self.base
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use afar_cell::{Config, Credentials};
    use afar_net::Endpoint;

    fn table() -> UserTable {
        let endpoint =
            Endpoint::bind("127.0.0.1:0".parse().unwrap(), afar_net::Config::default()).unwrap();
        let config = Config {
            only_cells: true,
            ..Config::default()
        };
        UserTable::new(&Client::new(endpoint, config).unwrap(), None)
    }

    #[derive(Debug)]
    struct Nobody;

    impl Credentials for Nobody {
        fn security(
            &self,
            _: &afar_types::CellName,
            _: Option<&afar_cell::Secured>,
        ) -> Result<Option<afar_cell::Secured>, String> {
            Ok(None)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_is_another_one_with_other_tokens_only() {
        let table = table();
        let own = || Identity::Own(Arc::new(Nobody));
        let first = table.take(7, Some((Stamp(1), own()))).unwrap();
        let is_known = || matches!(table.now(7), Now::Known(user) if user.id == first.id);
        assert!(is_known());
        tokio::time::advance(LOOK_EVERY).await;
        assert!(matches!(table.now(7), Now::Look(Some(Stamp(1)))));
        assert!(is_known(), "one request looks, others go on");
        assert_eq!(table.take(7, None).unwrap().id, first.id);
        let same = table.take(7, Some((Stamp(1), own()))).unwrap();
        assert_eq!(same.id, first.id);
        let other = table.take(7, Some((Stamp(2), own()))).unwrap();
        assert_ne!(other.id, first.id);
        let (one, two) = (
            table.take(8, Some((Stamp(1), Identity::Anonymous))),
            table.take(9, Some((Stamp(5), Identity::Anonymous))),
        );
        assert_eq!(one.unwrap().id, two.unwrap().id, "nobody is nobody else");
    }

    #[tokio::test(start_paused = true)]
    async fn few_wait_for_a_place_that_does_not_answer() {
        let table = table();
        for _ in 0..LOOKS_MOST {
            assert!(matches!(table.now(7), Now::Look(None)));
        }
        assert!(matches!(table.now(7), Now::Known(user) if user.id == table.anonymous.id));
        assert!(matches!(table.now(8), Now::Look(None)));
        table.take(7, Some((Stamp(1), Identity::Client)));
        assert!(matches!(table.now(7), Now::Known(user) if user.id == table.base.id));
    }

    #[tokio::test(start_paused = true)]
    async fn users_are_forgotten_for_others() {
        let table = table();
        for uid in 0..5000 {
            table.take(uid, Some((Stamp(1), Identity::Client)));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(table.lock().known.len(), USERS_MOST);
        assert!(table.lock().known.contains_key(&4999));
        assert!(!table.lock().known.contains_key(&0));
    }
}
