use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use afar_types::{
    BATCH_BYTES, BatchCondition, BatchMake, BatchOperation, BatchVnode, FileName, StoreStatus,
    VolumeId,
};
use afar_xdr::{FixedOpaque, Opaque};
use proptest::prelude::*;

use super::record::header_of;
use super::*;

/// A change of a volume, with this many bytes of data.
fn made(number: u64, volume: u32, bytes: usize) -> Made {
    let target = BatchVnode {
        vnode: 2.into(),
        uniquifier: 3.into(),
    };
    let data = vec![number.to_be_bytes()[7]; bytes];
    let operation = BatchOperation::StoreData {
        target,
        attributes: StoreStatus::default(),
        data: Opaque::new(data).unwrap(),
    };
    Made {
        number,
        cell: "a.example".try_into().unwrap(),
        volume: VolumeId(volume),
        user: 1000,
        change: operation.into(),
    }
}

fn sent(batch: u64, volume: u32, numbers: &[u64]) -> SentBatch {
    SentBatch {
        cell: "a.example".try_into().unwrap(),
        volume: VolumeId(volume),
        user: 1000,
        series: FixedOpaque([7; 16]),
        batch,
        numbers: List::new(numbers).unwrap(),
    }
}

fn open(dir: &Path) -> (Journal, LeftChanges) {
    Journal::open(dir).unwrap()
}

fn left(dir: &Path) -> LeftChanges {
    open(dir).1
}

/// What would be left, without opening the file that another journal here adds to.
fn peek(dir: &Path) -> LeftChanges {
    let other = tempfile::tempdir().unwrap();
    fs::copy(file(dir), file(other.path())).unwrap();
    let found = left(other.path());
    assert!(lost(other.path()).is_empty());
    found
}

fn numbers(left: &LeftChanges) -> Vec<u64> {
    left.changes.iter().map(|made| made.number).collect()
}

fn file(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

fn length(dir: &Path) -> u64 {
    fs::metadata(file(dir)).unwrap().len()
}

/// What is in lost+found, by name.
fn lost(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = fs::read_dir(dir.join("lost+found")) else {
        return BTreeMap::new();
    };
    let entries = entries.map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// A journal of three changes, and where its records begin and end.
fn three(dir: &Path) -> Vec<u64> {
    let (journal, _) = open(dir);
    let mut ends = vec![HEADER];
    for number in 1..=3 {
        journal.made(&made(number, 7, 10)).unwrap();
        ends.push(length(dir));
    }
    ends
}

#[test]
fn what_is_not_done_comes_back_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, before) = open(dir.path());
    assert!(before.changes.is_empty() && before.batches.is_empty());
    assert!(!file(dir.path()).exists());
    let mut all = Vec::new();
    for volume in [7, 8, 7, 9, 8, 7] {
        let made = made(journal.next_number(), volume, 100);
        journal.made(&made).unwrap();
        all.push(made);
    }
    assert_eq!(numbers(&peek(dir.path())), [1, 2, 3, 4, 5, 6]);
    let batches = [
        sent(4, 7, &[1, 3]),
        sent(9, 8, &[5, 2]),
        sent(5, 7, &[6, 3]),
        sent(6, 9, &[4]),
    ];
    for batch in &batches {
        journal.sent(batch).unwrap();
    }
    let all_bytes = journal.bytes();
    journal.done(&[2, 4, 77]).unwrap();
    assert_eq!(journal.bytes(), all_bytes / 3 * 2);

    let (again, found) = open(dir.path());
    all.retain(|made| ![2, 4].contains(&made.number));
    assert_eq!(found.changes, all);
    // The last of each volume, but for that of which all is done.
    assert_eq!(found.batches, [batches[2].clone(), batches[1].clone()]);
    assert_eq!(again.bytes(), journal.bytes());
    assert_eq!((again.next_number(), again.next_number()), (7, 8));
    let mode = fs::metadata(file(dir.path())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn every_change_that_a_batch_may_have_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    let make = BatchMake {
        directory: BatchVnode::made_by(4),
        name: FileName::new("n".repeat(256)).unwrap(),
        attributes: StoreStatus::default(),
        wanted: BatchVnode::made_by(1),
    };
    let condition = BatchCondition {
        vnode: BatchVnode::made_by(2),
        lease: u64::MAX,
        version: 8,
    };
    let mut greatest = made(1, 7, BATCH_BYTES);
    greatest.change.under = List::new(vec![condition; 4]).unwrap();
    greatest.cell = "c".repeat(255).as_str().try_into().unwrap();
    let mut symlink = made(2, 7, 0);
    let target = "t".repeat(1024).as_str().try_into().unwrap();
    symlink.change = BatchOperation::Symlink(make, target).into();
    for made in [&greatest, &symlink] {
        journal.made(made).unwrap();
    }
    let many: Vec<u64> = (1..=512).collect();
    journal.sent(&sent(1, 7, &many)).unwrap();
    let found = left(dir.path());
    assert!(found.changes == [greatest, symlink]);
    assert_eq!(found.batches, [sent(1, 7, &many)]);
}

#[test]
fn when_all_is_done_the_file_is_empty_and_numbers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    for round in 0..3 {
        let count = 1500;
        let all: Vec<u64> = (0..count).map(|_| journal.next_number()).collect();
        assert_eq!(all[0], round * count + 1);
        for number in &all {
            journal.made(&made(*number, 7, 1)).unwrap();
        }
        journal.sent(&sent(1, 7, &all[..500])).unwrap();
        // One record does not hold so many.
        journal.done(&all[1..]).unwrap();
        assert_eq!(numbers(&peek(dir.path())), all[..1]);
        journal.done(&all).unwrap();
        assert_eq!((length(dir.path()), journal.bytes()), (HEADER, 0));
        assert!(peek(dir.path()).batches.is_empty());
    }
}

