//! The probes in their order: what would disturb another comes after it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use afar_net::Endpoint;

use crate::local;
use crate::measured::{Fetch, Local, Measured, Nat, Path};
use crate::probe::{self, Bursts, Echo, File};

/// The packets that measure round trips and loss: four seconds of them, fewer than any server limits.
const PATH: Bursts = Bursts {
    bursts: 80,
    size: 4,
    every: Duration::from_millis(50),
};
/// The same for a host that answers few packets a second.
const SLOW: Bursts = Bursts {
    bursts: 20,
    size: 1,
    every: Duration::from_millis(100),
};
/// Those beside a fetch.
const LOADED: Bursts = Bursts {
    bursts: 25,
    size: 1,
    every: Duration::from_millis(100),
};
/// From this share of loss on a host may be one that limits its answers.
const LIMITED: f64 = 0.2;
/// Looks at a server's threads.
const LOOKS: u32 = 5;
const LOOK_EVERY: Duration = Duration::from_millis(150);
/// Calls at a time that are several: fewer than OpenAFS's least number of threads.
const SEVERAL: u32 = 6;
/// Files that are shorter tell little of rates.
const SHORT: u64 = 1 << 20;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The server.
    pub server: SocketAddr,
    /// A file of it.
    pub file: Option<File>,
    /// The location servers of its cell.
    pub databases: Vec<SocketAddr>,
    /// Whether to measure how long a NAT remembers, which takes two minutes.
    pub nat: bool,
    /// Where the cache lies or will lie.
    pub cache: Option<PathBuf>,
    /// From where calls are made. It answers servers that ask who it is.
    pub endpoint: Endpoint,
}

/// Measures, in 20 s or less without NAT.
///
/// # Errors
/// The system's: no sockets. A server that does not answer is none: see [`Measured::is_answered`].
pub async fn measure(plan: &Plan) -> io::Result<Measured> {
    let nat = async {
        match plan.nat {
            true => probe::nat(plan.server).await.map(Some),
            false => Ok(None),
        }
    };
    let (measured, nat) = tokio::join!(measure_but_nat(plan), nat);
    let mut measured = measured?;
    if let Some(found) = nat? {
        measured.note_nat(found);
    }
    Ok(measured)
}

async fn measure_but_nat(plan: &Plan) -> io::Result<Measured> {
    let mut measured = Measured::new(plan.server);
    measured.local = look(plan.cache.clone()).await;
    let (echo, mtu, databases) = tokio::join!(
        path(plan.server),
        probe::mtu(plan.server),
        probe::databases(&plan.endpoint, &plan.databases),
    );
    let echo = echo?;
    measured.mtu = mtu?;
    measured.databases = databases;
    measured.path = echo.path;
    measured.server.afar = echo
        .version
        .as_deref()
        .is_some_and(|text| text.starts_with("afar "));
    measured.server.version = echo.version;
    let (threads, small) = tokio::join!(
        probe::threads(plan.server, LOOKS, LOOK_EVERY),
        probe::small_calls(&plan.endpoint, plan.server),
    );
    measured.server.threads = threads?;
    measured.small_call = Some(small.call);
    measured.clock = small.clock;
    if !measured.is_answered() {
        return Ok(measured);
    }
    if measured.mtu.is_none() {
        measured.note("packet sizes: none of the packets was answered");
    }
    if measured.server.threads.is_empty() {
        measured.note("threads: the server does not answer rxdebug");
    }
    match &plan.file {
        Some(file) if small.call.answered > 0 => measured.fetch(plan, file).await?,
        Some(_) => measured.note("data: the server does not answer calls"),
        None => measured.note("data: name a file of the server to measure how fast it comes"),
    }
    if let Some(known) = plan.endpoint.peer_stats(plan.server).await {
        measured.server.afar |= known.afar;
        measured.server.receive_window_packets =
            Some(known.window_packets).filter(|packets| *packets > 0);
    }
    let port = plan.endpoint.local_addr().port();
    measured.server.peer = probe::peer_view(plan.server, port).await?;
    Ok(measured)
}

async fn look(cache: Option<PathBuf>) -> Local {
    let looked = tokio::task::spawn_blocking(move || local::look(cache.as_deref()));
    looked.await.unwrap_or_default()
}

/// Round trips and loss. A host that limits its answers is asked again, slowly.
async fn path(server: SocketAddr) -> io::Result<Echo> {
    let fast = probe::echo(server, PATH).await?;
    if fast.path.answered == 0 || fast.path.loss() < LIMITED {
        return Ok(fast);
    }
    let slow = probe::echo(server, SLOW).await?;
    if slow.path.loss() > fast.path.loss() / 2.0 {
        return Ok(fast);
    }
    let path = Path {
        sent: slow.path.sent,
        answered: slow.path.answered,
        rate_limited: true,
        ..fast.path
    };
    Ok(Echo { path, ..fast })
}

impl Measured {
    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    fn note_nat(&mut self, found: Option<Nat>) {
        self.nat = found;
        if found.is_none() {
            self.note("NAT: this server does not answer at a connection's first address");
        }
    }

    async fn fetch(&mut self, plan: &Plan, file: &File) -> io::Result<()> {
        if file.length == 0 {
            self.note("data: the file is empty");
            return Ok(());
        }
        if file.length < SHORT {
            self.note("data: the file is short, so that rates are those of many small calls");
        }
        let rtt_s = self.path.rtt_min_s.unwrap_or(0.0);
        let fetch = |calls| probe::fetch(&plan.endpoint, plan.server, file, calls, rtt_s);
        let dropped = local::datagrams_dropped();
        let one = match fetch(1).await {
            Ok(one) => one,
            Err(error) => {
                self.note(&format!("data: {error}: {}", error.cause));
                return Ok(());
            }
        };
        let (several, loaded) = tokio::join!(fetch(SEVERAL), probe::echo(plan.server, LOADED));
        let Ok(several) = several else {
            self.note("data: several calls at a time failed");
            return Ok(());
        };
        let now = local::datagrams_dropped();
        self.fetch = Some(Fetch {
            length: file.length,
            sealed: file.sealed,
            one,
            several,
            rtt_loaded_s: loaded?.path.rtt_median_s,
            buffer_drops: now
                .zip(dropped)
                .map_or(0, |(now, before)| now.saturating_sub(before)),
        });
        Ok(())
    }
}
