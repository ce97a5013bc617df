//! The changes of a batch, one after the other, in the committer.

use std::collections::BTreeSet;
use std::sync::Arc;

use afar_lease::wire::Lease;
use afar_net::AbortCode;
use afar_store::{Sequence, StoreError, VnodeStatus, Vnodes, Volume};
use afar_types::{
    AclRecord, BatchChange, BatchChanges, BatchCondition, BatchMake, BatchOperation, BatchResult,
    BatchVnode, Fid, FileName, FileType, StoreStatus, UnixTime, VolumeId,
};

use super::super::entries::{Move, New, link_in, make_in, move_in, new_name, old_name, remove_in};
use super::super::status::{attributes_after_store, store_status_in};
use super::super::store::{options_of, storable};
use super::super::visit::{Acting, Visit, failed};
use super::series::{self, Last};
use crate::abort::errno;
use crate::leases::Touch;

/// A batch that is to be run.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) visit: Visit,
    pub(super) volume: VolumeId,
    pub(super) series: [u8; 16],
    pub(super) number: u64,
    pub(super) changes: Arc<BatchChanges>,
    pub(super) digest: u64,
}

/// What came of a batch.
pub(super) struct Done {
    /// It was run by an earlier call.
    pub(super) repeated: bool,
    pub(super) results: Vec<BatchResult>,
    pub(super) changed: Changed,
}

/// What a batch changed.
#[derive(Default)]
pub(super) struct Changed {
    /// The caller is told of it: the others' promises are broken.
    told: BTreeSet<Fid>,
    /// The caller is not told of it either.
    untold: BTreeSet<Fid>,
    /// What it made.
    pub(super) made: BTreeSet<Fid>,
    /// What is gone, as nobody can come to it any more.
    pub(super) gone: BTreeSet<Fid>,
}

impl Changed {
    /// What the caller is told of.
    pub(super) fn told(&self) -> impl Iterator<Item = Fid> {
        let left = |fid: &&Fid| !self.untold.contains(fid) && !self.gone.contains(fid);
        self.told.union(&self.made).filter(left).copied()
    }

    /// Whose promises to others are to be broken. Of what is new there was none.
    pub(super) fn others(&self) -> impl Iterator<Item = Fid> {
        self.told.difference(&self.made).copied()
    }

    /// Whose promises to anyone are.
    pub(super) fn all(&self) -> impl Iterator<Item = Fid> {
        self.untold.difference(&self.made).copied()
    }

    /// A vnode has lost a name, or is gone.
    // spec: afs-rpc#changing-directories
    fn less(&mut self, fid: Fid, left: Option<&VnodeStatus>) {
        let list = match left {
            Some(_) => &mut self.untold,
            None => &mut self.gone,
        };
        list.insert(fid);
    }
}

impl Run {
    /// Runs it, unless that was done before. All is taken back if the partition fails.
    pub(super) fn run(
        self,
        sequence: &mut Sequence<'_, '_>,
        contents: &[Option<usize>],
        volume: &Volume,
    ) -> Result<Result<Done, AbortCode>, StoreError> {
        let person = self.visit.person.id;
        let stale = Ok(Err(AbortCode(errno::ESTALE)));
        if self.number == 0 {
            let own = series::open(sequence, self.series, person)?;
            return match own {
                true => Ok(Ok(Done {
                    repeated: false,
                    results: Vec::new(),
                    changed: Changed::default(),
                })),
                false => stale,
            };
        }
        let Some(last) = series::last(sequence, self.series, person)? else {
            return stale;
        };
        if last.number == self.number {
            return Ok(self.again(last));
        }
        if last.number.checked_add(1) != Some(self.number) {
            return stale;
        }
        let mut running = Running {
            run: &self,
            volume,
            sequence,
            acl: None,
            results: Vec::with_capacity(self.changes.len()),
            changed: Changed::default(),
            spoiled: BTreeSet::new(),
        };
        for (change, content) in self.changes.iter().zip(contents) {
            running.step(change, *content);
        }
        // All is found first that it has to wait for.
        if self.visit.leases.is_stopped() {
            return Err(StoreError::Busy(self.volume));
        }
        let Running {
            results, changed, ..
        } = running;
        let number = (self.number, self.digest);
        series::put(sequence, self.series, person, number, &results)?;
        Ok(Ok(Done {
            repeated: false,
            results,
            changed,
        }))
    }

