//! Lists of ids: members, groups, what is owned, and the CPS.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use afar_rpc::Identity;
use afar_types::{PrAccess, PrIds, PtsId};

use super::access::{ANY_ACCESS, Access, all_groups};
use super::rows::{Entry, LEAST, Rows, groups, members, owned};
use super::{PrError, ProtectionConfig, name};
use crate::kv::View;

/// Ids that a list can hold.
pub(super) const LIST_MAX: usize = PrIds::MAX;

/// Ids in one answer of ListOwned (OpenAFS's PR_MAXGROUPS).
const OWNED_MAX: usize = 5000;

/// What in place of a user's id means that only the host counts (OpenAFS's PRBADID).
const NO_USER: PtsId = LEAST;

/// PR_GetCPS: all ids by which ACLs may grant a user rights, ascending, each once.
pub(super) fn cps(
    rows: View<'_>,
    config: &ProtectionConfig,
    identity: &Identity,
    id: PtsId,
) -> Result<PrIds, PrError> {
    let access = Access::new(rows, config, identity)?;
    access.check_known()?;
    let entry = rows.entry(id)?;
    access.check_see(
        &entry,
        PrAccess::MEMBERSHIP_MEMBERS,
        PrAccess::MEMBERSHIP_ANYONE,
    )?;
    list(user_cps(rows, config, &entry)?)
}

/// PR_GetCPS2: the same for a user at a host.
pub(super) fn cps_at_host(
    rows: View<'_>,
    config: &ProtectionConfig,
    identity: &Identity,
    id: PtsId,
    host: u32,
) -> Result<PrIds, PrError> {
    let mut cps = BTreeSet::new();
    if id != NO_USER {
        let entry = rows.entry(id)?;
        let access = Access::new(rows, config, identity)?;
        access.check_see(
            &entry,
            PrAccess::MEMBERSHIP_MEMBERS,
            PrAccess::MEMBERSHIP_ANYONE,
        )?;
        cps = user_cps(rows, config, &entry)?;
    }
    add_host(rows, host, &mut cps)?;
    list(cps)
}

/// PR_GetHostCPS: the groups that a host is in, by its own entry or one of its networks'.
pub(super) fn host_cps(
    rows: View<'_>,
    config: &ProtectionConfig,
    identity: &Identity,
    host: u32,
) -> Result<PrIds, PrError> {
    Access::new(rows, config, identity)?.check_known()?;
    let mut cps = BTreeSet::new();
    add_host(rows, host, &mut cps)?;
    list(cps)
}

fn user_cps(
    rows: View<'_>,
    config: &ProtectionConfig,
    entry: &Entry,
) -> Result<BTreeSet<PtsId>, PrError> {
    let mut cps = if entry.is_group() {
        // spec: afs-rpc#what-grants-rights
        // OpenAFS answers for a group with its members, and what these are in.
        let mut cps = BTreeSet::new();
        for member in members(rows, entry.id, LEAST) {
            let member = member?;
            cps.insert(member);
            if member.is_group() {
                cps.extend(all_groups(rows, config, member)?);
            }
            if cps.len() > LIST_MAX {
                return Err(PrError::TooMany);
            }
        }
        cps
    } else {
        all_groups(rows, config, entry.id)?
    };
    cps.insert(PtsId::ANYUSER);
    cps.insert(entry.id);
    let nobody = entry.id == PtsId::ANONYMOUS || entry.id == PtsId::ANYUSER;
    // spec: afs-rpc#what-grants-rights
    // Users of other cells are in their cell's group instead.
    if !nobody && name::at_cell(&entry.name).is_none() {
        cps.insert(PtsId::AUTHUSER);
    }
    Ok(cps)
}

/// Adds the groups of the entries named as the host and as its networks, such as `10.1.2.0`.
// spec: afs-rpc#what-grants-rights
fn add_host(rows: View<'_>, host: u32, cps: &mut BTreeSet<PtsId>) -> Result<(), PrError> {
    for bits in [0, 8, 16, 24] {
        let network = host >> bits << bits;
        if network == 0 {
            break;
        }
        let name = Ipv4Addr::from(network).to_string();
        if let Some(id) = rows.id_of(name.as_bytes())? {
            for group in elements(rows, &rows.entry(id)?) {
                cps.insert(group?);
            }
        }
    }
    Ok(())
}

/// Members of a group, or groups of a user.
fn elements<'a>(
    rows: View<'a>,
    entry: &Entry,
) -> Box<dyn Iterator<Item = Result<PtsId, PrError>> + 'a> {
    if entry.is_group() {
        Box::new(members(rows, entry.id, LEAST))
    } else {
        Box::new(groups(rows, entry.id, LEAST))
    }
}

/// PR_ListElements: the members of a group, or the groups a user is in.
pub(super) fn list_elements(
    rows: View<'_>,
    config: &ProtectionConfig,
    identity: &Identity,
    id: PtsId,
) -> Result<PrIds, PrError> {
    let access = Access::new(rows, config, identity)?;
    let entry = rows.entry(id)?;
    access.check_see(
        &entry,
        PrAccess::MEMBERSHIP_MEMBERS,
        PrAccess::MEMBERSHIP_ANYONE,
    )?;
    if usize::try_from(entry.count).is_ok_and(|count| count > LIST_MAX) {
        return Err(PrError::TooMany);
    }
    list(elements(rows, &entry).collect::<Result<Vec<_>, _>>()?)
}

/// PR_ListSuperGroups: the groups a group is in.
pub(super) fn list_super_groups(
    rows: View<'_>,
    config: &ProtectionConfig,
    identity: &Identity,
    id: PtsId,
) -> Result<(PrIds, bool), PrError> {
    let access = Access::new(rows, config, identity)?;
    access.check_known()?;
    let entry = rows.entry(id)?;
    access.check_see(
        &entry,
        PrAccess::MEMBERSHIP_MEMBERS,
        PrAccess::MEMBERSHIP_ANYONE,
    )?;
    if !entry.is_group() {
        return Ok((PrIds::default(), false));
    }
    let mut above = groups(rows, id, LEAST)
        .take(LIST_MAX + 1)
        .collect::<Result<Vec<_>, _>>()?;
    let over = above.len() > LIST_MAX;
    above.truncate(LIST_MAX);
    Ok((list(above)?, over))
}

/// PR_ListOwned: the groups that somebody owns, or with id 0 those whose owner is gone. What comes
/// back beside them is where to go on, 0 at the end.
///
/// OpenAFS goes on from places in its file, of which clients only know 0 and 1 apart; here it is
/// the id of the next group.
pub(super) fn list_owned(
    rows: View<'_>,
    config: &ProtectionConfig,
    identity: &Identity,
    id: PtsId,
    from: i32,
) -> Result<(PrIds, i32), PrError> {
    let access = Access::new(rows, config, identity)?;
    if id.0 == 0 {
        access.check_admin()?;
    } else {
        let entry = rows.entry(id)?;
        access.check_see(&entry, ANY_ACCESS, PrAccess::OWNED_ANYONE)?;
    }
    let from = if from < 0 { PtsId(from) } else { LEAST };
    let mut found = owned(rows, id, from)
        .take(OWNED_MAX + 1)
        .collect::<Result<Vec<_>, _>>()?;
    let next = found.get(OWNED_MAX).map_or(0, |next| next.0);
    found.truncate(OWNED_MAX);
    Ok((list(found)?, next))
}

fn list(ids: impl IntoIterator<Item = PtsId>) -> Result<PrIds, PrError> {
    PrIds::new(Vec::from_iter(ids)).map_err(|_| PrError::TooMany)
}
