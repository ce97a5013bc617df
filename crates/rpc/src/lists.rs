//! How many long answers are made at a time.

use std::sync::Arc;

use afar_net::Identity;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;

use crate::{Caller, spawn_blocking};

/// The turns in which lists of everything are made.
///
/// A list of all volumes may take a hundred megabytes, and the engine counts it only once it is made.
/// So a server makes one at a time for strangers, and one for callers that have shown who they are,
/// for whom no number of strangers takes the turn.
#[derive(Debug, Clone)]
pub struct Lists {
    named: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

impl Default for Lists {
    fn default() -> Self {
        let one = || Arc::new(Semaphore::new(1));
        Self {
            named: one(),
            strangers: one(),
        }
    }
}

impl Lists {
    /// Makes a list in a thread beside the tasks that answer others, when it is this caller's turn.
    /// The turn ends with the work, also where nobody waits for it any more.
    ///
    /// # Errors
    /// When the work panics.
    pub async fn make<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let turn = self.turn(caller).await;
        spawn_blocking(move || {
            let _turn = turn;
            work()
        })
        .await
    }

    /// `None` never: the semaphores are not closed.
    async fn turn(&self, caller: &Caller) -> Option<OwnedSemaphorePermit> {
        let turns = match caller.identity {
            Identity::Anonymous => &self.strangers,
            _ => &self.named,
        };
        Arc::clone(turns).acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    use afar_net::ServiceId;

    use super::*;

    fn caller(identity: Identity) -> Caller {
        Caller {
            peer: "192.0.2.1:7001".parse().unwrap(),
            service: ServiceId(52),
            identity,
        }
    }

    #[tokio::test]
    async fn strangers_wait_for_each_other_and_nobody_else_for_them() {
        let lists = Lists::default();
        let stranger = caller(Identity::Anonymous);
        let (go, gate) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut first = pin!(lists.make(&stranger, move || {
                begun.send(()).unwrap();
                gate.recv().unwrap();
            }));
            assert!(first.as_mut().poll(&mut context).is_pending());
            has_begun.recv().unwrap();
            // Its caller goes; the work does not.
        }
        let mut second = pin!(lists.make(&stranger, || 2));
        assert!(second.as_mut().poll(&mut context).is_pending());
        let administrator = caller(Identity::Superuser);
        assert_eq!(lists.make(&administrator, || 1).await.unwrap(), 1);
        assert!(second.as_mut().poll(&mut context).is_pending());
        go.send(()).unwrap();
        assert_eq!(second.await.unwrap(), 2);
    }
}
