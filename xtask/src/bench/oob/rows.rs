//! What is measured of files out of band: the table.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::cell::{Cell, Copied, STORED, Way};
use super::plan::Plan;
use super::tcp::{self, Tcp};
use super::tree::{self, Content, Tree};
use super::{aes, limited, moves};
use crate::bench::cell::gathered::Figures;
use crate::bench::figures::{Goal, Row as Measured};
use crate::bench::link::{Place, Setup};
use crate::bench::rows::{self, Direction};
use crate::sh;

/// A row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    between: Between,
    work: Work,
}

/// What is between client and server.
#[derive(Debug, Clone, Copy)]
enum Between {
    Loopback,
    /// A virtual cable, as fast as the machine is.
    Cable,
    Link(Setup),
}

#[derive(Debug, Clone, Copy)]
enum Work {
    /// The client copies so many large files by each way, in turns with iperf3.
    Copies {
        direction: Direction,
        large: u32,
        goals: Goals,
    },
    /// It reads files that are a third as long on the disk.
    Packed { large: u32 },
    /// It reads where little UDP gets through.
    Limited { large: u32 },
    /// A volume of as much as so many large files moves to another server.
    Moves { large: u32 },
    /// OpenSSL encrypts.
    Aes,
}

/// What is wanted of TLS.
#[derive(Debug, Clone, Copy, Default)]
struct Goals {
    /// Mbit/s.
    rate: Option<f64>,
    of_tcp: Option<f64>,
    /// Bytes for each second of processor time, compared with Rx crypt.
    of_crypt: Option<f64>,
}

const LOOPBACK_READ: Goals = Goals {
    rate: Some(12_000.0),
    of_tcp: None,
    of_crypt: Some(4.0),
};
const LOOPBACK_WRITE: Goals = Goals {
    rate: Some(6_000.0),
    ..LOOPBACK_READ
};
const FAST: Goals = Goals {
    rate: None,
    of_tcp: Some(0.97),
    of_crypt: Some(4.0),
};
/// So little is moved there that processor time says nothing.
const SLOW: Goals = Goals {
    of_crypt: None,
    ..FAST
};
/// The disk of one machine decides how fast a cable is to write to.
const DISK: Goals = Goals {
    of_tcp: None,
    ..FAST
};

const fn link(rtt_ms: f64, rate_mbit: u32, loss_percent: f64) -> Between {
    Between::Link(Setup {
        rtt_ms,
        rate_mbit,
        loss_percent,
        reorder_percent: 0.0,
    })
}

const fn copies(
    name: &'static str,
    title: &'static str,
    between: Between,
    direction: Direction,
    large: u32,
    goals: Goals,
) -> Row {
    Row {
        name,
        title,
        between,
        work: Work::Copies {
            direction,
            large,
            goals,
        },
    }
}

