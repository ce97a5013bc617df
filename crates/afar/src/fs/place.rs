//! `fs whereis`, `whichcell` and `getfid`.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use afar_cell::{Client, Node, PathCause};
use afar_types::Fid;
use clap::Args;
use serde::Serialize;

use super::report::Report;
use super::{Common, absolute, find, or_here};

/// Options of `fs getfid`.
#[derive(Debug, Args)]
pub(crate) struct FidArgs {
    /// dir/file path
    #[arg(long, value_name = "dir/file path")]
    pub(super) path: Vec<PathBuf>,
    /// literal evaluation of mountpoints and symlinks
    #[arg(long)]
    literal: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Serialize)]
struct Whereis<'a> {
    path: &'a str,
    hosts: Vec<String>,
    addresses: Vec<String>,
}

#[derive(Serialize)]
struct Lives<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fid: Option<String>,
    cell: String,
}

pub(super) async fn where_is(
    _: &Client,
    report: &mut Report,
    path: &str,
    node: &Node,
) -> Result<(), PathCause> {
    let sites = node.volume.sites();
    let addresses: Vec<_> = sites.iter().map(|site| site.address().ip()).collect();
    let names = names_of(&addresses).await;
    let shown = Whereis {
        path,
        hosts: names.clone(),
        addresses: addresses.iter().map(ToString::to_string).collect(),
    };
    report.either(&shown, || {
        let several = if names.len() == 1 { "" } else { "s" };
        format!("File {path} is on host{several} {} \n", names.join(" "))
    })
}

/// The names of hosts, each once, as far as they have some.
pub(super) async fn names_of(addresses: &[IpAddr]) -> Vec<String> {
    let addresses = addresses.to_vec();
    let looked_up = tokio::task::spawn_blocking(move || {
        let mut seen = BTreeSet::new();
        let name = |address: IpAddr| {
            dns_lookup::lookup_addr(&address).unwrap_or_else(|_| address.to_string())
        };
        let names = addresses.into_iter().map(name);
        names.filter(|name| seen.insert(name.clone())).collect()
    });
    looked_up.await.unwrap_or_default()
}

/// The name of a host.
pub(super) async fn name_of(address: SocketAddr) -> String {
    let names = names_of(&[address.ip()]).await;
    names.into_iter().next().unwrap_or_default()
}

pub(super) async fn which_cell(
    _: &Client,
    report: &mut Report,
    path: &str,
    node: &Node,
) -> Result<(), PathCause> {
    let cell = node.volume.cell_name().to_string();
    let text = format!("File {path} lives in cell '{cell}'\n");
    let fid = None;
    report.either(&Lives { path, fid, cell }, || text)
}

pub(super) async fn fids(
    client: &Client,
    report: &mut Report,
    args: &FidArgs,
) -> anyhow::Result<()> {
    for path in or_here(&args.path) {
        let shown = path.display().to_string();
        let found = async {
            if !args.literal {
                let node = find(client, &path).await?;
                return Ok((node.fid, node.volume.cell_name().to_string()));
            }
            let path = absolute(&path).ok_or(PathCause::NotAfs)?;
            let slot = client.slot(path.as_os_str().as_encoded_bytes()).await;
            let slot = slot.map_err(|error| error.cause)?;
            let fid = slot.fid.ok_or(PathCause::NotFound)?;
            Ok((fid, slot.volume.cell_name().to_string()))
        };
        match found.await {
            Ok((fid, cell)) => {
                let text = fid_line(&shown, fid, &cell);
                let fid = Some(fid.to_string());
                let path = shown.as_str();
                report.either(&Lives { path, fid, cell }, || text)?;
            }
            Err(cause) => report.fail(&shown, &cause)?,
        }
    }
    Ok(())
}

fn fid_line(path: &str, fid: Fid, cell: &str) -> String {
    let (volume, vnode, uniquifier) = (fid.volume.0, fid.vnode.0, fid.uniquifier.0);
    format!("File {path} ({volume}.{vnode}.{uniquifier}) located in cell {cell}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fids_are_printed_as_openafs_does() {
        assert_eq!(
            fid_line("/afs/c", Fid::new(536_870_915, 1, 1), "c"),
            "File /afs/c (536870915.1.1) located in cell c\n"
        );
    }
}
