//! What goes wrong: servers restarted and killed, machines cut off, the volume taken away.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use afar_fileserver::volumes::Hold;
use fastrand::Rng;

use crate::history::tick;
use crate::worker::World;

/// With leases a server that has restarted lets calls wait so long for the claims of machines that it does not hear of.
/// Another restart in the meantime would let them wait for ever.
// spec: leases#restart-of-the-server
const CLAIMS: Duration = Duration::from_secs(21);

/// How often each thing happened.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    pub(crate) cuts: u32,
    pub(crate) long_cuts: u32,
    pub(crate) restarts: u32,
    pub(crate) kills: u32,
    pub(crate) holds: u32,
}

/// Makes trouble, until the work is over.
pub(crate) async fn make_trouble(world: Arc<World>, seed: u64) -> Troubles {
    let (mut rng, mut made) = (Rng::with_seed(seed), Troubles::default());
    let cell = &world.cell;
    let leases = cell.machines.iter().any(|machine| machine.leases);
    let mut restarted: Option<Instant> = None;
    while !cell.over.load(Ordering::SeqCst) {
        pause(&mut rng, 100..1200).await;
        cell.trouble_begins();
        let begun = tick();
        let may_restart = !leases || restarted.is_none_or(|last| last.elapsed() > CLAIMS);
        let kind = match rng.u32(0..12) {
            5..10 if !may_restart => 0,
            kind => kind,
        };
        let what = match kind {
            0..4 => {
                made.cuts += 1;
                cut(&world, &mut rng, 30..900).await
            }
            4 => {
                made.long_cuts += 1;
                cut(&world, &mut rng, 2200..4000).await
            }
            5..8 => {
                made.restarts += 1;
                restarted = Some(Instant::now());
                let _nobody = world.quiet.write().await;
                cell.restart().await;
                "restarted".to_owned()
            }
            8..10 => {
                made.kills += 1;
                restarted = Some(Instant::now());
                let _nobody = world.quiet.write().await;
                cell.kill().await;
                "killed".to_owned()
            }
            10 => {
                made.holds += 1;
                let time = Duration::from_millis(rng.u64(20..600));
                cell.hold(Hold::Busy, time).await;
                "busy".to_owned()
            }
            _ => {
                made.holds += 1;
                let time = Duration::from_millis(rng.u64(20..300));
                cell.hold(Hold::Offline, time).await;
                "offline".to_owned()
            }
        };
        cell.trouble_ends();
        eprintln!("{begun}-{}: {what}", tick());
    }
    made
}

/// Cuts one machine off for a time, in milliseconds. Returns what was done.
async fn cut(world: &World, rng: &mut Rng, time: std::ops::Range<u64>) -> String {
    let machines = &world.cell.machines;
    let number = rng.usize(0..machines.len());
    let machine = &machines[number];
    machine.blind();
    machine.switch.cut();
    pause(rng, time).await;
    machine.switch.mend();
    machine.clear();
    format!("machine {number} cut off")
}

async fn pause(rng: &mut Rng, time: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(rng.u64(time))).await;
}
