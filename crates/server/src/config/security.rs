//! The section `[security]`: keys, realms, administrators, and what callers must at least do.

use std::path::PathBuf;

use afar_security::Level;
use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::Role;

/// The identities that callers can have, and how they prove them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecuritySection {
    /// Files of keys; none: where a server's own key lies.
    pub keys: Vec<PathBuf>,
    /// Realms whose users are users of the cell, besides the one of its name.
    pub realms: Vec<String>,
    /// Users who may administer servers.
    pub superusers: Vec<String>,
    /// A file with more of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub userlist: Option<PathBuf>,
    /// Whether names of users may have dots.
    pub allow_dotted_principals: bool,
    /// Whether tickets of single DES are taken.
    pub danger_allow_des: bool,
    /// The least that callers must do, by role.
    pub minimum: Minimum,
}

/// The least that callers must do, by role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Minimum {
    /// The file server.
    pub file: Floor,
    /// The volume server.
    pub vol: Floor,
    /// The volume location server.
    pub vl: Floor,
    /// The protection server.
    pub pt: Floor,
    /// The overseer's status.
    pub bos: Floor,
}

/// The least that callers of a role must do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Floor {
    /// Nothing: they may stay anonymous.
    #[default]
    None,
    /// Prove who they are.
    Clear,
    /// Protect the first bytes of each packet as well.
    Auth,
    /// Encrypt.
    Crypt,
}

impl Floor {
    /// The level of rxkad; `None` if callers may do without.
    pub const fn level(self) -> Option<Level> {
        match self {
            Self::None => None,
            Self::Clear => Some(Level::Clear),
            Self::Auth => Some(Level::Auth),
            Self::Crypt => Some(Level::Crypt),
        }
    }
}

impl Minimum {
    /// Of a role.
    pub const fn of(&self, role: Role) -> Floor {
        match role {
            Role::File => self.file,
            Role::Vol => self.vol,
            Role::Vl => self.vl,
            Role::Pt => self.pt,
            Role::Bos => self.bos,
        }
    }
}

impl SecuritySection {
    /// Whether what is written makes sense.
    pub fn check(&self) -> anyhow::Result<()> {
        let single = |text: &String| !text.is_empty() && !text.contains(char::is_whitespace);
        for realm in &self.realms {
            ensure!(
                single(realm) && !realm.contains('@'),
                "security.realms: {realm:?} is not a realm; write it as \"EXAMPLE.ORG\""
            );
        }
        for user in &self.superusers {
            ensure!(
                single(user) && !user.starts_with('@'),
                "security.superusers: {user:?} is not a user; write \"ann\", \"ann.admin\" or \
                 \"ann@OTHER.REALM\""
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> anyhow::Result<SecuritySection> {
        let section: SecuritySection = toml::from_str(text)?;
        section.check()?;
        Ok(section)
    }

    #[test]
    fn levels_are_by_role_and_nothing_is_asked_by_default() {
        let section = parse("[minimum]\nvol = \"crypt\"\npt = \"clear\"\n").unwrap();
        let levels = Role::ALL.map(|role| section.minimum.of(role).level());
        let (clear, crypt) = (Some(Level::Clear), Some(Level::Crypt));
        assert_eq!(levels, [None, clear, None, crypt, None]);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, says) in [
            ("realms = [\"A B\"]", "is not a realm"),
            ("superusers = [\"\"]", "is not a user"),
            ("[minimum]\nfile = \"private\"", "private"),
            ("[minimum]\nfiles = \"clear\"", "files"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}
