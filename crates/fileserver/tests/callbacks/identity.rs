//! Who calls.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_fileserver::hosts::HostsConfig;
use afar_types::CallBackType;

use crate::support::*;

#[tokio::test]
async fn a_new_host_is_asked_once_and_drops_what_it_has() {
    let (server, client) = (Server::new(config()), Client::new(1));
    let calls = (0..32).map(|_| {
        let (hosts, endpoint) = (Arc::clone(&server.hosts), server.endpoint.clone());
        let address = client.address();
        tokio::spawn(async move { hosts.identify(&endpoint, address).await })
    });
    let calls: Vec<_> = calls.collect();
    let mut hosts = Vec::new();
    for call in calls {
        hosts.push(call.await.unwrap());
    }
    assert!(hosts.iter().all(|host| Arc::ptr_eq(host, &hosts[0])));
    let heard = client.heard();
    assert_eq!(heard.len(), 2);
    assert!(heard.contains(&Heard::TellMe));
    assert!(heard.contains(&Heard::Reset3(config().server)));

    let host = &hosts[0];
    assert_eq!(host.uuid(), Some(client.uuid()));
    assert!(host.translates_errors());
    let addresses: [IpAddr; 2] =
        ["127.0.0.1", "192.0.2.77"].map(|address| address.parse().unwrap());
    assert_eq!(host.addresses(), addresses);
    assert!(server.give(host, file(1)) > 0);
    assert_eq!(server.hosts.stats().resets, 1);
}

#[tokio::test]
async fn older_hosts_are_asked_in_their_way() {
    let server = Server::new(config());
    let older = Client::of_age(1, Age::KnowsWhoAreYou);
    let host = server.identify(&older).await;
    assert_eq!(host.uuid(), Some(older.uuid()));
    assert!(!host.translates_errors());
    assert!(older.heard().contains(&Heard::WhoAreYou));
    assert!(server.give(&host, file(1)) > 0);

    let oldest = Client::of_age(2, Age::HasNoUuid);
    let host = server.identify(&oldest).await;
    assert_eq!(host.uuid(), None);
    let heard = oldest.heard();
    assert!(heard.contains(&Heard::Probe) && heard.contains(&Heard::Reset));
    assert!(server.give(&host, file(1)) > 0);
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_served_without_promises() {
    let server = Server::new(config());
    let hole = hole();
    let address = hole.local_addr().unwrap();
    let begun = Instant::now();
    let host = server.hosts.identify(&server.endpoint, address).await;
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(390), "{waited:?}");
    assert!(waited < Duration::from_millis(1200), "{waited:?}");
    let promise = server.hosts.promise(&host, file(1), false);
    let callback = server.hosts.callback(&promise);
    assert_eq!(
        (callback.kind, callback.expires_in),
        (CallBackType::Dropped, 0)
    );
    assert_eq!(server.hosts.stats().promises, 0);

    let begun = Instant::now();
    let again = server.hosts.identify(&server.endpoint, address).await;
    assert!(Arc::ptr_eq(&host, &again));
    assert!(
        begun.elapsed() < Duration::from_millis(200),
        "nobody waits twice"
    );
    assert_eq!(server.hosts.stats().hosts_unknown, 1);
}

#[tokio::test]
async fn a_silent_host_is_asked_again_and_then_trusted() {
    let server = Server::new(HostsConfig {
        ask_again_after: Duration::ZERO,
        ..config()
    });
    let client = Client::new(1);
    client.set_deaf(true);
    let host = server.identify(&client).await;
    assert_eq!(server.give(&host, file(1)), 0);
    // The question that is still under way is answered late.
    client.set_deaf(false);
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let host = server.identify(&client).await;
        if server.give(&host, file(1)) > 0 {
            let reset = Heard::Reset3(config().server);
            assert!(client.heard().contains(&reset));
            return;
        }
    }
    panic!("it never got a promise");
}

