//! `fs oob`: data that a mount has out of band, by TLS beside the calls.

use std::process::ExitCode;
use std::time::Duration;

use afar_cache::{OobInfo, OobOffer, OobServer, OobTransfers, xattr_name};
use clap::Args;
use jiff::Zoned;
use rustix::io::Errno;
use serde::Serialize;

use super::report::Report;
use super::setting::OfMount;
use crate::top::short_bytes;
use crate::units::parse_threshold;

/// What is wrong with a threshold that a mount refuses.
const NO_THRESHOLD: &str = "a threshold is a number of bytes, or off";

/// Options of `fs oob`.
#[derive(Debug, Args)]
pub(crate) struct OobArgs {
    /// bytes from which pieces of files go out of band, or off
    #[arg(long, value_name = "bytes, or off", value_parser = parse_threshold)]
    threshold: Option<u64>,
    /// try servers again that were blocked, or offered nothing
    #[arg(long)]
    retry: bool,
    #[command(flatten)]
    of: OfMount,
}

#[derive(Debug, Serialize)]
struct Shown {
    threshold: Option<u64>,
    servers: Vec<ServerShown>,
}

#[derive(Debug, Serialize)]
struct ServerShown {
    address: String,
    offer: &'static str,
    blocked_seconds: Option<u64>,
    connections: u64,
    fetches: TransfersShown,
    stores: TransfersShown,
}

/// Transfers one way, by how they ended.
#[derive(Debug, Serialize)]
struct TransfersShown {
    under_way: u64,
    bytes: u64,
    done: u64,
    aborted: u64,
    rx: u64,
    given_up: u64,
}

/// `fs oob`: changes what is to be changed, and tells how it is.
pub(super) fn run(args: &OobArgs) -> anyhow::Result<ExitCode> {
    let of = &args.of;
    let found = change(args).and_then(|()| {
        let text = of.get(xattr_name::OOB)?;
        text.parse::<OobInfo>().map_err(|_| Errno::BADMSG)
    });
    match found {
        Ok(info) => {
            let mut report = Report::new(of.json, false);
            report.either(&object(&info), || text(&info, &Zoned::now()))?;
            report.finish()
        }
        Err(error) => Ok(of.failed(error, NO_THRESHOLD)),
    }
}

fn change(args: &OobArgs) -> Result<(), Errno> {
    if let Some(bytes) = args.threshold {
        args.of.set(xattr_name::OOB_THRESHOLD, &bytes.to_string())?;
    }
    match args.retry {
        true => args.of.set(xattr_name::OOB_RETRY, "1"),
        false => Ok(()),
    }
}

fn object(info: &OobInfo) -> Shown {
    let server = |server: &OobServer| ServerShown {
        address: server.address.to_string(),
        offer: match server.offer {
            OobOffer::NotAsked => "not_asked",
            OobOffer::Offered => "offered",
            OobOffer::NotOffered => "not_offered",
            OobOffer::Blocked(_) => "blocked",
        },
        blocked_seconds: match server.offer {
            OobOffer::Blocked(left) => Some(left.as_secs()),
            _ => None,
        },
        connections: server.connections,
        fetches: transfers(server.fetches),
        stores: transfers(server.stores),
    };
    Shown {
        threshold: info.threshold,
        servers: info.servers.iter().map(server).collect(),
    }
}

fn transfers(told: OobTransfers) -> TransfersShown {
    TransfersShown {
        under_way: told.under_way,
        bytes: told.bytes,
        done: told.done,
        aborted: told.aborted,
        rx: told.by_rx,
        given_up: told.given_up,
    }
}

