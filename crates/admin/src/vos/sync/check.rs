//! Checking one entry against the servers, and one volume against the database.

use afar_types::{SiteFlags, VldbEntry, VldbFlags, VolintInfo, VolumeId, VolumeType};
use afar_xdr::CharArray;

use super::super::codes::{ENODEV, VL_NOENT, VOLSERILLEGAL_PARTITION};
use super::super::entry::{clear, id_of, place, rw_index, set, set_id, site};
use super::super::event::OrFail;
use super::super::vldb::Hold;
use super::super::{
    Failure, NAME_MAX, ServerPartition, Vos, base_name, complain, enumerate, say, step,
};

const READ_WRITE: Option<VolumeType> = Some(VolumeType::ReadWrite);

/// What became of an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Checked {
    pub(super) changed: bool,
    pub(super) deleted: bool,
}

impl Vos {
    /// Whether a volume is at a place.
    async fn volume_exists(&self, at: ServerPartition, id: VolumeId) -> Result<bool, i32> {
        let server = self.volume_server(at.server);
        match self.rpc(server.list_one_volume(at.partition, id)).await {
            Ok(_) => Ok(true),
            Err(ENODEV | VOLSERILLEGAL_PARTITION) => Ok(false),
            Err(code) => Err(code),
        }
    }

    /// Has an entry say of read-write and backup volume what is true. Returns whether it changed.
    async fn check_rw(&self, entry: &mut VldbEntry) -> Result<bool, Failure> {
        let mut changed = false;
        let index = rw_index(entry);
        for (kind, what) in [(VolumeType::ReadWrite, "RW"), (VolumeType::Backup, "BK")] {
            let said = entry.flags.contains(VldbFlags::exists(kind));
            let id = id_of(entry, kind);
            let found = match index {
                None => Ok(false),
                Some(index) => self.volume_exists(place(&entry.sites[index]), id).await,
            };
            match (found, index) {
                (Ok(found), _) => {
                    changed |= found != said;
                    match found {
                        true => set(&mut entry.flags, VldbFlags::exists(kind)),
                        false => clear(&mut entry.flags, VldbFlags::exists(kind)),
                    }
                }
                (Err(code), Some(index)) if said => {
                    let at = place(&entry.sites[index]);
                    let host = self.name_of(at.server);
                    complain!(
                        self,
                        "Transaction call failed for {what} volume {id} on server {host} {}\n",
                        at.partition
                    );
                    return Err(Failure(code));
                }
                _ => {}
            }
        }
        let none_exists = !entry.flags.contains(VldbFlags::READ_WRITE_EXISTS)
            && !entry.flags.contains(VldbFlags::BACKUP_EXISTS);
        if let Some(index) = index.filter(|_| none_exists) {
            entry.sites.remove(index);
            changed = true;
        }
        Ok(changed)
    }

    /// Takes read-only sites without the volume out of an entry. Returns whether it changed.
    async fn check_ro(&self, entry: &mut VldbEntry) -> Result<bool, Failure> {
        let id = id_of(entry, VolumeType::ReadOnly);
        let mut changed = false;
        let mut found = false;
        let mut index = 0;
        while index < entry.sites.len() {
            if !entry.sites[index].flags.contains(SiteFlags::READ_ONLY) {
                index += 1;
                continue;
            }
            let at = place(&entry.sites[index]);
            match self.volume_exists(at, id).await {
                Ok(true) => {
                    found = true;
                    index += 1;
                }
                Ok(false) => {
                    entry.sites.remove(index);
                    changed = true;
                }
                Err(code) => {
                    let host = self.name_of(at.server);
                    complain!(
                        self,
                        "Transaction call failed for RO {id} on server {host} {}\n",
                        at.partition
                    );
                    return Err(Failure(code));
                }
            }
        }
        let flag = VldbFlags::READ_ONLY_EXISTS;
        changed |= entry.flags.contains(flag) != found;
        match found {
            true => set(&mut entry.flags, flag),
            false => clear(&mut entry.flags, flag),
        }
        Ok(changed)
    }

