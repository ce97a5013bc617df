//! Copies and syncs with a server in this process: what they count, whom they tell, and where they go on.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use afar_cell::cellservdb::CellEntry;
use afar_cell::{Client, LastLink, MountPoint, Slot, Walked};
use afar_server::Process;
use afar_server::config::Config;
use afar_server::local_cell::{self, AsAdministrator};
use afar_transfer::{
    Change, CopyOptions, Destination, Error, Event, Progress, SyncOptions, SyncPlan, Totals, Tree,
    copy,
};
use afar_types::{Fid, StoreVolumeStatus};
use tempfile::TempDir;
use tokio::sync::Notify;

const CELL: &str = "transfer.example";
const MIB: u64 = 1 << 20;

/// A cell in this process, its administrator, and a folder beside it.
struct Site {
    dir: TempDir,
    process: Process,
    client: Client,
}

fn afs(path: &str) -> PathBuf {
    PathBuf::from(format!("/afs/.{CELL}/{path}"))
}

/// What went wrong, in one line each.
fn told(errors: &[Error]) -> String {
    let mut text = String::new();
    for error in errors {
        let mut cause: Option<&dyn std::error::Error> = Some(error);
        while let Some(error) = cause {
            text.push_str(&format!("{error}: "));
            cause = error.source();
        }
        text.push('\n');
    }
    text
}

impl Site {
    /// AFS's ports are fixed, so each test has a loopback address of its own.
    async fn start(last: u8) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let address = Ipv4Addr::new(127, 94, 0, last);
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("a")).unwrap();
        let text = format!(
            "cell = {CELL:?}\ndata = {:?}\nrun = {:?}\nlisten = \"{address}\"\n\
             [partition.a]\npath = {:?}\n",
            path("data"),
            path("run"),
            path("a"),
        );
        let process = Process::start(Config::parse(&text).unwrap()).await.unwrap();
        process.found_cell().await.unwrap();
        let client = Self::client(dir.path(), address, None);
        let top = afs("");
        let root = client.walk(top.as_os_str().as_encoded_bytes(), LastLink::Follow);
        let Walked::Node(root) = root.await.unwrap() else {
            panic!("the cell has a root");
        };
        let no_limit = StoreVolumeStatus {
            mask: StoreVolumeStatus::SET_MAX_QUOTA,
            ..StoreVolumeStatus::default()
        };
        let set = client.set_volume_status(&root.volume, no_limit, "");
        set.await.unwrap();
        Self {
            dir,
            process,
            client,
        }
    }

    fn client(dir: &Path, address: Ipv4Addr, piece: Option<u64>) -> Client {
        Self::client_with(dir, address, piece, afar_net::Config::default())
    }

    fn client_with(
        dir: &Path,
        address: Ipv4Addr,
        piece: Option<u64>,
        net: afar_net::Config,
    ) -> Client {
        let endpoint = local_cell::endpoint(&dir.join("run"), net).unwrap();
        let cell = CellEntry {
            name: CELL.parse().unwrap(),
            comment: String::new(),
            servers: vec![SocketAddr::from((address, 7003))],
            hosts: Vec::new(),
        };
        let config = afar_cell::Config {
            cells: vec![cell],
            only_cells: true,
            dns: false,
            credentials: Some(Arc::new(AsAdministrator::new())),
            calls: piece.map(|_| 1),
            piece,
            ..afar_cell::Config::default()
        };
        Client::new(endpoint, config).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn try_sync(&self, from: &Path, to: &Path, options: SyncOptions) -> (Totals, String) {
        let mut errors = Vec::new();
        let nobody: Arc<dyn Progress> = Arc::new(());
        let plan = SyncPlan::new(&self.client, from, to, options).await;
        let mut failed = |error| errors.push(error);
        let totals = plan.unwrap().run(&nobody, &mut failed).await;
        (totals, told(&errors))
    }

    /// The totals of a run in which nothing fails.
    async fn sync(&self, from: &Path, to: &Path, options: SyncOptions) -> Totals {
        let (totals, told) = self.try_sync(from, to, options).await;
        assert_eq!(told, "");
        totals
    }

    async fn end(self) {
        self.client.close().await;
        self.process.stop().await.unwrap();
    }
}

/// As usual.
fn plain() -> SyncOptions {
    SyncOptions::default()
}

fn by_contents() -> SyncOptions {
    SyncOptions {
        checksum: true,
        ..plain()
    }
}

fn dry() -> SyncOptions {
    SyncOptions {
        dry_run: true,
        ..plain()
    }
}

