//! The client: threads of calls, and what came of them.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use afar_net::{CallError, Connection, Endpoint};
use afar_rx::{AbortCode, RxNull, ServiceId};
use anyhow::{Context, bail};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::args::{ClientArgs, CommandName};
use super::path;
use super::report::{Interval, Rate, RunReport, Start, jain_index};
use super::runtime::{stop_signals, tick, ticks};
use super::transfer::{self, Failure, Progress};
use super::wire::{self, Operation, Request};
use crate::output::{self, Output};
use crate::units::parse_number;

/// Calls at a time on one Rx connection.
const CHANNELS: u32 = 4;
/// Calls of each thread if neither a number nor a time is given, as OpenAFS's client has it.
const TIMES_DEFAULT: u64 = 100;
/// How long the last packets to a server may take once the result is known.
const PARTING: Duration = Duration::from_secs(1);

/// What to do, checked.
pub(crate) struct Plan<'a> {
    args: &'a ClientArgs,
    command: String,
    request: Arc<Request>,
    times: Option<u64>,
    connections: u32,
}

/// One thread's part of a run.
#[derive(Debug)]
struct Worker {
    progress: Arc<Progress>,
    /// When it made its last call; `None` while it is at it.
    ended: Option<Instant>,
}

impl<'a> Plan<'a> {
    /// Checks what was asked for.
    ///
    /// # Errors
    /// Amounts that the protocol cannot say; a file that cannot be read.
    pub(crate) fn new(args: &'a ClientArgs) -> anyhow::Result<Self> {
        let operation = match (args.command, &args.file) {
            (CommandName::Send, _) => Operation::Send(args.bytes),
            (CommandName::Recv, _) => Operation::Recv(args.bytes),
            (CommandName::Rpc, _) => Operation::Rpc {
                request: args.send_bytes,
                reply: args.recv_bytes,
            },
            (CommandName::File, Some(file)) => Operation::File(read_entries(file)?),
            (CommandName::File, None) => bail!("rxperf client: -c file needs -f"),
        };
        let request = Request::encode(&operation, args.read_size, args.write_size)
            .context("rxperf client: no such request can be made; change -b, -S, -R or the file")?;
        let command = format!("{:?}", args.command).to_ascii_lowercase();
        let times = args
            .times
            .or_else(|| args.duration.is_none().then_some(TIMES_DEFAULT));
        let connections = args
            .connections
            .unwrap_or_else(|| args.threads.div_ceil(CHANNELS));
        Ok(Self {
            args,
            command,
            request: Arc::new(request),
            times,
            connections,
        })
    }

    fn start(&self, server: SocketAddr) -> Start {
        Start {
            command: self.command.clone(),
            server,
            threads: self.args.threads as usize,
            connections: self.connections as usize,
            times: self.times,
            duration_s: self.args.duration.as_ref().map(Duration::as_secs_f64),
            request_bytes: self.request.exchange.request,
            reply_bytes: self.request.exchange.reply,
        }
    }
}

/// Makes the calls and reports; says whether they were all made.
///
/// # Errors
/// The server has no address, a call failed, or reports cannot be written.
pub(crate) async fn run(plan: Plan<'_>, output: &mut Output) -> anyhow::Result<bool> {
    let args = plan.args;
    let server = resolve(&args.server, args.port, args.bind).await?;
    let local = SocketAddr::new(args.bind.unwrap_or_else(|| unspecified(server)), 0);
    let endpoint = Endpoint::bind(local, path::config(&args.transport))
        .with_context(|| format!("rxperf client: cannot send from {local}; try another --bind"))?;
    let connections: Vec<_> = (0..plan.connections)
        .map(|_| endpoint.connect(server, ServiceId(wire::SERVICE), Arc::new(RxNull)))
        .collect();
    let mut stop = stop_signals()?;
    output.report(&plan.start(server))?;
    let mut tasks = JoinSet::new();
    let mut watch = Watch::new(&plan, &endpoint, server);
    for (number, connection) in (0..args.threads as usize).zip(connections.iter().cycle()) {
        let calls = watch.worker(connection.clone());
        tasks.spawn(async move { (number, calls.run().await, Instant::now()) });
    }
    let outcome = watch.run(&mut tasks, &mut stop, output).await;
    // What is still under way is given up, and the server told so, unless it does not answer.
    tasks.shutdown().await;
    timeout(PARTING, endpoint.shutdown()).await.ok();
    if let (Ok(_), Some(hint)) = (&outcome, endpoint.buffer_hint()) {
        output::note(&hint);
    }
    outcome
}

/// The calls of one thread.
struct Calls {
    connection: Connection,
    request: Arc<Request>,
    write_size: u64,
    times: Option<u64>,
    deadline: Option<Instant>,
    progress: Arc<Progress>,
}

impl Calls {
    async fn run(self) -> Result<(), Failure> {
        let mut made = 0;
        while self.times.is_none_or(|times| made < times)
            && self
                .deadline
                .is_none_or(|deadline| Instant::now() < deadline)
        {
            let mut call = self.connection.call().await?;
            transfer::request(&mut call, &self.request, self.write_size, &self.progress).await?;
            self.progress.calls.fetch_add(1, Relaxed);
            made += 1;
        }
        Ok(())
    }
}

/// Looks at a run from outside.
struct Watch<'a> {
    plan: &'a Plan<'a>,
    endpoint: &'a Endpoint,
    server: SocketAddr,
    workers: Vec<Worker>,
    started: Instant,
    /// Bytes, calls and time of the last interval's end.
    last: (u64, u64, Instant),
}

impl<'a> Watch<'a> {
    fn new(plan: &'a Plan<'a>, endpoint: &'a Endpoint, server: SocketAddr) -> Self {
        let started = Instant::now();
        Self {
            plan,
            endpoint,
            server,
            workers: Vec::new(),
            started,
            last: (0, 0, started),
        }
    }

