//! Making users and groups.

use afar_rpc::Identity;
use afar_types::PtsId;

use super::access::{Who, is_member};
use super::rows::{Entry, Flags, Header, Rows, RowsMut};
use super::{PrError, ProtectionConfig, name};
use crate::kv::{Change, View};

/// Ids tried in a row before there is none free (OpenAFS).
const TRIES: u32 = 50;
/// Groups a user may make, from the start.
const GROUP_QUOTA: i32 = 20;
/// Users of another cell that may be registered, from the start.
const FOREIGN_QUOTA: i32 = 30;
/// The greatest number a foreign user has in its cell: above it the id would be negative.
const FOREIGN_MAX: i32 = 0x7fff;

/// Type bit of a request for a foreign user; such are known by their names instead.
const ASKED_FOREIGN: u32 = 16;

/// What is to be made.
#[derive(Debug)]
pub(super) struct NewEntry {
    name: Vec<u8>,
    /// Type bits: 0 for a user, [`Flags::GROUP`] for a group.
    kind: u32,
    /// The id asked for.
    id: Option<PtsId>,
    /// 0 for whoever makes it.
    owner: PtsId,
}

/// What making entries needs to know besides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) config: &'a ProtectionConfig,
    /// In seconds since 1970.
    pub(super) now: u32,
}

/// PR_INewEntry: makes an entry with an id of the caller's choice.
pub(super) fn with_id(
    rows: &mut Change<'_>,
    context: Context<'_>,
    identity: &Identity,
    name: &[u8],
    id: PtsId,
    owner: PtsId,
) -> Result<(), PrError> {
    let config = context.config;
    let creator = Who::of(rows.view(), identity, config)?.id()?;
    let admin = is_member(rows.view(), config, creator, PtsId::ADMINISTRATORS)?;
    if id.0 == 0 || id == super::rows::LEAST {
        return Err(PrError::Permission);
    }
    let kind = if id.is_group() { Flags::GROUP } else { 0 };
    let next_group = header(rows.view())?.max_group.0.checked_sub(1);
    if id.is_group() && !admin && Some(id.0) != next_group {
        return Err(PrError::Permission);
    }
    if rows.exists(id)? {
        return Err(PrError::IdTaken);
    }
    check_allowed(config, creator, owner, kind, admin)?;
    let new = NewEntry {
        name: name::lower(name),
        kind,
        id: Some(id),
        owner,
    };
    create(rows, context, creator, new).map(|_| ())
}

/// PR_NewEntry: makes an entry with the next id. Users of other cells register themselves so.
pub(super) fn with_next_id(
    rows: &mut Change<'_>,
    context: Context<'_>,
    identity: &Identity,
    name: &[u8],
    flag: i32,
    owner: PtsId,
) -> Result<PtsId, PrError> {
    let config = context.config;
    let name = name::lower(name);
    let kind = flag.cast_unsigned();
    let (creator, mut admin) = match Who::of(rows.view(), identity, config)? {
        Who::Known(id) => (
            id,
            is_member(rows.view(), config, id, PtsId::ADMINISTRATORS)?,
        ),
        Who::Foreign(_) => (PtsId::ANONYMOUS, false),
    };
    let mut asked_owner = owner;
    if !config.restricted && registers_itself(identity, config, &name) {
        if owner.0 != 0 {
            return Err(PrError::Permission);
        }
        admin = true;
        asked_owner = PtsId::ADMINISTRATORS;
    }
    check_allowed(config, creator, asked_owner, kind, admin)?;
    let new = NewEntry {
        name,
        kind,
        id: None,
        owner: asked_owner,
    };
    create(rows, context, creator, new)
}

/// Whether a user of another cell makes an entry of its own name.
// spec: afs-rpc#making-users-and-groups
fn registers_itself(identity: &Identity, config: &ProtectionConfig, name: &[u8]) -> bool {
    let Some(user) = identity.name() else {
        return false;
    };
    let user = name::lower(user.as_bytes());
    let local = config.local(&user);
    name::at_cell(local).is_some() && local == name
}

/// Whether the caller may make such an entry at all.
fn check_allowed(
    config: &ProtectionConfig,
    creator: PtsId,
    owner: PtsId,
    kind: u32,
    admin: bool,
) -> Result<(), PrError> {
    let allowed = if config.restricted && !admin || kind & ASKED_FOREIGN != 0 {
        false
    } else if kind & Flags::GROUP != 0 {
        creator != PtsId::ANONYMOUS
    } else {
        owner != PtsId::ANONYMOUS && admin
    };
    if allowed {
        Ok(())
    } else {
        Err(PrError::Permission)
    }
}

