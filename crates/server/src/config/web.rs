//! The section `[web]`: where the page of the server is shown.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

/// The page over HTTP. At a socket in the run directory it is always there.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebSection {
    /// The address and TCP port to listen on; by default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// A file with the token that viewers need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<PathBuf>,
}

impl WebSection {
    /// Whether what is written makes sense.
    pub fn check(&self) -> anyhow::Result<()> {
        let Some(address) = self.listen else {
            return Ok(());
        };
        ensure!(
            address.port() != 0,
            "web.listen has the port 0: name one, such as 9110"
        );
        ensure!(
            self.token.is_some() || address.ip().is_loopback(),
            "web.listen = \"{address}\" is for other machines too, and the page names volumes, users and \
             clients: write a token into a file and name it with web.token, or listen on 127.0.0.1"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_need_a_token() {
        let read = |text: &str| -> Result<WebSection, String> {
            let section: WebSection = toml::from_str(text).map_err(|error| error.to_string())?;
            section.check().map_err(|error| error.to_string())?;
            Ok(section)
        };
        assert_eq!(read("").unwrap().listen, None);
        for text in [
            "listen = \"127.0.0.1:9110\"",
            "listen = \"[::1]:9110\"",
            "listen = \"192.0.2.10:9110\"\ntoken = \"/etc/afar/web.token\"",
        ] {
            assert!(read(text).is_ok(), "{text}");
        }
        for text in [
            "listen = \"0.0.0.0:9110\"",
            "listen = \"[::]:9110\"",
            "listen = \"[::ffff:127.0.0.1]:9110\"",
            "listen = \"192.0.2.10:9110\"",
            "listen = \"127.0.0.1:0\"",
            "listen = \"127.0.0.1\"",
            "tokens = \"/etc/afar/web.token\"",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
