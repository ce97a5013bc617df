//! Entries in the forms of the wire.

use afar_net::AbortCode;
use afar_types::{
    NvldbEntry, PartitionId, Site, SiteFlags, SiteServer, UvldbEntry, VldbEntry, VldbEntryO,
    VldbFlags, VolumeId,
};
use afar_xdr::CharArray;

use super::codes::VL_DBBAD;
use super::row::{Entry, Server};
use super::tables::{self, Servers};
use crate::kv::View;

/// How servers with a UUID are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// By the first of their addresses.
    Address,
    /// By UUID.
    Uuid,
}

fn named(server: &Server, naming: Naming) -> SiteServer {
    match (&server.identity, naming) {
        (Some(identity), Naming::Uuid) => SiteServer::Uuid {
            uuid: identity.uuid,
            unique: identity.uniquifier,
        },
        _ => SiteServer::Address(server.address().into()),
    }
}

/// An entry with its servers named.
fn entry(
    entry: &Entry,
    mut server: impl FnMut(u8) -> Result<SiteServer, AbortCode>,
) -> Result<VldbEntry, AbortCode> {
    let mut sites = Vec::with_capacity(entry.places.len());
    for place in &entry.places {
        sites.push(Site {
            server: server(place.server)?,
            partition: PartitionId(place.partition.into()),
            flags: SiteFlags(place.flags.into()),
        });
    }
    Ok(VldbEntry {
        name: CharArray::new(&entry.name).map_err(|_| VL_DBBAD)?,
        sites,
        volume_ids: entry.ids.map(VolumeId),
        clone_id: VolumeId(entry.clone_id),
        flags: VldbFlags(entry.flags),
    })
}

/// An entry with its servers looked up one by one.
pub(super) fn look_up(
    view: &View<'_>,
    found: &Entry,
    naming: Naming,
) -> Result<VldbEntry, AbortCode> {
    entry(found, |number| {
        Ok(named(&tables::server(view, number)?, naming))
    })
}

fn by_address(found: &Entry, servers: &Servers) -> Result<VldbEntry, AbortCode> {
    entry(found, |number| {
        let server = servers.get(usize::from(number)).and_then(Option::as_ref);
        let address = server.map_or(0, Server::address);
        Ok(SiteServer::Address(address.into()))
    })
}

/// One of many entries, in the form with 13 sites by address.
pub(super) fn to_nvldb(found: &Entry, servers: &Servers) -> Result<NvldbEntry, AbortCode> {
    nvldb(&by_address(found, servers)?)
}

/// One of many entries, in the oldest form.
pub(super) fn to_vldb_o(found: &Entry, servers: &Servers) -> Result<VldbEntryO, AbortCode> {
    vldb_o(&by_address(found, servers)?)
}

pub(super) fn nvldb(entry: &VldbEntry) -> Result<NvldbEntry, AbortCode> {
    entry.to_nvldb(|_| None).map_err(|_| VL_DBBAD)
}

pub(super) fn vldb_o(entry: &VldbEntry) -> Result<VldbEntryO, AbortCode> {
    entry.to_vldb_o(|_| None).map_err(|_| VL_DBBAD)
}

pub(super) fn uvldb(entry: &VldbEntry) -> Result<UvldbEntry, AbortCode> {
    UvldbEntry::try_from(entry).map_err(|_| VL_DBBAD)
}
