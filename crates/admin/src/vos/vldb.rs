//! Entries of the volume location database: reading, holding, replacing.

use std::net::Ipv4Addr;

use afar_rpc::vl;
use afar_types::{
    ListAddrByAttributes, ListByAttributes, NvldbEntry, VldbEntry, VldbEntryO, VldbFlags, VolumeId,
    VolumeName, VolumeType,
};

use super::codes::{EINVAL, RXGEN_OPCODE, VL_BADENTRY, VL_NOENT};
use super::event::{Answer, OrFail};
use super::{Failure, Vos, base_name};

/// The word for "a volume of any type".
const ANY: i32 = -1;
/// ReplaceEntry and ReleaseLock: let go of the operation, the holder's id and the time.
// spec: afs-rpc#held-entries
const LET_GO: i32 = 7;

/// What becomes of the hold on an entry that is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    Keep,
    Release,
}

impl Hold {
    const fn word(self) -> i32 {
        match self {
            Self::Keep => 0,
            Self::Release => LET_GO,
        }
    }
}

fn word(kind: Option<VolumeType>) -> i32 {
    kind.map_or(ANY, VolumeType::number)
}

fn parsed(entry: &NvldbEntry) -> Answer<VldbEntry> {
    VldbEntry::try_from(entry).map_err(|_| VL_BADENTRY)
}

fn parsed_old(entry: &VldbEntryO) -> Answer<VldbEntry> {
    VldbEntry::try_from(entry).map_err(|_| VL_BADENTRY)
}

impl Vos {
    /// Asks a location server.
    pub(super) async fn vl<T, F>(&self, call: impl Fn(vl::Client) -> F) -> Answer<T>
    where
        F: Future<Output = Result<T, afar_rpc::RpcError>>,
    {
        self.rpc(self.servers.vl(call)).await
    }

    /// The entry that has this id; of any type if none is given.
    ///
    /// # Errors
    /// The server's code, VL_NOENT if there is none.
    pub async fn entry(&self, id: VolumeId, kind: Option<VolumeType>) -> Result<VldbEntry, i32> {
        let kind = word(kind);
        let found = self
            .vl(|vl| async move { vl.get_entry_by_id_n(id, kind).await })
            .await;
        match found {
            // spec: afs-rpc#unknown-operations
            Err(RXGEN_OPCODE) => {
                let found = self
                    .vl(|vl| async move { vl.get_entry_by_id(id, kind).await })
                    .await;
                parsed_old(&found?.entry)
            }
            found => parsed(&found?.entry),
        }
    }

    /// The entry of this name, or of the id that the name consists of.
    ///
    /// # Errors
    /// The server's code, VL_NOENT if there is none.
    pub async fn entry_by_name(&self, name: &str) -> Result<VldbEntry, i32> {
        let Ok(name) = VolumeName::new(name) else {
            return Err(EINVAL);
        };
        let name = &name;
        let found = self
            .vl(|vl| async move { vl.get_entry_by_name_n(name.clone()).await })
            .await;
        match found {
            Err(RXGEN_OPCODE) => {
                let found = self
                    .vl(|vl| async move { vl.get_entry_by_name_o(name.clone()).await })
                    .await;
                parsed_old(&found?.entry)
            }
            found => parsed(&found?.entry),
        }
    }

    /// The id a user means by a number or a name, with or without a suffix. It may be one that no
    /// volume has: 0 if the group has no such member.
    ///
    /// # Errors
    /// The server's code.
    pub async fn volume_id(&self, typed: &str) -> Result<VolumeId, i32> {
        if typed.starts_with(|c: char| c.is_ascii_digit())
            && let Ok(number) = typed.parse::<u32>()
            && number != u32::MAX
        {
            return Ok(VolumeId(number));
        }
        let base = base_name(typed);
        let entry = self.entry_by_name(base).await?;
        let [read_write, read_only, backup] = entry.volume_ids;
        Ok(match &typed[base.len()..] {
            ".readonly" => read_only,
            ".backup" => backup,
            _ => read_write,
        })
    }

    pub(super) async fn create_entry(&self, entry: &VldbEntry) -> Answer<()> {
        let new = wire(entry)?;
        let new = &new;
        let created = self
            .vl(|vl| async move { vl.create_entry_n(new.clone()).await })
            .await;
        match created {
            Err(RXGEN_OPCODE) => {
                let old = old_wire(entry)?;
                let old = &old;
                let created = self.vl(|vl| async move { vl.create_entry(old.clone()).await });
                created.await.map(|_| ())
            }
            created => created.map(|_| ()),
        }
    }

    pub(super) async fn replace_entry(
        &self,
        id: VolumeId,
        kind: Option<VolumeType>,
        entry: &VldbEntry,
        hold: Hold,
    ) -> Answer<()> {
        let (kind, hold) = (word(kind), hold.word());
        let new = wire(entry)?;
        let new = &new;
        let replaced = self
            .vl(|vl| async move { vl.replace_entry_n(id, kind, new.clone(), hold).await })
            .await;
        match replaced {
            Err(RXGEN_OPCODE) => {
                let old = old_wire(entry)?;
                let old = &old;
                let replaced = self
                    .vl(|vl| async move { vl.replace_entry(id, kind, old.clone(), hold).await });
                replaced.await.map(|_| ())
            }
            replaced => replaced.map(|_| ()),
        }
    }

