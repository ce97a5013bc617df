//! The command `afar link`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output of the command"
)]

use std::time::Duration;

use serde::Serialize;

use crate::{
    config::{LinkConfig, Options, Side},
    error::Result,
    links::{self, DeviceDrops, Listed},
    path::Shape,
    stats::{DirectionReport, Report},
};

/// An emulated WAN between two network namespaces, NAME-srv and NAME-cli
#[derive(Debug, clap::Subcommand)]
pub enum LinkCommand {
    /// Create a link
    ///
    /// Each wire packet goes through: arrival, queue, serialisation, loss, delay, delivery.
    #[command(
        after_help = "X[,Y] is one value for both directions, or X from srv to cli and Y from cli to srv"
    )]
    Up {
        /// Name of the link
        name: String,
        /// What the link does.
        #[command(flatten)]
        options: Box<Options>,
    },
    /// Run a command at one end of a link
    Exec {
        /// Name of the link
        name: String,
        /// The end of the link
        side: Side,
        /// The command and its arguments
        #[arg(
            required = true,
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "CMD"
        )]
        command: Vec<String>,
    },
    /// Show the counters of a link
    Stat {
        /// Name of the link
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Reset the counters to zero afterwards
        #[arg(long)]
        reset: bool,
    },
    /// List the links
    Ls,
    /// Remove a link: its emulator and both namespaces
    Down {
        /// Name of the link
        name: String,
    },
    /// Run the emulator of a link; `up` starts it
    #[command(hide = true)]
    Emulate {
        /// Name of the link
        name: String,
    },
}

/// Runs the command, which the program holds as `#[command(subcommand)] Link(LinkCommand)`.
/// `exec` does not return if it succeeds.
///
/// The program has to know it as `link`, since `up` runs the program again with `link emulate`.
///
/// # Errors
///
/// Those of [`links`], to be shown to the user.
pub fn run(command: LinkCommand) -> Result<()> {
    match command {
        LinkCommand::Up { name, options } => up(&name, &options),
        LinkCommand::Exec {
            name,
            side,
            command,
        } => match links::exec(&name, side, &command)? {},
        LinkCommand::Stat { name, json, reset } => stat(&name, json, reset),
        LinkCommand::Ls => ls(),
        LinkCommand::Down { name } => down(&name),
        LinkCommand::Emulate { name } => links::emulate(&name),
    }
}

fn up(name: &str, options: &Options) -> Result<()> {
    let config = links::up(name, options)?;
    for (direction, shape) in ["srv>cli", "cli>srv"].into_iter().zip(&config.shapes) {
        println!("{direction}  {}", describe(shape));
    }
    println!(
        "{} {}   {} {}   mtu {}",
        config.namespace(Side::Srv),
        config.address(Side::Srv),
        config.namespace(Side::Cli),
        config.address(Side::Cli),
        config.mtu
    );
    Ok(())
}

fn stat(name: &str, json: bool, reset: bool) -> Result<()> {
    links::require_root()?;
    let drops = links::device_drops(name).unwrap_or_default();
    let report = if reset {
        links::reset(name)?
    } else {
        links::report(name)?
    };
    if json {
        println!("{}", to_json(&report, drops));
    } else {
        print!("{}", to_text(&report, drops));
    }
    Ok(())
}

fn ls() -> Result<()> {
    links::require_root()?;
    for Listed {
        name,
        config,
        emulator,
        namespaces,
    } in links::list()?
    {
        let state = match emulator {
            Some(pid) if namespaces => format!("up, process {pid}"),
            Some(pid) => format!("DAMAGED, a namespace is missing, process {pid}"),
            None => "DEAD, its emulator does not run".to_owned(),
        };
        let settings = config.map_or_else(String::new, |config| summary(&config));
        println!("{name}  {state}  {settings}");
    }
    Ok(())
}

fn down(name: &str) -> Result<()> {
    let left = links::down(name)?;
    if !left.is_empty() {
        let left: Vec<String> = left.iter().map(u32::to_string).collect();
        eprintln!(
            "still running in the namespaces of {name}: processes {}",
            left.join(" ")
        );
    }
    Ok(())
}

fn summary(config: &LinkConfig) -> String {
    format!(
        "10.99.{}.0/24  srv>cli {}",
        config.subnet,
        describe(&config.shapes[0])
    )
}

