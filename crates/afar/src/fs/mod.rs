//! `afar fs`: access lists, quotas, mount points and places of files in AFS, with OpenAFS's verbs,
//! words and exit codes, with or without a mount.
//!
//! Paths are followed by afar itself; those in a mount of afar are taken as `/afs` has them. Settings of
//! OpenAFS's cache that afar has not are said not to be here.

mod acl;
mod acl_edit;
mod cache;
mod conflicts;
mod flush;
mod mount;
mod oob;
mod path_info;
mod place;
mod preferences;
mod quota;
mod quota_text;
mod report;
mod servers;
mod setting;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use afar_cache::xattr_name;
use afar_cell::{Client, LastLink, Node, PathCause, Walked};
use clap::{Args, Subcommand};

use crate::fetch::{LOOKING, Reach, session};
use crate::mount::path_in_afs;
use crate::{advice, output};
use report::Report;

/// `afar fs …`.
#[derive(Debug, Subcommand)]
pub(crate) enum FsCommand {
    /// list access control list
    #[command(alias = "la")]
    Listacl(acl::ListArgs),
    /// set access control list
    #[command(alias = "sa")]
    Setacl(acl::SetArgs),
    /// copy access control list
    #[command(alias = "ca")]
    Copyacl(acl::CopyArgs),
    /// clean up access control list
    Cleanacl(PathArgs),
    /// list callers access
    #[command(alias = "gca")]
    Getcalleraccess(PathArgs),
    /// list volume quota
    #[command(alias = "lq")]
    Listquota(quota::HumanArgs),
    /// show volume quota usage
    Quota(PathArgs),
    /// set volume quota
    #[command(alias = "sq")]
    Setquota(quota::SetQuotaArgs),
    /// set volume status
    #[command(alias = "sv")]
    Setvol(quota::SetVolArgs),
    /// display file/volume status
    #[command(alias = "lv", alias = "listvol")]
    Examine(PathArgs),
    /// show server disk space usage
    #[command(alias = "df")]
    Diskfree(quota::HumanArgs),
    /// make mount point
    Mkmount(mount::MakeArgs),
    /// remove mount point
    Rmmount(mount::DirArgs),
    /// list mount point
    Lsmount(mount::DirArgs),
    /// list file's location
    Whereis(PathArgs),
    /// list file's cell
    Whichcell(PathArgs),
    /// get fid for file(s)
    Getfid(place::FidArgs),
    /// list workstation's cell
    Wscell(Common),
    /// list configured cells
    Listcells(servers::ListArgs),
    /// check local cell's servers
    Checkservers(servers::CheckArgs),
    /// get sysname (i.e. @sys) value
    Sysname(servers::SysnameArgs),
    /// flush file from cache
    Flush(flush::FlushArgs),
    /// flush all data in volume
    Flushvolume(flush::FlushArgs),
    /// get cache usage info
    Getcacheparms(setting::OfMount),
    /// set cache size
    #[command(alias = "cachesize")]
    Setcachesize(cache::SizeArgs),
    /// store to server after file close
    #[command(alias = "sb")]
    Storebehind(cache::StoreBehindArgs),
    /// get server ranks
    #[command(alias = "gp")]
    Getserverprefs(preferences::GetArgs),
    /// set server ranks
    #[command(alias = "sp")]
    Setserverprefs(preferences::SetArgs),
    /// show what a mount knows and has of a path
    Pathinfo(path_info::PathInfoArgs),
    /// show changes of a mount that could not be made
    Conflicts(conflicts::ConflictsArgs),
    /// show and set what a mount has out of band
    Oob(oob::OobArgs),
    /// check volumeID/name mappings
    #[command(alias = "checkbackups")]
    Checkvolumes(setting::OfMount),
    /// (of a mount) control the cache and what it talks to
    #[command(
        hide = true,
        name = "flushall",
        aliases = [
            "flushmount", "getclientaddrs", "gc", "setclientaddrs", "sc", "messages",
            "listaliases", "newcell", "newalias", "monitor", "mariner", "getcellstatus",
            "setcell", "exportafs", "setcrypt", "getcrypt", "rxstatproc",
            "rxstatpeer", "setcbaddr", "discon", "nukenfscreds", "uuid", "precache",
            "bypassthreshold",
        ]
    )]
    OfMount(AnyArgs),
}