/// Makes the entries that every database has.
pub(super) fn well_known(rows: &mut Change<'_>, context: Context<'_>) -> Result<(), PrError> {
    rows.put_header(&Header::default())?;
    for (name, id) in [
        ("system:administrators", PtsId::ADMINISTRATORS),
        ("system:backup", PtsId::BACKUP),
        ("system:anyuser", PtsId::ANYUSER),
        ("system:authuser", PtsId::AUTHUSER),
        ("system:ptsviewers", PtsId::PTSVIEWERS),
        ("anonymous", PtsId::ANONYMOUS),
    ] {
        let new = NewEntry {
            name: name.into(),
            kind: if id.is_group() { Flags::GROUP } else { 0 },
            id: Some(id),
            owner: PtsId::ADMINISTRATORS,
        };
        create(rows, context, PtsId::ADMINISTRATORS, new)?;
    }
    // Users are numbered from the first on, though anonymous has an id.
    let mut header = header(rows.view())?;
    header.max_user = PtsId(context.config.first_user.0.saturating_sub(1).max(0));
    rows.put_header(&header)
}

/// Makes an entry whose maker may make it. The checks come in OpenAFS's order.
fn create(
    rows: &mut Change<'_>,
    context: Context<'_>,
    creator: PtsId,
    new: NewEntry,
) -> Result<PtsId, PrError> {
    let admin = is_member(rows.view(), context.config, creator, PtsId::ADMINISTRATORS)?;
    let owner = match new.owner {
        PtsId(0) | PtsId::ANONYMOUS => creator,
        owner => owner,
    };
    let group = new.kind & Flags::GROUP != 0;
    if group {
        if correct_group_name(rows.view(), &new.name, owner, admin)? != new.name {
            return Err(PrError::BadName);
        }
    } else {
        name::check_user(&new.name)?;
    }
    if rows.id_of(&new.name)?.is_some() {
        return Err(PrError::NameTaken);
    }
    if !group && new.kind != 0 {
        return Err(PrError::BadArgument);
    }
    let mut entry = Entry {
        flags: Flags(if group { Flags::GROUP } else { 0 }),
        owner: if group { owner } else { PtsId::ADMINISTRATORS },
        creator,
        created: context.now,
        name: new.name,
        ..Entry::default()
    };
    match (name::at_cell(&entry.name).map(name::cell_group), group) {
        (Some(cell_group), false) => {
            create_foreign(rows, context, &mut entry, &cell_group, new.id)?;
        }
        (Some(_), true) if !name::is_cell_group(&entry.name) => return Err(PrError::BadName),
        _ => create_local(rows, context, &mut entry, new.id)?,
    }
    Ok(entry.id)
}

/// Makes a group or a user of this cell.
fn create_local(
    rows: &mut Change<'_>,
    context: Context<'_>,
    entry: &mut Entry,
    id: Option<PtsId>,
) -> Result<(), PrError> {
    let mut header = header(rows.view())?;
    entry.id = match id {
        Some(id) => id,
        None => next_id(rows.view(), &header, entry.is_group())?,
    };
    entry.slot = take_slot(&mut header)?;
    if entry.is_group() {
        header.max_group = header.max_group.min(entry.id);
        header.groups = header.groups.saturating_add(1);
        charge(rows, context.config, entry.creator)?;
        // A group that owns itself is there once it is made.
        if entry.owner != entry.id && !rows.exists(entry.owner)? {
            return Err(PrError::NoEntry);
        }
    } else {
        header.max_user = header.max_user.max(entry.id);
        header.users = header.users.saturating_add(1);
        entry.flags.0 |= Flags::QUOTA;
        entry.n_groups = GROUP_QUOTA;
        entry.n_users = GROUP_QUOTA;
    }
    rows.put_header(&header)?;
    rows.insert(entry)
}

