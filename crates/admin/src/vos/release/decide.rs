//! What a release has to do.

use afar_types::{AttachFlags, SiteFlags, UnixTime, VolintInfo, VolumeId, VolumeType};
use tokio::task::JoinSet;

use super::super::codes::{ENODEV, VNOVOL, VOLSERILLEGAL_PARTITION};
use super::super::entry::{id_of, place};
use super::super::event::{Answer, OrFail};
use super::super::r#move::before;
use super::super::transaction::{Handle, Removing};
use super::super::{Failure, ServerPartition, Vos, complain, step};
use super::Releasing;

/// Why all sites get a new clone; if for no reason, a release that was interrupted goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Completeness {
    forced: bool,
    last_ok: bool,
    all_new: bool,
    rw_changed: bool,
    clone_missing: bool,
}

impl Completeness {
    pub(super) fn is_complete(self) -> bool {
        self != Self::default()
    }
}

impl Vos {
    /// Whether all sites have what the read-write volume holds, as far as dates tell: it was
    /// neither changed nor made again since the oldest of them was released, and all of them are of
    /// one release and in use.
    pub(super) async fn is_unchanged(&self, releasing: &Releasing) -> bool {
        let unsettled = SiteFlags::NEW_REPLICA.with(SiteFlags::DONT_USE);
        let sites = &releasing.entry.sites;
        if releasing.options.reclone
            || releasing.options.full_dumps
            || releasing.entry.clone_id != VolumeId(0)
            || sites.iter().any(|site| site.flags.0 & unsettled.0 != 0)
        {
            return false;
        }
        let read_only = id_of(&releasing.entry, VolumeType::ReadOnly);
        let mut asked = JoinSet::new();
        let mut ask = |vos: Self, at: ServerPartition, id| {
            asked.spawn(async move { vos.look(at, id).await });
        };
        for site in sites {
            if site.flags.contains(SiteFlags::READ_ONLY) {
                ask(self.clone(), place(site), read_only);
            }
        }
        ask(self.clone(), releasing.from, releasing.id);
        let Ok(found) = asked
            .join_all()
            .await
            .into_iter()
            .collect::<Answer<Vec<_>>>()
        else {
            return false;
        };
        let (rw, ro): (Vec<_>, Vec<_>) = found.iter().partition(|info| info.volume == releasing.id);
        let (Some(rw), Some(first)) = (rw.first(), ro.first()) else {
            return false;
        };
        let oldest = before(first.creation_date);
        ro.iter().all(|info| {
            info.creation_date == first.creation_date
                && info.in_use
                && info.status == VolintInfo::OK
                && !info.needs_salvage
        }) && rw.status == VolintInfo::OK
            && [rw.update_date, rw.creation_date, rw.copy_date]
                .iter()
                .all(|&date| date < oldest)
    }

    async fn look(&self, at: ServerPartition, id: VolumeId) -> Answer<VolintInfo> {
        let server = self.volume_server(at.server);
        let listed = self.rpc(server.list_one_volume(at.partition, id)).await?;
        listed.volumes.into_vec().pop().ok_or(ENODEV)
    }

    /// When the read-write volume was last changed.
    pub(super) async fn rw_updated(&self, releasing: &Releasing) -> Option<UnixTime> {
        let look = self.look(releasing.from, releasing.id).await;
        look.ok().map(|info| info.update_date)
    }

    /// Decides whether to begin a release or to go on with one.
    pub(super) async fn decide(&self, releasing: &mut Releasing) -> Result<(), Failure> {
        let count = |flag| {
            let sites = releasing.entry.sites.iter();
            sites
                .filter(|site| site.flags.contains(SiteFlags::READ_ONLY.with(flag)))
                .count()
        };
        let (all, new) = (count(SiteFlags(0)), count(SiteFlags::NEW_REPLICA));
        let not_released = count(SiteFlags::DONT_USE);
        let complete = &mut releasing.completeness;
        complete.forced = releasing.options.reclone;
        complete.last_ok = new == 0;
        complete.all_new = new != 0 && new == all;
        releasing.just_new_sites = (complete.last_ok || complete.all_new)
            && !complete.forced
            && not_released != 0
            && not_released != all;
        let read_only = id_of(&releasing.entry, VolumeType::ReadOnly);
        releasing.clone = match releasing.entry.clone_id {
            clone if clone.0 != 0 && !complete.is_complete() => clone,
            _ => read_only,
        };
        let exists = self.look(releasing.from, releasing.clone).await;
        releasing.clone_exists = !matches!(exists, Err(ENODEV | VOLSERILLEGAL_PARTITION));
        if !releasing.completeness.is_complete() {
            self.look_at_clone(releasing).await?;
        }
        let complete = releasing.completeness;
        if !complete.is_complete() || complete.rw_changed {
            releasing.just_new_sites = false;
        }
        Ok(())
    }