    /// What came of it before.
    fn again(&self, last: Last) -> Result<Done, AbortCode> {
        // It is another one under the same number.
        if last.digest != self.digest {
            return Err(AbortCode(errno::EINVAL));
        }
        let results = last.results.into_vec();
        let mut changed = Changed::default();
        for (change, result) in self.changes.iter().zip(&results) {
            if result.code != 0 {
                continue;
            }
            for vnode in change.operation.vnodes().into_iter().flatten() {
                changed
                    .told
                    .extend(fid_of(self.volume, vnode, &results).ok());
            }
            if result.made != BatchVnode::default() {
                changed.made.insert(result.made.fid(self.volume));
            }
        }
        Ok(Done {
            repeated: true,
            results,
            changed,
        })
    }
}

/// The vnode that an operation names.
pub(super) fn fid_of(
    volume: VolumeId,
    vnode: BatchVnode,
    results: &[BatchResult],
) -> Result<Fid, AbortCode> {
    let Some(maker) = vnode.maker() else {
        return Ok(vnode.fid(volume));
    };
    let maker = usize::try_from(maker).ok();
    let made = maker.and_then(|maker| results.get(maker));
    let made = made.filter(|made| made.made != BatchVnode::default());
    let made = made.ok_or(AbortCode(errno::ECANCELED))?;
    Ok(made.made.fid(volume))
}

/// What is to be made under a fid of its client's choice.
fn wanted(operation: &BatchOperation) -> Option<&BatchMake> {
    match operation {
        BatchOperation::Create(make)
        | BatchOperation::MakeDir(make)
        | BatchOperation::Symlink(make, _) => {
            Some(make).filter(|make| make.wanted.maker().is_none())
        }
        _ => None,
    }
}

/// A batch while it runs.
struct Running<'r, 's, 'q, 'c> {
    run: &'r Run,
    volume: &'r Volume,
    sequence: &'s mut Sequence<'q, 'c>,
    acl: Option<(Fid, AclRecord)>,
    results: Vec<BatchResult>,
    changed: Changed,
    /// Vnodes that are not as the caller thinks, since an operation on them failed.
    spoiled: BTreeSet<Fid>,
}

