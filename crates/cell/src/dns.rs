//! Database servers of a cell from DNS: SRV records (RFC 5864), or else AFSDB records (RFC 1183).

use std::net::{IpAddr, SocketAddr};

use afar_types::CellName;
use hickory_resolver::TokioResolver;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::{RData, RecordType};

use crate::cellservdb::VL_PORT;

/// The type of AFSDB records.
const AFSDB: u16 = 18;
/// Subtype of AFSDB records that name volume location servers.
const AFSDB_VLDB: u16 = 1;
/// Addresses taken from DNS at most: a cell has a handful of database servers.
pub(crate) const SERVERS_MAX: usize = 16;

/// Why DNS did not tell a cell's servers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DnsError {
    /// The system's resolver configuration cannot be used.
    #[error("DNS is not usable here: {0}")]
    Unusable(String),
    /// There is no record.
    #[error("DNS has neither SRV records of _afs3-vlserver._udp.{0} nor AFSDB records")]
    NoRecords(CellName),
    /// The question was not answered.
    #[error("DNS did not answer: {0}")]
    Failed(String),
}

/// Looks the volume location servers of a cell up in DNS, in the order to try them.
///
/// # Errors
/// When DNS has no records, or cannot be asked.
pub(crate) async fn vl_servers(cell: &CellName) -> Result<Vec<SocketAddr>, DnsError> {
    let resolver = TokioResolver::builder_tokio()
        .and_then(hickory_resolver::ResolverBuilder::build)
        .map_err(|error| DnsError::Unusable(error.to_string()))?;
    let mut hosts = srv_hosts(&resolver, cell).await?;
    if hosts.is_empty() {
        hosts = afsdb_hosts(&resolver, cell).await?;
    }
    if hosts.is_empty() {
        return Err(DnsError::NoRecords(cell.clone()));
    }
    let mut servers = Vec::new();
    for (host, port) in hosts {
        match resolver.lookup_ip(host.as_str()).await {
            Ok(addresses) => servers.extend(
                addresses
                    .iter()
                    .filter(IpAddr::is_ipv4)
                    .map(|address| SocketAddr::new(address, port)),
            ),
            // The others may have one.
            Err(error) => tracing::warn!("DNS has no address of {host}: {error}"),
        }
    }
    servers.truncate(SERVERS_MAX);
    if servers.is_empty() {
        let text = format!("none of the servers named for {cell} has an address");
        return Err(DnsError::Failed(text));
    }
    Ok(servers)
}

async fn srv_hosts(
    resolver: &TokioResolver,
    cell: &CellName,
) -> Result<Vec<(String, u16)>, DnsError> {
    // spec: afs-rpc#finding-a-cell
    let name = format!("_afs3-vlserver._udp.{cell}.");
    let answers = answers(resolver.srv_lookup(name.as_str()).await)?;
    let mut found: Vec<_> = answers
        .into_iter()
        .filter_map(|data| match data {
            RData::SRV(srv) if !srv.target.is_root() => Some(srv),
            _ => None,
        })
        .collect();
    // Within a priority the heavier come first: for a handful of servers that all get asked in
    // case of need, that is as good as drawing lots.
    found.sort_by_key(|srv| (srv.priority, u16::MAX - srv.weight));
    Ok(found
        .into_iter()
        .map(|srv| (srv.target.to_ascii(), srv.port))
        .collect())
}

async fn afsdb_hosts(
    resolver: &TokioResolver,
    cell: &CellName,
) -> Result<Vec<(String, u16)>, DnsError> {
    let name = format!("{cell}.");
    let lookup = resolver
        .lookup(name.as_str(), RecordType::Unknown(AFSDB))
        .await;
    let hosts = answers(lookup)?.into_iter().filter_map(|data| match data {
        RData::Unknown { rdata, .. } => afsdb_host(&rdata.anything),
        _ => None,
    });
    Ok(hosts.map(|host| (host, VL_PORT)).collect())
}

/// The records of an answer; none is not an error.
fn answers(
    result: Result<hickory_resolver::lookup::Lookup, NetError>,
) -> Result<Vec<RData>, DnsError> {
    match result {
        Ok(lookup) => Ok(lookup
            .answers()
            .iter()
            .map(|record| record.data.clone())
            .collect()),
        Err(error) if error.is_no_records_found() || error.is_nx_domain() => Ok(Vec::new()),
        Err(error) => Err(DnsError::Failed(error.to_string())),
    }
}

/// The host in an AFSDB record's data, if it is a volume location server: a 16-bit subtype and a
/// domain name. Compressed names (RFC 3597 forbids them here) are not understood.
fn afsdb_host(data: &[u8]) -> Option<String> {
    let (subtype, mut rest) = data.split_first_chunk::<2>()?;
    if u16::from_be_bytes(*subtype) != AFSDB_VLDB {
        return None;
    }
    let mut host = String::new();
    loop {
        let (&length, after) = rest.split_first()?;
        if length == 0 {
            return (!host.is_empty()).then_some(host);
        }
        if length > 63 {
            return None;
        }
        let (label, after) = after.split_at_checked(usize::from(length))?;
        let label = std::str::from_utf8(label).ok()?;
        host.push_str(label);
        host.push('.');
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn afsdb_records_are_read() {
        let data = b"\0\x01\x03db1\x07example\x03org\0";
        assert_eq!(afsdb_host(data).as_deref(), Some("db1.example.org."));
        assert_eq!(afsdb_host(b"\0\x02\x03db1\0"), None);
        for bad in [
            &data[..data.len() - 1],
            b"\0",
            b"\0\x01",
            b"\0\x01\0",
            b"\0\x01\xc0\x0c",
        ] {
            assert_eq!(afsdb_host(bad), None, "{bad:?}");
        }
    }
}
