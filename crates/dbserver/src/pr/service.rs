//! The operations, as clients call them.

use afar_net::AbortCode;
use afar_rpc::pr::{self, Service};
use afar_rpc::{Caller, Calls, Identity};
use afar_types::{PrAccess, PrDebugEntry, PrEntries, PrEntry, PrIds, PrName, PrNames, PtsId};

use super::access::{Access, is_member};
use super::change::{self, NewIdentity};
use super::rows::{Entry, LEAST, Rows, groups, members, owned, slots};
use super::{PrError, ProtectionConfig, ProtectionServer, create, lists, members as membership};
use crate::kv::View;

/// Entries in one answer of ListEntries (OpenAFS).
const ENTRIES_MAX: usize = 500;

/// Asks ListEntries for users.
const LIST_USERS: i32 = 1;
/// Asks ListEntries for groups.
const LIST_GROUPS: i32 = 2;

/// Logs what is wrong with the server itself, and gives the code to abort with.
pub(crate) fn refuse(error: &PrError) -> AbortCode {
    match error {
        PrError::Damaged(what) => {
            tracing::error!(what, "the protection database is damaged: the call failed");
        }
        PrError::Database(error) => return error.clone().into(),
        _ => {}
    }
    error.code()
}

impl ProtectionServer {
    /// Answers from the database as it is.
    fn answer<T>(
        &self,
        caller: &Caller,
        look: impl FnOnce(View<'_>, &ProtectionConfig, &Identity) -> Result<T, PrError>,
    ) -> Result<T, AbortCode> {
        self.database
            .read(|rows| look(*rows, &self.config, &caller.identity))
            .map_err(|error| refuse(&error))
    }

    /// Makes a change that the caller asks for.
    async fn change<T: Send + 'static>(
        &self,
        caller: &Caller,
        change: impl Fn(
            &mut crate::kv::Change<'_>,
            create::Context<'_>,
            &Identity,
        ) -> Result<T, PrError>
        + Send
        + 'static,
    ) -> Result<T, AbortCode> {
        let identity = caller.identity.clone();
        self.write(move |rows, context| change(rows, context, &identity))
            .await
            .map_err(|error| refuse(&error))
    }
}

impl Service for ProtectionServer {
    fn calls(&self) -> Option<&Calls> {
        Some(&self.calls)
    }

    async fn i_new_entry(
        &self,
        caller: &Caller,
        request: pr::i_new_entry::Request,
    ) -> Result<pr::i_new_entry::Reply, AbortCode> {
        self.change(caller, move |rows, context, who| {
            let name = request.name.as_bytes();
            create::with_id(rows, context, who, name, request.id, request.owner)
        })
        .await?;
        Ok(pr::i_new_entry::Reply {})
    }

    async fn where_is_it(
        &self,
        caller: &Caller,
        request: pr::where_is_it::Request,
    ) -> Result<pr::where_is_it::Reply, AbortCode> {
        self.answer(caller, |rows, config, who| {
            Access::new(rows, config, who)?.check_known()?;
            let position = super::prdb::position(rows.entry(request.id)?.slot);
            let position = position.ok_or(PrError::BadAddress)?;
            Ok(pr::where_is_it::Reply { position })
        })
    }

    async fn dump_entry(
        &self,
        caller: &Caller,
        request: pr::dump_entry::Request,
    ) -> Result<pr::dump_entry::Reply, AbortCode> {
        self.answer(caller, |rows, config, who| {
            let access = Access::new(rows, config, who)?;
            let slot = super::prdb::slot(request.position).ok_or(PrError::BadAddress)?;
            let entry = rows.at_slot(slot)?.ok_or(PrError::BadAddress)?;
            if !access.is_in(PtsId::PTSVIEWERS)? {
                access.check_admin()?;
            }
            Ok(pr::dump_entry::Reply {
                entry: debug_entry(rows, &entry)?,
            })
        })
    }

    async fn add_to_group(
        &self,
        caller: &Caller,
        request: pr::add_to_group::Request,
    ) -> Result<pr::add_to_group::Reply, AbortCode> {
        self.change(caller, move |rows, context, who| {
            membership::add(rows, context, who, request.user, request.group)
        })
        .await?;
        Ok(pr::add_to_group::Reply {})
    }

