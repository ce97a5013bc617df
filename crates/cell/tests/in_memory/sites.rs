//! Which server is asked: ranks, and what a client finds out in the course of time.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use afar_cell::{Client, Error, ServerKind, Volume, Wanted};
use afar_types::{Fid, VolumeId, VolumeType};
use tokio::task::JoinSet;

use crate::world::{Cell, Servers, World};

const VOLUME: u32 = 10;
const READ_ONLY: u32 = 11;
const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Those of the connections that a client makes if they are all in use.
const CHANNELS: u64 = 16;

fn world() -> World {
    let mut world = World::default();
    world.volume("root.cell", VOLUME, Some(READ_ONLY));
    world
}

async fn volume(client: &Client) -> Arc<Volume> {
    let name = "test.example".parse().unwrap();
    let cell = client.cell(&name).await.unwrap();
    let found = client.volume(&cell, "root.cell", Wanted::PreferReadOnly);
    found.await.unwrap()
}

/// Asks for a status, and returns how many calls each of two servers had for it.
async fn ask(cell: &Cell, second: &Servers, volume: &Arc<Volume>) -> (u64, u64) {
    let counts = || {
        let of = |servers: &Servers| servers.counts.introduced.load(Ordering::SeqCst);
        (of(&cell.servers), of(second))
    };
    let before = counts();
    let root = Fid::root(VolumeId(READ_ONLY));
    cell.client.status(volume, root).await.unwrap();
    let after = counts();
    (after.0 - before.0, after.1 - before.1)
}

/// Waits until something has become so.
async fn soon(what: &str, mut so: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn the_site_of_the_least_rank_is_asked() {
    let mut world = world();
    world.more_sites = vec![SECOND];
    let cell = Cell::start(world, |config| {
        config.ranks = vec![(ServerKind::File, SECOND.into(), 1)];
    });
    let second = cell.servers.also_at(SECOND);
    let volume = volume(&cell.client).await;
    let (first, asked) = ask(&cell, &second, &volume).await;
    assert!(first == 0 && asked > 0, "{first} {asked}");
    cell.client.set_rank(ServerKind::File, FIRST, 0).await;
    let (asked, second) = ask(&cell, &second, &volume).await;
    assert!(asked > 0 && second == 0, "{asked} {second}");
    let ranks = cell.client.server_ranks(ServerKind::File).await;
    assert_eq!(
        ranks.into_iter().collect::<Vec<_>>(),
        [(FIRST, 0), (SECOND.into(), 1)]
    );
}

/// The first release of a volume makes its read-only copy.
#[tokio::test]
async fn a_member_that_was_made_since_is_found() {
    let mut world = World::default();
    world.volume("root.cell", VOLUME, None);
    let cell = Cell::start(world, |_| {});
    let name = "test.example".parse().unwrap();
    let known = cell.client.cell(&name).await.unwrap();
    let find = async |name: &str, wanted| cell.client.volume(&known, name, wanted).await;
    let read_only = Wanted::Exactly(VolumeType::ReadOnly);
    find("root.cell", Wanted::PreferReadOnly).await.unwrap();
    let none = find("root.cell", read_only).await;
    assert!(matches!(none, Err(Error::NoSuchMember { .. })), "{none:?}");
    let root = Fid::root(VolumeId(READ_ONLY));
    {
        let mut world = cell.servers.world.lock().unwrap();
        world.volumes[0].2 = Some(READ_ONLY);
        world.directory(root, &[]);
    }
    for name in ["root.cell", "root.cell.readonly"] {
        let found = find(name, read_only).await.unwrap();
        assert_eq!(found.id(), root.volume, "{name}");
    }
}

#[tokio::test]
async fn a_site_that_is_added_is_found() {
    let cell = Cell::start(world(), |config| config.fresh = Duration::from_millis(50));
    let second = cell.servers.also_at(SECOND);
    let found = volume(&cell.client).await;
    ask(&cell, &second, &found).await;
    assert_eq!(found.sites().len(), 1);
    cell.servers.world.lock().unwrap().more_sites = vec![SECOND];
    soon("two sites", async || {
        ask(&cell, &second, &found).await;
        found.sites().len() == 2
    })
    .await;
    // A client that looks the volume up again has the same, and knows by its name that it has two sites.
    assert!(Arc::ptr_eq(&volume(&cell.client).await, &found));
    tokio::time::sleep(Duration::from_millis(100)).await;
    cell.servers.world.lock().unwrap().more_sites.clear();
    soon("one site", async || {
        ask(&cell, &second, &found).await;
        found.sites().len() == 1
    })
    .await;
    // What was known of it by its name is not so any more.
    assert_eq!(volume(&cell.client).await.sites().len(), 1);
}

#[tokio::test]
async fn another_volume_of_the_same_name_is_found() {
    let cell = Cell::start(world(), |_| {});
    assert_eq!(volume(&cell.client).await.id().0, READ_ONLY);
    let mut other = World::default();
    other.volume("root.cell", 20, Some(21));
    *cell.servers.world.lock().unwrap() = other;
    assert_eq!(volume(&cell.client).await.id().0, READ_ONLY);
    cell.client.check_volumes();
    assert_eq!(volume(&cell.client).await.id().0, 21);
}

#[tokio::test]
async fn an_old_entry_is_looked_up_again_by_itself() {
    let cell = Cell::start(world(), |config| config.fresh = Duration::from_millis(50));
    assert_eq!(volume(&cell.client).await.id().0, READ_ONLY);
    let mut other = World::default();
    other.volume("root.cell", 20, Some(21));
    *cell.servers.world.lock().unwrap() = other;
    soon("the new volume", async || {
        volume(&cell.client).await.id().0 == 21
    })
    .await;
}

#[tokio::test]
async fn a_location_server_that_is_silent_is_asked_last() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent_address = silent.local_addr().unwrap();
    let mut answering = None;
    let cell = Cell::start(world(), |config| {
        answering = config.vl_servers.first().copied();
        config.vl_servers.insert(0, silent_address);
    });
    assert_eq!(answering, Some(cell.servers.address()));
    let name = "test.example".parse().unwrap();
    let found = cell.client.cell(&name).await.unwrap();
    assert_eq!(found.servers().next(), Some(silent_address));
    soon("the one that answers is first", async || {
        found.servers().next() == answering
    })
    .await;
    let host = silent_address.ip();
    cell.client.set_rank(ServerKind::Location, host, 3).await;
    let ranks = cell.client.server_ranks(ServerKind::Location).await;
    assert_eq!(ranks.into_iter().collect::<Vec<_>>(), [(host, 3)]);
}

