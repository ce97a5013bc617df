//! Names of hosts and their addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use parking_lot::Mutex;

/// Names of hosts, and their addresses, that were looked up.
#[derive(Debug, Default)]
pub(super) struct HostNames {
    names: Mutex<BTreeMap<Ipv4Addr, String>>,
}

impl HostNames {
    /// The address that a name, or an address in digits, stands for. Servers are known by
    /// addresses that others can use too, so that one on the loopback is the last choice.
    pub(super) fn address_of(&self, name: &str) -> Option<Ipv4Addr> {
        if let Ok(address) = name.parse() {
            return Some(address);
        }
        let found = lookup(name);
        let outside = |found: &[Ipv4Addr]| found.iter().copied().find(|a| !a.is_loopback());
        outside(&found)
            .or_else(|| {
                // A name that leads to the loopback means this machine.
                (!found.is_empty())
                    .then(own_name)
                    .flatten()
                    .and_then(|own| outside(&lookup(&own)))
            })
            .or_else(|| found.first().copied())
    }

    /// The name of the host with this address, or the address in digits.
    pub(super) fn name_of(&self, address: Ipv4Addr) -> String {
        let mut names = self.names.lock();
        let name = names.entry(address).or_insert_with(|| {
            let name = dns_lookup::lookup_addr(&IpAddr::V4(address));
            name.unwrap_or_else(|_| address.to_string())
        });
        name.clone()
    }
}

fn lookup(name: &str) -> Vec<Ipv4Addr> {
    let found = (name, 0).to_socket_addrs().into_iter().flatten();
    let v4 = found.filter_map(|address| match address {
        SocketAddr::V4(address) => Some(*address.ip()),
        SocketAddr::V6(_) => None,
    });
    v4.collect()
}

fn own_name() -> Option<String> {
    dns_lookup::get_hostname().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_digits_are_themselves() {
        let hosts = HostNames::default();
        assert_eq!(
            hosts.address_of("192.0.2.7"),
            Some(Ipv4Addr::new(192, 0, 2, 7))
        );
        assert_eq!(hosts.address_of("no such host"), None);
    }
}
