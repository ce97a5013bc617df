//! What is found, as text and as JSON.

use std::fmt;

use afar_admin::pts::Examined;
use afar_types::{PrEntry, PtsId};
use serde::Serialize;

/// An entry that was made.
#[derive(Debug, Serialize)]
pub(super) struct Made<'a> {
    pub(super) name: &'a str,
    pub(super) id: i32,
}

impl fmt::Display for Made<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, id } = self;
        let kind = if *id < 0 { "group" } else { "User" };
        write!(f, "{kind} {name} has id {id}")
    }
}

/// Names under a title that tells whose they are.
#[derive(Debug, Serialize)]
pub(super) struct Names<'a> {
    pub(super) name: &'a str,
    pub(super) id: i32,
    /// What they are to it.
    pub(super) list: List,
    pub(super) names: Vec<String>,
}

/// What names in a list are to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum List {
    /// Members of a group.
    Members,
    /// Groups it is in.
    Groups,
    /// Users in it by way of groups in groups.
    ExpandedMembers,
    /// Groups it is in by way of groups in groups.
    ExpandedGroups,
    /// Groups it owns.
    Owned,
}

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, id, .. } = self;
        match self.list {
            List::Members => write!(f, "Members of {name} (id: {id}) are:")?,
            List::ExpandedMembers => write!(f, "Expanded Members of {name} (id: {id}) are:")?,
            List::Groups => write!(f, "Groups {name} (id: {id}) is a member of:")?,
            List::ExpandedGroups => {
                write!(f, "Expanded Groups {name} (id: {id}) is a member of:")?;
            }
            List::Owned if *id == 0 => write!(f, "Orphaned groups are:")?,
            List::Owned => write!(f, "Groups owned by {name} (id: {id}) are:")?,
        }
        self.names
            .iter()
            .try_for_each(|name| write!(f, "\n  {name}"))
    }
}

/// An entry, in full.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    name: String,
    id: i32,
    owner: String,
    creator: String,
    membership: i32,
    flags: String,
    /// Groups it may still make; `None` if any number.
    group_quota: Option<i32>,
}

impl From<Examined> for Entry {
    fn from(examined: Examined) -> Self {
        let entry = examined.entry;
        Self {
            name: entry.name.to_string(),
            id: entry.id.0,
            owner: examined.owner,
            creator: examined.creator,
            membership: entry.count,
            flags: entry.access.to_string(),
            group_quota: (!examined.administers).then_some(entry.n_groups),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            id,
            owner,
            creator,
            membership,
            flags,
            group_quota,
        } = self;
        writeln!(
            f,
            "Name: {name}, id: {id}, owner: {owner}, creator: {creator},"
        )?;
        write!(
            f,
            "  membership: {membership}, flags: {flags}, group quota: "
        )?;
        match group_quota {
            Some(quota) => write!(f, "{quota}."),
            None => write!(f, "unlimited."),
        }
    }
}

/// A row of a list of entries.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    name: String,
    id: i32,
    owner: i32,
    creator: i32,
}

impl Row {
    /// What stands above rows.
    pub(super) const HEADING: &str = "Name                          ID  Owner Creator\n";
}

impl From<&PrEntry> for Row {
    fn from(entry: &PrEntry) -> Self {
        Self {
            name: entry.name.to_string(),
            id: entry.id.0,
            owner: entry.owner.0,
            creator: entry.creator.0,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            id,
            owner,
            creator,
        } = self;
        write!(f, "{name:<25} {id:>6} {owner:>6} {creator:>7} ")
    }
}

/// The greatest ids.
#[derive(Debug, Serialize)]
pub(super) struct Max {
    user: i32,
    group: i32,
}

impl From<(PtsId, PtsId)> for Max {
    fn from((user, group): (PtsId, PtsId)) -> Self {
        Self {
            user: user.0,
            group: group.0,
        }
    }
}

impl fmt::Display for Max {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, group } = self;
        write!(f, "Max user id is {user} and max group id is {group}.")
    }
}