/// A shape in one line, without what it does not do.
fn describe(shape: &Shape) -> String {
    let mut parts = vec![format!("delay {}", milliseconds(shape.delay))];
    match shape.rate {
        None => parts.push("rate unlimited".to_owned()),
        Some(rate) => parts.push(format!(
            "rate {} Mbit/s, queue {} B",
            rate as f64 / 1e6,
            shape.queue_bytes
        )),
    }
    let shares = [
        ("loss", shape.loss),
        ("reorder", shape.reorder),
        ("duplicate", shape.duplicate),
        ("corrupt", shape.corrupt),
    ];
    for (what, share) in shares.into_iter().filter(|(_, share)| *share > 0.0) {
        parts.push(format!("{what} {:.4} %", share * 100.0));
    }
    if shape.reorder > 0.0 {
        parts.push(format!(
            "reorder delay {}",
            milliseconds(shape.reorder_delay)
        ));
    }
    if shape.jitter > Duration::ZERO {
        parts.push(format!("jitter {}", milliseconds(shape.jitter)));
    }
    parts.extend(shape.path_mtu.map(|mtu| format!("path mtu {mtu}")));
    parts.extend(
        shape
            .ecn_mark_bytes
            .map(|bytes| format!("ecn mark above {bytes} B")),
    );
    parts.join(", ")
}

fn milliseconds(duration: Duration) -> String {
    format!("{} ms", duration.as_secs_f64() * 1e3)
}

fn to_json(report: &Report, drops: [DeviceDrops; 2]) -> String {
    #[derive(Serialize)]
    struct Whole<'a> {
        #[serde(flatten)]
        report: &'a Report,
        device_drops: [DeviceDrops; 2],
    }
    // Plain structs of numbers and strings cannot fail to serialise.
    serde_json::to_string_pretty(&Whole {
        report,
        device_drops: drops,
    })
    .unwrap_or_default()
}

/// The counters as text; those that are zero and seldom otherwise are left out.
fn to_text(report: &Report, drops: [DeviceDrops; 2]) -> String {
    let mut text = format!(
        "{}: process {}, {:.1} s, processor {:.1} %, {} wake-ups, {} ms stolen from the machine\n",
        report.name,
        report.pid,
        report.wall_seconds,
        report.cpu_percent,
        report.wakeups,
        report.machine_steal_ms
    );
    for direction in &report.directions {
        text += &direction_text(direction, report.wall_seconds);
    }
    for (side, drops) in Side::BOTH.into_iter().zip(drops) {
        if drops != DeviceDrops::default() {
            text += &format!(
                "{} device: {} dropped before the link, {} after it\n",
                side.name(),
                drops.to_link,
                drops.from_link
            );
        }
    }
    text
}

fn direction_text(d: &DirectionReport, seconds: f64) -> String {
    let mbit = |bytes: u64| bytes as f64 * 8e-6 / seconds.max(1e-9);
    let mut text = format!(
        "{}  in {} packets ({:.2} Mbit/s), out {} ({:.2} Mbit/s), in flight {}\n",
        d.direction,
        d.in_packets,
        mbit(d.in_bytes),
        d.out_packets,
        mbit(d.out_bytes),
        d.in_flight
    );
    let events: Vec<String> = [
        ("dropped: queue", d.dropped_queue),
        ("dropped: loss", d.dropped_loss),
        ("dropped: path mtu", d.dropped_path_mtu),
        ("dropped: memory", d.dropped_memory),
        ("refused by the receiver", d.write_errors),
        ("held back", d.reordered),
        ("out of order", d.out_of_order),
        ("duplicated", d.duplicated),
        ("corrupted", d.corrupted),
        ("marked", d.marked),
        ("let in after a stall", d.admitted_after_stall),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(what, count)| format!("{what} {count}"))
    .collect();
    if !events.is_empty() {
        text += &format!("         {}\n", events.join(", "));
    }
    text += &format!(
        "         queue at most {} B ({:.2} ms), late p50 {:.0} p99 {:.0} max {:.0} us, \
         reads {} ({} super), writes {}\n",
        d.queue_max_bytes,
        d.queue_max_ms,
        d.late_us_p50,
        d.late_us_p99,
        d.late_us_max,
        d.reads,
        d.super_reads,
        d.writes
    );
    text
}
