//! Changing users and groups, and deleting them.

use afar_rpc::Identity;
use afar_types::{PrEntry, PrUpdateEntry, PtsId};

use super::access::Access;
use super::create::{Context, correct_group_name, header, refund};
use super::members::part;
use super::rows::{Entry, Flags, LEAST, Rows, RowsMut, groups, members, owned};
use super::{PrError, name};
use crate::kv::Change;
use crate::users::rows as credentials;

/// Quota of groups and of foreign users, where only one of the two is set (OpenAFS).
const QUOTA_DEFAULT: i32 = 20;

/// Memberships, or owned groups, that are taken away in one change of the database. Each is up to
/// five rows, and servers agree on no more than 3,000 at once.
const PIECE: usize = 500;

/// Entries that are as they are.
pub(super) fn is_fixed(id: PtsId) -> bool {
    matches!(
        id,
        PtsId::ANYUSER | PtsId::AUTHUSER | PtsId::ANONYMOUS | PtsId::ADMINISTRATORS
    )
}

/// What PR_ChangeEntry asks for.
#[derive(Debug)]
pub(super) struct NewIdentity {
    /// Empty to keep it, or to have what fits a new owner.
    pub(super) name: Vec<u8>,
    /// 0 to keep it.
    pub(super) owner: PtsId,
    /// 0 to keep it.
    pub(super) id: PtsId,
}

/// PR_ChangeEntry: gives an entry another id, owner or name, in this order.
pub(super) fn change_entry(
    rows: &mut Change<'_>,
    context: Context<'_>,
    identity: &Identity,
    id: PtsId,
    new: &NewIdentity,
) -> Result<(), PrError> {
    if is_fixed(id) {
        return Err(PrError::Permission);
    }
    let access = Access::new(rows.view(), context.config, identity)?;
    let mut entry = rows.entry(id)?;
    access.check_owner(&entry)?;
    let admin = access.is_admin()?;
    let caller = access.id;
    entry.changed = context.now;
    if new.id.0 != 0 && new.id != id {
        if !admin {
            return Err(PrError::Permission);
        }
        entry = change_id(rows, entry, new.id)?;
    }
    let mut asked = name::lower(&new.name);
    let mut by_owner = false;
    if new.owner.0 != 0 && new.owner != entry.owner {
        if !entry.is_group() || name::at_cell(&entry.name).is_some() {
            return Err(PrError::Permission);
        }
        entry = change_owner(rows, entry, new.owner)?;
        if asked.is_empty() {
            asked.clone_from(&entry.name);
            by_owner = true;
        }
    }
    if by_owner || (!asked.is_empty() && asked != entry.name) {
        entry = change_name(rows, entry, asked, by_owner, caller, admin)?;
    }
    rows.put_entry(&entry)
}

/// Moves an entry, with all that refers to it, to another id of the same sign.
fn change_id(rows: &mut Change<'_>, mut entry: Entry, id: PtsId) -> Result<Entry, PrError> {
    if rows.exists(id)? {
        return Err(PrError::IdTaken);
    }
    if id.is_group() != entry.id.is_group() || id == LEAST {
        return Err(PrError::Permission);
    }
    let old = entry.id;
    let collect = |ids: &mut dyn Iterator<Item = Result<PtsId, PrError>>| {
        ids.collect::<Result<Vec<_>, PrError>>()
    };
    let groups = collect(&mut groups(rows.view(), old, LEAST))?;
    let members = collect(&mut members(rows.view(), old, LEAST))?;
    let owned = collect(&mut owned(rows.view(), old, LEAST))?;
    rows.erase(&entry)?;
    credentials::change_id(rows, old, id)?;
    entry.id = id;
    if entry.owner == old {
        entry.owner = id;
    }
    rows.insert(&entry)?;
    for group in groups {
        rows.delete_membership(old, group)?;
        rows.put_membership(id, group)?;
    }
    for member in members {
        rows.delete_membership(member, old)?;
        rows.put_membership(member, id)?;
    }
    for group in owned.into_iter().filter(|&group| group != old) {
        let mut group = rows.entry(group)?;
        rows.erase(&group)?;
        group.owner = id;
        rows.insert(&group)?;
    }
    let mut header = header(rows.view())?;
    header.max_user = header.max_user.max(id);
    header.max_group = header.max_group.min(id);
    rows.put_header(&header)?;
    Ok(entry)
}

