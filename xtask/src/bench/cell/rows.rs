//! What is measured of whole cells.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::gathered::{Figures, LIMIT, mbits, said_seconds, tcp};
use super::levels;
use super::site::{self, CELL, Site, VOLUME};
use super::stock::{self, Stock as _, Theirs};
use crate::bench::example;
use crate::bench::figures::{Goal, Row as Measured};
use crate::bench::hash;
use crate::bench::link::{End, Place, Setup};
use crate::bench::process::{self, Process};
use crate::bench::rows::{self, Direction};

/// Clients that read at a time.
const CLIENTS: u32 = 64;
/// `afsio` of OpenAFS 1.8 misplaces what it writes past 64 MiB.
const AFSIO_MIB: u32 = 32;

/// A row.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    link: Option<Setup>,
    work: Work,
}

enum Work {
    /// afar's client reads a large file from afar's server, nothing cached there.
    Fetch { mib: u32 },
    /// The same on one machine, beside OpenAFS's servers and their fastest client.
    Near { mib: u32 },
    /// It writes one.
    Store { mib: u32 },
    /// One call at each of rxkad's levels.
    Levels { mib: u32 },
    /// The same on one machine, beside OpenAFS's server and client at the same levels.
    NearLevels { mib: u32 },
    /// Many clients read at once.
    Clients { mib: u32 },
    /// OpenAFS's programs, with OpenAFS's servers and with afar's.
    Stock { mib: u32, small_mib: u32 },
    /// A volume is released to three servers.
    Release { mib: u32 },
    /// An example of a crate measures itself and prints JSON.
    Example(&'static Example),
}

/// An example that prints figures as one JSON object.
struct Example {
    package: &'static str,
    name: &'static str,
    /// Key in the object, name, unit, goal.
    figures: &'static [(&'static str, &'static str, &'static str, Option<Goal>)],
}

const fn link(rtt_ms: f64, rate_mbit: u32) -> Option<Setup> {
    Some(Setup {
        rtt_ms,
        rate_mbit,
        loss_percent: 0.0,
        reorder_percent: 0.0,
    })
}

