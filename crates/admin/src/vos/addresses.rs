//! `vos listaddrs`, `setaddrs`, `remaddrs` and `changeaddr`: servers and their addresses.

use std::net::Ipv4Addr;

use afar_types::{AddrsU, AfsUuid, ListAddrByAttributes};
use afar_xdr::List;

use super::codes::{EINVAL, VL_INDEXERANGE, VL_NOENT};
use super::{Failure, Vos};

/// ChangeAddr: the new address is removed.
const REMOVE: u32 = u32::MAX;

impl Vos {
    /// A server's identity and addresses.
    ///
    /// # Errors
    /// The location server's code, of which nothing is said: VL_NOENT if it knows none.
    pub async fn server_addresses(&self, which: ListAddrByAttributes) -> Result<AddrsU, Failure> {
        let found = self.vl(|vl| async move { vl.get_addrs_u(which).await });
        found.await.map(|reply| reply.addresses).map_err(Failure)
    }

    /// All servers that the database knows by identity.
    ///
    /// # Errors
    /// The location server's code, of which nothing is said.
    pub async fn all_server_addresses(&self) -> Result<Vec<AddrsU>, Failure> {
        let count = self.vl(|vl| async move { vl.get_addrs(0, 0).await });
        let mut left = count.await.map_err(Failure)?.count;
        let mut found = Vec::new();
        let mut index = 0;
        while left > 0 {
            index += 1;
            match self
                .server_addresses(ListAddrByAttributes::by_index(index))
                .await
            {
                Ok(server) => {
                    found.push(server);
                    left -= 1;
                }
                Err(Failure(VL_NOENT)) => {}
                Err(Failure(VL_INDEXERANGE)) => break,
                Err(failure) => return Err(failure),
            }
        }
        Ok(found)
    }

    /// Has the database know a server by these addresses.
    ///
    /// # Errors
    /// The location server's code, of which nothing is said.
    pub async fn register_addresses(
        &self,
        server: AfsUuid,
        addresses: &[Ipv4Addr],
    ) -> Result<(), Failure> {
        let addresses: Vec<u32> = addresses.iter().map(|&address| address.into()).collect();
        let addresses = List::new(addresses).map_err(|_| Failure(EINVAL))?;
        let addresses = &addresses;
        let registered =
            self.vl(|vl| async move { vl.register_addrs(server, 0, addresses.clone()).await });
        registered.await.map(|_| ()).map_err(Failure)
    }

    /// Has a server go by another address in the database.
    ///
    /// # Errors
    /// The location server's code, of which nothing is said.
    pub async fn change_address(&self, old: Ipv4Addr, new: Ipv4Addr) -> Result<(), Failure> {
        self.change(old.into(), new.into()).await
    }

    /// Removes a server from the database, by one of its addresses.
    ///
    /// # Errors
    /// The location server's code, of which nothing is said.
    pub async fn remove_address(&self, address: Ipv4Addr) -> Result<(), Failure> {
        self.change(REMOVE, address.into()).await
    }

    async fn change(&self, old: u32, new: u32) -> Result<(), Failure> {
        let changed = self.vl(|vl| async move { vl.change_addr(old, new).await });
        changed.await.map(|_| ()).map_err(Failure)
    }
}
