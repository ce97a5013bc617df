//! `vos restore`.

use std::io;
use std::time::SystemTime;

use afar_cell::VolumeRestore;
use afar_rpc::afsvol;
use afar_types::{
    AttachFlags, RestoreCookie, SiteFlags, TransactionFlags, TransactionId, UnixTime, VldbEntry,
    VldbFlags, VolserStatus, VolumeChanges, VolumeId, VolumeType,
};
use afar_xdr::CharArray;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::codes::{VL_ENTDELETED, VL_NOENT, VNOVOL, VOLSERBADOP, VOLSERREAD_DUMPERROR};
use super::entry::{id_of, new_entry, place, rw_index, set, site};
use super::event::OrFail;
use super::transaction::{IN_SERVICE, Removing, name_text};
use super::vldb::Hold;
use super::{Failure, ServerPartition, Vos, complain, enumerate, is_name_valid, say, step};

/// Bytes read at a time.
const PIECE: usize = 256 << 10;

/// Which date a restored volume gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreDate {
    /// The dump's.
    Dump,
    /// The one it had before.
    Keep,
    /// The present.
    New,
}

/// What a dump is restored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoreOptions {
    /// Its id; without it, the one its name has, or a new one.
    pub id: Option<VolumeId>,
    /// Its read-write volume's id, if that is another one.
    pub parent: Option<VolumeId>,
    /// What a volume that is there has goes; else an incremental dump is brought into it. With a server of
    /// afar the dump is to be a full one then, and what goes stays until all of it has come; with others the
    /// volume is removed first.
    pub full: bool,
    /// It does not come on line.
    pub offline: bool,
    /// It is read-only.
    pub read_only: bool,
    /// A volume of that id at another place is left there.
    pub keep_old_site: bool,
    /// When it was made.
    pub creation: RestoreDate,
    /// When it was last changed.
    pub last_update: RestoreDate,
}

/// A volume that is being restored.
struct Restoring<'a> {
    id: VolumeId,
    parent: VolumeId,
    /// The name of its group.
    name: &'a str,
    /// Its own.
    real_name: String,
    to: ServerPartition,
    /// No volume had this id before.
    new_id: bool,
}

impl RestoreOptions {
    fn kind(&self) -> VolumeType {
        if self.read_only {
            VolumeType::ReadOnly
        } else {
            VolumeType::ReadWrite
        }
    }
}

impl Vos {
    /// Makes a volume of a dump. Returns its id.
    ///
    /// # Errors
    /// What a server says, or why the dump cannot be read. A new volume whose dump did not come
    /// whole is gone then.
    pub async fn restore(
        &self,
        name: &str,
        to: ServerPartition,
        options: &RestoreOptions,
        dump: &mut (impl AsyncRead + Unpin),
    ) -> Result<VolumeId, Failure> {
        let restored = self.restore_steps(name, to, options, dump).await;
        self.end(restored)
    }

    async fn restore_steps(
        &self,
        name: &str,
        to: ServerPartition,
        options: &RestoreOptions,
        dump: &mut (impl AsyncRead + Unpin),
    ) -> Result<VolumeId, Failure> {
        let restoring = self.restore_ids(name, to, options).await?;
        let id = restoring.id;
        let server = self.volume_server(to.server);
        let host = self.name_of(to.server);
        say!(
            self,
            "Restoring volume {} Id {id} on server {host} partition {} ..",
            restoring.real_name,
            to.partition
        );
        let (transaction, before) = self.restore_target(&server, &restoring, options).await?;
        let filled = self
            .fill(&server, transaction, &restoring, before, options, dump)
            .await;
        let finished = self.finish(&server, transaction).await;
        let status = match filled {
            Ok(status) => status,
            Err(failure) => {
                if finished.is_err() {
                    complain!(self, "Could not end transaction on the volume {id} \n");
                }
                return Err(failure);
            }
        };
        finished.or_fail(self, || format!("Could not end transaction on {id}\n"))?;
        say!(self, " done\n");
        if restoring.new_id || options.full {
            self.restore_entry(&restoring, status, options).await?;
        }
        Ok(id)
    }

