//! Starting, finding and ending links.
//!
//! A link is a directory below `/run/afar/link`: its settings (`config.json`), what the emulator
//! said (`log`), its socket (`control`), and its process id (`pid`), which is believed only if
//! that process says itself that it is this link's emulator.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::{net::UnixListener, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    config::{LinkConfig, Options, Side, check_name, namespace},
    control::{self, Control, Request},
    emulator::Emulator,
    error::{Context, Error, Result},
    netns,
    stats::Report,
};

const STATE: &str = "/run/afar/link";
/// The subcommand that runs an emulator.
pub(crate) const EMULATE: &str = "emulate";
/// How long an emulator may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Buffer limits raised for the whole machine, in bytes: 2 BDP of 230 ms at 1 Gbit/s.
const BUFFER_MAX: u64 = 64 << 20;

/// Settings in both namespaces. Buffers fit long links; metrics of earlier connections are not
/// kept, so that runs do not depend on each other; IPv6 is off on the device, since its own
/// chatter would show in the counters.
pub const SETTINGS: [(&str, &str); 6] = [
    ("net/ipv4/tcp_rmem", "4096 131072 67108864"),
    ("net/ipv4/tcp_wmem", "4096 16384 67108864"),
    ("net/ipv4/tcp_no_metrics_save", "1"),
    ("net/ipv4/ping_group_range", "0 2147483647"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
    ("net/ipv4/ip_forward", "0"),
];

/// A link as `ls` shows it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Name of the link.
    pub name: String,
    /// Its settings, if they can be read.
    pub config: Option<LinkConfig>,
    /// The process id of its emulator, if that answers.
    pub emulator: Option<u32>,
    /// False if somebody else removed one of its namespaces.
    pub namespaces: bool,
}

/// What a device lost before the emulator saw it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct DeviceDrops {
    /// Packets the device could not hold for the emulator.
    pub to_link: u64,
    /// Packets from the emulator the kernel dropped.
    pub from_link: u64,
}

/// Fails unless the caller is root.
///
/// # Errors
///
/// [`Error::NotRoot`].
pub fn require_root() -> Result<()> {
    match rustix::process::geteuid().as_raw() {
        0 => Ok(()),
        other => Err(Error::NotRoot(other)),
    }
}

/// Makes a link: both namespaces, both devices and the emulator, which is this program run again
/// as `link emulate NAME` and outlives the caller.
///
/// # Errors
///
/// [`Error::Exists`] if anything of a link of this name is there; otherwise what failed. Nothing is
/// left behind then.
pub fn up(name: &str, options: &Options) -> Result<LinkConfig> {
    require_root()?;
    check_name(name)?;
    let _lock = lock()?;
    check_absent(name)?;
    let subnet = match options.subnet {
        Some(subnet) => subnet,
        None => free_subnet()?,
    };
    let config = LinkConfig::new(name, subnet, options)?;
    let made = make(&config);
    if made.is_err() {
        // The error from above is the one to tell.
        remove(name).ok();
    }
    made.map(|()| config)
}

fn check_absent(name: &str) -> Result<()> {
    let exists = |what: String| Error::Exists {
        name: name.to_owned(),
        what,
    };
    if directory(name).exists() {
        return Err(match report(name) {
            Ok(report) => exists(format!("its emulator runs as process {}", report.pid)),
            Err(_) => exists("its emulator has died".to_owned()),
        });
    }
    for side in Side::BOTH {
        let namespace = namespace(name, side);
        if netns::exists(&namespace) {
            return Err(exists(format!("network namespace {namespace}")));
        }
    }
    Ok(())
}

