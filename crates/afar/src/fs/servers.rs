//! `fs listcells`, `wscell`, `checkservers` and `sysname`: what concerns no file.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use afar_cell::{Client, PathCause};
use afar_net::RxNull;
use afar_rpc::{rxafs, vl};
use afar_types::{CellName, ListAddrByAttributes};
use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use tokio::task::JoinSet;

use super::Common;
use super::place::{name_of, names_of};
use super::report::Report;
use crate::tokens::this_cell;

/// Servers looked at in one cell: a VLDB has no more.
const SERVERS_MAX: u32 = 256;

/// Options of `fs listcells`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// addresses only
    #[arg(long)]
    numeric: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `fs checkservers`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// cell to check
    #[arg(long, value_name = "cell to check")]
    cell: Option<CellName>,
    /// check all cells
    #[arg(long)]
    all: bool,
    /// just list, don't check
    #[arg(long)]
    fast: bool,
    /// seconds between probes
    #[arg(long, value_name = "seconds between probes")]
    interval: Option<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `fs sysname`.
#[derive(Debug, Args)]
pub(crate) struct SysnameArgs {
    /// new sysname
    #[arg(long, value_name = "new sysname")]
    newsys: Vec<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Serialize)]
struct Cell {
    cell: String,
    hosts: Vec<String>,
}

#[derive(Serialize)]
struct Silent {
    servers: usize,
    silent: Vec<String>,
}

#[derive(Serialize)]
struct Sysnames<'a> {
    sysnames: &'a [String],
}

pub(super) async fn list_cells(
    client: &Client,
    report: &mut Report,
    args: &ListArgs,
) -> anyhow::Result<()> {
    let mut lookups = JoinSet::new();
    let mut cells = BTreeMap::new();
    for (number, entry) in client.cells().into_iter().enumerate() {
        let addresses: Vec<_> = entry.servers.iter().map(SocketAddr::ip).collect();
        cells.insert(number, entry.name.to_string());
        let numeric = args.numeric;
        lookups.spawn(async move {
            let hosts = match numeric {
                true => addresses.iter().map(ToString::to_string).collect(),
                false => names_of(&addresses).await,
            };
            (number, hosts)
        });
    }
    let mut hosts: BTreeMap<usize, Vec<String>> = lookups.join_all().await.into_iter().collect();
    for (number, cell) in cells {
        let hosts = hosts.remove(&number).unwrap_or_default();
        let shown = Cell { cell, hosts };
        report.either(&shown, || cell_line(&shown))?;
    }
    Ok(())
}

fn cell_line(cell: &Cell) -> String {
    let hosts: String = cell.hosts.iter().map(|host| format!(" {host}")).collect();
    format!("Cell {} on hosts{hosts}.\n", cell.cell)
}

pub(super) fn own_cell(report: &mut Report) -> anyhow::Result<()> {
    let Some(cell) = this_cell() else {
        bail!("no ThisCell file names this machine's cell, and none runs here");
    };
    let text = format!("This workstation belongs to cell '{cell}'\n");
    let cell = cell.to_string();
    let hosts = Vec::new();
    report.either(&Cell { cell, hosts }, || text)?;
    Ok(())
}

pub(super) fn sysnames(
    client: &Client,
    report: &mut Report,
    args: &SysnameArgs,
) -> anyhow::Result<()> {
    if !args.newsys.is_empty() {
        bail!("there is no mount whose sysname could be set; use --sysname with each command");
    }
    let sysnames = &client.config().sysnames;
    report.either(&Sysnames { sysnames }, || sysname_line(sysnames))?;
    Ok(())
}

fn sysname_line(sysnames: &[String]) -> String {
    let names: Vec<_> = sysnames.iter().map(|name| format!("'{name}'")).collect();
    let list = if names.len() == 1 { "" } else { " list" };
    format!("Current sysname{list} is {}\n", names.join(" "))
}

