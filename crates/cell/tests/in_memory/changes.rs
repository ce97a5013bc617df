//! Changing files in a cell in memory, whose answers may get lost.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use afar_cell::{Client, DirEntry, Error, Made, Source, Volume, Wanted};
use afar_types::{CellName, Fid, FileType, StoreStatus, VolumeId, VolumeType};
use bytes::Bytes;

use crate::world::{Cell, World};

pub(crate) const VOLUME: u32 = 10;
pub(crate) const ROOT: Fid = Fid::root(VolumeId(VOLUME));
const EEXIST: i32 = 17;

/// A file of which every byte tells its place.
struct Pattern(u64);

impl Source for Pattern {
    fn length(&self) -> u64 {
        self.0
    }

    async fn read_at(&self, offset: u64, most: usize) -> std::io::Result<Bytes> {
        let end = self.0.min(offset + most as u64);
        let data = (offset..end).map(|place| u8::try_from(place % 251).unwrap());
        Ok(data.collect::<Vec<_>>().into())
    }
}

pub(crate) fn cell(world: impl FnOnce(&mut World)) -> Cell {
    let mut all = World::default();
    all.volume("root.cell", VOLUME, Some(VOLUME + 1));
    world(&mut all);
    Cell::start(all, |config| config.piece = Some(1 << 20))
}

pub(crate) async fn volume(client: &Client) -> Arc<Volume> {
    let name: CellName = "test.example".parse().unwrap();
    let cell = client.cell(&name).await.unwrap();
    let wanted = Wanted::Exactly(VolumeType::ReadWrite);
    client.volume(&cell, "root.cell", wanted).await.unwrap()
}

pub(crate) fn new_file() -> StoreStatus {
    StoreStatus {
        mask: StoreStatus::SET_MODE,
        unix_mode_bits: 0o600,
        ..StoreStatus::default()
    }
}

/// Makes an empty file, `file` in the root.
pub(crate) async fn file(client: &Client, volume: &Arc<Volume>) -> Made {
    let made = client.create_file(volume, ROOT, b"file", new_file());
    made.await.unwrap()
}

fn stored(cell: &Cell, fid: Fid) -> Bytes {
    cell.servers.world.lock().unwrap().vnodes[&fid].data.clone()
}

#[tokio::test]
async fn files_are_stored_in_parts() {
    for old in [false, true] {
        let cell = cell(|world| world.old_server = old);
        let (client, counts) = (&cell.client, &cell.servers.counts);
        let volume = volume(client).await;
        let made = file(client, &volume).await;
        counts.busy.store(1, Ordering::SeqCst);
        let source = Arc::new(Pattern(2_500_000));
        let result = client.store(&volume, made.fid, &source, new_file()).await;
        let result = result.unwrap();
        assert_eq!((result.bytes, result.calls), (2_500_000, 3));
        assert_eq!(result.status.length, 2_500_000);
        assert_eq!(counts.stores.load(Ordering::SeqCst), 4, "one was busy");
        let expected = source.read_at(0, 2_500_000).await.unwrap();
        assert!(stored(&cell, made.fid) == expected);
        // A shorter one leaves nothing of the longer.
        let short = Arc::new(Pattern(10));
        let result = client.store(&volume, made.fid, &short, new_file()).await;
        assert_eq!(result.unwrap().status.length, 10);
        let empty = Arc::new(Pattern(0));
        let result = client.store(&volume, made.fid, &empty, new_file());
        assert_eq!(result.await.unwrap().status.length, 0);
    }
}

