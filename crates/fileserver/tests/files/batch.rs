//! Batches: what single calls do, in one; what came of each; once, whatever is repeated.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_fileserver::volumes::Hold;
use afar_net::{AbortCode, CallError, RxNull};
use afar_rpc::{RpcError, Store, rxafs};
use afar_store::{NewClone, NewVnode, NewVolume, VolumeChange};
use afar_types::{
    BATCH_BYTES, BATCH_OPERATIONS, BatchChange, BatchChanges, BatchMake, BatchOperation,
    BatchResult, BatchVnode, Fid, FileType, PtsId, StoreStatus, VolumeId, VolumeType,
};
use afar_xdr::{FixedOpaque, Opaque, XdrString, to_bytes};
use bytes::Bytes;

use super::cell::*;

const E2BIG: AbortCode = uae(0x06);
const VMOVED: AbortCode = AbortCode(111);
const ESTALE: AbortCode = uae(0x72);
const ECANCELED: AbortCode = uae(0x7b);
const SERIES: [u8; 16] = *b"a series of mine";

impl Client {
    async fn begin_batch(
        &self,
        volume: VolumeId,
        series: FixedOpaque<16>,
        number: u64,
        length: u32,
    ) -> Result<Store<rxafs::batch::Reply>, RpcError> {
        let begun = self
            .files
            .batch(volume, series, number, length, Opaque::default());
        begun.await
    }

    async fn send(
        &self,
        series: [u8; 16],
        number: u64,
        bytes: Bytes,
    ) -> Result<rxafs::batch::Reply, RpcError> {
        let length = u32::try_from(bytes.len()).unwrap();
        let series = FixedOpaque(series);
        let mut call = self.begin_batch(VOLUME, series, number, length).await?;
        call.send(bytes).await?;
        call.finish().await
    }

    async fn batch(
        &self,
        number: u64,
        operations: Vec<BatchOperation>,
    ) -> Result<rxafs::batch::Reply, RpcError> {
        self.send(SERIES, number, bytes_of(operations)).await
    }

    /// Makes a change by a call of its own.
    async fn singly(&self, operation: BatchOperation) {
        let fid = |vnode: BatchVnode| vnode.fid(VOLUME);
        let files = &self.files;
        let done = match operation {
            BatchOperation::Create(make) => {
                let made = files.create_file(fid(make.directory), make.name, make.attributes);
                made.await.map(drop)
            }
            BatchOperation::MakeDir(make) => {
                let made = files.make_dir(fid(make.directory), make.name, make.attributes);
                made.await.map(drop)
            }
            BatchOperation::Symlink(make, target) => {
                let directory = fid(make.directory);
                let made = files.symlink(directory, make.name, target, make.attributes);
                made.await.map(drop)
            }
            BatchOperation::Link {
                directory,
                name,
                existing,
            } => {
                let linked = files.link(fid(directory), name, fid(existing));
                linked.await.map(drop)
            }
            BatchOperation::RemoveFile { directory, name } => {
                files.remove_file(fid(directory), name).await.map(drop)
            }
            BatchOperation::RemoveDir { directory, name } => {
                files.remove_dir(fid(directory), name).await.map(drop)
            }
            BatchOperation::Rename {
                old_directory,
                old_name,
                new_directory,
                new_name,
            } => {
                let (from, to) = (fid(old_directory), fid(new_directory));
                let moved = files.rename(from, old_name, to, new_name);
                moved.await.map(drop)
            }
            BatchOperation::StoreStatus { target, attributes } => {
                files.store_status(fid(target), attributes).await.map(drop)
            }
            BatchOperation::StoreData { target, data, .. } => {
                let length = data.len() as u64;
                self.store(fid(target), 0, &data, length).await.map(drop)
            }
        };
        done.unwrap();
    }

    async fn open(&self) {
        let opened = self.batch(0, Vec::new()).await.unwrap();
        assert!(opened.results.is_empty() && !opened.repeated);
    }
}

/// Changes under no leases, as they are sent.
fn bytes_of(operations: Vec<BatchOperation>) -> Bytes {
    let changes = operations.into_iter().map(BatchChange::from);
    let changes: Vec<_> = changes.collect();
    to_bytes(&BatchChanges::new(changes).unwrap())
}

fn making(directory: impl Into<BatchVnode>, file: &str, bits: u32) -> BatchMake {
    BatchMake {
        directory: directory.into(),
        name: name(file),
        attributes: mode(bits),
        wanted: BatchVnode::default(),
    }
}

fn create(directory: impl Into<BatchVnode>, file: &str) -> BatchOperation {
    BatchOperation::Create(making(directory, file, 0o644))
}

fn make_dir(directory: impl Into<BatchVnode>, file: &str) -> BatchOperation {
    BatchOperation::MakeDir(making(directory, file, 0o755))
}

fn store(target: impl Into<BatchVnode>, data: &[u8]) -> BatchOperation {
    BatchOperation::StoreData {
        target: target.into(),
        attributes: StoreStatus::default(),
        data: Opaque::new(data).unwrap(),
    }
}

fn remove(directory: impl Into<BatchVnode>, file: &str) -> BatchOperation {
    BatchOperation::RemoveFile {
        directory: directory.into(),
        name: name(file),
    }
}