const ROWS: [Row; 14] = [
    Row {
        name: "fetch-12",
        title: "afar reads 1 GiB from afar in one call, 12.5 ms, 1 Gbit/s",
        link: link(12.5, 1000),
        work: Work::Fetch { mib: 1024 },
    },
    Row {
        name: "fetch-100",
        title: "afar reads 1 GiB from afar in one call, 100 ms, 1 Gbit/s",
        link: link(100.0, 1000),
        work: Work::Fetch { mib: 1024 },
    },
    Row {
        name: "store-12",
        title: "afar writes 256 MiB to afar, 12.5 ms, 1 Gbit/s",
        link: link(12.5, 1000),
        work: Work::Store { mib: 256 },
    },
    Row {
        name: "clients-64",
        title: "64 clients read 48 MiB each at once, 12.5 ms, 1 Gbit/s",
        link: link(12.5, 1000),
        work: Work::Clients { mib: 48 },
    },
    Row {
        name: "stock-0",
        title: "OpenAFS's programs, no delay",
        link: link(0.0, 10_000),
        work: Work::Stock {
            mib: 256,
            small_mib: AFSIO_MIB,
        },
    },
    Row {
        name: "stock-12",
        title: "OpenAFS's programs, 12.5 ms, 1 Gbit/s",
        link: link(12.5, 1000),
        work: Work::Stock {
            mib: 32,
            small_mib: 8,
        },
    },
    Row {
        name: "stock-230",
        title: "OpenAFS's programs, 230 ms, 30 Mbit/s",
        link: link(230.0, 30),
        work: Work::Stock {
            mib: 4,
            small_mib: 1,
        },
    },
    Row {
        name: "release-3",
        title: "a volume of 1 GiB released to three servers, 100 ms, 1 Gbit/s",
        link: link(100.0, 1000),
        work: Work::Release { mib: 1024 },
    },
    Row {
        name: "callbacks-1000000",
        title: "1,000,000 promises to 10,000 clients",
        link: None,
        work: Work::Example(&Example {
            package: "afar-fileserver",
            name: "callback_scale",
            figures: &[
                (
                    "/bytes_per_promise",
                    "memory of a promise",
                    "bytes",
                    Some(Goal::AtMost(100.0)),
                ),
                (
                    "/break_of_all/ms",
                    "one change breaks 10,000 promises",
                    "ms",
                    Some(Goal::AtMost(1000.0)),
                ),
                (
                    "/break_with_a_tenth_dead/ms",
                    "the same, a tenth of the clients dead",
                    "ms",
                    None,
                ),
                (
                    "/break_after_the_dead_are_known/ms",
                    "the next change",
                    "ms",
                    None,
                ),
                ("/introduce_ms", "10,000 new clients introduced", "ms", None),
            ],
        }),
    },
    Row {
        name: "locations-1500000",
        title: "a location database of 1,500,000 entries",
        link: None,
        work: Work::Example(&Example {
            package: "afar-dbserver",
            name: "vldb_scale",
            figures: &[
                (
                    "/by_id_per_s",
                    "look-ups by number in process",
                    "1/s",
                    Some(Goal::AtLeast(100_000.0)),
                ),
                (
                    "/by_name_per_s",
                    "look-ups by name in process",
                    "1/s",
                    Some(Goal::AtLeast(100_000.0)),
                ),
                (
                    "/rx_by_name_per_s",
                    "look-ups by name over Rx, loopback",
                    "1/s",
                    Some(Goal::AtLeast(50_000.0)),
                ),
                ("/load_s", "entries loaded", "s", None),
            ],
        }),
    },
    Row {
        name: "batches-0",
        title: "files made by batches of 512 and by single calls, durable, loopback",
        link: None,
        work: Work::Example(&Example {
            package: "afar-fileserver",
            name: "batches",
            figures: &[
                (
                    "/creates_per_s",
                    "created by one client",
                    "1/s",
                    Some(Goal::AtLeast(20_000.0)),
                ),
                (
                    "/creates_of_four_per_s",
                    "created by four clients",
                    "1/s",
                    None,
                ),
                (
                    "/single_creates_per_s",
                    "created by one client, a call each",
                    "1/s",
                    None,
                ),
            ],
        }),
    },
    Row {
        name: "fetch-0",
        title: "afar reads 1 GiB from afar, on one machine",
        link: None,
        work: Work::Near { mib: 1024 },
    },
    Row {
        name: "rxkad-12",
        title: "afar reads 1 GiB from afar in one call at each level of rxkad, 12.5 ms, 1 Gbit/s",
        link: link(12.5, 1000),
        work: Work::Levels { mib: 1024 },
    },
    Row {
        name: "rxkad-0",
        title: "the levels of rxkad on one machine: afar 1 GiB, OpenAFS 256 MiB",
        link: None,
        work: Work::NearLevels { mib: 1024 },
    },
];

/// Lines that tell what there is.
pub(in crate::bench) fn list() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROWS.iter().map(|row| (row.name, row.title))
}

/// The rows that are meant.
///
/// # Errors
/// A word means none.
pub(super) fn select(only: &[String]) -> Result<Vec<Row>> {
    rows::select(ROWS, |row| row.name, only)
}