    /// Makes an entry agree with the servers it names.
    pub(super) async fn check_entry(
        &self,
        entry: &mut VldbEntry,
        dry_run: bool,
    ) -> Result<Checked, Failure> {
        if entry.name.as_bytes().len() > NAME_MAX {
            complain!(
                self,
                "Volume name {} exceeds limit of {NAME_MAX} characters\n",
                entry.name
            );
        }
        let mut now = entry.clone();
        let changed = self.check_rw(&mut now).await? | self.check_ro(&mut now).await?;
        if !changed || dry_run {
            *entry = now;
            return Ok(Checked {
                changed,
                deleted: false,
            });
        }
        // Once more, with the entry held.
        let id = id_of(entry, VolumeType::ReadWrite);
        let locked = self.lock(id, READ_WRITE, VldbFlags::DELETE).await;
        locked.or_fail(self, || format!("Could not lock VLDB entry for {id} \n"))?;
        let checked = self.check_locked(id, entry).await;
        let settled = matches!(&checked, Ok(checked) if checked.changed);
        if !settled && let Err(code) = self.unlock_entry(id, READ_WRITE).await {
            complain!(
                self,
                "Could not release lock on VLDB entry for volume {id}\n"
            );
            return checked.and(Err(Failure(code)));
        }
        checked
    }

    async fn check_locked(&self, id: VolumeId, entry: &mut VldbEntry) -> Result<Checked, Failure> {
        let name = entry.name;
        *entry = self.entry(id, READ_WRITE).await.or_fail(self, || {
            format!("Could not read VLDB entry for volume {name}\n")
        })?;
        let changed = self.check_rw(entry).await? | self.check_ro(entry).await?;
        if !changed {
            return Ok(Checked::default());
        }
        let exists = VolumeType::ALL.map(VldbFlags::exists);
        let deleted = !exists.iter().any(|&flag| entry.flags.contains(flag));
        if deleted {
            let gone = self.delete_entry(id, VolumeType::ReadWrite).await;
            gone.or_fail(self, || {
                format!("Could not delete VLDB entry for volume {id} \n")
            })?;
        } else {
            let replaced = self
                .replace_entry(id, READ_WRITE, entry, Hold::Release)
                .await;
            replaced.or_fail(self, || {
                format!("Could not update VLDB entry for volume {id}\n")
            })?;
        }
        Ok(Checked { changed, deleted })
    }

    /// Has the database say that a volume is where it was found. Of an entry that is given, the
    /// new state is left there, and nothing is said of steps. Returns whether it changed.
    pub(super) async fn check_volume(
        &self,
        info: &VolintInfo,
        at: ServerPartition,
        dry_run: bool,
        max_id: &mut VolumeId,
        known: Option<&mut Option<VldbEntry>>,
    ) -> Result<bool, Failure> {
        let id = match VolumeType::from_number(info.kind) {
            Some(VolumeType::ReadWrite) => info.volume,
            _ => info.parent_id,
        };
        let verbose = known.is_none();
        let before = match &known {
            Some(known) => (**known).clone(),
            None => self.volume_entry(id).await?,
        };
        if verbose {
            step!(self, "_______________________________\n");
            self.tell_status_before(before.as_ref());
        }
        let mut entry = before.clone().unwrap_or_else(|| empty(info));
        let mut changed = self
            .fit(&mut entry, id, info, at, before.is_none(), true)
            .await?;
        *max_id = entry.volume_ids.into_iter().fold(*max_id, Ord::max);
        if changed && !dry_run {
            if before.is_none() {
                if let Err(code) = self.create_entry(&entry).await {
                    say!(self, "Could not create a VLDB entry for the volume {id}\n");
                    return Err(Failure(code));
                }
            } else {
                changed = self.fit_locked(&mut entry, id, info, at).await?;
            }
        }
        if verbose {
            step!(self, "-- status after --\n");
            match changed {
                true => step!(
                    self,
                    "{}",
                    enumerate(&entry, &|server| self.name_of(server))
                ),
                false => step!(self, "\n**no change**\n"),
            }
            step!(self, "\n_______________________________\n");
        }
        if let Some(known) = known
            && (changed || before.is_some())
        {
            *known = Some(entry);
        }
        Ok(changed)
    }

