//! What a restart does to promises.

use std::sync::Arc;
use std::time::Duration;

use afar_fileserver::hosts::HostsConfig;
use afar_net::AbortCode;
use afar_types::error::VBUSY;

use crate::support::*;

#[tokio::test]
async fn promises_outlive_a_restart_in_good_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("callbacks");
    let (client, down) = (Client::new(1), Client::new(2));
    let before = Server::new(config());
    let host = before.holder(&client, &[file(1), file(2)]).await;
    before.holder(&down, &[file(1)]).await;
    down.set_deaf(true);
    before.hosts.break_fids(&[file(1)], None).await;
    assert_eq!(client.heard(), [Heard::Break(vec![file(1)])]);
    before.hosts.save(&path).unwrap();
    assert_eq!(
        before.give(&host, file(3)),
        0,
        "it would not be in the file"
    );

    let restore = Some(path.clone());
    let after = Server::new(HostsConfig {
        restore,
        ..config()
    });
    let left = std::fs::metadata(&path).unwrap().len();
    assert_eq!(left, 0, "it is read once");
    let stats = after.hosts.stats();
    assert_eq!((stats.hosts, stats.hosts_down, stats.promises), (2, 1, 1));
    // Even before it has called again.
    after.hosts.break_fids(&[file(2)], None).await;
    assert_eq!(client.heard(), [Heard::Break(vec![file(2)])]);
    let host = after.identify(&client).await;
    assert_eq!(client.heard(), [], "it is known");
    assert_eq!(host.uuid(), Some(client.uuid()));
    assert!(after.give(&host, file(2)) > 0);
    down.set_deaf(false);
    down.heard();
    let host = after.identify(&down).await;
    assert!(down.heard().contains(&Heard::Reset3(config().server)));
    assert!(after.give(&host, file(2)) > 0);
}

#[tokio::test]
async fn after_a_crash_everything_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let config = HostsConfig {
        restore: Some(directory.path().join("callbacks")),
        doubt_after_crash: Duration::from_secs(5),
        ..config()
    };
    let (client, deaf) = (Client::new(1), Client::new(2));
    let before = Server::new(config.clone());
    before.holder(&client, &[file(1)]).await;
    // At the first start nobody has promises: whoever cannot be reached is served.
    deaf.set_deaf(true);
    before.identify(&deaf).await;

    let after = Server::new(config.clone());
    assert_eq!(after.hosts.stats().hosts, 0);
    let host = after.identify(&client).await;
    assert!(client.heard().contains(&Heard::Reset3(config.server)));
    assert!(after.give(&host, file(1)) > 0);

    // It may trust what it was promised. After a while it counts as one that cannot be reached at all.
    let refused = after.hosts.identify(&after.endpoint, deaf.address()).await;
    assert_eq!(refused.unwrap_err(), AbortCode(VBUSY));
    tokio::time::sleep(config.doubt_after_crash).await;
    let host = after.identify(&deaf).await;
    assert_eq!(after.give(&host, file(1)), 0);
}

#[tokio::test]
async fn after_a_crash_a_host_that_is_cut_off_again_is_served_when_it_has_dropped_all() {
    let directory = tempfile::tempdir().unwrap();
    let config = HostsConfig {
        restore: Some(directory.path().join("callbacks")),
        told_limit: Duration::from_secs(20),
        ..config()
    };
    let client = Client::new(1);
    Server::new(config.clone())
        .holder(&client, &[file(1)])
        .await;
    let after = Server::new(config.clone());
    client.set_deaf(true);
    let (hosts, endpoint) = (Arc::clone(&after.hosts), after.endpoint.clone());
    let address = client.address();
    let call = tokio::spawn(async move { hosts.identify(&endpoint, address).await });
    tokio::time::sleep(2 * config.introduction_limit).await;
    assert!(!call.is_finished(), "it is served untold");
    client.set_deaf(false);
    let host = call.await.unwrap().unwrap();
    assert!(client.heard().contains(&Heard::Reset3(config.server)));
    assert!(after.give(&host, file(1)) > 0);
}
