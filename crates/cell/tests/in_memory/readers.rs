//! Data from an old server at the end of a long way, read by several hosts.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::fetches::{LENGTH, contents, fetch, world};
use crate::world::{Cell, Host};

const DELAY: Duration = Duration::from_millis(8);
const PIECE: u64 = 8 << 10;
/// At a time: more than one host that reads has lanes for, so that several must read.
const CALLS: usize = 40;
const PATIENCE: Duration = Duration::from_secs(30);
/// The last packet of a reply is acknowledged, and the window told with it, after so long at most.
const ACKNOWLEDGED: Duration = Duration::from_millis(100);
/// Calls that make a connection known, and use its channels.
const USED: usize = 5;

fn start(one_host: bool) -> Cell {
    let mut world = world();
    world.one_host = one_host;
    Cell::start_far(world, DELAY, |config| {
        config.piece = Some(PIECE);
        config.calls = Some(CALLS);
    })
}

/// What the first host asked for, and the others.
fn hosts(cell: &Cell) -> (Host, Vec<Host>) {
    let counts = &cell.servers.counts;
    let first = *counts.first.get().unwrap();
    let mut hosts = counts.hosts.lock().unwrap().clone();
    let own = hosts.remove(&first).unwrap();
    (own, hosts.into_values().collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn much_data_is_read_by_others_than_the_first_host() {
    let cell = start(false);
    let (_, empty) = fetch(&cell, "empty").await.unwrap();
    assert!(empty.is_empty());
    assert_eq!(hosts(&cell).1.len(), 0, "none for what one host can have");
    let begun = Instant::now();
    loop {
        let (_, data) = fetch(&cell, "file").await.unwrap();
        assert!(data == contents());
        let read = hosts(&cell).1;
        if read.iter().filter(|host| host.fetches > 0).count() > 1 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "nobody else reads");
    }
    let before = hosts(&cell).0.fetches;
    let calls = |all: fn(&afar_cell::FileServer) -> u64| all(&cell.client.servers()[0]);
    let (all, telling) = (
        calls(|server| server.calls()),
        calls(|server| server.telling_calls()),
    );
    fetch(&cell, "file").await.unwrap();
    // What others are told is not told to the first.
    let pieces = LENGTH as u64 / PIECE;
    assert!(calls(|server| server.calls()) > all + pieces);
    assert!(calls(|server| server.telling_calls()) < telling + pieces);
    let (first, others) = hosts(&cell);
    assert_eq!(
        first.fetches, before,
        "the first has to do with other things"
    );
    assert!(first.statuses > 0 && others.iter().all(|host| host.statuses == 0));
    for host in &others {
        let Some(read) = host.read else { continue };
        let long_before = |at: &&Instant| **at + ACKNOWLEDGED <= read;
        let answered = host.answered.iter().filter(long_before).count();
        assert!(
            answered > USED,
            "{answered} calls before its windows are used"
        );
    }
    let uuids: BTreeSet<_> = others.iter().map(|host| host.uuid.unwrap()).collect();
    assert_eq!(uuids.len(), others.len(), "each is somebody else");
    assert!(!uuids.contains(&cell.client.callbacks().uuid()));
    cell.client.close().await;
    let (first, others) = hosts(&cell);
    assert_eq!(first.gave_back, 1);
    let gave_back = |host: &Host| host.gave_back == 1 || host.fetches == 0;
    assert!(others.iter().all(gave_back), "{others:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_host_reads_where_others_do_not_get_to_be_known() {
    let cell = start(true);
    let begun = Instant::now();
    let mut calls = 0;
    // For longer than the wait for the others.
    while begun.elapsed() < Duration::from_secs(5) {
        let (fetched, data) = fetch(&cell, "file").await.unwrap();
        assert!(data == contents());
        calls += fetched.calls;
    }
    let (first, others) = hosts(&cell);
    assert!(others.iter().all(|host| host.fetches == 0));
    assert!(first.fetches >= calls && calls > LENGTH as u64 / PIECE);
    let most = cell.client.servers()[0].parallel_max();
    assert!(most > 16, "{most} calls at a time, for want of lanes");
}
