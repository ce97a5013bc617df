//! The section `[metrics]`: where what the server counts is shown.

use std::net::SocketAddr;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

/// Metrics over HTTP. At a socket in the run directory they are always there.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsSection {
    /// The address and TCP port to listen on; by default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
}

impl MetricsSection {
    /// Whether what is written makes sense.
    pub fn check(&self) -> anyhow::Result<()> {
        let port = self.listen.map(|address| address.port());
        ensure!(
            port != Some(0),
            "metrics.listen has the port 0: name one, such as 9109"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let read = |text: &str| -> Result<MetricsSection, String> {
            let section: MetricsSection =
                toml::from_str(text).map_err(|error| error.to_string())?;
            section.check().map_err(|error| error.to_string())?;
            Ok(section)
        };
        assert_eq!(read("").unwrap().listen, None);
        let section = read("listen = \"[::1]:9109\"").unwrap();
        assert_eq!(section.listen.unwrap().port(), 9109);
        for text in [
            "listen = \"127.0.0.1\"",
            "listen = \"127.0.0.1:0\"",
            "listen = 9109",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
