//! A call while it is served: who calls, from where, and its way into a volume.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use afar_net::{AbortCode, has_own_thread, is_wanted};
use afar_rpc::Wait;
use afar_store::{NewVnode, StoreError, VnodeStatus, Vnodes, Volume, VolumeSummary};
use afar_types::error::VOFFLINE;
use afar_types::{
    AclRecord, CallBack, FetchStatus, Fid, FileType, Rights, StoreStatus, VolSync, VolumeId,
    VolumeType,
};
use parking_lot::{Mutex, RwLockReadGuard, RwLockWriteGuard};

use crate::abort::{errno, store_code, translated};
use crate::access::{Grant, Person, may_fetch_status};
use crate::hosts::{Host, Promise};
use crate::leases::{LeaseCall, Touch};
use crate::locks::Owner;
use crate::metrics::Tally;
use crate::server::FileServer;
use crate::volumes::{Entered, Intent};

/// A call that is being served.
#[derive(Clone)]
pub(super) struct Visit {
    pub(super) server: Arc<FileServer>,
    pub(super) host: Arc<Host>,
    pub(super) person: Person,
    /// Where it is called from.
    pub(super) peer: SocketAddr,
    pub(super) began: Instant,
    /// What it has done so far. Its clones share this.
    pub(super) tally: Arc<Mutex<Tally>>,
    /// The vnodes it comes to. Its clones share this.
    pub(super) leases: Arc<LeaseCall>,
}

impl Visit {
    /// Counts what the call did, and puts a refusal into the client's codes. The answer waits until the host
    /// knows of all changes that did not wait for it: what was read may be newer.
    pub(super) async fn end<T>(self, result: Result<T, AbortCode>) -> Result<T, AbortCode> {
        let settled = Wait::Callbacks
            .on(self.server.hosts.settle(&self.host))
            .await;
        let result = settled.and(result);
        let took = self.began.elapsed();
        self.server
            .metrics
            .ended(&self.tally.lock(), took, result.is_err());
        result.map_err(|code| self.translate(code))
    }

    pub(super) fn translate(&self, code: AbortCode) -> AbortCode {
        translated(code, self.host.translates_errors())
    }

    /// Does one step that blocks, such as all work on the store that looks at vnodes. While somebody else has a lease of
    /// one it has not been done, and is done again.
    pub(super) async fn step<T: Send + 'static>(
        &self,
        work: impl Fn(&Self) -> Result<T, AbortCode> + Send + Sync + 'static,
    ) -> Result<T, AbortCode> {
        let work = Arc::new(work);
        loop {
            let step = Arc::clone(&work);
            let done = self.step_once(move |visit| step(visit)).await;
            if !self.waits().await? {
                return done;
            }
        }
    }

    /// Waits for others' leases at which the last step stopped. Returns whether there were any, so that it is to be done
    /// again. Nothing that holders might wait for is held meanwhile.
    pub(super) async fn waits(&self) -> Result<bool, AbortCode> {
        if !self.leases.is_stopped() {
            return Ok(false);
        }
        Wait::Lock.on(self.leases.wait()).await?;
        // The client may have given up, and changed the same since.
        match is_wanted() {
            true => Ok(true),
            false => Err(AbortCode::RX_CALL_DEAD),
        }
    }

    /// Does one step that blocks.
    pub(super) async fn step_once<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, AbortCode> + Send + 'static,
    ) -> Result<T, AbortCode> {
        if has_own_thread() {
            return Wait::Disk.blocking(|| work(self));
        }
        let visit = self.clone();
        blocking(move || work(&visit)).await
    }

    /// Counts data that is sent.
    pub(super) fn fetched(&self, bytes: u64) {
        self.server.stats.add_fetched(bytes);
        self.tally.lock().read_bytes += bytes;
    }

    /// Counts data that was received.
    pub(super) fn stored(&self, bytes: u64) {
        self.server.stats.add_stored(bytes);
        self.tally.lock().written_bytes += bytes;
    }

    /// Whose the locks are that this call takes.
    pub(super) fn lock_owner(&self) -> Owner {
        Owner {
            host: self.host.uuid(),
            address: self.peer,
            user: self.person.id,
        }
    }

    /// Enters a volume to read.
    pub(super) fn enter(&self, volume: VolumeId) -> Result<EnteredVolume<'_>, AbortCode> {
        EnteredVolume::enter(self, volume, Intent::Read, Gate::Open)
    }

    /// Enters a volume to change something.
    pub(super) fn change(&self, volume: VolumeId) -> Result<EnteredVolume<'_>, AbortCode> {
        let gate = Gate::Shared(self.server.gates.of(volume).read());
        EnteredVolume::enter(self, volume, Intent::Change, gate)
    }

    /// Enters a volume to change something while nothing else is changed.
    pub(super) fn change_alone(&self, volume: VolumeId) -> Result<EnteredVolume<'_>, AbortCode> {
        let gate = Gate::Alone(self.server.gates.of(volume).write());
        EnteredVolume::enter(self, volume, Intent::Change, gate)
    }

    /// Breaks what others were promised. When this returns, all of them know that can be reached.
    pub(super) async fn break_others(&self, fids: &[Fid]) {
        let breaking = self.server.hosts.break_fids(fids, Some(&self.host));
        let broken = Wait::Callbacks.on(breaking).await;
        self.tally.lock().breaks += broken as u64;
    }

    /// Breaks what anyone was promised, the caller as well.
    pub(super) async fn break_all(&self, fids: &[Fid]) {
        if !fids.is_empty() {
            let breaking = self.server.hosts.break_fids(fids, None);
            let broken = Wait::Callbacks.on(breaking).await;
            self.tally.lock().breaks += broken as u64;
        }
    }

    /// What the reply says of a promise.
    pub(super) fn callback(&self, promise: &Promise) -> CallBack {
        self.server.hosts.callback(promise)
    }

    /// The attributes a new vnode gets. Only administrators make what is not theirs.
    pub(super) fn new_vnode(&self, wanted: &StoreStatus) -> NewVnode {
        let set = |bit| wanted.mask & bit != 0;
        let gives = set(StoreStatus::SET_OWNER) && self.person.is_administrator();
        NewVnode {
            owner: if gives { wanted.owner } else { self.person.id },
            group: set(StoreStatus::SET_GROUP).then_some(wanted.group),
            mode: if set(StoreStatus::SET_MODE) {
                mode_bits(wanted, &self.person)
            } else {
                0o777
            },
            modify_time: set(StoreStatus::SET_MOD_TIME).then_some(wanted.client_mod_time),
            fid: None,
        }
    }
}

