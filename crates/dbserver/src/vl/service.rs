//! The operations of VL.

use afar_net::AbortCode;
use afar_rpc::{Caller, Calls, vl};
use afar_types::{Chain, NvldbEntry, VitalVlHeader, VldbEntry, VldbEntryO, VolumeId, VolumeType};
use afar_xdr::List;

use super::codes::{
    VL_BADRELLOCKTYPE, VL_BADSERVER, VL_BADVOLIDBUMP, VL_BADVOLOPER, VL_BADVOLTYPE, VL_PERM,
    VL_SIZEEXCEEDED,
};
use super::entries::{self, Proposed, Uniqueness};
use super::form::{self, Naming};
use super::update::{self, Which};
use super::{LocationServer, list, pattern, servers, stats, tables};
use crate::kv::{Change, View};

/// Entries in one list; more are a job for `list_attributes_n2`.
const LIST_MAX: usize = 262_144;

/// Volume ids that can be asked for at once, as in OpenAFS.
const BUMP_MAX: u32 = 0x7fff_ffff;

/// Version of the format that OpenAFS's servers write when servers have several addresses, and
/// the bytes of its head.
const FORMAT: i32 = 4;
const HEADER_LEN: i32 = 132_120;

/// A volume type in a request; none for -1.
fn kind(number: i32) -> Result<Option<VolumeType>, AbortCode> {
    match number {
        -1 => Ok(None),
        number => VolumeType::from_number(number)
            .map(Some)
            .ok_or(VL_BADVOLTYPE),
    }
}

fn release(bits: i32) -> Result<i32, AbortCode> {
    if entries::is_release(bits) {
        Ok(bits)
    } else {
        Err(VL_BADRELLOCKTYPE)
    }
}

fn proposed_o(entry: &VldbEntryO) -> Result<Proposed, AbortCode> {
    entries::check_name(entry.name.as_bytes())?;
    Proposed::new(&VldbEntry::try_from(entry).map_err(|_| VL_BADSERVER)?)
}

fn proposed_n(entry: &NvldbEntry) -> Result<Proposed, AbortCode> {
    entries::check_name(entry.name.as_bytes())?;
    Proposed::new(&VldbEntry::try_from(entry).map_err(|_| VL_BADSERVER)?)
}

impl LocationServer {
    fn admin(caller: &Caller) -> Result<(), AbortCode> {
        if caller.identity.is_superuser() {
            Ok(())
        } else {
            Err(VL_PERM)
        }
    }

    /// Lists and counters may be for administrators only.
    fn query(&self, caller: &Caller) -> Result<(), AbortCode> {
        if self.config.restricted_query {
            Self::admin(caller)
        } else {
            Ok(())
        }
    }

    async fn change<T: Send + 'static>(
        &self,
        f: impl Fn(&mut Change<'_>) -> Result<T, AbortCode> + Send + 'static,
    ) -> Result<T, AbortCode> {
        self.database.write(f).await
    }

    /// Reads what may take long, and may be long.
    async fn list<T: Send + 'static>(
        &self,
        caller: &Caller,
        f: impl FnOnce(&View<'_>) -> Result<T, AbortCode> + Send + 'static,
    ) -> Result<T, AbortCode> {
        let database = self.database.clone();
        let made = self.lists.make(caller, move || database.read(f)).await;
        made.map_err(|error| {
            tracing::error!(%error, "the thread that makes a list panicked");
            crate::kv::UINTERNAL
        })?
    }

    async fn replace_with(
        &self,
        (volume, volume_type, bits): (VolumeId, i32, i32),
        proposed: Result<Proposed, AbortCode>,
        uniqueness: Uniqueness,
    ) -> Result<(), AbortCode> {
        let proposed = proposed?;
        let (kind, bits) = (kind(volume_type)?, release(bits)?);
        self.change(move |change| {
            entries::replace(change, volume.0, kind, &proposed, bits, uniqueness)
        })
        .await
    }

    /// The entry after a place, as (entries that follow, place, entry); `None` at the end, with
    /// -1 for a place that is none.
    fn next_entry(&self, place: i32) -> Result<(i32, Option<(i32, VldbEntry)>), AbortCode> {
        self.database.read(|view| {
            let last = tables::header(view)?.last_entry;
            let place = match u32::try_from(place) {
                Ok(place) if place <= last => place,
                _ => return Ok((-1, None)),
            };
            let Some(((number, entry), follow)) = list::next(view, place, last)? else {
                return Ok((0, None));
            };
            let entry = form::look_up(view, &entry, Naming::Address)?;
            let number = i32::try_from(number).unwrap_or(i32::MAX);
            Ok((
                i32::try_from(follow).unwrap_or(i32::MAX),
                Some((number, entry)),
            ))
        })
    }
}

fn count<T>(list: &[T]) -> u32 {
    u32::try_from(list.len()).unwrap_or(u32::MAX)
}

