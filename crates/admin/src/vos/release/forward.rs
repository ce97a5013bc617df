//! Dumping the clone to the sites.

use afar_rpc::afsvol;
use afar_types::{
    AttachFlags, Destinations, ReplicaDest, RestoreCookie, SiteFlags, TransactionId, UnixTime,
    VolumeId, VolumeType,
};
use afar_xdr::CharArray;

use super::super::codes::{ENOENT, RXGEN_OPCODE, VNOVOL, VOLSERBADNAME, VOLSERBADOP};
use super::super::entry::{address, id_of, place, set_id};
use super::super::event::{Answer, OrFail};
use super::super::r#move::before;
use super::super::transaction::{DOOMED, Handle, IN_SERVICE, name_text};
use super::super::vldb::Hold;
use super::super::{Failure, Vos, complain, step};
use super::Releasing;

/// Sites whose dumps begin at times further apart, in seconds, get dumps of their own.
// spec: volumes#releasing-a-volume
const SAME_TIME: u32 = 900;
/// Destinations of one dump.
const DESTINATIONS: usize = Destinations::MAX;

/// How often a site whose transaction times out is tried.
const TRIES: u32 = 3;

/// What was done for a site so far.
#[derive(Clone, Copy, Default)]
struct Tried {
    times: u32,
    since: Option<UnixTime>,
}

/// A site that is ready to take a dump.
struct Ready {
    /// Its place in the entry's list.
    index: usize,
    server: afsvol::Client,
    transaction: TransactionId,
    /// Since when it needs what changed.
    since: UnixTime,
}

/// What a site's volume is like before.
struct Site {
    transaction: TransactionId,
    created: UnixTime,
    updated: UnixTime,
}

impl Vos {
    /// Dumps the clone to all sites that need it.
    ///
    /// The first goes alone as long as clients have an older version to use meanwhile; from then
    /// on they use only sites with the new one, so that all others can get it at once.
    pub(super) async fn forward_all(&self, releasing: &mut Releasing) -> Result<(), Failure> {
        let mut limit = DESTINATIONS;
        let mut next = 0;
        // A site that is tried again is not sent less than before.
        let mut tried = vec![Tried::default(); releasing.entry.sites.len()];
        while next < releasing.entry.sites.len() {
            let group = self.gather(releasing, &mut next, limit, &mut tried).await;
            let Some(since) = group.iter().map(|ready| ready.since).min() else {
                continue;
            };
            if let Err(failure) = self.check_clone(releasing).await {
                // What was made for nothing goes with its transaction.
                self.end_group(&group).await;
                return Err(failure);
            }
            let sent = self
                .forward_group(releasing, &group, since, &mut limit)
                .await;
            let retry = self.end_group(&group).await;
            sent?;
            if let Some(retry) = retry {
                next = next.min(retry);
            }
            let (id, kind) = (releasing.id, Some(VolumeType::ReadWrite));
            let replaced = self
                .replace_entry(id, kind, &releasing.entry, Hold::Keep)
                .await;
            replaced.or_fail(self, || {
                format!(" Could not update VLDB entry for volume {id}\n")
            })?;
        }
        Ok(())
    }

    /// Begins transactions at sites that can be sent the same dump.
    async fn gather(
        &self,
        releasing: &mut Releasing,
        next: &mut usize,
        limit: usize,
        tried: &mut [Tried],
    ) -> Vec<Ready> {
        let has_old = releasing.flags_before.iter().any(|flags| {
            flags.contains(SiteFlags::READ_ONLY) && !flags.contains(SiteFlags::DONT_USE)
        });
        let limit = match has_old && releasing.released.is_empty() && !releasing.just_new_sites {
            true => 1,
            false => limit,
        };
        let mut group: Vec<Ready> = Vec::new();
        while *next < releasing.entry.sites.len() && group.len() < limit {
            let index = *next;
            *next += 1;
            let flags = releasing.entry.sites[index].flags;
            let is_current =
                flags.contains(SiteFlags::NEW_REPLICA) && !flags.contains(SiteFlags::DONT_USE);
            if Some(index) == releasing.ro_index
                || is_current
                || !flags.contains(SiteFlags::READ_ONLY)
                || tried[index].times == TRIES
            {
                continue;
            }
            tried[index].times += 1;
            let server = self.volume_server(address(&releasing.entry.sites[index]));
            let Ok(site) = self.open_site(releasing, index, &server).await else {
                continue;
            };
            let mut since = self.since(releasing, &site);
            if let Some(earlier) = tried[index].since {
                since = since.min(earlier);
            }
            tried[index].since = Some(since);
            if let Some(first) = group.first()
                && first.since.0.abs_diff(since.0) > SAME_TIME
            {
                // It comes first in the next group.
                let _ended = self.finish(&server, site.transaction).await;
                *next = index;
                tried[index].times -= 1;
                break;
            }
            group.push(Ready {
                index,
                server,
                transaction: site.transaction,
                since,
            });
        }
        group
    }

