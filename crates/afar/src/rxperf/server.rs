//! The server: answers calls, counts them, and tells of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use afar_net::{Call, Endpoint, Handler};
use afar_rx::{AbortCode, ServiceId};
use anyhow::Context;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::args::ServerArgs;
use super::path;
use super::report::{Interval, Listening, Rate, Summary, Transfer};
use super::runtime::{stop_signals, tick, ticks};
use super::transfer::{self, Progress};
use super::wire;
use crate::output::{self, Output};

/// Reports of ended calls that may wait to be printed before calls wait for the printing.
const TRANSFERS_WAITING: usize = 1024;
/// How long handlers may take to end after their calls have.
const HANDLERS: Duration = Duration::from_secs(1);

/// What serves the calls.
struct Service {
    totals: Arc<Progress>,
    /// Whether to tell of each call.
    verbose: bool,
    /// Where to tell of it. Its closing tells that no call is left.
    transfers: mpsc::Sender<Transfer>,
}

impl Handler for Service {
    async fn handle(&self, call: &mut Call) -> Result<(), AbortCode> {
        let progress = Progress::default();
        let started = self.verbose.then(Instant::now);
        let result = transfer::respond(call, &progress).await;
        self.totals.add(&progress);
        let count = if result.is_ok() {
            &self.totals.calls
        } else {
            &self.totals.failed
        };
        count.fetch_add(1, Relaxed);
        if let Some(started) = started {
            let calls = u64::from(result.is_ok());
            let transfer = Transfer {
                client: call.peer(),
                received_bytes: progress.received.load(Relaxed),
                sent_bytes: progress.sent.load(Relaxed),
                rate: Rate::new(progress.bytes(), calls, started.elapsed()),
                error: result.as_ref().err().map(ToString::to_string),
            };
            // The receiver is gone only when the server ends: nobody is left to tell.
            self.transfers.send(transfer).await.ok();
        }
        result.map_err(|failure| failure.code())
    }
}

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// The port is taken, or reports cannot be written.
pub(crate) async fn run(args: &ServerArgs, output: &mut Output) -> anyhow::Result<()> {
    let address = SocketAddr::new(args.bind, args.port);
    let endpoint = Endpoint::bind(address, path::config(&args.transport)).with_context(|| {
        format!("rxperf server: cannot listen on {address}; is another server there? Try -p")
    })?;
    let totals = Arc::new(Progress::default());
    let (sender, transfers) = mpsc::channel(TRANSFERS_WAITING);
    let service = Service {
        totals: Arc::clone(&totals),
        verbose: args.verbose,
        transfers: sender,
    };
    endpoint.serve(ServiceId(wire::SERVICE), "rxperf", service);
    let stop = stop_signals()?;
    output.report(&Listening {
        address: endpoint.local_addr(),
        service: wire::SERVICE,
    })?;
    if let Some(hint) = endpoint.buffer_hint() {
        output::note(&hint);
    }
    let started = Instant::now();
    Watch {
        args,
        totals: &totals,
        started,
        transfers,
    }
    .run(&endpoint, stop, output)
    .await?;
    let rate = Rate::new(totals.bytes(), totals.calls(), started.elapsed());
    output.report(&Summary {
        rate,
        failed: totals.failed.load(Relaxed),
    })
}

/// What the server does beside serving.
struct Watch<'a> {
    args: &'a ServerArgs,
    totals: &'a Progress,
    started: Instant,
    transfers: mpsc::Receiver<Transfer>,
}

impl Watch<'_> {
    /// Reports until the signal, then while the calls in progress finish.
    async fn run(
        mut self,
        endpoint: &Endpoint,
        mut stop: mpsc::Receiver<()>,
        output: &mut Output,
    ) -> anyhow::Result<()> {
        let mut ticks = self.args.interval.map(ticks);
        let mut last = (0, 0, self.started);
        loop {
            tokio::select! {
                _ = stop.recv() => break,
                Some(transfer) = self.transfers.recv() => output.report(&transfer)?,
                () = tick(ticks.as_mut()) => {
                    let now = Instant::now();
                    let (bytes, calls) = (self.totals.bytes(), self.totals.calls());
                    let rate = Rate::new(bytes - last.0, calls - last.1, now - last.2);
                    last = (bytes, calls, now);
                    let at_s = (now - self.started).as_secs_f64();
                    output.report(&Interval { at_s, rate, path: None })?;
                }
            }
        }
        let mut shutdown = std::pin::pin!(endpoint.shutdown());
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(transfer) = self.transfers.recv() => output.report(&transfer)?,
                _ = stop.recv() => {
                    output::note(&"rxperf server: ended at once; calls in progress are lost");
                    return Ok(());
                }
            }
        }
        // Calls are over before their handlers have said so.
        while let Ok(Some(transfer)) = timeout(HANDLERS, self.transfers.recv()).await {
            output.report(&transfer)?;
        }
        Ok(())
    }
}
