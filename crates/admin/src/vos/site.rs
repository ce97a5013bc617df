//! `vos addsite`, `remsite` and `changeloc`: what the database says of places.

use afar_types::{SiteFlags, SiteServer, VldbEntry, VldbFlags, VolumeId, VolumeType};

use super::codes::{VOLSERBADOP, VVOLEXISTS};
use super::entry::{address, clear, id_of, rw_index, set_id, site};
use super::event::OrFail;
use super::vldb::Hold;
use super::{Failure, ServerPartition, Vos, complain, is_name_valid, say, step};

/// All operations that hold an entry, as a flag to list entries by.
pub const LOCK_ALL: u32 = super::entry::ALL_OPERATIONS;

/// Sites of an entry (AFS-3 NMAXNSERVERS).
const SITES_MAX: usize = 13;

const READ_WRITE: Option<VolumeType> = Some(VolumeType::ReadWrite);

impl Vos {
    /// Adds a read-only site, which is filled by the next release; with `valid`, it is said to be
    /// up to date already. The read-only id is for groups that have none yet.
    ///
    /// # Errors
    /// What the location server says, or VOLSERBADOP if the site cannot be added.
    pub async fn add_site(
        &self,
        at: ServerPartition,
        id: VolumeId,
        read_only_id: Option<VolumeId>,
        valid: bool,
    ) -> Result<(), Failure> {
        let locked = self.lock(id, READ_WRITE, VldbFlags::DELETE).await;
        let locked = locked.or_fail(self, || {
            format!(" Could not lock the VLDB entry for the volume {id} \n")
        });
        self.end(locked)?;
        let added = self.add_site_locked(at, id, read_only_id, valid).await;
        if added.is_err() {
            self.let_go(id).await;
        }
        self.end(added)
    }

    async fn let_go(&self, id: VolumeId) {
        if let Err(code) = self.unlock_entry(id, READ_WRITE).await {
            complain!(self, "Could not release lock on volume entry for {id} \n");
            self.explain("", code);
        }
    }

    async fn add_site_locked(
        &self,
        at: ServerPartition,
        id: VolumeId,
        read_only_id: Option<VolumeId>,
        valid: bool,
    ) -> Result<(), Failure> {
        let entry = self.entry(id, READ_WRITE).await;
        let mut entry = entry.or_fail(self, || {
            format!("Could not fetch the VLDB entry for volume number {id}  \n")
        })?;
        self.check_new_site(at, &entry).await?;
        if let Some(read_only_id) = read_only_id {
            let known = id_of(&entry, VolumeType::ReadOnly);
            if known.0 != 0 {
                complain!(
                    self,
                    "Ignoring given RO id {read_only_id}, since volume already has RO id {known}\n"
                );
            } else if self.entry(read_only_id, None).await.is_ok() {
                complain!(self, "Volume ID {read_only_id} already exists\n");
                return Err(Failure(VVOLEXISTS));
            } else {
                step!(self, "Using RO volume id {read_only_id}.\n");
                set_id(&mut entry, VolumeType::ReadOnly, read_only_id);
            }
        }
        step!(self, "Adding a new site ...");
        let flags = match valid {
            true => SiteFlags::READ_ONLY,
            false => SiteFlags::READ_ONLY.with(SiteFlags::DONT_USE),
        };
        entry.sites.push(site(at, flags));
        let replaced = self
            .replace_entry(id, READ_WRITE, &entry, Hold::Release)
            .await;
        replaced.or_fail(self, || {
            format!("Could not update entry for volume {id} \n")
        })?;
        self.done();
        Ok(())
    }