/// The permission bits of a request: set-user-id and its like are for administrators only, and
/// are dropped from what others ask for (OpenAFS Update_TargetVnodeStatus).
// spec: afs-rpc#owners-and-modes
pub(super) fn mode_bits(wanted: &StoreStatus, person: &Person) -> u16 {
    let allowed = if person.is_administrator() {
        0o7777
    } else {
        0o777
    };
    u16::try_from(wanted.unix_mode_bits & allowed).unwrap_or_default()
}

/// Does something that blocks where that holds nobody up.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AbortCode> + Send + 'static,
) -> Result<T, AbortCode> {
    let done = Wait::Disk.on(afar_rpc::spawn_blocking(work)).await;
    done.unwrap_or_else(|error| {
        tracing::error!(%error, "the step of a call panicked");
        Err(AbortCode(errno::EIO))
    })
}

/// What the client is told of a failure, of which the log hears if it is the server's own.
pub(super) fn failed(error: StoreError) -> AbortCode {
    let code = store_code(&error);
    if code == AbortCode(errno::EIO) {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "the partition failed the call"
        );
    }
    code
}

/// How a visit is ordered against changes of access.
enum Gate<'v> {
    Open,
    Shared(#[expect(dead_code, reason = "held")] RwLockReadGuard<'v, ()>),
    Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'v, ()>),
}

/// A volume that a step of a call has entered. Lives in blocking code only.
pub(super) struct EnteredVolume<'v> {
    visit: &'v Visit,
    entered: Entered<'v>,
    pub(super) state: VolumeSummary,
    touch: Touch,
    /// The ACL that was read last, as most vnodes of a call are in one directory.
    acl: Option<(Fid, AclRecord)>,
    _gate: Gate<'v>,
}

/// A vnode and what the caller may do with it.
pub(super) struct Look {
    pub(super) vnode: VnodeStatus,
    pub(super) grant: Grant,
    /// The directory's own ACL, or that of the directory it is in.
    pub(super) acl: AclRecord,
}

