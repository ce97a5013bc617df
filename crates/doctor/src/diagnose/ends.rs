//! What the two ends do: threads, databases, clocks, buffers, cipher, disk.

use super::diagnosis::{Cause, Diagnosis};
use super::words::{PerSecond, Size, Time};
use crate::measured::Measured;

/// Clocks that differ by less harm nobody.
const CLOCK_LEAST_S: f64 = 5.0;
/// Kerberos refuses tickets from here on.
const CLOCK_MOST_S: f64 = 300.0;
/// A cache's disk with less than this free, or this share of it, is full.
const FREE_LEAST: u64 = 64 << 20;
const FREE_SHARE: u64 = 100;
/// No disk that is used for caches is slower, and healthy.
const DISK_LEAST: f64 = 5e6;
/// Nobody notices that a disk is no faster than this.
const DISK_FAST: f64 = 100e6;
/// What comes at this share of a limit is held by it.
const NEAR_LIMIT: f64 = 0.6;
/// Datagrams dropped by the kernel before that is no chance.
const DROPS_LEAST: u64 = 3;

pub(super) fn busy_threads(measured: &Measured) -> Option<Diagnosis> {
    let looks = &measured.server.threads;
    let busy = looks.iter().filter(|look| look.waiting > 0).count();
    if busy == 0 || busy * 2 < looks.len() {
        return None;
    }
    let most = looks.iter().map(|look| look.waiting).max().unwrap_or(0);
    let calls = if most == 1 {
        "call waits"
    } else {
        "calls wait"
    };
    let small = match (measured.small_call, measured.path.rtt_min_s) {
        (Some(call), Some(rtt)) if call.answered > 0 => format!(
            "; a small call takes {} at a round trip of {}",
            Time(call.median_s),
            Time(rtt)
        ),
        (Some(_), _) => "; small calls are not answered in time".to_owned(),
        _ => String::new(),
    };
    let sentence = format!(
        "The server's threads are busy: up to {most} {calls} for one ({busy} of {} looks){small}.",
        looks.len()
    );
    let gain = match measured.path.rtt_min_s {
        Some(rtt) => format!("a small call takes about {}, as the path does", Time(rtt)),
        None => "calls are served when they come".to_owned(),
    };
    let see = format!(
        "rxdebug {} {} -nodally",
        measured.address.ip(),
        measured.address.port()
    );
    let command = match measured.server.afar {
        true => format!(
            "see whose calls they are: {see}; then raise files.max_calls in the server's configuration"
        ),
        false => format!(
            "see whose calls they are: {see}; then give the server more threads: fileserver -p 128"
        ),
    };
    let found = Diagnosis::new(Cause::BusyThreads, sentence, gain, command);
    Some(found.breaks_if(true))
}

pub(super) fn databases(measured: &Measured) -> Option<Diagnosis> {
    let silent: Vec<_> = (measured.databases.iter())
        .filter(|database| database.answer_s.is_none())
        .map(|database| database.address.to_string())
        .collect();
    if silent.is_empty() {
        return None;
    }
    let all = measured.databases.len();
    let (are, them) = match silent.len() {
        1 => ("does", "it"),
        _ => ("do", "them"),
    };
    let names = silent.join(", ");
    let sentence = format!(
        "{} of {all} database servers {are} not answer: {names}.",
        silent.len()
    );
    let other = measured
        .databases
        .iter()
        .find(|database| database.answer_s.is_some());
    let (gain, command) = match other {
        Some(other) => (
            format!("no client waits 2 s or longer for {them} before it asks another"),
            format!(
                "start {them} again, or take {them} out of CellServDB and DNS (AFSDB and SRV records); see udebug {} 7003",
                other.address.ip()
            ),
        ),
        None => (
            "clients find volumes again".to_owned(),
            format!("start {them} again, or let UDP to port 7003 through the firewall"),
        ),
    };
    let found = Diagnosis::new(Cause::Databases, sentence, gain, command);
    Some(found.breaks_if(silent.len() == all))
}

