//! Batches: many changes of a volume in one call and one commit, each as the single call would make it.
//!
//! The committer makes the changes one after the other, so that nothing comes in between, and with them notes what came
//! of each under the batch's number: a batch that comes again is answered, not run again. Promises are broken
//! and the caller is answered when all of it is durable.
//!
//! - `room`: how much of this goes on at a time
//! - `run`: the changes, in the committer
//! - `series`: what is remembered of batches that were run
//! - `tell`: audit and counters, as of single calls
// spec: batches#the-call

pub(crate) mod room;
mod run;
mod series;
mod tell;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_net::AbortCode;
use afar_rpc::{Caller, StoreSource, Wait, rxafs};
use afar_types::{
    BATCH_BYTES, BatchChange, BatchChanges, BatchOperation, BatchResults, BatchStatus,
    BatchStatuses, BatchVnode, Fid, FileType, VolSync, VolumeId,
};
use afar_xdr::{Opaque, from_bytes};
use tokio::time::timeout;

use self::run::{Done, Run};
use super::visit::{EnteredVolume, Visit, as_owner, failed};
use crate::abort::errno;
use crate::access::may_fetch_status;

/// How long the operations of a batch may take to come.
const RECEIVE_LIMIT: Duration = Duration::from_secs(120);

pub(super) async fn batch(
    visit: &Visit,
    caller: &Caller,
    request: rxafs::batch::Request,
    data: &mut StoreSource<'_>,
) -> Result<rxafs::batch::Reply, AbortCode> {
    let began = Instant::now();
    let length = usize::try_from(request.length).unwrap_or(usize::MAX);
    if length > BATCH_BYTES {
        return Err(AbortCode(errno::E2BIG));
    }
    let batches = &visit.server.batches;
    let _room = batches.room(caller.peer.ip(), length)?;
    let received = timeout(RECEIVE_LIMIT, receive(data, length)).await;
    let bytes = received.map_err(|_| AbortCode::RX_CALL_TIMEOUT)??;
    let changes = from_bytes::<BatchChanges>(&bytes);
    let changes = changes.map_err(|_| AbortCode::RXGEN_SS_UNMARSHAL)?;
    drop(bytes);
    check(&changes, request.number)?;
    let volume = request.volume;
    let changes = Arc::new(changes);
    // In order, lest two batches wait for each other.
    let mut turns = Vec::new();
    for fid in stored(&changes, volume) {
        turns.push(Wait::Lock.on(visit.server.stores.turn(fid)).await);
    }
    let turn = Wait::Lock.on(batches.turn()).await;
    let run = Run {
        visit: visit.clone(),
        volume,
        series: request.series.0,
        number: request.number,
        changes: Arc::clone(&changes),
    };
    let answer = visit.step(move |visit| run_and_look(visit, run)).await?;
    drop((turn, turns));
    let Answer { done, .. } = &answer;
    if !done.repeated {
        tell::parts(visit, caller, volume, &changes, done, began.elapsed());
    }
    break_promises(visit, done).await;
    reply(visit, answer)
}