/// An operation's method: counted, with its request and its body.
macro_rules! operations {
    ($($name:ident($self:ident, $caller:ident, $request:pat) $body:block)*) => {$(
        async fn $name(
            &self,
            caller: &Caller,
            request: vl::$name::Request,
        ) -> Result<vl::$name::Reply, AbortCode> {
            let ($self, $caller, $request) = (self, caller, request);
            self.stats.count(vl::$name::OPERATION.opcode, async move $body).await
        }
    )*};
}

impl vl::Service for LocationServer {
    fn calls(&self) -> Option<&Calls> {
        Some(&self.calls)
    }

    operations! {
        create_entry(this, caller, request) {
            Self::admin(caller)?;
            let proposed = proposed_o(&request.entry)?;
            this.change(move |change| entries::create(change, &proposed)).await?;
            Ok(vl::create_entry::Reply {})
        }

        create_entry_n(this, caller, request) {
            Self::admin(caller)?;
            let proposed = proposed_n(&request.entry)?;
            this.change(move |change| entries::create(change, &proposed)).await?;
            Ok(vl::create_entry_n::Reply {})
        }

        delete_entry(this, caller, request) {
            Self::admin(caller)?;
            let (volume, kind) = (request.volume.0, kind(request.kind)?);
            this.change(move |change| entries::delete(change, volume, kind)).await?;
            Ok(vl::delete_entry::Reply {})
        }

        get_entry_by_id(this, _caller, request) {
            let entry = this.by_id(request.volume, kind(request.kind)?, Naming::Address)?;
            Ok(vl::get_entry_by_id::Reply { entry: form::vldb_o(&entry)? })
        }

        get_entry_by_id_n(this, _caller, request) {
            let entry = this.by_id(request.volume, kind(request.kind)?, Naming::Address)?;
            Ok(vl::get_entry_by_id_n::Reply { entry: form::nvldb(&entry)? })
        }

        get_entry_by_name_o(this, _caller, request) {
            let entry = this.by_name(request.name.as_bytes(), Naming::Address)?;
            Ok(vl::get_entry_by_name_o::Reply { entry: form::vldb_o(&entry)? })
        }

        get_entry_by_name_n(this, _caller, request) {
            let entry = this.by_name(request.name.as_bytes(), Naming::Address)?;
            Ok(vl::get_entry_by_name_n::Reply { entry: form::nvldb(&entry)? })
        }

        get_entry_by_name_u(this, _caller, request) {
            let entry = this.by_name(request.name.as_bytes(), Naming::Uuid)?;
            Ok(vl::get_entry_by_name_u::Reply { entry: form::uvldb(&entry)? })
        }

        get_new_volume_id(this, caller, request) {
            Self::admin(caller)?;
            if request.count > BUMP_MAX {
                return Err(VL_BADVOLIDBUMP);
            }
            let take = move |change: &mut Change<'_>| {
                entries::new_volume_ids(change, request.count)
            };
            let first = VolumeId(this.change(take).await?);
            Ok(vl::get_new_volume_id::Reply { first })
        }

        replace_entry(this, caller, request) {
            Self::admin(caller)?;
            let which = (request.volume, request.kind, request.release);
            this.replace_with(which, proposed_o(&request.entry), Uniqueness::AnyType).await?;
            Ok(vl::replace_entry::Reply {})
        }

        replace_entry_n(this, caller, request) {
            Self::admin(caller)?;
            let which = (request.volume, request.kind, request.release);
            this.replace_with(which, proposed_n(&request.entry), Uniqueness::SameType).await?;
            Ok(vl::replace_entry_n::Reply {})
        }

        update_entry(this, caller, request) {
            Self::admin(caller)?;
            let which = Which::Id(request.volume.0, kind(request.kind)?);
            let bits = release(request.release)?;
            this.change(move |change| update::update(change, &which, &request.update, bits))
                .await?;
            Ok(vl::update_entry::Reply {})
        }

        update_entry_by_name(this, caller, request) {
            Self::admin(caller)?;
            let which = Which::Name(request.name.into_bytes());
            let bits = release(request.release)?;
            this.change(move |change| update::update(change, &which, &request.update, bits))
                .await?;
            Ok(vl::update_entry_by_name::Reply {})
        }

        set_lock(this, caller, request) {
            Self::admin(caller)?;
            let (volume, kind) = (request.volume.0, kind(request.kind)?);
            let operation = u32::try_from(request.operation)
                .ok()
                .filter(|operation| entries::is_operation(*operation))
                .ok_or(VL_BADVOLOPER)?;
            let now = stats::now();
            this.change(move |change| entries::lock(change, volume, kind, operation, now))
                .await?;
            Ok(vl::set_lock::Reply {})
        }

        release_lock(this, caller, request) {
            Self::admin(caller)?;
            let (volume, kind) = (request.volume.0, kind(request.kind)?);
            let bits = release(request.release)?;
            this.change(move |change| entries::unlock(change, volume, kind, bits)).await?;
            Ok(vl::release_lock::Reply {})
        }

