//! Callers, the groups they belong to, and what they may do.

use std::collections::BTreeSet;

use afar_rpc::Identity;
use afar_types::{PrAccess, PtsId};

use super::rows::{Entry, Flags, LEAST, Rows, groups};
use super::{PrError, ProtectionConfig, name};
use crate::kv::View;

/// For members, whatever the entry's access bits are.
pub(super) const ANY_ACCESS: PrAccess = PrAccess(u32::MAX);

/// A caller, as the protection database knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Who {
    /// One with an id, be it [`PtsId::ANONYMOUS`].
    Known(PtsId),
    /// A user of another cell that is not registered here.
    Foreign(Vec<u8>),
}

impl Who {
    /// The caller's id. A user of this cell that has no entry is refused everything, as by OpenAFS.
    pub(super) fn of(
        rows: View<'_>,
        identity: &Identity,
        config: &ProtectionConfig,
    ) -> Result<Self, PrError> {
        let user = match identity {
            Identity::Anonymous => return Ok(Self::Known(PtsId::ANONYMOUS)),
            Identity::Superuser => return Ok(Self::Known(PtsId::ADMINISTRATORS)),
            Identity::User(user) | Identity::Operator(user) => name::lower(user.as_bytes()),
        };
        let local = config.local(&user);
        match rows.id_of(local)? {
            Some(id) => Ok(Self::Known(id)),
            None if name::at_cell(local).is_some() => Ok(Self::Foreign(user)),
            None => Err(PrError::Permission),
        }
    }

    /// The id. A foreign user that is not registered has none, and may do nothing but register.
    pub(super) fn id(&self) -> Result<PtsId, PrError> {
        match self {
            Self::Known(id) => Ok(*id),
            Self::Foreign(_) => Err(PrError::Permission),
        }
    }
}

/// Whether `member` is in `group`, be it by way of groups in groups.
pub(super) fn is_member(
    rows: View<'_>,
    config: &ProtectionConfig,
    member: PtsId,
    group: PtsId,
) -> Result<bool, PrError> {
    let known = member != PtsId::ANONYMOUS;
    if group == PtsId::ANYUSER || (group == PtsId::AUTHUSER && known) {
        return Ok(true);
    }
    if group == PtsId::ADMINISTRATORS && member == PtsId::ADMINISTRATORS {
        return Ok(true);
    }
    if group.0 >= 0 || member.0 == 0 {
        return Ok(false);
    }
    if rows.is_direct_member(member, group)? {
        return Ok(true);
    }
    // Upwards, as the groups somebody is in are fewer than the members a group has.
    let mut start = vec![member, PtsId::ANYUSER];
    if known {
        start.push(PtsId::AUTHUSER);
    }
    let above = groups_above(rows, &start, config.supergroup_depth)?;
    Ok(above.contains(&group))
}

/// All groups that one of these is in, through groups in groups up to this many levels.
fn groups_above(rows: View<'_>, start: &[PtsId], levels: u32) -> Result<BTreeSet<PtsId>, PrError> {
    let mut found = BTreeSet::new();
    let mut level = start.to_vec();
    for _ in 0..levels {
        let mut next = Vec::new();
        for member in level {
            for group in groups(rows, member, LEAST) {
                let group = group?;
                if found.insert(group) {
                    next.push(group);
                }
            }
        }
        if next.is_empty() {
            break;
        }
        level = next;
    }
    Ok(found)
}

/// All groups a user is in: its own, and what those are in.
pub(super) fn all_groups(
    rows: View<'_>,
    config: &ProtectionConfig,
    member: PtsId,
) -> Result<BTreeSet<PtsId>, PrError> {
    groups_above(rows, &[member], config.supergroup_depth.saturating_add(1))
}

/// One who asks for something, among what is known of the cell.
#[derive(Debug)]
pub(super) struct Access<'a> {
    pub(super) rows: View<'a>,
    pub(super) config: &'a ProtectionConfig,
    /// The caller's id.
    pub(super) id: PtsId,
}

impl<'a> Access<'a> {
    pub(super) fn new(
        rows: View<'a>,
        config: &'a ProtectionConfig,
        identity: &Identity,
    ) -> Result<Self, PrError> {
        let id = Who::of(rows, identity, config)?.id()?;
        Ok(Self { rows, config, id })
    }

    pub(super) fn is_in(&self, group: PtsId) -> Result<bool, PrError> {
        is_member(self.rows, self.config, self.id, group)
    }

    pub(super) fn is_admin(&self) -> Result<bool, PrError> {
        self.is_in(PtsId::ADMINISTRATORS)
    }

    /// Refuses those who are nobody, where the cell is set up so.
    pub(super) fn check_known(&self) -> Result<(), PrError> {
        allow(!(self.config.restrict_anonymous && self.id == PtsId::ANONYMOUS))
    }

    /// Refuses those who may not see something of an entry: members of a group may if its access
    /// has one of the bits `members`, everyone if it has one of `anyone`.
    pub(super) fn check_see(
        &self,
        entry: &Entry,
        members: PrAccess,
        anyone: PrAccess,
    ) -> Result<(), PrError> {
        let sees = members.0 & (PrAccess::STATUS_MEMBERS.0 | PrAccess::MEMBERSHIP_MEMBERS.0) != 0
            || anyone.contains(PrAccess::OWNED_ANYONE);
        allow(
            self.may(entry, members, anyone)?
                || (sees && self.is_in(PtsId::PTSVIEWERS)?)
                || self.is_admin()?,
        )
    }

    /// Refuses those who may not change the members of a group.
    pub(super) fn check_change_members(
        &self,
        group: &Entry,
        members: PrAccess,
        anyone: PrAccess,
    ) -> Result<(), PrError> {
        if self.is_admin()? {
            return Ok(());
        }
        allow(!self.config.restricted && self.may(group, members, anyone)?)
    }

    /// Refuses those who may not change the fields of an entry.
    pub(super) fn check_change(&self, entry: &Entry) -> Result<(), PrError> {
        self.check_change_members(entry, PrAccess(0), PrAccess(0))
    }

    /// Refuses all but administrators.
    pub(super) fn check_admin(&self) -> Result<(), PrError> {
        allow(self.is_admin()?)
    }

    /// Refuses all but the owner, those in the owning group, and administrators.
    pub(super) fn check_owner(&self, entry: &Entry) -> Result<(), PrError> {
        if self.is_admin()? {
            return Ok(());
        }
        let owns = self.id == entry.owner || self.is_in(entry.owner)?;
        allow(owns && !self.config.restricted)
    }

    /// By the entry's access bits, or as its owner or itself.
    fn may(&self, entry: &Entry, members: PrAccess, anyone: PrAccess) -> Result<bool, PrError> {
        let access = if entry.flags.has(Flags::ACCESS) {
            entry.flags.access().0
        } else {
            // The access bits of an entry without the flag are as good as the defaults.
            entry.flags.access().0 | self.config.default_access(entry.is_group()).0
        };
        if access & anyone.0 != 0 {
            return Ok(true);
        }
        if entry.owner.0 != 0 && (self.id == entry.owner || self.is_in(entry.owner)?) {
            return Ok(true);
        }
        Ok(match entry.id.0 {
            1.. => self.id == entry.id,
            0 => false,
            _ => {
                let listed = members == ANY_ACCESS || access & members.0 != 0;
                listed && self.is_in(entry.id)?
            }
        })
    }
}

fn allow(allowed: bool) -> Result<(), PrError> {
    if allowed {
        Ok(())
    } else {
        Err(PrError::Permission)
    }
}
