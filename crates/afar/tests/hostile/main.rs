//! Clients that misbehave, and what becomes of the others: they go on.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod client;
mod full;
mod junk;
mod live;
mod mutation;
mod raw;
mod relay;
#[path = "../killed/server.rs"]
mod server;

use std::time::{Duration, Instant};

use afar_rpc::rxafs;
use afar_types::{Fid, StoreStatus};
use bytes::Bytes;

use client::{Client, PATIENCE};
use raw::{Raw, request};
use server::Server;

/// A turn of four calls takes less, whatever others do. Our machines have few processors and much
/// else to do.
const BOUND: Duration = Duration::from_secs(5);

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test);
}

/// A server with one file that is to become large, and a client that may do anything.
async fn with_large() -> (Server, Fid, Client, Fid) {
    let mut server = Server::new(&[]);
    server.start();
    let root = server.open_to_all().await;
    let client = Client::new(server.files()).await;
    let large = client.create(root, "large").await.unwrap();
    (server, root, client, large)
}

#[test]
fn ten_thousand_calls_that_nobody_reads_delay_no_other_client() {
    const CALLS: u32 = 10_000;
    run(async {
        let (mut server, root, client, large) = with_large().await;
        let data: Vec<u8> = (0..2_u32 << 20).flat_map(u32::to_le_bytes).collect();
        let data = Bytes::from(data);
        client.store(large, data.clone()).await.unwrap();
        let (alone, before) = (client.slowest_turn(root, 20).await, server.memory());

        let fetch = rxafs::fetch_data64::Request {
            fid: large,
            position: 0,
            length: 8 << 20,
        };
        let fetch = request(rxafs::fetch_data64::OPERATION.opcode, &fetch);
        let attacker = Raw::new(server.files(), 1);
        let (mut slowest, mut most) = (Duration::ZERO, 0);
        for round in 0..5 {
            for index in 0..CALLS {
                attacker.begin(index, rxafs::SERVICE, &fetch, true);
                if index.is_multiple_of(100) {
                    attacker.show_up();
                }
                if index.is_multiple_of(500) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            // The server first waits for an answer to who they are, which never comes.
            let until = Instant::now() + Duration::from_secs(1);
            while Instant::now() < until {
                attacker.show_up();
                slowest = slowest.max(client.slowest_turn(root, 10).await);
            }
            if round == 4 {
                assert_eq!(client.fetch(large).await.unwrap(), data);
            }
            most = most.max(server.memory());
            assert!(slowest < BOUND, "{slowest:?}, alone {alone:?}");
            assert!(most < before + (512 << 20), "{before} bytes became {most}");
        }
        assert!(most > before + (4 << 20), "nobody attacks: {most}");
        let fresh = Client::new(server.files()).await;
        assert!(fresh.turn(root).await < BOUND, "a new client too");
        eprintln!(
            "a turn took {alone:.1?} alone, {slowest:.1?} beside; memory {} MiB, then {} MiB",
            before >> 20,
            most >> 20
        );
        server.stop();
        server.check_store();
    });
}

/// Requests for a large file whose answers nobody takes, from one address and from fifty.
#[test]
fn answers_that_nobody_takes_cost_little_memory_wherever_they_go() {
    const CALLS: u32 = 3000;
    run(async {
        let (mut server, root, client, large) = with_large().await;
        // It does not become smaller when it is packed.
        let mut random = fastrand::Rng::with_seed(1);
        let data: Bytes = (0..16 << 20).map(|_| random.u8(..)).collect();
        client.store(large, data).await.unwrap();
        let before = server.memory();
        let fetch = rxafs::fetch_data64::Request {
            fid: large,
            position: 0,
            length: 16 << 20,
        };
        let fetch = request(rxafs::fetch_data64::OPERATION.opcode, &fetch);
        for (round, hosts) in [(1, 1), (2, 50)] {
            let hosts: Vec<Raw> = (0..hosts)
                .map(|host| Raw::new(server.files(), 1000 * round + host))
                .collect();
            let mut most = 0;
            for index in 0..CALLS {
                let host = &hosts[index as usize % hosts.len()];
                host.begin(index, rxafs::SERVICE, &fetch, true);
                if index.is_multiple_of(50) {
                    hosts.iter().for_each(Raw::show_up);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    most = most.max(server.memory());
                }
            }
            for _ in 0..20 {
                hosts.iter().for_each(Raw::show_up);
                assert!(client.turn(root).await < BOUND);
                most = most.max(server.memory());
            }
            let more = most.saturating_sub(before) >> 20;
            eprintln!("{} hosts: {more} MiB more", hosts.len());
            assert!(more < 512, "{more} MiB");
        }
        server.stop();
    });
}

#[test]
fn who_vanishes_in_a_transfer_holds_up_nobody_for_long() {
    run(async {
        let mut server = Server::new(&[]);
        server.start();
        let root = server.open_to_all().await;
        let client = Client::new(server.files()).await;
        let fid = client.create(root, "wanted").await.unwrap();
        let old = Bytes::from(vec![1; 3 << 20]);
        client.store(fid, old.clone()).await.unwrap();
        let before = server.memory();
        let store = rxafs::store_data64::Request {
            fid,
            attributes: StoreStatus::default(),
            position: 0,
            length: 1 << 40,
            file_length: 1 << 40,
        };
        let mut store = request(rxafs::store_data64::OPERATION.opcode, &store);
        store.resize(1400, 2);
        let fetch = rxafs::fetch_data64::Request {
            fid,
            position: 0,
            length: 3 << 20,
        };
        let fetch = request(rxafs::fetch_data64::OPERATION.opcode, &fetch);
        let vanishing = Raw::new(server.files(), 1);
        for index in 0..40 {
            vanishing.begin(2 * index, rxafs::SERVICE, &store, false);
            vanishing.begin(2 * index + 1, rxafs::SERVICE, &fetch, true);
        }
        drop(vanishing);
        tokio::time::sleep(Duration::from_secs(2)).await;
        // What they did not touch, and reading what they did, is as quick as ever.
        assert!(client.slowest_turn(root, 10).await < BOUND);
        let begun = Instant::now();
        assert_eq!(client.fetch(fid).await.unwrap(), old);
        assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
        // A store to the same file waits until they count as dead.
        let new = Bytes::from(vec![3; 1 << 20]);
        let stored = tokio::time::timeout(PATIENCE, client.store(fid, new.clone())).await;
        stored.expect("the dead are forgotten").unwrap();
        assert_eq!(client.fetch(fid).await.unwrap(), new);
        assert!(
            server.memory() < before + (256 << 20),
            "{}",
            server.memory()
        );
        server.kill();
        server.check_store();
    });
}
