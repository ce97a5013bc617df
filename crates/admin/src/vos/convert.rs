//! `vos convertROtoRW`: a read-only volume becomes the read-write one, after that was lost.

use afar_types::{SiteFlags, VldbEntry, VldbFlags, VolumeId, VolumeType};

use super::codes::ENOENT;
use super::entry::{ALL_OPERATIONS, address, clear, id_of, rw_index, set, site};
use super::vldb::Hold;
use super::{Failure, ServerPartition, Vos, complain};

impl Vos {
    /// Makes the read-write volume of the read-only one at a place. The entry is one that was just
    /// read.
    ///
    /// # Errors
    /// What a server says.
    pub async fn convert_to_read_write(
        &self,
        at: ServerPartition,
        read_only: VolumeId,
        entry: &VldbEntry,
    ) -> Result<(), Failure> {
        let (id, kind) = (
            id_of(entry, VolumeType::ReadWrite),
            Some(VolumeType::ReadWrite),
        );
        if let Err(code) = self.lock(id, kind, VldbFlags::MOVE).await {
            complain!(self, "Unable to lock volume {id}, code {code}\n");
            self.explain("", code);
            return Err(Failure(-1));
        }
        let converted = self.convert_locked(at, read_only, entry).await;
        // An entry that was replaced is not held any more.
        if converted.is_err() {
            // That it is still held was said.
            let _told = self.unlock(id).await;
        }
        converted
    }

    async fn convert_locked(
        &self,
        at: ServerPartition,
        read_only: VolumeId,
        entry: &VldbEntry,
    ) -> Result<(), Failure> {
        let id = id_of(entry, VolumeType::ReadWrite);
        let mut expected = entry.clone();
        expected.flags.0 = expected.flags.0 & !ALL_OPERATIONS | VldbFlags::MOVE.0;
        let mut now = match self.entry(read_only, None).await {
            Ok(now) => now,
            Err(code) => {
                complain!(
                    self,
                    "Could not fetch the entry for volume {read_only} from VLDB\n"
                );
                self.explain("convertROtoRW ", code);
                return Err(Failure(code));
            }
        };
        if now != expected {
            complain!(
                self,
                "VLDB entry for volume {read_only} has changed; please reissue the command.\n"
            );
            return Err(Failure(-1));
        }
        let ro_index = self.ro_on_server(&now, at).await?;
        let server = self.volume_server(at.server);
        let converted = server.convert_ro_to_rw_volume(at.partition, read_only);
        if let Err(code) = self.rpc(converted).await {
            complain!(
                self,
                "Converting RO volume {read_only} to RW volume failed with code {code}\n"
            );
            self.explain("convertROtoRW ", code);
            return Err(Failure(code));
        }
        let old_rw = rw_index(&now);
        match ro_index {
            Some(index) => now.sites[index].flags = SiteFlags::READ_WRITE,
            None => now.sites.push(site(at, SiteFlags::READ_WRITE)),
        }
        if let Some(old) = old_rw {
            now.sites.swap_remove(old);
        }
        set(&mut now.flags, VldbFlags::READ_WRITE_EXISTS);
        clear(&mut now.flags, VldbFlags::BACKUP_EXISTS);
        clear(&mut now.flags, VldbFlags::READ_ONLY_EXISTS);
        let unsettled = SiteFlags::DONT_USE.with(SiteFlags::NEW_REPLICA);
        let mut sites = now.sites.iter();
        if sites.any(|site| {
            site.flags.contains(SiteFlags::READ_ONLY) && site.flags.0 & unsettled.0 == 0
        }) {
            set(&mut now.flags, VldbFlags::READ_ONLY_EXISTS);
        }
        let kind = Some(VolumeType::ReadWrite);
        if let Err(code) = self.replace_entry(id, kind, &now, Hold::Release).await {
            complain!(
                self,
                "Warning: volume converted, but vldb update failed with code {code}!\n"
            );
            return Err(Failure(code));
        }
        Ok(())
    }

    /// The read-only site at a place's server.
    ///
    /// # Errors
    /// ENOENT if the location server does not say which addresses it has.
    pub async fn ro_on_server(
        &self,
        entry: &VldbEntry,
        at: ServerPartition,
    ) -> Result<Option<usize>, Failure> {
        for (index, site) in entry.sites.iter().enumerate() {
            if !site.flags.contains(SiteFlags::READ_ONLY) {
                continue;
            }
            match self.is_same_server(at.server, address(site)).await {
                Ok(true) => return Ok(Some(index)),
                Ok(false) => {}
                Err(code) => {
                    complain!(
                        self,
                        "Failed to get info about server's {} address(es) from vlserver \
                         (err={code}); aborting call!\n",
                        at.server
                    );
                    return Err(Failure(ENOENT));
                }
            }
        }
        Ok(None)
    }
}