#[test]
fn numbers_of_what_is_done_are_not_given_again() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    for number in 1..=3 {
        journal.made(&made(number, 7, 1)).unwrap();
    }
    let error = journal.made(&made(2, 8, 1)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    journal.sent(&sent(1, 7, &[1, 9])).unwrap();
    assert_eq!(open(dir.path()).0.next_number(), 10);
    journal.done(&[2, 3]).unwrap();
    assert_eq!(open(dir.path()).0.next_number(), 10);
}

#[test]
fn a_record_that_is_cut_off_is_lost_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let ends = three(dir.path());
    let whole = fs::read(file(dir.path())).unwrap();
    for end in 0..whole.len() {
        fs::write(file(dir.path()), &whole[..end]).unwrap();
        let (journal, found) = open(dir.path());
        let there = ends[1..].iter().filter(|at| **at <= end as u64).count();
        assert_eq!(numbers(&found).len(), there, "{end}");
        // What comes next is behind the last whole one.
        let next = made(journal.next_number(), 8, 40);
        assert_eq!(next.number, there as u64 + 1);
        journal.made(&next).unwrap();
        let found = left(dir.path());
        assert_eq!(
            (found.changes.len(), &found.changes[there]),
            (there + 1, &next)
        );
    }
    assert!(lost(dir.path()).is_empty());
}

#[test]
fn from_where_it_is_damaged_it_is_put_where_a_user_finds_it() {
    let dir = tempfile::tempdir().unwrap();
    let ends = three(dir.path());
    let whole = fs::read(file(dir.path())).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(file(dir.path()), &bytes).unwrap();
        let found = left(dir.path());
        let there = ends[1..].iter().filter(|end| **end <= at as u64).count();
        assert_eq!(numbers(&found), (1..=there as u64).collect::<Vec<_>>());
        let from = ends.iter().rfind(|end| **end <= at as u64);
        let from = from.map_or(0, |end| usize::try_from(*end).unwrap());
        let lost = lost(dir.path());
        assert_eq!(lost.get(NAME).unwrap(), &bytes[from..], "{at}");
        assert_eq!(lost.len(), 1);
        fs::remove_file(dir.path().join("lost+found").join(NAME)).unwrap();
        assert_eq!(numbers(&left(dir.path())), numbers(&found));
    }
}

#[test]
fn what_is_damaged_again_has_another_name() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["journal", "journal-2", "journal-3"] {
        fs::write(file(dir.path()), name).unwrap();
        assert!(left(dir.path()).changes.is_empty());
        assert_eq!(lost(dir.path()).get(name).unwrap(), name.as_bytes());
        three(dir.path());
    }
}

#[test]
fn a_newer_version_is_refused_and_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let newer = [&header_of(2)[..], b"what this version knows nothing of"].concat();
    fs::write(file(dir.path()), &newer).unwrap();
    let error = Journal::open(dir.path()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    assert!(error.to_string().contains("version 2"), "{error}");
    assert_eq!(fs::read(file(dir.path())).unwrap(), newer);
}

