//! Keeping hosts and promises while the server is restarted in good order.
//!
//! The format is in `docs/formats/callbacks.md`. Times are kept as what is left of them, and the time
//! the server was away is not taken off: remembering a promise for too long does no harm, and no
//! clock has to be right.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use afar_net::Local;
use afar_types::{AfsUuid, Fid};
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use super::State;
use super::config::HostsConfig;
use super::host::{ADDRESSES_MAX, Standing};
use super::table::TICK;

/// What a file of saved promises starts with.
const MAGIC: [u8; 8] = *b"AFARCBS\n";
const VERSION: u32 = 1;

/// Bytes of the checksum at the end.
const CHECKSUM: usize = 8;

/// Ticks that a promise may have left: 4 h, the time it is remembered beyond, and rounding.
const TICKS_MAX: u32 = 116;

/// Interfaces a host may tell of (AFS-3 AFS_MAX_INTERFACE_ADDR).
const INTERFACES_MAX: usize = 32;

/// Bytes a host takes at most, without its promises.
const HOST_MAX: u64 = 20 + 19 * (ADDRESSES_MAX as u64 + INTERFACES_MAX as u64) + 8;

/// Bytes a promise takes.
const PROMISE: u64 = 16;

mod flag {
    pub(super) const HAS_UUID: u8 = 1;
    pub(super) const TRANSLATES_ERRORS: u8 = 2;
    pub(super) const DOWN: u8 = 4;
    pub(super) const ALL: u8 = 7;
}

/// Why a file of saved promises is of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum RestoreError {
    /// It cannot be read, or not be removed.
    #[error("{path} cannot be {done}")]
    Io {
        path: PathBuf,
        done: &'static str,
        source: io::Error,
    },
    /// It is cut short, changed, or of another version.
    #[error("{path} is not a complete file of callback promises of version {VERSION}: {why}")]
    Malformed { path: PathBuf, why: &'static str },
    /// It is another server's.
    #[error("{path} was written by the server with the UUID {server}")]
    Foreign { path: PathBuf, server: AfsUuid },
}

/// A host as it is saved.
#[derive(Debug, PartialEq, Eq)]
struct Saved {
    uuid: Option<AfsUuid>,
    translates_errors: bool,
    down: bool,
    peers: Vec<SocketAddr>,
    interfaces: Vec<IpAddr>,
    /// Files, and the ticks their promises have left.
    promises: Vec<(Fid, u32)>,
}

/// The contents of a file that tells of all hosts and what they were promised.
pub(super) fn write(state: &State, config: &HostsConfig, now: u32) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&MAGIC);
    put(&mut out, VERSION);
    out.extend_from_slice(&config.server.to_bytes());
    let hosts = saved_hosts(state, now);
    put(&mut out, u32::try_from(hosts.len()).unwrap_or(u32::MAX));
    for host in &hosts {
        write_host(&mut out, host);
    }
    out.extend_from_slice(&xxh3_64(&out).to_be_bytes());
    out
}

fn saved_hosts(state: &State, now: u32) -> Vec<Saved> {
    let mut hosts = Vec::new();
    for host in state.registry.iter() {
        let known = host.lock();
        // Nothing is known by such an address after a restart.
        if known.peers.iter().any(|peer| Local::is_given(*peer)) {
            continue;
        }
        // What is in its queue it has not heard of.
        let down = known.standing == Standing::Down || known.breaking || known.late;
        if !down && known.standing != Standing::Ready {
            continue;
        }
        let mut promises = Vec::new();
        if !down {
            let left = |(fid, tick): (Fid, u32)| (fid, tick.saturating_sub(now / TICK));
            let all = state.table.of_host(host.index()).map(left);
            promises.extend(all.filter(|(_, left)| *left > 0));
            promises.sort_unstable();
        }
        hosts.push(Saved {
            uuid: known.uuid,
            translates_errors: known.translates_errors,
            down,
            peers: known.peers.iter().copied().take(ADDRESSES_MAX).collect(),
            interfaces: known
                .interfaces
                .iter()
                .copied()
                .take(INTERFACES_MAX)
                .collect(),
            promises,
        });
    }
    hosts
}