fn with_delete() -> SyncOptions {
    SyncOptions {
        delete: true,
        ..plain()
    }
}

/// Writes a file with a time of its own.
fn write(path: &Path, contents: &[u8], seconds: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
    set_time(path, seconds);
}

fn set_time(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000 + seconds, 123);
    File::open(path).unwrap().set_modified(time).unwrap();
}

/// Everything below a directory: kind, mode and time, and what it says.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, (u32, i64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut directories = vec![dir.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let mut time = metadata.mtime();
            let says = if metadata.is_symlink() {
                // A symlink's own time is nobody's concern.
                time = 0;
                let target = fs::read_link(&path).unwrap();
                target.into_os_string().into_encoded_bytes()
            } else if metadata.is_dir() {
                directories.push(path.clone());
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            let name = path.strip_prefix(dir).unwrap().to_owned();
            all.insert(name, (metadata.mode(), time, says));
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn only_contents_tell_what_size_and_time_do_not() {
    let site = Site::start(1).await;
    let (here, there, back) = (site.path("here"), afs("tree"), site.path("back"));
    write(&here.join("a"), b"one", 1);
    write(&here.join("b"), b"the same", 1);
    site.sync(&here, &there, plain()).await;
    site.sync(&there, &back, plain()).await;
    write(&here.join("a"), b"two", 1);
    set_time(&here.join("b"), 50);
    let only_told = SyncOptions {
        checksum: true,
        ..dry()
    };
    let totals = site.sync(&here, &there, only_told).await;
    assert_eq!((totals.files, totals.attributes), (1, 1));
    let totals = site.sync(&here, &there, by_contents()).await;
    assert_eq!((totals.files, totals.attributes, totals.bytes), (1, 1, 3));
    // The time of b only, which has b copied when contents are not compared.
    assert_eq!(site.sync(&there, &back, dry()).await.files, 1);
    let totals = site.sync(&there, &back, by_contents()).await;
    assert_eq!((totals.files, totals.attributes), (1, 1));
    assert_eq!(snapshot(&here), snapshot(&back));
    site.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_kind_of_thing_takes_the_place_of_another() {
    let site = Site::start(2).await;
    let (here, there, back) = (site.path("here"), afs("tree"), site.path("back"));
    write(&here.join("dir/x"), b"x", 1);
    write(&here.join("file"), b"file", 1);
    write(&here.join("other"), b"other", 1);
    symlink("file", here.join("link")).unwrap();
    symlink("dir", here.join("dirlink")).unwrap();
    site.sync(&here, &there, plain()).await;
    site.sync(&there, &back, plain()).await;

    fs::remove_dir_all(&here).unwrap();
    write(&here.join("dir"), b"a file now", 1);
    write(&here.join("file/y"), b"y", 1);
    symlink("dir", here.join("other")).unwrap();
    write(&here.join("link"), b"a file", 1);
    write(&here.join("dirlink/z"), b"z", 1);
    for (from, to) in [(&here, &there), (&there, &back)] {
        let (totals, told) = site.try_sync(from, to, plain()).await;
        assert!(
            told.contains("is a directory, and nothing is deleted"),
            "{told}"
        );
        assert_eq!(told.lines().count(), 1, "{told}");
        // The others are done.
        assert_eq!((totals.files, totals.symlinks), (3, 1));
        let totals = site.sync(from, to, with_delete()).await;
        assert_eq!((totals.files, totals.deleted), (1, 2));
    }
    assert_eq!(snapshot(&here), snapshot(&back));
    site.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_file_becomes_the_same() {
    let site = Site::start(3).await;
    let (here, there, copies) = (site.path("film"), afs("film"), site.path("copies"));
    write(&here, b"a film", 1);
    assert_eq!(site.sync(&here, &there, plain()).await.files, 1);
    assert_eq!(site.sync(&here, &there, plain()).await.unchanged, 1);
    // Into a directory under its own name, and nothing else there is touched.
    write(&copies.join("other"), b"mine", 1);
    assert_eq!(site.sync(&there, &copies, with_delete()).await.files, 1);
    assert_eq!(fs::read(copies.join("film")).unwrap(), b"a film");
    assert_eq!(site.sync(&there, &copies, plain()).await.unchanged, 1);
    assert!(copies.join("other").exists());
    // Another version, another name, and only told.
    write(&here, b"a longer film", 2);
    let other = afs("other");
    assert_eq!(site.sync(&here, &other, dry()).await.files, 1);
    assert_eq!(site.sync(&here, &other, plain()).await.files, 1);
    let totals = site.sync(&here, &there, plain()).await;
    assert_eq!((totals.files, totals.bytes), (1, 13));
    let nowhere = SyncPlan::new(&site.client, &here, &afs("no/where"), plain()).await;
    let error = told(&[nowhere.unwrap_err()]);
    assert!(error.contains("no such directory"), "{error}");
    // A copy below the root is all that has a name.
    let names = site.path("names");
    site.sync(&afs(""), &names, plain()).await;
    let names: Vec<_> = snapshot(&names).into_keys().collect();
    assert_eq!(names, [Path::new("film"), Path::new("other")]);
    site.end().await;
}

/// Counts what it is told, and says when so much was copied.
#[derive(Debug, Default)]
struct Counter {
    begun: Mutex<Vec<u64>>,
    expected: AtomicU64,
    copied: AtomicU64,
    changes: Mutex<Vec<(Change, Vec<u8>)>>,
    /// Bytes at which it says so; none if it is 0.
    enough: u64,
    is_enough: Notify,
}

impl Progress for Counter {
    fn tell(&self, event: Event<'_>) {
        match event {
            Event::Begun { number, .. } => self.begun.lock().unwrap().push(number),
            Event::Ended { number } => self.begun.lock().unwrap().retain(|one| *one != number),
            Event::Expected(bytes) => {
                self.expected.fetch_add(bytes, Ordering::Relaxed);
            }
            Event::Copied(bytes) => {
                let copied = self.copied.fetch_add(bytes, Ordering::Relaxed) + bytes;
                if self.enough > 0 && copied >= self.enough {
                    self.is_enough.notify_one();
                }
            }
            _ => {}
        }
    }

    fn changed(&self, change: Change, path: &[u8]) -> io::Result<()> {
        let mut changes = self.changes.lock().unwrap();
        changes.push((change, path.to_vec()));
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_and_changes_are_plain_events() {
    let site = Site::start(4).await;
    let (here, there) = (site.path("here"), afs("tree"));
    write(&here.join("sub/a"), b"four", 1);
    write(&here.join("b"), &[7; 70_000], 1);
    symlink("b", here.join("c")).unwrap();
    for (options, copied) in [(dry(), 0), (plain(), 70_004)] {
        let counter = Arc::new(Counter::default());
        let progress: Arc<dyn Progress> = Arc::clone(&counter) as _;
        let plan = SyncPlan::new(&site.client, &here, &there, options).await;
        let mut failed = |error: Error| panic!("{error}");
        let totals = plan.unwrap().run(&progress, &mut failed).await;
        assert_eq!((totals.files, totals.bytes), (2, 70_004));
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        assert_eq!(count(&counter.copied), copied);
        assert_eq!(count(&counter.expected), copied);
        assert!(counter.begun.lock().unwrap().is_empty());
        let mut changes = counter.changes.lock().unwrap().clone();
        changes.sort_by(|one, other| one.1.cmp(&other.1));
        let expected: [(Change, &[u8]); 4] = [
            (Change::Copy, b"b"),
            (Change::Link, b"c"),
            (Change::Make, b"sub"),
            (Change::Copy, b"sub/a"),
        ];
        let expected = expected.map(|(change, path)| (change, path.to_vec()));
        assert_eq!(changes, expected);
    }
    site.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_dropped_is_gone_on_with() {
    let site = Site::start(5).await;
    let (here, there, down) = (site.path("big"), afs("big"), site.path("down"));
    let data: Vec<u8> = (0..48 * MIB)
        .map(|at| (at % 251).to_le_bytes()[0])
        .collect();
    write(&here, &data, 1);
    fs::create_dir(&down).unwrap();
    site.sync(&here, &there, plain()).await;

    let slow = Site::client(site.dir.path(), Ipv4Addr::new(127, 94, 0, 5), Some(MIB));
    let counter = Arc::new(Counter {
        enough: 24 * MIB,
        ..Counter::default()
    });
    let progress: Arc<dyn Progress> = Arc::clone(&counter) as _;
    let sources = [there];
    let into = Destination::Into(down.clone());
    let options = CopyOptions {
        preserve: true,
        calls: NonZeroUsize::new(1),
        ..CopyOptions::default()
    };
    let mut failed = |error: Error| panic!("{error}");
    let copying = copy(&slow, &sources, &into, options, &progress, &mut failed);
    tokio::select! {
        _ = copying => panic!("it was done before"),
        () = counter.is_enough.notified() => {}
    }
    slow.close().await;
    assert!(!down.join("big").exists());

    // The tasks of the first copy may still hold the file for a moment.
    let begin = Instant::now();
    let nobody: Arc<dyn Progress> = Arc::new(());
    let totals = loop {
        let mut errors = Vec::new();
        let mut failed = |error| errors.push(error);
        let copied = copy(&site.client, &sources, &into, options, &nobody, &mut failed);
        let totals = copied.await.unwrap();
        if errors.is_empty() {
            break totals;
        }
        let told = told(&errors);
        assert!(begin.elapsed() < Duration::from_secs(20), "{told}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(totals.kept >= 16 * MIB, "{}", totals.kept);
    assert_eq!(totals.bytes, 48 * MIB - totals.kept);
    assert!(fs::read(down.join("big")).unwrap() == data);
    assert_eq!(fs::read_dir(&down).unwrap().count(), 1);
    site.end().await;
}

/// Where a name of the root volume is.
async fn slot(client: &Client, name: &str) -> Slot {
    let path = afs(name);
    let slot = client.slot(path.as_os_str().as_encoded_bytes()).await;
    slot.unwrap()
}

/// Removes a tree; returns whether all is gone, how many names are, and what went wrong.
async fn remove(
    client: &Client,
    name: &str,
    stays: &(dyn Fn(&[u8], Fid) -> bool + Sync),
) -> (bool, u64, String) {
    let slot = slot(client, name).await;
    let mut errors = Vec::new();
    let mut tree = Tree {
        client,
        volume: &slot.volume,
        stays,
        pretend: false,
        removed: 0,
        note: &mut |error| errors.push(error),
    };
    let entry = slot.entry().unwrap();
    let removing = tree.remove(slot.directory, entry, name.as_bytes().to_vec());
    let gone = removing.await;
    let removed = tree.removed;
    (gone, removed, told(&errors))
}

/// What the server counted of batches that came.
fn batches(site: &Site) -> String {
    let families = site.process.registry().collect();
    let mut received = families.iter().flat_map(|family| {
        let is_received = family.desc.name() == "afar_rpc_received_bytes_total";
        family.series.iter().filter(move |_| is_received)
    });
    let batch = received.find(|series| {
        let mut labels = series.labels.iter();
        labels.any(|(label, operation)| *label == "operation" && operation == "batch")
    });
    format!("{:?}", batch.map(|series| &series.value))
}

/// First by batches, then by a client that takes no server for afar's.
#[tokio::test(flavor = "multi_thread")]
async fn trees_are_removed_by_batches_and_by_single_calls() {
    let site = Site::start(6).await;
    let mut net = afar_net::Config::default();
    net.rx.extension = false;
    let other = Site::client_with(site.dir.path(), Ipv4Addr::new(127, 94, 0, 6), None, net);
    let here = site.path("here");
    // More than a batch has, wide and deep.
    for number in 0..700 {
        write(&here.join(format!("many/{number}")), b"", 1);
    }
    for number in 0..40 {
        write(&here.join(format!("deep/{number}/a/b/c")), b"c", 1);
    }
    symlink("many", here.join("link")).unwrap();
    fs::create_dir(here.join("empty")).unwrap();
    let names = u64::try_from(snapshot(&here).len()).unwrap();
    let nothing = |_: &[u8], _: Fid| false;
    for (client, by_batches) in [(&site.client, true), (&other, false)] {
        let before = batches(&site);
        site.sync(&here, &afs("tree"), plain()).await;
        let slot = slot(client, "tree").await;
        let looking = client.lookup(&slot.volume, slot.fid.unwrap(), b"many");
        let (volume, many) = (&slot.volume, looking.await.unwrap().unwrap());
        let target = MountPoint::parse(b"#root.cell.").unwrap();
        let mount = client.make_mount(volume, many, b"mount", &target);
        mount.await.unwrap();

        // What stays keeps what it is in, and only that.
        let stays = |path: &[u8], _: Fid| path == b"tree/deep/7/a/b/c";
        let (gone, removed, told) = remove(client, "tree", &stays).await;
        assert!(!gone);
        assert!(told.contains("many/mount: is a mount point"), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
        // One with what it is in, and what the mount point is in.
        assert_eq!(removed, names - 6);
        assert_eq!(batches(&site) != before, by_batches, "{before}");
        let left = client.list(volume, many).await.unwrap();
        assert_eq!(left.len(), 1);
        client.remove_file(volume, many, &left[0]).await.unwrap();
        let (gone, removed, told) = remove(client, "tree", &nothing).await;
        assert_eq!((gone, removed, told.as_str()), (true, 7, ""));
        assert_eq!(self::slot(client, "tree").await.fid, None);
    }
    other.close().await;
    site.end().await;
}
