//! The simulated disk finds what it should: nothing in a database that syncs, much in one that does
//! not, and lost bytes and names wherever a sync is missing.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use heed::types::{Bytes, U32};
use heed::{CommitOrAbort, Env, EnvFlags, EnvOpenOptions};

use crate::event::Event;
use crate::fault::{Call, Failure, Fault};
use crate::power_cut::PowerCut;
use crate::recorder::{Log, Recorder, scratch};
use crate::respawn::{respawn, role, wait};

type Rows<'env> = heed::Database<'env, U32<heed::byteorder::BigEndian>, Bytes>;

/// The key that holds the number of the last transaction.
const LAST: u32 = u32::MAX;
const TRANSACTIONS: u32 = 120;

/// By key, the transaction that wrote it.
type Snapshot = BTreeMap<u32, u32>;

#[expect(unsafe_code, reason = "LMDB maps the file into memory")]
fn open(dir: &Path, flags: EnvFlags) -> heed::Result<Env> {
    let mut options = EnvOpenOptions::new();
    options.map_size(64 << 20).max_dbs(1);
    // SAFETY: NO_SYNC costs durability, which is what the test wants; nobody else has the file.
    unsafe { options.flags(flags).open(dir) }
}

fn rows(env: &Env) -> heed::Result<Rows<'_>> {
    let made = env.create_databases_and_commit(env.write_txn()?, |databases, transaction| {
        databases
            .create_database(transaction, Some("rows"))
            .map(CommitOrAbort::<_, ()>::Commit)
    })?;
    Ok(made.unwrap_commit())
}

/// What a transaction puts under a key; every tenth value fills pages of its own.
fn value(transaction: u32, key: u32) -> Vec<u8> {
    let mut rng = Rng::with_seed(u64::from(transaction) << 32 | u64::from(key));
    let longest = if key.is_multiple_of(10) { 9000 } else { 300 };
    let len = rng.usize(0..longest);
    std::iter::repeat_with(|| rng.u8(..)).take(len).collect()
}

/// What each transaction puts (`true`) and removes.
fn changes(seed: u64, transaction: u32) -> Vec<(u32, bool)> {
    let mut rng = Rng::with_seed(seed ^ u64::from(transaction));
    (0..rng.usize(1..20))
        .map(|_| (rng.u32(0..500), rng.u8(0..4) != 0))
        .collect()
}

/// The rows after each transaction.
fn history(seed: u64) -> Vec<Snapshot> {
    let mut rows = Snapshot::new();
    let mut history = vec![rows.clone()];
    for transaction in 1..=TRANSACTIONS {
        for (key, put) in changes(seed, transaction) {
            if put {
                rows.insert(key, transaction);
            } else {
                rows.remove(&key);
            }
        }
        history.push(rows.clone());
    }
    history
}

/// Runs the transactions, each marked once it is committed.
fn record_database(seed: u64, flags: EnvFlags) -> Log {
    let dir = scratch();
    rows(&open(dir.path(), flags).unwrap()).unwrap();
    let recorder = Recorder::start(dir.path());
    let env = open(dir.path(), flags).unwrap();
    let rows = rows(&env).unwrap();
    for transaction in 1..=TRANSACTIONS {
        let mut writer = env.write_txn().unwrap();
        for (key, put) in changes(seed, transaction) {
            if put {
                rows.put(&mut writer, &key, &value(transaction, key))
                    .unwrap();
            } else {
                rows.delete(&mut writer, &key).unwrap();
            }
        }
        rows.put(&mut writer, &LAST, &transaction.to_be_bytes())
            .unwrap();
        writer.commit().unwrap();
        recorder.mark(transaction.into());
    }
    drop(env);
    recorder.stop().unwrap()
}

/// Whether a database holds what it must, given the last transaction that was acknowledged.
fn verify(dir: &Path, history: &[Snapshot], acknowledged: u32) -> Result<(), String> {
    let env = open(dir, EnvFlags::empty()).map_err(|error| error.to_string())?;
    let rows = rows(&env).map_err(|error| error.to_string())?;
    let reader = env.read_txn().map_err(|error| error.to_string())?;
    let mut last = 0;
    let mut found = BTreeMap::new();
    for row in rows.iter(&reader).map_err(|error| error.to_string())? {
        let (key, bytes) = row.map_err(|error| error.to_string())?;
        if key == LAST {
            last = bytes
                .try_into()
                .map(u32::from_be_bytes)
                .map_err(|_| "a torn row")?;
        } else {
            found.insert(key, bytes.to_vec());
        }
    }
    if last < acknowledged || last > acknowledged + 1 {
        return Err(format!(
            "{acknowledged} were acknowledged, the last is {last}"
        ));
    }
    let expected = &history[last as usize];
    if !found.keys().eq(expected.keys()) {
        return Err(format!("the keys are not those after transaction {last}"));
    }
    match expected
        .iter()
        .find(|(key, from)| found[key] != value(**from, **key))
    {
        Some((key, _)) => Err(format!(
            "row {key} is not what it was after transaction {last}"
        )),
        None => Ok(()),
    }
}

