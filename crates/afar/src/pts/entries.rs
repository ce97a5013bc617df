//! Users and groups themselves.

use afar_admin::pts::{self, PtsError};
use afar_types::PtsId;
use clap::Args;

use super::members::show;
use super::report::{Entry, List, Made, Max, Row};
use super::users::NewCredentials;
use super::{Outcome, Pts, PtsCommon, words};
use crate::output;

/// Options of `pts createuser`.
#[derive(Debug, Args)]
pub(crate) struct CreateuserArgs {
    /// user name
    #[arg(long, value_name = "user name", required = true)]
    name: Vec<String>,
    /// user id
    #[arg(long, value_name = "user id")]
    id: Vec<String>,
    #[command(flatten)]
    credentials: NewCredentials,
    #[command(flatten)]
    pub(super) common: PtsCommon,
}

/// Options of `pts creategroup`.
#[derive(Debug, Args)]
pub(crate) struct CreategroupArgs {
    /// group name
    #[arg(long, value_name = "group name", required = true)]
    name: Vec<String>,
    /// owner of the group
    #[arg(long, value_name = "owner of the group")]
    owner: Option<String>,
    /// id (negated) for the group
    #[arg(long, value_name = "id (negated) for the group")]
    id: Vec<String>,
    #[command(flatten)]
    pub(super) common: PtsCommon,
}

/// Options of `pts chown`.
#[derive(Debug, Args)]
pub(crate) struct ChownArgs {
    /// group name
    #[arg(long, value_name = "group name", required = true)]
    name: String,
    /// new owner
    #[arg(long, value_name = "new owner", required = true)]
    owner: String,
    #[command(flatten)]
    pub(super) common: PtsCommon,
}

/// Options of `pts rename`.
#[derive(Debug, Args)]
pub(crate) struct RenameArgs {
    /// old name
    #[arg(long, value_name = "old name", required = true)]
    oldname: String,
    /// new name
    #[arg(long, value_name = "new name", required = true)]
    newname: String,
    #[command(flatten)]
    pub(super) common: PtsCommon,
}

/// Options of `pts listentries`.
#[derive(Debug, Args)]
pub(crate) struct ListentriesArgs {
    /// list user entries
    #[arg(long)]
    users: bool,
    /// list group entries
    #[arg(long)]
    groups: bool,
    #[command(flatten)]
    pub(super) common: PtsCommon,
}

/// Options of `pts setmax`.
#[derive(Debug, Args)]
pub(crate) struct SetmaxArgs {
    /// group max
    #[arg(long, value_name = "group max")]
    group: Option<String>,
    /// user max
    #[arg(long, value_name = "user max")]
    user: Option<String>,
    #[command(flatten)]
    pub(super) common: PtsCommon,
}

/// A number as C reads them: decimal, `0x…` or `0…`. Gives back what is none.
pub(super) fn number(text: &str) -> Result<i32, &str> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let hex = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"));
    let number = match (hex, digits.strip_prefix('0')) {
        (Some(hex), _) => i64::from_str_radix(hex, 16),
        (None, Some(octal)) if !octal.is_empty() => i64::from_str_radix(octal, 8),
        _ => digits.parse(),
    };
    // One sign is taken already, and there is none behind 0x.
    let unsigned = number.ok().filter(|_| !digits.contains(['+', '-']));
    unsigned
        .and_then(|number| i32::try_from(sign * number).ok())
        .ok_or(text)
}

/// The id given for the entry of this place in the list, if there is one: negative for groups.
/// `Err` when it cannot be one, which is told.
fn given_id(ids: &[String], place: usize, group: bool) -> Result<Option<PtsId>, Outcome> {
    let Some(text) = ids.get(place) else {
        return Ok(None);
    };
    let kind = if group { "group" } else { "user" };
    let prefix = if group { "group " } else { "" };
    match number(text) {
        Err(text) => words::tell_no_number(&format!("because {prefix}id was: '{text}'")),
        Ok(0) => words::tell_usage(&format!("0 isn't a valid {kind} id; aborting")),
        Ok(id) if (id < 0) == group => return Ok(Some(PtsId(id))),
        Ok(id) => {
            let sign = if group { "negative" } else { "positive" };
            words::tell_argument(&format!("because {kind} id {id} was not {sign}"));
        }
    }
    Err(Outcome::Failed)
}

