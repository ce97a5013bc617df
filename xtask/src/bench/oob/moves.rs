//! Volumes that move, and are released, between two servers of a cell, one at each end of a link.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::plan::Plan;
use super::tcp;
use crate::bench::cell::gathered::{Figures, LIMIT, mbits};
use crate::bench::cell::site::{self, CELL, Site, VOLUME};
use crate::bench::figures::Goal;
use crate::bench::link::{End, Place};
use crate::bench::process::{self, Process};
use crate::bench::rows::Direction;
use crate::sh;

/// The second server has registered itself after this time, or never.
const REGISTRATION_LIMIT: Duration = Duration::from_secs(60);
/// Bytes of dumps that a server took out of band.
const TAKEN: &str = "afar_oob_received_data_bytes_total";

/// Moves a volume of so many MiB to the second server and back, and releases it there: by Rx, and out of band.
///
/// # Errors
/// A server does not start, or the volume does not go, or not by the way it should.
pub(super) fn measure(
    place: &Place,
    afar: &Path,
    mib: u32,
    plan: &Plan,
    figures: &mut Figures,
) -> Result<()> {
    let mut first = Site::up(place, afar)?;
    first.fill("filler", mib)?;
    let mut second = Second::new(&first, place, afar)?;
    for _ in 0..plan.runs {
        let mut seconds = 0.0;
        let mut rates = Vec::new();
        for (name, is_enabled) in [("Rx", false), ("out of band", true)] {
            second.stop()?;
            first.configure(&[("oob", "enabled", &is_enabled.to_string())])?;
            second.start(is_enabled)?;
            let before = second.taken()?;
            let (here, there) = (first.address(), second.address.as_str());
            let timed = |words: &[&str]| -> Result<f64> {
                let words = [
                    &["vos"],
                    words,
                    &["--noauth", "--noresolve", "--cell", CELL],
                ]
                .concat();
                let ended = Process::start(first.client(&words))?.succeed(LIMIT)?;
                Ok(ended.time.as_secs_f64())
            };
            seconds = timed(&["move", VOLUME, here, "a", there, "a"])?;
            rates.push((name, "vos move", mbits(mib, seconds)));
            timed(&["move", VOLUME, there, "a", here, "a"])?;
            timed(&["addsite", here, "a", VOLUME])?;
            timed(&["addsite", there, "a", VOLUME])?;
            let released = timed(&["release", VOLUME])?;
            rates.push((name, "vos release", mbits(mib, released)));
            for server in [here, there] {
                timed(&["remove", server, "a", &format!("{VOLUME}.readonly")])?;
            }
            let went = second.taken()? - before;
            let least = f64::from(2 * mib) * 1_048_576.0;
            ensure!(
                if is_enabled {
                    went >= least
                } else {
                    went == 0.0
                },
                "{went} bytes went out of band, {name}"
            );
        }
        let best = if plan.has_iperf {
            let tcp = tcp::better(tcp::measure(place, Direction::Recv, seconds)?);
            figures.add("the better iperf3", "Mbit/s", None, tcp.rate);
            Some(tcp.rate)
        } else {
            None
        };
        for (name, what, rate) in rates {
            figures.add(&format!("{what}, {name}"), "Mbit/s", None, rate);
            if let Some(best) = best {
                let goal = (name != "Rx").then_some(Goal::AtLeast(0.95));
                figures.add(&format!("{what}, {name} / iperf3"), "", goal, rate / best);
            }
        }
    }
    Ok(())
}

/// A file and volume server at the client's end, which joins the cell.
struct Second<'a> {
    place: &'a Place,
    afar: PathBuf,
    dir: PathBuf,
    address: String,
    /// Where the cell's databases are.
    databases: String,
    cellservdb: PathBuf,
    running: Option<Process>,
}

impl<'a> Second<'a> {
    fn new(first: &Site<'_>, place: &'a Place, afar: &Path) -> Result<Self> {
        let dir = first.path("second");
        for part in ["data", "a"] {
            fs::create_dir_all(dir.join(part))?;
        }
        fs::copy(
            first.path("cell/data/KeyFileExt"),
            dir.join("data/KeyFileExt"),
        )?;
        Ok(Self {
            place,
            afar: afar.to_path_buf(),
            address: place.address(End::Client).to_owned(),
            databases: first.address().to_owned(),
            cellservdb: first.path("etc/CellServDB"),
            dir,
            running: None,
        })
    }

    /// Starts it, and waits until the cell knows it.
    fn start(&mut self, is_enabled: bool) -> Result<()> {
        let (address, databases) = (&self.address, &self.databases);
        let dir = self.dir.to_str().context("a path that is not UTF-8")?;
        let config = format!(
            "cell = \"{CELL}\"\nroles = [\"file\", \"vol\"]\nlisten = \"{address}\"\n\
             data = \"{dir}/data\"\nrun = \"{dir}/run\"\ninsecure_noauth = true\n\
             [location]\nservers = [\"{databases}\"]\n[protection]\nservers = [\"{databases}\"]\n\
             [oob]\nenabled = {is_enabled}\n[partition.a]\npath = \"{dir}/a\"\n"
        );
        let file = self.dir.join("afar.toml");
        fs::write(&file, config)?;
        let mut command = self.place.command(End::Client, &self.afar);
        command.arg("server").arg("--config").arg(&file);
        command.env("AFAR_RUN_DIR", self.dir.join("run"));
        self.running = Some(Process::start(command)?);
        let begun = Instant::now();
        loop {
            let mut listed = self.place.command(End::Client, &self.afar);
            listed.args(["vos", "listaddrs", "--noauth", "--noresolve"]);
            listed.arg("--cell").arg(CELL);
            listed.arg("--cellservdb").arg(&self.cellservdb);
            listed.env("AFAR_RUN_DIR", self.dir.join("none"));
            let is_known =
                sh::capture(&mut listed).is_ok_and(|text| text.contains(address.as_str()));
            if is_known && self.answers().is_ok() {
                return Ok(());
            }
            if begun.elapsed() > REGISTRATION_LIMIT {
                bail!("the second server is not registered after {REGISTRATION_LIMIT:?}");
            }
            process::pause(Duration::from_millis(100))?;
        }
    }

    /// Whether its volume server does.
    fn answers(&self) -> Result<String> {
        let mut listed: Command = self.place.command(End::Client, &self.afar);
        listed.args(["vos", "listvol", &self.address, "--noauth", "--noresolve"]);
        listed.arg("--cell").arg(CELL);
        listed.arg("--cellservdb").arg(&self.cellservdb);
        listed.env("AFAR_RUN_DIR", self.dir.join("none"));
        sh::capture(&mut listed)
    }

    /// Bytes of dumps that it took out of band.
    fn taken(&self) -> Result<f64> {
        let found = site::metric(&self.dir.join("run/metrics.sock"), TAKEN)?;
        Ok(found.unwrap_or_default())
    }

    fn stop(&mut self) -> Result<()> {
        if let Some(running) = self.running.take() {
            running.finish()?;
        }
        Ok(())
    }
}
