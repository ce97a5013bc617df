//! The store after its process was killed at any moment.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use afar_store::Durability;
use fastrand::Rng;

use crate::clients::Clients;
use crate::crash::CLIENTS;
use crate::recorder::scratch;
use crate::respawn::{respawn, role};
use crate::{setting, subject};

/// A child that says nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn nothing_acknowledged_is_lost_with_the_process() {
    let kills = setting("AFAR_TEST_KILLS", 20);
    let seed = setting("AFAR_TEST_SEED", 1);
    let mut rng = Rng::with_seed(seed);
    let dir = scratch();
    drop(subject::init(dir.path(), seed % 2 == 1, Durability::Full).unwrap());
    let mut clients = Clients::new(seed, CLIENTS);
    for kill in 0..kills {
        let before = clients.done().to_vec();
        // Some live until they have made a checkpoint.
        let longest = if kill % 5 == 4 { 2500 } else { 200 };
        let acknowledged = work_until_killed(dir.path(), seed, &before, rng.u64(1..longest));
        clients.advance(&acknowledged);
        let partition = subject::open(dir.path()).unwrap();
        if let Err(error) = clients.compare(&partition, true) {
            panic!(
                "kill {kill} of {kills}: {error}\n\
                 Again: AFAR_TEST_SEED={seed} AFAR_TEST_KILLS={kills} \
                 cargo test -p afar-store --test power_loss killed::"
            );
        }
    }
    let done: u32 = clients.done().iter().sum();
    assert!(done > 10 * kills, "only {done} operations were done");
}

/// Runs a child that works on a partition, kills it, and says what it acknowledged.
fn work_until_killed(dir: &Path, seed: u64, done: &[u32], milliseconds: u64) -> Vec<u32> {
    let numbers: Vec<String> = done.iter().map(ToString::to_string).collect();
    let role = format!("{seed} {} {}", numbers.join(","), dir.display());
    let mut child = respawn("killed::child_works_until_it_is_killed", &role).unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (started, starts) = channel();
    let mut acknowledged = done.to_vec();
    let reader = thread::spawn(move || {
        for line in output.lines() {
            let line = line.unwrap();
            let Some((_, numbers)) = line.split_once("acknowledged ") else {
                continue;
            };
            let (client, done) = numbers.split_once(' ').unwrap();
            acknowledged[client.parse::<usize>().unwrap()] = done.parse().unwrap();
            // Nobody waits after the first time.
            started.send(()).unwrap_or_default();
        }
        acknowledged
    });
    let working = starts.recv_timeout(PATIENCE);
    thread::sleep(Duration::from_millis(milliseconds));
    child.kill().unwrap();
    child.wait().unwrap();
    let acknowledged = reader.join().unwrap();
    working.expect("the child does at least one operation");
    acknowledged
}

/// Not a test of its own.
#[test]
#[ignore = "a child of another test"]
fn child_works_until_it_is_killed() {
    let Some(role) = role() else { return };
    let mut parts = role.splitn(3, ' ');
    let seed = parts.next().unwrap().parse().unwrap();
    let done: Vec<u32> = parts
        .next()
        .unwrap()
        .split(',')
        .map(|n| n.parse().unwrap())
        .collect();
    let partition = subject::open(Path::new(parts.next().unwrap())).unwrap();
    let mut clients = Clients::new(seed, CLIENTS);
    clients.advance(&done);
    clients
        .run(&partition, u32::MAX, |client, done| {
            println!("acknowledged {client} {done}")
        })
        .unwrap();
}