    async fn restore_ids<'a>(
        &self,
        name: &'a str,
        to: ServerPartition,
        options: &RestoreOptions,
    ) -> Result<Restoring<'a>, Failure> {
        let none = VolumeId(0);
        let mut id = options.id.unwrap_or(none);
        let mut parent = options.parent.unwrap_or(none);
        let mut new_id = false;
        if id == none {
            match self.entry_by_name(name).await {
                Err(_) => {
                    id = self.new_ids(1).await.or_fail(self, || {
                        format!("Could not get an Id for the volume {name}\n")
                    })?;
                    new_id = true;
                }
                Ok(entry) if options.read_only => {
                    if entry.flags.contains(VldbFlags::READ_WRITE_EXISTS) {
                        complain!(
                            self,
                            "Entry for ReadWrite volume {} already exists!\n",
                            entry.name
                        );
                        return Err(Failure(VOLSERBADOP));
                    }
                    id = id_of(&entry, VolumeType::ReadOnly);
                    parent = id_of(&entry, VolumeType::ReadWrite);
                    if id == none {
                        complain!(
                            self,
                            "Existing entry for volume {name} has no ReadOnly ID\n"
                        );
                        return Err(Failure(VOLSERBADOP));
                    }
                }
                Ok(entry) => {
                    id = id_of(&entry, VolumeType::ReadWrite);
                    parent = id;
                }
            }
        }
        if parent == none {
            parent = id;
        }
        let mut real_name = name.to_owned();
        let suffixed = options.read_only && parent != id;
        if name.len() > 31 || (suffixed && !is_name_valid(name)) {
            let text = format!(
                "The volume name {name} exceeds the maximum limit of (VOLSER_OLDMAXVOLNAME -1 ) \
                 bytes\n"
            );
            self.complain_loudly(VOLSERBADOP, &text);
            return Err(Failure(VOLSERBADOP));
        }
        if suffixed {
            real_name.push_str(".readonly");
        }
        Ok(Restoring {
            id,
            parent,
            name,
            real_name,
            to,
            new_id,
        })
    }

    /// Begins a transaction on the volume that is to be filled. Returns its state before.
    async fn restore_target(
        &self,
        server: &afsvol::Client,
        restoring: &Restoring<'_>,
        options: &RestoreOptions,
    ) -> Result<(TransactionId, VolserStatus), Failure> {
        let Restoring { id, to, .. } = *restoring;
        let mut status = VolserStatus::default();
        // A server of afar takes the place of what it has when the dump is there as a whole and sound.
        if options.full && !self.servers.is_afar(to.server).await {
            let how = Removing {
                what: Some("the previous"),
                status: true,
                ..Removing::default()
            };
            match self.delete(server, id, to.partition, how).await {
                Ok(before) => status = before,
                Err(VNOVOL) => {}
                Err(code) => return Err(Failure(code)),
            }
        } else {
            let begun = self
                .begin(server, id, to.partition, AttachFlags::OFFLINE)
                .await;
            match begun {
                Ok(transaction) => {
                    let before = self.status(server, transaction).await;
                    let before = before.or_fail_loudly(self, || {
                        format!("Could not get timestamp from volume {id}\n")
                    });
                    return match before {
                        Ok(before) => Ok((transaction, before)),
                        Err(failure) => {
                            let _ended = self.finish(server, transaction).await;
                            Err(failure)
                        }
                    };
                }
                Err(VNOVOL) => {}
                Err(code) => {
                    let text = format!("Failed to start transaction on {id}\n");
                    self.complain_loudly(code, &text);
                    return Err(Failure(code));
                }
            }
        }
        let (name, kind) = (&restoring.real_name, options.kind());
        let made = self
            .make(server, to.partition, name, kind, (restoring.parent, id), 1)
            .await;
        let (_, transaction) =
            made.or_fail_loudly(self, || format!("Could not create new volume {id}\n"))?;
        Ok((transaction, status))
    }

    async fn fill(
        &self,
        server: &afsvol::Client,
        transaction: TransactionId,
        restoring: &Restoring<'_>,
        before: VolserStatus,
        options: &RestoreOptions,
        dump: &mut (impl AsyncRead + Unpin),
    ) -> Result<VolserStatus, Failure> {
        let Restoring { id, parent, .. } = *restoring;
        let kind = options.kind().number();
        let name = &restoring.real_name;
        let cookie = RestoreCookie {
            name: CharArray::new(name).map_err(|_| Failure(VOLSERBADOP))?,
            kind,
            clone_id: VolumeId(0),
            parent_id: parent,
        };
        self.send_dump(server, transaction, cookie, dump).await?;
        let status = self.status(server, transaction).await.or_fail(self, || {
            format!("Could not get status information about the volume {id}\n")
        })?;
        let name = name_text(name).map_err(Failure)?;
        let (clone, backup) = (before.clone_id, before.backup_id);
        let set = self
            .rpc(server.set_ids_types(transaction, name, kind, parent, clone, backup))
            .await;
        set.or_fail(self, || {
            format!("Could not set the right type and IDs on {id}\n")
        })?;
        let now = UnixTime::from(SystemTime::now());
        let creation = match options.creation {
            RestoreDate::Dump => status.creation_date,
            RestoreDate::Keep if before.creation_date.0 != 0 => before.creation_date,
            RestoreDate::Keep | RestoreDate::New => now,
        };
        let last_update = match options.last_update {
            RestoreDate::Dump => status.update_date,
            RestoreDate::Keep => before.update_date,
            RestoreDate::New => now,
        };
        let set = self.rpc(server.set_date(transaction, creation)).await;
        set.or_fail(self, || {
            format!("Could not set the 'creation' date on {id}\n")
        })?;
        let changes = VolumeChanges {
            creation_date: Some(creation),
            update_date: Some(last_update),
            ..VolumeChanges::default()
        };
        let set = self.rpc(server.set_info(transaction, changes)).await;
        set.or_fail(self, || {
            format!("Could not set the 'last updated' date on {id}\n")
        })?;
        let flags = match options.offline {
            true => TransactionFlags::OUT_OF_SERVICE,
            false => IN_SERVICE,
        };
        let set = self.set_flags(server, transaction, flags).await;
        set.or_fail(self, || format!("Could not mark {id} online\n"))?;
        Ok(status)
    }

    async fn send_dump(
        &self,
        server: &afsvol::Client,
        transaction: TransactionId,
        cookie: RestoreCookie,
        dump: &mut (impl AsyncRead + Unpin),
    ) -> Result<(), Failure> {
        let out_of_band = self.servers.out_of_band(server).await;
        let started = VolumeRestore::begin(out_of_band, server, transaction, 1, cookie);
        let started = self.rpc(started).await;
        let mut data = started.or_fail(self, || "Volume restore Failed \n".to_owned())?;
        loop {
            let piece = match read_piece(dump).await {
                Ok(piece) if piece.is_empty() => break,
                Ok(piece) => piece,
                Err(error) => {
                    complain!(self, "File system read failed: {error}\n");
                    complain!(self, "Could not transmit data\n");
                    return Err(Failure(VOLSERREAD_DUMPERROR));
                }
            };
            let length = piece.len();
            let sent = self.rpc(data.send(piece)).await;
            sent.or_fail(self, || "Could not transmit data\n".to_owned())?;
            self.moved(length);
        }
        let finished = self.rpc(data.finish()).await;
        finished.or_fail(self, || "rx_EndCall Failed \n".to_owned())?;
        Ok(())
    }

    /// Has the database say where the volume is.
    async fn restore_entry(
        &self,
        restoring: &Restoring<'_>,
        status: VolserStatus,
        options: &RestoreOptions,
    ) -> Result<(), Failure> {
        let Restoring {
            id,
            parent,
            name,
            to,
            ..
        } = *restoring;
        match self.entry(id, Some(options.kind())).await {
            Ok(entry) => self.restore_known(restoring, entry, options).await,
            Err(VL_NOENT | VL_ENTDELETED) => {
                step!(self, "------- Creating a new VLDB entry ------- \n");
                let read_only = match options.read_only {
                    true => id,
                    false => status.clone_id,
                };
                let ids = [parent, read_only, status.backup_id];
                let entry = new_entry(name, to, options.kind(), ids);
                self.create_entry(&entry).await.or_fail(self, || {
                    format!("Could not create the VLDB entry for volume number {id}  \n")
                })?;
                self.show(&entry);
                Ok(())
            }
            Err(code) => Err(code).or_fail(self, || {
                format!("Could not fetch the entry for volume number {id} from VLDB \n")
            }),
        }
    }

    async fn restore_known(
        &self,
        restoring: &Restoring<'_>,
        entry: VldbEntry,
        options: &RestoreOptions,
    ) -> Result<(), Failure> {
        let (id, kind) = (restoring.id, Some(options.kind()));
        step!(self, "Updating the existing VLDB entry\n");
        step!(self, "------- Old entry -------\n");
        self.show(&entry);
        step!(self, "------- New entry -------\n");
        let locked = self.lock(id, kind, VldbFlags::DUMP).await;
        locked.or_fail(self, || {
            format!("Could not lock the entry for volume number {id} \n")
        })?;
        let replaced = self.restore_replace(restoring, entry, options).await;
        if replaced.is_err() {
            let unlocked = self.unlock_entry(id, kind).await;
            if unlocked.is_err() {
                complain!(
                    self,
                    "Could not release lock on the VLDB entry for the volume {id}\n"
                );
            }
        }
        replaced
    }

    async fn restore_replace(
        &self,
        restoring: &Restoring<'_>,
        mut entry: VldbEntry,
        options: &RestoreOptions,
    ) -> Result<(), Failure> {
        let Restoring { id, name, to, .. } = *restoring;
        entry.name = CharArray::new(name).map_err(|_| Failure(VOLSERBADOP))?;
        let (index, flag) = match options.read_only {
            true => (self.ro_match(&entry, to).await, SiteFlags::READ_ONLY),
            false => (rw_index(&entry), SiteFlags::READ_WRITE),
        };
        match index {
            None => entry.sites.push(site(to, flag)),
            Some(index) => {
                let old = place(&entry.sites[index]);
                self.remove_old_site(id, old, to, options).await?;
                let flags = entry.sites[index].flags;
                entry.sites[index] = site(to, flags);
            }
        }
        set(&mut entry.flags, VldbFlags::exists(options.kind()));
        let replaced = self
            .replace_entry(id, Some(options.kind()), &entry, Hold::Release)
            .await;
        replaced.or_fail(self, || {
            format!("Could not update the entry for volume number {id}  \n")
        })?;
        self.show(&entry);
        Ok(())
    }

    /// Removes the volume at the place where it was until now.
    async fn remove_old_site(
        &self,
        id: VolumeId,
        old: ServerPartition,
        to: ServerPartition,
        options: &RestoreOptions,
    ) -> Result<(), Failure> {
        let same = self.is_same_server(to.server, old.server).await;
        if let Err(code) = same {
            let text = format!(
                "Failed to get info about server's {} address(es) from vlserver (err={code})\n",
                to.server
            );
            self.complain_loudly(code, &text);
        }
        if same != Ok(false) && old.partition == to.partition {
            return Ok(());
        }
        let host = self.name_of(old.server);
        if options.keep_old_site {
            step!(
                self,
                "Not deleting the previous volume {id} on server {host}, ..."
            );
            return Ok(());
        }
        step!(
            self,
            "Deleting the previous volume {id} on server {host}, partition {} ...",
            old.partition
        );
        let server = self.volume_server(old.server);
        let how = Removing {
            what: Some("the"),
            ..Removing::default()
        };
        match self.delete(&server, id, old.partition, how).await {
            Ok(_) | Err(VNOVOL) => Ok(()),
            Err(code) => Err(Failure(code)),
        }
    }

    fn show(&self, entry: &VldbEntry) {
        step!(self, "{}", enumerate(entry, &|server| self.name_of(server)));
    }
}

async fn read_piece(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    let mut piece = BytesMut::with_capacity(PIECE);
    while piece.len() < PIECE {
        if from.read_buf(&mut piece).await? == 0 {
            break;
        }
    }
    Ok(piece.freeze())
}