    pub(super) async fn delete_entry(&self, id: VolumeId, kind: VolumeType) -> Answer<()> {
        let kind = kind.number();
        let deleted = self.vl(|vl| async move { vl.delete_entry(id, kind).await });
        deleted.await.map(|_| ())
    }

    pub(super) async fn lock(
        &self,
        id: VolumeId,
        kind: Option<VolumeType>,
        operation: VldbFlags,
    ) -> Answer<()> {
        let kind = word(kind);
        let operation = i32::try_from(operation.0).map_err(|_| EINVAL)?;
        let locked = self.vl(|vl| async move { vl.set_lock(id, kind, operation).await });
        locked.await.map(|_| ())
    }

    pub(super) async fn unlock_entry(&self, id: VolumeId, kind: Option<VolumeType>) -> Answer<()> {
        let kind = word(kind);
        let vos = self.calm();
        let unlocked = vos.vl(|vl| async move { vl.release_lock(id, kind, LET_GO).await });
        unlocked.await.map(|_| ())
    }

    /// Takes this many ids in a row.
    pub(super) async fn new_ids(&self, count: u32) -> Answer<VolumeId> {
        let taken = self.vl(|vl| async move { vl.get_new_volume_id(count).await });
        taken.await.map(|reply| reply.first)
    }

    /// Lets go of an entry.
    ///
    /// # Errors
    /// The server's.
    pub async fn unlock(&self, id: VolumeId) -> Result<(), Failure> {
        super::step!(self, "Binding to the VLDB server\n");
        let unlocked = self.unlock_entry(id, None).await.or_fail(self, || {
            format!("Could not unlock the entry for volume number {id} in VLDB \n")
        });
        self.end(unlocked)?;
        super::step!(self, "VLDB updated\n");
        Ok(())
    }

    /// Holds an entry, so that no operation changes it until it is let go of.
    ///
    /// # Errors
    /// The server's code, of which nothing is said yet.
    pub async fn hold(&self, id: VolumeId) -> Result<(), Failure> {
        self.lock(id, None, VldbFlags::DELETE)
            .await
            .map_err(Failure)
    }

    /// Removes an entry, whatever it says of volumes.
    ///
    /// # Errors
    /// The server's code, of which nothing is said yet.
    pub async fn forget(&self, id: VolumeId) -> Result<(), Failure> {
        let forgotten = self.delete_entry(id, VolumeType::ReadWrite).await;
        forgotten.map_err(Failure)
    }

    /// The entries with these attributes, by parts: pass 0 for the first, and what came with one
    /// part for the next.
    ///
    /// # Errors
    /// The server's code, of which nothing is said yet.
    pub async fn entries(
        &self,
        attributes: ListByAttributes,
        from: i32,
    ) -> Result<(Vec<VldbEntry>, Option<i32>), Failure> {
        let listed = self
            .vl(|vl| async move {
                vl.list_attributes_n2(attributes, VolumeName::default(), from)
                    .await
            })
            .await;
        match listed {
            Ok(listed) => {
                let entries = listed.entries.iter().map(parsed).collect::<Answer<_>>();
                let next = (listed.next_index != -1).then_some(listed.next_index);
                Ok((entries.map_err(Failure)?, next))
            }
            // spec: afs-rpc#lists-of-entries
            Err(RXGEN_OPCODE) => Ok((self.all_entries(attributes).await?, None)),
            Err(code) => Err(Failure(code)),
        }
    }

    /// All entries with these attributes, in one reply.
    ///
    /// # Errors
    /// The server's code, of which nothing is said yet.
    pub async fn all_entries(
        &self,
        attributes: ListByAttributes,
    ) -> Result<Vec<VldbEntry>, Failure> {
        let listed = self.vl(|vl| async move { vl.list_attributes_n(attributes).await });
        let entries: Answer<Vec<_>> = match listed.await {
            Ok(listed) => listed.entries.iter().map(parsed).collect(),
            Err(RXGEN_OPCODE) => {
                let listed = self.vl(|vl| async move { vl.list_attributes(attributes).await });
                let listed = listed.await.map_err(Failure)?;
                listed.entries.iter().map(parsed_old).collect()
            }
            Err(code) => Err(code),
        };
        entries.map_err(Failure)
    }

    /// Whether two addresses are of one server.
    ///
    /// # Errors
    /// The location server's code.
    pub async fn is_same_server(&self, one: Ipv4Addr, other: Ipv4Addr) -> Result<bool, i32> {
        if one == other {
            return Ok(true);
        }
        let known = self
            .addresses
            .lock()
            .get(&one)
            .map(|addresses| addresses.contains(&other));
        if let Some(known) = known {
            return Ok(known);
        }
        let attributes = ListAddrByAttributes::by_address(one);
        let found = self.vl(|vl| async move { vl.get_addrs_u(attributes).await });
        let addresses: Vec<_> = match found.await {
            Ok(found) => found.addresses.addresses().collect(),
            Err(VL_NOENT | RXGEN_OPCODE) => Vec::new(),
            Err(code) => return Err(code),
        };
        let same = addresses.contains(&other);
        self.addresses.lock().insert(one, addresses);
        Ok(same)
    }
}

fn wire(entry: &VldbEntry) -> Answer<NvldbEntry> {
    entry.to_nvldb(|_| None).map_err(|_| VL_BADENTRY)
}

fn old_wire(entry: &VldbEntry) -> Answer<VldbEntryO> {
    entry.to_vldb_o(|_| None).map_err(|_| VL_BADENTRY)
}