async fn receive(data: &mut StoreSource<'_>, length: usize) -> Result<Vec<u8>, AbortCode> {
    let mut bytes = Vec::new();
    while let Some(chunk) = data.chunk_after(length).await? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Refuses a batch that makes no sense as a whole, before anything of it is run.
fn check(changes: &[BatchChange], number: u64) -> Result<(), AbortCode> {
    let nonsense = AbortCode(errno::EINVAL);
    // The first of a series has nothing but its number.
    if (number == 0) != changes.is_empty() {
        return Err(nonsense);
    }
    for (place, BatchChange { operation, under }) in changes.iter().enumerate() {
        if !under.is_empty() {
            return Err(nonsense);
        }
        for maker in operation.vnodes().iter().flatten() {
            let Some(maker) = maker.maker() else { continue };
            let maker = usize::try_from(maker).unwrap_or(usize::MAX);
            let made = changes.get(maker);
            let made = made.is_some_and(|change| change.operation.makes());
            if maker >= place || !made {
                return Err(nonsense);
            }
        }
        if let BatchOperation::Create(make)
        | BatchOperation::MakeDir(make)
        | BatchOperation::Symlink(make, _) = operation
            && make.wanted != BatchVnode::default()
        {
            return Err(nonsense);
        }
    }
    Ok(())
}

/// The files that were there before and whose data is stored. Other stores to them may be going on.
fn stored(changes: &[BatchChange], volume: VolumeId) -> BTreeSet<Fid> {
    let target = |change: &BatchChange| match &change.operation {
        BatchOperation::StoreData { target, .. } if target.maker().is_none() => {
            Some(target.fid(volume))
        }
        _ => None,
    };
    changes.iter().filter_map(target).collect()
}

/// What is to be told of a batch.
struct Answer {
    done: Done,
    statuses: Vec<BatchStatus>,
    vol_sync: VolSync,
}

/// Runs a batch, or finds what came of it before. Then looks at what it changed: all the caller is told comes with a
/// promise, which is entered first.
fn run_and_look(visit: &Visit, run: Run) -> Result<Answer, AbortCode> {
    let mut place = visit.change(run.volume)?;
    let mut together = place.volume().together().map_err(failed)?;
    let mut contents = Vec::with_capacity(run.changes.len());
    for change in &**run.changes {
        contents.push(match &change.operation {
            BatchOperation::StoreData { data, .. } => Some(together.content(data).map_err(failed)?),
            _ => None,
        });
    }
    let weight = run.changes.len().max(1);
    let ran = together.run(weight, move |sequence| run.run(sequence, &contents));
    let done = ran.map_err(failed)??;
    let told = done.changed.told();
    let statuses = told
        .filter_map(|fid| look(visit, &mut place, &done, fid))
        .collect();
    Ok(Answer {
        statuses,
        vol_sync: place.vol_sync(),
        done,
    })
}

fn look(
    visit: &Visit,
    place: &mut EnteredVolume<'_>,
    done: &Done,
    fid: Fid,
) -> Option<BatchStatus> {
    let promise = place.promise(fid, false);
    let look = place.look(fid).ok()?;
    let made = done.changed.made.contains(&fid);
    let mut grant = look.grant;
    if made && look.vnode.file_type == FileType::File {
        // spec: afs-rpc#changing-directories
        grant = as_owner(grant);
    }
    // The caller has changed it just now, and is told its status as by single calls. What is named with a number that was
    // used before may be something else than was changed then.
    if done.repeated && !made {
        may_fetch_status(&visit.person, &look.vnode, grant, place.state.owner).ok()?;
    }
    Some(BatchStatus {
        vnode: fid.into(),
        status: place.status(&look.vnode, grant),
        callback: visit.callback(&promise),
    })
}

/// Has all others know of what changed, as single calls do. What is repeated waits for what the first call began.
async fn break_promises(visit: &Visit, done: &Done) {
    let others: Vec<Fid> = done.changed.others().collect();
    let all: Vec<Fid> = done.changed.all().collect();
    tokio::join!(visit.break_others(&others), visit.break_all(&all));
    for &fid in &done.changed.gone {
        visit.server.hosts.discard(fid);
        visit.server.locks.discard(fid);
    }
}

fn reply(visit: &Visit, answer: Answer) -> Result<rxafs::batch::Reply, AbortCode> {
    let too_many = |_| AbortCode::RXGEN_SS_MARSHAL;
    let mut results = answer.done.results;
    for result in &mut results {
        if result.code != 0 {
            result.code = visit.translate(AbortCode(result.code)).0;
        }
    }
    Ok(rxafs::batch::Reply {
        repeated: answer.done.repeated,
        results: BatchResults::new(results).map_err(too_many)?,
        statuses: BatchStatuses::new(answer.statuses).map_err(too_many)?,
        vol_sync: answer.vol_sync,
        word: Opaque::default(),
    })
}
