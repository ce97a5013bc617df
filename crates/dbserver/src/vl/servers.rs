//! File servers: registering, finding and changing them (OpenAFS vlprocs.c).

use afar_net::AbortCode;
use afar_types::{AddrsU, AfsUuid, ListAddrByAttributes};
use afar_xdr::List;

use super::codes::{
    VL_BADMASK, VL_BADSERVER, VL_IDEXIST, VL_INDEXERANGE, VL_MULTIPADDR, VL_NOENT, VL_REPSFULL,
};
use super::row::{ADDRESSES_MAX, Identity, SERVER_MAX, Server};
use super::tables::{
    Servers, entries_after, free_number, header, is_loopback, is_others_loopback, numbered,
    put_header, put_server, server_by_address, servers,
};
use crate::kv::{Change, View};

/// Blocks of servers with UUIDs, and places in each; the first is not used.
const BLOCKS: u8 = 4;
const BLOCK_PLACES: u8 = 64;

/// GetAddrs: servers without UUID by address, the others by their place.
pub(super) fn addresses(view: &View<'_>) -> Result<Vec<u32>, AbortCode> {
    let servers = servers(view)?;
    let addresses = numbered(&servers).map(|(_, server)| match &server.identity {
        Some(identity) => u32::from_be_bytes([0xff, identity.slot.0, 0, identity.slot.1]),
        None => server.address(),
    });
    Ok(addresses.collect())
}

/// GetAddrsU.
pub(super) fn find(view: &View<'_>, wanted: &ListAddrByAttributes) -> Result<AddrsU, AbortCode> {
    let servers = servers(view)?;
    let found = match wanted.mask & 7 {
        1 => numbered(&servers)
            .map(|(_, server)| server)
            .find(|server| server.identity.is_some() && server.addresses.contains(&wanted.address)),
        2 => {
            let index = wanted.index.checked_sub(1).ok_or(VL_INDEXERANGE)?;
            let index = usize::try_from(index).map_err(|_| VL_INDEXERANGE)?;
            if index >= usize::from(SERVER_MAX) {
                return Err(VL_INDEXERANGE);
            }
            servers[index].as_ref()
        }
        4 => numbered(&servers)
            .find(|(_, server)| has_uuid(server, &wanted.uuid))
            .map(|(_, server)| server),
        _ => return Err(VL_BADMASK),
    };
    let server = found.ok_or(VL_NOENT)?;
    let identity = server.identity.ok_or(VL_NOENT)?;
    Ok(AddrsU {
        uuid: identity.uuid,
        uniquifier: identity.uniquifier,
        n_entries: u32::try_from(server.addresses.len()).unwrap_or(u32::MAX),
        addresses: List::new(server.addresses.clone()).map_err(|_| super::codes::VL_DBBAD)?,
    })
}

fn has_uuid(server: &Server, uuid: &AfsUuid) -> bool {
    server
        .identity
        .as_ref()
        .is_some_and(|identity| identity.uuid == *uuid)
}

/// RegisterAddrs.
///
/// A server known by its UUID gets these addresses. One that is not takes over the only other
/// server that has one of them, if there is such, UUID and all. Others lose the addresses, unless
/// nothing would be left of one: then, or if it is not clear which to take over, nothing is
/// registered. OpenAFS also takes a nil UUID, by which nothing can be found, and loopback addresses.
// spec: afs-rpc#registering-addresses
pub(super) fn register(
    change: &mut Change<'_>,
    uuid: AfsUuid,
    addresses: &[u32],
) -> Result<(), AbortCode> {
    let mut addresses = distinct(addresses);
    if addresses.is_empty() {
        return Err(VL_INDEXERANGE);
    }
    if addresses.iter().any(|&address| !is_loopback(address)) {
        addresses.retain(|&address| !is_loopback(address));
    }
    if uuid == AfsUuid::default() {
        return Err(VL_BADSERVER);
    }
    let servers = servers(&change.view())?;
    // A server that starts before the network has only the loopback, and asks again.
    if addresses
        .first()
        .is_some_and(|&first| is_others_loopback(&servers, first))
    {
        return Err(VL_BADSERVER);
    }
    let known = numbered(&servers).find(|(_, server)| has_uuid(server, &uuid));
    let touched: Vec<(u8, &Server)> = numbered(&servers)
        .filter(|(_, server)| !has_uuid(server, &uuid))
        .filter(|(_, server)| server.addresses.iter().any(|a| addresses.contains(a)))
        .collect();
    let emptied: Vec<u8> = touched
        .iter()
        .filter(|(_, server)| server.addresses.iter().all(|a| addresses.contains(a)))
        .map(|(number, _)| *number)
        .collect();
    if (known.is_some() && !emptied.is_empty()) || (known.is_none() && touched.len() > 1) {
        conflict(&uuid, &addresses, &touched);
        return Err(VL_MULTIPADDR);
    }
    if known.is_some_and(|(_, server)| server.addresses == addresses) {
        return Ok(());
    }
    let replaced = match (known, touched.as_slice()) {
        (Some(known), _) => Some(known),
        (None, [only]) => Some(*only),
        (None, _) => None,
    };
    let number = match replaced {
        Some((number, _)) => number,
        None => free_number(&servers).ok_or(VL_REPSFULL)?,
    };
    let identity = match replaced.and_then(|(_, server)| server.identity) {
        Some(old) => Identity {
            uuid,
            uniquifier: old.uniquifier.wrapping_add(1),
            slot: old.slot,
        },
        None => Identity {
            uuid,
            uniquifier: header(&change.view())?.uniquifier.wrapping_add(1),
            slot: free_slot(&servers).ok_or(VL_REPSFULL)?,
        },
    };
    tracing::info!(%uuid, number, addresses = ?dotted(&addresses), "file server registered");
    for (other, server) in touched.into_iter().filter(|(other, _)| *other != number) {
        take_away(change, other, server, &addresses)?;
    }
    let server = Server {
        identity: Some(identity),
        addresses,
    };
    put_server(change, number, &server)
}

