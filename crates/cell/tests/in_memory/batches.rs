//! Batches, whose answers may get lost, and servers without them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use afar_cell::{Batched, Batches, Error, Outcome};
use afar_net::AbortCode;
use afar_rpc::{StoreSource, rxafs};
use afar_types::{
    BatchChange, BatchChanges, BatchMake, BatchOperation, BatchResult, BatchResults, BatchStatuses,
    BatchVnode, Fid, FileName, VolSync, VolumeId,
};
use afar_xdr::{Opaque, from_bytes};

use crate::changes::{ROOT, VOLUME, cell, file, new_file, volume};
use crate::world::{Cell, EEXIST, ENOENT, SILENT, Servers, World, text};

const ESTALE: AbortCode = AbortCode(116);

/// Of each series the last number and what came of it.
pub(crate) type Series = BTreeMap<[u8; 16], (u64, Vec<BatchResult>)>;

impl Servers {
    pub(crate) async fn run_batch(
        &self,
        request: rxafs::batch::Request,
        data: &mut StoreSource<'_>,
    ) -> Result<rxafs::batch::Reply, AbortCode> {
        let mut bytes = Vec::new();
        while let Some(chunk) = data.chunk().await? {
            bytes.extend_from_slice(&chunk);
        }
        self.counts.batches.fetch_add(1, Ordering::SeqCst);
        let changes = from_bytes::<BatchChanges>(&bytes).unwrap();
        let (series, number) = (request.series.0, request.number);
        let answer = self.changing(|world| {
            let known = world.batches.as_ref().ok_or(AbortCode::RXGEN_OPCODE)?;
            let last = known.get(&series).cloned();
            if let Some((_, results)) = last.clone().filter(|last| last.0 == number) {
                return Ok((true, results));
            }
            let expected = last.map_or(0, |last| last.0 + 1);
            if number != expected {
                return Err(ESTALE);
            }
            let results: Vec<_> = changes
                .iter()
                .map(|one| run(world, &one.operation))
                .collect();
            let known = world.batches.get_or_insert_default();
            known.insert(series, (number, results.clone()));
            Ok((false, results))
        });
        if answer == Err(SILENT) && self.counts.forgetful.load(Ordering::SeqCst) {
            let mut world = self.world.lock().unwrap();
            world.batches.get_or_insert_default().clear();
        }
        let (repeated, results) = answer?;
        Ok(rxafs::batch::Reply {
            repeated,
            results: BatchResults::new(results).unwrap(),
            statuses: BatchStatuses::default(),
            vol_sync: VolSync::default(),
            word: Opaque::default(),
        })
    }
}

fn run(world: &mut World, operation: &BatchOperation) -> BatchResult {
    let mut made = BatchVnode::default();
    let done = match operation {
        BatchOperation::Create(make) => {
            let fid = world.new_fid(VolumeId(VOLUME), false);
            let directory = make.directory.fid(VolumeId(VOLUME));
            let added = world.change(directory, |entries| {
                match entries.insert(text(&make.name), fid.vnode.0) {
                    None => Ok(()),
                    Some(_) => Err(EEXIST),
                }
            });
            added.map(|()| {
                world.file(fid, "");
                made = fid.into();
            })
        }
        BatchOperation::RemoveFile { directory, name } => {
            let directory = directory.fid(VolumeId(VOLUME));
            world.change(directory, |entries| {
                entries.remove(&text(name)).map(drop).ok_or(ENOENT)
            })
        }
        other => panic!("{other:?}"),
    };
    BatchResult {
        code: done.err().map_or(0, |code| code.0),
        made,
    }
}

fn with_batches() -> Cell {
    cell(|world| world.batches = Some(Series::new()))
}

fn create(name: &str) -> BatchOperation {
    BatchOperation::Create(BatchMake {
        directory: ROOT.into(),
        name: FileName::new(name).unwrap(),
        attributes: new_file(),
        wanted: BatchVnode::default(),
    })
}

fn remove(name: &str) -> BatchOperation {
    BatchOperation::RemoveFile {
        directory: ROOT.into(),
        name: FileName::new(name).unwrap(),
    }
}

fn changes(operations: &[BatchOperation]) -> BatchChanges {
    let changes = operations.iter().cloned().map(BatchChange::from);
    BatchChanges::new(changes.collect::<Vec<_>>()).unwrap()
}

async fn run_all(
    batches: &mut Batches,
    operations: &[BatchOperation],
) -> Result<Vec<Outcome>, Error> {
    match batches.run(&changes(operations), None).await? {
        Batched::Done(ran) => Ok(ran.outcomes),
        other => panic!("not done: {other:?}"),
    }
}

async fn names(cell: &Cell) -> Vec<String> {
    let volume = volume(&cell.client).await;
    let list = cell.client.list(&volume, ROOT).await.unwrap();
    let name = |name: Vec<u8>| String::from_utf8(name).unwrap();
    list.into_iter().map(|entry| name(entry.name)).collect()
}

