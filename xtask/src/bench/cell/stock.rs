//! OpenAFS's programs with afar's servers and with OpenAFS's.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::gathered::{Figures, LIMIT, mbits};
use super::site::{self, CELL, Site, VOLUME};
use crate::bench::figures::Goal;
use crate::bench::link::{End, Place};
use crate::bench::openafs::OpenAfs;
use crate::bench::traffic;

/// What OpenAFS's programs have on the way in a round trip at most: 32 packets of 1,416 bytes.
const WINDOW: f64 = 32.0 * 1416.0;
/// What afsio moves in a call.
const PIECE: f64 = 65_536.0;
/// A delay from which a window is what limits a transfer.
const FAR_MS: f64 = 10.0;
/// A volume with nothing in it.
const EMPTY: &str = "bench.empty";

/// Times each program in turns, so many times.
///
/// # Errors
/// Servers do not start, or a program fails.
pub(super) fn measure(
    place: &Place,
    afar: &Path,
    (mib, small_mib): (u32, u32),
    runs: u32,
    figures: &mut Figures,
) -> Result<()> {
    let site = Site::up(place, afar)?;
    site.fill("big.bin", mib)?;
    // Theirs are at the same ports: they have a link of their own, which is like this one.
    let other = place.another()?;
    let cell = Theirs::up(&other, afar, mib)?;
    let sizes = (mib, small_mib);
    let ours = Programs::new(place, site.path("etc"), site.address(), &site, sizes)?;
    let theirs = Programs::new(&other, cell.etc()?, cell.text("address")?, &cell, sizes)?;
    let round_trips = round_trips(place, afar)?;
    if round_trips.is_some() {
        site.administer(&["vos", "create", site.address(), "a", EMPTY])?;
    }
    for run in 0..runs {
        for program in Program::ALL {
            let (afar, openafs) = if run % 2 == 0 {
                let afar = ours.run(program, run)?;
                (afar, theirs.run(program, run)?)
            } else {
                let openafs = theirs.run(program, run)?;
                (ours.run(program, run)?, openafs)
            };
            let on = |servers: &str| format!("{}, {servers}", program.name());
            let (name, their_name) = (on("afar's servers"), on("OpenAFS's"));
            let rate = |seconds| mbits(ours.mib(program), seconds);
            figures.against(&name, rate(afar), (&their_name, rate(openafs)), 1.0);
            if let Some(round_trips) = round_trips {
                let name = format!("{name} / what the client's window allows");
                let moving = rate(afar - ours.nothing(program)?);
                let most = program.octets_in_a_round_trip() * round_trips * 8.0 / 1e6;
                figures.add(&name, "", Some(Goal::AtLeast(0.95)), moving / most);
            }
        }
    }
    Ok(())
}

/// Round trips in a second, on a link where a window is what limits the programs.
fn round_trips(place: &Place, afar: &Path) -> Result<Option<f64>> {
    if place.setup().is_none_or(|link| link.rtt_ms < FAR_MS) {
        return Ok(None);
    }
    Ok(Some(traffic::afar_rpc(place, afar, 1, 10)?.value))
}

/// What is timed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Dump,
    Restore,
    Write,
    Read,
}

impl Program {
    /// In an order in which each has what it needs.
    const ALL: [Self; 4] = [Self::Dump, Self::Restore, Self::Write, Self::Read];

    fn name(self) -> &'static str {
        match self {
            Self::Dump => "vos dump",
            Self::Restore => "vos restore",
            Self::Write => "afsio write",
            Self::Read => "afsio read",
        }
    }

    /// What the client's window lets it move in a round trip.
    fn octets_in_a_round_trip(self) -> f64 {
        match self {
            Self::Dump | Self::Restore => WINDOW,
            // One asks for the file's status. A window of one packet that doubles each time takes six
            // for the 47 packets of a call.
            Self::Write => PIECE / 7.0,
            // A window of 32 packets, and the rest.
            Self::Read => PIECE / 2.0,
        }
    }
}

/// OpenAFS's programs with the servers of a cell.
struct Programs<'a, S> {
    place: &'a Place,
    etc: PathBuf,
    address: String,
    site: &'a S,
    /// Of the volume and of the file, in MiB.
    sizes: (u32, u32),
}

impl<'a, S: Stock> Programs<'a, S> {
    fn new(
        place: &'a Place,
        etc: PathBuf,
        address: impl Into<String>,
        site: &'a S,
        sizes: (u32, u32),
    ) -> Result<Self> {
        let this = Self {
            place,
            etc,
            address: address.into(),
            site,
            sizes,
        };
        site::noise(&this.site.scratch("small.bin"), sizes.1)?;
        Ok(this)
    }

    /// How much a program moves.
    fn mib(&self, program: Program) -> u32 {
        match program {
            Program::Dump | Program::Restore => self.sizes.0,
            Program::Write | Program::Read => self.sizes.1,
        }
    }

    /// The seconds a program takes.
    fn run(&self, program: Program, run: u32) -> Result<f64> {
        let file = format!("file{run}");
        match program {
            Program::Dump => self.dump(self.site.volume(), "volume.dump"),
            Program::Restore => self.restore("volume.dump"),
            Program::Write => self.write(&file, &self.scratch("small.bin")?),
            Program::Read => {
                let seconds = self.read(&file)?;
                // The next dump may be of its volume.
                self.site.empty(&file)?;
                Ok(seconds)
            }
        }
    }

