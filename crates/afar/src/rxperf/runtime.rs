//! Threads, ticks and signals for client and server.

use std::time::Duration;

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// The runtime of the tasks above `afar-net`. The engine has a thread of its own and does most of
/// the work: on small machines one more thread is best, and on large ones a few feed it.
pub(crate) fn start() -> anyhow::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut builder = match (cores / 4).min(4) {
        0 | 1 => Builder::new_current_thread(),
        threads => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
    };
    builder
        .enable_all()
        .build()
        .context("cannot start the runtime; has a limit on threads been reached?")
}

/// Ticks with that time between them, the first after it.
pub(crate) fn ticks(every: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// The next tick, or never.
pub(crate) async fn tick(ticks: Option<&mut Interval>) {
    match ticks {
        Some(ticks) => {
            ticks.tick().await;
        }
        None => std::future::pending().await,
    }
}

/// A message for each SIGINT and SIGTERM from now on.
pub(crate) fn stop_signals() -> anyhow::Result<mpsc::Receiver<()>> {
    let (sender, receiver) = mpsc::channel(2);
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut signals = signal(kind).context("cannot catch signals")?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if sender.send(()).await.is_err() {
                    break;
                }
            }
        });
    }
    Ok(receiver)
}