    async fn volume_entry(&self, id: VolumeId) -> Result<Option<VldbEntry>, Failure> {
        match self.entry(id, READ_WRITE).await {
            Ok(entry) => Ok(Some(entry)),
            Err(VL_NOENT) => Ok(None),
            Err(code) => {
                say!(self, "Could not retrieve the VLDB entry for volume {id} \n");
                Err(Failure(code))
            }
        }
    }

    /// Does it once more with the entry held, and replaces it.
    async fn fit_locked(
        &self,
        entry: &mut VldbEntry,
        id: VolumeId,
        info: &VolintInfo,
        at: ServerPartition,
    ) -> Result<bool, Failure> {
        let locked = self.lock(id, READ_WRITE, VldbFlags::DELETE).await;
        locked.or_fail(self, || format!("Could not lock VLDB entry for {id}\n"))?;
        let fitted = async {
            let Some(mut now) = self.volume_entry(id).await? else {
                return Ok(false);
            };
            if !self.fit(&mut now, id, info, at, false, false).await? {
                return Ok(false);
            }
            let replaced = self
                .replace_entry(id, READ_WRITE, &now, Hold::Release)
                .await;
            replaced.or_fail(self, || format!("Could not update entry for {id}\n"))?;
            *entry = now;
            Ok(true)
        };
        let fitted: Result<bool, Failure> = fitted.await;
        if fitted != Ok(true)
            && let Err(code) = self.unlock_entry(id, READ_WRITE).await
        {
            self.explain("Could not unlock VLDB entry ", code);
        }
        fitted
    }

    /// Has an entry say where a volume is. Returns whether it changed.
    async fn fit(
        &self,
        entry: &mut VldbEntry,
        id: VolumeId,
        info: &VolintInfo,
        at: ServerPartition,
        new: bool,
        tell: bool,
    ) -> Result<bool, Failure> {
        match VolumeType::from_number(info.kind) {
            Some(VolumeType::ReadWrite) => self.fit_rw(entry, id, info, at, new, tell).await,
            Some(VolumeType::Backup) => self.fit_backup(entry, id, info, at, new, tell).await,
            Some(VolumeType::ReadOnly) => self.fit_ro(entry, id, info, at, tell).await,
            None => Ok(false),
        }
    }

    async fn fit_rw(
        &self,
        entry: &mut VldbEntry,
        id: VolumeId,
        info: &VolintInfo,
        at: ServerPartition,
        new: bool,
        tell: bool,
    ) -> Result<bool, Failure> {
        let mut changed = !new && self.check_rw(entry).await?;
        let add = match rw_index(entry) {
            None => true,
            Some(_) if self.rw_match(entry, at).await.is_some() => {
                let lacks = |known: VolumeId, found: VolumeId| known.0 == 0 && found.0 != 0;
                lacks(id_of(entry, VolumeType::Backup), info.backup_id)
                    || lacks(id_of(entry, VolumeType::ReadOnly), info.clone_id)
                    || entry.name.as_bytes() != info.name.as_bytes()
            }
            Some(index) => {
                let there = place(&entry.sites[index]);
                let claimed = entry.flags.contains(VldbFlags::READ_WRITE_EXISTS);
                if claimed && tell {
                    self.tell_orphan("RW", id, at);
                    self.tell_reported(&format!("RW volume {id}"), there);
                } else if tell && entry.flags.contains(VldbFlags::BACKUP_EXISTS) {
                    self.tell_orphan("BK", id_of(entry, VolumeType::Backup), there);
                    self.tell_reported(&format!("its RW volume {id}"), at);
                }
                !claimed
            }
        };
        if !add {
            return Ok(changed);
        }
        set(&mut entry.flags, VldbFlags::READ_WRITE_EXISTS);
        set_id(entry, VolumeType::ReadWrite, id);
        for (kind, found) in [
            (VolumeType::Backup, info.backup_id),
            (VolumeType::ReadOnly, info.clone_id),
        ] {
            if id_of(entry, kind).0 == 0 {
                set_id(entry, kind, found);
            }
        }
        put_rw(entry, at);
        entry.name = CharArray::new(info.name.as_bytes()).unwrap_or_default();
        changed = true;
        self.check_rw(entry).await?;
        Ok(changed)
    }