fn write_host(out: &mut Vec<u8>, host: &Saved) {
    let flags = [
        (host.uuid.is_some(), flag::HAS_UUID),
        (host.translates_errors, flag::TRANSLATES_ERRORS),
        (host.down, flag::DOWN),
    ];
    let flags = flags.iter().filter(|(set, _)| *set);
    out.push(flags.fold(0, |all, (_, flag)| all | flag));
    out.push(u8::try_from(host.peers.len()).unwrap_or(u8::MAX));
    out.push(u8::try_from(host.interfaces.len()).unwrap_or(u8::MAX));
    out.push(0);
    out.extend_from_slice(&host.uuid.unwrap_or_default().to_bytes());
    for peer in &host.peers {
        out.extend_from_slice(&peer.port().to_be_bytes());
        put_address(out, peer.ip());
    }
    for address in &host.interfaces {
        put_address(out, *address);
    }
    put(out, u32::try_from(host.promises.len()).unwrap_or(u32::MAX));
    for (fid, left) in &host.promises {
        debug_assert!(*left <= TICKS_MAX, "{left} ticks would not be read again");
        for word in [fid.volume.0, fid.vnode.0, fid.uniquifier.0, *left] {
            put(out, word);
        }
    }
}

fn put(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_be_bytes());
}

fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            out.push(4);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.push(6);
            out.extend_from_slice(&address.octets());
        }
    }
}

/// Writes a file whole or not at all.
pub(crate) fn store(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let mut file = File::create(&new)?;
    file.write_all(contents)?;
    // Before it has the name: half a file would be refused, and each client asked to drop all it has.
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_directory(path)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

/// Reads a file of saved promises and empties it. Returns `None` if there is none, and makes an empty one: that is what
/// a start finds that follows a crash.
pub(super) fn load(path: &Path, config: &HostsConfig) -> Result<Option<Vec<u8>>, RestoreError> {
    let failed = |done| {
        move |source| RestoreError::Io {
            path: path.to_owned(),
            done,
            source,
        }
    };
    let length = match fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::create(path)
                .and_then(|_| sync_directory(path))
                .map_err(failed("made"))?;
            return Ok(None);
        }
        Err(error) => return Err(failed("read")(error)),
    };
    let limit = (config.hosts_max as u64).saturating_mul(HOST_MAX)
        + (config.promises_max as u64).saturating_mul(PROMISE)
        + 64;
    let contents = (length <= limit).then(|| fs::read(path));
    // Emptied before anything of it is used: after a crash it would tell of promises long broken.
    let emptied = fs::OpenOptions::new().write(true).open(path);
    let emptied = emptied.and_then(|file| file.set_len(0).and_then(|()| file.sync_all()));
    emptied.map_err(failed("emptied"))?;
    match contents {
        Some(contents) => contents.map(Some).map_err(failed("read")),
        None => Err(RestoreError::Malformed {
            path: path.to_owned(),
            why: "it is larger than hosts and promises are allowed to be",
        }),
    }
}

/// Fills empty tables from the contents of a file. Returns how many hosts there were.
pub(super) fn restore(
    state: &mut State,
    config: &HostsConfig,
    path: &Path,
    contents: &[u8],
) -> Result<usize, RestoreError> {
    let malformed = |why| RestoreError::Malformed {
        path: path.to_owned(),
        why,
    };
    let (server, hosts) = read(contents).map_err(malformed)?;
    if server != config.server {
        return Err(RestoreError::Foreign {
            path: path.to_owned(),
            server,
        });
    }
    let number = hosts.len();
    hosts.into_iter().for_each(|host| enter(state, host));
    Ok(number)
}

fn enter(state: &mut State, saved: Saved) {
    let host = state.registry.add(saved.peers, Instant::now());
    if let Some(uuid) = saved.uuid {
        state.registry.set_uuid(uuid, &host);
    }
    {
        let mut known = host.lock();
        known.uuid = saved.uuid;
        known.interfaces = saved.interfaces;
        known.translates_errors = saved.translates_errors;
        known.standing = if saved.down {
            Standing::Down
        } else {
            Standing::Ready
        };
    }
    if saved.down {
        return;
    }
    state.table.open_host(host.index());
    for (fid, left) in saved.promises {
        if let Some(promise) = state.table.add(host.index(), fid, left) {
            state.table.tell(promise);
        }
    }
}