    /// Since when a site needs what changed.
    fn since(&self, releasing: &Releasing, site: &Site) -> UnixTime {
        let all = UnixTime(0);
        let why = if releasing.options.full_dumps {
            "forced"
        } else if !releasing.completeness.is_complete() {
            match releasing.just_new_sites {
                true => "read-only volume needs be created for new site",
                false => "previous release failed",
            }
        } else if site.created == all {
            "read-only volume needs to be created"
        } else if releasing.rw_created > site.created {
            "read-write volume was replaced"
        } else {
            return site.updated;
        };
        step!(self, "This will be a full dump: {why}\n");
        all
    }

    /// Begins a transaction at a site, on a volume that is made if it is not there.
    async fn open_site(
        &self,
        releasing: &mut Releasing,
        index: usize,
        server: &afsvol::Client,
    ) -> Answer<Site> {
        let at = place(&releasing.entry.sites[index]);
        let host = self.name_of(at.server);
        let read_only = id_of(&releasing.entry, VolumeType::ReadOnly);
        let offline = AttachFlags::OFFLINE;
        let mut begun = self.begin(server, read_only, at.partition, offline).await;
        if let Ok(transaction) = begun
            && releasing.flags_before[index].contains(SiteFlags::DONT_USE)
        {
            step!(self, "Deleting extant RO_DONTUSE site on {host}...");
            let deleted = self.rpc(server.delete_volume(transaction)).await;
            let ended = self.finish(server, transaction).await;
            if let Err(code) = deleted {
                self.explain("Failed to delete RO_DONTUSE site: ", code);
                return Err(code);
            }
            if let Err(code) = ended {
                self.explain("Failed to end transaction on RO_DONTUSE site: ", code);
                return Err(code);
            }
            self.done();
            begun = Err(VNOVOL);
        }
        let transaction = match begun {
            Ok(transaction) => transaction,
            Err(VNOVOL) => {
                return self.make_site(releasing, index, server, &host).await;
            }
            Err(code) => {
                self.explain("Failed to start a transaction on the RO volume.\n", code);
                return Err(code);
            }
        };
        step!(
            self,
            "Updating existing ro volume {read_only} on {host} ...\n"
        );
        match self.status(server, transaction).await {
            Ok(status) => Ok(Site {
                transaction,
                created: before(status.creation_date),
                updated: before(status.update_date),
            }),
            Err(code) => {
                self.explain("Failed to get status of volume on destination: ", code);
                self.drop_site(server, transaction).await;
                Err(code)
            }
        }
    }

    /// Makes the read-only volume at a site.
    async fn make_site(
        &self,
        releasing: &mut Releasing,
        index: usize,
        server: &afsvol::Client,
        host: &str,
    ) -> Answer<Site> {
        let [read_write, read_only, _] = releasing.entry.volume_ids;
        let partition = releasing.entry.sites[index].partition;
        let name = format!("{}.readonly", releasing.entry.name);
        step!(
            self,
            "Creating new volume {read_only} on replication site {host}: "
        );
        let kind = VolumeType::ReadOnly;
        let made = self
            .make(server, partition, &name, kind, (read_write, read_only), 1)
            .await;
        let (made, transaction) = made.inspect_err(|&code| {
            self.explain("Failed to create the ro volume: ", code);
        })?;
        set_id(&mut releasing.entry, VolumeType::ReadOnly, made);
        self.done();
        if let Err(code) = self.set_flags(server, transaction, DOOMED).await {
            self.explain("Failed to set flags on the ro volume: ", code);
            self.drop_site(server, transaction).await;
            return Err(code);
        }
        Ok(Site {
            transaction,
            created: UnixTime(0),
            updated: UnixTime(0),
        })
    }

    async fn drop_site(&self, server: &afsvol::Client, transaction: TransactionId) {
        match self.finish(server, transaction).await {
            Ok(()) | Err(ENOENT) => {}
            Err(code) => self.explain("Could not end transaction on a ro volume: ", code),
        }
    }

    /// Makes sure that the clone's transaction was not given up meanwhile.
    async fn check_clone(&self, releasing: &mut Releasing) -> Result<(), Failure> {
        let failed = Failure(ENOENT);
        let Some(transaction) = releasing.clone_transaction else {
            return Err(failed);
        };
        let source = releasing.source.handle();
        let mut status = self.status(&source, transaction).await;
        if status == Err(ENOENT) {
            releasing.clone_transaction = None;
            let clone = releasing.clone;
            step!(
                self,
                "Old transaction on cloned volume {clone} timed out, restarting transaction\n"
            );
            let partition = releasing.from.partition;
            let begun = self
                .begin(&source, clone, partition, AttachFlags::BUSY)
                .await;
            let transaction = begun.map_err(|code| {
                self.explain("Failed to recreate cloned RO volume transaction\n", code);
                failed
            })?;
            releasing.clone_transaction = Some(transaction);
            status = self.status(&source, transaction).await;
        }
        match status {
            Ok(status) if status == releasing.clone_status => Ok(()),
            Ok(_) => {
                complain!(self, "The clone that is being released has changed!\n");
                Err(failed)
            }
            Err(code) => {
                self.explain(
                    "Unable to get status of current cloned RO transaction\n",
                    code,
                );
                Err(failed)
            }
        }
    }

