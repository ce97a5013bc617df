//! What a restart does to promises.

use afar_fileserver::hosts::HostsConfig;

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
    assert!(!path.exists(), "it is read once");
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
    let restore = Some(directory.path().join("callbacks"));
    let client = Client::new(1);
    let before = Server::new(config());
    before.holder(&client, &[file(1)]).await;
    let after = Server::new(HostsConfig {
        restore,
        ..config()
    });
    assert_eq!(after.hosts.stats().hosts, 0);
    let host = after.identify(&client).await;
    assert!(client.heard().contains(&Heard::Reset3(config().server)));
    assert!(after.give(&host, file(1)) > 0);
}