type Read<T> = Result<T, &'static str>;

/// The server and the hosts a file tells of.
fn read(contents: &[u8]) -> Read<(AfsUuid, Vec<Saved>)> {
    let end = contents
        .len()
        .checked_sub(CHECKSUM)
        .ok_or("it is too short")?;
    let (body, checksum) = contents.split_at(end);
    if xxh3_64(body).to_be_bytes() != checksum {
        return Err("its checksum is another");
    }
    let mut input = Input(body);
    if input.array()? != MAGIC {
        return Err("it starts with something else");
    }
    if input.word()? != VERSION {
        return Err("its version is another");
    }
    let server = AfsUuid::from_bytes(input.array()?);
    let mut hosts = Vec::new();
    for _ in 0..input.word()? {
        hosts.push(read_host(&mut input)?);
    }
    if input.0.is_empty() {
        Ok((server, hosts))
    } else {
        Err("it holds more data than it announces")
    }
}

fn read_host(input: &mut Input<'_>) -> Read<Saved> {
    let [flags, peers, interfaces, zero] = input.array()?;
    if flags & !flag::ALL != 0 || zero != 0 {
        return Err("a host has unknown flags");
    }
    if usize::from(peers) > ADDRESSES_MAX || usize::from(interfaces) > INTERFACES_MAX {
        return Err("a host has too many addresses");
    }
    let uuid = AfsUuid::from_bytes(input.array()?);
    let peers = (0..peers).map(|_| {
        let port = u16::from_be_bytes(input.array()?);
        Ok(SocketAddr::new(input.address()?, port))
    });
    let peers = peers.collect::<Read<Vec<_>>>()?;
    let interfaces = (0..interfaces).map(|_| input.address());
    let interfaces = interfaces.collect::<Read<Vec<_>>>()?;
    let mut promises = Vec::new();
    for _ in 0..input.word()? {
        let fid = Fid::new(input.word()?, input.word()?, input.word()?);
        let left = input.word()?;
        if left > TICKS_MAX {
            return Err("a promise lasts longer than allowed");
        }
        promises.push((fid, left));
    }
    Ok(Saved {
        uuid: (flags & flag::HAS_UUID != 0).then_some(uuid),
        translates_errors: flags & flag::TRANSLATES_ERRORS != 0,
        down: flags & flag::DOWN != 0,
        peers,
        interfaces,
        promises,
    })
}

/// What is left to read.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk().ok_or("it is cut short")?;
        self.0 = rest;
        Ok(*head)
    }

    fn word(&mut self) -> Read<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn address(&mut self) -> Read<IpAddr> {
        match self.array()? {
            [4] => Ok(Ipv4Addr::from(self.array::<4>()?).into()),
            [6] => Ok(Ipv6Addr::from(self.array::<16>()?).into()),
            _ => Err("an address is of an unknown kind"),
        }
    }
}

/// See [`Hosts::new`](super::Hosts::new). Returns whether all promises are known that there were.
pub(super) fn restore_from(state: &mut State, config: &HostsConfig, path: &Path) -> bool {
    let restored = match load(path, config) {
        // The first start.
        Ok(None) => return true,
        Ok(Some(contents)) if contents.is_empty() => {
            tracing::info!(
                "the server did not end in good order; every client must drop its promises"
            );
            return false;
        }
        Ok(Some(contents)) => restore(state, config, path, &contents),
        Err(error) => Err(error),
    };
    match &restored {
        Ok(hosts) => tracing::info!(
            hosts,
            promises = state.table.len(),
            "loaded the callback promises from before the restart"
        ),
        Err(error) => tracing::warn!(
            error = error as &dyn std::error::Error,
            "every client must drop its promises"
        ),
    }
    restored.is_ok()
}

#[cfg(test)]
mod tests;
