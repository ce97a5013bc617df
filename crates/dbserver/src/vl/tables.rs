//! Finding rows and keeping the ones that lead to others right.

use afar_net::AbortCode;
use afar_types::VolumeType;

use super::codes::{VL_BADSERVER, VL_DBBAD};
use super::row::{
    ENTRIES, Entry, HEADER, Header, SERVER_MAX, SERVERS, Server, entry_key, id_key, name_key,
    number_in, server_key,
};
use crate::kv::{Change, View};

/// An entry and its number.
pub(super) type Found = (u32, Entry);

/// All servers by their numbers.
pub(super) type Servers = Vec<Option<Server>>;

fn pointer(row: &[u8]) -> Result<u32, AbortCode> {
    row.try_into().map(u32::from_be_bytes).map_err(|_| VL_DBBAD)
}

/// The database's header; that of an empty one if there is none.
pub(super) fn header(view: &View<'_>) -> Result<Header, AbortCode> {
    match view.get(HEADER)? {
        Some(row) => Header::decode(row).ok_or(VL_DBBAD),
        None => Ok(Header::default()),
    }
}

pub(super) fn put_header(change: &mut Change<'_>, header: &Header) -> Result<(), AbortCode> {
    Ok(change.put(HEADER, &header.encode())?)
}

/// The entry of this number, which another row leads to.
fn entry(view: &View<'_>, number: u32) -> Result<Found, AbortCode> {
    let row = view.get(&entry_key(number))?.ok_or(VL_DBBAD)?;
    Ok((number, Entry::decode(row).ok_or(VL_DBBAD)?))
}

/// The number of the entry with this id of this type.
pub(super) fn number_by_id(
    view: &View<'_>,
    id: u32,
    kind: usize,
) -> Result<Option<u32>, AbortCode> {
    view.get(&id_key(id, kind))?.map(pointer).transpose()
}

/// The entry with this id; of any type if none is given, read-write first.
pub(super) fn find_by_id(
    view: &View<'_>,
    id: u32,
    kind: Option<VolumeType>,
) -> Result<Option<Found>, AbortCode> {
    let kinds = match kind {
        Some(VolumeType::ReadWrite) => 0..1,
        Some(VolumeType::ReadOnly) => 1..2,
        Some(VolumeType::Backup) => 2..3,
        None => 0..3,
    };
    for kind in kinds {
        if let Some(number) = number_by_id(view, id, kind)? {
            return entry(view, number).map(Some);
        }
    }
    Ok(None)
}

/// Whether one of these ids, those that are 0 apart, belongs to an entry.
pub(super) fn any_id_exists(view: &View<'_>, ids: [u32; 3]) -> Result<bool, AbortCode> {
    for id in ids.into_iter().filter(|&id| id != 0) {
        for kind in 0..3 {
            if number_by_id(view, id, kind)?.is_some() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// A name without `.backup` or `.readonly`: the entry's name for each of its volumes.
pub(super) fn base_name(name: &[u8]) -> &[u8] {
    [&b".backup"[..], b".readonly"]
        .into_iter()
        .find_map(|suffix| name.strip_suffix(suffix).filter(|base| !base.is_empty()))
        .unwrap_or(name)
}

/// The number of the entry with the name of one of its volumes.
pub(super) fn number_by_name(view: &View<'_>, name: &[u8]) -> Result<Option<u32>, AbortCode> {
    let key = name_key(base_name(name));
    view.get(&key)?.map(pointer).transpose()
}

/// The entry with the name of one of its volumes.
pub(super) fn find_by_name(view: &View<'_>, name: &[u8]) -> Result<Option<Found>, AbortCode> {
    match number_by_name(view, name)? {
        Some(number) => entry(view, number).map(Some),
        None => Ok(None),
    }
}

/// The entries after the one of this number, in the order of their numbers.
pub(super) fn entries_after<'a>(
    view: &View<'a>,
    number: u32,
) -> impl Iterator<Item = Result<Found, AbortCode>> + use<'a> {
    // The last number there can be has no next one.
    let rows = number
        .checked_add(1)
        .map(|first| view.range(&entry_key(first), ENTRIES));
    rows.into_iter().flatten().map(|row| {
        let (key, row) = row?;
        let number = number_in(key).ok_or(VL_DBBAD)?;
        Ok((number, Entry::decode(row).ok_or(VL_DBBAD)?))
    })
}

/// The ids an entry is found by: the read-write one even if it is 0, as in OpenAFS.
fn known_ids(entry: &Entry) -> impl Iterator<Item = (usize, u32)> + '_ {
    let ids = entry.ids.into_iter().enumerate();
    ids.filter(|&(kind, id)| kind == 0 || id != 0)
}