    async fn name_to_id(
        &self,
        caller: &Caller,
        request: pr::name_to_id::Request,
    ) -> Result<pr::name_to_id::Reply, AbortCode> {
        // spec: afs-rpc#names-and-ids
        // Anyone may ask, even one whom all else is refused.
        self.answer(caller, |rows, config, _| {
            let id = |name: &PrName| {
                let id = rows.id_of(config.local(name.as_bytes()))?;
                Ok::<_, PrError>(id.unwrap_or(PtsId::ANONYMOUS))
            };
            let ids = request
                .names
                .iter()
                .map(id)
                .collect::<Result<Vec<_>, _>>()?;
            let ids = PrIds::new(ids).map_err(|_| PrError::TooMany)?;
            Ok(pr::name_to_id::Reply { ids })
        })
    }

    async fn id_to_name(
        &self,
        caller: &Caller,
        request: pr::id_to_name::Request,
    ) -> Result<pr::id_to_name::Reply, AbortCode> {
        self.answer(caller, |rows, config, who| {
            // spec: afs-rpc#names-and-ids
            // OpenAFS answers an empty question before it asks who is there.
            if !request.ids.is_empty() {
                Access::new(rows, config, who)?.check_known()?;
            }
            let name = |&id: &PtsId| match rows.find(id)? {
                Some(entry) => super::name::on_wire(&entry.name),
                None => super::name::on_wire(id.0.to_string().as_bytes()),
            };
            let names = request.ids.iter().map(name);
            let names = names.collect::<Result<Vec<_>, PrError>>()?;
            let names = PrNames::new(names).map_err(|_| PrError::TooMany)?;
            Ok(pr::id_to_name::Reply { names })
        })
    }

    async fn delete(
        &self,
        caller: &Caller,
        request: pr::delete::Request,
    ) -> Result<pr::delete::Reply, AbortCode> {
        // An entry with many memberships goes in pieces, as with OpenAFS: one change of all of
        // them could be too large for the servers to agree on.
        loop {
            let gone = self.change(caller, move |rows, context, who| {
                change::delete_piece(rows, context, who, request.id)
            });
            if gone.await? {
                return Ok(pr::delete::Reply {});
            }
        }
    }

    async fn remove_from_group(
        &self,
        caller: &Caller,
        request: pr::remove_from_group::Request,
    ) -> Result<pr::remove_from_group::Reply, AbortCode> {
        self.change(caller, move |rows, context, who| {
            membership::remove(rows, context, who, request.user, request.group)
        })
        .await?;
        Ok(pr::remove_from_group::Reply {})
    }

    async fn get_cps(
        &self,
        caller: &Caller,
        request: pr::get_cps::Request,
    ) -> Result<pr::get_cps::Reply, AbortCode> {
        self.answer(caller, |rows, config, who| {
            let cps = lists::cps(rows, config, who, request.id)?;
            Ok(pr::get_cps::Reply { cps, over: 0 })
        })
    }

    async fn new_entry(
        &self,
        caller: &Caller,
        request: pr::new_entry::Request,
    ) -> Result<pr::new_entry::Reply, AbortCode> {
        let id = self.change(caller, move |rows, context, who| {
            let name = request.name.as_bytes();
            create::with_next_id(rows, context, who, name, request.flag, request.owner)
        });
        Ok(pr::new_entry::Reply { id: id.await? })
    }

    async fn list_max(
        &self,
        caller: &Caller,
        _: pr::list_max::Request,
    ) -> Result<pr::list_max::Reply, AbortCode> {
        self.answer(caller, |rows, config, who| {
            Access::new(rows, config, who)?.check_known()?;
            let header = create::header(rows)?;
            Ok(pr::list_max::Reply {
                user: header.max_user,
                group: header.max_group,
            })
        })
    }

    async fn set_max(
        &self,
        caller: &Caller,
        request: pr::set_max::Request,
    ) -> Result<pr::set_max::Reply, AbortCode> {
        self.change(caller, move |rows, context, who| {
            change::set_max(rows, context, who, request.id, request.flag)
        })
        .await?;
        Ok(pr::set_max::Reply {})
    }

