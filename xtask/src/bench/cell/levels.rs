//! What rxkad costs: the same reads at each level, over a link beside TCP, and on one machine beside
//! OpenAFS's file server and a client on OpenAFS's own Rx and rxkad.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::gathered::{Figures, LIMIT, mbits, per_gb, said_seconds, tcp};
use super::site::{self, CELL, Site, VOLUME};
use crate::bench::hash;
use crate::bench::link::Place;
use crate::bench::openafs::OpenAfs;
use crate::bench::process::{Process, cpu_of};
use crate::bench::rows::Direction;
use crate::sh;

/// rxkad's levels, and how much of TCP each is to reach on a link that both can fill.
const LEVELS: [(&str, f64); 3] = [("clear", 0.93), ("auth", 0.93), ("crypt", 0.9)];
/// OpenAFS's servers and client are given so much less, as they take so much longer.
const LESS: u32 = 4;
/// The cell of OpenAFS's servers, and a user of its realm.
const THEIR_CELL: &str = "test.example";
const USER: &str = "alice";

/// One call at each level over a link, and TCP on the same link.
pub(super) fn over_link(
    place: &Place,
    afar: &Path,
    mib: u32,
    runs: u32,
    figures: &mut Figures,
) -> Result<()> {
    let mut ours = Ours::up(place, afar, mib)?;
    for _ in 0..runs {
        for (level, least) in LEVELS {
            ours.site.cool()?;
            let (rate, _) = ours.read(level, true)?;
            let tcp = tcp(place, Direction::Recv)?;
            let name = format!("{level}, one call");
            figures.against(&name, rate, (&format!("TCP beside {level}"), tcp), least);
        }
    }
    Ok(())
}

/// Each level on one machine, and what it costs both ends.
pub(super) fn on_one_machine(
    place: &Place,
    afar: &Path,
    mib: u32,
    runs: u32,
    figures: &mut Figures,
) -> Result<()> {
    let mut ours = Vec::new();
    {
        let cell = Ours::up(place, afar, mib)?;
        for _ in 0..runs {
            for (level, _) in LEVELS {
                ours.push(cell.read(level, false)?);
            }
        }
    }
    let theirs = Theirs::up(place, mib.div_ceil(LESS))?;
    let levels = (0..runs).flat_map(|_| LEVELS);
    for ((level, _), (rate, cost)) in levels.zip(ours) {
        let (their_rate, their_cost) = theirs.read(level)?;
        let (afar, openafs) = (format!("afar, {level}"), format!("OpenAFS, {level}"));
        figures.against(&afar, rate, (&openafs, their_rate), 1.0);
        for (whose, cost) in [(&afar, cost), (&openafs, their_cost)] {
            let unit = "CPU s/GB";
            figures.add(&format!("{whose}, client"), unit, None, cost.client);
            figures.add(&format!("{whose}, server"), unit, None, cost.server);
        }
    }
    Ok(())
}

/// Processor seconds for each 10⁹ bytes.
#[derive(Clone, Copy)]
struct Cost {
    client: f64,
    server: f64,
}

/// A cell of afar's with a file that everybody may read.
struct Ours<'a> {
    site: Site<'a>,
    keys: PathBuf,
    mib: u32,
    sha256: String,
}

impl<'a> Ours<'a> {
    fn up(place: &'a Place, afar: &Path, mib: u32) -> Result<Self> {
        let site = Site::up(place, afar)?;
        let sha256 = site.fill("big.bin", mib)?;
        let keys = site.path("cell/data/KeyFileExt");
        ensure!(keys.exists(), "the cell made no key: {}", keys.display());
        Ok(Self {
            site,
            keys,
            mib,
            sha256,
        })
    }

    /// Reads the file with a ticket for the cell's key, in one call or as the client likes; its rate and
    /// what it cost.
    fn read(&self, level: &str, one_call: bool) -> Result<(f64, Cost)> {
        let source = format!("/afs/{CELL}/{VOLUME}/big.bin");
        let copy = self.site.path("copy.bin");
        let whole = (u64::from(self.mib) << 20).to_string();
        let mut words = vec!["cp", "--json", "--level", level];
        if one_call {
            words.extend(["-j", "1", "--piece", &whole]);
        }
        let keys = self.keys.to_str().context("a path that is not UTF-8")?;
        words.extend(["--localauth", "--keys", keys]);
        let mut command = self.site.client(&words);
        command.arg(&source).arg(&copy);
        let served = self.site.cpu();
        let ended = Process::start(command)?.succeed(LIMIT)?;
        let served = self.site.cpu() - served;
        ensure!(hash::file(&copy)? == self.sha256, "the copy differs");
        fs::remove_file(&copy)?;
        let cost = Cost {
            client: per_gb(ended.cpu, self.mib),
            server: per_gb(served, self.mib),
        };
        Ok((mbits(self.mib, said_seconds(&ended.out)?), cost))
    }
}

