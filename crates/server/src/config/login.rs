//! The section `[login]`: the service by which users without a KDC get their tokens.

use std::path::PathBuf;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::{Listen, within};

/// The service for logins.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoginSection {
    /// Whether it is there; by default, if this server has users and groups, and there is a key.
    pub enabled: Enabled,
    /// The address to listen on, if it is another one than the servers'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<Listen>,
    /// The TCP port.
    pub port: Port,
    /// A certificate in PEM, with its chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Its private key in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_key: Option<PathBuf>,
    /// Minutes that tokens hold.
    pub lifetime_minutes: Minutes,
}

with_default! {
    /// Whether the service is there.
    Enabled(bool) = true
}
with_default! {
    /// The TCP port of the service.
    Port(u16) = afar_login::PORT
}
with_default! {
    /// Minutes that tokens hold: 10 hours.
    Minutes(u32) = 600
}

impl LoginSection {
    /// Whether what is written makes sense.
    pub fn check(&self) -> anyhow::Result<()> {
        within("login.lifetime_minutes", self.lifetime_minutes.0, 5, 43_200)?;
        ensure!(self.port.0 != 0, "login.port is 0; omit it for 7002");
        ensure!(
            self.certificate_key.is_none() || self.certificate.is_some(),
            "login.certificate_key is set without login.certificate; name both, or neither"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let check = |text: &str| {
            let section: LoginSection = toml::from_str(text).unwrap();
            section.check().map_err(|error| error.to_string())
        };
        assert_eq!(check(""), Ok(()));
        assert_eq!(check("certificate = \"/etc/a.pem\""), Ok(()));
        for (text, says) in [
            ("lifetime_minutes = 1", "5 to 43200"),
            ("lifetime_minutes = 43201", "5 to 43200"),
            ("port = 0", "login.port"),
            ("certificate_key = \"/etc/a.pem\"", "both"),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
