//! The pair of network namespaces a cell lives in: servers in one, clients in the other.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::sh;

/// Addresses in a pair made here. Each pair is a world of its own, so all can use the same.
const SERVER: &str = "10.97.0.1";
const CLIENT: &str = "10.97.0.2";
/// The device at both ends of the cable.
pub(crate) const DEVICE: &str = "afs0";

/// Two namespaces and the addresses in them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pair {
    pub(super) server: String,
    pub(super) client: String,
    pub(crate) server_address: String,
    pub(crate) client_address: Option<String>,
    /// Made here, so to be removed at the end.
    pub(super) own: bool,
}

impl Pair {
    /// Makes two namespaces joined by a virtual cable without delay.
    pub(crate) fn make(tag: &str) -> Result<Self> {
        let pair = Self {
            server: format!("{tag}-srv"),
            client: format!("{tag}-cli"),
            server_address: SERVER.to_owned(),
            client_address: Some(CLIENT.to_owned()),
            own: true,
        };
        pair.remove();
        let made = pair.build();
        if made.is_err() {
            pair.remove();
        }
        made.map(|()| pair)
    }

    fn build(&self) -> Result<()> {
        let (server, client) = (self.server.as_str(), self.client.as_str());
        ip(&["netns", "add", server])?;
        ip(&["netns", "add", client])?;
        ip(&[
            "link", "add", DEVICE, "netns", server, "type", "veth", "peer", "name", DEVICE,
            "netns", client,
        ])?;
        for (name, address) in [(server, SERVER), (client, CLIENT)] {
            ip(&[
                "-n",
                name,
                "address",
                "add",
                &format!("{address}/24"),
                "dev",
                DEVICE,
            ])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", DEVICE, "up"])?;
        }
        Ok(())
    }

    /// Uses namespaces that are there; `client` is by default the `-cli` beside a `-srv`.
    pub(super) fn find(server: &str, client: Option<&str>, address: Option<&str>) -> Result<Self> {
        let there = sh::capture(Command::new("ip").args(["netns", "list"]))?;
        let exists = |name: &str| {
            there
                .lines()
                .any(|line| line.split_whitespace().next() == Some(name))
        };
        let beside = server
            .strip_suffix("-srv")
            .map(|stem| format!("{stem}-cli"));
        let client = match (client, beside) {
            (Some(name), _) => name.to_owned(),
            (None, Some(name)) if exists(&name) => name,
            _ => server.to_owned(),
        };
        for name in [server, &client] {
            if !exists(name) {
                bail!("no network namespace {name}; `ip netns list` shows those there are");
            }
        }
        let server_address = match address {
            Some(address) => address.to_owned(),
            None => first_address(server)?
                .with_context(|| format!("namespace {server} has no global IPv4 address"))?,
        };
        let client_address = first_address(&client)?;
        Ok(Self {
            server: server.to_owned(),
            client,
            server_address,
            client_address,
            own: false,
        })
    }

    /// Removes what was made here; names that are not there are no trouble.
    pub(crate) fn remove(&self) {
        if self.own {
            for name in [&self.server, &self.client] {
                sh::succeeds(Command::new("ip").args(["netns", "del", name]));
            }
        }
    }
}

/// Removes the named namespaces of which that is so.
pub(crate) fn remove(is_unwanted: impl Fn(&str) -> bool) -> Result<()> {
    let there = sh::capture(Command::new("ip").args(["netns", "list"]))?;
    let names = there
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    for name in names.filter(|name| is_unwanted(name)) {
        ip(&["netns", "del", name])?;
    }
    Ok(())
}

fn ip(args: &[&str]) -> Result<()> {
    sh::capture(Command::new("ip").args(args)).map(drop)
}

fn first_address(namespace: &str) -> Result<Option<String>> {
    let text = sh::capture(Command::new("ip").args([
        "-n", namespace, "-4", "-o", "addr", "show", "scope", "global",
    ]))?;
    Ok(parse_address(&text))
}

/// The first address in what `ip -4 -o addr` prints.
fn parse_address(text: &str) -> Option<String> {
    let mut words = text
        .lines()
        .next()?
        .split_whitespace()
        .skip_while(|word| *word != "inet");
    let address = words.nth(1)?;
    Some(address.split('/').next().unwrap_or(address).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_address_is_taken() {
        let text = "2: wan0    inet 10.99.1.1/30 scope global wan0\\  valid_lft forever\n\
                    3: x    inet 10.0.0.1 scope global x\n";
        assert_eq!(parse_address(text).as_deref(), Some("10.99.1.1"));
        assert_eq!(parse_address(""), None);
    }
}
