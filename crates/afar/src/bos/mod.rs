//! `afar bos`: how the servers of a machine are, and who may administer them, in the words of OpenAFS's
//! bos.

mod change;
mod elsewhere;
mod status;
mod words;

use std::fmt;
use std::net::SocketAddr;
use std::process::ExitCode;

use afar_admin::{BOS_PORT, bos};
use afar_rpc::{RpcError, bozo};
use afar_types::BozoTime;
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::afs_args::{self, Common, Session};
use crate::output::Output;
use elsewhere::{ElsewhereArgs, Instead};

/// `afar bos …`.
#[derive(Debug, Subcommand)]
pub(crate) enum BosCommand {
    /// show server instance status
    Status(status::StatusArgs),
    /// get host name/address
    Listhosts(ServerArgs),
    /// list super-users
    Listusers(ServerArgs),
    /// get restart times
    Getrestart(ServerArgs),
    /// get restrict mode
    Getrestricted(ServerArgs),
    /// add users to super-user list
    Adduser(change::UserArgs),
    /// remove users from super-user list
    Removeuser(change::UserArgs),
    /// list keys
    Listkeys(change::KeysArgs),
    /// restart processes
    Restart(change::RestartArgs),
    /// examine log file
    Getlog(change::LogArgs),
    /// get dates for programs
    Getdate(change::DateArgs),
    /// start running a server
    Start(ElsewhereArgs),
    /// halt a server instance
    Stop(ElsewhereArgs),
    /// shutdown all processes
    Shutdown(ElsewhereArgs),
    /// start all processes
    Startup(ElsewhereArgs),
    /// create a new server instance
    Create(ElsewhereArgs),
    /// delete a server instance
    Delete(ElsewhereArgs),
    /// add keys to key dbase (kvno 999 is bcrypt)
    Addkey(ElsewhereArgs),
    /// remove keys from key dbase
    Removekey(ElsewhereArgs),
    /// set cell name
    Setcellname(ElsewhereArgs),
    /// add host to cell dbase
    Addhost(ElsewhereArgs),
    /// remove host from cell dbase
    Removehost(ElsewhereArgs),
    /// set authentication required flag
    Setauth(ElsewhereArgs),
    /// install program
    Install(ElsewhereArgs),
    /// revert program to former version
    Uninstall(ElsewhereArgs),
    /// execute shell command on server
    Exec(ElsewhereArgs),
    /// prune server files
    Prune(ElsewhereArgs),
    /// set restart times
    Setrestart(ElsewhereArgs),
    /// salvage partition or volumes
    Salvage(ElsewhereArgs),
    /// set restrict mode
    Setrestricted(ElsewhereArgs),
}

/// Options of all commands.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    server: String,
    #[command(flatten)]
    common: Common,
}

/// Does what is asked of an overseer.
pub(crate) fn run(command: BosCommand) -> anyhow::Result<ExitCode> {
    match command {
        BosCommand::Status(args) => status::run(args),
        BosCommand::Listhosts(args) => args.ask("get cell name", async |server, _| {
            let (cell, hosts) = bos::hosts(server).await?;
            Ok(DatabaseServers { cell, hosts })
        }),
        BosCommand::Listusers(args) => args.ask("retrieve super-user list", async |server, _| {
            let users = bos::users(server).await?;
            Ok(Users { users })
        }),
        BosCommand::Getrestart(args) => args.ask(RESTART, async |server, name| {
            let [all, new] = bos::restart_times(server).await?;
            Ok(Restarts {
                server: name.to_owned(),
                all: restart(&all),
                new_binaries: restart(&new),
            })
        }),
        BosCommand::Getrestricted(args) => args.ask("get restricted mode", async |server, _| {
            let mode = server.get_restricted_mode().await?.mode;
            Ok(Restricted {
                restricted: mode != 0,
            })
        }),
        BosCommand::Adduser(args) => change::add_users(&args),
        BosCommand::Removeuser(args) => change::remove_users(&args),
        BosCommand::Listkeys(args) => change::list_keys(&args),
        BosCommand::Restart(args) => change::restart(&args),
        BosCommand::Getlog(args) => change::get_log(&args),
        BosCommand::Getdate(args) => change::get_dates(&args),
        other => Ok(elsewhere::tell(instead(&other))),
    }
}

/// What takes the place of a command that afar's servers have no use for.
const fn instead(command: &BosCommand) -> Instead {
    match command {
        BosCommand::Create(_) | BosCommand::Delete(_) | BosCommand::Setcellname(_) => {
            Instead::Roles
        }
        BosCommand::Addkey(_) | BosCommand::Removekey(_) => Instead::Keys,
        BosCommand::Addhost(_) | BosCommand::Removehost(_) => Instead::Hosts,
        BosCommand::Setauth(_) => Instead::Auth,
        BosCommand::Install(_) | BosCommand::Uninstall(_) | BosCommand::Prune(_) => {
            Instead::Programs
        }
        BosCommand::Exec(_) | BosCommand::Setrestricted(_) => Instead::Exec,
        BosCommand::Setrestart(_) => Instead::Times,
        BosCommand::Salvage(_) => Instead::Salvage,
        _ => Instead::Processes,
    }
}