pub(super) fn clock(measured: &Measured) -> Option<Diagnosis> {
    let clock = measured.clock?;
    let offset = clock.offset_s.abs();
    if offset - clock.error_s < CLOCK_LEAST_S {
        return None;
    }
    let direction = if clock.offset_s > 0.0 {
        "ahead of"
    } else {
        "behind"
    };
    let breaks = offset >= CLOCK_MOST_S;
    let harm = match breaks {
        true => "Kerberos refuses tickets from 300 s on",
        false => "modification times and the ends of tokens are wrong by that",
    };
    let sentence = format!(
        "The clock of the server is {} {direction} this machine's: {harm}.",
        Time(offset)
    );
    let gain = "tokens work, and times of files are right".to_owned();
    let command = "on the machine whose clock is wrong: chronyc makestep (or ntpd -gq)".to_owned();
    let found = Diagnosis::new(Cause::Clock, sentence, gain, command);
    Some(found.breaks_if(breaks))
}

pub(super) fn receive_buffer(measured: &Measured) -> Option<Diagnosis> {
    let (local, fetch) = (&measured.local, measured.fetch.as_ref()?);
    let buffer = local.receive_buffer?;
    let wanted = local.receive_buffer_wanted;
    if buffer >= wanted || fetch.buffer_drops < DROPS_LEAST {
        return None;
    }
    let limit = local.rmem_max.map_or_else(String::new, |limit| {
        format!(" (net.core.rmem_max is {limit})")
    });
    let sentence = format!(
        "The receive buffer of this machine is too small: a socket gets {} of {}{limit}, and the kernel dropped \
         {} datagrams of this fetch.",
        Size(buffer),
        Size(wanted),
        fetch.buffer_drops
    );
    let gain = format!(
        "nothing that has arrived is sent again; now {} come by {} calls",
        PerSecond(fetch.several.bytes_per_s),
        fetch.several.calls
    );
    let command = format!("sysctl -w net.core.rmem_max={wanted}");
    let found = Diagnosis::new(Cause::ReceiveBuffer, sentence, gain, command);
    Some(found.limits_to(fetch.several.bytes_per_s))
}

pub(super) fn cipher(measured: &Measured) -> Option<Diagnosis> {
    let fetch = measured.fetch.as_ref().filter(|fetch| fetch.sealed)?;
    let most = measured.local.cipher?.open_bytes_per_s;
    if fetch.several.bytes_per_s < NEAR_LIMIT * most {
        return None;
    }
    let sentence = format!(
        "The packet cipher binds: fcrypt opens {} on one processor of this machine, and {} come.",
        PerSecond(most),
        PerSecond(fetch.several.bytes_per_s)
    );
    let gain =
        "packets are authenticated and not encrypted, which costs next to nothing".to_owned();
    let command = "--level auth, where nobody may read along on the path".to_owned();
    Some(Diagnosis::new(Cause::Cipher, sentence, gain, command).limits_to(most))
}

pub(super) fn cache_full(measured: &Measured) -> Option<Diagnosis> {
    let disk = measured.local.cache.as_ref()?;
    if disk.size == 0 || disk.free >= FREE_LEAST && disk.free >= disk.size / FREE_SHARE {
        return None;
    }
    let place = disk.directory.display();
    let sentence = format!(
        "The disk of the cache is full: {} of {} are free at {place}.",
        Size(disk.free),
        Size(disk.size)
    );
    let gain = "what is read is kept, and what is written does not fail or wait".to_owned();
    let command = format!(
        "make room at {place}, make the cache smaller (afar fs setcachesize), or put it elsewhere: afar mount --cache DIR"
    );
    let found = Diagnosis::new(Cause::CacheFull, sentence, gain, command);
    Some(found.breaks_if(true))
}

pub(super) fn cache_disk(measured: &Measured) -> Option<Diagnosis> {
    let disk = measured.local.cache.as_ref()?;
    let rate = disk.write_bytes_per_s?;
    let comes = measured
        .fetch
        .as_ref()
        .map(|fetch| fetch.several.bytes_per_s);
    let is_slow = rate < DISK_LEAST || comes.is_some_and(|comes| rate < comes.min(DISK_FAST));
    if !is_slow {
        return None;
    }
    let than = comes.map_or_else(String::new, |comes| {
        format!(", and {} come from the server", PerSecond(comes))
    });
    let sentence = format!(
        "The disk of the cache binds: {} takes {}{than}.",
        disk.directory.display(),
        PerSecond(rate)
    );
    let gain = match comes {
        Some(comes) => format!("a mount reads at up to {}", PerSecond(comes)),
        None => "a mount reads at the rate of the path".to_owned(),
    };
    let command = "put the cache on a faster disk: afar mount --cache DIR".to_owned();
    Some(Diagnosis::new(Cause::CacheDisk, sentence, gain, command).limits_to(rate))
}