impl Row {
    /// Measures it so many times.
    pub(super) fn measure(&self, afar: &Path, runs: u32, quick: bool) -> Result<Measured> {
        let place = Place::make(afar, self.link)?;
        let mut figures = Figures::default();
        let size = |mib: u32| if quick { mib.div_ceil(8) } else { mib };
        match &self.work {
            Work::Fetch { mib } => fetch(&place, afar, size(*mib), runs, &mut figures)?,
            Work::Near { mib } => near(&place, afar, size(*mib), runs, &mut figures)?,
            Work::Levels { mib } => {
                levels::over_link(&place, afar, size(*mib), runs, &mut figures)?;
            }
            Work::NearLevels { mib } => {
                levels::on_one_machine(&place, afar, size(*mib), runs, &mut figures)?;
            }
            Work::Store { mib } => store(&place, afar, size(*mib), runs, &mut figures)?,
            Work::Clients { mib } => clients(&place, afar, size(*mib), runs, &mut figures)?,
            Work::Stock { mib, small_mib } => {
                let sizes = (size(*mib), size(*small_mib));
                stock::measure(&place, afar, sizes, runs, &mut figures)?;
            }
            Work::Release { mib } => release(&place, afar, size(*mib), runs, &mut figures)?,
            Work::Example(example) => example.measure(runs, &mut figures)?,
        }
        Ok(Measured {
            row: self.name.to_owned(),
            session: String::new(),
            title: self.title.to_owned(),
            skipped: None,
            figures: figures.into_inner(),
        })
    }
}

fn fetch(place: &Place, afar: &Path, mib: u32, runs: u32, figures: &mut Figures) -> Result<()> {
    let mut site = Site::up(place, afar)?;
    let wanted = site.fill("big.bin", mib)?;
    let source = format!("/afs/{CELL}/{VOLUME}/big.bin");
    let copy = site.path("copy.bin");
    for _ in 0..runs {
        site.cool()?;
        let whole = (u64::from(mib) << 20).to_string();
        let mut command = site.client(&["cp", "--json", "-j", "1", "--piece", &whole, &source]);
        command.arg(&copy);
        let said = Process::start(command)?.succeed(LIMIT)?.out;
        let rate = mbits(mib, said_seconds(&said)?);
        ensure!(hash::file(&copy)? == wanted, "the copy differs");
        fs::remove_file(&copy)?;
        let tcp = tcp(place, Direction::Recv)?;
        figures.against("afar, one call", rate, ("TCP", tcp), 0.93);
    }
    Ok(())
}

fn near(place: &Place, afar: &Path, mib: u32, runs: u32, figures: &mut Figures) -> Result<()> {
    let mut ours = Vec::new();
    {
        let mut site = Site::up(place, afar)?;
        let wanted = site.fill("big.bin", mib)?;
        let source = format!("/afs/{CELL}/{VOLUME}/big.bin");
        let copy = site.path("copy.bin");
        for _ in 0..runs {
            site.cool()?;
            let mut command = site.client(&["cp", "--json", &source]);
            command.arg(&copy);
            ours.push(mbits(mib, site::seconds(command, LIMIT)?));
            ensure!(hash::file(&copy)? == wanted, "the copy differs");
            fs::remove_file(&copy)?;
        }
    }
    // A quarter is enough for one that is slower.
    let mib = mib.div_ceil(4);
    let cell = Theirs::up(place, afar, mib)?;
    let file = cell.scratch("volume.dump");
    for ours in ours {
        let dump = ["vos", "dump", "-noauth", "-id", cell.volume(), "-file"];
        let mut command = cell.openafs.exec(&[], &dump)?;
        command.arg(&file);
        let theirs = mbits(mib, site::seconds(command, LIMIT)?);
        figures.against("afar", ours, ("OpenAFS, vos dump", theirs), 3.0);
    }
    Ok(())
}

fn store(place: &Place, afar: &Path, mib: u32, runs: u32, figures: &mut Figures) -> Result<()> {
    let site = Site::up(place, afar)?;
    let source = site.path("source.bin");
    site::noise(&source, mib)?;
    for run in 0..runs {
        let target = format!("/afs/{CELL}/{VOLUME}/run{run}.bin");
        let mut command = site.client(&["cp", "--json"]);
        command.arg(&source).arg(&target);
        let said = Process::start(command)?.succeed(LIMIT)?.out;
        let rate = mbits(mib, said_seconds(&said)?);
        let tcp = tcp(place, Direction::Send)?;
        figures.against("afar, durable", rate, ("TCP", tcp), 0.9);
    }
    Ok(())
}

