//! Which clients are told of which changes, and which wait for which.

use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_fileserver::hosts::HostsConfig;
use afar_net::AbortCode;
use afar_types::error::VBUSY;
use afar_types::{CallBackType, Fid, VolumeId};

use crate::support::*;

#[tokio::test]
async fn a_change_is_told_to_all_but_its_maker() {
    let server = Server::new(patient());
    let clients = [1, 2, 3].map(Client::new);
    let maker = server.holder(&clients[0], &[file(1), file(2)]).await;
    server.holder(&clients[1], &[file(1)]).await;
    server.holder(&clients[2], &[file(2)]).await;
    server.hosts.break_fids(&[file(1)], Some(&maker)).await;
    assert_eq!(clients[0].heard(), []);
    assert_eq!(clients[1].heard(), [Heard::Break(vec![file(1)])]);
    assert_eq!(clients[2].heard(), []);
    assert_eq!(server.hosts.stats().promises, 3);

    server.hosts.break_fids(&[file(1), file(2)], None).await;
    assert_eq!(clients[0].heard(), [Heard::Break(vec![file(1), file(2)])]);
    assert_eq!(clients[1].heard(), [], "it was told");
    assert_eq!(clients[2].heard(), [Heard::Break(vec![file(2)])]);
    let stats = server.hosts.stats();
    assert_eq!((stats.promises, stats.files, stats.broken), (0, 0, 4));
}

/// As Linux's client does now and then.
#[tokio::test]
async fn who_aborts_a_break_is_told_once_more_before_counting_as_down() {
    let server = Server::new(patient());
    let client = Client::new(1);
    server.holder(&client, &[file(1), file(2)]).await;
    let told = || Heard::Break(vec![file(1)]);
    client.abort_breaks(1);
    server.hosts.break_fids(&[file(1)], None).await;
    assert_eq!(client.heard(), [told(), told()]);
    let stats = server.hosts.stats();
    assert_eq!((stats.hosts_down, stats.promises), (0, 1));
    client.abort_breaks(2);
    server.hosts.break_fids(&[file(2)], None).await;
    assert_eq!(server.hosts.stats().hosts_down, 1);
}

#[tokio::test]
async fn lifetimes_depend_on_how_many_hold() {
    let server = Server::new(config());
    let client = Client::new(1);
    let host = server.holder(&client, &[]).await;
    let near =
        |seconds: u32, minutes: u32| (minutes * 60 - 1..=minutes * 60 + 128).contains(&seconds);
    assert!(near(server.give(&host, file(1)), 240));
    let promise = server.hosts.promise(&host, file(2), true);
    let callback = server.hosts.callback(&promise);
    assert!(near(callback.expires_in, 30), "{callback:?}");
    assert_eq!((callback.version, callback.kind), (1, CallBackType::Shared));
    let promise = server.hosts.promise_volume(&host, file(3));
    assert!(near(server.hosts.callback(&promise).expires_in, 120));
    let promise = server.hosts.promise_volume(&host, file(4));
    assert!(near(server.hosts.callback(&promise).expires_in, 120));
    assert_eq!(server.hosts.stats().promises, 3, "one for the volume");

    let others: Vec<Client> = (10..18).map(Client::new).collect();
    for other in &others {
        server.holder(other, &[file(5)]).await;
    }
    assert!(near(server.give(&host, file(5)), 60));
}

#[tokio::test]
async fn a_promise_broken_before_the_reply_is_not_told() {
    let server = Server::new(config());
    let (client, other) = (Client::new(1), Client::new(2));
    let host = server.holder(&client, &[]).await;
    let maker = server.holder(&other, &[]).await;
    let promise = server.hosts.promise(&host, file(1), false);
    server.hosts.break_fids(&[file(1)], Some(&maker)).await;
    let callback = server.hosts.callback(&promise);
    assert_eq!(
        (callback.kind, callback.expires_in),
        (CallBackType::Dropped, 0)
    );

    // The same for a change of its own: the status it waits for may be older than the change.
    assert!(server.give(&host, file(2)) > 0);
    let promise = server.hosts.promise(&host, file(2), false);
    server.hosts.break_fids(&[file(2)], Some(&host)).await;
    assert_eq!(server.hosts.callback(&promise).expires_in, 0);
    assert_eq!(
        server.hosts.stats().promises,
        1,
        "what it was told before stands"
    );
}

#[tokio::test]
async fn a_call_that_fails_leaves_no_promise() {
    let server = Server::new(config());
    let client = Client::new(1);
    let host = server.holder(&client, &[]).await;
    drop(server.hosts.promise(&host, file(1), false));
    assert_eq!(server.hosts.stats().promises, 0);
    assert!(server.give(&host, file(1)) > 0);
    drop(server.hosts.promise(&host, file(1), false));
    assert_eq!(server.hosts.stats().promises, 1, "the one before stands");
}