    async fn check_new_site(&self, at: ServerPartition, entry: &VldbEntry) -> Result<(), Failure> {
        let refuse = |text: String| {
            complain!(self, "{text}");
            Err(Failure(VOLSERBADOP))
        };
        let name = entry.name.to_string();
        if !is_name_valid(&name) {
            return refuse(format!(
                "Volume name {name} is too long, rename before adding site\n"
            ));
        }
        if entry.sites.len() >= SITES_MAX {
            return refuse(format!("Total number of entries will exceed {SITES_MAX}\n"));
        }
        let mut read_only = 0;
        for site in &entry.sites {
            if !site.flags.contains(SiteFlags::READ_ONLY) {
                continue;
            }
            read_only += 1;
            let same = self.is_same_server(at.server, address(site)).await;
            let same = same.or_fail(self, || {
                format!(
                    "Failed to get info about server's {} address(es) from vlserver; aborting \
                     call!\n",
                    at.server
                )
            });
            if same? {
                return refuse(format!(
                    "RO already exists on partition {}. Multiple ROs on a single server aren't \
                     allowed\n",
                    site.partition
                ));
            }
        }
        if read_only >= SITES_MAX - 1 {
            return refuse(format!(
                "Total number of sites will exceed {}\n",
                SITES_MAX - 1
            ));
        }
        Ok(())
    }

    /// Takes a read-only site out of an entry. The volume there, if any, stays.
    ///
    /// # Errors
    /// What the location server says, or VOLSERBADOP if it is no such site.
    pub async fn remove_site(&self, at: ServerPartition, id: VolumeId) -> Result<(), Failure> {
        let mut entry = self.hold_entry(id).await?;
        let Some(index) = self.ro_match(&entry, at).await else {
            complain!(self, "This site is not a replication site \n");
            self.let_go(id).await;
            return Err(Failure(VOLSERBADOP));
        };
        entry.sites.remove(index);
        let exists = |kind| entry.flags.contains(VldbFlags::exists(kind));
        if entry.sites.is_empty() {
            step!(self, "Deleting the VLDB entry for {id} ...");
            let deleted = self.delete_entry(id, VolumeType::ReadOnly).await;
            let deleted = deleted.or_fail(self, || {
                format!("Could not delete VLDB entry for volume {id} \n")
            });
            if deleted.is_err() {
                self.let_go(id).await;
            }
            self.end(deleted)?;
            self.done();
            say!(
                self,
                "Deleting the replication site for volume {id} ... done\n"
            );
            return Ok(());
        }
        if entry.sites.len() == 1 && exists(VolumeType::ReadWrite) {
            clear(&mut entry.flags, VldbFlags::READ_ONLY_EXISTS);
        }
        say!(self, "Deleting the replication site for volume {id} ...");
        let what = "Could not release lock on volume entry for";
        self.put_back(id, &entry, what).await?;
        say!(self, " done\n");
        Ok(())
    }

    /// Has the database say that the read-write volume is at this place.
    ///
    /// # Errors
    /// What the location server says, or VOLSERBADOP if the entry has no read-write site.
    pub async fn change_location(&self, at: ServerPartition, id: VolumeId) -> Result<(), Failure> {
        let mut entry = self.hold_entry(id).await?;
        let Some(index) = rw_index(&entry) else {
            complain!(self, "No existing RW site for volume {id}");
            self.let_go(id).await;
            return Err(Failure(VOLSERBADOP));
        };
        entry.sites[index].server = SiteServer::Address(at.server);
        entry.sites[index].partition = at.partition;
        let what = "Could not update entry for volume";
        self.put_back(id, &entry, what).await?;
        self.done();
        Ok(())
    }

    /// Holds an entry to change its sites.
    async fn hold_entry(&self, id: VolumeId) -> Result<VldbEntry, Failure> {
        let locked = self.lock(id, READ_WRITE, VldbFlags::DELETE).await;
        let locked = locked.or_fail(self, || {
            format!(" Could not lock the VLDB entry for volume {id} \n")
        });
        self.end(locked)?;
        let entry = self.entry(id, READ_WRITE).await;
        let entry = entry.or_fail(self, || {
            format!("Could not fetch the entry for volume number {id} from VLDB \n")
        });
        if entry.is_err() {
            self.let_go(id).await;
        }
        self.end(entry)
    }

    async fn put_back(&self, id: VolumeId, entry: &VldbEntry, what: &str) -> Result<(), Failure> {
        let replaced = self
            .replace_entry(id, READ_WRITE, entry, Hold::Release)
            .await;
        if let Err(code) = replaced {
            complain!(self, "{what} {id} \n");
            self.explain("", code);
            self.let_go(id).await;
            return Err(Failure(code));
        }
        Ok(())
    }
}