/// The addresses a server can have, each once, without 0; those beyond 15 are left out.
fn distinct(addresses: &[u32]) -> Vec<u32> {
    let mut distinct = Vec::with_capacity(ADDRESSES_MAX);
    for &address in addresses.iter().filter(|&&address| address != 0) {
        if distinct.contains(&address) {
            continue;
        }
        if distinct.len() == ADDRESSES_MAX {
            let address = std::net::Ipv4Addr::from(address);
            tracing::warn!(%address, "a file server's 16th address is not registered");
            continue;
        }
        distinct.push(address);
    }
    distinct
}

/// Another server has registered some of this one's addresses.
fn take_away(
    change: &mut Change<'_>,
    number: u8,
    server: &Server,
    addresses: &[u32],
) -> Result<(), AbortCode> {
    let mut server = server.clone();
    server.addresses.retain(|a| !addresses.contains(a));
    if let Some(identity) = &mut server.identity {
        identity.uniquifier = identity.uniquifier.wrapping_add(1);
    }
    put_server(change, number, &server)
}

fn conflict(uuid: &AfsUuid, addresses: &[u32], touched: &[(u8, &Server)]) {
    for (number, server) in touched {
        tracing::warn!(
            %uuid,
            addresses = ?dotted(addresses),
            other = number,
            other_uuid = ?server.identity.map(|identity| identity.uuid.to_string()),
            other_addresses = ?dotted(&server.addresses),
            "a file server was not registered, because another one has its addresses: remove that \
             one with `vos changeaddr -remove`, or the sysid file of the new one"
        );
    }
}

fn dotted(addresses: &[u32]) -> Vec<std::net::Ipv4Addr> {
    addresses.iter().map(|&address| address.into()).collect()
}

/// The first free place among the servers with UUIDs.
fn free_slot(servers: &Servers) -> Option<(u8, u8)> {
    let taken: Vec<(u8, u8)> = numbered(servers)
        .filter_map(|(_, server)| Some(server.identity?.slot))
        .collect();
    (0..BLOCKS)
        .flat_map(|block| (1..BLOCK_PLACES).map(move |index| (block, index)))
        .find(|slot| !taken.contains(slot))
}

/// ChangeAddr: gives a server without UUID another address, or, with 255.255.255.255 as the old
/// one, removes the server that has the new one, if no entry names it.
// spec: afs-rpc#servers-by-number
pub(super) fn change_address(change: &mut Change<'_>, old: u32, new: u32) -> Result<(), AbortCode> {
    if new >= 0xff00_0000 {
        return Err(VL_BADSERVER);
    }
    let servers = servers(&change.view())?;
    if old == u32::MAX || new == 0 {
        let address = if old == u32::MAX { new } else { old };
        return remove(change, &servers, address);
    }
    let number = server_by_address(&servers, old).ok_or(VL_NOENT)?;
    if is_others_loopback(&servers, new) {
        return Err(VL_BADSERVER);
    }
    if server_by_address(&servers, new).is_some_and(|taken| taken != number) {
        return Err(VL_MULTIPADDR);
    }
    let server = servers[usize::from(number)].as_ref().ok_or(VL_NOENT)?;
    if server.identity.is_some() {
        let address = std::net::Ipv4Addr::from(old);
        tracing::warn!(%address, number, "the server registers its addresses itself");
        return Err(VL_NOENT);
    }
    let server = Server {
        identity: None,
        addresses: vec![new],
    };
    put_server(change, number, &server)
}

fn remove(change: &mut Change<'_>, servers: &Servers, address: u32) -> Result<(), AbortCode> {
    let number = server_by_address(servers, address).ok_or(VL_NOENT)?;
    for entry in entries_after(&change.view(), 0) {
        let (_, entry) = entry?;
        if entry.places.iter().any(|place| place.server == number) {
            return Err(VL_IDEXIST);
        }
    }
    let server = servers[usize::from(number)].as_ref().ok_or(VL_NOENT)?;
    if let Some(identity) = &server.identity {
        let mut header = header(&change.view())?;
        header.uniquifier = header.uniquifier.max(identity.uniquifier);
        put_header(change, &header)?;
    }
    tracing::info!(number, addresses = ?dotted(&server.addresses), "file server removed");
    Ok(change.delete(&super::row::server_key(number))?)
}