fn make(config: &LinkConfig) -> Result<()> {
    let place = directory(&config.name);
    fs::create_dir(&place).context(format_args!("creating {}", place.display()))?;
    let text = serde_json::to_vec_pretty(config).context("writing the settings")?;
    fs::write(place.join("config.json"), text).context("writing the settings")?;
    raise_buffer_limits();
    for side in Side::BOTH {
        netns::create(&config.namespace(side), &SETTINGS)?;
    }
    let mut child = spawn(&config.name)?;
    let begun = Instant::now();
    loop {
        if report(&config.name).is_ok() {
            return Ok(());
        }
        let ended = child.try_wait().context("waiting for the emulator")?;
        if ended.is_some() || begun.elapsed() > PATIENCE {
            // If it has ended already there is nothing to kill.
            child.kill().ok();
            let log = fs::read_to_string(place.join("log")).unwrap_or_default();
            return Err(Error::Start {
                name: config.name.clone(),
                log: log.trim().to_owned(),
            });
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn spawn(name: &str) -> Result<Child> {
    let place = directory(name);
    let log = File::create(place.join("log")).context("creating the emulator's log")?;
    let program = std::env::current_exe().context("finding this program")?;
    Command::new(&program)
        .args(["link", EMULATE, name])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context(format_args!("starting {}", program.display()))
}

/// Runs the emulator of a link that [`up`] prepared, in this process, until it is asked to stop.
///
/// # Errors
///
/// What failed in opening the devices or in carrying packets.
pub fn emulate(name: &str) -> Result<()> {
    require_root()?;
    check_name(name)?;
    // Fails only for the leader of a process group, which a shell may have made this.
    rustix::process::setsid().ok();
    let config = read_config(name)?;
    let place = directory(name);
    let emulator = Emulator::open(config)?;
    fs::write(place.join("pid"), std::process::id().to_string())
        .context("writing the process id")?;
    let listener = UnixListener::bind(place.join("control")).context("opening the socket")?;
    let control = Arc::new(Control::new()?);
    let server = control.clone();
    thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || server.serve(&listener))
        .context("starting the control thread")?;
    emulator.run(&control)?;
    // The thread that was asked to stop is still writing the answer.
    thread::sleep(Duration::from_millis(20));
    Ok(())
}

/// The counters of a link.
///
/// # Errors
///
/// [`Error::NotFound`], or [`Error::NotRunning`] if the emulator has died.
pub fn report(name: &str) -> Result<Report> {
    ask(name, Request::Report)
}

/// The counters of a link, which then start from zero.
///
/// # Errors
///
/// As for [`report`].
pub fn reset(name: &str) -> Result<Report> {
    ask(name, Request::Reset)
}

fn ask(name: &str, request: Request) -> Result<Report> {
    check_name(name)?;
    let place = directory(name);
    if !place.exists() {
        return Err(Error::NotFound(name.to_owned()));
    }
    control::ask(name, &place.join("control"), request)
}

/// What the devices of a link lost by themselves, at the srv end and at the cli end. All zero
/// in a valid measurement.
///
/// # Errors
///
/// What the system said.
pub fn device_drops(name: &str) -> Result<[DeviceDrops; 2]> {
    let read = |side| {
        let text = netns::within(&namespace(name, side), || {
            fs::read_to_string("/proc/thread-self/net/dev")
        })?;
        Ok(parse_device_drops(&text.context("reading /proc/net/dev")?))
    };
    Ok([read(Side::Srv)?, read(Side::Cli)?])
}

/// Finds the device's line and in it the fourth number of both halves (proc_pid_net(5)).
fn parse_device_drops(text: &str) -> DeviceDrops {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(crate::tun::DEVICE));
    let numbers: Vec<u64> = line
        .unwrap_or("")
        .trim_start_matches(':')
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
    DeviceDrops {
        to_link: number(11),
        from_link: number(3),
    }
}

/// All links there are, or were when their emulator died.
///
/// # Errors
///
/// What the system said.
pub fn list() -> Result<Vec<Listed>> {
    let entries = match fs::read_dir(STATE) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.context(format_args!("reading {STATE}"))?,
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| check_name(name).is_ok())
        .collect();
    names.sort();
    Ok(names
        .into_iter()
        .map(|name| Listed {
            config: read_config(&name).ok(),
            emulator: report(&name).ok().map(|report| report.pid),
            namespaces: Side::BOTH
                .iter()
                .all(|&side| netns::exists(&namespace(&name, side))),
            name,
        })
        .collect())
}

/// Replaces this process by a command inside one side of a link.
///
/// # Errors
///
/// Returns only if that failed.
pub fn exec(name: &str, side: Side, command: &[String]) -> Result<std::convert::Infallible> {
    require_root()?;
    check_name(name)?;
    let namespace = namespace(name, side);
    if !netns::exists(&namespace) && !directory(name).exists() {
        return Err(Error::NotFound(name.to_owned()));
    }
    let Some((program, arguments)) = command.split_first() else {
        return Err(Error::BadOption("exec needs a command".to_owned()));
    };
    netns::enter(&namespace)?;
    // Without it the command sees the devices of the host in /sys, which few commands look at.
    netns::remount_sys().ok();
    let error = Command::new(program).args(arguments).exec();
    Err(error).context(format_args!("running {program} in {namespace}"))
}

