//! Fetching files from a cell in memory.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use afar_cell::{
    Error, Fetched, LastLink, Memory, Nearby, NearbyFile, Node, Volume, Waiting, Walked,
};
use afar_types::{DataVersion, Fid, VolumeId};
use bytes::Bytes;

use crate::world::{Cell, World};

const VOLUME: u32 = 10;
pub(crate) const LENGTH: usize = 3_000_001;

pub(crate) fn contents() -> Vec<u8> {
    (0..=250).cycle().take(LENGTH).collect()
}

pub(crate) fn world() -> World {
    let mut world = World::default();
    world.volume("root.cell", VOLUME, None);
    let root = Fid::root(VolumeId(VOLUME));
    world.directory(root, &[("file", 2), ("empty", 4), ("link", 6)]);
    world.file(Fid::new(VOLUME, 2, 1), contents());
    world.file(Fid::new(VOLUME, 4, 1), "");
    world.link(Fid::new(VOLUME, 6, 1), 0o755, "file");
    world
}

async fn find(cell: &Cell, name: &str) -> Node {
    let path = format!("/afs/test.example/{name}");
    match cell.client.walk(path.as_bytes(), LastLink::Keep).await {
        Ok(Walked::Node(node)) => node,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn fetch(cell: &Cell, name: &str) -> Result<(Fetched, Vec<u8>), Error> {
    let node = find(cell, name).await;
    let sink = Arc::new(Memory::default());
    let fetch = cell
        .client
        .fetch(&node.volume, node.fid, node.status, &sink);
    let fetched = tokio::time::timeout(Duration::from_secs(60), fetch)
        .await
        .expect("a fetch ends")?;
    Ok((fetched, sink.take()))
}

#[tokio::test]
async fn a_file_comes_in_pieces_of_many_calls() {
    let cell = Cell::start(world(), |config| config.piece = Some(44 << 10));
    let (fetched, data) = fetch(&cell, "file").await.unwrap();
    assert!(data == contents());
    assert_eq!(fetched.bytes, LENGTH as u64);
    assert_eq!(fetched.calls, (LENGTH as u64).div_ceil(44 << 10));
    let most = cell.servers.counts.most_at_a_time.load(Ordering::SeqCst);
    assert!(most > 1, "{most} calls at a time");
    let target = find(&cell, "link").await;
    let target = cell.client.read_link(&target.volume, target.fid).await;
    assert_eq!(target.unwrap(), "file");
    let (fetched, data) = fetch(&cell, "empty").await.unwrap();
    assert!(data.is_empty());
    assert_eq!((fetched.bytes, fetched.calls), (0, 0));
}

/// Parts of one version of a file, of which some are gone when they are asked for.
#[derive(Debug, Clone)]
struct Held {
    version: DataVersion,
    ranges: Vec<Range<u64>>,
    gone_from: u64,
}

impl Nearby for Held {
    fn find<'a>(
        &'a self,
        _: &'a Arc<Volume>,
        _: Fid,
        version: DataVersion,
    ) -> Waiting<'a, Option<Arc<dyn NearbyFile>>> {
        let file = (version == self.version).then(|| Arc::new(self.clone()) as _);
        Box::pin(async move { file })
    }
}

impl NearbyFile for Held {
    fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    fn read(&self, range: Range<u64>) -> Waiting<'_, Option<Bytes>> {
        assert!(
            self.ranges
                .iter()
                .any(|held| held.start <= range.start && range.end <= held.end)
        );
        let there = range.end <= self.gone_from;
        let place = |at: u64| usize::try_from(at).expect("a file in memory");
        let part = place(range.start)..place(range.end);
        let data = Bytes::copy_from_slice(&contents()[part]);
        Box::pin(async move { there.then_some(data) })
    }
}

/// Has these parts of the file be nearby from now on.
async fn hold(cell: &mut Cell, ranges: Vec<Range<u64>>, gone_from: u64) {
    let node = find(cell, "file").await;
    let held = Held {
        version: node.status.data_version,
        ranges,
        gone_from,
    };
    cell.client = cell.client.with_nearby(Arc::new(held));
}

#[tokio::test]
async fn what_is_on_this_machine_is_not_asked_for() {
    let length = LENGTH as u64;
    let mut cell = Cell::start(world(), |config| config.piece = Some(1 << 20));
    let whole = vec![0..length / 2, length / 2..length];
    // Of the parts one is too short to be worth a call more, and one goes beyond the end.
    let parts = vec![10..20, 1_000_000..1_500_000, 2_000_000..9_000_000];
    for (ranges, gone_from, near, calls) in [
        (whole, u64::MAX, length, 0),
        (parts.clone(), u64::MAX, 500_000 + length - 2_000_000, 2),
        // What is gone by now is asked for after all.
        (parts, 2_500_000, 500_000, 3),
    ] {
        hold(&mut cell, ranges, gone_from).await;
        let (fetched, data) = fetch(&cell, "file").await.unwrap();
        assert!(data == contents());
        assert_eq!(fetched.bytes, length);
        assert_eq!((fetched.near, fetched.calls), (near, calls));
    }
    // None of it is of the version that the file has by the end.
    let fetches = cell.servers.counts.fetches.load(Ordering::SeqCst);
    let changing = &cell.servers.counts.change_after;
    changing.store(fetches + 1, Ordering::SeqCst);
    let (fetched, data) = fetch(&cell, "file").await.unwrap();
    assert_eq!((fetched.near, fetched.restarts), (0, 1));
    let reversed: Vec<u8> = contents().into_iter().rev().collect();
    assert!(data == reversed);
}

