//! What hosts tell of themselves (AFS-3 interfaceAddr, Capabilities).

use std::net::Ipv4Addr;

use afar_xdr::{Decode, Encode, List};

use crate::AfsUuid;

/// Slots for addresses in [`InterfaceAddr`].
pub const AFS_MAX_INTERFACES: usize = 32;

/// A cache manager's identity and addresses (108 words, whatever the number of addresses).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct InterfaceAddr {
    /// Slots in use; a peer may claim more than there are.
    pub number_of_interfaces: u32,
    /// Identity of the cache manager.
    pub uuid: AfsUuid,
    /// IPv4 addresses.
    pub addr_in: [u32; AFS_MAX_INTERFACES],
    /// Network masks.
    pub subnet_mask: [u32; AFS_MAX_INTERFACES],
    /// Largest packets.
    pub mtu: [u32; AFS_MAX_INTERFACES],
}

impl InterfaceAddr {
    /// One with these addresses, the first 32 of them; masks and MTUs are left 0, as servers
    /// ignore them.
    #[must_use]
    pub fn new(uuid: AfsUuid, addresses: &[Ipv4Addr]) -> Self {
        let mut addr_in = [0; AFS_MAX_INTERFACES];
        let mut number_of_interfaces = 0;
        for (slot, address) in addr_in.iter_mut().zip(addresses) {
            *slot = u32::from(*address);
            number_of_interfaces += 1;
        }
        let (subnet_mask, mtu) = ([0; AFS_MAX_INTERFACES], [0; AFS_MAX_INTERFACES]);
        Self {
            number_of_interfaces,
            uuid,
            addr_in,
            subnet_mask,
            mtu,
        }
    }

    /// The addresses in use.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let used = usize::try_from(self.number_of_interfaces).unwrap_or(usize::MAX);
        self.addr_in
            .iter()
            .take(used)
            .map(|&address| Ipv4Addr::from(address))
    }
}

/// Capability words of a file server or cache manager.
pub type Capabilities = List<u32, 196>;

/// In the first capability word: errors are translated to UAE codes for this peer. The only bit a
/// cache manager sets.
// spec: afs-rpc#capabilities
pub const CAPABILITY_ERROR_TRANSLATION: u32 = 1;
/// In the first capability word of a file server: FetchData64 and StoreData64 are served.
pub const CAPABILITY_64BIT_FILES: u32 = 2;
/// In the first capability word of a file server: the write right suffices to take write locks.
pub const CAPABILITY_WRITE_LOCK_ACL: u32 = 4;
/// In the first capability word of a file server: ACLs are returned without implicit rights.
pub const CAPABILITY_SANE_ACLS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_slots_are_sent_and_claims_are_bounded() {
        let mut host = InterfaceAddr::new(AfsUuid::default(), &[Ipv4Addr::new(192, 0, 2, 1)]);
        assert_eq!(afar_xdr::to_bytes(&host).len(), 432);
        assert_eq!(
            host.addresses().collect::<Vec<_>>(),
            [Ipv4Addr::new(192, 0, 2, 1)]
        );
        host.number_of_interfaces = u32::MAX;
        assert_eq!(host.addresses().count(), AFS_MAX_INTERFACES);
    }
}