/// A cell of OpenAFS's with a realm, and a client built of OpenAFS's libraries.
struct Theirs {
    openafs: OpenAfs,
    address: String,
    client: PathBuf,
    /// The file's number.
    fid: String,
    /// The file server.
    server: u32,
    mib: u32,
}

impl Theirs {
    fn up(place: &Place, mib: u32) -> Result<Self> {
        let (openafs, said) = OpenAfs::up(place, THEIR_CELL, mib, &["--kerberos"])?;
        let said: Value = serde_json::from_str(&said).context("reading what the cell told")?;
        let address = said["address"].as_str().context("no address")?.to_owned();
        let dir = openafs.dir().to_owned();
        let client = dir.join("client.bin");
        let source = sh::root().join("crates/afar/tests/interop/kerberos/client.c");
        let mut build = Command::new("cc");
        build.args(["-O2", "-o"]).arg(&client).arg(source).args([
            "/usr/lib/libafsrpc.a",
            "-l:libhcrypto.so.5",
            "-l:libroken.so.19",
            "-lkrb5",
            "-lpthread",
        ]);
        sh::capture(&mut build)?;
        let this = Self {
            fid: file_number(&openafs, &said)?,
            server: file_server(&dir)?,
            openafs,
            address,
            client,
            mib,
        };
        let keytab = dir.join(format!("kerberos/{USER}.keytab"));
        let keytab = keytab.to_str().context("a path that is not UTF-8")?;
        site::short(this.run(&["kinit", "-k", "-t", keytab, USER])?)?;
        Ok(this)
    }

    /// A command of the user at the client's end.
    fn run(&self, words: &[&str]) -> Result<Command> {
        let mut command = self.openafs.exec(&[], words)?;
        let cache = self.openafs.dir().join("tickets");
        command.env("KRB5CCNAME", format!("FILE:{}", cache.display()));
        Ok(command)
    }

    /// Reads the file at a level; the rate and what it cost.
    fn read(&self, level: &str) -> Result<(f64, Cost)> {
        let client = self.client.to_str().context("a path that is not UTF-8")?;
        let words = [client, &self.address, THEIR_CELL, level, "time", &self.fid];
        let served = cpu_of(self.server);
        let said = Process::start(self.run(&words)?)?.succeed(LIMIT)?.out;
        let served = cpu_of(self.server) - served;
        let said: Value = serde_json::from_str(&said).context("the client told no time")?;
        let number = |key: &str| {
            let value = said[key].as_f64();
            value.with_context(|| format!("the client told no {key}"))
        };
        ensure!(
            said["bytes"].as_u64() == Some(u64::from(self.mib) << 20),
            "the client did not read the whole file: {said}"
        );
        let gb = f64::from(self.mib) * 1.048_576e-3;
        let cost = Cost {
            client: number("cpu")? / gb,
            server: per_gb(served, self.mib),
        };
        Ok((mbits(self.mib, number("seconds")?), cost))
    }
}

/// The number of the large file: OpenAFS's own tool looks for it in the volume.
fn file_number(openafs: &OpenAfs, said: &Value) -> Result<String> {
    let volumes = said["volumes"].as_array().context("no volumes")?;
    let volume = volumes.iter().find(|volume| volume["name"] == "test.bench");
    let id = volume.and_then(|volume| volume["read_write"].as_u64());
    let id = id.context("no volume test.bench")?.to_string();
    let words =
        format!("volscan -partition a -volumeid {id} -noheading -find file -output fid path");
    let words: Vec<&str> = words.split_whitespace().collect();
    let found = site::short(openafs.exec(&["--role", "server"], &words)?)?;
    let line = found.lines().find(|line| line.ends_with("/big.bin"));
    let fid = line.and_then(|line| line.split_whitespace().next());
    Ok(fid.context("no big.bin in test.bench")?.to_owned())
}

/// The process of the file server: the child of what made its namespaces.
fn file_server(dir: &Path) -> Result<u32> {
    let state = fs::read_to_string(dir.join("state.json")).context("reading the cell's state")?;
    let state: Value = serde_json::from_str(&state)?;
    let daemons = state["daemons"].as_array().context("no daemons")?;
    let outer = daemons.iter().find(|daemon| daemon[0] == "dafileserver");
    let outer = outer.and_then(|daemon| daemon[1].as_u64());
    let outer = outer.context("no file server")?;
    let children = format!("/proc/{outer}/task/{outer}/children");
    let children = fs::read_to_string(&children).with_context(|| format!("reading {children}"))?;
    let child = children.split_whitespace().next();
    Ok(child.context("the file server has ended")?.parse()?)
}