fn acknowledged(log: &Log, point: usize) -> u32 {
    u32::try_from(log.marks(point).last().unwrap_or(0)).unwrap()
}

/// So many points of a log, in order, spread evenly.
fn points(log: &Log, count: usize) -> impl Iterator<Item = (u64, usize)> {
    let len = log.len();
    (0..count).map(move |number| (number as u64, number * len / (count - 1)))
}

#[test]
fn a_database_that_syncs_loses_nothing() {
    let log = record_database(1, EnvFlags::empty());
    let history = history(1);
    let synced = log.count(|event| matches!(event, Event::Write { synced: true, .. }));
    assert!(
        synced >= TRANSACTIONS as usize,
        "the meta page goes through O_DSYNC"
    );
    let mut power_cut = PowerCut::new(&log);
    let mut in_flight = 0;
    for (seed, point) in points(&log, 500) {
        let image = scratch();
        power_cut.image(point, seed, image.path()).unwrap();
        let acknowledged = acknowledged(&log, point);
        if let Err(error) = verify(image.path(), &history, acknowledged) {
            panic!("point {point}, seed {seed}: {error}");
        }
        in_flight += usize::from(verify(image.path(), &history, acknowledged + 1).is_ok());
    }
    assert!(
        in_flight > 5,
        "a commit that was under way is sometimes there: {in_flight}"
    );
}

/// A database that was not synced may crash whoever reads it, so a child does.
#[test]
fn a_database_that_does_not_sync_loses_commits() {
    let log = record_database(2, EnvFlags::NO_SYNC);
    let mut power_cut = PowerCut::new(&log);
    let mut bad = 0;
    for (seed, point) in points(&log, 60) {
        let image = scratch();
        power_cut.image(point, seed, image.path()).unwrap();
        let role = format!("{} {}", acknowledged(&log, point), image.path().display());
        let mut child = respawn("harness::child_verifies_an_image", &role).unwrap();
        let status = wait(&mut child, Duration::from_secs(20)).unwrap();
        bad += usize::from(!status.success());
    }
    assert!(bad >= 20, "of 60 images {bad} were found to lack something");
}

/// Not a test of its own.
#[test]
#[ignore = "a child of another test"]
fn child_verifies_an_image() {
    let Some(role) = role() else { return };
    let (acknowledged, image) = role.split_once(' ').unwrap();
    verify(Path::new(image), &history(2), acknowledged.parse().unwrap()).unwrap();
}

/// Records writes of 10,000 bytes each to a new file, and says in how many of `count` images at the
/// end the file, its length or a byte of it is lost.
fn images_with_a_loss(count: u64, write: impl Fn(&Path)) -> u64 {
    let dir = scratch();
    let recorder = Recorder::start(dir.path());
    write(dir.path());
    let log = recorder.stop().unwrap();
    let mut power_cut = PowerCut::new(&log);
    let whole: Vec<u8> = (0..5_u8).flat_map(|number| [number + 1; 10_000]).collect();
    (0..count)
        .filter(|seed| {
            let image = scratch();
            power_cut.image(log.len(), *seed, image.path()).unwrap();
            fs::read(image.path().join("00000001.seg")).ok() != Some(whole.clone())
        })
        .count() as u64
}

fn segment(dir: &Path) -> File {
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(dir.join("00000001.seg"));
    let file = file.unwrap();
    for number in 0..5_u8 {
        file.write_all_at(&[number + 1; 10_000], u64::from(number) * 10_000)
            .unwrap();
    }
    file
}

fn sync_dir(dir: &Path) {
    File::open(dir).unwrap().sync_all().unwrap();
}

#[test]
fn a_segment_keeps_its_bytes_if_file_and_directory_are_synced() {
    let lost = images_with_a_loss(200, |dir| {
        segment(dir).sync_data().unwrap();
        sync_dir(dir);
    });
    assert_eq!(lost, 0);
}

#[test]
fn a_segment_that_is_not_synced_loses_bytes() {
    let lost = images_with_a_loss(200, |dir| {
        segment(dir);
        sync_dir(dir);
    });
    assert!((100..200).contains(&lost), "{lost} of 200");
}

#[test]
fn a_segment_in_a_directory_that_is_not_synced_loses_its_name() {
    let lost = images_with_a_loss(200, |dir| segment(dir).sync_data().unwrap());
    assert!((50..150).contains(&lost), "{lost} of 200");
}