#[test]
fn where_the_disk_is_full_nothing_of_a_record_stays() {
    for room in 0..=200 {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = open(dir.path());
        let full = |journal: &Journal, at| {
            let mut state = journal.state.lock();
            let path = file(dir.path());
            let tail = state.tail.get_or_insert_with(|| Tail::make(&path).unwrap());
            tail.full_at = at;
        };
        full(&journal, room);
        let first = journal.made(&made(1, 7, 10));
        full(&journal, room + 200);
        if let Err(error) = &first {
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            assert!(numbers(&peek(dir.path())).is_empty());
            assert!(length(dir.path()) <= HEADER);
            journal.made(&made(1, 7, 10)).unwrap();
        }
        let before = (length(dir.path()), journal.bytes());
        let batch = sent(1, 7, &(1..=100).collect::<Vec<_>>());
        journal.sent(&batch).unwrap_err();
        journal.made(&made(2, 7, 4000)).unwrap_err();
        assert_eq!((length(dir.path()), journal.bytes()), before);
        // A file that cannot be cut off now is cut off before more is added.
        journal.state.lock().tail.as_mut().unwrap().cut_fails = true;
        journal.made(&made(2, 7, 4000)).unwrap_err();
        journal.state.lock().tail.as_mut().unwrap().cut_fails = false;
        full(&journal, u64::MAX);
        journal.made(&made(3, 7, 0)).unwrap();
        assert_eq!(numbers(&peek(dir.path())), [1, 3]);
        assert!(lost(dir.path()).is_empty());
    }
}

#[test]
fn what_is_done_is_done_where_the_file_cannot_be_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    three(dir.path());
    let (journal, _) = open(dir.path());
    journal.state.lock().tail.as_mut().unwrap().cut_fails = true;
    journal.done(&[1, 2, 3]).unwrap();
    assert!(length(dir.path()) > HEADER);
    assert_eq!(journal.bytes(), 0);
    let (journal, found) = open(dir.path());
    assert!(found.changes.is_empty());
    assert_eq!((length(dir.path()), journal.next_number()), (HEADER, 4));
}

#[test]
fn without_a_directory_there_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let (journal, _) = open(&inner);
    fs::remove_dir(&inner).unwrap();
    let error = journal.made(&made(1, 7, 1)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    journal.done(&[1]).unwrap();
    fs::create_dir_all(file(dir.path())).unwrap();
    Journal::open(dir.path()).unwrap_err();
}

#[test]
fn a_long_file_is_rewritten_with_what_is_not_done() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open_with(dir.path(), 10_000).unwrap();
    for number in 1..=30 {
        journal.made(&made(number, 7, 1000)).unwrap();
    }
    assert!(length(dir.path()) > 30_000);
    journal.sent(&sent(3, 7, &[1, 2, 30])).unwrap();
    journal.sent(&sent(4, 8, &[5])).unwrap();
    let all: Vec<u64> = (3..30).collect();
    journal.done(&all[..20]).unwrap();
    assert!(length(dir.path()) > 30_000, "much of it counts");
    journal.done(&[30]).unwrap();
    journal.done(&all).unwrap();
    assert!(length(dir.path()) < 4_000, "{}", length(dir.path()));
    journal.made(&made(journal.next_number(), 8, 5)).unwrap();
    let (again, found) = open(dir.path());
    assert_eq!(numbers(&found), [1, 2, 31]);
    assert_eq!(found.changes[1], made(2, 7, 1000));
    assert_eq!(found.batches, [sent(3, 7, &[1, 2, 30])]);
    assert_eq!(again.bytes(), journal.bytes());
    let mode = fs::metadata(file(dir.path())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_cannot_be_rewritten_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open_with(dir.path(), 10_000).unwrap();
    for number in 1..=30 {
        journal.made(&made(number, 7, 1000)).unwrap();
    }
    let writer = fs::OpenOptions::new().write(true).open(file(dir.path()));
    let writer = writer.unwrap();
    let end = length(dir.path());
    writer.write_all_at(b"!", end - 500).unwrap();
    let all: Vec<u64> = (1..30).collect();
    journal.done(&all).unwrap();
    assert!(length(dir.path()) > end);
    assert!(!dir.path().join(NEW).exists());
    journal.made(&made(31, 7, 10)).unwrap();
    writer.write_all_at(&[30], end - 500).unwrap();
    assert_eq!(numbers(&left(dir.path())), [30, 31]);
}

#[test]
fn what_was_not_rewritten_to_its_end_counts_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    three(dir.path());
    fs::write(dir.path().join(NEW), "rubbish").unwrap();
    assert_eq!(numbers(&left(dir.path())), [1, 2, 3]);
    assert!(!dir.path().join(NEW).exists());
}

