use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use afar_net::{Identity, ServiceId};
use afar_telemetry::Registry;
use afar_types::{Fid, TransactionId, VolumeId};

use super::*;
use crate::{Calls, afsvol, rxafs};

/// Counts what each thread allocates.
mod counted {
    #![expect(unsafe_code, reason = "an allocator cannot be written without")]

    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<u64> = const { Cell::new(0) };
    }

    struct Counted;

    // SAFETY: it is the system's allocator; a number without a destructor is all there is beside.
    unsafe impl GlobalAlloc for Counted {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            COUNT.set(COUNT.get() + 1);
            // SAFETY: the caller keeps to the same contract.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
            // SAFETY: the caller keeps to the same contract.
            unsafe { System.dealloc(place, layout) }
        }
    }

    #[global_allocator]
    static ALLOCATOR: Counted = Counted;

    pub(super) fn allocations(work: impl FnOnce()) -> u64 {
        let before = COUNT.get();
        work();
        COUNT.get() - before
    }
}

fn caller(identity: Identity) -> Caller {
    Caller {
        peer: "192.0.2.7:7001".parse().unwrap(),
        service: ServiceId(1),
        identity,
    }
}

fn fetch_status(identity: Identity) -> Serving {
    let subject = Subject::Fid(Fid::new(7, 8, 9));
    Serving::new(rxafs::fetch_status::OPERATION, &caller(identity), subject)
}

#[test]
fn a_call_is_told_with_operation_peer_caller_and_what_it_is_about() {
    assert_eq!(
        fetch_status(Identity::User("ann".into())).to_string(),
        "call{operation=RXAFS.fetch_status peer=192.0.2.7:7001 who=ann fid=7.8.9}"
    );
    let of = |operation, subject| {
        Serving::new(operation, &caller(Identity::Superuser), subject).to_string()
    };
    assert_eq!(
        of(afsvol::nuke_volume::OPERATION, Subject::Volume(VolumeId(7))),
        "call{operation=AFSVol.nuke_volume peer=192.0.2.7:7001 who=superuser volume=7}"
    );
    let transaction = Subject::Transaction(TransactionId(3));
    assert_eq!(
        of(afsvol::end_trans::OPERATION, transaction),
        "call{operation=AFSVol.end_trans peer=192.0.2.7:7001 who=superuser transaction=3}"
    );
    assert_eq!(
        of(afsvol::monitor::OPERATION, Subject::None),
        "call{operation=AFSVol.monitor peer=192.0.2.7:7001 who=superuser}"
    );
    let forged = fetch_status(Identity::User("ann\nERROR".into())).to_string();
    assert!(forged.contains(r"who=ann\nERROR "), "{forged}");
}

#[tokio::test]
async fn a_call_is_known_where_it_is_served_and_nowhere_else() {
    let served = fetch_status(Identity::Anonymous);
    let here = served.clone().scope(None, async {
        tokio::task::yield_now().await;
        let elsewhere = spawn_blocking(Serving::current).await.unwrap();
        let other = tokio::spawn(async { Serving::current() }).await.unwrap();
        (Serving::current(), elsewhere, other)
    });
    let known = Some(served);
    assert_eq!(here.await, (known.clone(), known, None));
    assert_eq!(Serving::current(), None);
    assert_eq!(spawn_blocking(Serving::current).await.unwrap(), None);
}

#[test]
fn nothing_is_allocated_for_a_call_that_logs_nothing() {
    let caller = caller(Identity::User("ann".into()));
    let calls = Calls::new(rxafs::INTERFACE, &Registry::default());
    let serve = || {
        let subject = Subject::Fid(Fid::new(7, 8, 9));
        let served = Serving::new(rxafs::fetch_status::OPERATION, &caller, subject);
        let inner = async { Serving::with_current(|_| ()) };
        let going = calls.begin(Instant::now(), served.clone());
        let mut serving = pin!(served.scope(Some(going), inner));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(serving.as_mut().poll(&mut context), Poll::Ready(Some(())));
    };
    // The thread's own place for it is made once.
    serve();
    assert_eq!(counted::allocations(serve), 0);
    let one = || drop(std::hint::black_box(Box::new(1)));
    assert_eq!(counted::allocations(one), 1);
}

/// What a registry tells of the calls: operation, subject, and what they wait for.
fn shown(registry: &Registry) -> Vec<(String, String, Option<&'static str>)> {
    let label = |activity: &afar_telemetry::Activity, name: &str| {
        let mut labels = activity.labels.iter();
        labels.find(|(known, _)| *known == name).unwrap().1.clone()
    };
    let found = registry.activities().list.into_iter();
    let found = found.map(|one| (label(&one, "operation"), label(&one, "subject"), one.waits));
    found.collect()
}

#[tokio::test]
async fn a_call_is_shown_while_it_is_served_with_what_it_waits_for() {
    let registry = Registry::default();
    let calls = Calls::new(rxafs::INTERFACE, &registry);
    let served = fetch_status(Identity::User("ann\u{1b}[2J".into()));
    let row = |waits| vec![("fetch_status".to_owned(), "7.8.9".to_owned(), waits)];
    let inner = async {
        assert_eq!(shown(&registry), row(None));
        // The call waits when the work does, and no longer.
        let mut first = true;
        let pending = std::future::poll_fn(|cx| {
            if std::mem::take(&mut first) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            assert_eq!(shown(&registry), row(Some("callbacks")));
            Poll::Ready(())
        });
        Wait::Callbacks.on(pending).await;
        assert_eq!(shown(&registry), row(None));
        Wait::Disk.blocking(|| assert_eq!(shown(&registry), row(Some("disk"))));
        let labels = registry.activities().list.remove(0).labels;
        let user = labels.iter().find(|(name, _)| *name == "user").unwrap();
        assert_eq!(user.1, "ann\\u{1b}[2J");
    };
    let going = calls.begin(Instant::now(), served.clone());
    served.scope(Some(going), inner).await;
    assert_eq!(shown(&registry), []);
    // Where no call is served nothing is noted.
    Wait::Disk.on(async {}).await;
}