/// Ends a link and removes all that is left of it, in whatever state it is. Returns the
/// processes still running in its namespaces, which are not ended.
///
/// # Errors
///
/// [`Error::NotFound`] if there is nothing of this name, otherwise what could not be removed.
pub fn down(name: &str) -> Result<Vec<u32>> {
    require_root()?;
    check_name(name)?;
    let _lock = lock()?;
    let namespaces = Side::BOTH.map(|side| namespace(name, side));
    if !directory(name).exists() && !namespaces.iter().any(|n| netns::exists(n)) {
        return Err(Error::NotFound(name.to_owned()));
    }
    remove(name)
}

fn remove(name: &str) -> Result<Vec<u32>> {
    end_emulator(name)?;
    let mut left = Vec::new();
    for side in Side::BOTH {
        let namespace = namespace(name, side);
        if netns::exists(&namespace) {
            left.extend(netns::processes(&namespace).unwrap_or_default());
            netns::delete(&namespace)?;
        }
    }
    let place = directory(name);
    match fs::remove_dir_all(&place) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).context(format_args!("removing {}", place.display()))
        }
        _ => Ok(left),
    }
}

/// Asks the emulator to end, and kills it if it does not.
fn end_emulator(name: &str) -> Result<()> {
    let asked = ask(name, Request::Stop).is_ok();
    let begun = Instant::now();
    while let Some(pid) = emulator_process(name) {
        if !asked || begun.elapsed() > PATIENCE {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL)
                .context(format_args!("killing the emulator of link {name}"))?;
        }
        if begun.elapsed() > 2 * PATIENCE {
            return Err(io::Error::from(ErrorKind::TimedOut)).context(format_args!(
                "waiting for process {pid:?} of link {name} to end"
            ));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The emulator's process, if the number in its file still means that: numbers are used again.
fn emulator_process(name: &str) -> Option<rustix::process::Pid> {
    let text = fs::read_to_string(directory(name).join("pid")).ok()?;
    let pid: i32 = text.trim().parse().ok()?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let wanted = ["link", EMULATE, name].join("\0");
    let words = command.strip_suffix(b"\0")?;
    let is_it = words
        .strip_suffix(wanted.as_bytes())
        .is_some_and(|rest| rest.ends_with(b"\0"));
    is_it.then(|| rustix::process::Pid::from_raw(pid)).flatten()
}

fn directory(name: &str) -> PathBuf {
    Path::new(STATE).join(name)
}

fn read_config(name: &str) -> Result<LinkConfig> {
    let place = directory(name).join("config.json");
    let text = fs::read(&place).context(format_args!("reading {}", place.display()))?;
    serde_json::from_slice(&text).context(format_args!("reading {}", place.display()))
}

/// One `up` or `down` at a time.
fn lock() -> Result<File> {
    fs::create_dir_all(STATE).context(format_args!("creating {STATE}"))?;
    // Not the name of any link.
    let place = Path::new(STATE).join(".lock");
    let file = File::create(&place).context(format_args!("opening {}", place.display()))?;
    file.lock()
        .context(format_args!("locking {}", place.display()))?;
    Ok(file)
}

fn free_subnet() -> Result<u8> {
    let taken: Vec<u8> = list()?
        .into_iter()
        .filter_map(|link| Some(link.config?.subnet))
        .collect();
    (1..=254)
        .find(|subnet| !taken.contains(subnet))
        .ok_or_else(|| {
            Error::BadOption("all of 10.99.1.0/24 to 10.99.254.0/24 are taken".to_owned())
        })
}

/// Lets sockets ask for buffers that fit long links. These limits are the machine's, so they are
/// raised and never lowered; where that is refused, links work with what there is.
fn raise_buffer_limits() {
    for key in ["rmem_max", "wmem_max"] {
        let place = Path::new("/proc/sys/net/core").join(key);
        let now = fs::read_to_string(&place)
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok());
        if now.is_some_and(|now| now < BUFFER_MAX) {
            fs::write(&place, BUFFER_MAX.to_string()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_drops_are_found() {
        let text = "Inter-| Receive | Transmit\n face |bytes packets\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n afar0: 1 2 3 40 5 6 7 8 9 10 11 120 13 14 15 16\n";
        assert_eq!(
            parse_device_drops(text),
            DeviceDrops {
                to_link: 120,
                from_link: 40
            }
        );
        assert_eq!(parse_device_drops("nothing"), DeviceDrops::default());
    }

    #[test]
    fn names_are_checked_before_any_file_is_touched() {
        assert!(matches!(report("../etc"), Err(Error::BadName(_))));
        assert!(matches!(
            report("no-such-link-here"),
            Err(Error::NotFound(_))
        ));
    }
}
