//! The loop that carries packets between the two devices of a link.

use std::{io, ops::Range, rc::Rc, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, poll},
    time::{ClockId, Timespec, clock_gettime},
};

use crate::{
    config::{LinkConfig, Side},
    control::{Control, Request},
    error::{Context, Result},
    packet::{Packet, VnetHeader},
    path::Path,
    pending::Pending,
    realtime,
    stats::{DeliveryCounters, DirectionReport, Histogram, Report},
    tun::{Buffer, Tun},
};

mod pace;
mod pool;

use pace::Pace;
use pool::Pool;

/// Most reads from a device before the other one and the deliveries get their turn.
const READS_A_TURN: usize = 32;
/// Most writes to a device before the others get their turn.
const WRITES_A_TURN: usize = 2_048;
/// Above ordinary threads, below what the kernel itself runs so.
const FIFO_PRIORITY: i32 = 10;

/// A link emulator with its devices open.
#[derive(Debug)]
pub struct Emulator {
    config: LinkConfig,
    tuns: [Tun; 2],
    directions: [Direction; 2],
    pool: Pool,
    buffer: Buffer,
    head: Vec<u8>,
    clock: Clock,
    since: Since,
}

/// One direction: reads from one device, writes to the other.
#[derive(Debug)]
struct Direction {
    path: Path,
    pending: Pending<Wire>,
    counters: DeliveryCounters,
    late: Histogram,
    /// The latest place in the order of arrival that was delivered.
    newest: u64,
}

/// One wire packet on its way.
#[derive(Debug)]
struct Wire {
    packet: Rc<Packet>,
    range: Range<usize>,
    mark: bool,
    corrupt: Option<u64>,
}

/// What one turn of the loop did.
#[derive(Debug, Default, Clone, Copy)]
struct Turn {
    arrived: usize,
    delivered: usize,
    /// A budget ended before the work did.
    more: bool,
}

/// Where the counters start from.
#[derive(Debug, Default)]
struct Since {
    wall: u64,
    cpu: Duration,
    steal_ms: u64,
    wakeups: u64,
}

impl Emulator {
    /// Makes the devices in the namespaces of a link, which are there already.
    ///
    /// # Errors
    ///
    /// Those of [`Tun::open`].
    pub fn open(config: LinkConfig) -> Result<Self> {
        let open = |side| Tun::open(&config.namespace(side), config.address(side), config.mtu);
        let tuns = [open(Side::Srv)?, open(Side::Cli)?];
        let direction = |index: u8| Direction {
            path: Path::new(
                config.shapes[usize::from(index)].clone(),
                config.seed,
                index.into(),
            ),
            pending: Pending::default(),
            counters: DeliveryCounters::default(),
            late: Histogram::default(),
            newest: 0,
        };
        let directions = [direction(0), direction(1)];
        let clock = Clock::start();
        Ok(Self {
            config,
            tuns,
            directions,
            pool: Pool::default(),
            buffer: Buffer::default(),
            head: Vec::new(),
            clock,
            since: Since {
                cpu: cpu_time(),
                steal_ms: steal_ms(),
                ..Since::default()
            },
        })
    }

