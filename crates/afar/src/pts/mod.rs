//! `afar pts`: users and groups of a cell, with OpenAFS's verbs, words and exit codes.
//!
//! Output is that of OpenAFS's `pts`, to the blank; errors, too, begin as its do. Commands of its
//! interactive mode are not here. OpenAFS's has no passwords and SSH keys of users (`users`).

mod access;
mod entries;
mod members;
mod report;
mod users;
mod words;

use std::process::ExitCode;

use afar_admin::Servers;
use afar_admin::pts::{self, Found, PtsError};
use afar_types::PtsId;
use clap::{Args, Subcommand};

use crate::afs_args::{self, Common};
use crate::output::Output;

/// `afar pts …`.
#[derive(Debug, Subcommand)]
pub(crate) enum PtsCommand {
    /// add a user to a group
    Adduser(members::MembershipArgs),
    /// change ownership of a group
    Chown(entries::ChownArgs),
    /// create a new group
    #[command(alias = "cg")]
    Creategroup(entries::CreategroupArgs),
    /// create a new user
    #[command(alias = "cu")]
    Createuser(entries::CreateuserArgs),
    /// delete a user or group from database
    Delete(NameOrIdArgs),
    /// examine an entry
    #[command(alias = "check")]
    Examine(NameOrIdArgs),
    /// list users/groups in the protection database
    Listentries(entries::ListentriesArgs),
    /// list max id
    Listmax(ListmaxArgs),
    /// list groups owned by an entry or zero id gets orphaned groups
    Listowned(NameOrIdArgs),
    /// list membership of a user or group
    #[command(alias = "groups")]
    Membership(members::MembersArgs),
    /// remove a user from a group
    Removeuser(members::MembershipArgs),
    /// rename user or group
    #[command(alias = "chname")]
    Rename(entries::RenameArgs),
    /// set fields for an entry
    Setfields(access::SetfieldsArgs),
    /// set max id
    Setmax(entries::SetmaxArgs),
    /// set the password with which a user logs in where there is no KDC
    Setpassword(users::SetpasswordArgs),
    /// list, add and remove the SSH keys with which a user logs in
    Sshkeys(users::SshkeysArgs),
}

/// Options of all commands of `pts`.
#[derive(Debug, Args)]
pub(crate) struct PtsCommon {
    /// Continue oper despite reasonable errors
    #[arg(long)]
    force: bool,
    /// use user's authentication (default)
    #[arg(long)]
    auth: bool,
    // Comes last, as what follows it would be under its heading.
    #[command(flatten)]
    common: Common,
}

/// Options of commands about users and groups.
#[derive(Debug, Args)]
pub(crate) struct NameOrIdArgs {
    /// user or group name or id
    #[arg(long, value_name = "user or group name or id", required = true)]
    nameorid: Vec<String>,
    #[command(flatten)]
    common: PtsCommon,
}

/// Options of `pts listmax`.
#[derive(Debug, Args)]
pub(crate) struct ListmaxArgs {
    #[command(flatten)]
    common: PtsCommon,
}

/// Does what the command says.
///
/// # Errors
/// When the cell's servers are not known, or nothing can be printed. What servers refuse is told
/// as `pts` does.
pub(crate) fn run(command: PtsCommand) -> anyhow::Result<ExitCode> {
    match &command {
        PtsCommand::Adduser(args) => with(&args.common, async |pts| members::add(pts, args).await),
        PtsCommand::Removeuser(args) => {
            with(&args.common, async |pts| members::remove(pts, args).await)
        }
        PtsCommand::Membership(args) => {
            with(&args.common, async |pts| members::list(pts, args).await)
        }
        PtsCommand::Chown(args) => with(&args.common, async |pts| entries::chown(pts, args).await),
        PtsCommand::Rename(args) => {
            with(&args.common, async |pts| entries::rename(pts, args).await)
        }
        PtsCommand::Creategroup(args) => with(&args.common, async |pts| {
            entries::creategroup(pts, args).await
        }),
        PtsCommand::Createuser(args) => with(&args.common, async |pts| {
            entries::createuser(pts, args).await
        }),
        PtsCommand::Delete(args) => with(&args.common, async |pts| {
            entries::delete(pts, &args.nameorid).await
        }),
        PtsCommand::Examine(args) => with(&args.common, async |pts| {
            entries::examine(pts, &args.nameorid).await
        }),
        PtsCommand::Listowned(args) => with(&args.common, async |pts| {
            entries::listowned(pts, &args.nameorid).await
        }),
        PtsCommand::Listentries(args) => with(&args.common, async |pts| {
            entries::listentries(pts, args).await
        }),
        PtsCommand::Listmax(args) => with(&args.common, entries::listmax),
        PtsCommand::Setmax(args) => {
            with(&args.common, async |pts| entries::setmax(pts, args).await)
        }
        PtsCommand::Setpassword(args) => with(&args.common, async |pts| {
            users::setpassword(pts, args).await
        }),
        PtsCommand::Sshkeys(args) => {
            with(&args.common, async |pts| users::sshkeys(pts, args).await)
        }
        PtsCommand::Setfields(args) => {
            with(&args.common, async |pts| access::setfields(pts, args).await)
        }
    }
}

/// What a command works with.
struct Pts<'a> {
    servers: &'a Servers,
    output: Output,
    json: bool,
    /// Errors do not end the command.
    force: bool,
}

/// Whether a command did all it was to do; what it did not do is told already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Failed,
}

fn with(
    common: &PtsCommon,
    command: impl AsyncFnOnce(&mut Pts<'_>) -> anyhow::Result<Outcome>,
) -> anyhow::Result<ExitCode> {
    let json = common.common.own.json;
    afs_args::run(&common.common, async |session| {
        let mut pts = Pts {
            servers: &session.servers,
            output: Output::new(json, None)?,
            json,
            force: common.force,
        };
        Ok(match command(&mut pts).await? {
            Outcome::Done => ExitCode::SUCCESS,
            Outcome::Failed => ExitCode::FAILURE,
        })
    })
}

impl Pts<'_> {
    /// What is told of an error that `-force` passes over.
    fn ignored(&self) -> &'static str {
        if self.force { "(ignored)" } else { "" }
    }

    /// The entries that are named by names or ids. What is not known is told; `None` if nothing
    /// could be looked up.
    async fn find(&self, given: &[String]) -> Option<Vec<(PtsId, String)>> {
        let given: Vec<_> = given.iter().map(String::as_str).collect();
        let found = match pts::find(self.servers, &given).await {
            Ok(found) => found,
            Err(error) => {
                words::tell(&error, "so couldn't look up names");
                return None;
            }
        };
        let known = found.into_iter().filter_map(|found| match found {
            Found::Known { id, name } => (id != PtsId::ANONYMOUS).then_some((id, name)),
            Found::Unknown { name } => {
                let what = format!("so couldn't look up id for {name}");
                words::tell(&PtsError::NoEntry, &what);
                None
            }
        });
        Some(known.collect())
    }
}