/// Makes a user of another cell, which has to have a group of its users here.
fn create_foreign(
    rows: &mut Change<'_>,
    context: Context<'_>,
    entry: &mut Entry,
    cell_group: &[u8],
    id: Option<PtsId>,
) -> Result<(), PrError> {
    let cell_group = rows.id_of(cell_group)?.ok_or(PrError::BadName)?;
    let mut group = rows.entry(cell_group)?;
    // The lower half of a foreign user's id tells the cell, the upper half the user.
    let low = cell_group.0 & 0xffff;
    entry.id = match id {
        Some(id) if id.0 & 0xffff != low => return Err(PrError::BadArgument),
        Some(id) => id,
        None => {
            let mut numbers = group.n_users.saturating_add(1)..=FOREIGN_MAX;
            loop {
                let number = numbers.next().ok_or(PrError::NoIds)?;
                let id = PtsId(number << 16 | low);
                if !rows.exists(id)? {
                    break id;
                }
            }
        }
    };
    group.n_users = group.n_users.max(entry.id.0 >> 16);
    if !group.flags.has(Flags::QUOTA) {
        group.flags.0 |= Flags::QUOTA;
        group.n_groups = FOREIGN_QUOTA;
    }
    if group.n_groups <= 0 {
        return Err(PrError::NoMore);
    }
    group.n_groups -= 1;
    group.count = group.count.saturating_add(1);
    group.added = context.now;
    rows.put_entry(&group)?;

    let mut header = header(rows.view())?;
    header.foreign = header.foreign.saturating_add(1);
    entry.slot = take_slot(&mut header)?;
    rows.put_header(&header)?;

    entry.cell_group = cell_group;
    entry.count = 1;
    entry.added = context.now;
    rows.insert(entry)?;
    rows.put_membership(entry.id, cell_group)
}

/// The name that a group asked for by `name` has to have with this owner.
pub(super) fn correct_group_name(
    rows: View<'_>,
    name: &[u8],
    owner: PtsId,
    admin: bool,
) -> Result<Vec<u8>, PrError> {
    if owner == PtsId::ADMINISTRATORS {
        return name::correct(name, b"system", admin);
    }
    let Some(owner) = rows.find(owner)? else {
        // Administrators make groups of owners that are still to come, such as themselves.
        if !admin {
            return Err(PrError::NoEntry);
        }
        name::check_any(name)?;
        return Ok(name.to_vec());
    };
    if owner.is_group() && owner.count == 0 && !admin {
        return Err(PrError::GroupEmpty);
    }
    let prefix = if owner.is_group() {
        name::prefix(&owner.name)
    } else {
        &owner.name
    };
    name::correct(name, prefix, admin)
}

/// Takes a group off what its maker may still make.
fn charge(rows: &mut Change<'_>, config: &ProtectionConfig, creator: PtsId) -> Result<(), PrError> {
    // While a database is made, its first maker is not there yet.
    let Some(mut maker) = rows.find(creator)? else {
        return Ok(());
    };
    if !maker.flags.has(Flags::QUOTA) {
        maker.flags.0 |= Flags::QUOTA;
        maker.n_groups = GROUP_QUOTA;
        maker.n_users = GROUP_QUOTA;
    }
    if !is_member(rows.view(), config, creator, PtsId::ADMINISTRATORS)? {
        if maker.n_groups <= 0 {
            return Err(PrError::NoMore);
        }
        maker.n_groups -= 1;
    }
    rows.put_entry(&maker)
}

/// Gives a group back to what its maker may still make.
pub(super) fn refund(
    rows: &mut Change<'_>,
    config: &ProtectionConfig,
    creator: PtsId,
) -> Result<(), PrError> {
    let Some(mut maker) = rows.find(creator)? else {
        return Ok(());
    };
    let admin = is_member(rows.view(), config, creator, PtsId::ADMINISTRATORS)?;
    if maker.flags.has(Flags::QUOTA) && !(admin && maker.n_groups >= GROUP_QUOTA) {
        maker.n_groups = maker.n_groups.saturating_add(1);
        rows.put_entry(&maker)?;
    }
    Ok(())
}

/// The next id that is free: below the least of the groups, above the greatest of the users.
fn next_id(rows: View<'_>, header: &Header, group: bool) -> Result<PtsId, PrError> {
    let mut id = if group {
        header.max_group
    } else {
        header.max_user
    };
    for _ in 0..TRIES {
        let next = id.0.checked_add(if group { -1 } else { 1 });
        id = PtsId(next.ok_or(PrError::NoIds)?);
        if id == super::rows::LEAST {
            break;
        }
        if !rows.exists(id)? {
            return Ok(id);
        }
    }
    Err(PrError::NoIds)
}

fn take_slot(header: &mut Header) -> Result<u32, PrError> {
    let slot = header.next_slot;
    // Places travel as signed numbers.
    header.next_slot = i32::try_from(slot)
        .ok()
        .and_then(|slot| slot.checked_add(1))
        .ok_or(PrError::NoIds)?
        .cast_unsigned();
    Ok(slot)
}

/// The header, which is there since the database was made.
pub(super) fn header(rows: View<'_>) -> Result<Header, PrError> {
    rows.header()?
        .ok_or(PrError::Damaged("the header is missing"))
}