fn change_owner(rows: &mut Change<'_>, mut entry: Entry, owner: PtsId) -> Result<Entry, PrError> {
    if !rows.exists(owner)? {
        return Err(PrError::NoEntry);
    }
    rows.erase(&entry)?;
    entry.owner = owner;
    rows.insert(&entry)?;
    Ok(entry)
}

/// Gives an entry another name: the one asked for, or after a change of owner the one that fits
/// the owner.
fn change_name(
    rows: &mut Change<'_>,
    mut entry: Entry,
    asked: Vec<u8>,
    by_owner: bool,
    caller: PtsId,
    admin: bool,
) -> Result<Entry, PrError> {
    let mut owner = entry.owner;
    let name = if entry.is_group() {
        if name::at_cell(&entry.name).is_some() {
            return Err(PrError::Permission);
        }
        // The caller that renames a group without an owner owns it from then on.
        if owner.0 == 0 || owner == PtsId::ANONYMOUS {
            owner = caller;
        }
        let correct = correct_group_name(rows.view(), &asked, owner, admin)?;
        if by_owner && correct == entry.name {
            return Ok(entry);
        }
        if !by_owner && correct != asked {
            return Err(PrError::BadName);
        }
        correct
    } else {
        if name::at_cell(&asked) != name::at_cell(&entry.name) {
            return Err(PrError::Permission);
        }
        name::check_user(&asked)?;
        asked
    };
    if rows.id_of(&name)?.is_some() {
        return Err(PrError::NameTaken);
    }
    rows.erase(&entry)?;
    entry.name = name;
    entry.owner = owner;
    rows.insert(&entry)?;
    Ok(entry)
}

/// PR_SetFieldsEntry: sets access bits and quotas, those in the mask.
pub(super) fn set_fields(
    rows: &mut Change<'_>,
    context: Context<'_>,
    identity: &Identity,
    id: PtsId,
    mask: u32,
    fields: (u32, i32, i32),
) -> Result<(), PrError> {
    /// Bits of the mask that are for access, more than there are (OpenAFS).
    const ACCESS_BITS: u32 = 0xffff;
    let (bits, n_groups, n_users) = fields;
    if mask == 0 {
        return Ok(());
    }
    if matches!(id, PtsId::ANYUSER | PtsId::AUTHUSER | PtsId::ANONYMOUS) {
        return Err(PrError::Permission);
    }
    let access = Access::new(rows.view(), context.config, identity)?;
    let mut entry = rows.entry(id)?;
    let had_quota = entry.flags.has(Flags::QUOTA);
    if mask & (PrEntry::SET_N_GROUPS | PrEntry::SET_N_USERS) == 0 {
        access.check_change(&entry)?;
    } else {
        access.check_admin()?;
        if !had_quota {
            entry.n_groups = QUOTA_DEFAULT;
            entry.n_users = QUOTA_DEFAULT;
        }
    }
    let mask_bits = mask & ACCESS_BITS;
    if mask_bits != 0 {
        entry.flags.0 &= !(mask_bits << Flags::ACCESS_SHIFT);
        entry.flags.0 |= (bits & mask_bits) << Flags::ACCESS_SHIFT | Flags::ACCESS;
    }
    if mask & PrEntry::SET_N_GROUPS != 0 {
        entry.n_groups = quota(n_groups)?;
        entry.flags.0 |= Flags::QUOTA;
    }
    if mask & PrEntry::SET_N_USERS != 0 {
        entry.n_users = quota(n_users)?;
        entry.flags.0 |= Flags::QUOTA;
    }
    rows.put_entry(&entry)
}

fn quota(number: i32) -> Result<i32, PrError> {
    if number < 0 {
        Err(PrError::BadArgument)
    } else {
        Ok(number)
    }
}

