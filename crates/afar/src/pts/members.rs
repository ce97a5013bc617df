//! Members of groups.

use afar_admin::pts::{self, PtsError};
use afar_types::PtsId;
use clap::Args;

use super::report::{List, Names};
use super::{Outcome, Pts, PtsCommon, words};

/// Options of `pts adduser` and `pts removeuser`.
#[derive(Debug, Args)]
pub(crate) struct MembershipArgs {
    /// user name
    #[arg(long, value_name = "user name", required = true)]
    user: Vec<String>,
    /// group name
    #[arg(long, value_name = "group name", required = true)]
    group: Vec<String>,
    #[command(flatten)]
    pub(super) common: PtsCommon,
}

/// Options of `pts membership`.
#[derive(Debug, Args)]
pub(crate) struct MembersArgs {
    /// user or group name or id
    #[arg(long, value_name = "user or group name or id", required = true)]
    nameorid: Vec<String>,
    /// show supergroups
    #[arg(long)]
    supergroups: bool,
    /// expand super and sub group membership
    #[arg(long)]
    expandgroups: bool,
    #[command(flatten)]
    pub(super) common: PtsCommon,
}

pub(super) async fn add(pts: &Pts<'_>, args: &MembershipArgs) -> anyhow::Result<Outcome> {
    each(pts, args, ("add", "to"), async |user, group| {
        pts::add_to_group(pts.servers, user, group).await
    })
    .await
}

pub(super) async fn remove(pts: &Pts<'_>, args: &MembershipArgs) -> anyhow::Result<Outcome> {
    each(pts, args, ("remove", "from"), async |user, group| {
        pts::remove_from_group(pts.servers, user, group).await
    })
    .await
}

/// Does the same with each user and group.
async fn each(
    pts: &Pts<'_>,
    args: &MembershipArgs,
    (verb, preposition): (&str, &str),
    step: impl AsyncFn(&str, &str) -> Result<(), PtsError>,
) -> anyhow::Result<Outcome> {
    for user in &args.user {
        for group in &args.group {
            if let Err(error) = step(user, group).await {
                let ignored = pts.ignored();
                let what =
                    format!("; unable to {verb} user {user} {preposition} group {group} {ignored}");
                words::tell(&error, &what);
                if !pts.force {
                    return Ok(Outcome::Failed);
                }
            }
        }
    }
    Ok(Outcome::Done)
}

/// What cannot be listed is told, and does not fail the command: so has `pts` it.
pub(super) async fn list(pts: &mut Pts<'_>, args: &MembersArgs) -> anyhow::Result<Outcome> {
    let Some(found) = pts.find(&args.nameorid).await else {
        return Ok(Outcome::Failed);
    };
    for (id, name) in &found {
        let group = id.is_group();
        let (names, list) = if args.expandgroups {
            let names = pts::expanded_elements(pts.servers, *id).await;
            (names, [List::ExpandedGroups, List::ExpandedMembers])
        } else {
            let names = pts::elements(pts.servers, *id).await;
            (names, [List::Groups, List::Members])
        };
        let list = list[usize::from(group)];
        let what = "; unable to get membership of";
        if !show(pts, (*id, name), list, names, what)? {
            continue;
        }
        if args.supergroups && group {
            let names = pts::super_groups(pts.servers, *id).await;
            let what = "; unable to get supergroups of";
            show(pts, (*id, name), List::Groups, names, what)?;
        }
    }
    Ok(Outcome::Done)
}

/// Shows names, or why there are none; tells which of the two.
pub(super) fn show(
    pts: &mut Pts<'_>,
    (id, name): (PtsId, &str),
    list: List,
    names: Result<Vec<String>, PtsError>,
    what: &str,
) -> anyhow::Result<bool> {
    let id = id.0;
    match names {
        Ok(names) => {
            let names = Names {
                name,
                id,
                list,
                names,
            };
            pts.output.report(&names)?;
            Ok(true)
        }
        Err(error) => {
            words::tell(&error, &format!("{what} {name} (id: {id})"));
            Ok(false)
        }
    }
}