const ROWS: [Row; 14] = [
    copies(
        "read-0",
        "reading 4 GiB, on one machine",
        Between::Loopback,
        Direction::Recv,
        64,
        LOOPBACK_READ,
    ),
    copies(
        "read-veth",
        "reading 4 GiB, virtual cable with an MTU of 1500",
        Between::Cable,
        Direction::Recv,
        64,
        FAST,
    ),
    copies(
        "read-12",
        "reading 1 GiB, 12.5 ms, 1 Gbit/s",
        link(12.5, 1000, 0.0),
        Direction::Recv,
        16,
        FAST,
    ),
    copies(
        "read-100",
        "reading 2 GiB, 100 ms, 1 Gbit/s",
        link(100.0, 1000, 0.0),
        Direction::Recv,
        32,
        FAST,
    ),
    copies(
        "read-230",
        "reading 224 MiB, 230 ms, 30 Mbit/s, 1 % lost",
        link(230.0, 30, 1.0),
        Direction::Recv,
        1,
        SLOW,
    ),
    copies(
        "write-0",
        "writing 4 GiB, on one machine",
        Between::Loopback,
        Direction::Send,
        64,
        LOOPBACK_WRITE,
    ),
    copies(
        "write-veth",
        "writing 4 GiB, virtual cable with an MTU of 1500",
        Between::Cable,
        Direction::Send,
        64,
        DISK,
    ),
    copies(
        "write-12",
        "writing 1 GiB, 12.5 ms, 1 Gbit/s",
        link(12.5, 1000, 0.0),
        Direction::Send,
        16,
        FAST,
    ),
    copies(
        "write-100",
        "writing 2 GiB, 100 ms, 1 Gbit/s",
        link(100.0, 1000, 0.0),
        Direction::Send,
        32,
        FAST,
    ),
    copies(
        "write-230",
        "writing 224 MiB, 230 ms, 30 Mbit/s, 1 % lost",
        link(230.0, 30, 1.0),
        Direction::Send,
        1,
        SLOW,
    ),
    Row {
        name: "packed-12",
        title: "reading 672 MiB of text, 12.5 ms, 100 Mbit/s",
        between: link(12.5, 100, 0.0),
        work: Work::Packed { large: 8 },
    },
    Row {
        name: "limited",
        title: "reading 2 GiB over a cable with 5 Mbit/s for UDP and 1 Gbit/s for TCP",
        between: Between::Cable,
        work: Work::Limited { large: 32 },
    },
    Row {
        name: "move-100",
        title: "moving and releasing a volume of 4 GiB, 100 ms, 1 Gbit/s",
        between: link(100.0, 1000, 0.0),
        work: Work::Moves { large: 64 },
    },
    Row {
        name: "aes",
        title: "OpenSSL encrypts records of 16 KiB in one thread",
        between: Between::Loopback,
        work: Work::Aes,
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
    /// Measures it.
    ///
    /// # Errors
    /// A copy fails or goes another way than it should.
    pub(super) fn measure(&self, afar: &Path, plan: &Plan) -> Result<Measured> {
        let mut figures = Figures::default();
        let size = |large: u32| if plan.quick { large.div_ceil(8) } else { large };
        let skipped = match self.work {
            Work::Aes => {
                let missing = aes::missing();
                if missing.is_none() {
                    aes::measure(plan.runs, plan.quick, &mut figures)?;
                }
                missing
            }
            Work::Copies {
                direction,
                large,
                goals,
            } => {
                let copies = Copies {
                    place: &self.between.make(afar)?,
                    afar,
                    large: size(large),
                    is_unlimited: !matches!(self.between, Between::Link(_)),
                    goals,
                };
                match direction {
                    Direction::Recv => copies.read(plan, &mut figures)?,
                    Direction::Send => copies.write(plan, &mut figures)?,
                }
            }
            Work::Packed { large } => {
                packed(
                    &self.between.make(afar)?,
                    afar,
                    size(large),
                    plan,
                    &mut figures,
                )?;
                None
            }
            Work::Moves { large } => {
                let place = self.between.make(afar)?;
                let mib = tree::mib(size(large));
                moves::measure(&place, afar, mib, plan, &mut figures)?;
                None
            }
            Work::Limited { large } => {
                let place = self.between.make(afar)?;
                limited::measure(&place, afar, size(large), plan, &mut figures)?;
                None
            }
        };
        Ok(Measured {
            row: self.name.to_owned(),
            session: String::new(),
            title: self.title.to_owned(),
            skipped,
            figures: figures.into_inner(),
        })
    }
}

impl Between {
    fn make(self, afar: &Path) -> Result<Place> {
        match self {
            Self::Loopback => Place::make(afar, None),
            Self::Cable => Place::cable(afar),
            Self::Link(setup) => Place::make(afar, Some(setup)),
        }
    }
}

/// Copies by each way over one link.
struct Copies<'a> {
    place: &'a Place,
    afar: &'a Path,
    large: u32,
    /// Whether processors are what limits the rate.
    is_unlimited: bool,
    goals: Goals,
}