impl Running<'_, '_, '_, '_> {
    fn acting(&mut self) -> Acting<'_> {
        Acting {
            visit: &self.run.visit,
            vnodes: self.sequence,
            touch: Touch::Change,
            acl: &mut self.acl,
        }
    }

    fn step(&mut self, change: &BatchChange, content: Option<usize>) {
        let changed = self.in_time(change).and_then(|()| {
            self.sequence.set_made(self.time_of(change));
            self.change(change, content)
        });
        let result = match changed {
            Ok(made) => BatchResult {
                code: 0,
                made: made.map(BatchVnode::from).unwrap_or_default(),
            },
            Err(code) => BatchResult {
                code: code.0,
                made: BatchVnode::default(),
            },
        };
        self.results.push(result);
    }

    /// When a change was made, if that was under leases which still stand: everybody who could see the directory or file
    /// without it meanwhile has seen a lease recalled, and so has each clone and dump.
    // spec: batches#when-it-was-made
    fn time_of(&self, change: &BatchChange) -> Option<UnixTime> {
        let leases = &self.run.visit.leases;
        let is_covered = |under: &BatchCondition| {
            leases.covers(Lease {
                fid: under.vnode.fid(self.run.volume),
                number: under.lease,
            })
        };
        let told = change.made != UnixTime(0) && !change.under.is_empty();
        (told && change.under.iter().all(is_covered)).then_some(change.made)
    }

    /// Does one change; returns what it made.
    fn change(
        &mut self,
        change: &BatchChange,
        content: Option<usize>,
    ) -> Result<Option<Fid>, AbortCode> {
        let under = &change.under;
        match &change.operation {
            BatchOperation::Create(make) => self.make(make, &New::File, under).map(Some),
            BatchOperation::MakeDir(make) => self.make(make, &New::Directory, under).map(Some),
            BatchOperation::Symlink(make, target) => {
                let target = New::Symlink(target.as_bytes().to_vec());
                self.make(make, &target, under).map(Some)
            }
            BatchOperation::Link {
                directory,
                name,
                existing,
            } => {
                let directory = self.fid(*directory)?;
                self.on(*existing, |running, existing| {
                    let name = new_name(name)?;
                    link_in(&mut running.acting(), directory, &name, existing)?;
                    running.changed.told.extend([directory, existing]);
                    Ok(())
                })?;
                Ok(None)
            }
            BatchOperation::RemoveFile { directory, name } => {
                self.remove(*directory, name, false)?;
                Ok(None)
            }
            BatchOperation::RemoveDir { directory, name } => {
                self.remove(*directory, name, true)?;
                Ok(None)
            }
            BatchOperation::Rename {
                old_directory,
                old_name: name,
                new_directory,
                new_name: new,
            } => {
                let wanted = Move {
                    new_name: new_name(new)?,
                    name: old_name(name)?,
                    from: self.fid(*old_directory)?,
                    to: self.fid(*new_directory)?,
                };
                self.rename(&wanted)?;
                Ok(None)
            }
            BatchOperation::StoreStatus { target, attributes } => {
                self.on(*target, |running, fid| {
                    store_status_in(&mut running.acting(), fid, attributes)?;
                    running.changed.told.insert(fid);
                    Ok(())
                })?;
                Ok(None)
            }
            BatchOperation::StoreData {
                target,
                attributes,
                data,
            } => {
                self.on(*target, |running, fid| {
                    running.spend(data.len() as u64);
                    running.store(fid, attributes, content)
                })?;
                Ok(None)
            }
        }
    }

    fn fid(&self, vnode: BatchVnode) -> Result<Fid, AbortCode> {
        fid_of(self.run.volume, vnode, &self.results)
    }

    /// Does something to a vnode, unless an earlier operation on it failed.
    // spec: batches#what-depends-on-what
    fn on(
        &mut self,
        vnode: BatchVnode,
        work: impl FnOnce(&mut Self, Fid) -> Result<(), AbortCode>,
    ) -> Result<(), AbortCode> {
        let fid = self.fid(vnode)?;
        if self.spoiled.contains(&fid) {
            return Err(AbortCode(errno::ECANCELED));
        }
        let done = work(self, fid);
        if done.is_err() {
            self.spoiled.insert(fid);
        }
        done
    }

    /// Whether a change is covered by the leases that its client made it under, or nobody else has a lease now; and nobody
    /// has changed anything since.
    // spec: batches#under-leases, leases#late-changes
    fn in_time(&mut self, change: &BatchChange) -> Result<(), AbortCode> {
        for under in &change.under {
            let fid = under.vnode.fid(self.run.volume);
            let lease = Lease {
                fid,
                number: under.lease,
            };
            let covered = self.run.visit.leases.covers(lease);
            let stale = AbortCode(errno::ESTALE);
            let wanted = wanted(&change.operation);
            // spec: leases#birth
            let late = if !covered && wanted.is_some_and(|make| make.directory == under.vnode) {
                Err(stale)
            } else {
                // Also of what is covered: the lease may end at any moment.
                match self.acting().vnode(fid) {
                    Ok(vnode) if vnode.data_version.0 == under.version => Ok(()),
                    _ => Err(stale),
                }
            };
            if late.is_err() && !self.run.visit.leases.is_stopped() {
                self.run.visit.leases.count_late();
                if let Some(make) = wanted {
                    self.unbear(make.wanted.fid(self.run.volume));
                }
                let target = match &change.operation {
                    BatchOperation::Link { existing, .. } => Some(*existing),
                    BatchOperation::StoreStatus { target, .. }
                    | BatchOperation::StoreData { target, .. } => Some(*target),
                    _ => None,
                };
                let target = target.and_then(|target| self.fid(target).ok());
                self.spoiled.extend(target);
            }
            late?;
        }
        Ok(())
    }

    /// What comes of it takes so many bytes of what its host has in reserve of the quota.
    fn spend(&self, bytes: u64) {
        let blocks = bytes.div_ceil(1024).max(1);
        self.run.visit.leases.spend(self.volume, blocks * 1024);
    }

    fn unbear(&mut self, fid: Fid) {
        if self.sequence.status(fid).is_err() {
            self.run.visit.leases.unbear(fid);
        }
    }

    fn make(
        &mut self,
        make: &BatchMake,
        new: &New,
        under: &[BatchCondition],
    ) -> Result<Fid, AbortCode> {
        let directory = self.fid(make.directory)?;
        let name = new_name(&make.name)?;
        let wanted = make.wanted.maker().is_none();
        let wanted = wanted.then(|| make.wanted.fid(self.run.volume));
        if let Some(fid) = wanted {
            let stale = AbortCode(errno::ESTALE);
            let lease = under.iter().find(|under| under.vnode == make.directory);
            let number = lease.ok_or(stale)?.lease;
            // It may be anybody's.
            if self.sequence.status(fid).is_ok() {
                return Err(stale);
            }
            let parent = Lease {
                fid: directory,
                number,
            };
            let born = self.run.visit.leases.bear(parent, fid);
            born.inspect_err(|_| self.unbear(fid))?;
            // A page or more.
            self.spend(4096);
        }
        let acting = &mut self.acting();
        let made = make_in(acting, directory, &name, &make.attributes, new, wanted);
        if made.is_err()
            && let Some(fid) = wanted
        {
            self.unbear(fid);
        }
        let fid = made?.0.vnode.fid;
        self.changed.told.insert(directory);
        self.changed.made.insert(fid);
        Ok(fid)
    }

    fn remove(
        &mut self,
        directory: BatchVnode,
        name: &FileName,
        is_directory: bool,
    ) -> Result<(), AbortCode> {
        let (directory, name) = (self.fid(directory)?, old_name(name)?);
        let (removed, _) = remove_in(&mut self.acting(), directory, &name, is_directory)?;
        self.changed.told.insert(directory);
        self.changed.less(removed.fid, removed.vnode.as_ref());
        Ok(())
    }

    fn rename(&mut self, wanted: &Move) -> Result<(), AbortCode> {
        // What is moved may be about to take the place of something good.
        if !self.spoiled.is_empty()
            && let Ok(fid) = self.sequence.lookup(wanted.from, &wanted.name)
            && self.spoiled.contains(&fid)
        {
            return Err(AbortCode(errno::ECANCELED));
        }
        let (renamed, ..) = move_in(&mut self.acting(), wanted)?;
        self.changed.told.extend([wanted.from, wanted.to]);
        // spec: afs-rpc#changing-directories
        if wanted.from != wanted.to && renamed.vnode.file_type == FileType::Directory {
            self.changed.untold.insert(renamed.vnode.fid);
        }
        if let Some((fid, left)) = &renamed.replaced {
            self.changed.less(*fid, left.as_ref());
        }
        Ok(())
    }

    fn store(
        &mut self,
        fid: Fid,
        attributes: &StoreStatus,
        content: Option<usize>,
    ) -> Result<(), AbortCode> {
        let visit = &self.run.visit;
        storable(&mut self.acting(), fid, attributes)?;
        // There was no right to change anything there when the data came.
        let content = content.ok_or(AbortCode(errno::EACCES))?;
        let options = options_of(visit, attributes);
        let stored = self.sequence.store(fid, content, &options);
        let stored = stored.map_err(failed)?;
        let more = attributes_after_store(attributes, stored.mode, &visit.person);
        if let Some(more) = more {
            let set = self.sequence.set_attributes(fid, &more);
            set.map_err(failed)?;
        }
        self.changed.told.insert(fid);
        Ok(())
    }
}