/// A caller at the vnodes of a volume, in a commit of its own or among others.
pub(super) struct Acting<'a> {
    pub(super) visit: &'a Visit,
    pub(super) vnodes: &'a mut dyn Vnodes,
    /// What it does to those it looks at.
    pub(super) touch: Touch,
    /// The ACL that was read last, as most vnodes of a call are in one directory.
    pub(super) acl: &'a mut Option<(Fid, AclRecord)>,
}

impl Acting<'_> {
    /// A vnode and what the caller may do with it.
    pub(super) fn look(&mut self, fid: Fid) -> Result<Look, AbortCode> {
        if fid.vnode.0 == 0 {
            return Err(AbortCode(errno::EINVAL));
        }
        let (mut retried, mut asked) = (false, false);
        loop {
            let before = self.visit.leases.epoch();
            let vnode = self.vnodes.status(fid).map_err(failed)?;
            let directory = match vnode.file_type {
                FileType::Directory => fid,
                _ => Fid {
                    volume: self.vnodes.volume(),
                    vnode: vnode.parent,
                    uniquifier: vnode.parent_uniquifier,
                },
            };
            let acl = match self.acl(directory) {
                // It was moved, and the directory it was in removed, in between.
                Err(StoreError::NoVnode(_)) if directory != fid && !retried => {
                    retried = true;
                    continue;
                }
                acl => acl.map_err(failed)?,
            };
            let person = &self.visit.person;
            let grant = Grant::of(&acl, person).on(&vnode, person);
            let powerful = person.superuser || person.is_administrator();
            // Nobody is asked for the sake of a caller who is refused in any case. Of a directory anybody may know the status.
            let is_refused =
                vnode.file_type == FileType::File && grant.own == Rights::default() && !powerful;
            if !is_refused && !asked {
                self.visit.leases.ask(fid, self.touch)?;
                asked = true;
                if self.visit.leases.epoch() != before {
                    // Its holder may have sent something in between.
                    continue;
                }
            }
            return Ok(Look { vnode, grant, acl });
        }
    }

    /// A directory and what the caller may do with it.
    pub(super) fn directory(&mut self, fid: Fid) -> Result<Look, AbortCode> {
        let look = self.look(fid)?;
        if look.vnode.file_type != FileType::Directory {
            return Err(AbortCode(errno::ENOTDIR));
        }
        Ok(look)
    }

    /// A vnode's attributes, once no other host has a lease of it.
    pub(super) fn vnode(&mut self, fid: Fid) -> Result<VnodeStatus, AbortCode> {
        let leases = &self.visit.leases;
        let before = leases.epoch();
        // Before a lease is asked for: what is made a moment later is not for this call.
        let status = self.vnodes.status(fid).map_err(failed)?;
        leases.ask(fid, self.touch)?;
        if leases.epoch() == before {
            return Ok(status);
        }
        // Its holder may have sent something in between.
        self.vnodes.status(fid).map_err(failed)
    }

    /// Asks for a vnode that is about to lose or get a name by this, which is in a directory that was looked at.
    pub(super) fn named(&mut self, directory: Fid, name: &[u8]) -> Result<(), AbortCode> {
        if !self.visit.leases.is_on() {
            return Ok(());
        }
        match self.vnodes.lookup(directory, name) {
            Ok(fid) => self.visit.leases.ask(fid, self.touch),
            // The change itself says so.
            Err(_) => Ok(()),
        }
    }

    fn acl(&mut self, directory: Fid) -> Result<AclRecord, StoreError> {
        if let Some((known, acl)) = &*self.acl
            && *known == directory
        {
            return Ok(acl.clone());
        }
        let acl = self.vnodes.acl(directory)?;
        *self.acl = Some((directory, acl.clone()));
        Ok(acl)
    }
}

/// A vnode's status for the client, and the promise that goes with it.
pub(super) struct Seen {
    pub(super) status: FetchStatus,
    pub(super) promise: Promise,
}

impl<'v> EnteredVolume<'v> {
    fn enter(
        visit: &'v Visit,
        id: VolumeId,
        intent: Intent,
        gate: Gate<'v>,
    ) -> Result<Self, AbortCode> {
        if id.is_none() {
            return Err(AbortCode(errno::EINVAL));
        }
        let entered = visit.server.volumes.enter(id, intent)?;
        let state = entered.volume.summary().map_err(failed)?;
        if !state.online {
            return Err(AbortCode(VOFFLINE));
        }
        if intent == Intent::Change && state.kind != VolumeType::ReadWrite {
            return Err(AbortCode(errno::EROFS));
        }
        entered.volume.count_use();
        visit.tally.lock().volume = Some((id, intent == Intent::Change));
        let touch = match intent {
            Intent::Read => Touch::Read,
            Intent::Change => Touch::Change,
        };
        Ok(Self {
            visit,
            entered,
            state,
            touch,
            acl: None,
            _gate: gate,
        })
    }