/// PR_SetMax: sets where ids of users or groups are given from.
pub(super) fn set_max(
    rows: &mut Change<'_>,
    context: Context<'_>,
    identity: &Identity,
    id: PtsId,
    flag: i32,
) -> Result<(), PrError> {
    Access::new(rows.view(), context.config, identity)?.check_admin()?;
    let group = flag.cast_unsigned() & Flags::GROUP != 0;
    if (group && id.0 > 0) || (!group && id.0 < 0) {
        return Err(PrError::BadArgument);
    }
    let mut header = header(rows.view())?;
    if group {
        header.max_group = id;
    } else {
        header.max_user = id;
    }
    rows.put_header(&header)
}

/// PR_UpdateEntry: puts an entry where it is found by its name or id.
pub(super) fn update_entry(
    rows: &mut Change<'_>,
    context: Context<'_>,
    identity: &Identity,
    id: PtsId,
    name: &[u8],
    mask: u32,
) -> Result<(), PrError> {
    if is_fixed(id) {
        return Err(PrError::Permission);
    }
    Access::new(rows.view(), context.config, identity)?.check_admin()?;
    let id = if id.0 == 0 {
        rows.id_of(name)?.ok_or(PrError::NoEntry)?
    } else {
        id
    };
    let entry = rows.entry(id)?;
    if mask & (PrUpdateEntry::NAME_HASH | PrUpdateEntry::ID_HASH) != 0 {
        rows.insert(&entry)?;
    }
    Ok(())
}

/// PR_Delete, a piece of it: takes away an entry, and before it its memberships and the groups it
/// owns, so many at a time. Returns whether the entry is gone.
pub(super) fn delete_piece(
    rows: &mut Change<'_>,
    context: Context<'_>,
    identity: &Identity,
    id: PtsId,
) -> Result<bool, PrError> {
    if is_fixed(id) {
        return Err(PrError::Permission);
    }
    let access = Access::new(rows.view(), context.config, identity)?;
    let entry = rows.entry(id)?;
    access.check_owner(&entry)?;
    let foreign = name::at_cell(&entry.name).is_some();
    // Users of other cells have to go before their cell's group.
    if foreign && entry.is_group() && entry.count != 0 {
        return Err(PrError::BadArgument);
    }
    let mut pairs = Vec::new();
    for member in members(rows.view(), id, LEAST).take(PIECE) {
        pairs.push((member?, id));
    }
    for group in groups(rows.view(), id, LEAST).take(PIECE - pairs.len()) {
        pairs.push((id, group?));
    }
    for &(member, group) in &pairs {
        part(rows, context, member, group)?;
    }
    let orphans = owned(rows.view(), id, LEAST)
        .filter(|group| !matches!(group, Ok(group) if *group == id))
        .take(PIECE - pairs.len())
        .collect::<Result<Vec<_>, _>>()?;
    for &group in &orphans {
        let mut group = rows.entry(group)?;
        rows.erase(&group)?;
        group.owner = PtsId(0);
        rows.insert(&group)?;
    }
    if pairs.len() + orphans.len() == PIECE {
        return Ok(false);
    }
    delete_rest(rows, context, id, foreign)?;
    Ok(true)
}

/// Takes away an entry that nothing refers to.
fn delete_rest(
    rows: &mut Change<'_>,
    context: Context<'_>,
    id: PtsId,
    foreign: bool,
) -> Result<(), PrError> {
    let entry = rows.entry(id)?;
    rows.erase(&entry)?;
    credentials::forget(rows, id)?;
    let mut header = header(rows.view())?;
    if entry.is_group() {
        header.groups = header.groups.saturating_sub(1);
        refund(rows, context.config, entry.creator)?;
    } else if foreign {
        header.foreign = header.foreign.saturating_sub(1);
        if let Some(mut group) = rows.find(entry.cell_group)?
            && group.flags.has(Flags::QUOTA)
        {
            group.n_groups = group.n_groups.saturating_add(1);
            rows.put_entry(&group)?;
        }
    } else {
        header.users = header.users.saturating_sub(1);
    }
    rows.put_header(&header)
}