/// Options of all verbs.
#[derive(Debug, Clone, Args)]
pub(crate) struct Common {
    /// Print the result as JSON, one object a line
    #[arg(long, help_heading = "Options of afar's own")]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

/// Options of verbs about paths.
#[derive(Debug, Args)]
pub(crate) struct PathArgs {
    /// dir/file path
    #[arg(long, value_name = "dir/file path")]
    path: Vec<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Whatever a verb that is not here takes.
#[derive(Debug, Args)]
pub(crate) struct AnyArgs {
    /// anything
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    anything: Vec<String>,
}

/// Does what a command says.
pub(crate) fn run(command: FsCommand) -> anyhow::Result<ExitCode> {
    use FsCommand as Fs;
    match command {
        Fs::Listacl(args) => about(&args.common, &args.path, async |client, report| {
            acl::list(client, report, &args).await
        }),
        Fs::Setacl(args) => about(&args.common, &args.dir, async |client, report| {
            acl::set(client, report, &args).await
        }),
        Fs::Copyacl(args) => about(&args.common, &args.todir, async |client, report| {
            acl::copy(client, report, &args).await
        }),
        Fs::Cleanacl(args) => of_paths(&args, acl::clean),
        Fs::Getcalleraccess(args) => of_paths(&args, acl::caller_access),
        Fs::Listquota(args) => about(&args.common, &args.path, async |client, report| {
            quota::list(client, report, &args).await
        }),
        Fs::Quota(args) => of_paths(&args, quota::quota),
        Fs::Setquota(args) => {
            let paths = args.path.iter().cloned().collect::<Vec<_>>();
            about(&args.common, &paths, async |client, report| {
                quota::set_quota(client, report, &paths, &args.max).await
            })
        }
        Fs::Setvol(args) => about(&args.common, &args.path, async |client, report| {
            quota::set(client, report, &args).await
        }),
        Fs::Examine(args) => of_paths(&args, quota::examine),
        Fs::Diskfree(args) => about(&args.common, &args.path, async |client, report| {
            quota::disk_free(client, report, &args).await
        }),
        Fs::Mkmount(args) => {
            let paths = [args.dir.clone()];
            about(&args.common, &paths, async |client, report| {
                mount::make(client, report, &args).await
            })
        }
        Fs::Rmmount(args) => about(&args.common, &args.dir, async |client, report| {
            mount::remove(client, report, &args).await
        }),
        Fs::Lsmount(args) => about(&args.common, &args.dir, async |client, report| {
            mount::list(client, report, &args).await
        }),
        Fs::Whereis(args) => of_paths(&args, place::where_is),
        Fs::Whichcell(args) => of_paths(&args, place::which_cell),
        Fs::Getfid(args) => about(&args.common, &args.path, async |client, report| {
            place::fids(client, report, &args).await
        }),
        Fs::Wscell(common) => about(&common, &[], async |_, report| servers::own_cell(report)),
        Fs::Listcells(args) => about(&args.common, &[], async |client, report| {
            servers::list_cells(client, report, &args).await
        }),
        Fs::Checkservers(args) => about(&args.common, &[], async |client, report| {
            servers::check(client, report, &args).await
        }),
        Fs::Sysname(args) => about(&args.common, &[], async |client, report| {
            servers::sysnames(client, report, &args)
        }),
        Fs::Flush(args) => flush::run(&args, xattr_name::FLUSH),
        Fs::Flushvolume(args) => flush::run(&args, xattr_name::FLUSH_VOLUME),
        Fs::Getcacheparms(args) => cache::parameters(&args),
        Fs::Setcachesize(args) => cache::set_size(&args),
        Fs::Storebehind(args) => cache::store_behind(&args),
        Fs::Getserverprefs(args) => preferences::get(&args),
        Fs::Setserverprefs(args) => preferences::set(&args),
        Fs::Pathinfo(args) => path_info::run(&args),
        Fs::Conflicts(args) => conflicts::run(&args),
        Fs::Oob(args) => oob::run(&args),
        Fs::Checkvolumes(of) => preferences::check_volumes(&of),
        Fs::OfMount(_) => {
            let text = "fs: afar has no such setting; options of a mount are given to afar mount \
                        (`afar mount --help`)\n";
            output::usage(text);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Runs a verb about these paths.
fn about(
    common: &Common,
    paths: &[PathBuf],
    verb: impl AsyncFnOnce(&Client, &mut Report) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let absolute: Vec<_> = paths.iter().filter_map(|path| absolute(path)).collect();
    let reach = common.reach.clone().about(&absolute);
    let mut report = Report::new(common.json, reach.localauth);
    let ran = session::run(reach, None, LOOKING, async |client| {
        verb(client, &mut report).await?;
        report.finish()
    });
    // Before there is a client, errors are those of the command, not of a path.
    ran.or_else(|error| {
        output::usage(&format!("fs: {}\n", advice::told(&error)));
        Ok(ExitCode::FAILURE)
    })
}

/// Runs a verb that does the same with each path.
fn of_paths(
    args: &PathArgs,
    verb: impl AsyncFn(&Client, &mut Report, &str, &Node) -> Result<(), PathCause>,
) -> anyhow::Result<ExitCode> {
    about(&args.common, &args.path, async |client, report| {
        each(client, report, &args.path, verb).await
    })
}

/// Does something with what each path leads to, `.` if there is none; errors are told, and the rest
/// goes on.
async fn each(
    client: &Client,
    report: &mut Report,
    paths: &[PathBuf],
    verb: impl AsyncFn(&Client, &mut Report, &str, &Node) -> Result<(), PathCause>,
) -> anyhow::Result<()> {
    for path in or_here(paths) {
        let shown = path.display().to_string();
        let done = match find(client, &path).await {
            Ok(node) => verb(client, report, &shown, &node).await,
            Err(cause) => Err(cause),
        };
        if let Err(cause) = done {
            report.fail(&shown, &cause)?;
        }
    }
    Ok(())
}

fn or_here(paths: &[PathBuf]) -> Vec<PathBuf> {
    match paths {
        [] => vec![PathBuf::from(".")],
        _ => paths.to_vec(),
    }
}

/// A path from the root on, in a mount of ours as all cells have it; `None` if where we are is gone.
fn absolute(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    Some(path_in_afs(&path).unwrap_or(path))
}

/// What a path leads to.
async fn find(client: &Client, path: &Path) -> Result<Node, PathCause> {
    let path = absolute(path).ok_or(PathCause::NotAfs)?;
    let place = client.walk(path.as_os_str().as_encoded_bytes(), LastLink::Follow);
    match place.await.map_err(|error| error.cause)? {
        Walked::Node(node) => Ok(node),
        Walked::Afs => Err(PathCause::NotAfs),
    }
}