/// Writes an entry and what leads to it. `old` is what was there by this number.
pub(super) fn put_entry(
    change: &mut Change<'_>,
    number: u32,
    old: Option<&Entry>,
    new: &Entry,
) -> Result<(), AbortCode> {
    let pointer = number.to_be_bytes();
    if let Some(old) = old {
        for (kind, id) in known_ids(old).filter(|&(kind, id)| new.ids[kind] != id) {
            change.delete(&id_key(id, kind))?;
        }
        if old.name != new.name {
            change.delete(&name_key(&old.name))?;
        }
    }
    for (kind, id) in known_ids(new) {
        if old.is_none_or(|old| old.ids[kind] != id) {
            change.put(&id_key(id, kind), &pointer)?;
        }
    }
    if old.is_none_or(|old| old.name != new.name) {
        change.put(&name_key(&new.name), &pointer)?;
    }
    Ok(change.put(&entry_key(number), &new.encode())?)
}

/// Removes an entry and what leads to it.
pub(super) fn delete_entry(
    change: &mut Change<'_>,
    number: u32,
    entry: &Entry,
) -> Result<(), AbortCode> {
    for (kind, id) in known_ids(entry) {
        change.delete(&id_key(id, kind))?;
    }
    change.delete(&name_key(&entry.name))?;
    Ok(change.delete(&entry_key(number))?)
}

/// The server of this number; one without addresses if it is gone.
pub(super) fn server(view: &View<'_>, number: u8) -> Result<Server, AbortCode> {
    match view.get(&server_key(number))? {
        Some(row) => Server::decode(row).ok_or(VL_DBBAD),
        None => Ok(Server::default()),
    }
}

/// All servers.
pub(super) fn servers(view: &View<'_>) -> Result<Servers, AbortCode> {
    let mut servers = vec![None; usize::from(SERVER_MAX) + 1];
    for row in view.range(SERVERS, SERVERS) {
        let (key, row) = row?;
        let number = key.get(2).copied().ok_or(VL_DBBAD)?;
        let slot = servers.get_mut(usize::from(number)).ok_or(VL_DBBAD)?;
        *slot = Some(Server::decode(row).ok_or(VL_DBBAD)?);
    }
    Ok(servers)
}

/// The servers that there are, with their numbers.
pub(super) fn numbered(servers: &Servers) -> impl Iterator<Item = (u8, &Server)> {
    (0..=SERVER_MAX)
        .zip(servers)
        .filter_map(|(number, server)| Some((number, server.as_ref()?)))
}

pub(super) fn put_server(
    change: &mut Change<'_>,
    number: u8,
    server: &Server,
) -> Result<(), AbortCode> {
    Ok(change.put(&server_key(number), &server.encode())?)
}

/// The number of the server with this address.
pub(super) fn server_by_address(servers: &Servers, address: u32) -> Option<u8> {
    numbered(servers)
        .find(|(_, server)| server.addresses.contains(&address))
        .map(|(number, _)| number)
}

/// The first number that no server has.
pub(super) fn free_number(servers: &Servers) -> Option<u8> {
    (0..=SERVER_MAX).find(|&number| servers[usize::from(number)].is_none())
}

/// Whether this is a loopback address in a cell whose servers listen elsewhere. It would mean another
/// machine to each one that asks. OpenAFS takes it.
pub(super) fn is_others_loopback(servers: &Servers, address: u32) -> bool {
    let elsewhere = |server: &Server| server.addresses.iter().any(|&known| !is_loopback(known));
    let found = is_loopback(address) && numbered(servers).any(|(_, server)| elsewhere(server));
    if found {
        tracing::warn!(
            address = %std::net::Ipv4Addr::from(address),
            "refused: the cell's servers have addresses that others reach; name the server by one \
             of those"
        );
    }
    found
}

/// Whether an address leads to the very machine that uses it.
pub(super) fn is_loopback(address: u32) -> bool {
    std::net::Ipv4Addr::from(address).is_loopback()
}

/// The number of the server with this address, which is noted if no server has it.
///
/// The addresses 0 and those from 255.0.0.0 up are refused: OpenAFS takes them for a free place
/// and for a server with several addresses, and damages its database. So are those of
/// [`is_others_loopback`].
pub(super) fn server_for_address(change: &mut Change<'_>, address: u32) -> Result<u8, AbortCode> {
    let servers = servers(&change.view())?;
    if let Some(number) = server_by_address(&servers, address) {
        return Ok(number);
    }
    // spec: afs-rpc#servers-by-number
    if address == 0 || address >= 0xff00_0000 || is_others_loopback(&servers, address) {
        return Err(VL_BADSERVER);
    }
    let number = free_number(&servers).ok_or(VL_BADSERVER)?;
    let server = Server {
        identity: None,
        addresses: vec![address],
    };
    put_server(change, number, &server)?;
    Ok(number)
}
