//! Data in both directions: lengths, holes, versions, clients that vanish.

use std::time::Duration;

use afar_types::{Fid, PtsId, StoreStatus, UnixTime};
use bytes::Bytes;

use super::cell::*;

fn random(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(4711);
    std::iter::repeat_with(|| random.u8(..))
        .take(length)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_stored_is_fetched() {
    let cell = Cell::new().await;
    let client = cell.ann();
    let fid = client.create(cell.root(), "a").await;
    // Records that are compressed and records that are not.
    let mut data = random(9 << 20);
    data[3 << 20..5 << 20].fill(b'x');
    data[6 << 20..7 << 20].fill(0);
    let length = data.len() as u64;
    let stored = client.store(fid, 0, &data, length).await.unwrap().status;
    assert_eq!(
        (stored.length, stored.data_version.0, stored.author),
        (length, 1, ANN)
    );
    let (fetched, reply) = client.fetch(fid, 0, 1 << 40).await.unwrap();
    assert!(fetched == data);
    assert_eq!(reply.status, stored);
    for (position, asked) in [
        (0, 1),
        (1_000_001, 3_000_000),
        (8 << 20, 1 << 30),
        (9 << 20, 5),
    ] {
        let (fetched, _) = client.fetch(fid, position, asked).await.unwrap();
        let from = usize::try_from(position).unwrap();
        let to = data.len().min(from + usize::try_from(asked).unwrap());
        assert!(fetched == data[from..to], "{position} {asked}");
    }
    let (nothing, _) = client.fetch(fid, 1 << 50, 10).await.unwrap();
    assert!(nothing.is_empty());
    assert_eq!(cell.server.stats().stored_bytes(), length);
    assert!(cell.server.stats().fetched_bytes() > length);
}

#[tokio::test]
async fn the_forms_of_old_clients() {
    let cell = Cell::new().await;
    let client = cell.client();
    let fid = client.create(cell.root(), "a").await;
    let plain = StoreStatus::default();
    let mut store = client.files.store_data(fid, plain, 0, 5, 5).await.unwrap();
    store.send(Bytes::from_static(b"Hello")).await.unwrap();
    assert_eq!(store.finish().await.unwrap().status.length, 5);
    let mut fetch = client.files.fetch_data(fid, 1, 100).await.unwrap();
    assert_eq!(fetch.chunk().await.unwrap().unwrap(), "ello");
    assert_eq!(fetch.finish().await.unwrap().status.length, 5);
    let negative = client.files.fetch_data(fid, -1, 100).await.map(drop);
    assert_eq!(code(negative), EFBIG);
}

#[tokio::test]
async fn lengths_and_holes() {
    let cell = Cell::new().await;
    let client = cell.client();
    let fid = client.create(cell.root(), "a").await;
    let length = |reply: afar_rpc::rxafs::store_data64::Reply| reply.status.length;
    assert_eq!(
        length(client.store(fid, 0, b"0123456789", 10).await.unwrap()),
        10
    );
    // Cut to 5, then two bytes at 1: still 5.
    assert_eq!(length(client.store(fid, 1, b"ab", 5).await.unwrap()), 5);
    assert_eq!(client.fetch(fid, 0, 99).await.unwrap().0, b"0ab34");
    // No data: cut, keep, lengthen.
    assert_eq!(length(client.store(fid, 0, b"", 2).await.unwrap()), 2);
    assert_eq!(length(client.store(fid, 0, b"", 99).await.unwrap()), 2);
    let far = 40 << 30;
    assert_eq!(length(client.store(fid, far, b"", far).await.unwrap()), far);
    assert_eq!(
        length(client.store(fid, far + 5, b"end", far).await.unwrap()),
        far + 8
    );
    let position = i64::try_from(far).unwrap() - (3 << 20);
    let (data, _) = client.fetch(fid, position, 1 << 40).await.unwrap();
    let mut expected = vec![0; (3 << 20) + 5];
    expected.extend(b"end");
    assert!(data == expected);
    let (data, _) = client.fetch(fid, 0, 3).await.unwrap();
    assert_eq!(data, b"0a\0");
    assert_eq!(code(client.store(fid, u64::MAX - 1, b"", 0).await), EFBIG);
    assert_eq!(code(client.store(fid, 0, b"", u64::MAX).await), EFBIG);
    assert_eq!(code(client.fetch(fid, -1, 1).await), EFBIG);
    assert_eq!(code(client.fetch(fid, i64::MAX, 1).await), EFBIG);
}

#[tokio::test]
async fn attributes_with_data() {
    let cell = Cell::new().await;
    let ann = cell.ann();
    let fid = ann.create(cell.root(), "a").await;
    let own = ann.files.store_status(fid, mode(0o6751)).await.unwrap();
    assert_eq!(own.status.unix_mode_bits, 0o751);
    cell.admin()
        .files
        .store_status(fid, mode(0o4755))
        .await
        .unwrap();
    let timed = StoreStatus {
        mask: StoreStatus::SET_MOD_TIME,
        client_mod_time: UnixTime(5),
        ..StoreStatus::default()
    };
    let store = ann.files.store_data64(fid, timed, 0, 0, 0).await.unwrap();
    let status = store.finish().await.unwrap().status;
    assert_eq!((status.client_mod_time.0, status.data_version.0), (5, 1));
    assert_eq!(
        status.unix_mode_bits, 0o755,
        "who is no administrator takes the bit away"
    );
    let store = ann
        .files
        .store_data64(fid, mode(0o600), 0, 0, 0)
        .await
        .unwrap();
    assert_eq!(store.finish().await.unwrap().status.unix_mode_bits, 0o600);
}

#[tokio::test]
async fn who_may_read_and_write() {
    let cell = Cell::new().await;
    let (ann, client) = (cell.ann(), cell.client());
    let fid = ann.create(cell.root(), "a").await;
    ann.store(fid, 0, b"x", 1).await.unwrap();
    cell.allow(cell.root(), &[(PtsId::ANYUSER, "l"), (STAFF, "i")]);
    assert_eq!(code(client.fetch(fid, 0, 1).await), EACCES);
    assert_eq!(code(client.store(fid, 0, b"y", 1).await), EACCES);
    // Whose file it is, and who may insert.
    ann.fetch(fid, 0, 1).await.unwrap();
    ann.store(fid, 0, b"y", 1).await.unwrap();
    assert_eq!(code(client.store(cell.root(), 0, b"y", 1).await), EISDIR);
    cell.allow(cell.root(), &[]);
    assert_eq!(code(client.fetch(cell.root(), 0, 1).await), EACCES);
    cell.admin().fetch(fid, 0, 1).await.unwrap();
    cell.admin().store(fid, 0, b"z", 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_while_it_stores_leaves_nothing() {
    let cell = Cell::new().await;
    let client = cell.client();
    let fid = client.create(cell.root(), "a").await;
    client.store(fid, 0, b"before", 6).await.unwrap();
    let gone = cell.client();
    let plain = StoreStatus::default();
    let mut store = gone
        .files
        .store_data64(fid, plain, 0, 4 << 20, 4 << 20)
        .await
        .unwrap();
    store.send(Bytes::from(random(1 << 20))).await.unwrap();
    drop(store);
    // The next store waits for its turn, which comes when the call is over.
    let next = client.store(fid, 6, b" after", 12);
    let stored = tokio::time::timeout(Duration::from_secs(20), next)
        .await
        .unwrap();
    assert_eq!(stored.unwrap().status.data_version.0, 2);
    assert_eq!(client.fetch(fid, 0, 99).await.unwrap().0, b"before after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_gets_one_version_and_holds_nobody_up() {
    let cell = Cell::new().await;
    let (client, writer) = (cell.client(), cell.client());
    let fid = client.create(cell.root(), "a").await;
    let old = random(24 << 20);
    let length = old.len() as u64;
    client.store(fid, 0, &old, length).await.unwrap();
    let mut fetch = client.files.fetch_data64(fid, 0, 1 << 40).await.unwrap();
    let mut data = fetch.chunk().await.unwrap().unwrap().to_vec();
    // Cut, rewritten, removed: while the reader has taken one chunk.
    writer.store(fid, 0, b"", 0).await.unwrap();
    writer
        .store(fid, 0, &vec![1; 8 << 20], 8 << 20)
        .await
        .unwrap();
    writer
        .files
        .remove_file(cell.root(), name("a"))
        .await
        .unwrap();
    // Time for the reaper, which must leave what is being read.
    tokio::time::sleep(Duration::from_millis(500)).await;
    while let Some(chunk) = fetch.chunk().await.unwrap() {
        data.extend_from_slice(&chunk);
    }
    assert!(data == old);
    let reply = fetch.finish().await.unwrap();
    assert_eq!(
        (reply.status.length, reply.status.data_version.0),
        (length, 1)
    );
    assert_eq!(reply.callback.expires_in, 0, "it is out of date");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_to_one_file_take_turns() {
    let cell = Cell::new().await;
    let client = cell.client();
    let fid = client.create(cell.root(), "a").await;
    let stores = (0..8u8).map(|number| {
        let client = cell.client();
        tokio::spawn(async move {
            let data = vec![number; 300_000];
            client
                .store(fid, 0, &data, 300_000)
                .await
                .unwrap()
                .status
                .data_version
                .0
        })
    });
    let mut versions = Vec::new();
    for store in stores.collect::<Vec<_>>() {
        versions.push(store.await.unwrap());
    }
    versions.sort_unstable();
    assert_eq!(versions, (1..=8).collect::<Vec<_>>());
    let (data, _) = client.fetch(fid, 0, 1 << 20).await.unwrap();
    assert!(data.len() == 300_000 && data.iter().all(|byte| *byte == data[0]));
}

#[tokio::test]
async fn data_of_what_is_gone() {
    let cell = Cell::new().await;
    let client = cell.client();
    let gone = Fid::new(VOLUME.0, 2, 77);
    assert_eq!(code(client.fetch(gone, 0, 1).await), VNOVNODE);
    assert_eq!(code(client.store(gone, 0, b"x", 1).await), VNOVNODE);
    assert_eq!(
        code(client.store(Fid::new(5, 2, 1), 0, b"x", 1).await),
        VNOVOL
    );
}
