//! `fs listacl`, `setacl`, `copyacl`, `cleanacl` and `getcalleraccess`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use afar_cell::{Client, Error, Node, PathCause};
use afar_net::RxNull;
use afar_rpc::pr;
use afar_types::error::errno::EINVAL;
use afar_types::{Acl, AclEntry, PrName, PrNamesAsked, PtsId};
use anyhow::bail;
use clap::Args;
use serde::Serialize;

use super::acl_edit::{Change, apply, commands, merge, text};
use super::report::Report;
use super::{Common, each, find};

/// UDP port of protection servers, which run where location servers do.
const PR_PORT: u16 = 7002;

/// Options of `fs listacl`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// dir/file path
    #[arg(long, value_name = "dir/file path")]
    pub(super) path: Vec<PathBuf>,
    /// initial directory acl
    #[arg(long)]
    id: bool,
    /// initial file acl
    #[arg(long = "if")]
    if_: bool,
    /// output as 'fs setacl' command
    #[arg(long)]
    cmd: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `fs setacl`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// directory
    #[arg(long, required = true, value_name = "directory")]
    pub(super) dir: Vec<PathBuf>,
    /// access list entries
    #[arg(long, required = true, value_name = "access list entries")]
    acl: Vec<String>,
    /// clear access list
    #[arg(long)]
    clear: bool,
    /// apply to negative rights
    #[arg(long)]
    negative: bool,
    /// initial directory acl (DFS only)
    #[arg(long)]
    id: bool,
    /// initial file acl (DFS only)
    #[arg(long = "if")]
    if_: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `fs copyacl`.
#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// source directory (or DFS file)
    #[arg(long, required = true, value_name = "source directory (or DFS file)")]
    fromdir: PathBuf,
    /// destination directory (or DFS file)
    #[arg(
        long,
        required = true,
        value_name = "destination directory (or DFS file)"
    )]
    pub(super) todir: Vec<PathBuf>,
    /// first clear dest access list
    #[arg(long)]
    clear: bool,
    /// initial directory acl
    #[arg(long)]
    id: bool,
    /// initial file acl
    #[arg(long = "if")]
    if_: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// An access control list in JSON.
#[derive(Serialize)]
struct Listed<'a> {
    path: &'a str,
    normal: Vec<Entry<'a>>,
    negative: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    rights: String,
}

#[derive(Serialize)]
struct Access<'a> {
    path: &'a str,
    rights: String,
}

fn entries(entries: &[AclEntry]) -> Vec<Entry<'_>> {
    let entries = entries.iter();
    let entries = entries.map(|entry| Entry {
        name: &entry.name,
        rights: entry.rights.to_string(),
    });
    entries.collect()
}

/// DFS had three lists a directory; AFS servers have one.
fn refuse_dfs(id: bool, if_: bool) -> anyhow::Result<()> {
    if id && if_ {
        bail!("you may specify either -id or -if, but not both switches");
    }
    if id || if_ {
        bail!("-id and -if are for DFS, which afar does not reach; leave them out");
    }
    Ok(())
}

pub(super) async fn list(
    client: &Client,
    report: &mut Report,
    args: &ListArgs,
) -> anyhow::Result<()> {
    refuse_dfs(args.id, args.if_)?;
    let last = args.path.len().max(1);
    let number = std::cell::Cell::new(0);
    each(
        client,
        report,
        &args.path,
        async |client, report, path, node| {
            number.set(number.get() + 1);
            let acl = client.fetch_acl(&node.volume, node.fid).await?;
            let listed = Listed {
                path,
                normal: entries(&acl.positive),
                negative: entries(&acl.negative),
            };
            report.either(&listed, || {
                if args.cmd {
                    return commands(path, &acl);
                }
                let mut shown = format!("Access list for {path} is\n{}", text(&acl));
                if number.get() < last {
                    shown.push('\n');
                }
                shown
            })
        },
    )
    .await
}

pub(super) async fn set(
    client: &Client,
    report: &mut Report,
    args: &SetArgs,
) -> anyhow::Result<()> {
    refuse_dfs(args.id, args.if_)?;
    let (pairs, rest) = args.acl.as_chunks::<2>();
    if !rest.is_empty() {
        bail!("Missing second half of user/access pair.");
    }
    let mut changes = Vec::with_capacity(pairs.len());
    for [name, rights] in pairs {
        match Change::parse(rights) {
            Ok(change) => changes.push((name, change)),
            Err(letter) => bail!("illegal rights character '{letter}'."),
        }
    }
    for path in &args.dir {
        let path_text = path.display().to_string();
        let stored = async {
            let node = find(client, path).await?;
            let mut acl = client.fetch_acl(&node.volume, node.fid).await?;
            if args.clear {
                acl = Acl::default();
            }
            clean_entries(client, &node, &mut acl).await;
            for (name, change) in &changes {
                let entries = if args.negative {
                    &mut acl.negative
                } else {
                    &mut acl.positive
                };
                apply(entries, name, *change);
            }
            client.store_acl(&node.volume, node.fid, &acl).await?;
            Ok(())
        };
        if let Err(cause) = stored.await {
            refused(report, &path_text, &cause)?;
        }
    }
    Ok(())
}