#[tokio::test]
async fn the_number_of_calls_can_be_fixed() {
    let cell = Cell::start(world(), |config| {
        config.piece = Some(10_000);
        config.calls = Some(2);
    });
    let (_, data) = fetch(&cell, "file").await.unwrap();
    assert!(data == contents());
    let most = cell.servers.counts.most_at_a_time.load(Ordering::SeqCst);
    assert!(most <= 2, "{most} calls at a time");
}

#[tokio::test]
async fn the_rest_of_a_stuck_call_is_asked_for_anew_while_others_go_on() {
    // From an old server: of one of ours half a piece is less than a packet on this machine's own network.
    let cell = Cell::start_far(world(), Duration::ZERO, |config| {
        config.piece = Some(100_000);
    });
    let counts = &cell.servers.counts;
    fetch(&cell, "file").await.unwrap();
    let before = counts.fetches.load(Ordering::SeqCst);
    counts.stuck.store(2, Ordering::SeqCst);
    let others = async {
        // The calls that are stuck are not theirs.
        while counts.stuck.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        loop {
            fetch(&cell, "file").await.unwrap();
        }
    };
    let begun = Instant::now();
    tokio::select! {
        fetched = fetch(&cell, "file") => assert!(fetched.unwrap().1 == contents()),
        () = others => {}
    }
    assert!(
        begun.elapsed() >= Duration::from_secs(1),
        "they were given time"
    );
    assert!(counts.fetches.load(Ordering::SeqCst) > before + 2 * 31 + 2);
}

#[tokio::test]
async fn old_servers_are_asked_in_the_old_form() {
    let mut world = world();
    world.old_server = true;
    let cell = Cell::start(world, |config| config.piece = Some(100_000));
    let (_, data) = fetch(&cell, "file").await.unwrap();
    assert!(data == contents());
}

#[tokio::test]
async fn busy_servers_are_asked_again() {
    let cell = Cell::start(world(), |config| config.piece = Some(100_000));
    find(&cell, "file").await;
    cell.servers.counts.busy.store(20, Ordering::SeqCst);
    let (_, data) = fetch(&cell, "file").await.unwrap();
    assert!(data == contents());
    assert_eq!(cell.servers.counts.busy.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn servers_that_stay_busy_are_given_up_after_the_limit() {
    let limit = Duration::from_secs(2);
    let cell = Cell::start(world(), |config| config.busy_limit = limit);
    let node = find(&cell, "file").await;
    let busy = &cell.servers.counts.busy;
    busy.store(u64::MAX, Ordering::SeqCst);
    let begun = Instant::now();
    let sink = Arc::new(Memory::default());
    let fetch = cell
        .client
        .fetch(&node.volume, node.fid, node.status, &sink);
    let error = tokio::time::timeout(Duration::from_secs(60), fetch).await;
    let error = error.expect("it is given up").unwrap_err();
    let took = begun.elapsed();
    assert!(matches!(error, Error::Volume { .. }), "{error}");
    // The volume is looked up again on the way, which is no reason to wait again.
    assert!(took >= limit && took < 2 * limit, "{took:?}");
    let asked = u64::MAX - busy.load(Ordering::SeqCst);
    assert!((3..60).contains(&asked), "asked {asked} times");
}

#[tokio::test]
async fn a_file_that_changes_is_fetched_anew() {
    let cell = Cell::start(world(), |config| config.piece = Some(100_000));
    cell.servers.counts.change_after.store(12, Ordering::SeqCst);
    let (fetched, data) = fetch(&cell, "file").await.unwrap();
    assert_eq!(fetched.restarts, 1);
    assert_eq!(fetched.status.data_version.0, 2);
    let reversed: Vec<u8> = contents().into_iter().rev().collect();
    assert!(data == reversed);
}

#[tokio::test]
async fn refusals_are_told_and_not_tried_again() {
    let mut world = world();
    let fid = Fid::new(VOLUME, 2, 1);
    world.vnodes.get_mut(&fid).unwrap().refusal = Some(13);
    let cell = Cell::start(world, |_| ());
    let error = fetch(&cell, "file").await.unwrap_err();
    assert!(error.is_denied());
    let text = error.to_string();
    assert!(text.starts_with("permission denied"), "{text}");
    // A vnode that has gone.
    let node = find(&cell, "file").await;
    let sink = Arc::new(Memory::default());
    let gone = Fid::new(VOLUME, 98, 1);
    let error = cell
        .client
        .fetch(&node.volume, gone, node.status, &sink)
        .await;
    assert!(matches!(error, Err(Error::Gone)));
}