    async fn fit_backup(
        &self,
        entry: &mut VldbEntry,
        id: VolumeId,
        info: &VolintInfo,
        at: ServerPartition,
        new: bool,
        tell: bool,
    ) -> Result<bool, Failure> {
        let mut changed = !new && self.check_rw(entry).await?;
        let known = id_of(entry, VolumeType::Backup);
        let found = info.volume;
        let reported = |id| complain!(self, "    VLDB reports its BK volume ID is {id}\n");
        let add = match rw_index(entry) {
            None => true,
            Some(index) if self.rw_match(entry, at).await.is_none() => {
                if tell {
                    self.tell_orphan("BK", found, at);
                    let there = place(&entry.sites[index]);
                    self.tell_reported(&format!("its RW/BK volume {id}"), there);
                }
                false
            }
            Some(_) if known == found => known.0 == 0,
            Some(_) if !entry.flags.contains(VldbFlags::BACKUP_EXISTS) => true,
            Some(_) if found > known => {
                if tell {
                    self.tell_orphan("BK", known, at);
                    reported(found);
                }
                true
            }
            Some(_) => {
                if tell {
                    self.tell_orphan("BK", found, at);
                    reported(known);
                }
                false
            }
        };
        if add {
            set(&mut entry.flags, VldbFlags::BACKUP_EXISTS);
            set_id(entry, VolumeType::ReadWrite, id);
            set_id(entry, VolumeType::Backup, found);
            put_rw(entry, at);
            changed = true;
        }
        Ok(changed)
    }

    async fn fit_ro(
        &self,
        entry: &mut VldbEntry,
        id: VolumeId,
        info: &VolintInfo,
        at: ServerPartition,
        tell: bool,
    ) -> Result<bool, Failure> {
        let (known, found) = (id_of(entry, VolumeType::ReadOnly), info.volume);
        let exists = |entry: &VldbEntry| entry.flags.contains(VldbFlags::READ_ONLY_EXISTS);
        let mut changed = false;
        let mut index = None;
        let add;
        if known == found {
            index = self.ro_match(entry, at).await;
            add = index.is_none() || !exists(entry);
        } else {
            changed |= self.check_ro(entry).await?;
            if !exists(entry) {
                add = true;
            } else if found > known {
                for site in &entry.sites {
                    if tell && site.flags.contains(SiteFlags::READ_ONLY) {
                        self.tell_orphan("RO", known, place(site));
                        complain!(self, "    VLDB reports its RO volume ID is {found}\n");
                    }
                }
                entry
                    .sites
                    .retain(|site| !site.flags.contains(SiteFlags::READ_ONLY));
                add = true;
            } else {
                if tell {
                    self.tell_orphan("RO", found, at);
                    complain!(self, "    VLDB reports its RO volume ID is {known}\n");
                }
                add = false;
            }
        }
        if add {
            set(&mut entry.flags, VldbFlags::READ_ONLY_EXISTS);
            set_id(entry, VolumeType::ReadWrite, id);
            set_id(entry, VolumeType::ReadOnly, found);
            let here = site(at, SiteFlags::READ_ONLY);
            match index {
                Some(index) => entry.sites[index] = here,
                None => entry.sites.push(here),
            }
            changed = true;
        }
        Ok(changed)
    }

    fn tell_orphan(&self, kind: &str, id: VolumeId, at: ServerPartition) {
        let host = self.name_of(at.server);
        complain!(
            self,
            "*** Warning: Orphaned {kind} volume {id} exists on {host} {}\n",
            at.partition
        );
    }

    fn tell_reported(&self, what: &str, at: ServerPartition) {
        let host = self.name_of(at.server);
        complain!(
            self,
            "    VLDB reports {what} exists on {host} {}\n",
            at.partition
        );
    }
}

/// An entry for a volume that has none.
fn empty(info: &VolintInfo) -> VldbEntry {
    let name = info.name.to_string();
    VldbEntry {
        name: CharArray::new(base_name(&name)).unwrap_or_default(),
        sites: Vec::new(),
        volume_ids: [VolumeId(0); 3],
        clone_id: VolumeId(0),
        flags: VldbFlags(0),
    }
}

fn put_rw(entry: &mut VldbEntry, at: ServerPartition) {
    let here = site(at, SiteFlags::READ_WRITE);
    match rw_index(entry) {
        Some(index) => entry.sites[index] = here,
        None => entry.sites.push(here),
    }
}
