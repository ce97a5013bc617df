//! Users and groups themselves.

use afar_types::{PrAccess, PrEntry, PrNameText, PtsId};

use super::PtsError;
use super::lookup::{argument, id, names};
use crate::Servers;

/// Asks NewEntry for a user.
const USER: i32 = 0;
/// Asks NewEntry for a group, and SetMax for that of groups.
const GROUP: i32 = 2;

/// Makes a user, with this id or the next one; tells the id.
///
/// # Errors
/// When the name or id is taken or not possible, and as for all steps.
pub async fn create_user(
    servers: &Servers,
    name: &str,
    id: Option<PtsId>,
) -> Result<PtsId, PtsError> {
    create(servers, name, USER, PtsId(0), id).await
}

/// Makes a group, with this id or the next one; tells the id. Without an owner it is the caller's.
///
/// # Errors
/// When the owner is not known, the name does not fit the owner, the name or id is taken, and as
/// for all steps.
pub async fn create_group(
    servers: &Servers,
    name: &str,
    owner: Option<&str>,
    group: Option<PtsId>,
) -> Result<PtsId, PtsError> {
    let owner = match owner {
        Some(owner) => id(servers, owner).await?,
        None => PtsId(0),
    };
    create(servers, name, GROUP, owner, group).await
}

async fn create(
    servers: &Servers,
    name: &str,
    flag: i32,
    owner: PtsId,
    id: Option<PtsId>,
) -> Result<PtsId, PtsError> {
    let name = argument(name)?;
    if let Some(id) = id {
        servers
            .pr(async |server| server.i_new_entry(name.clone(), id, owner).await)
            .await?;
        return Ok(id);
    }
    let reply = servers
        .pr(async |server| server.new_entry(name.clone(), flag, owner).await)
        .await?;
    Ok(reply.id)
}

/// Removes a user or group.
///
/// # Errors
/// As for all steps.
pub async fn delete(servers: &Servers, id: PtsId) -> Result<(), PtsError> {
    servers.pr(async |server| server.delete(id).await).await?;
    Ok(())
}

/// A user or group, and what belongs to knowing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// The entry.
    pub entry: PrEntry,
    /// Name of its owner, or digits.
    pub owner: String,
    /// Name of its creator, or digits.
    pub creator: String,
    /// It administers the cell, so no quota holds for it.
    pub administers: bool,
}

/// Tells all of a user or group.
///
/// # Errors
/// As for all steps.
pub async fn examine(servers: &Servers, id: PtsId) -> Result<Examined, PtsError> {
    let entry = servers
        .pr(async |server| server.list_entry(id).await)
        .await?
        .entry;
    let related = names(servers, &[entry.owner, entry.creator]).await?;
    let [owner, creator] = <[String; 2]>::try_from(related).map_err(|_| PtsError::AnswerLength)?;
    let administrators = PtsId::ADMINISTRATORS;
    // The quota is shown instead to a caller who may not know it.
    let administers = entry.id == administrators
        || servers
            .pr(async |server| server.is_a_member_of(entry.id, administrators).await)
            .await
            .is_ok_and(|reply| reply.member != 0);
    Ok(Examined {
        entry,
        owner,
        creator,
        administers,
    })
}

/// Users, groups or both from an index on, 0 for the first, and the index of the next if there are
/// more.
///
/// # Errors
/// As for all steps.
pub async fn entries(
    servers: &Servers,
    users: bool,
    groups: bool,
    start: i32,
) -> Result<(Vec<PrEntry>, Option<i32>), PtsError> {
    let flags = i32::from(users) | i32::from(groups) << 1;
    let reply = servers
        .pr(async |server| server.list_entries(flags, start).await)
        .await?;
    // A server that does not get on would be asked for ever.
    let next = Some(reply.next_start_index).filter(|&next| next > start);
    Ok((reply.entries.into_vec(), next))
}

/// Gives a group another owner, and the name that goes with it.
///
/// # Errors
/// [`PtsError::NoEntry`] when one of them is not known, and as for all steps.
pub async fn change_owner(servers: &Servers, name: &str, owner: &str) -> Result<(), PtsError> {
    let group = id(servers, name).await?;
    let owner = id(servers, owner).await?;
    change(servers, group, PrNameText::default(), owner).await
}

/// Gives a user or group another name.
///
/// # Errors
/// [`PtsError::NoEntry`] when it is not known, and as for all steps.
pub async fn change_name(servers: &Servers, old: &str, new: &str) -> Result<(), PtsError> {
    let entry = id(servers, old).await?;
    change(servers, entry, argument(new)?, PtsId(0)).await
}

async fn change(
    servers: &Servers,
    id: PtsId,
    name: PrNameText,
    owner: PtsId,
) -> Result<(), PtsError> {
    let same = PtsId(0);
    servers
        .pr(async |server| server.change_entry(id, name.clone(), owner, same).await)
        .await?;
    Ok(())
}

/// The greatest id of users, and of groups.
///
/// # Errors
/// As for all steps.
pub async fn max(servers: &Servers) -> Result<(PtsId, PtsId), PtsError> {
    let reply = servers.pr(async |server| server.list_max().await).await?;
    Ok((reply.user, reply.group))
}

/// Sets the id above which new users get theirs.
///
/// # Errors
/// As for all steps.
pub async fn set_max_user(servers: &Servers, id: PtsId) -> Result<(), PtsError> {
    servers
        .pr(async |server| server.set_max(id, USER).await)
        .await?;
    Ok(())
}

/// Sets the id below which new groups get theirs.
///
/// # Errors
/// As for all steps.
pub async fn set_max_group(servers: &Servers, id: PtsId) -> Result<(), PtsError> {
    servers
        .pr(async |server| server.set_max(id, GROUP).await)
        .await?;
    Ok(())
}

/// Sets who may see and change an entry, and how many groups it may make; what is `None` stays.
///
/// # Errors
/// As for all steps.
pub async fn set_fields(
    servers: &Servers,
    id: PtsId,
    access: Option<PrAccess>,
    group_quota: Option<i32>,
) -> Result<(), PtsError> {
    let mut mask = 0;
    if access.is_some() {
        mask |= PrEntry::SET_ACCESS;
    }
    if group_quota.is_some() {
        mask |= PrEntry::SET_N_GROUPS;
    }
    let access = access.unwrap_or_default();
    let groups = group_quota.unwrap_or_default();
    servers
        .pr(async |server| {
            server
                .set_fields_entry(id, mask, access, groups, 0, [0; 2])
                .await
        })
        .await?;
    Ok(())
}

/// Names of the groups that somebody owns, or with id 0 of those whose owner is gone.
///
/// # Errors
/// As for all steps.
pub async fn owned(servers: &Servers, owner: PtsId) -> Result<Vec<String>, PtsError> {
    let mut found = Vec::new();
    let mut last = 0;
    loop {
        let reply = servers
            .pr(async |server| server.list_owned(owner, last).await)
            .await?;
        found.extend(names(servers, &reply.owned).await?);
        // Old servers say 1 where there is more that cannot be told.
        if matches!(reply.last, 0 | 1) || reply.last == last {
            return Ok(found);
        }
        last = reply.last;
    }
}
