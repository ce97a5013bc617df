//! Two and three machines at once, on one cell in which much goes wrong: what each sees is checked
//! against what was done.
//!
//! # What must hold
//!
//! - **Close to open.** When a close has returned without an error, whoever opens the file later, on
//!   any machine, reads what was closed, or something newer. The same for the file's length, and for
//!   names made, moved and removed: who looks after the answer sees the change. The server breaks
//!   its promises before it answers.
//! - While something is done, who looks sees it done or not done. Of a file that is being
//!   replaced he may see it empty; of one that is written in parts, a part.
//! - **Nobody goes back.** A machine that has seen a change does not see what was before it.
//! - **Cut off.** A machine that is cut off may not know what was changed since it was. When the cut is
//!   over, it knows everything as soon as the server has answered a request of it, and after 8 s in
//!   any case. When a server is killed all machines may not know what was changed since, until the
//!   same holds for the next one. A server that stops in good order remembers whom it has
//!   promised what: nothing is excused by that.
//! - **What is acknowledged is there.** Counters that are counted on under a lock, and lines at the end of
//!   logs that are locked by AFS, are exactly as many as were acknowledged, at every step, cut off or
//!   not: a machine that was given a lock knows everything before. So does its kernel, of files that were kept
//!   open: their length, what is read of them, and where their end is.
//! - What failed was done, or not, or, where nobody said, may still come; until the same machine has
//!   done something else with it. It fails only during a trouble, or shortly after.
//! - In the end all machines and the server agree.
//!
//! `AFAR_TEST_COHERENCE_OPS` sets how many operations are checked, `AFAR_TEST_SEED` the seed.

#![expect(clippy::print_stderr, reason = "what it takes to see a failure again")]
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod cell;
mod history;
mod kept;
mod kernel;
mod locked;
mod names;
mod own;
mod shared;
mod switch;
mod trouble;
mod worker;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use worker::{LOCKED, Worker, World};

/// Operations of all tests together, if nothing else is set.
const OPERATIONS: u64 = 40_000;
/// How long it may take in the end until everything is stored.
const SETTLE: Duration = Duration::from_secs(60);

fn setting(name: &str) -> Option<u64> {
    let set = std::env::var(name).ok();
    set.map(|text| text.parse().unwrap())
}

/// Has so many machines with so many workers each do a share of the operations.
async fn check(machines: usize, workers: usize, share: u64, leases: bool) {
    let operations = setting("AFAR_TEST_COHERENCE_OPS").unwrap_or(OPERATIONS);
    let operations = operations * share / 100;
    let seed = setting("AFAR_TEST_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("AFAR_TEST_SEED={seed}: {machines} machines, {operations} operations");
    let world = World::new(machines, workers, leases).await;
    let begun = Instant::now();
    let trouble = tokio::spawn(trouble::make_trouble(Arc::clone(&world), seed));
    let mut working = JoinSet::new();
    for number in 0..machines * workers {
        let worker = Worker::new(&world, number / workers, number, seed);
        working.spawn(worker.work(operations));
    }
    let mut workers = Vec::new();
    while let Some(worker) = working.join_next().await {
        // The first that finds something wrong ends it all.
        workers.push(worker.unwrap());
    }
    world.cell.over.store(true, Ordering::SeqCst);
    let troubles = trouble.await.unwrap();
    let (time, failed) = (begun.elapsed(), world.failed.load(Ordering::SeqCst));
    eprintln!("{operations} operations in {time:?}, {failed} failed; {troubles:?}");
    for machine in &world.cell.machines {
        eprintln!("{:?}", machine.cache.changes_here());
    }
    settle(&workers).await;
    for worker in &mut workers {
        worker.close_kept().await;
    }
    agree(&world, &mut workers).await;
}

/// Has everything stored that could not be stored before.
async fn settle(workers: &[Worker]) {
    let begun = Instant::now();
    for worker in workers {
        while let Err(error) = worker.settle_own().await {
            assert!(
                begun.elapsed() < SETTLE,
                "worker {}: {error}",
                worker.number
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// All machines, and one that was never there before, see the same, and what was acknowledged.
async fn agree(world: &Arc<World>, workers: &mut [Worker]) {
    // What was left in doubt is stored now at the latest, and no promise of before holds.
    for machine in &world.cell.machines {
        machine.cache.close().await;
    }
    let fresh = world.cell.machine().await;
    let mut seen: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut names: Vec<String> = (0..world.files.len()).map(|n| format!("file{n}")).collect();
    names.extend((0..world.own.len()).map(|n| format!("own{n}")));
    let locked = |n| ["counter", "log", "kept"].map(|name| format!("{name}{n}"));
    names.extend((0..LOCKED).flat_map(locked));
    for worker in workers.iter() {
        let mut contents = Vec::new();
        for name in &names {
            contents.push(worker.get(name).await.unwrap());
        }
        seen.push(contents);
    }
    for (worker, contents) in workers.iter().zip(&seen) {
        for (name, (here, there)) in names.iter().zip(contents.iter().zip(&seen[0])) {
            assert!(
                here == there,
                "machine {} has {} in {name}, machine {} has {}",
                worker.machine,
                shared::description(here),
                workers[0].machine,
                shared::description(there),
            );
        }
    }
    for (place, counter) in world.counters.iter().enumerate() {
        let at = names
            .iter()
            .position(|name| *name == format!("counter{place}"));
        let value = *counter.lock().await;
        assert_eq!(seen[0][at.unwrap()], value.to_le_bytes(), "counter{place}");
    }
    for (place, log) in world.logs.iter().enumerate() {
        let at = names.iter().position(|name| *name == format!("log{place}"));
        assert!(seen[0][at.unwrap()] == *log.lock().await, "log{place}");
    }
    for (place, kept) in world.kept.iter().enumerate() {
        let at = names
            .iter()
            .position(|name| *name == format!("kept{place}"));
        assert!(seen[0][at.unwrap()] == *kept.read().await, "kept{place}");
    }
    for name in &names {
        let found = fresh
            .cache
            .lookup(worker::WHO, afar_cache::Ino::ROOT, name.as_bytes())
            .await;
        let at = names.iter().position(|other| other == name).unwrap();
        assert_eq!(found.unwrap().attr.size, seen[0][at].len() as u64, "{name}");
    }
    for _ in 0..200 {
        for worker in workers.iter_mut() {
            worker.read().await;
            worker.look_up().await;
            worker.list().await;
        }
    }
    fresh.cache.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn two_machines_see_what_was_done() {
    check(2, 3, 40, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn three_machines_see_what_was_done() {
    check(3, 2, 60, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn two_machines_with_leases_see_what_was_done() {
    check(2, 3, 4, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn three_machines_with_leases_see_what_was_done() {
    check(3, 2, 4, true).await;
}

/// A server that was killed knows nobody, and can tell nobody that something has changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_machine_learns_that_a_server_was_killed() {
    let cell = cell::Cell::new(1, false).await;
    let busy = &cell.machines[0].cache;
    let idle = cell
        .machine_with(|config| config.probe = Duration::from_millis(200))
        .await;
    let (who, root) = (worker::WHO, afar_cache::Ino::ROOT);
    busy.mkdir(who, root, b"before", 0o755).await.unwrap();
    idle.cache.lookup(who, root, b"before").await.unwrap();
    let mut told = idle.cache.invalidations();
    cell.kill().await;
    busy.mkdir(who, root, b"after", 0o755).await.unwrap();
    // Without a request of its own.
    tokio::time::timeout(SETTLE, told.recv())
        .await
        .unwrap()
        .unwrap();
    idle.cache.lookup(who, root, b"after").await.unwrap();
}
