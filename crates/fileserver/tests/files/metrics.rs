//! What the server counts by volume, client and file.

use afar_telemetry::render_prometheus;
use afar_types::Fid;

use crate::cell::{Cell, VOLUME};

/// The number in the line of this metric with these labels; `None` if there is none.
fn number(cell: &Cell, metric: &str, labels: &[&str]) -> Option<f64> {
    let text = render_prometheus(&cell.registry);
    let found = text.lines().find(|line| {
        let name = line.split(['{', ' ']).next();
        name == Some(metric) && labels.iter().all(|label| line.contains(label))
    });
    found.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
}

#[tokio::test]
async fn volumes_are_counted_by_what_is_done_in_them() {
    let cell = Cell::new().await;
    let (client, other) = (cell.client(), cell.client());
    let file = client.create(cell.root(), "a").await;
    client.store(file, 0, &[7; 300_000], 300_000).await.unwrap();
    other.fetch(file, 0, 100_000).await.unwrap();
    other.fetch(file, 100_000, 100_000).await.unwrap();
    // Breaks what the other one was promised.
    client.store(file, 0, b"x", 300_000).await.unwrap();
    client
        .files
        .fetch_status(Fid::new(VOLUME.0, 99, 99))
        .await
        .unwrap_err();
    let volume = [
        "volume=\"536870912\"",
        "name=\"user.ann\"",
        "partition=\"/vicepa\"",
    ];
    for (metric, wanted) in [
        ("afar_volume_read_seconds_count", 2.0),
        ("afar_volume_write_seconds_count", 3.0),
        ("afar_volume_errors_total", 1.0),
        ("afar_volume_read_bytes_total", 200_000.0),
        ("afar_volume_written_bytes_total", 300_001.0),
        ("afar_volume_callback_breaks_total", 1.0),
    ] {
        assert_eq!(number(&cell, metric, &volume), Some(wanted), "{metric}");
    }
    assert!(number(&cell, "afar_volume_callbacks_total", &volume) >= Some(2.0));
    assert!(number(&cell, "afar_volume_read_seconds_sum", &volume) > Some(0.0));
    // Volumes that a caller invents have no rows.
    for invented in 1..50 {
        let call = client
            .files
            .fetch_status(Fid::root(afar_types::VolumeId(invented)));
        call.await.unwrap_err();
    }
    let invented = number(&cell, "afar_volume_errors_total", &["volume=\"7\""]);
    assert_eq!(invented, None);
    assert_eq!(number(&cell, "afar_callbacks_broken_total", &[]), Some(1.0));
}

#[tokio::test]
async fn clients_are_counted_by_operation() {
    let cell = Cell::new().await;
    let (client, ann) = (cell.client(), cell.ann());
    // Another port of the same machine is the same client.
    let same = cell.client();
    for files in [&client.files, &same.files, &ann.files] {
        files.fetch_status(cell.root()).await.unwrap();
        files.get_time().await.unwrap();
    }
    client
        .files
        .lookup(cell.root(), crate::cell::name("a"))
        .await
        .unwrap_err();
    let calls = |user: &str, operation: &str| {
        let user = format!("user=\"{user}\"");
        let operation = format!("operation=\"{operation}\"");
        let labels = ["address=\"127.0.0.1\"", &user, &operation];
        number(&cell, "afar_client_calls_total", &labels)
    };
    assert_eq!(calls("anonymous", "fetch_status"), Some(2.0));
    assert_eq!(calls("anonymous", "get_time"), Some(2.0));
    assert_eq!(calls("anonymous", "lookup"), Some(1.0));
    assert_eq!(calls("ann", "fetch_status"), Some(1.0));
    assert_eq!(calls("ann", "lookup"), None);
    let errors = |user| number(&cell, "afar_client_errors_total", &[user]);
    assert_eq!(errors("user=\"anonymous\""), Some(1.0));
    assert_eq!(errors("user=\"ann\""), Some(0.0));
}

#[tokio::test]
async fn files_are_counted_while_somebody_looks() {
    let cell = Cell::new().await;
    let client = cell.client();
    let file = client.create(cell.root(), "a").await;
    let vnode = format!("vnode=\"{}\"", file.vnode.0);
    let bytes = |metric| number(&cell, metric, &[&vnode]);
    client.store(file, 0, &[7; 1000], 1000).await.unwrap();
    assert_eq!(bytes("afar_file_written_bytes_total"), None);
    let watch = cell.server.watch_files();
    client.store(file, 0, &[7; 1000], 1000).await.unwrap();
    client.fetch(file, 0, 500).await.unwrap();
    assert_eq!(bytes("afar_file_written_bytes_total"), Some(1000.0));
    assert_eq!(bytes("afar_file_read_bytes_total"), Some(500.0));
    assert_eq!(bytes("afar_file_write_seconds_count"), Some(1.0));
    drop(watch);
    assert_eq!(bytes("afar_file_written_bytes_total"), None);
}