#[tokio::test]
async fn a_file_is_stored_by_many_calls_at_a_time() {
    let mut all = World::default();
    all.volume("root.cell", VOLUME, Some(VOLUME + 1));
    let cell = Cell::start(all, |config| {
        config.piece = Some(10_000);
        config.calls = Some(7);
    });
    let (client, counts) = (&cell.client, &cell.servers.counts);
    let volume = volume(client).await;
    let made = file(client, &volume).await;
    // Some are refused at first, as by a server that is busy.
    counts.busy.store(3, Ordering::SeqCst);
    let source = Arc::new(Pattern(1_234_567));
    let attributes = StoreStatus {
        unix_mode_bits: 0o400,
        ..new_file()
    };
    let result = client.store(&volume, made.fid, &source, attributes).await;
    let result = result.unwrap();
    assert_eq!((result.bytes, result.calls), (1_234_567, 124));
    assert_eq!(counts.stores.load(Ordering::SeqCst), 127);
    // The last one was made when all others were done, and it set the attributes.
    let before = made.status.data_version.0;
    assert_eq!(result.status.data_version.0, before + 124);
    assert_eq!(result.status.unix_mode_bits, 0o400);
    assert_eq!(result.status.length, 1_234_567);
    let expected = source.read_at(0, 1_234_567).await.unwrap();
    assert!(stored(&cell, made.fid) == expected);
    // What lies around a range stays.
    let range = client.store_range(
        &volume,
        made.fid,
        50_000..90_000,
        1_234_567,
        &source,
        attributes,
    );
    assert_eq!(range.await.unwrap().calls, 4);
    assert!(stored(&cell, made.fid) == expected);
}

/// Parts for an afar server are of 64 MiB, and what is left is divided again, so that little is on its
/// way while it is put on the disk.
#[tokio::test]
async fn a_large_file_is_stored_to_its_end() {
    let mut all = World::default();
    all.volume("root.cell", VOLUME, Some(VOLUME + 1));
    let cell = Cell::start(all, |_| {});
    let volume = volume(&cell.client).await;
    let made = file(&cell.client, &volume).await;
    for (mib, calls) in [(90, 3), (128, 3), (80, 2)] {
        let source = Arc::new(Pattern(mib << 20));
        for attributes in [new_file(), StoreStatus::default()] {
            let result = cell.client.store(&volume, made.fid, &source, attributes);
            let result = result.await.unwrap();
            assert_eq!((result.bytes, result.calls), (source.0, calls), "{mib} MiB");
            assert_eq!(result.status.length, source.0);
            let found = stored(&cell, made.fid);
            let mut places = found.iter().enumerate();
            assert!(places.all(|(place, octet)| usize::from(*octet) == place % 251));
        }
    }
}

#[tokio::test]
async fn streams_are_stored_to_their_end() {
    let cell = cell(|_| {});
    let volume = volume(&cell.client).await;
    let made = file(&cell.client, &volume).await;
    for length in [0, 5, 4 << 20, (9 << 20) + 1] {
        let data: Vec<u8> = (0..=250).cycle().take(length).collect();
        let mut stream = data.as_slice();
        let result = cell
            .client
            .store_stream(&volume, made.fid, &mut stream, new_file())
            .await;
        assert_eq!(result.unwrap().bytes, length as u64);
        assert!(stored(&cell, made.fid) == data, "{length}");
    }
}

#[tokio::test]
async fn a_source_that_shrinks_is_an_error() {
    struct Short;
    impl Source for Short {
        fn length(&self) -> u64 {
            100
        }
        async fn read_at(&self, offset: u64, _: usize) -> std::io::Result<Bytes> {
            Ok(if offset == 0 {
                Bytes::from_static(b"short")
            } else {
                Bytes::new()
            })
        }
    }
    let cell = cell(|_| {});
    let volume = volume(&cell.client).await;
    let made = file(&cell.client, &volume).await;
    let result = cell
        .client
        .store(&volume, made.fid, &Arc::new(Short), new_file())
        .await;
    assert!(matches!(result, Err(Error::Source(_))), "{result:?}");
}

