//! Members of groups.

use std::collections::BTreeSet;

use afar_net::AbortCode;
use afar_types::{PrIds, PtsId};

use super::PtsError;
use super::lookup::{ids, names};
use crate::Servers;

/// Adds a user, or a group, to a group.
///
/// # Errors
/// [`PtsError::NoEntry`] when one of the two is not known, and as for all steps.
pub async fn add_to_group(servers: &Servers, user: &str, group: &str) -> Result<(), PtsError> {
    let (user, group) = both(servers, user, group).await?;
    servers
        .pr(async |server| server.add_to_group(user, group).await)
        .await?;
    Ok(())
}

/// Removes a user, or a group, from a group.
///
/// # Errors
/// [`PtsError::NoEntry`] when one of the two is not known, and as for all steps.
pub async fn remove_from_group(servers: &Servers, user: &str, group: &str) -> Result<(), PtsError> {
    let (user, group) = both(servers, user, group).await?;
    servers
        .pr(async |server| server.remove_from_group(user, group).await)
        .await?;
    Ok(())
}

async fn both(servers: &Servers, user: &str, group: &str) -> Result<(PtsId, PtsId), PtsError> {
    match ids(servers, &[user, group]).await?[..] {
        [PtsId::ANONYMOUS, _] | [_, PtsId::ANONYMOUS] => Err(PtsError::NoEntry),
        [user, group] => Ok((user, group)),
        _ => Err(PtsError::AnswerLength),
    }
}

/// Names of the members of a group, or of the groups a user is in.
///
/// # Errors
/// As for all steps.
pub async fn elements(servers: &Servers, id: PtsId) -> Result<Vec<String>, PtsError> {
    let elements = element_ids(servers, id).await?;
    names(servers, &elements).await
}

/// Names of the groups a group is in. None where the server does not know groups in groups.
///
/// # Errors
/// As for all steps.
pub async fn super_groups(servers: &Servers, group: PtsId) -> Result<Vec<String>, PtsError> {
    let groups = super_group_ids(servers, group).await?;
    names(servers, &groups).await
}

/// Names of all users in a group, through groups in groups, or of all groups a user is in so.
///
/// # Errors
/// As for all steps.
pub async fn expanded_elements(servers: &Servers, id: PtsId) -> Result<Vec<String>, PtsError> {
    let mut seen = BTreeSet::new();
    let mut open = element_ids(servers, id).await?.into_vec();
    while let Some(next) = open.pop() {
        if !seen.insert(next) || !next.is_group() {
            continue;
        }
        let more = if id.is_group() {
            element_ids(servers, next).await?
        } else {
            super_group_ids(servers, next).await?
        };
        open.extend(more);
    }
    let wanted = seen.into_iter();
    let mut wanted: Vec<_> = wanted
        .filter(|element| element.is_group() != id.is_group())
        .collect();
    // The first made come first, be they users or groups.
    wanted.sort_by_key(|element| element.0.unsigned_abs());
    names(servers, &wanted).await
}

async fn element_ids(servers: &Servers, id: PtsId) -> Result<PrIds, PtsError> {
    let reply = servers
        .pr(async |server| server.list_elements(id).await)
        .await?;
    Ok(reply.elements)
}

async fn super_group_ids(servers: &Servers, group: PtsId) -> Result<PrIds, PtsError> {
    let reply = servers
        .pr(async |server| server.list_super_groups(group).await)
        .await;
    match reply {
        // spec: afs-rpc#unknown-operations
        Err(error) if error.aborted() == Some(AbortCode::RXGEN_OPCODE) => Ok(PrIds::default()),
        reply => Ok(reply?.groups),
    }
}
