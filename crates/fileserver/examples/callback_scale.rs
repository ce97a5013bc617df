//! How much memory promises take, and how long a change waits that breaks very many.
//!
//! `callback_scale [HOSTS [PROMISES]]`, 10,000 and 1,000,000 by default, prints its figures as JSON.
//! One file is promised to every host; all other promises are of a file of their own, which takes the
//! most memory. The calls are real Rx on loopback. The hosts share a few sockets: a layer between the
//! server's engine and its socket gives each an address of its own.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use afar_fileserver::hosts::{Host, Hosts, HostsConfig};
use afar_net::{AbortCode, Config, Endpoint, Ready, Received, Socket, SocketStats, Udp};
use afar_rpc::{Caller, rxafscb};
use afar_rx::Transmit;
use afar_types::{AfsUuid, Capabilities, Fid, InterfaceAddr, VolumeId};
use serde_json::json;

/// Sockets that the hosts share.
const SOCKETS: usize = 2;

/// The file that everybody is promised word of.
const SHARED: Fid = Fid::new(7, 2, 1);

/// The address of a host: its number in 10.0.0.0/8.
fn address(number: usize) -> SocketAddr {
    let number = u32::try_from(number).unwrap_or(u32::MAX) & 0x00ff_ffff;
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from(0x0a00_0000 | number)), 7001)
}

fn number(address: SocketAddr) -> usize {
    match address.ip() {
        IpAddr::V4(ip) => (u32::from(ip) & 0x00ff_ffff) as usize,
        IpAddr::V6(_) => 0,
    }
}

/// The server's socket. It tells hosts that share an address apart by the connection.
struct Multiplexer {
    udp: Udp,
    sockets: Vec<SocketAddr>,
    hosts: HashMap<[u8; 4], SocketAddr>,
    /// Hosts from this number on get nothing.
    living: Arc<AtomicUsize>,
}

/// The connection's number in an Rx header, without the channel.
fn connection(datagram: &[u8]) -> Option<[u8; 4]> {
    let mut cid: [u8; 4] = *datagram.get(4..)?.first_chunk()?;
    cid[3] &= !3;
    Some(cid)
}

impl Socket for Multiplexer {
    fn local_addr(&self) -> SocketAddr {
        self.udp.local_addr()
    }

    fn receive(&mut self, mut sink: impl FnMut(Received)) -> io::Result<bool> {
        let hosts = &self.hosts;
        self.udp.receive(|received| {
            let host = connection(&received.data).and_then(|cid| hosts.get(&cid));
            if let Some(&from) = host {
                sink(Received { from, ..received });
            }
        })
    }

    fn send(&mut self, transmit: &Transmit, data: &[u8]) -> io::Result<()> {
        let host = number(transmit.destination);
        if host >= self.living.load(Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(cid) = connection(data) {
            self.hosts.insert(cid, transmit.destination);
        }
        let mut real = *transmit;
        real.destination = self.sockets[host % SOCKETS];
        self.udp.send(&real, data)
    }

    fn refusals(&mut self, sink: impl FnMut(SocketAddr, io::ErrorKind)) {
        self.udp.refusals(sink);
    }

    fn wait(
        &mut self,
        wake: BorrowedFd<'_>,
        writable: bool,
        timeout: Option<Duration>,
    ) -> io::Result<Ready> {
        self.udp.wait(wake, writable, timeout)
    }

    fn stats(&self) -> SocketStats {
        self.udp.stats()
    }
}

/// Cache managers: another one answers each time.
struct CacheManagers {
    introduced: AtomicU64,
    broken: Arc<AtomicU64>,
}

impl rxafscb::Service for CacheManagers {
    async fn tell_me_about_yourself(
        &self,
        _: &Caller,
        _: rxafscb::tell_me_about_yourself::Request,
    ) -> Result<rxafscb::tell_me_about_yourself::Reply, AbortCode> {
        let mut uuid = [0; 16];
        fastrand::fill(&mut uuid);
        self.introduced.fetch_add(1, Ordering::Relaxed);
        Ok(rxafscb::tell_me_about_yourself::Reply {
            host: InterfaceAddr::new(AfsUuid::from_random(uuid), &[]),
            capabilities: Capabilities::default(),
        })
    }

    async fn init_call_back_state3(
        &self,
        _: &Caller,
        _: rxafscb::init_call_back_state3::Request,
    ) -> Result<rxafscb::init_call_back_state3::Reply, AbortCode> {
        Ok(rxafscb::init_call_back_state3::Reply {})
    }

    async fn call_back(
        &self,
        _: &Caller,
        request: rxafscb::call_back::Request,
    ) -> Result<rxafscb::call_back::Reply, AbortCode> {
        let broken = request.fids.len() as u64;
        self.broken.fetch_add(broken, Ordering::Relaxed);
        Ok(rxafscb::call_back::Reply {})
    }
}

/// Bytes of memory this process has.
fn resident() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let kibibytes = kibibytes.ok_or_else(|| io::Error::other("no VmRSS in /proc/self/status"))?;
    Ok(kibibytes * 1024)
}