    async fn list_entry(
        &self,
        caller: &Caller,
        request: pr::list_entry::Request,
    ) -> Result<pr::list_entry::Reply, AbortCode> {
        self.answer(caller, |rows, config, who| {
            let access = Access::new(rows, config, who)?;
            access.check_known()?;
            let entry = rows.entry(request.id)?;
            access.check_see(&entry, PrAccess::STATUS_MEMBERS, PrAccess::STATUS_ANYONE)?;
            Ok(pr::list_entry::Reply {
                entry: shown(config, &entry)?,
            })
        })
    }

    async fn change_entry(
        &self,
        caller: &Caller,
        request: pr::change_entry::Request,
    ) -> Result<pr::change_entry::Reply, AbortCode> {
        let new = NewIdentity {
            name: request.name.into_bytes(),
            owner: request.owner,
            id: request.new_id,
        };
        self.change(caller, move |rows, context, who| {
            change::change_entry(rows, context, who, request.id, &new)
        })
        .await?;
        Ok(pr::change_entry::Reply {})
    }

    async fn list_elements(
        &self,
        caller: &Caller,
        request: pr::list_elements::Request,
    ) -> Result<pr::list_elements::Reply, AbortCode> {
        self.answer(caller, |rows, config, who| {
            let elements = lists::list_elements(rows, config, who, request.id)?;
            Ok(pr::list_elements::Reply { elements, over: 0 })
        })
    }

    async fn is_a_member_of(
        &self,
        caller: &Caller,
        request: pr::is_a_member_of::Request,
    ) -> Result<pr::is_a_member_of::Reply, AbortCode> {
        self.answer(caller, |rows, config, who| {
            let (user, group) = (rows.entry(request.user)?, rows.entry(request.group)?);
            let access = Access::new(rows, config, who)?;
            if !group.is_group() {
                return Err(PrError::BadArgument);
            }
            let anyone = PrAccess::MEMBERSHIP_ANYONE;
            if access.check_see(&user, PrAccess(0), anyone).is_err() {
                access.check_see(&group, PrAccess::MEMBERSHIP_MEMBERS, anyone)?;
            }
            let member = is_member(rows, config, user.id, group.id)?;
            Ok(pr::is_a_member_of::Reply {
                member: i32::from(member),
            })
        })
    }

    async fn set_fields_entry(
        &self,
        caller: &Caller,
        request: pr::set_fields_entry::Request,
    ) -> Result<pr::set_fields_entry::Reply, AbortCode> {
        let fields = (request.access.0, request.n_groups, request.n_users);
        self.change(caller, move |rows, context, who| {
            change::set_fields(rows, context, who, request.id, request.mask, fields)
        })
        .await?;
        Ok(pr::set_fields_entry::Reply {})
    }

    async fn list_owned(
        &self,
        caller: &Caller,
        request: pr::list_owned::Request,
    ) -> Result<pr::list_owned::Reply, AbortCode> {
        self.answer(caller, |rows, config, who| {
            let (owned, last) = lists::list_owned(rows, config, who, request.id, request.last)?;
            Ok(pr::list_owned::Reply { owned, last })
        })
    }

    async fn get_cps2(
        &self,
        caller: &Caller,
        request: pr::get_cps2::Request,
    ) -> Result<pr::get_cps2::Reply, AbortCode> {
        self.answer(caller, |rows, config, who| {
            let cps = lists::cps_at_host(rows, config, who, request.id, request.host)?;
            Ok(pr::get_cps2::Reply { cps, over: 0 })
        })
    }

    async fn get_host_cps(
        &self,
        caller: &Caller,
        request: pr::get_host_cps::Request,
    ) -> Result<pr::get_host_cps::Reply, AbortCode> {
        self.answer(caller, |rows, config, who| {
            let cps = lists::host_cps(rows, config, who, request.host)?;
            Ok(pr::get_host_cps::Reply { cps, over: 0 })
        })
    }

