//! Batches: many changes of a volume in one call and one commit, each as the single call would make it.
//!
//! The committer makes the changes one after the other, so that nothing comes in between, and with them notes what came
//! of each under the batch's number: a batch that comes again is answered, not run again. Promises are broken
//! and the caller is answered when all of it is durable.
//!
//! - `data`: the data of files, and where they are
//! - `room`: how much of this goes on at a time
//! - `run`: the changes, in the committer
//! - `series`: what is remembered of batches that were run
//! - `tell`: audit and counters, as of single calls
// spec: batches#the-call

mod data;
pub(crate) mod room;
mod run;
mod series;
mod tell;

use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_lease::wire::Word;
use afar_net::AbortCode;
use afar_rpc::{Caller, StoreSource, Wait, rxafs};
use afar_types::{
    BATCH_BYTES, BatchChange, BatchChanges, BatchOperation, BatchResults, BatchStatus,
    BatchStatuses, BatchVnode, Fid, FileType, VolSync,
};
use afar_xdr::{Opaque, from_bytes, to_bytes};
use tokio::time::timeout;
use xxhash_rust::xxh3::Xxh3;

use self::data::Targets;
use self::run::{Done, Run};
use super::leases;
use super::visit::{EnteredVolume, Visit, as_owner, failed};
use crate::abort::errno;
use crate::access::may_fetch_status;
use crate::leases::read_note;

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
    let note = read_note(&request.note)?;
    if let Some(note) = &note {
        // Its leases last from now.
        visit.leases.hear(note);
    }
    let batches = &visit.server.batches;
    let _room = batches.room(caller.peer.ip(), visit.person.id, length)?;
    let received = timeout(RECEIVE_LIMIT, receive(data, length)).await;
    let bytes = received.map_err(|_| AbortCode::RX_CALL_TIMEOUT)??;
    let changes = from_bytes::<BatchChanges>(&bytes);
    let changes = changes.map_err(|_| AbortCode::RXGEN_SS_UNMARSHAL)?;
    drop(bytes);
    check(&changes, request.number)?;
    if let Some(word) = visit.leases.unfit() {
        return unfit(&word);
    }
    let volume = request.volume;
    let run = Run {
        visit: visit.clone(),
        volume,
        series: request.series.0,
        number: request.number,
        digest: digest(&changes),
        changes: Arc::new(changes),
    };
    let answer = run_alone(visit, &run).await?;
    let Answer { done, .. } = &answer;
    if !done.repeated {
        tell::parts(visit, caller, volume, &run.changes, done, began.elapsed());
    }
    break_promises(visit, done).await;
    let word = match note {
        Some(note) => leases::answer(visit, note.wishes.into_vec(), note.reserve).await?,
        None => None,
    };
    reply(visit, answer, word.as_ref())
}

/// Runs a batch once nobody else has a lease of what it changes. While it waits for one it holds nothing that others wait
/// for: among them are those who give one back by a batch.
async fn run_alone(visit: &Visit, run: &Run) -> Result<Answer, AbortCode> {
    let volume = run.volume;
    loop {
        let changes = Arc::clone(&run.changes);
        let targets = visit
            .step(move |visit| Targets::of(visit, volume, &changes))
            .await?;
        let turns = visit.server.stores.turns(&targets.files);
        let turns = Wait::Lock.on(turns).await;
        let turn = Wait::Lock.on(visit.server.batches.turn()).await;
        let this = run.clone();
        let ran = visit
            .step_once(move |visit| run_and_look(visit, this, &targets))
            .await;
        drop((turn, turns));
        if ran.is_ok() {
            visit.leases.go_on();
        }
        if !visit.waits().await? {
            return ran;
        }
    }
}

/// Names the operations. Under which leases they were made may be another thing when they come again.
fn digest(changes: &[BatchChange]) -> u64 {
    let mut digest = Xxh3::new();
    for change in changes {
        digest.update(&to_bytes(&change.operation));
    }
    digest.digest()
}

/// The note is of another session, so that nothing is run.
// spec: leases#batches
fn unfit(word: &Word) -> Result<rxafs::batch::Reply, AbortCode> {
    Ok(rxafs::batch::Reply {
        repeated: false,
        results: BatchResults::default(),
        statuses: BatchStatuses::default(),
        vol_sync: VolSync::default(),
        word: leases::message(word)?,
    })
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
    for (place, change) in changes.iter().enumerate() {
        let BatchChange {
            operation, under, ..
        } = change;
        if under.iter().any(|under| under.vnode.maker().is_some()) {
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
            let is_leased = under.iter().any(|under| under.vnode == make.directory);
            if !is_leased || make.wanted.maker().is_some() {
                return Err(nonsense);
            }
        }
    }
    Ok(())
}

/// What is to be told of a batch.
struct Answer {
    done: Done,
    statuses: Vec<BatchStatus>,
    vol_sync: VolSync,
}

/// Runs a batch, or finds what came of it before. Then looks at what it changed: all the caller is told comes with a
/// promise, which is entered first.
fn run_and_look(visit: &Visit, run: Run, targets: &Targets) -> Result<Answer, AbortCode> {
    let mut place = visit.change(run.volume)?;
    let mut together = place.volume().together().map_err(failed)?;
    let mut contents = Vec::with_capacity(run.changes.len());
    for (change, open) in run.changes.iter().zip(&targets.open) {
        contents.push(match &change.operation {
            BatchOperation::StoreData { data, .. } if *open => {
                Some(together.content(data).map_err(failed)?)
            }
            _ => None,
        });
    }
    let weight = run.changes.len().max(1);
    let volume = place.volume().clone();
    let ran = together.run(weight, move |sequence| {
        run.run(sequence, &contents, &volume)
    });
    visit.leases.end_births(ran.is_ok());
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
    // What was run earlier may be another's by now, who is not asked for the sake of this.
    if done.repeated && visit.leases.is_anothers(fid) {
        return None;
    }
    let promise = place.promise(fid, false);
    let look = place.look(fid).ok()?;
    let made = done.changed.made.contains(&fid);
    let mut grant = look.grant;
    if made && look.vnode.file_type == FileType::File {
        // spec: afs-rpc#changing-directories
        grant = as_owner(grant);
    }
    // The caller has changed it just now, and is told its status as by single calls. Later it may have lost the right.
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

fn reply(
    visit: &Visit,
    answer: Answer,
    word: Option<&Word>,
) -> Result<rxafs::batch::Reply, AbortCode> {
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
        word: match word {
            Some(word) => leases::message(word)?,
            None => Opaque::default(),
        },
    })
}