fn promise(hosts: &Hosts, host: &Arc<Host>, fid: Fid) -> bool {
    let promise = hosts.promise(host, fid, false);
    hosts.callback(&promise).expires_in > 0
}

/// Milliseconds, to the microsecond.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

struct Scale {
    server: Endpoint,
    hosts: Arc<Hosts>,
    living: Arc<AtomicUsize>,
    broken: Arc<AtomicU64>,
    /// The sockets of the hosts, which end with these.
    _clients: Vec<Endpoint>,
}

impl Scale {
    fn new(number: usize, promises: usize) -> io::Result<Self> {
        let broken = Arc::new(AtomicU64::new(0));
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut clients = Vec::new();
        for _ in 0..SOCKETS {
            let client = Endpoint::bind(loopback, Config::default())?;
            let managers = CacheManagers {
                introduced: AtomicU64::new(0),
                broken: Arc::clone(&broken),
            };
            let service = rxafscb::Server::new(managers);
            client.serve(rxafscb::SERVICE, rxafscb::NAME, service);
            clients.push(client);
        }
        let config = Config::default();
        let living = Arc::new(AtomicUsize::new(usize::MAX));
        let socket = Multiplexer {
            udp: Udp::bind(loopback, config.receive_buffer, config.send_buffer)?,
            sockets: clients.iter().map(Endpoint::local_addr).collect(),
            hosts: HashMap::new(),
            living: Arc::clone(&living),
        };
        let hosts = Hosts::new(HostsConfig {
            hosts_max: number + 1,
            promises_max: promises + number + 1,
            introduction_wait: Duration::from_secs(8),
            ..HostsConfig::new(AfsUuid::from_random([1; 16]))
        });
        Ok(Self {
            server: Endpoint::with_socket(socket, config)?,
            hosts,
            living,
            broken,
            _clients: clients,
        })
    }

    /// Lets everybody call for the first time, some at a time.
    async fn introduce(&self, number: usize) -> Vec<Arc<Host>> {
        let mut all = Vec::with_capacity(number);
        for first in (0..number).step_by(256) {
            let calls = (first..number.min(first + 256)).map(|number| {
                let (hosts, server) = (Arc::clone(&self.hosts), self.server.clone());
                tokio::spawn(async move { hosts.identify(&server, address(number)).await })
            });
            for call in calls.collect::<Vec<_>>() {
                if let Ok(Ok(host)) = call.await {
                    all.push(host);
                }
            }
        }
        all
    }

    /// A change of the shared file: how long it waits, and how many hosts heard of it by then.
    async fn change(&self, hosts: &[Arc<Host>]) -> serde_json::Value {
        let given = hosts
            .iter()
            .filter(|host| promise(&self.hosts, host, SHARED))
            .count();
        let before = self.broken.load(Ordering::Relaxed);
        let begun = Instant::now();
        self.hosts.break_fids(&[SHARED], None).await;
        let waited = begun.elapsed();
        let heard = self.broken.load(Ordering::Relaxed) - before;
        json!({ "promises": given, "heard": heard, "ms": milliseconds(waited) })
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "figures are what this program is for")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (number, promises) = (argument(10_000)?, argument(1_000_000)?);
    let scale = Scale::new(number, promises)?;

    let begun = Instant::now();
    let all = scale.introduce(number).await;
    let introduced = begun.elapsed();

    let resident_before = resident()?;
    let begun = Instant::now();
    let mut given = 0;
    for place in 0..promises {
        let vnode = u32::try_from(2 * place + 4)?;
        let host = &all[place % all.len()];
        given += usize::from(promise(&scale.hosts, host, Fid::new(8, vnode, 1)));
    }
    let promised = begun.elapsed();
    let memory = resident()?.saturating_sub(resident_before);

    let first = scale.change(&all).await;
    let second = scale.change(&all).await;
    scale.living.store(number - number / 10, Ordering::Relaxed);
    let with_dead = scale.change(&all).await;
    let next_with_dead = scale.change(&all).await;
    // The dead have been found out.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let after_dead = scale.change(&all).await;
    let standing = scale.hosts.stats().promises;
    let begun = Instant::now();
    scale.hosts.break_volume(VolumeId(8)).await;
    let volume = begun.elapsed();

    let figures = json!({
        "hosts": number,
        "introduce_ms": milliseconds(introduced),
        "promises": given,
        "bytes_per_promise": memory as f64 / given.max(1) as f64,
        "promise_ns": promised.as_secs_f64() * 1e9 / given.max(1) as f64,
        "break_of_all": first,
        "break_of_all_again": second,
        "break_with_a_tenth_dead": with_dead,
        "next_with_a_tenth_dead": next_with_dead,
        "break_after_the_dead_are_known": after_dead,
        "break_of_a_volume": { "promises": standing, "ms": milliseconds(volume) },
        "hosts_down": scale.hosts.stats().hosts_down,
    });
    println!("{}", serde_json::to_string_pretty(&figures)?);
    Ok(())
}