pub(super) async fn copy(
    client: &Client,
    report: &mut Report,
    args: &CopyArgs,
) -> anyhow::Result<()> {
    refuse_dfs(args.id, args.if_)?;
    let from = async {
        let node = find(client, &args.fromdir).await?;
        let mut acl = client.fetch_acl(&node.volume, node.fid).await?;
        clean_entries(client, &node, &mut acl).await;
        Ok::<_, PathCause>(acl)
    };
    let from = match from.await {
        Ok(from) => from,
        Err(cause) => return report.fail(&args.fromdir.display().to_string(), &cause),
    };
    for path in &args.todir {
        let stored = async {
            let node = find(client, path).await?;
            let mut acl = client.fetch_acl(&node.volume, node.fid).await?;
            if args.clear {
                acl = Acl::default();
            }
            clean_entries(client, &node, &mut acl).await;
            merge(&mut acl, &from);
            client.store_acl(&node.volume, node.fid, &acl).await?;
            Ok(())
        };
        if let Err(cause) = stored.await {
            refused(report, &path.display().to_string(), &cause)?;
        }
    }
    Ok(())
}

/// Says why a list was not stored. Servers do not say what was wrong with it.
fn refused(report: &mut Report, path: &str, cause: &PathCause) -> anyhow::Result<()> {
    match cause {
        PathCause::Cell(error @ Error::Refused(_)) if error.errno() == Some(EINVAL) => report.say(
            "fs: Invalid argument, possible reasons include:\n\t-File not in AFS\n\
             \t-Too many users on access control list\n\
             \t-Tried to add non-existent user to access control list\n",
        ),
        _ => report.fail(path, cause),
    }
}

pub(super) async fn clean(
    client: &Client,
    report: &mut Report,
    path: &str,
    node: &Node,
) -> Result<(), PathCause> {
    let mut acl = client.fetch_acl(&node.volume, node.fid).await?;
    let changed = clean_entries(client, node, &mut acl).await;
    if changed {
        client.store_acl(&node.volume, node.fid, &acl).await?;
    }
    let listed = Listed {
        path,
        normal: entries(&acl.positive),
        negative: entries(&acl.negative),
    };
    report.either(&listed, || match changed {
        true => format!("Access list for {path} is now\n{}", text(&acl)),
        false => format!("Access list for {path} is fine.\n"),
    })
}

/// Removes entries of users and groups that are gone, whose names are but numbers now. Returns
/// whether there were any.
async fn clean_entries(client: &Client, node: &Node, acl: &mut Acl) -> bool {
    let names: BTreeSet<_> = acl
        .positive
        .iter()
        .chain(&acl.negative)
        .map(|entry| entry.name.clone())
        .filter(|name| {
            name.bytes()
                .all(|byte| byte == b'-' || byte.is_ascii_digit())
        })
        .collect();
    let mut gone = BTreeSet::new();
    for name in names {
        if is_unknown(client, node, &name).await {
            gone.insert(name);
        }
    }
    acl.positive.retain(|entry| !gone.contains(&entry.name));
    acl.negative.retain(|entry| !gone.contains(&entry.name));
    !gone.is_empty()
}

/// Whether a protection server knows no such name. If none answers, that is not sure.
async fn is_unknown(client: &Client, node: &Node, name: &str) -> bool {
    let Ok(text) = PrName::new(name) else {
        return false;
    };
    let servers: Vec<_> = node.volume.cell().servers().collect();
    for server in servers {
        let address = SocketAddr::new(server.ip(), PR_PORT);
        let connection = client
            .endpoint()
            .connect(address, pr::SERVICE, Arc::new(RxNull));
        let Ok(names) = PrNamesAsked::new(vec![text]) else {
            return false;
        };
        if let Ok(reply) = pr::Client::new(connection).name_to_id(names).await {
            return reply.ids.first().is_some_and(|id| *id == PtsId::ANONYMOUS);
        }
    }
    false
}

pub(super) async fn caller_access(
    client: &Client,
    report: &mut Report,
    path: &str,
    node: &Node,
) -> Result<(), PathCause> {
    let status = client.status(&node.volume, node.fid).await?;
    let rights = status.caller_access.to_string();
    let text = format!("Callers access to {path} is {rights}\n");
    report.either(&Access { path, rights }, || text)
}