fn text(info: &OobInfo, now: &Zoned) -> String {
    let mut text = match info.threshold {
        Some(bytes) => {
            let about = short_bytes(bytes);
            format!("Files go out of band in pieces of {bytes} bytes ({about}) or more.\n")
        }
        None => "Nothing goes out of band.\n".to_owned(),
    };
    if info.servers.is_empty() {
        return text;
    }
    let heads = [
        "SERVER",
        "OFFER",
        "CONNECTIONS",
        "UNDER WAY",
        "FETCHED",
        "STORED",
        "DONE",
        "BY RX",
    ];
    text.push_str(&row(heads.map(str::to_owned)));
    for server in &info.servers {
        let (fetches, stores) = (server.fetches, server.stores);
        text.push_str(&row([
            server.address.to_string(),
            offer(server.offer, now),
            server.connections.to_string(),
            (fetches.under_way + stores.under_way).to_string(),
            short_bytes(fetches.bytes),
            short_bytes(stores.bytes),
            (fetches.done + stores.done).to_string(),
            (fetches.by_rx + stores.by_rx).to_string(),
        ]));
    }
    text
}

fn row(cells: [String; 8]) -> String {
    let [
        server,
        offer,
        connections,
        under_way,
        fetched,
        stored,
        done,
        by_rx,
    ] = cells;
    format!(
        "{server:<21} {offer:<19} {connections:>11} {under_way:>9} {fetched:>8} {stored:>8} {done:>7} {by_rx:>7}\n"
    )
}

fn offer(offer: OobOffer, now: &Zoned) -> String {
    match offer {
        OobOffer::NotAsked => "not asked yet".to_owned(),
        OobOffer::Offered => "offered".to_owned(),
        OobOffer::NotOffered => "not offered".to_owned(),
        OobOffer::Blocked(left) => format!("blocked until {}", after(left, now)),
    }
}

/// The time of day after a while.
fn after(left: Duration, now: &Zoned) -> String {
    now.saturating_add(left).strftime("%H:%M").to_string()
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    fn info() -> OobInfo {
        let server = |host: u8, offer, bytes| OobServer {
            address: ([192, 0, 2, host], 7000).into(),
            offer,
            connections: u64::from(offer == OobOffer::Offered),
            fetches: OobTransfers {
                under_way: 2,
                bytes,
                done: 30,
                aborted: 4,
                by_rx: 5,
                given_up: 6,
            },
            stores: OobTransfers {
                bytes,
                done: 2,
                ..OobTransfers::default()
            },
        };
        OobInfo {
            threshold: Some(1 << 20),
            servers: vec![
                server(1, OobOffer::Offered, 3 << 30),
                server(2, OobOffer::Blocked(Duration::from_secs(1800)), 0),
                server(3, OobOffer::NotOffered, 0),
            ],
        }
    }

    #[test]
    fn each_server_has_a_line() {
        let now = "2026-11-28T23:45:00Z".parse::<jiff::Timestamp>().unwrap();
        let now = now.to_zoned(TimeZone::UTC);
        assert_eq!(
            text(&info(), &now),
            "Files go out of band in pieces of 1048576 bytes (1M) or more.\n\
             SERVER                OFFER               CONNECTIONS UNDER WAY  FETCHED   STORED    DONE   BY RX\n\
             192.0.2.1:7000        offered                       1         2       3G       3G      32       5\n\
             192.0.2.2:7000        blocked until 00:15           0         2        0        0      32       5\n\
             192.0.2.3:7000        not offered                   0         2        0        0      32       5\n"
        );
        let none = OobInfo {
            threshold: None,
            servers: Vec::new(),
        };
        assert_eq!(text(&none, &now), "Nothing goes out of band.\n");
    }

    #[test]
    fn the_object_has_the_same_and_how_others_ended() {
        let json = serde_json::to_value(object(&info())).unwrap();
        assert_eq!(json["threshold"], 1_048_576);
        let [first, second, _] = json["servers"].as_array().unwrap().as_slice() else {
            panic!("{json}");
        };
        assert_eq!(first["offer"], "offered");
        assert_eq!(first["fetches"]["bytes"], 3_u64 << 30);
        assert_eq!(first["fetches"]["given_up"], 6);
        assert_eq!(first["stores"]["done"], 2);
        assert_eq!(second["offer"], "blocked");
        assert_eq!(second["blocked_seconds"], 1800);
    }
}