    async fn update_entry(
        &self,
        caller: &Caller,
        request: pr::update_entry::Request,
    ) -> Result<pr::update_entry::Reply, AbortCode> {
        self.change(caller, move |rows, context, who| {
            let name = request.name.as_bytes();
            change::update_entry(rows, context, who, request.id, name, request.update.mask)
        })
        .await?;
        Ok(pr::update_entry::Reply {})
    }

    async fn list_entries(
        &self,
        caller: &Caller,
        request: pr::list_entries::Request,
    ) -> Result<pr::list_entries::Reply, AbortCode> {
        self.answer(caller, |rows, config, who| {
            Access::new(rows, config, who)?.check_admin()?;
            list_entries(rows, config, request.flags, request.start_index)
        })
    }

    async fn list_super_groups(
        &self,
        caller: &Caller,
        request: pr::list_super_groups::Request,
    ) -> Result<pr::list_super_groups::Reply, AbortCode> {
        self.answer(caller, |rows, config, who| {
            let (groups, over) = lists::list_super_groups(rows, config, who, request.id)?;
            let over = i32::from(over);
            Ok(pr::list_super_groups::Reply { groups, over })
        })
    }
}

/// Users and groups in the order in which they were made, from a place on.
fn list_entries(
    rows: View<'_>,
    config: &ProtectionConfig,
    flags: i32,
    start: i32,
) -> Result<pr::list_entries::Reply, PrError> {
    let start = u32::try_from(start).map_err(|_| PrError::BadArgument)?;
    let mut entries = Vec::new();
    let mut next_start_index = -1;
    for row in slots(rows, start) {
        let (slot, id) = row?;
        if entries.len() == ENTRIES_MAX {
            next_start_index = i32::try_from(slot).map_err(|_| PrError::BadAddress)?;
            break;
        }
        let wanted = if id.is_group() {
            LIST_GROUPS
        } else {
            LIST_USERS
        };
        if flags & wanted != 0 {
            entries.push(shown(config, &rows.entry(id)?)?);
        }
    }
    let entries = PrEntries::new(entries).map_err(|_| PrError::TooMany)?;
    Ok(pr::list_entries::Reply {
        entries,
        next_start_index,
    })
}

/// An entry as it is shown to clients.
fn shown(config: &ProtectionConfig, entry: &Entry) -> Result<PrEntry, PrError> {
    let access = match entry.flags.access() {
        PrAccess(0) => config.default_access(entry.is_group()),
        access => access,
    };
    Ok(PrEntry {
        access,
        id: entry.id,
        owner: entry.owner,
        creator: entry.creator,
        n_groups: entry.n_groups,
        n_users: entry.n_users,
        count: entry.count.cast_signed(),
        reserved: [0; 5],
        name: super::name::on_wire(&entry.name)?,
    })
}

/// An entry as it would be in OpenAFS's file, as far as there is the like here: lists go on
/// nowhere, and hash chains end.
fn debug_entry(rows: View<'_>, entry: &Entry) -> Result<PrDebugEntry, PrError> {
    let mut entries = [PtsId(0); 10];
    let elements: Box<dyn Iterator<Item = _>> = if entry.is_group() {
        Box::new(members(rows, entry.id, LEAST))
    } else {
        Box::new(groups(rows, entry.id, LEAST))
    };
    for (place, id) in entries.iter_mut().zip(elements) {
        *place = id?;
    }
    let first_owned = owned(rows, entry.id, LEAST).next().transpose()?;
    let owned = match first_owned {
        Some(group) => super::prdb::position(rows.entry(group)?.slot).unwrap_or(0),
        None => 0,
    };
    let words = [entry.created, entry.added, entry.removed, entry.changed, 0];
    Ok(PrDebugEntry {
        flags: entry.flags.0.cast_signed(),
        id: entry.id,
        cell_id: entry.cell_group.0,
        reserved: words.map(u32::cast_signed),
        entries,
        owner: entry.owner,
        creator: entry.creator,
        n_groups: entry.n_groups,
        n_users: entry.n_users,
        count: entry.count.cast_signed(),
        owned,
        name: super::name::on_wire(&entry.name)?,
        ..PrDebugEntry::default()
    })
}