#[tokio::test]
async fn two_addresses_of_one_identity_are_one_host() {
    let server = Server::new(config());
    let (wired, wireless) = (Client::new(1), Client::new(1));
    let host = server.holder(&wired, &[file(1)]).await;
    let other = server.identify(&wireless).await;
    assert!(Arc::ptr_eq(&host, &other));
    assert_eq!(
        wireless.heard(),
        [Heard::TellMe],
        "it keeps what it was promised"
    );
    assert_eq!(wired.heard(), [Heard::ProbeUuid]);
    assert_eq!(server.hosts.stats().hosts, 1);

    server.hosts.break_fids(&[file(1)], None).await;
    assert_eq!(wired.heard(), [Heard::Break(vec![file(1)])]);
    assert_eq!(wireless.heard(), []);

    // When one does not answer, the other is tried.
    assert!(server.give(&host, file(2)) > 0);
    wired.set_deaf(true);
    server.hosts.break_fids(&[file(2)], None).await;
    let settled = server.identify(&wireless).await;
    assert_eq!(wireless.heard(), [Heard::Break(vec![file(2)])]);
    assert!(server.give(&settled, file(3)) > 0);
    assert_eq!(server.hosts.stats().hosts_down, 0);
}

#[tokio::test]
async fn a_host_whose_port_changes_is_found_at_the_new_one() {
    let server = Server::new(config());
    let (before, after) = (Client::new(1), Client::new(1));
    let host = server.holder(&before, &[file(1)]).await;
    before.set_deaf(true);
    let begun = Instant::now();
    let again = server.identify(&after).await;
    assert!(
        begun.elapsed() < Duration::from_millis(1000),
        "{:?}",
        begun.elapsed()
    );
    assert!(Arc::ptr_eq(&host, &again));
    assert_eq!(after.heard(), [Heard::TellMe]);
    server.hosts.break_fids(&[file(1)], None).await;
    assert_eq!(after.heard(), [Heard::Break(vec![file(1)])]);
    assert_eq!(before.heard(), []);
    assert_eq!(
        host.addresses().len(),
        2,
        "one it calls from, one it tells of"
    );
}

#[tokio::test]
async fn another_host_at_a_known_address_is_another() {
    let server = Server::new(HostsConfig {
        verify_after: Duration::from_millis(300),
        ..config()
    });
    let client = Client::new(1);
    let host = server.holder(&client, &[file(1)]).await;
    tokio::time::sleep(Duration::from_millis(320)).await;
    assert!(Arc::ptr_eq(&host, &server.identify(&client).await));
    assert_eq!(client.heard(), [Heard::TellMe]);
    assert_eq!(server.hosts.stats().promises, 1);

    client.set_uuid(2);
    tokio::time::sleep(Duration::from_millis(320)).await;
    let other = server.identify(&client).await;
    assert!(!Arc::ptr_eq(&host, &other));
    assert_eq!(other.uuid(), Some(client.uuid()));
    assert_eq!(
        client.heard(),
        [Heard::TellMe, Heard::Reset3(config().server)]
    );
    assert_eq!(server.hosts.stats().promises, 0);
    assert_eq!(server.hosts.stats().hosts, 1);
    assert_eq!(
        server.give(&host, file(1)),
        0,
        "a call of the one that is gone"
    );
    assert!(server.give(&other, file(1)) > 0);
}

#[tokio::test]
async fn a_full_table_forgets_who_has_not_called_for_longest() {
    let server = Server::new(HostsConfig {
        hosts_max: 2,
        ..config()
    });
    let clients = [1, 2, 3].map(Client::new);
    let first = server.holder(&clients[0], &[file(1)]).await;
    server.holder(&clients[1], &[file(1)]).await;
    server.holder(&clients[2], &[file(1)]).await;
    // It trusted promises that are forgotten now.
    clients[0].called(3).await;
    assert_eq!(clients[0].heard(), [Heard::Reset3(config().server)]);
    assert_eq!(clients[1].heard(), []);
    let stats = server.hosts.stats();
    assert_eq!(
        (stats.hosts, stats.hosts_forgotten, stats.promises),
        (2, 1, 2)
    );
    assert_eq!(server.give(&first, file(2)), 0);
}

#[tokio::test]
async fn idle_hosts_without_promises_are_forgotten() {
    let server = Server::new(HostsConfig {
        forget_after: Duration::from_millis(50),
        ..config()
    });
    let clients = [1, 2, 3].map(Client::new);
    server.holder(&clients[0], &[]).await;
    server.holder(&clients[1], &[file(1)]).await;
    tokio::time::sleep(Duration::from_millis(80)).await;
    server.holder(&clients[2], &[]).await;
    assert_eq!(server.hosts.stats().hosts, 2, "who holds a promise stays");
}
