//! `fs getserverprefs`, `setserverprefs` and `checkvolumes`: which servers a mount asks first, and where
//! it takes volumes to be.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use afar_cache::xattr_name;
use afar_cell::parse_rank;
use afar_server::resolve::addresses;
use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::place::names_of;
use super::report::Report;
use super::setting::OfMount;
use crate::fetch::session;
use crate::output;

/// What is wrong with ranks that a mount refuses.
const NOT_RANKS: &str = "a rank is a number from 0 to 65535";

/// Options of `fs getserverprefs`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// output to named file
    #[arg(long, value_name = "output to named file")]
    file: Option<PathBuf>,
    /// addresses only
    #[arg(long)]
    numeric: bool,
    /// VL servers
    #[arg(long)]
    vlservers: bool,
    #[command(flatten)]
    of: OfMount,
}

/// Options of `fs setserverprefs`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// fileserver names and ranks
    #[arg(long, value_name = "fileserver names and ranks")]
    servers: Vec<String>,
    /// VL server names and ranks
    #[arg(long, value_name = "VL server names and ranks")]
    vlservers: Vec<String>,
    /// input from named file
    #[arg(long, value_name = "input from named file")]
    file: Option<PathBuf>,
    /// input from stdin
    #[arg(long)]
    stdin: bool,
    #[command(flatten)]
    of: OfMount,
}

/// A server and its rank.
#[derive(Serialize)]
struct Ranked<'a> {
    server: &'a str,
    address: IpAddr,
    rank: u16,
}

/// That volumes are looked up again.
#[derive(Serialize)]
struct Checked {
    checked: bool,
}

/// `fs getserverprefs`.
pub(super) fn get(args: &GetArgs) -> anyhow::Result<ExitCode> {
    let name = match args.vlservers {
        true => xattr_name::LOCATION_RANKS,
        false => xattr_name::FILE_RANKS,
    };
    let text = match args.of.get(name) {
        Ok(text) => text,
        Err(error) => return Ok(args.of.failed(error, NOT_RANKS)),
    };
    let mut ranks: Vec<(IpAddr, u16)> = text.lines().filter_map(parse_rank).collect();
    ranks.sort_by_key(|(address, rank)| (*rank, *address));
    let hosts: Vec<_> = ranks.iter().map(|(address, _)| *address).collect();
    let names = match args.numeric {
        true => hosts.iter().map(ToString::to_string).collect(),
        false => session::runtime()?.block_on(each_name(&hosts)),
    };
    let mut file = match &args.file {
        Some(path) => Some(File::create(path).with_context(|| path.display().to_string())?),
        None => None,
    };
    let mut report = Report::new(args.of.json, false);
    for ((address, rank), server) in ranks.into_iter().zip(&names) {
        let shown = Ranked {
            server,
            address,
            rank,
        };
        let text = || format!("{server:<50} {rank:>5}\n");
        match &mut file {
            Some(file) if args.of.json => writeln!(file, "{}", serde_json::to_string(&shown)?)?,
            Some(file) => file.write_all(text().as_bytes())?,
            None => report.either(&shown, text)?,
        }
    }
    report.finish()
}

/// `fs setserverprefs`.
pub(super) fn set(args: &SetArgs) -> anyhow::Result<ExitCode> {
    let mut read = String::new();
    if let Some(path) = &args.file {
        let file = File::open(path).and_then(|mut file| file.read_to_string(&mut read));
        file.with_context(|| path.display().to_string())?;
    }
    if args.stdin {
        // Two lines are not one, whatever the file ended with.
        read.push(' ');
        std::io::stdin().read_to_string(&mut read)?;
    }
    let read: Vec<&str> = read.split_whitespace().collect();
    let (servers, locations) = (words(&args.servers), words(&args.vlservers));
    let given = [
        (xattr_name::FILE_RANKS, read),
        (xattr_name::FILE_RANKS, servers),
        (xattr_name::LOCATION_RANKS, locations),
    ];
    let mut exit = ExitCode::SUCCESS;
    let runtime = session::runtime()?;
    for (name, words) in given {
        let mut ranks = BTreeMap::new();
        for pair in words.chunks(2) {
            match runtime.block_on(understood(pair)) {
                Ok(found) => ranks.extend(found),
                Err(problem) => {
                    output::usage(&format!("fs: {problem}\n"));
                    exit = ExitCode::FAILURE;
                }
            }
        }
        let lines = ranks.iter().map(|(host, rank)| format!("{host} {rank}\n"));
        let text: String = lines.collect();
        if !text.is_empty()
            && let Err(error) = args.of.set(name, &text)
        {
            return Ok(args.of.failed(error, NOT_RANKS));
        }
    }
    Ok(exit)
}

/// `fs checkvolumes`.
pub(super) fn check_volumes(of: &OfMount) -> anyhow::Result<ExitCode> {
    match of.set(xattr_name::CHECK_VOLUMES, "1") {
        Ok(()) => {
            let mut report = Report::new(of.json, false);
            let text = || "All volumeID/name mappings checked.\n".to_owned();
            report.either(&Checked { checked: true }, text)?;
            report.finish()
        }
        Err(error) => Ok(of.failed(error, NOT_RANKS)),
    }
}

fn words(given: &[String]) -> Vec<&str> {
    given.iter().map(String::as_str).collect()
}

/// The addresses of a host and the rank that follows it.
async fn understood(pair: &[&str]) -> Result<Vec<(IpAddr, u16)>, String> {
    let &[host, rank] = pair else {
        return Err(format!("{}: its rank is missing", pair.join(" ")));
    };
    let number: u16 = rank
        .parse()
        .map_err(|_| format!("{host} {rank}: {NOT_RANKS}"))?;
    let found = addresses(host, 0).await.unwrap_or_default();
    if found.is_empty() {
        return Err(format!("{host}: couldn't resolve name."));
    }
    Ok(found.into_iter().map(|at| (at.ip(), number)).collect())
}

/// The name of each host, in their order.
async fn each_name(hosts: &[IpAddr]) -> Vec<String> {
    let mut names = Vec::new();
    for host in hosts {
        names.extend(names_of(&[*host]).await);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn servers_and_ranks_come_in_pairs() {
        let ok = understood(&["127.0.0.1", "7"]).await.unwrap();
        assert_eq!(ok, [([127, 0, 0, 1].into(), 7)]);
        for (pair, problem) in [
            (&["127.0.0.1"][..], "127.0.0.1: its rank is missing"),
            (
                &["127.0.0.1", "65536"],
                "127.0.0.1 65536: a rank is a number from 0 to 65535",
            ),
            (&["::1", "1"], "::1: couldn't resolve name."),
        ] {
            assert_eq!(understood(pair).await.unwrap_err(), problem);
        }
        assert_eq!(
            parse_rank("192.0.2.1 20125"),
            Some(([192, 0, 2, 1].into(), 20_125))
        );
        assert_eq!(parse_rank("192.0.2.1"), None);
    }
}