#[test]
fn a_segment_renamed_is_there_under_one_name() {
    let dir = scratch();
    let recorder = Recorder::start(dir.path());
    segment(dir.path()).sync_data().unwrap();
    sync_dir(dir.path());
    let [from, to] = ["00000001.seg", "00000002.seg"];
    fs::rename(dir.path().join(from), dir.path().join(to)).unwrap();
    let log = recorder.stop().unwrap();
    let mut power_cut = PowerCut::new(&log);
    let mut renamed = 0;
    for seed in 0..100 {
        let image = scratch();
        power_cut.image(log.len(), seed, image.path()).unwrap();
        let names = [from, to].map(|name| image.path().join(name).exists());
        assert_ne!(names[0], names[1], "seed {seed}");
        renamed += usize::from(names[1]);
    }
    assert!((20..80).contains(&renamed), "{renamed} of 100");
}

#[test]
fn a_failed_sync_is_not_made_good_by_a_later_one() {
    let dir = scratch();
    let recorder = Recorder::start(dir.path());
    let file = segment(dir.path());
    sync_dir(dir.path());
    recorder.inject(Fault {
        calls: vec![Call::Sync],
        suffix: ".seg",
        after: 0,
        times: 1,
        failure: Failure::Error(libc::EIO),
    });
    assert_eq!(
        file.sync_data().unwrap_err().raw_os_error(),
        Some(libc::EIO)
    );
    file.sync_data().unwrap();
    let log = recorder.stop().unwrap();
    let image = scratch();
    PowerCut::new(&log)
        .image(log.len(), 0, image.path())
        .unwrap();
    let bytes = fs::read(image.path().join("00000001.seg")).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn faults_strike_as_often_as_they_say() {
    let dir = scratch();
    let recorder = Recorder::start(dir.path());
    let mut file = segment(dir.path());
    let fault = Fault {
        calls: vec![Call::Write],
        suffix: ".seg",
        after: 1,
        times: 2,
        failure: Failure::Error(libc::ENOSPC),
    };
    recorder.inject(fault.clone());
    recorder.inject(Fault {
        after: 2,
        times: 1,
        failure: Failure::Short,
        ..fault
    });
    let results: Vec<_> = (0..5)
        .map(|_| file.write(b"afar").map_err(|e| e.raw_os_error()))
        .collect();
    let full = Err(Some(libc::ENOSPC));
    assert_eq!(results, [Ok(4), full, full, Ok(4), Ok(2)]);
    let read_only = |calls| Fault {
        calls,
        suffix: "",
        after: 0,
        times: u64::MAX,
        failure: Failure::Error(libc::EROFS),
    };
    recorder.inject(read_only(Vec::new()));
    let error = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    assert_eq!(error(file.write_all(b"afar")), Some(libc::EROFS));
    assert_eq!(error(file.sync_all()), Some(libc::EROFS));
    assert_eq!(error(file.set_len(1)), Some(libc::EROFS));
    assert_eq!(
        error(fs::write(dir.path().join("new"), b"")),
        Some(libc::EROFS)
    );
    assert_eq!(
        error(fs::remove_file(dir.path().join("00000001.seg"))),
        Some(libc::EROFS)
    );
    recorder.heal();
    file.write_all(b"afar").unwrap();
    recorder.stop().unwrap();
}

/// A commit on a disk that fails is refused, and what was committed before is still there.
#[test]
fn a_database_on_a_failing_disk_keeps_what_it_had() {
    for (call, errno) in [
        (Call::Write, libc::ENOSPC),
        (Call::Write, libc::EIO),
        (Call::Sync, libc::EIO),
    ] {
        let dir = scratch();
        let recorder = Recorder::start(dir.path());
        let env = open(dir.path(), EnvFlags::empty()).unwrap();
        let database = rows(&env).unwrap();
        let mut writer = env.write_txn().unwrap();
        database.put(&mut writer, &1, b"kept").unwrap();
        writer.commit().unwrap();
        recorder.inject(Fault {
            calls: vec![call],
            suffix: "data.mdb",
            after: 0,
            times: 1,
            failure: Failure::Error(errno),
        });
        let mut writer = env.write_txn().unwrap();
        database.put(&mut writer, &2, b"refused").unwrap();
        assert!(writer.commit().is_err());
        drop(env);
        recorder.stop().unwrap();
        let env = open(dir.path(), EnvFlags::empty()).unwrap();
        let database = rows(&env).unwrap();
        let reader = env.read_txn().unwrap();
        assert_eq!(database.get(&reader, &1).unwrap(), Some(&b"kept"[..]));
        assert_eq!(database.get(&reader, &2).unwrap(), None);
    }
}

/// What goes round the recorded calls is noticed, so that no test believes a log that lacks it.
#[test]
fn a_write_that_is_not_recorded_is_noticed() {
    let dir = scratch();
    let recorder = Recorder::start(dir.path());
    let file = segment(dir.path());
    // A copy within the kernel is made by none of the recorded calls.
    fs::copy(dir.path().join("00000001.seg"), dir.path().join("copy")).unwrap();
    drop(file);
    let error = recorder.stop().unwrap_err();
    assert!(error.ends_with("copy differs at 0"), "{error}");
}