    /// Whether the clone of a release that was interrupted can still be used.
    async fn look_at_clone(&self, releasing: &mut Releasing) -> Result<(), Failure> {
        let Releasing { id, clone, .. } = *releasing;
        if !releasing.clone_exists {
            releasing.completeness.clone_missing = true;
            return Ok(());
        }
        let source = releasing.source.handle();
        let created = async |volume, what: &str| {
            let partition = releasing.from.partition;
            let begun = self
                .begin(&source, volume, partition, AttachFlags::BUSY)
                .await;
            let transaction = begun.or_fail(self, || {
                format!("Failed to start transaction on {what} {volume}\n")
            })?;
            let status = self.status(&source, transaction).await;
            let finished = self.finish(&source, transaction).await;
            let status = status.or_fail(self, || {
                format!("Failed to get the status of {what} {volume}\n")
            })?;
            finished.or_fail(self, || {
                format!("Failed to end transaction on {what} {volume}\n")
            })?;
            Ok(status.creation_date)
        };
        let rw_created = created(id, "RW volume").await?;
        let clone_created = created(clone, "RW clone").await?;
        releasing.rw_created = rw_created;
        releasing.completeness.rw_changed = rw_created > clone_created;
        Ok(())
    }

    pub(super) fn tell_decision(&self, releasing: &mut Releasing) {
        let complete = releasing.completeness;
        if !complete.is_complete() {
            step!(self, "This is a recovery of previously failed release\n");
            return;
        }
        let id = releasing.id;
        let mut text = format!("This is a complete release of volume {id}");
        let last_ok = Completeness {
            last_ok: true,
            ..Completeness::default()
        };
        if complete == last_ok {
            if releasing.just_new_sites {
                releasing.tried_just_new_sites = true;
                text.push_str("\nThere are new RO sites; we will try to only release to new sites");
            }
        } else {
            let changed = format!("rw {id} changed");
            let reasons = [
                (complete.forced, "forced"),
                (complete.last_ok, "last ok"),
                (complete.all_new, "all sites are new"),
                (complete.rw_changed, changed.as_str()),
                (complete.clone_missing, "ro clone missing"),
            ];
            let reasons = reasons.iter().filter(|(given, _)| *given);
            let reasons: Vec<_> = reasons.map(|(_, reason)| *reason).collect();
            text.push_str(&format!(" ({})", reasons.join(", ")));
        }
        step!(self, "{text}\n");
    }

    /// Marks which sites are to be used while the release goes on: none, or if only new sites are
    /// filled, the old ones.
    pub(super) async fn mark_sites(&self, releasing: &mut Releasing) -> Result<(), Failure> {
        let unused = |index: usize| {
            let flags = releasing.entry.sites[index].flags;
            flags.contains(SiteFlags::DONT_USE)
        };
        if releasing.clone_exists && releasing.ro_index.is_none_or(unused) {
            let how = Removing {
                what: Some("the"),
                ..Removing::default()
            };
            let (clone, partition) = (releasing.clone, releasing.from.partition);
            match self.delete(&releasing.source, clone, partition, how).await {
                Ok(_) | Err(VNOVOL) => {}
                Err(code) => return Err(Failure(code)),
            }
            releasing.clone_exists = false;
        }
        if releasing.just_new_sites {
            releasing.just_new_sites = self.are_old_sites_current(releasing).await;
        }
        if !releasing.just_new_sites {
            releasing.unmark_sites();
            return Ok(());
        }
        for site in &mut releasing.entry.sites {
            site.flags = match site.flags.contains(SiteFlags::DONT_USE) {
                true => site.flags.without(SiteFlags::NEW_REPLICA),
                false => site.flags.with(SiteFlags::NEW_REPLICA),
            };
        }
        let rw_site = &mut releasing.entry.sites[releasing.rw_index];
        rw_site.flags = rw_site
            .flags
            .with(SiteFlags::NEW_REPLICA)
            .without(SiteFlags::DONT_USE);
        Ok(())
    }

    /// Whether the read-write volume has not changed since the oldest site was released.
    async fn are_old_sites_current(&self, releasing: &Releasing) -> bool {
        let read_only = id_of(&releasing.entry, VolumeType::ReadOnly);
        step!(self, "Querying old RO sites for update times...");
        let mut oldest = None;
        let mut current = true;
        for site in &releasing.entry.sites {
            if !site.flags.contains(SiteFlags::READ_ONLY)
                || site.flags.contains(SiteFlags::DONT_USE)
            {
                continue;
            }
            let at = place(site);
            match self.look(at, read_only).await {
                Ok(info) => {
                    let created = before(info.creation_date);
                    oldest = Some(oldest.map_or(created, |oldest: UnixTime| oldest.min(created)));
                }
                Err(code) => {
                    let server = self.name_of(at.server);
                    complain!(
                        self,
                        "Could not fetch information about RO vol {read_only} from server \
                         {server}\n"
                    );
                    self.explain("", code);
                    current = false;
                    break;
                }
            }
        }
        self.done();
        if !current {
            return false;
        }
        match self.look(releasing.from, releasing.id).await {
            Ok(info) => oldest.is_some_and(|oldest| oldest > info.update_date),
            Err(code) => {
                let server = self.name_of(releasing.from.server);
                let id = releasing.id;
                complain!(
                    self,
                    "Could not fetch information about RW vol {id} from server {server}\n"
                );
                self.explain("", code);
                false
            }
        }
    }
}
