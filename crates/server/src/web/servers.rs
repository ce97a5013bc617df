//! The file servers of the cell: those that the location servers know, and what each tells everybody of itself.
//! They are asked while somebody looks at the page.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use afar_net::{Endpoint, RxNull};
use afar_rpc::{rxafs, vl};
use afar_types::error::{VL_INDEXERANGE, VL_NOENT};
use afar_types::{ListAddrByAttributes, ViceDisk, ViceStatistics};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::config::Role;
use crate::peers::Peers;

/// Servers that are asked.
const SERVERS: usize = 64;
/// Places of the database that are looked at.
const PLACES: u32 = 1000;
/// How long the location servers, and a file server, have to answer.
const LIMIT: Duration = Duration::from_secs(5);

/// The cell that this server is in.
pub(crate) struct Cell {
    /// The location servers.
    pub(crate) location: Peers,
    /// Where to ask from.
    pub(crate) endpoint: Endpoint,
    /// Addresses of this server.
    pub(crate) own: Vec<IpAddr>,
}

/// A file server of the cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Server {
    /// The address at which it is asked.
    pub(super) address: Ipv4Addr,
    /// Whether it is this one.
    pub(super) own: bool,
    /// What it answered, if it did.
    pub(super) answer: Option<Answer>,
}

/// What a file server says of itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Answer {
    /// How long the answer took, in seconds.
    took: f64,
    /// How long it has run, in seconds.
    uptime: u32,
    connections: i32,
    clients: i32,
    partitions: Vec<Partition>,
}

/// A partition with its size and free space in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Partition {
    partition: String,
    size: u64,
    free: u64,
}

/// The servers as they were last.
#[derive(Debug, Clone, Default)]
pub(super) struct Known(Arc<Mutex<Vec<Server>>>);

impl Known {
    pub(super) fn get(&self) -> Vec<Server> {
        self.0.lock().clone()
    }
}

impl Cell {
    /// Finds out how the servers are.
    pub(super) async fn ask(&self, known: &Known) {
        let Ok(Some(addresses)) = timeout(LIMIT, self.addresses()).await else {
            // What was known stays.
            return;
        };
        let mut asking = JoinSet::new();
        for (place, addresses) in addresses.into_iter().enumerate() {
            let own = addresses.iter().any(|&a| self.own.contains(&a.into()));
            let endpoint = self.endpoint.clone();
            asking.spawn(async move { (place, server(&endpoint, addresses, own).await) });
        }
        let mut servers = asking.join_all().await;
        servers.sort_by_key(|(place, _)| *place);
        let servers = servers.into_iter().filter_map(|(_, server)| server);
        *known.0.lock() = servers.collect();
    }

    /// The addresses of each server, from the first location server that tells them.
    async fn addresses(&self) -> Option<Vec<Vec<Ipv4Addr>>> {
        for location in self.location.location() {
            if let Some(addresses) = addresses(&location).await {
                return Some(addresses);
            }
        }
        None
    }
}

async fn addresses(location: &vl::Client) -> Option<Vec<Vec<Ipv4Addr>>> {
    let count = location.get_addrs(0, 0).await.ok()?.count as usize;
    let mut found = Vec::new();
    for index in 1..PLACES {
        if found.len() >= count.min(SERVERS) {
            break;
        }
        let place = ListAddrByAttributes::by_index(index);
        match location.get_addrs_u(place).await {
            Ok(reply) => found.push(reply.addresses.addresses().collect()),
            Err(error) if error.code().0 == VL_NOENT => {}
            Err(error) if error.code().0 == VL_INDEXERANGE => break,
            Err(_) => return None,
        }
    }
    Some(found)
}

/// Asks a server at its addresses, one after the other. This server answers itself.
async fn server(endpoint: &Endpoint, addresses: Vec<Ipv4Addr>, own: bool) -> Option<Server> {
    let mut answer = None;
    let mut address = *addresses.first()?;
    let each = LIMIT / u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for at in addresses {
        let to = SocketAddr::new(at.into(), Role::File.port());
        let files = rxafs::Client::new(endpoint.connect(to, rxafs::SERVICE, Arc::new(RxNull)));
        let began = Instant::now();
        if let Ok(Ok(reply)) = timeout(each, files.get_statistics()).await {
            answer = Some(Answer::new(&reply.statistics, began.elapsed()));
            address = at;
            break;
        }
    }
    Some(Server {
        address,
        own,
        answer,
    })
}

impl Answer {
    fn new(statistics: &ViceStatistics, took: Duration) -> Self {
        let disks = statistics.disks.iter().filter_map(partition);
        Self {
            took: took.as_secs_f64(),
            uptime: (statistics.current_time.0).saturating_sub(statistics.start_time.0),
            connections: statistics.current_connections,
            clients: statistics.workstations,
            partitions: disks.collect(),
        }
    }
}

/// A partition in a server's words: its name has to look like one.
fn partition(disk: &ViceDisk) -> Option<Partition> {
    let name = disk.name.0.split(|byte| *byte == 0).next()?;
    let name = std::str::from_utf8(name).ok()?;
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase());
    name.strip_prefix("/vicep").filter(|rest| is_name(rest))?;
    let bytes = |kib: i32| u64::try_from(kib).unwrap_or(0) << 10;
    Some(Partition {
        partition: name.to_owned(),
        size: bytes(disk.total_blocks),
        free: bytes(disk.blocks_available),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use afar_types::UnixTime;
    use afar_xdr::FixedOpaque;

    fn disk(name: &[u8], total_blocks: i32) -> ViceDisk {
        let mut filled = [0; 32];
        filled[..name.len()].copy_from_slice(name);
        ViceDisk {
            blocks_available: 1,
            total_blocks,
            name: FixedOpaque(filled),
        }
    }

    #[test]
    fn what_a_server_says_is_checked() {
        let mut statistics = ViceStatistics {
            current_time: UnixTime(1000),
            start_time: UnixTime(400),
            ..ViceStatistics::default()
        };
        statistics.disks[0] = disk(b"/vicepa", 3);
        statistics.disks[2] = disk(b"/vicep<b>", 3);
        statistics.disks[3] = disk(b"/vicep\xff", 3);
        statistics.disks[4] = disk(b"/vicepb", -1);
        statistics.disks[5] = disk(&[b'x'; 32], 3);
        let answer = Answer::new(&statistics, Duration::from_millis(5));
        assert_eq!(answer.uptime, 600);
        let names = answer
            .partitions
            .iter()
            .map(|p| (p.partition.as_str(), p.size));
        assert_eq!(
            names.collect::<Vec<_>>(),
            [("/vicepa", 3072), ("/vicepb", 0)]
        );
        statistics.start_time = UnixTime(2000);
        assert_eq!(Answer::new(&statistics, Duration::ZERO).uptime, 0);
    }
}
