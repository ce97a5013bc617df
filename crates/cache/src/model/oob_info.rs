//! What a mount has out of band, for `afar fs oob`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use afar_cell::{OobOffer, OobServer, OobTransfers};

/// What a mount has out of band. Its text has a line with the threshold, 0 for none, and one for each server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OobInfo {
    /// Bytes from which a piece of a file goes out of band; `None` if none does.
    pub threshold: Option<u64>,
    /// The file servers in use.
    pub servers: Vec<OobServer>,
}

impl fmt::Display for OobInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "threshold {}", self.threshold.unwrap_or(0))?;
        for server in &self.servers {
            write!(f, "server {} ", server.address)?;
            match server.offer {
                OobOffer::NotAsked => write!(f, "not-asked")?,
                OobOffer::Offered => write!(f, "offered")?,
                OobOffer::NotOffered => write!(f, "not-offered")?,
                OobOffer::Blocked(left) => write!(f, "blocked:{}", left.as_secs())?,
            }
            write!(f, " {}", server.connections)?;
            for transfers in [server.fetches, server.stores] {
                let OobTransfers {
                    under_way,
                    bytes,
                    done,
                    aborted,
                    by_rx,
                    given_up,
                } = transfers;
                write!(
                    f,
                    " {under_way} {bytes} {done} {aborted} {by_rx} {given_up}"
                )?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// A text that does not tell what a mount has out of band.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not what a mount tells of out-of-band transfers")]
pub struct OobInfoError;

impl FromStr for OobInfo {
    type Err = OobInfoError;

    fn from_str(text: &str) -> Result<Self, OobInfoError> {
        let (mut threshold, mut servers) = (None, Vec::new());
        for line in text.lines() {
            match line.split_once(' ').ok_or(OobInfoError)? {
                ("threshold", bytes) => {
                    threshold = Some(bytes.parse::<u64>().map_err(|_| OobInfoError)?);
                }
                ("server", values) => servers.push(server(values).ok_or(OobInfoError)?),
                // What a newer mount tells besides is left out.
                _ => {}
            }
        }
        let threshold = threshold.ok_or(OobInfoError)?;
        Ok(Self {
            threshold: Some(threshold).filter(|bytes| *bytes > 0),
            servers,
        })
    }
}

fn server(values: &str) -> Option<OobServer> {
    let mut words = values.split(' ');
    let address = words.next()?.parse().ok()?;
    let offer = match words.next()? {
        "not-asked" => OobOffer::NotAsked,
        "offered" => OobOffer::Offered,
        "not-offered" => OobOffer::NotOffered,
        other => {
            let left = other.strip_prefix("blocked:")?.parse().ok()?;
            OobOffer::Blocked(Duration::from_secs(left))
        }
    };
    // More of them are a newer mount's.
    let mut number = || words.next()?.parse().ok();
    let connections = number()?;
    let mut transfers = || {
        Some(OobTransfers {
            under_way: number()?,
            bytes: number()?,
            done: number()?,
            aborted: number()?,
            by_rx: number()?,
            given_up: number()?,
        })
    };
    Some(OobServer {
        address,
        offer,
        connections,
        fetches: transfers()?,
        stores: transfers()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> OobInfo {
        let server = |port: u16, offer| OobServer {
            address: ([192, 0, 2, 1], port).into(),
            offer,
            connections: 1,
            fetches: OobTransfers {
                under_way: 2,
                bytes: 3,
                done: 4,
                aborted: 5,
                by_rx: 6,
                given_up: 7,
            },
            stores: OobTransfers {
                under_way: 8,
                bytes: 9,
                done: 10,
                aborted: 11,
                by_rx: 12,
                given_up: 13,
            },
        };
        OobInfo {
            threshold: Some(1 << 20),
            servers: vec![
                server(7000, OobOffer::Offered),
                server(7001, OobOffer::NotOffered),
                server(7002, OobOffer::NotAsked),
                server(7003, OobOffer::Blocked(Duration::from_secs(1800))),
            ],
        }
    }

    #[test]
    fn what_is_told_is_understood() {
        let info = some();
        let text = info.to_string();
        assert!(text.starts_with("threshold 1048576\nserver 192.0.2.1:7000 offered 1 2 3 "));
        assert_eq!(text.parse(), Ok(info.clone()));
        let newer = format!("{}colour blue\n", text.replace(" 12 13\n", " 12 13 14\n"));
        assert_eq!(newer.parse(), Ok(info));
        let none = OobInfo {
            threshold: None,
            servers: Vec::new(),
        };
        assert_eq!(none.to_string(), "threshold 0\n");
        assert_eq!(none.to_string().parse(), Ok(none));
    }

    #[test]
    fn other_texts_are_refused() {
        let text = some().to_string();
        for (from, to) in [
            ("threshold ", "thresholds "),
            ("1048576", "off"),
            ("not-asked", "asked"),
            ("blocked:1800", "blocked:soon"),
            ("192.0.2.1:7000", "192.0.2.1"),
            (" 12 13", " 12"),
            (" 5 ", " -5 "),
        ] {
            let wrong = text.replacen(from, to, 1);
            assert_eq!(wrong.parse::<OobInfo>(), Err(OobInfoError), "{wrong}");
        }
        assert_eq!("".parse::<OobInfo>(), Err(OobInfoError));
    }
}