#[tokio::test]
async fn many_breaks_go_in_few_calls() {
    let server = Server::new(patient());
    let client = Client::new(1);
    let fids: Vec<Fid> = (1..=120).map(file).collect();
    server.holder(&client, &fids).await;
    server.hosts.break_fids(&fids, None).await;
    let told: Vec<usize> = client
        .heard()
        .iter()
        .map(|heard| match heard {
            Heard::Break(fids) => fids.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told, [50, 50, 20]);
}

#[tokio::test]
async fn what_comes_while_a_break_is_under_way_goes_together() {
    let server = Server::new(patient());
    let client = Client::new(1);
    let fids: Vec<Fid> = (1..=10).map(file).collect();
    server.holder(&client, &fids).await;
    client.set_deaf(true);
    let calls = client.calls();
    let change = |fid: Fid| {
        let hosts = Arc::clone(&server.hosts);
        tokio::spawn(async move {
            hosts.break_fids(&[fid], None).await;
        })
    };
    let mut changes = vec![change(fids[0])];
    client.called(calls + 1).await;
    changes.extend(fids[1..].iter().map(|&fid| change(fid)));
    while server.hosts.stats().broken < 10 {
        tokio::task::yield_now().await;
    }
    client.set_deaf(false);
    for change in changes {
        change.await.unwrap();
    }
    let told = [&fids[..1], &fids[1..]].map(|fids| Heard::Break(fids.to_vec()));
    assert_eq!(client.heard(), told);
}

#[tokio::test]
async fn a_change_waits_for_those_who_are_being_told_of_the_one_before() {
    let server = Server::new(patient());
    let client = Client::new(1);
    server.holder(&client, &[file(1)]).await;
    client.set_deaf(true);
    let calls = client.calls();
    let change = |fid: Fid| {
        let hosts = Arc::clone(&server.hosts);
        tokio::spawn(async move {
            hosts.break_fids(&[fid], None).await;
        })
    };
    let first = change(file(1));
    client.called(calls + 1).await;
    // It finds no promise, and the client does not know of the file yet.
    let second = change(file(1));
    let volume = {
        let hosts = Arc::clone(&server.hosts);
        tokio::spawn(async move { hosts.break_volume(VolumeId(7)).await })
    };
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!first.is_finished() && !second.is_finished() && !volume.is_finished());
    client.set_deaf(false);
    for change in [first, second, volume] {
        change.await.unwrap();
    }
    assert_eq!(client.heard(), [Heard::Break(vec![file(1)])]);
}

#[tokio::test]
async fn a_volume_is_broken_at_once() {
    let server = Server::new(config());
    let clients = [1, 2, 3].map(Client::new);
    let fids: Vec<Fid> = (1..=600).map(file).collect();
    server.holder(&clients[0], &fids).await;
    let reader = server.holder(&clients[1], &[]).await;
    let promise = server.hosts.promise_volume(&reader, file(4));
    assert!(server.hosts.callback(&promise).expires_in > 0);
    server.holder(&clients[2], &[Fid::new(8, 2, 1)]).await;
    server.hosts.break_volume(VolumeId(7)).await;
    let whole = Heard::Break(vec![Fid::new(7, 0, 0)]);
    assert_eq!(clients[0].heard(), std::slice::from_ref(&whole));
    assert_eq!(clients[1].heard(), [whole]);
    assert_eq!(clients[2].heard(), []);
    assert_eq!(server.hosts.stats().promises, 1);
    assert_eq!(server.hosts.callback(&promise).expires_in, 0);
}

#[tokio::test]
async fn what_was_given_up_is_not_broken() {
    let server = Server::new(config());
    let client = Client::new(1);
    let host = server.holder(&client, &[file(1), file(2), file(3)]).await;
    server.hosts.give_up(&host, &[file(1), file(9)]);
    server.hosts.break_fids(&[file(1)], None).await;
    assert_eq!(client.heard(), []);
    server.hosts.discard(file(2));
    server.hosts.break_fids(&[file(2)], None).await;
    assert_eq!(client.heard(), []);
    server.hosts.give_up_all(&host);
    server.hosts.break_fids(&[file(3)], None).await;
    assert_eq!(client.heard(), []);
    let stats = server.hosts.stats();
    assert_eq!((stats.promises, stats.given_up), (0, 2));
}