fn clients(place: &Place, afar: &Path, mib: u32, runs: u32, figures: &mut Figures) -> Result<()> {
    let site = Site::up(place, afar)?;
    site.fill("shared.bin", mib)?;
    let source = format!("/afs/{CELL}/{VOLUME}/shared.bin");
    for _ in 0..runs {
        let begun = Instant::now();
        let mut readers = Vec::new();
        for number in 0..CLIENTS {
            let mut command = site.client(&["cp", "--json", &source]);
            command.arg(site.path(&format!("copy{number}")));
            readers.push(Process::start(command)?);
        }
        let mut rates = Vec::new();
        for reader in readers {
            let said = reader.succeed(LIMIT)?.out;
            let said: Value = serde_json::from_str(said.lines().last().unwrap_or_default())?;
            let rate = said.get("rate").and_then(Value::as_f64);
            rates.push(rate.context("a client told no rate")?);
        }
        let total = mbits(mib * CLIENTS, begun.elapsed().as_secs_f64());
        let tcp = tcp(place, Direction::Recv)?;
        figures.against("all together", total, ("TCP", tcp), 0.8);
        let sum: f64 = rates.iter().sum();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        let jain = sum * sum / (squares * f64::from(CLIENTS));
        figures.add("Jain's index", "", Some(Goal::AtLeast(0.9)), jain);
    }
    Ok(())
}

/// Releases a volume of a server at the client's end to three at the other. What counts is all
/// three copies together.
fn release(place: &Place, afar: &Path, mib: u32, runs: u32, figures: &mut Figures) -> Result<()> {
    let sites = Replicas::up(place, afar)?;
    let source = sites.source.path("filler");
    site::noise(&source, mib)?;
    let text = source.to_str().context("a path that is not UTF-8")?;
    for run in 0..runs {
        let volume = format!("released{run}");
        let target = format!("/afs/{CELL}/{volume}");
        let own = sites.source.address();
        let administer = |words: &[&str]| sites.source.administer(words);
        administer(&["vos", "create", own, "a", &volume, "-maxquota", "0"])?;
        administer(&["fs", "mkmount", &target, &volume, "--localauth"])?;
        administer(&["cp", "--localauth", text, &format!("{target}/big.bin")])?;
        for address in &sites.addresses {
            administer(&["vos", "addsite", address, "a", &volume])?;
        }
        // AFS's dates are in seconds, and vos takes two for the same if they are that close.
        process::pause(Duration::from_secs(4))?;
        let released = || {
            let begun = Instant::now();
            sites.noauth(&["vos", "release", &volume])?;
            Ok::<_, anyhow::Error>(begun.elapsed().as_secs_f64())
        };
        let rate = mbits(mib * 3, released()?);
        let tcp = tcp(place, Direction::Send)?;
        figures.against("three copies together", rate, ("TCP", tcp), 0.9);
        figures.add(
            "an unchanged volume",
            "s",
            Some(Goal::AtMost(1.0)),
            released()?,
        );
    }
    Ok(())
}

/// A cell at the client's end of a link, with three more file servers at the other.
struct Replicas<'a> {
    source: Site<'a>,
    place: &'a Place,
    afar: &'a Path,
    addresses: Vec<String>,
    _servers: Vec<Process>,
}