#[derive(Debug, Clone)]
enum Step {
    Make(u32, usize),
    Send(u32, Vec<prop::sample::Index>),
    Done(Vec<prop::sample::Index>),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let some = || prop::collection::vec(any::<prop::sample::Index>(), 0..6);
    prop_oneof![
        6 => (7_u32..10, 0_usize..300).prop_map(|(volume, bytes)| Step::Make(volume, bytes)),
        2 => (7_u32..10, some()).prop_map(|(volume, which)| Step::Send(volume, which)),
        4 => some().prop_map(Step::Done),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #[test]
    fn whatever_is_done_what_is_not_comes_back(steps in prop::collection::vec(step(), 1..150)) {
        const REWRITE_OVER: u64 = 2000;
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open_with(dir.path(), REWRITE_OVER).unwrap();
        let mut changes: BTreeMap<u64, Made> = BTreeMap::new();
        let mut batches: BTreeMap<u32, SentBatch> = BTreeMap::new();
        let mut named = BTreeSet::new();
        for (count, step) in (1..).zip(steps) {
            let which = |indices: &[prop::sample::Index], changes: &BTreeMap<u64, Made>| {
                let all: Vec<u64> = changes.keys().copied().collect();
                let some = indices.iter().filter(|_| !all.is_empty());
                some.map(|index| all[index.index(all.len())]).collect::<Vec<_>>()
            };
            match step {
                Step::Make(volume, bytes) => {
                    let made = made(journal.next_number(), volume, bytes);
                    prop_assert!(!named.contains(&made.number));
                    journal.made(&made).unwrap();
                    changes.insert(made.number, made);
                }
                Step::Send(volume, indices) => {
                    let batch = sent(count, volume, &which(&indices, &changes));
                    journal.sent(&batch).unwrap();
                    named.extend(batch.numbers.iter().copied());
                    batches.insert(volume, batch);
                }
                Step::Done(indices) => {
                    let which = which(&indices, &changes);
                    journal.done(&which).unwrap();
                    changes.retain(|number, _| !which.contains(number));
                }
                Step::Reopen => {
                    drop(journal);
                    journal = Journal::open_with(dir.path(), REWRITE_OVER).unwrap().0;
                }
            }
            if changes.is_empty() {
                // Numbers may begin again when none is in the file.
                named.clear();
            }
            batches.retain(|_, batch| batch.numbers.iter().any(|it| changes.contains_key(it)));
            if !file(dir.path()).exists() {
                continue;
            }
            let found = peek(dir.path());
            prop_assert!(found.changes.iter().eq(changes.values()));
            prop_assert!(found.batches.iter().eq(batches.values()));
            if !changes.is_empty() {
                let live = journal.state.lock().index.live();
                // What counts is written with a header and the last number.
                prop_assert!(length(dir.path()) <= REWRITE_OVER.max(LIVE_PART * live) + 100);
            }
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), known in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let header = header_of(1);
        let start = if known { &header[..] } else { &[] };
        let bytes = [start, &bytes].concat();
        fuzz(&bytes);
        fs::write(file(dir.path()), &bytes).unwrap();
        let (journal, found) = open(dir.path());
        prop_assert!(found.changes.is_empty());
        journal.made(&made(1, 7, 5)).unwrap();
        prop_assert_eq!(left(dir.path()).changes.len(), 1);
    }

    #[test]
    fn records_are_written_as_they_are_read(
        payloads in prop::collection::vec(payload_bytes(), 0..8),
    ) {
        let mut data = Vec::new();
        for payload in &payloads {
            data.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
            data.extend(payload);
        }
        fuzz(&data);
    }
}

/// Payloads, many of which are right.
fn payload_bytes() -> impl Strategy<Value = Vec<u8>> {
    let right = (1_u64..6, 0_usize..20, 0..3).prop_map(|(number, bytes, kind)| {
        let mut draft = match kind {
            0 => Draft::made(&made(number, 7, bytes)),
            1 => Draft::sent(&sent(1, 7, &[number])),
            _ => Draft::done(&List::new([number]).unwrap()),
        };
        payload(0, draft.at(0)).unwrap().to_vec()
    });
    let flipped = (right.clone(), any::<prop::sample::Index>(), any::<u8>());
    let flipped = flipped.prop_map(|(mut payload, at, mask)| {
        let at = at.index(payload.len());
        payload[at] ^= mask;
        payload
    });
    prop_oneof![right, flipped]
}
