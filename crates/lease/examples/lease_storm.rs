//! What a table of leases costs a server: its memory for each lease, and the processor time of its steps when a volume in
//! which 10,000 hosts have leases is needed as a whole, and when one host's leases are needed one after the other.
//!
//! `cargo run --release -p afar-lease --example lease_storm`; prints a line of JSON for each table. Memory is what
//! /proc says that the process has, so each table is measured in a process of its own: `-- HOSTS LEASES`.

#![expect(clippy::print_stdout, reason = "an example for a terminal")]
#![expect(
    clippy::disallowed_methods,
    reason = "the steps are measured from outside"
)]

use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use afar_lease::wire::{Note, RecallAnswer, Standing, VERSION};
use afar_lease::{Action, Entry, Heard, Limits, Server, Time, VolumeEntry, Wish};
use afar_types::{AfsUuid, Fid, VolumeId};
use afar_xdr::List;

const START: Time = Duration::from_secs(1000);
const VOLUME: VolumeId = VolumeId(7);
/// Hosts and leases of each.
const TABLES: [[u32; 2]; 3] = [[10_000, 1], [10_000, 99], [61, 16_384]];

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<u32> = std::env::args()
        .skip(1)
        .map(|word| word.parse())
        .collect::<Result<_, _>>()?;
    if let [hosts, leases] = arguments[..] {
        return measure(hosts, leases);
    }
    for table in TABLES {
        let words = table.map(|number| number.to_string());
        let status = Command::new(std::env::current_exe()?)
            .args(words)
            .status()?;
        if !status.success() {
            return Err("a table was not measured".into());
        }
    }
    Ok(())
}

fn uuid(number: u32) -> AfsUuid {
    AfsUuid {
        time_low: number,
        ..AfsUuid::default()
    }
}

fn measure(hosts: u32, leases: u32) -> Outcome<()> {
    let mut server = Server::new(START, 1, 0, Vec::new(), Limits::default());
    let before = resident()?;
    let began = Instant::now();
    for host in 0..hosts {
        grant(&mut server, host, leases)?;
    }
    let granted = began.elapsed();
    let memory = resident()?.saturating_sub(before);
    let all = server.leases();
    if all != hosts as usize * leases as usize {
        return Err(format!("{all} leases are granted").into());
    }

    let began = Instant::now();
    server.close_volume(VOLUME);
    if server.enter_volume(START, VOLUME) == VolumeEntry::Proceed {
        return Err("nothing is leased".into());
    }
    let begun = began.elapsed();
    let mut calls = 0_u32;
    while let Some(action) = server.poll_action() {
        if let Action::Recall(host) = action {
            calls += 1;
            let recall = server.recall_of(host).ok_or("nothing is recalled")?;
            let released = vec![Standing::Released; recall.items.len()];
            let answer = RecallAnswer {
                standings: List::new(released)?,
            };
            server.recall_answered(START, host, &recall, &answer);
        }
    }
    if server.enter_volume(START, VOLUME) != VolumeEntry::Proceed {
        return Err("the volume is not free".into());
    }
    println!(
        "{{\"hosts\":{hosts},\"leases\":{all},\"bytes_a_lease\":{},\"grants_ms\":{},\"recalls_begun_ms\":{},\
         \"recalled_ms\":{},\"calls\":{calls}}}",
        memory / all,
        granted.as_millis(),
        begun.as_millis(),
        began.elapsed().as_millis(),
    );
    Ok(())
}

/// A host gets leases by calls of one wish each.
fn grant(server: &mut Server, host: u32, leases: u32) -> Outcome<()> {
    let fresh = u64::from(host) + 1;
    let mut session = 0;
    // The first call is answered without a lease, as the row is not durable yet. It is of no vnode of the others.
    for place in 0..=leases {
        let fid = match place {
            0 => Fid::new(VOLUME.0, 1 + 2 * host, u32::MAX),
            _ => Fid::new(VOLUME.0, 2 * (host * leases + place), 1),
        };
        let note = Note {
            version: VERSION,
            instance: 1,
            session,
            heard: u64::MAX,
            ..Note::default()
        };
        let heard: Heard = server.hear(START, uuid(host), &note, fresh);
        let Entry::Proceed(visit) = server.enter(START, None, Some(heard), &[fid]) else {
            return Err("somebody has it".into());
        };
        let wish = Wish { fid, alone: true };
        let word = server.answer(START, heard, visit, &[wish]);
        server.leave(visit);
        session = word.session;
        while let Some(action) = server.poll_action() {
            if let Action::Persist {
                host,
                volume,
                session,
            } = action
            {
                server.persisted(host, volume, session);
            }
        }
    }
    Ok(())
}

/// Bytes of memory that the process has.
fn resident() -> Outcome<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kib.ok_or("no VmRSS")?.parse::<usize>()? << 10)
}