    /// The calls of a further thread, whose progress is watched.
    fn worker(&mut self, connection: Connection) -> Calls {
        let args = self.plan.args;
        let progress = Arc::new(Progress::default());
        self.workers.push(Worker {
            progress: Arc::clone(&progress),
            ended: None,
        });
        Calls {
            connection,
            request: Arc::clone(&self.plan.request),
            write_size: args.write_size.into(),
            times: self.plan.times,
            deadline: args.duration.map(|duration| self.started + duration),
            progress,
        }
    }

    /// Reports until all threads have ended, one has failed or a signal comes; says whether all
    /// have ended.
    async fn run(
        &mut self,
        tasks: &mut JoinSet<(usize, Result<(), Failure>, Instant)>,
        stop: &mut mpsc::Receiver<()>,
        output: &mut Output,
    ) -> anyhow::Result<bool> {
        let mut ticks = self.plan.args.interval.map(ticks);
        let mut interrupted = false;
        while !interrupted {
            tokio::select! {
                ended = tasks.join_next() => match ended {
                    None => break,
                    Some(ended) => {
                        let (number, result, at) = ended.context("rxperf client: a task failed")?;
                        result.map_err(|why| explain(self.plan, self.server, number, &why))?;
                        self.workers[number].ended = Some(at);
                    }
                },
                () = tick(ticks.as_mut()) => output.report(&self.interval().await)?,
                _ = stop.recv() => interrupted = true,
            }
        }
        output.report(&self.result(interrupted).await)?;
        Ok(!interrupted)
    }

    async fn interval(&mut self) -> Interval {
        let now = Instant::now();
        let (bytes, calls) = totals(&self.workers);
        let (bytes_before, calls_before, before) = self.last;
        self.last = (bytes, calls, now);
        Interval {
            at_s: (now - self.started).as_secs_f64(),
            rate: Rate::new(bytes - bytes_before, calls - calls_before, now - before),
            path: Some(path::snapshot(self.endpoint, self.server).await),
        }
    }

    async fn result(&self, interrupted: bool) -> RunReport {
        let now = Instant::now();
        let time = |worker: &Worker| worker.ended.unwrap_or(now) - self.started;
        let (bytes, calls) = totals(&self.workers);
        let whole = self.workers.iter().map(time).max().unwrap_or_default();
        let threads: Vec<_> = self
            .workers
            .iter()
            .map(|worker| {
                Rate::new(
                    worker.progress.bytes(),
                    worker.progress.calls(),
                    time(worker),
                )
            })
            .collect();
        let counters = match self.plan.args.dump_stats {
            true => Some(path::counters(self.endpoint).await),
            false => None,
        };
        RunReport {
            command: self.plan.command.clone(),
            server: self.server,
            interrupted,
            rate: Rate::new(bytes, calls, whole),
            jain_index: jain_index(threads.iter().map(|rate| rate.mb_per_s)),
            threads,
            path: path::snapshot(self.endpoint, self.server).await,
            counters,
        }
    }
}

fn totals(workers: &[Worker]) -> (u64, u64) {
    workers.iter().fold((0, 0), |(bytes, calls), worker| {
        (
            bytes + worker.progress.bytes(),
            calls + worker.progress.calls(),
        )
    })
}

/// One line on a failed call: what, to whom, why, what next.
fn explain(plan: &Plan<'_>, server: SocketAddr, thread: usize, why: &Failure) -> anyhow::Error {
    let next = match why {
        Failure::Call(CallError::Dead | CallError::Unreachable(_)) => {
            "; is `afar rxperf server` running there, and does a firewall let its port through?"
        }
        Failure::Call(CallError::Aborted(code) | CallError::ConnectionAborted(code))
            if *code == AbortCode::RX_INVALID_OPERATION =>
        {
            "; another Rx server has that port: name rxperf's with -p"
        }
        Failure::Wire(_) => "; the server is not an rxperf of this protocol",
        Failure::Call(_) => "; run it again, with --verbose on the server",
    };
    let command = &plan.command;
    anyhow::anyhow!("rxperf client: {command} to {server}, thread {thread}: {why}{next}")
}

/// The server's first address of the family we send from; IPv4 if that is open.
async fn resolve(host: &str, port: u16, bind: Option<IpAddr>) -> anyhow::Result<SocketAddr> {
    let next = "check the name given with -s";
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port))
        .await
        .with_context(|| format!("rxperf client: server {host:?} has no address; {next}"))?
        .collect();
    let family = |want_v4: bool| found.iter().find(|address| address.is_ipv4() == want_v4);
    let address = match bind {
        Some(bind) => family(bind.is_ipv4()),
        None => family(true).or_else(|| family(false)),
    };
    address.copied().with_context(|| {
        format!("rxperf client: server {host:?} has no address to reach from --bind; {next}")
    })
}

fn unspecified(peer: SocketAddr) -> IpAddr {
    if peer.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    }
}

/// Reads the amounts of `-c file`: a number a line, an empty line for 0.
fn read_entries(path: &Path) -> anyhow::Result<Vec<u32>> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .with_context(|| format!("rxperf client: cannot read {shown}; name another with -f"))?;
    let entry = |(at, line): (usize, &str)| {
        let number = match line.trim() {
            "" => Ok(0),
            line => parse_number(line).and_then(|number| {
                u32::try_from(number).map_err(|_| format!("{line} is above {}", u32::MAX))
            }),
        };
        number.map_err(|why| {
            anyhow::anyhow!(
                "rxperf client: {shown} line {}: {why}; a line has one number",
                at + 1
            )
        })
    };
    text.lines().enumerate().map(entry).collect()
}