#[tokio::test]
async fn what_is_done_is_not_done_again_when_its_answer_is_lost() {
    let cell = cell(|_| {});
    let (client, counts) = (&cell.client, &cell.servers.counts);
    let volume = volume(client).await;
    let lose = || counts.lost.store(1, Ordering::SeqCst);
    let done = || counts.changes.swap(0, Ordering::SeqCst);
    lose();
    let file = file(client, &volume).await;
    assert_eq!(done(), 1);
    lose();
    let directory = client.make_dir(&volume, ROOT, b"dir", new_file()).await;
    let directory = directory.unwrap();
    assert_eq!(directory.status.file_type, FileType::Directory);
    assert_eq!(done(), 1);
    lose();
    let link = client.symlink(&volume, ROOT, b"link", b"file").await;
    let link = link.unwrap();
    assert_eq!((stored(&cell, link.fid), done()), ("file".into(), 1));
    lose();
    let entry = |name: &str, fid| DirEntry {
        name: name.into(),
        fid,
    };
    let moved = client
        .rename(&volume, ROOT, &entry("file", file.fid), directory.fid, b"f")
        .await;
    moved.unwrap();
    assert_eq!(done(), 1);
    lose();
    let gone = entry("f", file.fid);
    client
        .remove_file(&volume, directory.fid, &gone)
        .await
        .unwrap();
    assert_eq!(done(), 1);
    let names = client.list(&volume, ROOT).await.unwrap();
    let names: Vec<_> = names.iter().map(|entry| entry.name.as_slice()).collect();
    assert_eq!(names, [b"dir".as_slice(), b"link"]);
    assert!(
        client
            .list(&volume, directory.fid)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn what_is_not_done_is_done_then() {
    let cell = cell(|_| {});
    let counts = &cell.servers.counts;
    let volume = volume(&cell.client).await;
    counts.not_done.store(2, Ordering::SeqCst);
    let file = file(&cell.client, &volume).await;
    assert_eq!(counts.changes.load(Ordering::SeqCst), 1);
    counts.not_done.store(u64::MAX, Ordering::SeqCst);
    let entry = DirEntry {
        name: b"file".to_vec(),
        fid: file.fid,
    };
    let error = cell.client.remove_file(&volume, ROOT, &entry).await;
    let error = error.unwrap_err();
    assert!(matches!(error, Error::InDoubt(_)), "{error}");
}

#[tokio::test]
async fn what_others_made_or_removed_is_told() {
    let cell = cell(|world| {
        world.directory(ROOT, &[("theirs", 2)]);
        world.file(Fid::new(VOLUME, 2, 1), "data");
    });
    let (client, counts) = (&cell.client, &cell.servers.counts);
    let volume = volume(client).await;
    let taken = client
        .create_file(&volume, ROOT, b"theirs", new_file())
        .await;
    assert_eq!(taken.unwrap_err().errno(), Some(EEXIST));
    // Lost before it is known to be taken: what is there is not ours.
    counts.not_done.store(1, Ordering::SeqCst);
    let taken = client
        .create_file(&volume, ROOT, b"theirs", new_file())
        .await;
    assert_eq!(taken.unwrap_err().errno(), Some(EEXIST));
    // A name that means another file by now is not removed in the place of the one that was meant.
    counts.not_done.store(1, Ordering::SeqCst);
    let other = DirEntry {
        name: b"theirs".to_vec(),
        fid: Fid::new(VOLUME, 8, 1),
    };
    client.remove_file(&volume, ROOT, &other).await.unwrap();
    assert_eq!(counts.changes.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_cannot_be_changed_is_refused_here() {
    let cell = cell(|world| {
        world.directory(Fid::root(VolumeId(VOLUME + 1)), &[("here", 2)]);
        world.link(Fid::new(VOLUME + 1, 2, 1), 0o755, ".");
    });
    let client = &cell.client;
    let slot = client.slot(b"/afs/test.example/here/here").await.unwrap();
    assert_eq!(
        slot.fid,
        Some(Fid::new(VOLUME + 1, 2, 1)),
        "not where it leads"
    );
    let slot = client.slot(b"/afs/test.example/new/").await.unwrap();
    assert_eq!((slot.name.as_slice(), slot.fid), (b"new".as_slice(), None));
    let refused = client.make_dir(&slot.volume, slot.directory, &slot.name, new_file());
    let error = refused.await.unwrap_err();
    assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
    assert_eq!(error.errno(), Some(30));
    let volume = volume(client).await;
    let long = client
        .make_dir(&volume, ROOT, &[b'x'; 300], new_file())
        .await;
    assert!(matches!(long, Err(Error::Text { .. })), "{long:?}");
    for path in ["/afs", "/afs/test.example", "/afs/test.example/..", "/x/y"] {
        assert!(client.slot(path.as_bytes()).await.is_err(), "{path}");
    }
}