impl<'a> Replicas<'a> {
    fn up(place: &'a Place, afar: &'a Path) -> Result<Self> {
        let source = Site::up_at(place, afar, End::Client)?;
        let (prefix, last) = place
            .address(End::Server)
            .rsplit_once('.')
            .context("no IPv4 address")?;
        let last: u8 = last.parse()?;
        let device = interface(place)?;
        let mut this = Self {
            place,
            afar,
            addresses: Vec::new(),
            _servers: Vec::new(),
            source,
        };
        for number in 0..3 {
            let address = format!("{prefix}.{}", last + 10 + number);
            let mut add = place.command(End::Server, "ip".as_ref());
            add.args(["address", "add", &format!("{address}/24"), "dev", &device]);
            site::short(add)?;
            let mut back = place.command(End::Client, "ip".as_ref());
            back.args([
                "route",
                "replace",
                &address,
                "dev",
                &interface_at(place, End::Client)?,
            ]);
            site::short(back)?;
            let server = this.start(number, &address)?;
            this._servers.push(server);
            this.addresses.push(address);
        }
        // They register with the location server, which takes a round trip or two.
        let begun = Instant::now();
        while this
            .addresses
            .iter()
            .any(|address| this.noauth(&["vos", "listpart", address]).is_err())
        {
            ensure!(
                begun.elapsed() < Duration::from_secs(30),
                "the replicas are not up"
            );
            process::pause(Duration::from_millis(200))?;
        }
        Ok(this)
    }

    fn start(&self, number: u8, address: &str) -> Result<Process> {
        let dir = self.source.path(&format!("replica{number}"));
        fs::create_dir_all(&dir)?;
        let database = self.source.address();
        let config = format!(
            "cell = {CELL:?}\nroles = [\"file\", \"vol\"]\ndata = {data:?}\nrun = {run:?}\n\
             listen = {address:?}\ninsecure_noauth = true\n[location]\nservers = [{database:?}]\n\
             [protection]\nservers = [{database:?}]\n[partition.a]\npath = {partition:?}\n",
            data = dir.join("data"),
            run = dir.join("run"),
            partition = dir.join("vicepa"),
        );
        let file = dir.join("afar.toml");
        fs::write(&file, config)?;
        let mut command = self.place.command(End::Server, self.afar);
        command.args(["server", "--config"]).arg(file);
        Process::start(command)
    }

    /// A command of administration from the source's end over the network.
    fn noauth(&self, words: &[&str]) -> Result<String> {
        let mut command = self.place.command(End::Client, self.afar);
        command.args(words).arg("-noauth");
        command.args(["--vl-server", self.source.address()]);
        command.env("AFAR_RUN_DIR", self.source.path("none"));
        site::short(command)
    }
}

fn interface(place: &Place) -> Result<String> {
    interface_at(place, End::Server)
}

/// The device an end has its address on.
fn interface_at(place: &Place, end: End) -> Result<String> {
    let mut command = place.command(end, "ip".as_ref());
    command.args(["-o", "-4", "address"]);
    let said = site::short(command)?;
    let own = format!("{}/", place.address(end));
    let line = said.lines().find(|line| line.contains(&own));
    let device = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(device.context("the link has no device")?.to_owned())
}

impl Example {
    fn measure(&self, runs: u32, figures: &mut Figures) -> Result<()> {
        let program = example::build(self.package, self.name, None)?;
        for _ in 0..runs {
            let said = Process::start(Command::new(&program))?.succeed(LIMIT)?.out;
            let said: Value = serde_json::from_str(&said).context("reading its figures")?;
            for (key, name, unit, goal) in self.figures {
                let value = said.pointer(key).and_then(Value::as_f64);
                let value = value.with_context(|| format!("{} tells no {key}", self.name))?;
                figures.add(name, unit, *goal, value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_selected_by_kind_or_name() {
        let names = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            select(&words).map(|rows| rows.iter().map(|row| row.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["store"]).unwrap(), ["store-12"]);
        assert_eq!(names(&["stock"]).unwrap().len(), 3);
        assert_eq!(names(&[]).unwrap().len(), ROWS.len());
        let error = names(&["fet"]).unwrap_err().to_string();
        assert!(error.contains("fet:"), "{error}");
    }
}
