//! The section `[oob]`: files and volumes by TCP, out of band.

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::Role;

/// Files and volumes by TCP, out of band.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OobSection {
    /// Whether clients are offered it, and dumps forwarded so.
    pub enabled: OobEnabled,
    /// The TCP port.
    pub port: OobPort,
}

with_default! {
    /// Whether clients are offered it, and dumps forwarded so. They use it as long as it is not much slower than Rx.
    OobEnabled(bool) = true
}
with_default! {
    /// The TCP port: by default the number that the file server has in UDP.
    OobPort(u16) = Role::File.port()
}

impl OobSection {
    /// Whether what is written makes sense.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(self.port.0 != 0, "oob.port is 0; omit it for 7000");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let check = |text: &str| {
            let section: OobSection = toml::from_str(text).unwrap();
            section.check().map_err(|error| error.to_string())
        };
        assert_eq!(check(""), Ok(()));
        assert_eq!(check("enabled = true\nport = 7100"), Ok(()));
        assert!(check("port = 0").unwrap_err().contains("oob.port"));
    }
}