    /// Carries packets until asked to stop. Without the right to real-time scheduling it runs
    /// too, less punctually.
    ///
    /// # Errors
    ///
    /// What the system said when a device failed, as it does when its namespace is taken apart.
    pub fn run(mut self, control: &Control) -> Result<()> {
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).ok();
        realtime::enter_fifo(FIFO_PRIORITY).ok();
        let mut pace = Pace::new(self.config.quantum, self.clock);
        loop {
            let turn = self.turn(&pace)?;
            for (request, answer) in control.take() {
                // The caller may have given up.
                answer.send(self.report(pace.wakeups())).ok();
                match request {
                    Request::Report => {}
                    Request::Reset => self.reset(pace.wakeups()),
                    Request::Stop => return Ok(()),
                }
            }
            if turn.more {
                pace.still_busy();
                continue;
            }
            let next = self
                .directions
                .iter()
                .filter_map(|d| d.pending.next_due())
                .min();
            if pace.moderate(turn.arrived, turn.delivered, next) {
                continue;
            }
            let Some(timeout) = pace.quiet(next) else {
                continue;
            };
            self.wait(control, timeout)?;
            pace.woken(timeout);
        }
    }

    fn turn(&mut self, pace: &Pace) -> Result<Turn> {
        let mut turn = Turn::default();
        let seen = pace.arrival_time();
        for index in [0, 1] {
            self.ingest(index, seen, pace.slack(), &mut turn)?;
        }
        for index in [0, 1] {
            let before = turn.delivered;
            self.deliver(index, &mut turn);
            if turn.delivered > before {
                // The receiving kernel may have answered within the write: what it sent is here
                // now, and its arrival time is known best now.
                self.ingest(1 - index, None, pace.slack(), &mut turn)?;
            }
        }
        Ok(turn)
    }

    /// Reads what waits at a device and decides its fate. `seen` is when it arrived, if not now.
    fn ingest(
        &mut self,
        index: usize,
        seen: Option<u64>,
        slack: u64,
        turn: &mut Turn,
    ) -> Result<()> {
        let direction = &mut self.directions[index];
        for _ in 0..READS_A_TURN {
            let read = self.tuns[index].read(&mut self.buffer);
            let Some((vnet, data)) = read.context(format_args!(
                "reading at the {} end",
                Side::BOTH[index].name()
            ))?
            else {
                return Ok(());
            };
            let now = seen.unwrap_or_else(|| self.clock.now());
            direction.counters.reads += 1;
            let Some(data) = self.pool.copy(data) else {
                direction.counters.dropped_memory += 1;
                continue;
            };
            let packet = Rc::new(Packet::new(vnet, data));
            direction.counters.super_reads += u64::from(packet.is_super());
            turn.arrived += direction.admit(&packet, now, slack);
            self.pool.recycle(packet);
        }
        turn.more = true;
        Ok(())
    }

    /// Hands over what is due.
    fn deliver(&mut self, index: usize, turn: &mut Turn) {
        let direction = &mut self.directions[index];
        for _ in 0..WRITES_A_TURN {
            let now = self.clock.now();
            let Some(first) = direction.pending.pop_if(now, |_| true) else {
                return;
            };
            direction.account(first.due, first.sequence, now);
            let Wire {
                packet,
                mut range,
                mark,
                corrupt,
            } = first.item;
            let mut count = 1_usize;
            if corrupt.is_none()
                && packet.is_super()
                && (self.config.udp_gro || !packet.is_udp_super())
            {
                while let Some(next) = direction.pending.pop_if(now, |wire| {
                    wire.range.start == range.end
                        && wire.mark == mark
                        && wire.corrupt.is_none()
                        && Rc::ptr_eq(&wire.packet, &packet)
                }) {
                    direction.account(next.due, next.sequence, now);
                    range.end = next.item.range.end;
                    count += 1;
                }
            }
            let wire_bytes = packet.wire_bytes(&range);
            let tun = &self.tuns[1 - index];
            let written = match corrupt {
                None => {
                    let (vnet, rest) = packet.assemble(range, mark, &mut self.head);
                    tun.write(&vnet, &self.head, rest)
                }
                Some(choice) => {
                    let damaged = packet.assemble_damaged(range, mark, choice);
                    tun.write(&VnetHeader::default(), &[], &damaged)
                }
            };
            self.pool.recycle(packet);
            direction.delivered(written, count as u64, wire_bytes, mark);
            turn.delivered += count;
        }
        turn.more = true;
    }

    /// Sleeps until a packet comes, a request comes, or the time is over.
    fn wait(&self, control: &Control, timeout: Option<u64>) -> Result<()> {
        let wake = control.wake();
        let mut fds = [
            PollFd::new(&self.tuns[0], PollFlags::IN),
            PollFd::new(&self.tuns[1], PollFlags::IN),
            PollFd::from_borrowed_fd(wake, PollFlags::IN),
        ];
        let timeout = timeout.map(timespec);
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("waiting for packets"),
        }
    }

    fn report(&self, wakeups: u64) -> Report {
        let wall = Duration::from_nanos(self.clock.now() - self.since.wall).as_secs_f64();
        let cpu = cpu_time().saturating_sub(self.since.cpu).as_secs_f64();
        Report {
            name: self.config.name.clone(),
            pid: std::process::id(),
            wall_seconds: wall,
            cpu_seconds: cpu,
            cpu_percent: 100.0 * cpu / wall.max(1e-9),
            wakeups: wakeups - self.since.wakeups,
            machine_steal_ms: steal_ms().saturating_sub(self.since.steal_ms),
            directions: ["srv>cli", "cli>srv"]
                .into_iter()
                .zip(&self.directions)
                .map(|(name, direction)| direction.report(name))
                .collect(),
        }
    }

    fn reset(&mut self, wakeups: u64) {
        for direction in &mut self.directions {
            direction.path.counters = Default::default();
            direction.counters = DeliveryCounters::default();
            direction.late = Histogram::default();
        }
        self.since = Since {
            wall: self.clock.now(),
            cpu: cpu_time(),
            steal_ms: steal_ms(),
            wakeups,
        };
    }
}

