//! The links that rows run over; the machine's loopback device is one of them, and a virtual cable.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::machine;
use crate::openafs::netns::{self, Pair};
use crate::{output, sh};

/// What a link does, both ways alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Setup {
    pub(super) rtt_ms: f64,
    pub(super) rate_mbit: u32,
    pub(super) loss_percent: f64,
    pub(super) reorder_percent: f64,
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms, {} Mbit/s", self.rtt_ms, self.rate_mbit)?;
        if self.loss_percent > 0.0 {
            write!(f, ", {} % lost", self.loss_percent)?;
        }
        if self.reorder_percent > 0.0 {
            write!(f, ", {} % reordered", self.reorder_percent)?;
        }
        Ok(())
    }
}

impl Setup {
    /// The options of `afar link up` that make it.
    pub(super) fn options(&self) -> Vec<String> {
        vec![
            "--rtt".to_owned(),
            format!("{}ms", self.rtt_ms),
            "--rate".to_owned(),
            format!("{}mbit", self.rate_mbit),
            "--loss".to_owned(),
            format!("{}%", self.loss_percent),
            "--reorder".to_owned(),
            format!("{}%", self.reorder_percent),
        ]
    }
}

/// The two ends of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Server,
    Client,
}

/// Where programs meet: the loopback device, or a link or cable that is removed when dropped.
#[derive(Debug)]
pub(super) struct Place {
    afar: PathBuf,
    setup: Option<Setup>,
    /// Name of the link or cable; none for the loopback device.
    link: Option<String>,
    /// What is there instead of an emulated link.
    cable: Option<Pair>,
    /// Of the server and of the client.
    addresses: [String; 2],
}

/// Signs that a measurement was disturbed, or how the link treated it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Noise {
    /// Processes that wanted a processor, on average over the minute before.
    pub(super) load: f64,
    /// Time that a hypervisor took from the machine during the measurement, in milliseconds.
    pub(super) steal_ms: u64,
    /// The link's, where there is one.
    pub(super) link: Option<LinkNoise>,
}

/// What the link counted during a measurement, both directions together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LinkNoise {
    /// How late packets were, 99 of 100 of them in the worse direction, in microseconds.
    pub(super) late_us_p99: f64,
    /// Packets let in above the queue's limit since the emulator had been late to look.
    pub(super) admitted_after_stall: u64,
    /// Packets the devices lost outside the link's model.
    pub(super) device_drops: u64,
    /// Packets dropped at the queue's tail.
    pub(super) dropped_queue: u64,
    /// Packets lost at random.
    pub(super) dropped_loss: u64,
    /// Packets delivered after a later one.
    pub(super) out_of_order: u64,
}

/// What `afar link stat --json` prints, as far as it is wanted.
#[derive(Deserialize)]
struct Stat {
    directions: Vec<DirectionStat>,
    device_drops: Vec<DeviceStat>,
}

#[derive(Deserialize)]
struct DirectionStat {
    late_us_p99: f64,
    admitted_after_stall: u64,
    dropped_queue: u64,
    dropped_loss: u64,
    dropped_memory: u64,
    write_errors: u64,
    out_of_order: u64,
}

#[derive(Deserialize)]
struct DeviceStat {
    to_link: u64,
    from_link: u64,
}

impl Place {
    /// Makes the place: a link, or the loopback device if there is no setup.
    ///
    /// # Errors
    /// Those of `afar link up`.
    pub(super) fn make(afar: &Path, setup: Option<Setup>) -> Result<Self> {
        let mut place = Self {
            afar: afar.to_path_buf(),
            setup,
            link: None,
            cable: None,
            addresses: ["127.0.0.1", "127.0.0.1"].map(str::to_owned),
        };
        let Some(setup) = setup else {
            return Ok(place);
        };
        let name = link_name();
        // Known before it is made, so that what is half made is removed as well.
        place.link = Some(name.clone());
        let mut up = Command::new(afar);
        up.args(["link", "up", &name]).args(setup.options());
        let said = sh::capture(&mut up)?;
        place.addresses = ["srv", "cli"]
            .map(|side| address_after(&said, &format!("{name}-{side}")).unwrap_or_default());
        if place.addresses.iter().any(String::is_empty) {
            anyhow::bail!(
                "`afar link up` does not tell the addresses: {}",
                said.trim()
            );
        }
        Ok(place)
    }

    /// Two ends joined by a virtual cable of the kernel's, with Ethernet's MTU, as fast as the machine is.
    ///
    /// # Errors
    /// The machine makes none, above all for want of root.
    pub(super) fn cable(afar: &Path) -> Result<Self> {
        let name = link_name();
        let pair = Pair::make(&name)?;
        let client = pair.client_address.clone().unwrap_or_default();
        Ok(Self {
            afar: afar.to_path_buf(),
            setup: None,
            link: Some(name),
            addresses: [pair.server_address.clone(), client],
            cable: Some(pair),
        })
    }