fn remove_dir(directory: impl Into<BatchVnode>, file: &str) -> BatchOperation {
    BatchOperation::RemoveDir {
        directory: directory.into(),
        name: name(file),
    }
}

fn rename(directory: impl Into<BatchVnode>, from: &str, to: &str) -> BatchOperation {
    let directory = directory.into();
    BatchOperation::Rename {
        old_directory: directory,
        old_name: name(from),
        new_directory: directory,
        new_name: name(to),
    }
}

const fn made_by(place: u32) -> BatchVnode {
    BatchVnode::made_by(place)
}

fn codes(results: &[BatchResult]) -> Vec<AbortCode> {
    let codes = results.iter().map(|result| AbortCode(result.code));
    codes.collect()
}

fn made(result: &BatchResult) -> Fid {
    assert_eq!(result.code, 0);
    result.made.fid(VOLUME)
}

const DONE: AbortCode = AbortCode(0);

#[tokio::test]
async fn what_single_calls_do() {
    let cell = Cell::new().await;
    let ann = cell.ann();
    ann.open().await;
    let root = cell.root();
    let data = [b'x'; 70_000];
    let operations = vec![
        make_dir(root, "d"),
        create(made_by(0), "a"),
        store(made_by(1), &data),
        BatchOperation::Symlink(making(made_by(0), "s", 0o777), XdrString::new("a").unwrap()),
        BatchOperation::Link {
            directory: made_by(0),
            name: name("b"),
            existing: made_by(1),
        },
        rename(made_by(0), "a", "c"),
        BatchOperation::StoreStatus {
            target: made_by(1),
            attributes: mode(0o600),
        },
        create(root, "gone"),
        remove(root, "gone"),
        make_dir(root, "e"),
        remove_dir(root, "e"),
    ];
    let reply = ann.batch(1, operations).await.unwrap();
    assert!(!reply.repeated);
    assert_eq!(codes(&reply.results), [DONE; 11]);
    let (directory, file) = (made(&reply.results[0]), made(&reply.results[1]));
    let link = made(&reply.results[3]);
    assert_eq!(reply.results[2].made, BatchVnode::default());

    // Told is what a look tells, with a promise; of what is gone, nothing.
    let mut told: Vec<_> = reply
        .statuses
        .iter()
        .map(|told| told.vnode.fid(VOLUME))
        .collect();
    told.sort_unstable();
    let mut all = [root, directory, file, link];
    all.sort_unstable();
    assert_eq!(told, all);
    for told in &reply.statuses {
        let fid = told.vnode.fid(VOLUME);
        let seen = ann.files.fetch_status(fid).await.unwrap().status;
        assert_eq!(told.status, seen, "{fid}");
        assert!(told.callback.expires_in > 0);
    }
    let status = |fid: Fid| {
        let mut all = reply.statuses.iter();
        all.find(|told| told.vnode.fid(VOLUME) == fid)
            .unwrap()
            .status
    };
    let of = status(file);
    assert_eq!(
        (of.file_type, of.length, of.link_count),
        (FileType::File, 70_000, 2)
    );
    assert_eq!((of.unix_mode_bits, of.owner, of.author), (0o600, ANN, ANN));
    assert_eq!(of.data_version.0, 1);
    assert_eq!(ann.fetch(file, 0, 100_000).await.unwrap().0, data);
    let names = |name: &str| cell.volume.lookup(directory, name.as_bytes()).ok();
    assert_eq!(names("a"), None);
    assert_eq!(
        (names("b"), names("c"), names("s")),
        (Some(file), Some(file), Some(link))
    );
    assert_eq!(cell.volume.lookup(root, b"gone").ok(), None);
}

#[tokio::test]
async fn each_is_counted_and_one_commit_has_all() {
    let cell = Cell::new().await;
    let client = cell.client();
    client.open().await;
    let commits = cell.volume.partition().commit_stats().commits;
    let many: Vec<_> = (0..500)
        .map(|n| create(cell.root(), &format!("f{n}")))
        .collect();
    let reply = client.batch(1, many).await.unwrap();
    assert_eq!(codes(&reply.results), [DONE; 500]);
    assert_eq!(cell.volume.partition().commit_stats().commits, commits + 1);
    let counts = |operation: &str| {
        let mut all = cell.server.stats().operations();
        all.find(|row| row.0 == operation).map(|row| (row.1, row.2))
    };
    assert_eq!(counts("create_file"), Some((500, 0)));
    assert_eq!(counts("batch"), Some((2, 0)));
    let again = vec![create(cell.root(), "f7"), create(cell.root(), "new")];
    let reply = client.batch(2, again).await.unwrap();
    assert_eq!(codes(&reply.results), [EEXIST, DONE]);
    assert_eq!(counts("create_file"), Some((501, 1)));
}