#[tokio::test]
async fn each_operation_has_its_outcome() {
    let cell = with_batches();
    let volume = volume(&cell.client).await;
    file(&cell.client, &volume).await;
    assert_eq!(names(&cell).await, ["file"]);
    let mut batches = cell.client.batches(&volume).await.unwrap();
    let operations = [create("a"), create("file"), remove("no"), remove("file")];
    let outcomes = run_all(&mut batches, &operations).await.unwrap();
    let [made, taken, missing, gone] = <[Outcome; 4]>::try_from(outcomes).unwrap();
    let made = made.unwrap().unwrap();
    assert_eq!(made.volume, VolumeId(VOLUME));
    assert_eq!(taken.unwrap_err().errno(), Some(EEXIST));
    assert_eq!(missing.unwrap_err().errno(), Some(ENOENT));
    assert_eq!(gone.unwrap(), None);
    // What was known of the directory is not believed any more.
    assert_eq!(names(&cell).await, ["a"]);
    let found = cell.client.lookup(&volume, ROOT, b"a").await.unwrap();
    assert_eq!(found, Some(made));
}

#[tokio::test]
async fn a_batch_whose_answer_is_lost_is_run_once() {
    let cell = with_batches();
    let counts = &cell.servers.counts;
    let volume = volume(&cell.client).await;
    file(&cell.client, &volume).await;
    let mut batches = cell.client.batches(&volume).await.unwrap();
    // Twice, it would find its name taken, or gone.
    counts.lost.store(2, Ordering::SeqCst);
    counts.batches.store(0, Ordering::SeqCst);
    let operations = [create("a"), remove("file")];
    let outcomes = run_all(&mut batches, &operations).await.unwrap();
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(counts.batches.swap(0, Ordering::SeqCst), 3);
    // One that never got there is run then.
    counts.not_done.store(1, Ordering::SeqCst);
    let outcomes = run_all(&mut batches, &[remove("a"), create("b")]).await;
    let outcomes = outcomes.unwrap();
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(counts.batches.load(Ordering::SeqCst), 2);
    assert_eq!(names(&cell).await, ["b"]);
}

#[tokio::test]
async fn a_batch_of_which_the_server_knows_nothing_any_more_is_in_doubt() {
    let cell = with_batches();
    let counts = &cell.servers.counts;
    let volume = volume(&cell.client).await;
    file(&cell.client, &volume).await;
    let mut batches = cell.client.batches(&volume).await.unwrap();
    counts.lost.store(1, Ordering::SeqCst);
    counts.forgetful.store(true, Ordering::SeqCst);
    let run = run_all(&mut batches, &[create("a")]).await;
    assert!(matches!(run, Err(Error::InDoubt(_))), "{run:?}");
    // The next one is not sent at all, as far as the server knows: single calls may follow.
    let next = batches.run(&changes(&[remove("a")]), None).await;
    let next = next.unwrap();
    assert!(matches!(next, Batched::NotDone(_)), "{next:?}");
    assert_eq!(names(&cell).await, ["a", "file"]);
    // A server that never answers is not asked for ever.
    let mut batches = cell.client.batches(&volume).await.unwrap();
    counts.batches.store(0, Ordering::SeqCst);
    counts.not_done.store(u64::MAX, Ordering::SeqCst);
    let run = run_all(&mut batches, &[create("b")]).await;
    assert!(matches!(run, Err(Error::InDoubt(_))), "{run:?}");
    assert_eq!(counts.batches.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_series_is_begun_once() {
    let cell = with_batches();
    let counts = &cell.servers.counts;
    let volume = volume(&cell.client).await;
    file(&cell.client, &volume).await;
    counts.lost.store(1, Ordering::SeqCst);
    let mut batches = cell.client.batches(&volume).await.unwrap();
    let outcomes = run_all(&mut batches, &[create("a")]).await.unwrap();
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    let world = cell.servers.world.lock().unwrap();
    let mut last: Vec<_> = world.batches.iter().flatten().map(|one| one.1.0).collect();
    last.sort_unstable();
    assert_eq!(last, [0, 1], "the lost one was another");
}

#[tokio::test]
async fn servers_without_batches_are_asked_once_or_not_at_all() {
    let without = cell(|_| {});
    let there = volume(&without.client).await;
    file(&without.client, &there).await;
    assert!(without.client.batches(&there).await.is_none());
    assert_eq!(without.servers.counts.batches.load(Ordering::SeqCst), 1);

    // Not afar's, whatever it would say.
    let mut all = World::default();
    all.volume("root.cell", VOLUME, None);
    all.batches = Some(Series::new());
    let other = Cell::start_far(all, Duration::from_millis(1), |_| {});
    let there = volume(&other.client).await;
    file(&other.client, &there).await;
    assert!(other.client.batches(&there).await.is_none());
    assert_eq!(other.servers.counts.batches.load(Ordering::SeqCst), 0);

    let read_only = cell(|world| world.batches = Some(Series::new()));
    let name = "test.example".parse().unwrap();
    let where_to = read_only.client.cell(&name).await.unwrap();
    let wanted = afar_cell::Wanted::Exactly(afar_types::VolumeType::ReadOnly);
    let there = read_only.client.volume(&where_to, "root.cell", wanted);
    let there = there.await.unwrap();
    assert!(read_only.client.batches(&there).await.is_none());
    assert_eq!(read_only.servers.counts.batches.load(Ordering::SeqCst), 0);
}

#[test]
fn a_fid_is_told_without_its_volume() {
    let fid = Fid::new(VOLUME, 4, 5);
    assert_eq!(BatchVnode::from(fid).fid(VolumeId(VOLUME)), fid);
    assert_eq!(BatchVnode::from(fid).maker(), None);
    assert_eq!(BatchVnode::made_by(3).maker(), Some(3));
}