    /// A second link like this one; the loopback device is there once.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub(super) fn another(&self) -> Result<Self> {
        match &self.cable {
            None => Self::make(&self.afar, self.setup),
            Some(_) => Self::cable(&self.afar),
        }
    }

    /// What the link does; nothing for the loopback device.
    pub(super) fn setup(&self) -> Option<Setup> {
        self.setup
    }

    /// A program at one end.
    pub(super) fn command(&self, end: End, program: &Path) -> Command {
        match &self.link {
            None => Command::new(program),
            Some(name) => {
                let side = match end {
                    End::Server => "srv",
                    End::Client => "cli",
                };
                let mut command = Command::new(&self.afar);
                command.args(["link", "exec", name, side]).arg(program);
                command
            }
        }
    }

    /// The address of an end.
    pub(super) fn address(&self, end: End) -> &str {
        match end {
            End::Server => &self.addresses[0],
            End::Client => &self.addresses[1],
        }
    }

    /// The network namespace of an end; none on the loopback device.
    pub(super) fn namespace(&self, end: End) -> Option<String> {
        let name = self.link.as_ref()?;
        Some(match end {
            End::Server => format!("{name}-srv"),
            End::Client => format!("{name}-cli"),
        })
    }

    /// Starts to watch for noise.
    ///
    /// # Errors
    /// The link does not answer.
    pub(super) fn watch(&self) -> Result<Watch> {
        self.stat(true)?;
        Ok(Watch {
            load: machine::load(),
            steal_ms: machine::steal_ms(),
        })
    }

    /// What there was since then.
    ///
    /// # Errors
    /// The link does not answer.
    pub(super) fn noise(&self, since: &Watch) -> Result<Noise> {
        Ok(Noise {
            load: since.load,
            steal_ms: machine::steal_ms().saturating_sub(since.steal_ms),
            link: self.stat(false)?,
        })
    }

    fn stat(&self, reset: bool) -> Result<Option<LinkNoise>> {
        let Some(name) = self.link.as_ref().filter(|_| self.cable.is_none()) else {
            return Ok(None);
        };
        let mut command = Command::new(&self.afar);
        command.args(["link", "stat", name, "--json"]);
        if reset {
            command.arg("--reset");
        }
        let text = sh::capture(&mut command)?;
        let stat: Stat = serde_json::from_str(&text).context("reading `afar link stat --json`")?;
        Ok(Some(stat.into()))
    }
}

impl From<Stat> for LinkNoise {
    fn from(stat: Stat) -> Self {
        let mut noise = Self::default();
        for d in &stat.directions {
            noise.late_us_p99 = noise.late_us_p99.max(d.late_us_p99);
            noise.admitted_after_stall += d.admitted_after_stall;
            noise.device_drops += d.dropped_memory + d.write_errors;
            noise.dropped_queue += d.dropped_queue;
            noise.dropped_loss += d.dropped_loss;
            noise.out_of_order += d.out_of_order;
        }
        let drops = stat.device_drops.iter();
        noise.device_drops += drops.map(|d| d.to_link + d.from_link).sum::<u64>();
        noise
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match (&self.cable, &self.link) {
            (Some(pair), _) => pair.remove(),
            (None, Some(name)) => {
                if let Err(error) = remove(&self.afar, name) {
                    output::note(&format!("removing the link {name}: {error:#}"));
                }
            }
            (None, None) => {}
        }
    }
}

/// When watching began, and how things were then.
#[derive(Debug)]
pub(super) struct Watch {
    load: f64,
    steal_ms: u64,
}

/// Links are named after the process that makes them, and counted.
fn link_name() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{}x{number}", std::process::id())
}

/// The process that made a link.
fn maker(name: &str) -> Option<u32> {
    let (process, _number) = name.strip_prefix(PREFIX)?.split_once('x')?;
    process.parse().ok()
}

const PREFIX: &str = "bench";

/// Removes the links and cables of earlier runs that were killed.
///
/// # Errors
/// Those of `afar link`, above all that it needs root.
pub(super) fn remove_stale(afar: &Path) -> Result<()> {
    let is_gone = |id: u32| !Path::new(&format!("/proc/{id}")).exists();
    let list = sh::capture(Command::new(afar).args(["link", "ls"]))?;
    for line in list.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        if maker(name).is_some_and(is_gone) {
            output::note(&format!("removing the link {name} of an earlier run"));
            remove(afar, name)?;
        }
    }
    // What is left now are the ends of cables.
    netns::remove(|name| {
        let stem = name.rsplit_once('-').map_or(name, |(stem, _)| stem);
        maker(stem).is_some_and(is_gone)
    })
}

fn remove(afar: &Path, name: &str) -> Result<()> {
    sh::capture(Command::new(afar).args(["link", "down", name])).map(drop)
}

/// The word after another.
fn address_after(text: &str, word: &str) -> Option<String> {
    let mut words = text.split_whitespace().skip_while(|w| *w != word);
    words.nth(1).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_tell_who_made_them() {
        let (one, two) = (link_name(), link_name());
        assert_ne!(one, two);
        assert_eq!(maker(&one), Some(std::process::id()));
        assert_eq!((maker("bench"), maker("lab0")), (None, None));
    }

    #[test]
    fn addresses_are_found() {
        let said = "srv>cli  delay 6 ms\nb7-srv 10.99.1.1   b7-cli 10.99.1.2   mtu 1500\n";
        assert_eq!(address_after(said, "b7-cli").as_deref(), Some("10.99.1.2"));
        assert_eq!(address_after(said, "b8-cli"), None);
    }

    #[test]
    fn counters_of_both_directions_are_joined() {
        let direction = |late: f64| {
            format!(
                r#"{{"late_us_p99":{late},"admitted_after_stall":1,"dropped_queue":2,
                "dropped_loss":3,"dropped_memory":4,"write_errors":5,"out_of_order":6,"x":0}}"#
            )
        };
        let drops = r#"{"to_link":1,"from_link":0}"#;
        let text = format!(
            r#"{{"directions":[{},{}],"device_drops":[{drops},{drops}]}}"#,
            direction(7.0),
            direction(9.5)
        );
        let noise = LinkNoise::from(serde_json::from_str::<Stat>(&text).unwrap());
        assert_eq!(noise.late_us_p99, 9.5);
        assert_eq!((noise.dropped_queue, noise.device_drops), (4, 20));
    }
}