pub(super) async fn createuser(
    pts: &mut Pts<'_>,
    args: &CreateuserArgs,
) -> anyhow::Result<Outcome> {
    let credentials = args.credentials.read(&args.name)?;
    for (place, name) in args.name.iter().enumerate() {
        let id = match given_id(&args.id, place, false) {
            Ok(id) => id,
            Err(failed) => return Ok(failed),
        };
        let made = pts::create_user(pts.servers, name, id).await;
        let with_id = id.map_or_else(String::new, |id| format!("with id {} ", id.0));
        let ignored = pts.ignored();
        let what = format!("; unable to create user {name} {with_id}{ignored}");
        let new = made.as_ref().ok().copied();
        if !tell_made(pts, name, made, &what)? {
            return Ok(Outcome::Failed);
        }
        if let Some(id) = new {
            credentials.set(pts.servers, name, id).await?;
        }
    }
    Ok(Outcome::Done)
}

pub(super) async fn creategroup(
    pts: &mut Pts<'_>,
    args: &CreategroupArgs,
) -> anyhow::Result<Outcome> {
    let owner = args.owner.as_deref();
    for (place, name) in args.name.iter().enumerate() {
        let id = match given_id(&args.id, place, true) {
            Ok(id) => id,
            Err(failed) => return Ok(failed),
        };
        let made = pts::create_group(pts.servers, name, owner, id).await;
        let ignored = pts.ignored();
        let what = match (owner, id) {
            (None, None) => format!("; unable to create group {name} {ignored}"),
            _ => {
                let id = id.unwrap_or_default().0;
                let owned = owner.map_or_else(String::new, |owner| format!(" owned by '{owner}'"));
                let ignored = if pts.force { " (ignored)" } else { "" };
                format!("; unable to create group {name} with id {id}{owned}{ignored}")
            }
        };
        if !tell_made(pts, name, made, &what)? {
            return Ok(Outcome::Failed);
        }
    }
    Ok(Outcome::Done)
}

/// Tells what was made, or why it was not; tells whether to go on.
fn tell_made(
    pts: &mut Pts<'_>,
    name: &str,
    made: Result<PtsId, PtsError>,
    what: &str,
) -> anyhow::Result<bool> {
    match made {
        Ok(id) => {
            // Names are in lower case from then on.
            let made = Made {
                name: &name.to_ascii_lowercase(),
                id: id.0,
            };
            pts.output.report(&made)?;
            Ok(true)
        }
        Err(error) => {
            words::tell(&error, what);
            Ok(pts.force)
        }
    }
}

pub(super) async fn delete(pts: &Pts<'_>, given: &[String]) -> anyhow::Result<Outcome> {
    let Some(found) = pts.find(given).await else {
        return Ok(Outcome::Failed);
    };
    for (id, name) in found {
        if let Err(error) = pts::delete(pts.servers, id).await {
            let ignored = pts.ignored();
            words::tell(&error, &format!("deleting {name} (id: {}) {ignored}", id.0));
            if !pts.force {
                return Ok(Outcome::Failed);
            }
        }
    }
    Ok(Outcome::Done)
}

/// Fails if the last of the entries could not be shown, or none was: so has `pts` it.
pub(super) async fn examine(pts: &mut Pts<'_>, given: &[String]) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::Failed;
    for (id, _) in pts.find(given).await.unwrap_or_default() {
        outcome = match pts::examine(pts.servers, id).await {
            Ok(examined) => {
                pts.output.report(&Entry::from(examined))?;
                Outcome::Done
            }
            Err(error) => {
                words::tell(
                    &error,
                    &format!("; unable to find entry for (id: {})", id.0),
                );
                Outcome::Failed
            }
        };
    }
    Ok(outcome)
}