#[tokio::test]
async fn what_fails_takes_along_what_depends_on_it() {
    let cell = Cell::new().await;
    let client = cell.client();
    let root = cell.root();
    client.open().await;
    let good = client.create(root, "good").await;
    client.store(good, 0, b"good", 4).await.unwrap();
    let quota = VolumeChange {
        max_quota: Some(10),
        ..VolumeChange::default()
    };
    cell.volume.change(quota).unwrap();
    let operations = vec![
        create(root, "good"),
        store(made_by(0), b"x"),
        create(made_by(0), "in it"),
        create(root, "new"),
        // Over the quota, so it must not take the place of what is good.
        store(made_by(3), &[7; 100_000]),
        rename(root, "new", "good"),
        BatchOperation::StoreStatus {
            target: made_by(3),
            attributes: mode(0o600),
        },
        create(root, "other"),
        remove(root, "new"),
    ];
    let reply = client.batch(1, operations).await.unwrap();
    let expected = [
        EEXIST, ECANCELED, ECANCELED, DONE, VOVERQUOTA, ECANCELED, ECANCELED, DONE, DONE,
    ];
    assert_eq!(codes(&reply.results), expected);
    assert_eq!(client.fetch(good, 0, 10).await.unwrap().0, b"good");
    assert_eq!(cell.volume.lookup(root, b"good").unwrap(), good);
    assert_eq!(cell.volume.lookup(root, b"new").ok(), None);
    assert!(cell.volume.lookup(root, b"other").is_ok());
    cell.volume.partition().wait_reaped().unwrap();
}

#[tokio::test]
async fn a_repeated_batch_is_answered_and_not_run_again() {
    let cell = Cell::new().await;
    let (ann, other) = (cell.ann(), cell.client());
    let root = cell.root();
    ann.open().await;
    let operations = || {
        vec![
            make_dir(root, "d"),
            create(made_by(0), "a"),
            remove(root, "no"),
        ]
    };
    let first = ann.batch(1, operations()).await.unwrap();
    assert_eq!(codes(&first.results), [DONE, DONE, ENOENT]);
    let file = made(&first.results[1]);
    let version = cell.volume.status(root).unwrap().data_version;

    let again = ann.batch(1, operations()).await.unwrap();
    assert!(again.repeated);
    assert_eq!(again.results, first.results);
    assert_eq!(again.statuses.len(), 3);
    assert_eq!(cell.volume.status(root).unwrap().data_version, version);
    // What is told is as it is now.
    ann.store(file, 0, b"more", 4).await.unwrap();
    let again = ann.batch(1, operations()).await.unwrap();
    let told = again
        .statuses
        .iter()
        .find(|told| told.vnode.fid(VOLUME) == file);
    assert_eq!(told.unwrap().status.length, 4);

    // Others under the same number, and numbers of no known batch.
    assert_eq!(code(ann.batch(1, vec![remove(root, "d")]).await), EINVAL);
    let others = vec![
        make_dir(root, "d"),
        create(made_by(0), "b"),
        remove(root, "no"),
    ];
    assert_eq!(code(ann.batch(1, others).await), EINVAL);
    assert_eq!(code(ann.batch(3, operations()).await), ESTALE);
    assert_eq!(
        code(other.batch(1, operations()).await),
        ESTALE,
        "somebody else's"
    );
    assert_eq!(
        code(
            ann.send(*b"not begun before", 1, bytes_of(operations()))
                .await
        ),
        ESTALE
    );
    ann.batch(2, vec![remove_dir(root, "no")]).await.unwrap();
    assert_eq!(code(ann.batch(1, operations()).await), ESTALE);
}

#[tokio::test]
async fn a_repeated_batch_shows_nobody_what_they_may_not_see_any_more() {
    let cell = Cell::new().await;
    let (ann, root) = (cell.ann(), cell.root());
    let hidden = ann.make_dir(root, "hidden").await;
    let (own, secret) = (
        ann.create(root, "own").await,
        ann.create(hidden, "secret").await,
    );
    ann.open().await;
    let status = |target: Fid| BatchOperation::StoreStatus {
        target: target.into(),
        attributes: mode(0o640),
    };
    let both = || vec![status(own), status(secret)];
    let first = ann.batch(1, both()).await.unwrap();
    assert_eq!(
        (codes(&first.results), first.statuses.len()),
        (vec![DONE; 2], 2)
    );
    cell.allow(hidden, &[(PtsId::ADMINISTRATORS, "rlidwka")]);
    let again = ann.batch(1, both()).await.unwrap();
    assert!(again.repeated && again.results == first.results);
    assert_eq!(again.statuses.len(), 1);
    assert_eq!(again.statuses[0].vnode, own.into());
    // Others under its number show nothing either.
    let others = vec![status(secret), status(own)];
    assert_eq!(code(ann.batch(1, others).await), EINVAL);
}

