//! Identities of callers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
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
        tokio::spawn(async move { hosts.identify(&endpoint, address).await.unwrap() })
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
    let host = server.identify_at(address).await;
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
    let again = server.identify_at(address).await;
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
    let addresses = [[127, 0, 1, 1], [127, 0, 1, 2]].map(Ipv4Addr::from);
    let [wired, wireless] = Client::multihomed(1, addresses);
    let host = server.holder(&wired, &[file(1)]).await;
    let other = server.identify(&wireless).await;
    assert!(Arc::ptr_eq(&host, &other));
    // It was new there for all that was known when it was asked.
    let heard = wireless.heard();
    assert!(heard.contains(&Heard::TellMe), "{heard:?}");
    assert_eq!(wired.heard(), [Heard::ProbeUuid, Heard::TellMe]);
    assert_eq!(server.hosts.stats().hosts, 1);

    server.hosts.break_fids(&[file(1)], None).await;
    assert_eq!(wired.heard(), [Heard::Break(vec![file(1)])]);
    assert_eq!(wireless.heard(), []);

    // When one does not answer, the other is tried.
    assert!(server.give(&host, file(2)) > 0);
    wired.set_deaf(true);
    server.hosts.break_fids(&[file(2)], None).await;
    let settled = server.identify(&wireless).await;
    let told = Heard::Break(vec![file(2)]);
    assert_eq!(wireless.heard(), [told, Heard::Probe], "and it is quick");
    assert!(server.give(&settled, file(3)) > 0);
    assert_eq!(server.hosts.stats().hosts_down, 0);
}

#[tokio::test]
async fn who_claims_to_be_another_host_gets_nothing_of_it() {
    let server = Server::new(patient());
    let victim = Client::new(1);
    let host = server.holder(&victim, &[file(1), file(2)]).await;
    let impostor = Client::new(1);
    let other = server.identify(&impostor).await;
    assert!(!Arc::ptr_eq(&host, &other));
    assert_eq!(other.uuid(), None);
    assert_eq!(victim.heard(), [Heard::ProbeUuid, Heard::TellMe]);
    server.hosts.give_up(&other, &[file(1)]);
    server.hosts.give_up_all(&other);
    assert_eq!(server.hosts.stats().promises, 2);

    // Machines that were copied with their identity are both served well.
    assert!(impostor.heard().contains(&Heard::Reset3(config().server)));
    assert!(server.give(&other, file(2)) > 0);
    server.hosts.break_fids(&[file(1), file(2)], None).await;
    assert_eq!(victim.heard(), [Heard::Break(vec![file(1), file(2)])]);
    assert_eq!(impostor.heard(), [Heard::Break(vec![file(2)])]);
    assert!(Arc::ptr_eq(&host, &server.identify(&victim).await));
    assert!(Arc::ptr_eq(&other, &server.identify(&impostor).await));
}

#[tokio::test]
async fn an_address_that_the_host_does_not_tell_of_is_not_its_own() {
    let server = Server::new(patient());
    let address = |last| Ipv4Addr::new(127, 0, 2, last);
    let [real, other] = Client::multihomed(1, [address(1), address(2)]);
    let host = server.holder(&real, &[file(1)]).await;
    // Another port of an address that it tells of, and its port at another address.
    let port = Client::of_machine(1, address(2));
    assert!(!Arc::ptr_eq(&host, &server.identify(&port).await));
    let [_, elsewhere] = Client::multihomed(1, [address(4), address(3)]);
    assert!(!Arc::ptr_eq(&host, &server.identify(&elsewhere).await));
    assert!(Arc::ptr_eq(&host, &server.identify(&other).await));
}

#[tokio::test]
async fn silent_hosts_do_not_delay_others() {
    let server = Server::new(HostsConfig {
        introduction_limit: Duration::from_secs(60),
        ..config()
    });
    let hole = UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = hole.local_addr().unwrap().port();
    let silent: Vec<_> = (0..1100u16)
        .map(|number| {
            let [high, low] = number.to_be_bytes();
            let address = SocketAddr::from(([127, 3, high, low], port));
            let (hosts, endpoint) = (Arc::clone(&server.hosts), server.endpoint.clone());
            tokio::spawn(async move { hosts.identify(&endpoint, address).await.unwrap() })
        })
        .collect();
    while server.hosts.stats().hosts < 1100 {
        tokio::task::yield_now().await;
    }
    let client = Client::new(1);
    let mut host = server.identify(&client).await;
    // On a machine that is busy with the others its first question may take longer than the wait for it.
    for _ in 0..500 {
        if host.uuid().is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        host = server.identify(&client).await;
    }
    assert!(server.give(&host, file(1)) > 0);
    for silent in silent {
        assert_eq!(silent.await.unwrap().uuid(), None);
    }
}

#[tokio::test]
async fn many_silent_hosts_of_one_machine_are_served_at_once() {
    let server = Server::new(HostsConfig {
        introduction_wait: Duration::from_secs(20),
        introduction_limit: Duration::from_secs(20),
        ..config()
    });
    let holes: Vec<_> = (0..40).map(|_| hole()).collect();
    let calls: Vec<_> = holes
        .iter()
        .map(|hole| {
            let (hosts, endpoint) = (Arc::clone(&server.hosts), server.endpoint.clone());
            let address = hole.local_addr().unwrap();
            tokio::spawn(async move { hosts.identify(&endpoint, address).await.unwrap() })
        })
        .collect();
    // Sixteen are asked and waited for.
    let served = async {
        while calls.iter().filter(|call| call.is_finished()).count() < 24 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), served)
        .await
        .expect("nobody waits behind the others of the machine");
    calls.iter().for_each(tokio::task::JoinHandle::abort);
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
