//! Members of groups.

use afar_rpc::Identity;
use afar_types::{PrAccess, PtsId};

use super::PrError;
use super::access::Access;
use super::create::Context;
use super::lists::LIST_MAX;
use super::rows::{Rows, RowsMut};
use crate::kv::Change;

/// PR_AddToGroup: adds a user, or a group, to a group.
pub(super) fn add(
    rows: &mut Change<'_>,
    context: Context<'_>,
    identity: &Identity,
    member: PtsId,
    group: PtsId,
) -> Result<(), PrError> {
    // Everyone is in the first two anyway, and anonymous is nobody.
    if group == PtsId::ANYUSER || group == PtsId::AUTHUSER || member == PtsId::ANONYMOUS {
        return Err(PrError::Permission);
    }
    let access = Access::new(rows.view(), context.config, identity)?;
    let mut member = rows.entry(member)?;
    let mut group = rows.entry(group)?;
    if !group.is_group() {
        return Err(PrError::NotGroup);
    }
    access.check_change_members(&group, PrAccess::ADD_MEMBERS, PrAccess::ADD_ANYONE)?;
    if member.id == group.id {
        return Err(PrError::OwnMember);
    }
    if rows.is_direct_member(member.id, group.id)? {
        return Err(PrError::IdTaken);
    }
    // A user whose groups and self fill more than a list could never be told its CPS.
    if !member.is_group() && usize::try_from(member.count).is_ok_and(|n| n + 1 >= LIST_MAX) {
        return Err(PrError::TooMany);
    }
    group.count = group.count.saturating_add(1);
    group.added = context.now;
    rows.put_entry(&group)?;
    // The count of a group is of its members, not of the groups it is in.
    if !member.is_group() {
        member.count = member.count.saturating_add(1);
    }
    member.added = context.now;
    rows.put_entry(&member)?;
    rows.put_membership(member.id, group.id)
}

/// PR_RemoveFromGroup: removes a user, or a group, from a group.
pub(super) fn remove(
    rows: &mut Change<'_>,
    context: Context<'_>,
    identity: &Identity,
    member: PtsId,
    group: PtsId,
) -> Result<(), PrError> {
    let access = Access::new(rows.view(), context.config, identity)?;
    rows.entry(member)?;
    let group = rows.entry(group)?;
    if !group.is_group() {
        return Err(PrError::NotGroup);
    }
    access.check_change_members(&group, PrAccess::REMOVE_MEMBERS, PrAccess(0))?;
    if member == group.id {
        return Err(PrError::OwnMember);
    }
    if !rows.is_direct_member(member, group.id)? {
        return Err(PrError::NoEntry);
    }
    part(rows, context, member, group.id)
}

/// Ends a membership. Either of the two may be about to be deleted, but is there.
pub(super) fn part(
    rows: &mut Change<'_>,
    context: Context<'_>,
    member: PtsId,
    group: PtsId,
) -> Result<(), PrError> {
    let damaged = PrError::Damaged("one side of a membership is missing");
    let (Some(mut member), Some(mut group)) = (rows.find(member)?, rows.find(group)?) else {
        return Err(damaged);
    };
    group.count = group.count.saturating_sub(1);
    group.removed = context.now;
    rows.put_entry(&group)?;
    if !member.is_group() {
        member.count = member.count.saturating_sub(1);
    }
    member.removed = context.now;
    rows.put_entry(&member)?;
    rows.delete_membership(member.id, group.id)
}
