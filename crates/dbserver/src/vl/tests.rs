//! The operations of VL over a database in a temporary directory.

mod db0;
mod entries;
mod lists;
mod model;
mod servers;

use std::net::Ipv4Addr;

use afar_net::AbortCode;
use afar_rpc::vl::Service as _;
use afar_rpc::{Caller, Identity, vl};
use afar_types::{
    AfsUuid, NvldbEntry, PartitionId, SiteFlags, VldbEntryO, VldbFlags, VolumeId, VolumeName,
};
use afar_xdr::{CharArray, List};

use super::{LocationConfig, LocationServer};
use crate::kv::{Database, Options};

pub(super) struct Fixture {
    pub(super) server: LocationServer,
    pub(super) admin: Caller,
    pub(super) anyone: Caller,
    _dir: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::open(dir.path(), &Options::default()).unwrap();
        let caller = |identity| Caller {
            peer: "192.0.2.1:7001".parse().unwrap(),
            service: vl::SERVICE,
            identity,
        };
        Self {
            server: LocationServer::open(database, LocationConfig::default()).unwrap(),
            admin: caller(Identity::Superuser),
            anyone: caller(Identity::User("somebody".into())),
            _dir: dir,
        }
    }

    pub(super) async fn create(&self, entry: NvldbEntry) -> Result<(), AbortCode> {
        let request = vl::create_entry_n::Request { entry };
        let reply = self.server.create_entry_n(&self.admin, request).await;
        reply.map(|_| ())
    }

    pub(super) async fn by_name(&self, text: &str) -> Result<NvldbEntry, AbortCode> {
        let request = vl::get_entry_by_name_n::Request { name: name(text) };
        let reply = self.server.get_entry_by_name_n(&self.anyone, request).await;
        reply.map(|reply| reply.entry)
    }

    pub(super) async fn by_id(&self, volume: u32, kind: i32) -> Result<NvldbEntry, AbortCode> {
        let volume = VolumeId(volume);
        let request = vl::get_entry_by_id_n::Request { volume, kind };
        let reply = self.server.get_entry_by_id_n(&self.anyone, request).await;
        reply.map(|reply| reply.entry)
    }

    pub(super) async fn replace(
        &self,
        volume: u32,
        entry: NvldbEntry,
        release: i32,
    ) -> Result<(), AbortCode> {
        let request = vl::replace_entry_n::Request {
            volume: VolumeId(volume),
            kind: -1,
            entry,
            release,
        };
        let reply = self.server.replace_entry_n(&self.admin, request).await;
        reply.map(|_| ())
    }

    pub(super) async fn delete(&self, volume: u32, kind: i32) -> Result<(), AbortCode> {
        let volume = VolumeId(volume);
        let request = vl::delete_entry::Request { volume, kind };
        let reply = self.server.delete_entry(&self.admin, request).await;
        reply.map(|_| ())
    }

    pub(super) async fn lock(&self, volume: u32, operation: i32) -> Result<(), AbortCode> {
        let request = vl::set_lock::Request {
            volume: VolumeId(volume),
            kind: 0,
            operation,
        };
        let reply = self.server.set_lock(&self.admin, request).await;
        reply.map(|_| ())
    }

    pub(super) async fn unlock(&self, volume: u32, release: i32) -> Result<(), AbortCode> {
        let request = vl::release_lock::Request {
            volume: VolumeId(volume),
            kind: 0,
            release,
        };
        let reply = self.server.release_lock(&self.admin, request).await;
        reply.map(|_| ())
    }

    pub(super) async fn register(&self, n: u8, addresses: &[u32]) -> Result<(), AbortCode> {
        let request = vl::register_addrs::Request {
            server: uuid(n),
            spare: 0,
            addresses: List::new(addresses).unwrap(),
        };
        let reply = self.server.register_addrs(&self.admin, request).await;
        reply.map(|_| ())
    }
}

pub(super) fn name(text: &str) -> VolumeName {
    VolumeName::try_from(text).unwrap()
}

pub(super) fn uuid(n: u8) -> AfsUuid {
    AfsUuid::from_random([n; 16])
}

/// 10.0.0.n.
pub(super) fn address(n: u8) -> u32 {
    Ipv4Addr::new(10, 0, 0, n).into()
}

/// An entry with ids `volume` to `volume + 2`, a read-write site and a read-only one at each of
/// the other servers.
pub(super) fn entry(text: &str, volume: u32, servers: &[u8]) -> NvldbEntry {
    let mut entry = NvldbEntry {
        name: CharArray::new(text).unwrap(),
        n_servers: u32::try_from(servers.len()).unwrap(),
        volume_id: [VolumeId(volume), VolumeId(volume + 1), VolumeId(volume + 2)],
        flags: VldbFlags(0x1000 | if servers.len() > 1 { 0x2000 } else { 0 }),
        ..NvldbEntry::default()
    };
    for (slot, &server) in servers.iter().enumerate() {
        entry.server_number[slot] = address(server);
        entry.server_partition[slot] = PartitionId(slot.try_into().unwrap());
        entry.server_flags[slot] = SiteFlags(if slot == 0 { 4 } else { 2 });
    }
    entry
}

pub(super) fn entry_o(text: &str, volume: u32, servers: &[u8]) -> VldbEntryO {
    let new = entry(text, volume, servers);
    afar_types::VldbEntry::try_from(&new)
        .unwrap()
        .to_vldb_o(|_| None)
        .unwrap()
}
