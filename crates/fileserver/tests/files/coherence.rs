//! Nobody reads what is out of date.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use afar_types::Fids;

use super::cell::*;

#[tokio::test]
async fn a_change_is_known_to_others_before_it_is_answered() {
    let cell = Cell::new().await;
    let writer = cell.client();
    let fid = writer.create(cell.root(), "a").await;
    let readers: Vec<_> = (0..10).map(|_| cell.client()).collect();
    for (number, reader) in readers.iter().enumerate() {
        let callback = match number % 3 {
            0 => reader.files.fetch_status(fid).await.unwrap().callback,
            1 => reader.fetch(fid, 0, 10).await.unwrap().1.callback,
            _ => {
                let fids = Fids::new(vec![cell.root(), fid]).unwrap();
                reader
                    .files
                    .inline_bulk_status(fids)
                    .await
                    .unwrap()
                    .callbacks[1]
            }
        };
        assert!(callback.expires_in > 0);
    }
    for change in 1..=3 {
        writer.store(fid, 0, b"x", 1).await.unwrap();
        for reader in &readers {
            assert_eq!(
                reader.callbacks.broken(),
                change,
                "before the writer has its answer"
            );
            reader.files.fetch_status(fid).await.unwrap();
        }
    }
    assert_eq!(writer.callbacks.broken(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_a_writer_at_once() {
    let cell = Cell::new().await;
    let writer = cell.client();
    let fid = writer.create(cell.root(), "a").await;
    // The version whose store was answered last.
    let answered = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let readers = (0..4).map(|_| {
        let (client, answered, over) = (cell.client(), Arc::clone(&answered), Arc::clone(&over));
        tokio::spawn(async move {
            let mut reads = 0u32;
            while !over.load(Ordering::SeqCst) {
                let broken = client.callbacks.broken();
                let known = answered.load(Ordering::SeqCst);
                let (data, reply) = client.fetch(fid, 0, 100_000).await.unwrap();
                let version = reply.status.data_version.0;
                assert!(
                    version >= known,
                    "{version} was read when {known} was answered"
                );
                assert_eq!(data.len() as u64, reply.status.length);
                let own = u8::try_from(version % 251).unwrap();
                assert!(
                    data.iter().all(|byte| *byte == own),
                    "data of another version"
                );
                // As a client that trusts the promise: what it has is as new as what is answered,
                // unless it was told.
                if reply.callback.expires_in > 0 {
                    let now = answered.load(Ordering::SeqCst);
                    let told = client.callbacks.broken() > broken;
                    assert!(
                        version >= now || told,
                        "{version} is trusted, {now} was answered"
                    );
                }
                reads += 1;
            }
            reads
        })
    });
    let readers: Vec<_> = readers.collect();
    let began = Instant::now();
    let mut version = 0;
    while version < 100 && (version < 20 || began.elapsed() < Duration::from_secs(10)) {
        version += 1;
        let own = u8::try_from(version % 251).unwrap();
        let length = 1000 * (version % 90 + 1);
        let data = vec![own; usize::try_from(length).unwrap()];
        let stored = writer.store(fid, 0, &data, length).await.unwrap();
        assert_eq!(stored.status.data_version.0, version);
        answered.store(version, Ordering::SeqCst);
    }
    over.store(true, Ordering::SeqCst);
    for reader in readers {
        assert!(reader.await.unwrap() > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_make_files_in_one_directory() {
    let cell = Cell::new().await;
    let makers = (0..4).map(|maker| {
        let (client, root) = (cell.client(), cell.root());
        tokio::spawn(async move {
            for number in 0..20 {
                client.create(root, &format!("{maker}-{number}")).await;
            }
        })
    });
    for maker in makers.collect::<Vec<_>>() {
        maker.await.unwrap();
    }
    let status = cell
        .client()
        .files
        .fetch_status(cell.root())
        .await
        .unwrap()
        .status;
    assert_eq!(status.data_version.0, 1 + 80);
    assert_eq!(cell.volume.state().unwrap().file_count, 81);
}

#[tokio::test]
async fn a_client_that_is_gone_holds_no_writer_up() {
    let cell = Cell::new().await;
    let writer = cell.client();
    let fid = writer.create(cell.root(), "a").await;
    let gone = cell.client();
    gone.files.fetch_status(fid).await.unwrap();
    gone.endpoint.shutdown().await;
    let began = Instant::now();
    writer.store(fid, 0, b"x", 1).await.unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
}