#[tokio::test]
async fn nobody_waits_for_the_dead() {
    let server = Server::new(config());
    let (alive, dead) = (Client::new(1), Client::new(2));
    let fids: Vec<Fid> = (1..=60).map(file).collect();
    server.holder(&alive, &fids).await;
    let host = server.holder(&dead, &fids).await;
    dead.set_deaf(true);
    let begun = Instant::now();
    server.hosts.break_fids(&fids, None).await;
    let waited = begun.elapsed();
    assert!(waited < Duration::from_millis(900), "{waited:?}");
    assert_eq!(alive.heard().len(), 2);

    // The next change does not wait at all.
    server.holder(&alive, &[file(1)]).await;
    let begun = Instant::now();
    server.hosts.break_fids(&[file(1)], None).await;
    assert!(
        begun.elapsed() < Duration::from_millis(150),
        "{:?}",
        begun.elapsed()
    );

    // Its own call waits until it has been told everything, or to drop everything.
    let identified = server.identify(&dead);
    tokio::pin!(identified);
    let early = tokio::time::timeout(Duration::from_millis(500), &mut identified).await;
    assert!(early.is_err(), "served before it heard");
    dead.set_deaf(false);
    identified.await;
    let heard = dead.heard();
    let told: usize = heard
        .iter()
        .map(|heard| match heard {
            Heard::Break(fids) => fids.len(),
            _ => 0,
        })
        .sum();
    let reset = heard.contains(&Heard::Reset3(config().server));
    assert!(told == fids.len() || reset, "{heard:?}");
    assert!(server.give(&host, file(1)) > 0);
}

#[tokio::test]
async fn who_is_late_again_is_not_waited_for() {
    let wait = Duration::from_secs(2);
    let server = Server::new(HostsConfig {
        break_wait: wait,
        change_wait: 2 * wait,
        break_limit: Duration::from_secs(30),
        ..config()
    });
    let (slow, other) = (Client::new(1), Client::new(2));
    let host = server.holder(&slow, &[file(1), file(2), file(3)]).await;
    let maker = server.holder(&other, &[]).await;
    let change = async |number| {
        let begun = Instant::now();
        server.hosts.break_fids(&[file(number)], Some(&maker)).await;
        begun.elapsed()
    };
    for number in 1..=2 {
        slow.set_deaf(true);
        assert!(change(number).await >= wait);
        slow.set_deaf(false);
        server.hosts.settle(&host).await.unwrap();
        // Whether it is quick again is tried at once.
        let told = Heard::Break(vec![file(number)]);
        assert_eq!(slow.heard(), [told, Heard::Probe]);
    }

    slow.set_deaf(true);
    let waited = change(3).await;
    assert!(waited < wait, "{waited:?}");
    // Nothing that was read since is told to it.
    let settled = server.hosts.settle(&host);
    tokio::pin!(settled);
    let early = tokio::time::timeout(Duration::from_millis(200), &mut settled).await;
    assert!(early.is_err(), "answered before it heard");
    slow.set_deaf(false);
    settled.await.unwrap();
    assert!(slow.heard().contains(&Heard::Break(vec![file(3)])));
}

#[tokio::test]
async fn a_host_does_not_choose_how_long_it_is_waited_for() {
    let server = Server::new(HostsConfig {
        break_limit: Duration::from_secs(10),
        introduction_wait: Duration::from_secs(5),
        introduction_limit: Duration::from_secs(10),
        ..config()
    });
    let slow = Client::new(1);
    slow.set_deaf(true);
    let identified = server.identify(&slow);
    tokio::pin!(identified);
    let early = tokio::time::timeout(Duration::from_millis(1500), &mut identified).await;
    assert!(early.is_err());
    // Its round trip is long by what it did.
    slow.set_deaf(false);
    let host = identified.await;
    assert!(server.give(&host, file(1)) > 0);
    slow.set_deaf(true);
    let begun = Instant::now();
    server.hosts.break_fids(&[file(1)], None).await;
    let waited = begun.elapsed();
    assert!(waited < Duration::from_millis(2500), "{waited:?}");
}

#[tokio::test]
async fn who_was_down_drops_all_before_it_is_served() {
    let server = Server::new(config());
    let client = Client::new(1);
    let host = server.holder(&client, &[file(1), file(2)]).await;
    let pending = server.hosts.promise(&host, file(3), false);
    client.set_deaf(true);
    server.hosts.break_fids(&[file(1)], None).await;
    server.until_one_is_down().await;
    let stats = server.hosts.stats();
    assert_eq!((stats.hosts_down, stats.promises), (1, 0));
    assert_eq!((stats.breaks_late, stats.breaks_failed), (1, 1));
    assert_eq!(server.hosts.callback(&pending).expires_in, 0);
    assert_eq!(server.give(&host, file(3)), 0);

    // What changes now is not even tried.
    let calls = client.calls();
    server.hosts.break_fids(&[file(2)], None).await;
    assert_eq!(client.calls(), calls);

    // The break that was given up may still be heard; it does no harm.
    client.set_deaf(false);
    let again = server.identify(&client).await;
    assert!(Arc::ptr_eq(&host, &again));
    assert!(client.heard().contains(&Heard::Reset3(config().server)));
    assert_eq!(server.hosts.stats().hosts_down, 0);
    assert!(server.give(&host, file(1)) > 0);
}