#[tokio::test]
async fn a_series_is_its_users_and_is_not_begun_again() {
    let cell = Cell::new().await;
    let (ann, other, root) = (cell.ann(), cell.client(), cell.root());
    ann.open().await;
    let made = ann.batch(1, vec![create(root, "a")]).await.unwrap();
    assert_eq!(code(other.batch(0, Vec::new()).await), ESTALE);
    assert_eq!(code(other.batch(2, vec![create(root, "b")]).await), ESTALE);
    // A number 0 that was long on its way.
    ann.open().await;
    let again = ann.batch(1, vec![create(root, "a")]).await.unwrap();
    assert!(again.repeated && again.results == made.results);
    for bad in [3, 4, u64::MAX] {
        assert_eq!(code(ann.batch(bad, vec![create(root, "b")]).await), ESTALE);
    }
    assert!(ann.batch(2, vec![create(root, "b")]).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_with_one_series_do_nothing_twice() {
    let cell = Arc::new(Cell::new().await);
    let (one, two, root) = (cell.client(), cell.client(), cell.root());
    one.open().await;
    for number in (1..20).step_by(2) {
        // The same under one number: one of the calls runs it.
        let same = || vec![create(root, &format!("{number}"))];
        let (first, second) = tokio::join!(one.batch(number, same()), two.batch(number, same()));
        let (first, second) = (first.unwrap(), second.unwrap());
        assert!(first.repeated != second.repeated);
        assert_eq!(codes(&first.results), [DONE]);
        assert_eq!(first.results, second.results);
        // Others under one number: one of them is not run.
        let other = |who: &str| vec![create(root, &format!("{number}-{who}"))];
        let next = number + 1;
        let (first, second) =
            tokio::join!(one.batch(next, other("one")), two.batch(next, other("two")));
        let run = [first.is_ok(), second.is_ok()];
        assert!(run[0] != run[1]);
        assert_eq!(code(if run[0] { second } else { first }), EINVAL);
        let there = ["one", "two"].map(|who| {
            let name = format!("{number}-{who}");
            cell.volume.lookup(root, name.as_bytes()).is_ok()
        });
        assert_eq!(there, run);
    }
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn a_repeated_batch_is_answered_by_a_server_that_was_started_again() {
    let cell = Cell::new().await;
    let client = cell.client();
    let root = cell.root();
    client.open().await;
    let operations = || {
        vec![
            create(root, "a"),
            store(made_by(0), b"data"),
            rename(root, "a", "b"),
        ]
    };
    let first = client.batch(1, operations()).await.unwrap();
    // What is on the disk now is what a crash would leave.
    let left = tempfile::tempdir().unwrap();
    copy(cell.volume.partition().path(), left.path());
    drop((client, cell));

    let cell = Cell::at(left, None).await;
    let client = cell.client();
    let again = client.batch(1, operations()).await.unwrap();
    assert!(again.repeated);
    assert_eq!(again.results, first.results);
    let file = made(&first.results[0]);
    assert_eq!(cell.volume.lookup(root, b"b").unwrap(), file);
    assert_eq!(client.fetch(file, 0, 10).await.unwrap().0, b"data");
    let next = client.batch(2, vec![remove(root, "b")]).await.unwrap();
    assert_eq!((codes(&next.results), next.repeated), (vec![DONE], false));
}

#[tokio::test]
async fn others_hear_of_it_before_it_is_answered() {
    let cell = Cell::new().await;
    let (writer, reader) = (cell.client(), cell.client());
    let root = cell.root();
    writer.open().await;
    let directory = writer.make_dir(root, "d").await;
    let file = writer.create(directory, "a").await;
    let watched = writer.create(directory, "w").await;
    for fid in [root, directory, file, watched] {
        reader.files.fetch_status(fid).await.unwrap();
        writer.files.fetch_status(fid).await.unwrap();
    }
    let operations = vec![
        store(watched, b"x"),
        remove(directory, "a"),
        create(directory, "b"),
        create(directory, "c"),
    ];
    let reply = writer.batch(1, operations).await.unwrap();
    assert_eq!(codes(&reply.results), [DONE; 4]);
    // The directory and the file, once each; not the root, nor what is gone.
    assert_eq!(
        (reader.callbacks.broken(), writer.callbacks.broken()),
        (2, 0)
    );
    // The writer's promises hold.
    reader.store(watched, 0, b"y", 1).await.unwrap();
    assert_eq!(writer.callbacks.broken(), 1);
}

#[tokio::test]
async fn rights_are_those_of_single_calls() {
    let cell = Cell::new().await;
    let (client, root) = (cell.client(), cell.root());
    client.open().await;
    let only_look = client.make_dir(root, "look").await;
    let only_drop = client.make_dir(root, "drop").await;
    let file = client.create(only_look, "a").await;
    cell.allow(only_look, &[(PtsId::ANYUSER, "rl")]);
    cell.allow(only_drop, &[(PtsId::ANYUSER, "i")]);
    let operations = vec![
        create(only_look, "b"),
        remove(only_look, "a"),
        store(file, b"x"),
        make_dir(only_drop, "sub"),
        create(only_drop, "c"),
        remove(only_drop, "c"),
        rename(only_drop, "c", "d"),
        create(file, "in a file"),
        BatchOperation::Symlink(
            making(root, "mount", 0o644),
            XdrString::new("#root.cell.").unwrap(),
        ),
        create(root, "a/b"),
        remove(root, "."),
    ];
    let reply = client.batch(1, operations).await.unwrap();
    let expected = [
        EACCES, EACCES, EACCES, DONE, DONE, EACCES, EACCES, ENOTDIR, EACCES, EINVAL, EINVAL,
    ];
    assert_eq!(codes(&reply.results), expected);
    let fids = [only_drop, made(&reply.results[3]), made(&reply.results[4])];
    assert_eq!(
        reply.statuses.len(),
        fids.len(),
        "nothing of what was refused"
    );
    for told in &reply.statuses {
        assert!(fids.contains(&told.vnode.fid(VOLUME)));
    }
    let frozen = VolumeChange {
        in_service: Some(false),
        ..VolumeChange::default()
    };
    cell.volume.change(frozen).unwrap();
    assert_eq!(
        code(client.batch(2, vec![remove(root, "x")]).await),
        VOFFLINE
    );
}

#[tokio::test]
async fn data_replaces_what_was_there_whatever_its_records() {
    let cell = Cell::new().await;
    let client = cell.client();
    client.open().await;
    let file = client.create(cell.root(), "a").await;
    // A store of 64 KiB first makes records of that length.
    client.store(file, 0, &[1; 65_536], 65_536).await.unwrap();
    let random: Vec<u8> = (0..300_000u32)
        .map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1])
        .collect();
    client.store(file, 65_536, &random, 365_536).await.unwrap();
    let mut number = 0;
    for length in [400_000, 200_000, 0, 65_536, 10, 131_072, 1] {
        number += 1;
        let data = &[&random[..], &random].concat()[..length];
        let reply = client.batch(number, vec![store(file, data)]).await.unwrap();
        assert_eq!(codes(&reply.results), [DONE]);
        assert_eq!(reply.statuses[0].status.length, length as u64);
        assert_eq!(client.fetch(file, 0, 1 << 20).await.unwrap().0, data);
    }
    let zeros = vec![store(file, &[0; 200_000])];
    client.batch(number + 1, zeros).await.unwrap();
    assert_eq!(
        client.fetch(file, 0, 1 << 20).await.unwrap().0,
        [0; 200_000]
    );
    // It can be stored to as ever.
    client.store(file, 100, b"x", 200_000).await.unwrap();
    assert_eq!(client.fetch(file, 99, 3).await.unwrap().0, [0, b'x', 0]);
    let options = afar_store::CheckOptions::default();
    let report = cell.volume.partition().check(&options, &mut |_| {});
    assert_eq!(report.unwrap().problems, []);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_as_a_whole() {
    let cell = Cell::new().await;
    let client = cell.client();
    let root = cell.root();
    client.open().await;
    let wanted = BatchOperation::Create(BatchMake {
        wanted: Fid::new(VOLUME.0, 2, 77).into(),
        ..making(root, "reserved", 0o644)
    });
    for bad in [
        vec![create(root, "x"), create(made_by(1), "itself")],
        vec![
            create(root, "x"),
            create(made_by(2), "later"),
            make_dir(root, "y"),
        ],
        vec![
            create(root, "x"),
            remove(root, "x"),
            create(made_by(1), "y"),
        ],
        vec![create(root, "x"), create(made_by(u32::MAX), "y")],
        vec![create(root, "x"), wanted],
        Vec::new(),
    ] {
        assert_eq!(code(client.batch(1, bad).await), EINVAL);
    }
    assert_eq!(code(client.batch(0, vec![create(root, "x")]).await), EINVAL);
    assert_eq!(cell.volume.lookup(root, b"x").ok(), None);

    let unmarshal = AbortCode::RXGEN_SS_UNMARSHAL;
    let words = |words: &[u32]| {
        let bytes = words.iter().flat_map(|word| word.to_be_bytes());
        Bytes::from_iter(bytes)
    };
    let whole = bytes_of(vec![create(root, "x")]);
    let junk = [
        words(&[513]),
        words(&[u32::MAX]),
        words(&[1, 99]),
        words(&[1, 9, 2, 1, 0, 0, 0, 0, 0, 0, u32::MAX]),
        whole.slice(..whole.len() - 4),
        [whole, words(&[0])].concat().into(),
    ];
    for bytes in junk {
        assert_eq!(code(client.send(SERIES, 1, bytes).await), unmarshal);
    }
    let long = Bytes::from(vec![0; BATCH_BYTES + 4]);
    assert_eq!(code(client.send(SERIES, 1, long).await), E2BIG);
    assert_eq!(cell.volume.lookup(root, b"x").ok(), None);
    // None of these was the first.
    let reply = client.batch(1, vec![create(root, "x")]).await.unwrap();
    assert_eq!((codes(&reply.results), reply.repeated), (vec![DONE], false));
}

#[tokio::test]
async fn so_many_series_are_remembered_and_no_one_pushes_others_out() {
    let cell = Cell::new().await;
    let (ann, crowd) = (cell.ann(), cell.client());
    ann.open().await;
    let nothing = || bytes_of(Vec::new());
    for number in 0..20u8 {
        crowd.send([number; 16], 0, nothing()).await.unwrap();
    }
    let one = |number: u8| {
        let bytes = bytes_of(vec![create(cell.root(), &format!("{number}"))]);
        crowd.send([number; 16], 1, bytes)
    };
    assert_eq!(code(one(0).await), ESTALE, "the oldest of too many");
    assert!(one(19).await.is_ok());
    assert!(ann.batch(1, vec![create(cell.root(), "ann")]).await.is_ok());
}

#[tokio::test]
async fn what_is_forged_or_in_another_volume_is_not_there() {
    let cell = Cell::new().await;
    let client = cell.client();
    let root = cell.root();
    client.open().await;
    let (directory, file) = (
        client.make_dir(root, "d").await,
        client.create(root, "f").await,
    );
    let elsewhere = NewVolume::new(VolumeId(VOLUME.0 + 3), "elsewhere").max_quota(0);
    let (_, partition) = cell.server.volumes().partitions().next().unwrap();
    let elsewhere = cell.server.volumes().create(partition, &elsewhere).unwrap();
    let new = NewVnode::new(ANN, 0o755);
    let mut theirs = elsewhere.root();
    // Deep enough that here is no vnode of such a number.
    for _ in 0..4 {
        let made = elsewhere.make_directory(theirs, b"x", &new).unwrap();
        theirs = made.vnode.fid;
    }
    let forged = |fid: Fid| Fid::new(VOLUME.0, fid.vnode.0, fid.uniquifier.0 + 1);
    let operations = vec![
        create(theirs, "a"),
        create(forged(directory), "a"),
        store(forged(file), b"x"),
        store(Fid::new(VOLUME.0, u32::MAX, 1), b"x"),
        remove(Fid::new(VOLUME.0, 0x7fff_ffff, u32::MAX), "a"),
        BatchOperation::Link {
            directory: root.into(),
            name: name("l"),
            existing: forged(forged(file)).into(),
        },
        BatchOperation::Rename {
            old_directory: root.into(),
            old_name: name("f"),
            new_directory: theirs.into(),
            new_name: name("f"),
        },
        create(root, "here"),
    ];
    let reply = client.batch(1, operations).await.unwrap();
    let mut expected = [VNOVNODE; 8];
    expected[7] = DONE;
    assert_eq!(codes(&reply.results), expected);
    let told = reply.statuses.iter().map(|told| told.vnode);
    assert!(told.eq([root.into(), reply.results[7].made]));
    assert_eq!(cell.volume.lookup(root, b"f").unwrap(), file);
    assert_eq!(elsewhere.state().unwrap().file_count, 5);

    // A volume that is not here, and none at all.
    let nothing = || bytes_of(Vec::new());
    let series = FixedOpaque(SERIES);
    for (volume, expected) in [(VolumeId(7), VNOVOL), (VolumeId(0), EINVAL)] {
        let length = u32::try_from(nothing().len()).unwrap();
        let begun = client.begin_batch(volume, series, 0, length).await;
        let mut call = begun.unwrap();
        call.send(nothing()).await.unwrap();
        assert_eq!(code(call.finish().await), expected);
    }
}

#[tokio::test]
async fn a_batch_has_so_many_operations_and_bytes() {
    let cell = Cell::new().await;
    let client = cell.client();
    let root = cell.root();
    client.open().await;
    let encoded = |count: u32| {
        let mut bytes = count.to_be_bytes().to_vec();
        for number in 0..count {
            let one = bytes_of(vec![create(root, &format!("f{number}"))]);
            bytes.extend_from_slice(&one[4..]);
        }
        Bytes::from(bytes)
    };
    let most = u32::try_from(BATCH_OPERATIONS).unwrap();
    let refused = client.send(SERIES, 1, encoded(most + 1)).await;
    assert_eq!(code(refused), AbortCode::RXGEN_SS_UNMARSHAL);
    let most = client.send(SERIES, 1, encoded(most)).await.unwrap();
    assert_eq!(codes(&most.results), [DONE; BATCH_OPERATIONS]);
    assert_eq!(most.statuses.len(), BATCH_OPERATIONS + 1);

    // Data up to the last byte.
    let file = made(&most.results[0]);
    let beside = bytes_of(vec![store(file, b"")]).len();
    let data = vec![7; BATCH_BYTES - beside];
    let operations = bytes_of(vec![store(file, &data)]);
    assert_eq!(operations.len(), BATCH_BYTES);
    let stored = client.send(SERIES, 2, operations).await.unwrap();
    assert_eq!(codes(&stored.results), [DONE]);
    assert!(client.fetch(file, 0, 8 << 20).await.unwrap().0 == data);
}

#[tokio::test]
async fn a_batch_that_is_cut_off_has_done_nothing() {
    let cell = Cell::new().await;
    let client = cell.client();
    let root = cell.root();
    client.open().await;
    let operations = vec![create(root, "a"), store(made_by(0), &[7; 100_000])];
    let bytes = bytes_of(operations.clone());
    let (series, length) = (FixedOpaque(SERIES), u32::try_from(bytes.len()).unwrap());
    let opcode = rxafs::batch::OPERATION.opcode;
    let head = rxafs::batch::Request {
        volume: VOLUME,
        series,
        number: 1,
        length,
        note: Opaque::default(),
    };
    let head = [&opcode.to_be_bytes()[..], &to_bytes(&head)].concat();
    // Every byte came but the last, or hardly any did; then the client ends, or is gone.
    for sent in [0, 10, bytes.len() / 2, bytes.len() - 1] {
        let server = cell.open.local_addr();
        let connection = client.endpoint.connect(server, RXAFS, Arc::new(RxNull));
        let mut call = connection.call().await.unwrap();
        call.send(Bytes::from(head.clone())).await.unwrap();
        call.send(bytes.slice(..sent)).await.unwrap();
        call.finish().await.unwrap();
        let answer = call.read_to_end(1 << 20).await;
        let cut = CallError::Aborted(AbortCode::RX_EOF);
        assert_eq!(answer.unwrap_err().to_string(), cut.to_string());
        let begun = client.begin_batch(VOLUME, series, 1, length).await;
        let mut call = begun.unwrap();
        call.send(bytes.slice(..sent)).await.unwrap();
        drop(call);
    }
    assert!(cell.volume.lookup(root, b"a").is_err());
    // It was none of these.
    let reply = client.batch(1, operations).await.unwrap();
    assert_eq!(
        (codes(&reply.results), reply.repeated),
        (vec![DONE; 2], false)
    );
}

#[tokio::test]
async fn batches_that_come_slowly_take_a_bounded_share() {
    let cell = Cell::new().await;
    let (stranger, ann) = (cell.client(), cell.ann());
    let root = cell.root();
    ann.open().await;
    let (series, length) = (FixedOpaque(SERIES), u32::try_from(BATCH_BYTES).unwrap());
    let mut slow = Vec::new();
    for _ in 0..2 {
        let begun = stranger.begin_batch(VOLUME, series, 1, length).await;
        let mut call = begun.unwrap();
        call.send(Bytes::from(vec![0; BATCH_BYTES / 2]))
            .await
            .unwrap();
        slow.push(call);
    }
    // Once both are there, a third has no room.
    let begin = Instant::now();
    loop {
        let zeros = Bytes::from(vec![0; BATCH_BYTES]);
        match code(stranger.send(SERIES, 1, zeros).await) {
            VBUSY => break,
            other => assert_eq!(other, AbortCode::RXGEN_SS_UNMARSHAL),
        }
        assert!(begin.elapsed() < Duration::from_secs(20));
    }
    // Small ones of the same address have a little left, and single calls need nothing.
    ann.create(root, "single").await;
    assert!(ann.batch(1, vec![create(root, "a")]).await.is_ok());
    // What is given up makes room, as soon as the server has heard of it.
    slow.clear();
    let large = store(made_by(0), &[7; 1_000_000]);
    let next = vec![create(root, "b"), large];
    let begin = Instant::now();
    loop {
        match ann.batch(2, next.clone()).await {
            Ok(reply) => break assert_eq!(codes(&reply.results), [DONE; 2]),
            Err(error) => assert_eq!(error.aborted(), Some(VBUSY)),
        }
        assert!(begin.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn data_of_callers_who_may_change_nothing_is_not_kept() {
    let cell = Cell::new().await;
    let (client, root) = (cell.client(), cell.root());
    client.open().await;
    let only_look = client.make_dir(root, "look").await;
    let file = client.create(only_look, "a").await;
    cell.allow(only_look, &[(PtsId::ANYUSER, "rl")]);
    let mut random = fastrand::Rng::with_seed(9);
    let data: Vec<u8> = (0..300_000).map(|_| random.u8(..)).collect();
    let written = || {
        let mut left = vec![cell.volume.partition().path().to_owned()];
        let mut found = false;
        while let Some(path) = left.pop() {
            if path.is_dir() {
                left.extend(fs::read_dir(path).unwrap().map(|one| one.unwrap().path()));
            } else {
                let bytes = fs::read(path).unwrap();
                found |= bytes.windows(64).any(|part| part == &data[64..128]);
            }
        }
        found
    };
    // Neither is what would be made there, however deep.
    let operations = vec![
        store(file, &data),
        make_dir(only_look, "d"),
        make_dir(made_by(1), "e"),
        create(made_by(2), "f"),
        store(made_by(3), &data[1..]),
    ];
    let reply = client.batch(1, operations).await.unwrap();
    let expected = [EACCES, EACCES, ECANCELED, ECANCELED, ECANCELED];
    assert_eq!(codes(&reply.results), expected);
    assert!(!written());
    let reply = client.batch(2, vec![create(root, "b"), store(made_by(0), &data)]);
    assert_eq!(codes(&reply.await.unwrap().results), [DONE; 2]);
    assert!(written());
    // A right that an earlier operation gives is one.
    let directory = client.make_dir(root, "d").await;
    let closed = client.create(directory, "closed").await;
    client.store(closed, 0, b"x", 1).await.unwrap();
    // With `i`, what somebody has made they may always fill.
    cell.allow(directory, &[(PtsId::ANYUSER, "rldw")]);
    let mode_of = |bits| BatchOperation::StoreStatus {
        target: closed.into(),
        attributes: mode(bits),
    };
    client.batch(3, vec![mode_of(0o444)]).await.unwrap();
    assert_eq!(code(client.store(closed, 0, b"y", 1).await), EACCES);
    let operations = vec![mode_of(0o644), store(closed, b"y")];
    let reply = client.batch(4, operations).await.unwrap();
    assert_eq!(codes(&reply.results), [DONE; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_waits_for_a_store_holds_up_no_other() {
    let cell = Arc::new(Cell::new().await);
    let (slow, client, other) = (cell.client(), cell.client(), cell.client());
    let root = cell.root();
    client.open().await;
    let [first, taken, last] = [
        client.create(root, "a").await,
        client.create(root, "b").await,
        client.create(root, "c").await,
    ];
    let plain = StoreStatus::default();
    let (half, length) = (Bytes::from(vec![1; 300_000]), 600_000);
    let begun = slow.files.store_data64(taken, plain, 0, length, length);
    let mut under_way = begun.await.unwrap();
    under_way.send(half.clone()).await.unwrap();
    while cell.server.stats().stored_bytes() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let all = [first, taken, last].map(|fid| store(fid, b"batch"));
    let batch = {
        let client = cell.client();
        tokio::spawn(async move { client.batch(1, all.to_vec()).await })
    };
    for fid in [first, last, first, last] {
        other.store(fid, 0, b"x", 1).await.unwrap();
    }
    assert!(!batch.is_finished());
    under_way.send(half).await.unwrap();
    under_way.finish().await.unwrap();
    let reply = batch.await.unwrap().unwrap();
    assert_eq!(codes(&reply.results), [DONE; 3]);
    for fid in [first, taken, last] {
        assert_eq!(client.fetch(fid, 0, 99).await.unwrap().0, b"batch");
    }
}

#[tokio::test]
async fn volumes_that_take_no_changes_take_no_batches() {
    let cell = Cell::new().await;
    let client = cell.client();
    let root = cell.root();
    client.open().await;
    let first = client.batch(1, vec![create(root, "a")]).await.unwrap();
    let one = |number, name: &str| client.batch(number, vec![create(root, name)]);
    cell.server.volumes().set_moved(VOLUME, true);
    assert_eq!(code(one(2, "b").await), VMOVED);
    assert_eq!(code(one(1, "a").await), VMOVED);
    cell.server.volumes().set_moved(VOLUME, false);
    let held = cell
        .server
        .volumes()
        .hold(VOLUME, Hold::Busy)
        .await
        .unwrap();
    assert_eq!(code(one(2, "b").await), VBUSY);
    drop(held);
    // Nothing of it was run, and all goes on.
    let again = one(1, "a").await.unwrap();
    assert!(again.repeated && again.results == first.results);
    assert_eq!(codes(&one(2, "b").await.unwrap().results), [DONE]);

    let read_only = VolumeId(VOLUME.0 + 1);
    let clone = NewClone::new(read_only, "user.ann.readonly", VolumeType::ReadOnly);
    cell.volume.make_clone(&clone).unwrap();
    let nothing = bytes_of(Vec::new());
    let (series, length) = (FixedOpaque(SERIES), u32::try_from(nothing.len()).unwrap());
    let begun = client.begin_batch(read_only, series, 0, length).await;
    let mut call = begun.unwrap();
    call.send(nothing).await.unwrap();
    assert_eq!(code(call.finish().await), EROFS);
}

/// How many promises each kind of change breaks, of others and of the caller, by a single call and in a batch.
#[tokio::test]
async fn promises_are_broken_as_by_single_calls() {
    let cell = Cell::new().await;
    let (writer, reader) = (cell.client(), cell.client());
    writer.open().await;
    let changes = [
        "create", "mkdir", "symlink", "link", "unlink", "remove", "rmdir", "move", "move dir",
        "replace", "status", "store",
    ];
    let mut number = 0;
    for change in changes {
        let mut broken = Vec::new();
        for batched in [false, true] {
            let base = writer
                .make_dir(cell.root(), &format!("{change}-{batched}"))
                .await;
            let from = writer.make_dir(base, "from").await;
            let to = writer.make_dir(base, "to").await;
            let file = writer.create(from, "file").await;
            let linked = writer.create(from, "one").await;
            let linking = writer.files.link(from, name("two"), linked).await;
            linking.unwrap();
            let target = writer.create(to, "target").await;
            let directory = writer.make_dir(from, "dir").await;
            for fid in [base, from, to, file, linked, target, directory] {
                reader.files.fetch_status(fid).await.unwrap();
                writer.files.fetch_status(fid).await.unwrap();
            }
            let counts = || (reader.callbacks.broken(), writer.callbacks.broken());
            let before = counts();
            let moving = |old: &str, new: &str| BatchOperation::Rename {
                old_directory: from.into(),
                old_name: name(old),
                new_directory: to.into(),
                new_name: name(new),
            };
            let operation = match change {
                "create" => create(from, "new"),
                "mkdir" => make_dir(from, "new"),
                "symlink" => BatchOperation::Symlink(
                    making(from, "new", 0o777),
                    XdrString::new("x").unwrap(),
                ),
                "link" => BatchOperation::Link {
                    directory: from.into(),
                    name: name("new"),
                    existing: file.into(),
                },
                "unlink" => remove(from, "two"),
                "remove" => remove(from, "file"),
                "rmdir" => remove_dir(from, "dir"),
                "move" => moving("file", "new"),
                "move dir" => moving("dir", "new"),
                "replace" => moving("file", "target"),
                "status" => BatchOperation::StoreStatus {
                    target: file.into(),
                    attributes: mode(0o600),
                },
                _ => store(file, b"x"),
            };
            if batched {
                number += 1;
                let reply = writer.batch(number, vec![operation]).await.unwrap();
                assert_eq!(codes(&reply.results), [DONE], "{change}");
            } else {
                writer.singly(operation).await;
            }
            let after = counts();
            broken.push((after.0 - before.0, after.1 - before.1));
        }
        assert_eq!(broken[0], broken[1], "{change}");
        assert!(broken[0].0 > 0, "{change}");
    }
}