impl Direction {
    /// Offers the wire packets of a packet to the path; returns how many there were.
    fn admit(&mut self, packet: &Rc<Packet>, now: u64, slack: u64) -> usize {
        let mut count = 0;
        for (range, len) in packet.wire_packets() {
            count += 1;
            let Some(passage) = self.path.offer(now, len, slack) else {
                continue;
            };
            let mark = passage.mark && packet.is_ecn_capable();
            let copy = || Wire {
                packet: packet.clone(),
                range: range.clone(),
                mark,
                corrupt: passage.corrupt,
            };
            if passage.duplicate {
                self.pending.push(passage.due, passage.late, copy());
            }
            self.pending.push(passage.due, passage.late, copy());
        }
        count
    }

    fn account(&mut self, due: u64, sequence: u64, now: u64) {
        self.late.record(now - due);
        if sequence < self.newest {
            self.counters.out_of_order += 1;
        } else {
            self.newest = sequence;
        }
    }

    fn delivered(&mut self, written: io::Result<()>, count: u64, bytes: usize, mark: bool) {
        self.counters.writes += 1;
        if written.is_err() {
            self.counters.write_errors += count;
            return;
        }
        self.counters.out_packets += count;
        self.counters.out_bytes += bytes as u64;
        self.counters.marked += if mark { count } else { 0 };
    }

    fn report(&self, name: &str) -> DirectionReport {
        let (path, out) = (&self.path.counters, &self.counters);
        let micros = |nanos: u64| nanos as f64 / 1e3;
        DirectionReport {
            direction: name.to_owned(),
            in_packets: path.in_packets,
            in_bytes: path.in_bytes,
            out_packets: out.out_packets,
            out_bytes: out.out_bytes,
            in_flight: self.pending.len() as u64,
            dropped_queue: path.dropped_queue,
            dropped_loss: path.dropped_loss,
            dropped_path_mtu: path.dropped_path_mtu,
            dropped_memory: out.dropped_memory,
            write_errors: out.write_errors,
            reordered: path.reordered,
            out_of_order: out.out_of_order,
            duplicated: path.duplicated,
            corrupted: path.corrupted,
            marked: out.marked,
            admitted_after_stall: path.admitted_after_stall,
            queue_max_bytes: self.path.bytes_of(path.queue_max_picos),
            queue_max_ms: path.queue_max_picos as f64 / 1e9,
            late_us_p50: micros(self.late.quantile(0.5)),
            late_us_p99: micros(self.late.quantile(0.99)),
            late_us_max: micros(self.late.max()),
            reads: out.reads,
            super_reads: out.super_reads,
            writes: out.writes,
        }
    }
}

/// Nanoseconds since the emulator began, which the model's picoseconds reach 213 days with.
#[derive(Debug, Clone, Copy)]
struct Clock {
    origin: u64,
}

impl Clock {
    fn start() -> Self {
        Self {
            origin: monotonic(),
        }
    }

    fn now(self) -> u64 {
        monotonic() - self.origin
    }

    /// Sleeps until a time, whatever comes meanwhile.
    fn sleep_until(self, time: u64) {
        let time = timespec(self.origin + time);
        // An early return shows in the time that the caller reads next.
        rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &time).ok();
    }
}

fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative on this clock.
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

fn timespec(nanos: u64) -> Timespec {
    let whole = nanos / 1_000_000_000;
    let rest = nanos % 1_000_000_000;
    Timespec {
        tv_sec: i64::try_from(whole).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(rest).unwrap_or(0),
    }
}

fn cpu_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(used.tv_sec).unwrap_or(0),
        u32::try_from(used.tv_nsec).unwrap_or(0),
    )
}

/// Milliseconds a hypervisor took from this machine so far: the eighth number of the first line
/// of `/proc/stat`, in hundredths of a second (proc_stat(5)); 0 if it cannot be read.
fn steal_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat
        .split_whitespace()
        .nth(8)
        .and_then(|word| word.parse::<u64>().ok());
    ticks.unwrap_or(0) * 10
}