impl Copies<'_> {
    /// Large files for a way. Where processors are the limit Rx crypt gets fewer: it takes so much longer.
    fn large(&self, way: Way) -> u32 {
        match way {
            Way::Crypt if self.is_unlimited => self.large.div_ceil(4),
            _ => self.large,
        }
    }

    fn read(&self, plan: &Plan, figures: &mut Figures) -> Result<Option<String>> {
        let tree = Tree::make(self.large, Content::Noise)?;
        let mut cell = Cell::up(self.place, self.afar, Way::Clear)?;
        cell.fill(&tree, self.large)?;
        sh::capture(&mut Command::new("sync"))?;
        for _ in 0..plan.runs {
            let one = |way| {
                cell.turn_to(way)?;
                cell.read(&tree, self.large(way))
            };
            self.run(one, Direction::Recv, plan, figures)?;
        }
        Ok(None)
    }

    /// Each copy goes to a new cell; tells why none does, if so.
    fn write(&self, plan: &Plan, figures: &mut Figures) -> Result<Option<String>> {
        if !takes_files(self.place, self.afar)? {
            return Ok(Some("the server does not store out of band".to_owned()));
        }
        let tree = Tree::make(self.large, Content::Noise)?;
        sh::capture(&mut Command::new("sync"))?;
        for _ in 0..plan.runs {
            let one = |way| {
                let cell = Cell::up(self.place, self.afar, way)?;
                cell.write(&tree, self.large(way))
            };
            self.run(one, Direction::Send, plan, figures)?;
        }
        Ok(None)
    }

    /// One run: each way in turn, and iperf3.
    fn run(
        &self,
        mut one: impl FnMut(Way) -> Result<Copied>,
        direction: Direction,
        plan: &Plan,
        figures: &mut Figures,
    ) -> Result<()> {
        let mut copies = Vec::new();
        for way in Way::ALL {
            copies.push((way, one(way)?));
        }
        let of = |wanted| copies.iter().find(|(way, _)| *way == wanted);
        for (way, copied) in &copies {
            let goal = self.goals.rate.filter(|_| *way == Way::Tls);
            let goal = goal.map(Goal::AtLeast);
            figures.add(way.shown(), "Mbit/s", goal, copied.rate);
        }
        let tcp = if plan.has_iperf {
            let seconds = copies.last().map_or(0.0, |(_, copied)| copied.seconds);
            Some(tcp::measure(self.place, direction, seconds)?)
        } else {
            None
        };
        if let Some(both) = tcp {
            for tcp in both {
                figures.add(tcp.name, "Mbit/s", None, tcp.rate);
            }
            let best = tcp::better(both);
            for (way, copied) in &copies {
                let goal = self.goals.of_tcp.filter(|_| *way == Way::Tls);
                let name = format!("{} / iperf3", way.shown());
                figures.add(&name, "", goal.map(Goal::AtLeast), copied.rate / best.rate);
            }
        }
        costs(&copies, tcp.map(tcp::better), figures);
        if let (Some((_, tls)), Some((_, crypt))) = (of(Way::Tls), of(Way::Crypt)) {
            let ratio = (crypt.client + crypt.server) / (tls.client + tls.server);
            figures.add(
                "bytes a CPU second of both ends, TLS / Rx crypt",
                "",
                self.goals.of_crypt.map(Goal::AtLeast),
                ratio,
            );
            // Less, and the other figures are those of Rx as much as of TLS.
            let goal = Some(Goal::AtLeast(90.0));
            figures.add(
                "TLS, out of band",
                "% of the bytes",
                goal,
                tls.share * 100.0,
            );
        }
        Ok(())
    }
}

/// Processor time of both ends.
fn costs(copies: &[(Way, Copied)], tcp: Option<Tcp>, figures: &mut Figures) {
    let ours = copies
        .iter()
        .map(|(way, copied)| (way.shown(), copied.client, copied.server));
    let tcp = tcp.map(|tcp| ("iperf3", tcp.client, tcp.server));
    for (name, client, server) in ours.chain(tcp) {
        let unit = "CPU s/GB";
        figures.add(&format!("{name}, client"), unit, None, client);
        figures.add(&format!("{name}, server"), unit, None, server);
    }
}

/// Whether servers of this program take files out of band.
fn takes_files(place: &Place, afar: &Path) -> Result<bool> {
    let cell = Cell::up(place, afar, Way::Tls)?;
    Ok(cell.count(STORED)?.is_some())
}

/// Reads files that are packed on the server's disk.
fn packed(
    place: &Place,
    afar: &Path,
    large: u32,
    plan: &Plan,
    figures: &mut Figures,
) -> Result<()> {
    let tree = Tree::make(large, Content::Text)?;
    let mut cell = Cell::up(place, afar, Way::Tls)?;
    cell.fill(&tree, large)?;
    let rate = f64::from(place.setup().map_or(0, |link| link.rate_mbit));
    for _ in 0..plan.runs {
        cell.turn_to(Way::Clear)?;
        let rx = cell.read(&tree, large)?;
        cell.turn_to(Way::Tls)?;
        let tls = cell.read(&tree, large)?;
        figures.add("Rx clear", "Mbit/s of the files", None, rx.rate);
        figures.add("TLS", "Mbit/s of the files", None, tls.rate);
        figures.add("the files / their records", "", None, tls.packed);
        let goal = Some(Goal::AtLeast(2.5));
        figures.add("TLS / the link's rate", "", goal, tls.rate / rate);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rows_are_selected_by_kind_or_name() {
        let count = |word: &str| select(&[word.to_owned()]).map(|rows| rows.len());
        assert_eq!(count("read").unwrap(), 5);
        assert_eq!(count("write-veth").unwrap(), 1);
        assert!(count("rea").is_err());
        let names: BTreeSet<_> = list().map(|(name, _)| name).collect();
        assert_eq!(names.len(), ROWS.len());
    }

    #[test]
    fn titles_tell_the_sizes() {
        for row in ROWS {
            let (Work::Copies { large, .. }
            | Work::Packed { large }
            | Work::Moves { large }
            | Work::Limited { large }) = row.work
            else {
                continue;
            };
            let mib = tree::mib(large);
            let gib = format!("{} GiB", mib >> 10);
            let mib = format!("{mib} MiB");
            assert!(
                row.title.contains(&gib) || row.title.contains(&mib),
                "{}",
                row.title
            );
        }
    }
}