/// Asks all servers of a cell whether they are there. OpenAFS's fs asks the cache manager, which
/// probes those it has met; here they are found in the database.
pub(super) async fn check(
    client: &Client,
    report: &mut Report,
    args: &CheckArgs,
) -> anyhow::Result<()> {
    if args.interval.is_some() || args.fast {
        bail!("there is no mount that probes servers; leave -interval and -fast out");
    }
    let cells = match (&args.cell, args.all) {
        (Some(cell), _) => vec![cell.clone()],
        (None, true) => client.cells().into_iter().map(|cell| cell.name).collect(),
        (None, false) => vec![this_cell().context("name a cell with -cell")?],
    };
    let (mut probes, mut found) = (JoinSet::new(), BTreeSet::new());
    for cell in cells {
        for server in servers_of(client, &cell).await? {
            if found.insert(server) {
                let client = client.clone();
                probes.spawn(async move { (server, answers(&client, server).await) });
            }
        }
    }
    let answers = probes.join_all().await;
    let silent = answers.into_iter().filter(|(_, answered)| !answered);
    let silent: BTreeSet<SocketAddr> = silent.map(|(server, _)| server).collect();
    let mut names = Vec::new();
    for &server in &silent {
        let name = name_of(server).await;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let all_run = names.is_empty();
    let shown = Silent {
        servers: found.len(),
        silent: names,
    };
    report.either(&shown, || check_line(&shown.silent))?;
    if !all_run {
        report.say("")?;
    }
    Ok(())
}

fn check_line(silent: &[String]) -> String {
    if silent.is_empty() {
        return "All servers are running.\n".to_owned();
    }
    let hosts: String = silent.iter().map(|host| format!(" {host}")).collect();
    format!("These servers unavailable due to network or server problems: {hosts}.\n")
}

/// The database servers of a cell, and the file servers they know, at one address each.
async fn servers_of(client: &Client, cell: &CellName) -> Result<Vec<SocketAddr>, PathCause> {
    let cell = client.cell(cell).await?;
    let mut servers: Vec<_> = cell.servers().collect();
    let port = client.config().file_port;
    for server in servers.clone() {
        let connection = client
            .endpoint()
            .connect(server, vl::SERVICE, Arc::new(RxNull));
        let database = vl::Client::new(connection);
        let mut answered = false;
        for index in 1..=SERVERS_MAX {
            let Ok(reply) = database
                .get_addrs_u(ListAddrByAttributes::by_index(index))
                .await
            else {
                break;
            };
            answered = true;
            let first: Option<Ipv4Addr> = reply.addresses.addresses().next();
            servers.extend(first.map(|address| SocketAddr::new(IpAddr::V4(address), port)));
        }
        if answered {
            break;
        }
    }
    Ok(servers)
}

/// Whether a server answers; a refusal is an answer, too.
async fn answers(client: &Client, server: SocketAddr) -> bool {
    let security = Arc::new(RxNull);
    let error = if server.port() == client.config().file_port {
        let connection = client.endpoint().connect(server, rxafs::SERVICE, security);
        rxafs::Client::new(connection).get_time().await.err()
    } else {
        let connection = client.endpoint().connect(server, vl::SERVICE, security);
        vl::Client::new(connection).probe_server().await.err()
    };
    error.is_none_or(|error| error.aborted().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_openafs() {
        let hosts = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(check_line(&[]), "All servers are running.\n");
        assert_eq!(
            check_line(&hosts),
            "These servers unavailable due to network or server problems:  a b.\n"
        );
        assert_eq!(sysname_line(&hosts), "Current sysname list is 'a' 'b'\n");
        assert_eq!(sysname_line(&hosts[..1]), "Current sysname is 'a'\n");
        let cell = "c.org".to_owned();
        assert_eq!(
            cell_line(&Cell { cell, hosts }),
            "Cell c.org on hosts a b.\n"
        );
    }
}