/// What cannot be listed is told, and does not fail the command: so has `pts` it.
pub(super) async fn listowned(pts: &mut Pts<'_>, given: &[String]) -> anyhow::Result<Outcome> {
    let Some(found) = pts.find(given).await else {
        return Ok(Outcome::Failed);
    };
    for (id, name) in &found {
        let names = pts::owned(pts.servers, *id).await;
        let what = "; unable to get owner list for";
        show(pts, (*id, name), List::Owned, names, what)?;
    }
    Ok(Outcome::Done)
}

pub(super) async fn listentries(
    pts: &mut Pts<'_>,
    args: &ListentriesArgs,
) -> anyhow::Result<Outcome> {
    let users = args.users || !args.groups;
    if !pts.json {
        output::help(Row::HEADING);
    }
    let mut start = Some(0);
    while let Some(from) = start {
        match pts::entries(pts.servers, users, args.groups, from).await {
            Ok((entries, next)) => {
                for entry in &entries {
                    pts.output.report(&Row::from(entry))?;
                }
                start = next;
            }
            Err(error) => {
                words::tell(&error, "; unable to list entries");
                return Ok(Outcome::Failed);
            }
        }
    }
    Ok(Outcome::Done)
}

pub(super) async fn chown(pts: &Pts<'_>, args: &ChownArgs) -> anyhow::Result<Outcome> {
    let (name, owner) = (&args.name, &args.owner);
    let changed = pts::change_owner(pts.servers, name, owner).await;
    let what = format!("; unable to change owner of {name} to {owner}");
    Ok(tell_changed(changed, &what))
}

pub(super) async fn rename(pts: &Pts<'_>, args: &RenameArgs) -> anyhow::Result<Outcome> {
    let (old, new) = (&args.oldname, &args.newname);
    let changed = pts::change_name(pts.servers, old, new).await;
    let what = format!("; unable to change name of {old} to {new}");
    Ok(tell_changed(changed, &what))
}

fn tell_changed(changed: Result<(), PtsError>, what: &str) -> Outcome {
    match changed {
        Ok(()) => Outcome::Done,
        Err(error) => {
            words::tell(&error, what);
            Outcome::Failed
        }
    }
}

pub(super) async fn listmax(pts: &mut Pts<'_>) -> anyhow::Result<Outcome> {
    match pts::max(pts.servers).await {
        Ok(max) => {
            pts.output.report(&Max::from(max))?;
            Ok(Outcome::Done)
        }
        Err(error) => {
            words::tell(&error, "getting maximum user id");
            Ok(Outcome::Failed)
        }
    }
}

pub(super) async fn setmax(pts: &Pts<'_>, args: &SetmaxArgs) -> anyhow::Result<Outcome> {
    if args.user.is_none() && args.group.is_none() {
        words::tell_usage("Must specify at least one of group or user.");
        return Ok(Outcome::Failed);
    }
    let mut outcome = Outcome::Done;
    for (given, kind) in [(&args.user, "User"), (&args.group, "Group")] {
        let Some(text) = given else { continue };
        outcome = match number(text).map(PtsId) {
            Err(text) => {
                words::tell_no_number(&format!("because id was: '{text}'"));
                Outcome::Failed
            }
            Ok(id) => {
                let set = if kind == "User" {
                    pts::set_max_user(pts.servers, id).await
                } else {
                    pts::set_max_group(pts.servers, id).await
                };
                tell_changed(set, &format!("so couldn't set Max {kind} Id to {}", id.0))
            }
        };
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, expected) in [
            ("7", 7),
            ("-206", -206),
            ("0", 0),
            ("0x10", 16),
            ("010", 8),
            ("-0x1", -1),
            ("2147483647", i32::MAX),
            ("-2147483648", i32::MIN),
        ] {
            assert_eq!(number(text), Ok(expected));
        }
        for text in ["", "-", "--1", "+1", "1x", "0x", "09", "2147483648", "0x-1"] {
            assert_eq!(number(text), Err(text));
        }
    }
}