#[tokio::test]
async fn who_goes_down_during_a_call_drops_all_before_that_is_answered() {
    let server = Server::new(config());
    let client = Client::new(1);
    // A call of it is under way from here on.
    let host = server.holder(&client, &[file(1)]).await;
    client.set_deaf(true);
    server.hosts.break_fids(&[file(1)], None).await;
    server.until_one_is_down().await;
    client.heard();
    client.set_deaf(false);
    server.hosts.settle(&host).await.unwrap();
    assert!(client.heard().contains(&Heard::Reset3(config().server)));
    assert_eq!(server.hosts.stats().hosts_down, 0);
}

#[tokio::test]
async fn who_is_down_is_told_to_drop_all_though_it_does_not_call() {
    let server = Server::new(HostsConfig {
        remind_after: Duration::from_millis(100),
        ask_again_after: Duration::from_millis(100),
        ..config()
    });
    let client = Client::new(1);
    let host = server.holder(&client, &[file(1)]).await;
    client.set_deaf(true);
    server.hosts.break_fids(&[file(1)], None).await;
    server.until_one_is_down().await;
    assert_eq!(server.hosts.stats().hosts_down, 1);
    client.heard();
    client.set_deaf(false);
    let begun = Instant::now();
    while server.hosts.stats().hosts_down > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is not told");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(client.heard().contains(&Heard::Reset3(config().server)));
    assert!(server.give(&host, file(1)) > 0);
}

#[tokio::test]
async fn who_is_down_and_cannot_be_told_is_refused() {
    let server = Server::new(config());
    let client = Client::new(1);
    let host = server.holder(&client, &[file(1)]).await;
    client.set_deaf(true);
    server.hosts.break_fids(&[file(1)], None).await;
    server.until_one_is_down().await;
    assert_eq!(server.give(&host, file(1)), 0);
    let begun = Instant::now();
    for _ in 0..2 {
        let refused = server.hosts.identify(&server.endpoint, client.address());
        assert_eq!(refused.await.unwrap_err(), AbortCode(VBUSY));
    }
    let limits = 2 * config().told_limit;
    assert!(begun.elapsed() < limits + Duration::from_secs(2));
    // A call that was under way may have changed something: it is not to be made again as one that was refused.
    let unanswered = server.hosts.settle(&host).await;
    assert_eq!(unanswered, Err(AbortCode::RX_CALL_DEAD));
    client.heard();
    client.set_deaf(false);
    let again = server.identify(&client).await;
    assert!(Arc::ptr_eq(&host, &again));
    assert!(client.heard().contains(&Heard::Reset3(config().server)));
    assert!(server.give(&host, file(1)) > 0);
}

#[tokio::test]
async fn a_full_table_breaks_what_ends_first() {
    let server = Server::new(HostsConfig {
        promises_max: 10,
        ..config()
    });
    let (reader, lister) = (Client::new(1), Client::new(2));
    let host = server.holder(&lister, &[]).await;
    let promise = server.hosts.promise(&host, file(77), true);
    assert!(server.hosts.callback(&promise).expires_in > 0);
    let calls = lister.calls();
    let fids: Vec<Fid> = (1..=10).map(file).collect();
    server.holder(&reader, &fids).await;
    lister.called(calls + 1).await;
    let stats = server.hosts.stats();
    assert_eq!((stats.promises, stats.evicted), (10, 1));
    assert_eq!(server.hosts.callback(&promise).expires_in, 0);
}

#[tokio::test]
async fn breaks_that_are_under_way_or_about_to_begin_are_waited_for() {
    let server = Server::new(patient());
    let client = Client::new(1);
    server.holder(&client, &[file(1)]).await;
    let soon = Duration::from_millis(200);
    let hears = async || tokio::time::timeout(soon, server.hosts.heard_of(file(1))).await;
    assert!(hears().await.is_ok(), "nothing is broken");
    let telling = server.hosts.about_to_break(file(1));
    assert!(hears().await.is_err());
    client.set_deaf(true);
    let (calls, hosts) = (client.calls(), Arc::clone(&server.hosts));
    let broken = tokio::spawn(async move {
        let fids = [file(1)];
        tokio::join!(biased; hosts.break_fids(&fids, None), async move { drop(telling) }).0
    });
    client.called(calls + 1).await;
    assert!(hears().await.is_err());
    client.set_deaf(false);
    server.hosts.heard_of(file(1)).await;
    assert_eq!(client.heard(), [Heard::Break(vec![file(1)])]);
    assert_eq!(broken.await.unwrap(), 1);
}