        list_entry(this, caller, request) {
            this.query(caller)?;
            let (count, found) = this.next_entry(request.previous_index)?;
            let (next_index, entry) = match found {
                Some((place, entry)) => (place, form::vldb_o(&entry)?),
                None => (0, VldbEntryO::default()),
            };
            Ok(vl::list_entry::Reply { count, next_index, entry })
        }

        list_entry_n(this, caller, request) {
            this.query(caller)?;
            let (count, found) = this.next_entry(request.previous_index)?;
            let (next_index, entry) = match found {
                Some((place, entry)) => (place, form::nvldb(&entry)?),
                None => (0, NvldbEntry::default()),
            };
            Ok(vl::list_entry_n::Reply { count, next_index, entry })
        }

        list_attributes(this, caller, request) {
            this.query(caller)?;
            let wanted = request.attributes;
            let entries = this
                .list(caller, move |view| list::list_o(view, &wanted, LIST_MAX))
                .await?;
            Ok(vl::list_attributes::Reply {
                count: count(&entries),
                entries: List::new(entries).map_err(|_| VL_SIZEEXCEEDED)?,
            })
        }

        list_attributes_n(this, caller, request) {
            this.query(caller)?;
            let wanted = request.attributes;
            let entries = this
                .list(caller, move |view| list::list_n(view, &wanted, LIST_MAX))
                .await?;
            Ok(vl::list_attributes_n::Reply {
                count: count(&entries),
                entries: List::new(entries).map_err(|_| VL_SIZEEXCEEDED)?,
            })
        }

        linked_list(this, caller, request) {
            this.query(caller)?;
            let wanted = request.attributes;
            let entries = this
                .list(caller, move |view| list::list_o(view, &wanted, LIST_MAX))
                .await?;
            Ok(vl::linked_list::Reply {
                count: count(&entries),
                entries: Chain::new(entries).map_err(|_| VL_SIZEEXCEEDED)?,
            })
        }

        linked_list_n(this, caller, request) {
            this.query(caller)?;
            let wanted = request.attributes;
            let entries = this
                .list(caller, move |view| list::list_n(view, &wanted, LIST_MAX))
                .await?;
            Ok(vl::linked_list_n::Reply {
                count: count(&entries),
                entries: Chain::new(entries).map_err(|_| VL_SIZEEXCEEDED)?,
            })
        }

        list_attributes_n2(this, caller, request) {
            this.query(caller)?;
            let pattern = request.name.as_bytes();
            // spec: afs-rpc#lists-of-entries
            // Patterns cost time, so they are for administrators, as in OpenAFS.
            let name = if pattern.is_empty() || pattern == b".*" {
                None
            } else {
                Self::admin(caller)?;
                Some(pattern::compile(pattern)?)
            };
            let (wanted, start) = (request.attributes, request.start_index);
            let part = this.list(caller, move |view| {
                let last = tables::header(view)?.last_entry;
                match u32::try_from(start) {
                    Ok(start) if start <= last => {
                        list::part(view, &wanted, name.as_ref(), start)
                    }
                    _ => Ok((Vec::new(), None)),
                }
            });
            let (entries, next) = part.await?;
            Ok(vl::list_attributes_n2::Reply {
                count: count(&entries),
                entries: List::new(entries).map_err(|_| VL_SIZEEXCEEDED)?,
                next_index: next.and_then(|next| i32::try_from(next).ok()).unwrap_or(-1),
            })
        }

        get_stats(this, caller, _request) {
            this.query(caller)?;
            let header = this.database.read(tables::header)?;
            let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
            let header = VitalVlHeader {
                version: FORMAT,
                header_size: HEADER_LEN,
                allocs: number(header.allocs),
                frees: number(header.frees),
                max_volume_id: VolumeId(header.max_volume_id),
                ..VitalVlHeader::default()
            };
            Ok(vl::get_stats::Reply { stats: this.stats.read(), header })
        }

        probe_server(_this, _caller, _request) {
            Ok(vl::probe_server::Reply {})
        }

        get_addrs(this, _caller, _request) {
            let addresses = this.database.read(servers::addresses)?;
            Ok(vl::get_addrs::Reply {
                unused: Default::default(),
                count: count(&addresses),
                addresses: List::new(addresses).map_err(|_| VL_SIZEEXCEEDED)?,
            })
        }

        get_addrs_u(this, _caller, request) {
            let addresses = this.server_addresses(&request.attributes)?;
            Ok(vl::get_addrs_u::Reply { addresses })
        }

        register_addrs(this, caller, request) {
            Self::admin(caller)?;
            let (server, addresses) = (request.server, request.addresses.into_vec());
            this.change(move |change| servers::register(change, server, &addresses)).await?;
            Ok(vl::register_addrs::Reply {})
        }

        change_addr(this, caller, request) {
            Self::admin(caller)?;
            let (old, new) = (request.old, request.new);
            this.change(move |change| servers::change_address(change, old, new)).await?;
            Ok(vl::change_addr::Reply {})
        }
    }
}