/// What `getrestart` wants.
const RESTART: &str = "retrieve restart information";

impl ServerArgs {
    /// Asks the server and prints what it answers; `what` is what fails if it does not.
    fn ask<T: Serialize + fmt::Display>(
        &self,
        what: &str,
        ask: impl AsyncFnOnce(&bozo::Client, &str) -> Result<T, RpcError>,
    ) -> anyhow::Result<ExitCode> {
        at(&self.common, &self.server, async |server| {
            let answer = match ask(&server, &self.server).await {
                Ok(answer) => answer,
                Err(error) => {
                    words::failed(what, &error);
                    return Ok(ExitCode::FAILURE);
                }
            };
            Output::new(self.common.own.json, None)?.report(&answer)?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// Does something at the overseer of a machine, if there is such a machine.
fn at(
    common: &Common,
    machine: &str,
    work: impl AsyncFnOnce(bozo::Client) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    afs_args::run(common, async |session| {
        match overseer(session, machine).await {
            Some(server) => work(server).await,
            None => Ok(ExitCode::FAILURE),
        }
    })
}

/// The overseer of a machine; none, and that is said, if there is no such machine.
async fn overseer(session: &Session, server: &str) -> Option<bozo::Client> {
    let found = tokio::net::lookup_host((server, BOS_PORT)).await;
    let found = found
        .ok()
        .and_then(|mut found| found.find(SocketAddr::is_ipv4));
    let Some(address) = found else {
        words::no_host(server);
        return None;
    };
    Some(session.servers.overseer(address))
}

/// Database servers as an overseer knows them.
#[derive(Serialize)]
struct DatabaseServers {
    cell: String,
    hosts: Vec<String>,
}

impl fmt::Display for DatabaseServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cell name is {}", self.cell)?;
        for (number, host) in self.hosts.iter().enumerate() {
            write!(f, "\n    Host {} is {host}", number + 1)?;
        }
        Ok(())
    }
}

/// Administrators.
#[derive(Serialize)]
struct Users {
    users: Vec<String>,
}

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.users.is_empty() {
            return Ok(());
        }
        f.write_str("SUsers are: ")?;
        self.users.iter().try_for_each(|user| write!(f, "{user} "))
    }
}

/// When a server restarts its processes.
#[derive(Serialize)]
struct Restarts {
    server: String,
    all: String,
    new_binaries: String,
}

impl fmt::Display for Restarts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Server {} restarts {}", self.server, self.all)?;
        write!(
            f,
            "Server {} restarts for new binaries {}",
            self.server, self.new_binaries
        )
    }
}

/// Whether commands are refused.
#[derive(Serialize)]
struct Restricted {
    restricted: bool,
}

impl fmt::Display for Restricted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.restricted { "on" } else { "off" };
        write!(f, "Restricted mode is {mode}")
    }
}

/// A time of day or week in words.
fn restart(time: &BozoTime) -> String {
    const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    if time.mask & BozoTime::NEVER != 0 {
        return "never".to_owned();
    }
    if time.mask & BozoTime::NOW != 0 {
        return "now".to_owned();
    }
    let day = usize::try_from(time.day)
        .ok()
        .filter(|_| time.mask & BozoTime::DAY != 0)
        .and_then(|day| DAYS.get(day));
    let half = if time.hour < 12 { "am" } else { "pm" };
    let hour = match time.hour % 12 {
        0 => 12,
        hour => hour,
    };
    let clock = format!("{hour}:{:02} {half}", time.minute);
    match day {
        Some(day) => format!("at {day} {clock}"),
        None => format!("at {clock}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_people_say_them() {
        let time = |mask, hour, minute, day| BozoTime {
            mask,
            hour,
            minute,
            day,
            ..BozoTime::default()
        };
        let clock = BozoTime::HOUR | BozoTime::MINUTE;
        assert_eq!(restart(&BozoTime::never()), "never");
        assert_eq!(restart(&time(BozoTime::NOW, 0, 0, 0)), "now");
        assert_eq!(restart(&time(clock, 0, 5, 0)), "at 12:05 am");
        assert_eq!(
            restart(&time(clock | BozoTime::DAY, 16, 0, 0)),
            "at sun 4:00 pm"
        );
    }

    #[test]
    fn lists_are_told_in_the_field_s_words() {
        let hosts = DatabaseServers {
            cell: "example.org".to_owned(),
            hosts: vec!["db1".to_owned(), "db2".to_owned()],
        };
        assert_eq!(
            hosts.to_string(),
            "Cell name is example.org\n    Host 1 is db1\n    Host 2 is db2"
        );
    }
}