/// One that asks keeps no thread of a runtime that ends.
#[test]
fn a_runtime_ends_while_a_location_server_is_asked() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let (ended, ends) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let cell = Cell::start(world(), |config| config.vl_servers = vec![address]);
            let client = cell.client.clone();
            tokio::spawn(async move { drop(volume(&client).await) });
            // It is asked now.
            let mut packet = [0; 2000];
            tokio::task::spawn_blocking(move || silent.recv(&mut packet).unwrap());
            tokio::time::sleep(Duration::from_millis(300)).await;
        });
        drop(runtime);
        ended.send(()).unwrap();
    });
    ends.recv_timeout(Duration::from_secs(60)).unwrap();
}

#[tokio::test]
async fn servers_of_a_cell_are_read_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("CellServDB");
    std::fs::write(&path, ">test.example\n192.0.2.1\n192.0.2.2\n").unwrap();
    let cell = Cell::start(world(), |config| {
        config.cellservdb = Some(path.clone());
        config.vl_servers.clear();
        config.fresh = Duration::from_millis(50);
    });
    let name = "test.example".parse().unwrap();
    let found = cell.client.cell(&name).await.unwrap();
    assert_eq!(found.servers().count(), 2);
    std::fs::write(
        &path,
        ">test.example\n192.0.2.3\n>other.example\n192.0.2.4\n",
    )
    .unwrap();
    assert_eq!(cell.client.cells().len(), 2);
    soon("the new server", async || {
        let again = cell.client.cell(&name).await.unwrap();
        assert!(Arc::ptr_eq(&again, &found));
        found
            .servers()
            .map(|server| server.ip().to_string())
            .eq(["192.0.2.3"])
    })
    .await;
}

#[tokio::test]
async fn a_first_question_that_is_refused_costs_no_channel() {
    // Of few calls at a time, so that no more connections are made than there are at least.
    let cell = Cell::start(world(), |config| config.calls = Some(1));
    let volume = volume(&cell.client).await;
    let nothing = Fid::new(READ_ONLY, 98, 1);
    assert!(cell.client.status(&volume, nothing).await.is_err());
    let counts = Arc::clone(&cell.servers.counts);
    counts.hold.store(true, Ordering::SeqCst);
    let mut asked = JoinSet::new();
    for number in 1..=CHANNELS {
        let (client, volume) = (cell.client.clone(), Arc::clone(&volume));
        let root = Fid::root(VolumeId(READ_ONLY));
        asked.spawn(async move { client.status(&volume, root).await.map(drop) });
        soon(&format!("{number} at a time"), async || {
            counts.held.load(Ordering::SeqCst) == number
        })
        .await;
    }
    counts.hold.store(false, Ordering::SeqCst);
    for answer in asked.join_all().await {
        answer.unwrap();
    }
}
