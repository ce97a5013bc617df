//! Requests by attribute, and their replies.

use std::net::Ipv4Addr;

use afar_xdr::{Decode, Encode, List};

use crate::{AfsUuid, PartitionId, VolumeId};

/// Which server's addresses are asked for (AFS-3 ListAddrByAttributes). Made by the functions, as
/// exactly one attribute may be given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct ListAddrByAttributes {
    /// 1 address, 2 index, 4 UUID.
    pub mask: u32,
    /// An IPv4 address of the server.
    pub address: u32,
    /// The server's place in the database, from 1.
    pub index: u32,
    /// Unused.
    pub spare: u32,
    /// The server's UUID.
    pub uuid: AfsUuid,
}

impl ListAddrByAttributes {
    /// The server with this UUID.
    #[must_use]
    pub fn by_uuid(uuid: AfsUuid) -> Self {
        Self {
            mask: 4,
            uuid,
            ..Self::default()
        }
    }

    /// The server with this address.
    #[must_use]
    pub fn by_address(address: Ipv4Addr) -> Self {
        Self {
            mask: 1,
            address: address.into(),
            ..Self::default()
        }
    }

    /// The server at this place in the database, from 1.
    #[must_use]
    pub fn by_index(index: u32) -> Self {
        Self {
            mask: 2,
            index,
            ..Self::default()
        }
    }
}

/// A server's identity and addresses: what GetAddrsU returns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct AddrsU {
    /// The server's UUID.
    pub uuid: AfsUuid,
    /// Changes when the addresses do.
    pub uniquifier: u32,
    /// The number of addresses; the same as the length of the list, which is what counts.
    pub n_entries: u32,
    /// IPv4 addresses.
    pub addresses: List<u32, 500>,
}

impl AddrsU {
    /// The addresses, the best one first as the server sees it.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.addresses
            .iter()
            .map(|&address| Ipv4Addr::from(address))
    }
}

/// Which entries are asked for (AFS-3 VldbListByAttributes).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct ListByAttributes {
    /// Attributes that count: 1 server, 2 partition, 8 volume, 0x10 flags; 0 for all entries.
    pub mask: u32,
    /// IPv4 address of a server.
    pub server: u32,
    /// A partition of that server.
    pub partition: PartitionId,
    /// Unused.
    pub spare: u32,
    /// A volume id of any type.
    pub volume: VolumeId,
    /// Flags of which the entry has one.
    pub flag: u32,
}