    pub(super) fn volume(&self) -> &Volume {
        &self.entered.volume
    }

    pub(super) fn vol_sync(&self) -> VolSync {
        VolSync {
            creation_date: self.state.creation_date,
            ..VolSync::default()
        }
    }

    /// The caller at the vnodes of this volume.
    pub(super) fn acting(&mut self) -> Acting<'_> {
        Acting {
            visit: self.visit,
            vnodes: &mut self.entered.volume,
            touch: self.touch,
            acl: &mut self.acl,
        }
    }

    /// A vnode and what the caller may do with it.
    pub(super) fn look(&mut self, fid: Fid) -> Result<Look, AbortCode> {
        self.acting().look(fid)
    }

    /// The same for what is not told to anybody and changes nothing, and so waits for no lease.
    pub(super) fn look_only(&mut self, fid: Fid) -> Result<Look, AbortCode> {
        let touch = std::mem::replace(&mut self.touch, Touch::Nothing);
        let look = self.look(fid);
        self.touch = touch;
        look
    }

    /// Asks for a vnode that was looked at, as for one that is changed.
    pub(super) fn take(&self, fid: Fid) -> Result<(), AbortCode> {
        self.visit.leases.ask(fid, Touch::Change)
    }

    /// A directory and what the caller may do with it.
    pub(super) fn directory(&mut self, fid: Fid) -> Result<Look, AbortCode> {
        self.acting().directory(fid)
    }

    /// A vnode's attributes.
    pub(super) fn vnode(&self, fid: Fid) -> Result<VnodeStatus, AbortCode> {
        self.volume().status(fid).map_err(failed)
    }

    /// Promises the caller to be told before a vnode changes. Of a volume that does not change as
    /// long as it is the same, one promise is for all of it.
    pub(super) fn promise(&self, fid: Fid, bulk: bool) -> Promise {
        self.visit.tally.lock().callbacks += 1;
        let (hosts, host) = (&self.visit.server.hosts, &self.visit.host);
        if self.state.kind == VolumeType::ReadWrite {
            hosts.promise(host, fid, bulk)
        } else {
            hosts.promise_volume(host, fid)
        }
    }

    /// A vnode's status with a promise. The promise comes first: whoever changes the vnode after
    /// the status was read finds the promise and breaks it.
    pub(super) fn see(&mut self, fid: Fid, bulk: bool) -> Result<Seen, AbortCode> {
        let promise = self.promise(fid, bulk);
        let Look { vnode, grant, .. } = self.look(fid)?;
        may_fetch_status(&self.visit.person, &vnode, grant, self.state.owner)?;
        Ok(Seen {
            status: self.status(&vnode, grant),
            promise,
        })
    }

    /// A status as the client gets it (AFS-3 AFSFetchStatus).
    pub(super) fn status(&self, vnode: &VnodeStatus, grant: Grant) -> FetchStatus {
        let (parent_vnode, parent_uniquifier) = match vnode.file_type {
            FileType::Directory => (vnode.fid.vnode, vnode.fid.uniquifier),
            _ => (vnode.parent, vnode.parent_uniquifier),
        };
        FetchStatus {
            interface_version: FetchStatus::INTERFACE_VERSION,
            file_type: vnode.file_type,
            link_count: vnode.link_count,
            length: vnode.length,
            data_version: vnode.data_version,
            author: vnode.author,
            owner: vnode.owner,
            group: vnode.group,
            caller_access: grant.own,
            anonymous_access: grant.anyone,
            unix_mode_bits: vnode.mode.into(),
            parent_vnode,
            parent_uniquifier,
            residency_mask: 1,
            client_mod_time: vnode.modify_time,
            server_mod_time: vnode.server_modify_time,
            sync_counter: 0,
            lock_count: self.visit.server.locks.count(vnode.fid, Instant::now()),
            error_code: 0,
        }
    }
}

/// With the right that tells a client that it owns the file, as the maker of one does.
pub(super) fn as_owner(grant: Grant) -> Grant {
    Grant {
        own: grant.own | Rights::ADMINISTER,
        ..grant
    }
}
