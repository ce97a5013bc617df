//! The sections `[location]` and `[protection]`: database servers that are elsewhere, and what this one's
//! answer to whom.

use afar_dbserver::pr::ProtectionConfig;
use afar_dbserver::vl::LocationConfig;
use afar_types::{PrAccess, PtsId};
use serde::{Deserialize, Serialize};

use super::within;

/// Volume locations.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocationSection {
    /// Hosts of a cell that has others.
    pub servers: Vec<String>,
    /// Whether only administrators may list volumes.
    pub restricted_query: bool,
}

impl LocationSection {
    /// What the location server is told.
    pub fn serving(&self) -> LocationConfig {
        let mut config = LocationConfig::default();
        config.restricted_query = self.restricted_query;
        config
    }
}

/// The id of a new cell's first user: where Linux's distributions begin to number people, too.
const FIRST_USER: PtsId = PtsId(1000);

/// Users and groups.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProtectionSection {
    /// Hosts of a cell that has others.
    pub servers: Vec<String>,
    /// Whether only administrators may change anything.
    pub restricted: bool,
    /// Whether anonymous callers may look up names only.
    pub restrict_anonymous: bool,
    /// Levels of groups in groups that count.
    pub group_depth: GroupDepth,
    /// Default rights to see and change a user.
    pub user_access: UserAccess,
    /// The same of a group.
    pub group_access: GroupAccess,
}

with_default! {
    /// Levels of groups in groups.
    GroupDepth(u32) = 5
}
with_default! {
    /// Access to users, as `pts` shows it.
    UserAccess(String) = "S----".to_owned()
}
with_default! {
    /// Access to groups, as `pts` shows it.
    GroupAccess(String) = "S-M--".to_owned()
}

impl ProtectionSection {
    /// What the protection server is told.
    pub fn serving(&self, local_realms: Vec<String>) -> anyhow::Result<ProtectionConfig> {
        let access = |key: &str, text: &str| {
            PrAccess::parse(text).map_err(|why| anyhow::anyhow!("protection.{key}: {why}"))
        };
        Ok(ProtectionConfig {
            local_realms,
            restricted: self.restricted,
            restrict_anonymous: self.restrict_anonymous,
            supergroup_depth: self.group_depth.0,
            user_access: access("user_access", &self.user_access.0)?,
            group_access: access("group_access", &self.group_access.0)?,
            first_user: FIRST_USER,
        })
    }

    /// Whether what is written makes sense.
    pub fn check(&self) -> anyhow::Result<()> {
        within("protection.group_depth", self.group_depth.0, 1, 64)?;
        self.serving(Vec::new()).map(|_| ())
    }
}
