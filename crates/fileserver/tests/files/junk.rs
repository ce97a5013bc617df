//! Whatever bytes a client sends, it gets an answer, and the server goes on.

use std::sync::Arc;
use std::time::Duration;

use afar_net::{CallError, RxNull};
use afar_rpc::rxafs;
use afar_types::{Fid, FileName};
use bytes::Bytes;

use super::cell::*;

/// Sends these bytes as a request and takes what comes, but not all of a file that grew to gigabytes.
async fn send(client: &Client, server: std::net::SocketAddr, request: Vec<u8>) {
    let connection = client.endpoint.connect(server, RXAFS, Arc::new(RxNull));
    let mut call = connection.call().await.unwrap();
    let opcode = u32::from_be_bytes(*request.first_chunk().unwrap());
    let exchange = async {
        call.send(Bytes::from(request)).await?;
        call.finish().await?;
        call.read_to_end(1 << 22).await
    };
    let answer = tokio::time::timeout(Duration::from_secs(20), exchange).await;
    match answer.unwrap_or_else(|_| panic!("operation {opcode} hangs")) {
        Ok(_) | Err(CallError::Aborted(_) | CallError::TooLong) => {}
        Err(error) => panic!("operation {opcode}: {error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_with_any_bytes() {
    let cell = Cell::new().await;
    let client = cell.client();
    let server = cell.open.local_addr();
    let file = client.create(cell.root(), "a").await;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let words = |fid: Fid| [fid.volume.0, fid.vnode.0, fid.uniquifier.0];
    for row in rxafs::OPERATIONS {
        for round in 0..12 {
            let mut request = row.opcode.to_be_bytes().to_vec();
            // Mostly of a fid that there is, as otherwise nothing else matters.
            let fid = match round % 3 {
                0 => Some(cell.root()),
                1 => Some(file),
                _ => None,
            };
            for word in fid.map(words).into_iter().flatten() {
                request.extend(word.to_be_bytes());
            }
            let length = random.usize(0..200);
            for _ in 0..length / 4 {
                // Numbers that are likely to mean something, and others.
                let word: u32 = match random.u8(0..6) {
                    0 => 0,
                    1 => random.u32(0..50),
                    2 => u32::MAX - random.u32(0..3),
                    3 => VOLUME.0,
                    4 => 1 << random.u32(0..32),
                    _ => random.u32(..),
                };
                request.extend(word.to_be_bytes());
            }
            request.extend(std::iter::repeat_with(|| random.u8(..)).take(length % 4));
            send(&client, server, request).await;
        }
    }
    // It is all there, and works.
    client.files.fetch_status(cell.root()).await.unwrap();
    client.create(cell.root(), "after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_cut_short() {
    let cell = Cell::new().await;
    let client = cell.client();
    let server = cell.open.local_addr();
    let file = client.create(cell.root(), "a").await;
    for row in rxafs::OPERATIONS {
        // What is well formed in each: the canonical form of zeros after a fid, if that is one.
        let mut whole = row.opcode.to_be_bytes().to_vec();
        for word in [file.volume.0, file.vnode.0, file.uniquifier.0] {
            whole.extend(word.to_be_bytes());
        }
        whole.extend([0; 120]);
        let Ok(Some(request)) = (rxafs::INTERFACE.canonical_request)(&whole) else {
            continue;
        };
        for length in (4..=request.len()).step_by(7) {
            send(&client, server, request[..length].to_vec()).await;
        }
    }
    client.files.fetch_status(file).await.unwrap();
}

#[tokio::test]
async fn names_of_any_bytes() {
    let cell = Cell::new().await;
    let client = cell.client();
    for bytes in [
        &b"\xff\xfe"[..],
        b"\n",
        b" ",
        b"a\\b",
        b"\x7f",
        "ä".as_bytes(),
    ] {
        let name = FileName::new(bytes).unwrap();
        let made = client
            .files
            .create_file(cell.root(), name.clone(), mode(0o644))
            .await
            .unwrap();
        assert_eq!(cell.volume.lookup(cell.root(), bytes).unwrap(), made.fid);
        client.files.remove_file(cell.root(), name).await.unwrap();
    }
}