    async fn forward_group(
        &self,
        releasing: &mut Releasing,
        group: &[Ready],
        since: UnixTime,
        limit: &mut usize,
    ) -> Result<(), Failure> {
        self.tell_group(releasing, group, since);
        let name = format!("{}.readonly", releasing.entry.name);
        let [read_write, ..] = releasing.entry.volume_ids;
        let cookie = RestoreCookie {
            name: CharArray::new(&name).map_err(|_| Failure(VOLSERBADNAME))?,
            kind: VolumeType::ReadOnly.number(),
            clone_id: VolumeId(0),
            parent_id: read_write,
        };
        let destinations: Vec<_> = group
            .iter()
            .map(|ready| ReplicaDest {
                transaction: ready.transaction,
                server: self.dest_server(address(&releasing.entry.sites[ready.index])),
            })
            .collect();
        let Some(transaction) = releasing.clone_transaction else {
            return Err(Failure(ENOENT));
        };
        let source = releasing.source.handle();
        let many = Destinations::new(destinations.clone()).map_err(|_| Failure(VOLSERBADOP))?;
        let sent = source.forward_multiple(transaction, since, many, 0, cookie.clone());
        let results = match self.rpc(sent).await {
            Ok(reply) => reply.results.into_vec(),
            // spec: afs-rpc#unknown-operations
            Err(RXGEN_OPCODE) => {
                *limit = 1;
                let mut results = Vec::new();
                for to in destinations {
                    let sent = self
                        .rpc(source.forward(
                            transaction,
                            since,
                            to.server,
                            to.transaction,
                            cookie.clone(),
                        ))
                        .await;
                    results.push(sent.err().unwrap_or(0));
                }
                results
            }
            Err(code) if code == super::super::INTERRUPTED => return Err(Failure(code)),
            Err(code) => {
                self.explain("Release failed: ", code);
                return Ok(());
            }
        };
        for (number, ready) in group.iter().enumerate() {
            let result = results.get(number).copied().unwrap_or(RXGEN_OPCODE);
            let done = match result {
                0 => self.finish_site(ready, &name, read_write).await,
                code => Err((code, "Failed to dump volume from clone to a ro site: ")),
            };
            match done {
                Ok(()) => releasing.mark_released(ready.index),
                // A transaction that timed out is tried again.
                Err((ENOENT, _)) if number > 0 => {}
                Err((code, what)) => self.explain(what, code),
            }
        }
        Ok(())
    }

    /// Gives a site's volume its name and brings it on line.
    async fn finish_site(
        &self,
        ready: &Ready,
        name: &str,
        read_write: VolumeId,
    ) -> Result<(), (i32, &'static str)> {
        let none = VolumeId(0);
        let kind = VolumeType::ReadOnly.number();
        let (server, transaction) = (&ready.server, ready.transaction);
        let wrong = |code| (code, "Failed to set correct names and ids: ");
        let name = name_text(name).map_err(wrong)?;
        self.rpc(server.set_ids_types(transaction, name, kind, read_write, none, none))
            .await
            .map_err(wrong)?;
        let online = self.set_flags(server, transaction, IN_SERVICE).await;
        online.map_err(|code| (code, "Failed to set flags on ro volume: "))
    }

    fn tell_group(&self, releasing: &Releasing, group: &[Ready], since: UnixTime) {
        let servers = group
            .iter()
            .map(|ready| self.name_of(address(&releasing.entry.sites[ready.index])));
        let servers: Vec<_> = servers.collect();
        let what = match since.0 {
            0 => "entire volume".to_owned(),
            _ => format!("as of {}", super::super::words::date(since)),
        };
        let (clone, read_only) = (
            releasing.clone,
            id_of(&releasing.entry, VolumeType::ReadOnly),
        );
        step!(
            self,
            "Starting ForwardMulti from {clone} to {read_only} on {} ({what}).\n",
            servers.join(" and ")
        );
    }

    /// Ends a group's transactions. Returns the first site that is to be tried again, as its
    /// transaction timed out while others were at it.
    async fn end_group(&self, group: &[Ready]) -> Option<usize> {
        let mut retry = None;
        for (number, ready) in group.iter().enumerate() {
            match self.finish(&ready.server, ready.transaction).await {
                Ok(()) => {}
                Err(ENOENT) if number > 0 => {
                    complain!(self, "Transaction timed out on a ro volume. Will retry.\n");
                    retry = retry.or(Some(ready.index));
                }
                Err(code) => {
                    self.explain("Could not end transaction on a ro volume: ", code);
                }
            }
        }
        retry
    }
}
