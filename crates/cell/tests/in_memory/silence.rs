//! Servers that do not answer for a while, or answer elsewhere.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use afar_cell::{Client, Error, Patience, Volume, Wanted};
use afar_types::{CellName, Fid, StoreStatus, VolumeId, VolumeType};

use crate::world::{Cell, World};

const VOLUME: u32 = 10;
const ROOT: Fid = Fid::root(VolumeId(VOLUME));
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const THIRD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// How long a server is away that is started again.
const AWAY: Duration = Duration::from_millis(1500);

fn world() -> World {
    let mut world = World::default();
    world.volume("root.cell", VOLUME, None);
    world.volume("other", VOLUME + 1, None);
    world
}

async fn volume(client: &Client, name: &str) -> Result<Arc<Volume>, Error> {
    let cell: CellName = "test.example".parse().unwrap();
    let cell = client.cell(&cell).await.unwrap();
    let wanted = Wanted::Exactly(VolumeType::ReadWrite);
    client.volume(&cell, name, wanted).await
}

#[tokio::test]
async fn a_restart_is_not_seen() {
    let cell = Cell::start(world(), |config| config.patience = Patience::USUAL);
    let client = &cell.client;
    let root = volume(client, "root.cell").await.unwrap();
    client.status(&root, ROOT).await.unwrap();
    // The answer to this change is lost, and then the servers are gone.
    let counts = &cell.servers.counts;
    counts.lost.store(1, Ordering::SeqCst);
    let (stop, at) = (cell.servers.clone(), cell.servers.address());
    let again = tokio::spawn(async move {
        while stop.counts.changes.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stop.stop().await;
        tokio::time::sleep(AWAY).await;
        stop.start_again()
    });
    let made = client.create_file(&root, ROOT, b"file", StoreStatus::default());
    let made = made.await.unwrap();
    let again = again.await.unwrap();
    // Gone once more, for those who read, write, change and look volumes up.
    again.stop().await;
    assert_eq!(client.waiting(), None);
    let status = client.status(&root, made.fid);
    let data = Arc::new(Data);
    let stored = client.store(&root, made.fid, &data, StoreStatus::default());
    let made_dir = client.make_dir(&root, ROOT, b"dir", StoreStatus::default());
    let other = volume(client, "other");
    let back = async {
        tokio::time::sleep(AWAY).await;
        assert!(client.waiting().is_some_and(|time| time <= 2 * AWAY));
        again.start_again()
    };
    let (status, stored, made_dir, other, last) =
        tokio::join!(status, stored, made_dir, other, back);
    status.unwrap();
    made_dir.unwrap();
    other.unwrap();
    assert_eq!(stored.unwrap().bytes, 4);
    assert_eq!((last.address(), client.waiting()), (at, None));
    assert_eq!(
        counts.changes.load(Ordering::SeqCst),
        1,
        "each is done once"
    );
    assert_eq!(
        last.counts.changes.load(Ordering::SeqCst),
        1,
        "each is done once"
    );
}

/// Four bytes.
struct Data;

impl afar_cell::Source for Data {
    fn length(&self) -> u64 {
        4
    }

    async fn read_at(&self, offset: u64, most: usize) -> std::io::Result<bytes::Bytes> {
        let (from, most) = (usize::try_from(offset).unwrap().min(4), most.min(4));
        Ok(bytes::Bytes::from_static(b"data").slice(from..(from + most).min(4)))
    }
}

#[tokio::test]
async fn what_stays_away_is_an_error() {
    let short = Patience::of_those_met(Duration::from_millis(300));
    let cell = Cell::start(world(), |config| config.patience = short);
    let client = &cell.client;
    let root = volume(client, "root.cell").await.unwrap();
    client.status(&root, ROOT).await.unwrap();
    cell.servers.stop().await;
    let failed = client.status(&root, ROOT).await;
    assert!(matches!(failed, Err(Error::Volume { .. })), "{failed:?}");
    assert!(client.waiting().is_some());
    // Requests waited for some before, so that none waits for what others have waited for.
    let failed = client.status(&root, ROOT).await;
    assert!(matches!(failed, Err(Error::Volume { .. })), "{failed:?}");
    let failed = volume(client, "other").await;
    assert!(
        matches!(failed, Err(Error::VlUnreachable { .. })),
        "{failed:?}"
    );
    let _again = cell.servers.start_again();
    client.status(&root, ROOT).await.unwrap();
    volume(client, "other").await.unwrap();
    assert_eq!(client.waiting(), None);
}

/// Nobody waits for a cell that may not be there.
#[tokio::test]
async fn strangers_are_waited_for_only_when_that_is_said() {
    for (patience, waits) in [(Patience::USUAL, false), ("hard".parse().unwrap(), true)] {
        let cell = Cell::start(world(), |config| config.patience = patience);
        cell.servers.stop().await;
        let found = volume(&cell.client, "root.cell");
        let found = tokio::time::timeout(Duration::from_secs(1), found).await;
        assert_eq!(found.is_err(), waits, "{found:?}");
    }
}

#[tokio::test]
async fn a_server_is_found_where_it_is_now() {
    let mut world = world();
    world.site = Some(SECOND);
    let cell = Cell::start(world, |config| config.patience = Patience::USUAL);
    let second = cell.servers.also_at(SECOND);
    let client = &cell.client;
    let root = volume(client, "root.cell").await.unwrap();
    client.status(&root, ROOT).await.unwrap();
    // What comes to the old address is lost, as where there is no machine any more.
    let port = cell.servers.address().port();
    second.stop().await;
    let _silent = UdpSocket::bind(SocketAddr::from((SECOND, port))).unwrap();
    let _third = cell.servers.also_at(THIRD);
    cell.servers.world.lock().unwrap().site = Some(THIRD);
    let status = tokio::time::timeout(Duration::from_secs(15), client.status(&root, ROOT));
    status
        .await
        .expect("long before the call is given up")
        .unwrap();
    let sites = root.sites();
    assert_eq!(sites.len(), 1);
    assert_eq!(sites[0].address(), SocketAddr::from((THIRD, port)));
    assert_eq!(client.waiting(), None);
}