    /// The seconds a program takes that moves nothing.
    fn nothing(&self, program: Program) -> Result<f64> {
        match program {
            Program::Dump => self.dump(EMPTY, "empty.dump"),
            Program::Restore => {
                self.dump(EMPTY, "empty.dump")?;
                self.restore("empty.dump")
            }
            Program::Write => self.write("nothing", "/dev/null"),
            Program::Read => {
                self.site.empty("nothing")?;
                self.read("nothing")
            }
        }
    }

    fn dump(&self, volume: &str, into: &str) -> Result<f64> {
        let into = self.scratch(into)?;
        let words = ["vos", "dump", "-id", volume, "-file", &into, "-noauth"];
        self.timed(&words)
    }

    fn restore(&self, dump: &str) -> Result<f64> {
        const NAME: &str = "bench.restored";
        let dump = self.scratch(dump)?;
        let words = [
            "vos",
            "restore",
            &self.address,
            "a",
            NAME,
            "-file",
            &dump,
            "-noauth",
        ];
        let seconds = self.timed(&words)?;
        let remove = ["vos", "remove", "-id", NAME, "-noauth"];
        site::short(site::stock(self.place, &self.etc, &remove))?;
        Ok(seconds)
    }

    fn write(&self, file: &str, from: &str) -> Result<f64> {
        self.site.empty(file)?;
        let path = format!("{}/{file}", self.site.directory());
        let words = format!("afsio write -force -file {path} < {from}");
        self.timed(&["sh", "-c", &words])
    }

    fn read(&self, file: &str) -> Result<f64> {
        let path = format!("{}/{file}", self.site.directory());
        self.timed(&["sh", "-c", &format!("afsio read -file {path} > /dev/null")])
    }

    fn timed(&self, words: &[&str]) -> Result<f64> {
        site::seconds(site::stock(self.place, &self.etc, words), LIMIT)
    }

    fn scratch(&self, name: &str) -> Result<String> {
        let path = self.site.scratch(name);
        let text = path.to_str().context("a path that is not UTF-8")?;
        Ok(text.to_owned())
    }
}

/// A place with a volume that everybody may write to, for OpenAFS's programs.
pub(super) trait Stock {
    /// The directory everybody may write to, as a path in AFS.
    fn directory(&self) -> String;
    /// A file for scratch.
    fn scratch(&self, name: &str) -> PathBuf;
    /// The volume that is dumped.
    fn volume(&self) -> &str;
    /// Makes an empty file, which afsio needs.
    fn empty(&self, name: &str) -> Result<()>;
}

impl Stock for Site<'_> {
    fn directory(&self) -> String {
        format!("/afs/{CELL}/{VOLUME}")
    }

    fn scratch(&self, name: &str) -> PathBuf {
        self.path(name)
    }

    fn volume(&self) -> &str {
        VOLUME
    }

    fn empty(&self, name: &str) -> Result<()> {
        let path = self.path("empty.bin");
        fs::write(&path, "")?;
        let target = format!("{}/{name}", self.directory());
        let source = path.to_str().context("a path that is not UTF-8")?;
        self.administer(&["cp", "--localauth", source, &target])
            .map(drop)
    }
}

/// A cell of OpenAFS without authorisation at the server's end of a link; gone when dropped.
pub(super) struct Theirs<'a> {
    place: &'a Place,
    afar: &'a Path,
    pub(super) openafs: OpenAfs,
    description: Value,
}

const THEIR_CELL: &str = "openafs.example";

impl<'a> Theirs<'a> {
    /// Starts it, with a file of so many MiB.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn up(place: &'a Place, afar: &'a Path, mib: u32) -> Result<Self> {
        let (openafs, said) = OpenAfs::up(place, THEIR_CELL, mib, &["--noauth"])?;
        let description = serde_json::from_str(&said).context("reading what the cell told")?;
        Ok(Self {
            place,
            afar,
            openafs,
            description,
        })
    }

    fn text(&self, key: &str) -> Result<String> {
        let value = self.description.get(key).and_then(Value::as_str);
        Ok(value
            .with_context(|| format!("the cell tells no {key}"))?
            .to_owned())
    }

    /// The folder of its clients' configuration.
    fn etc(&self) -> Result<PathBuf> {
        let cellservdb = PathBuf::from(self.text("cellservdb")?);
        Ok(cellservdb.parent().context("no folder")?.to_owned())
    }
}

impl Stock for Theirs<'_> {
    fn directory(&self) -> String {
        format!("/afs/{THEIR_CELL}/test.open")
    }

    fn scratch(&self, name: &str) -> PathBuf {
        self.openafs.dir().join(name)
    }

    fn volume(&self) -> &str {
        "test.bench"
    }

    fn empty(&self, name: &str) -> Result<()> {
        let path = self.openafs.dir().join("empty.bin");
        fs::write(&path, "")?;
        let mut command = self.place.command(End::Client, self.afar);
        command
            .arg("cp")
            .arg("--cellservdb")
            .arg(self.text("cellservdb")?);
        command
            .arg(&path)
            .arg(format!("{}/{name}", self.directory()));
        site::short(command).map(drop)
    }
}
