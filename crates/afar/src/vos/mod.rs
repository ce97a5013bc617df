//! `afar vos`: volumes of a cell, with OpenAFS's verbs, words and exit codes.
//!
//! Crate `afar-admin` does the work; here are options, the checks before the work, and what is
//! printed.

mod args;
mod bulk;
mod change;
mod copies;
mod dump;
mod host;
mod json;
mod query;
mod show;
mod told;

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;

use afar_admin::vos::words::error_text;
use afar_admin::vos::{Failure, ServerPartition, Vos};
use afar_net::AbortCode;
use afar_types::error::errno::{EACCES, EXDEV};
use afar_types::{PartitionId, VolumeId};

use crate::afs_args::{self, Common, Session};
use crate::output;

pub(crate) use args::VosCommand;
use host::HostNames;
use told::Told;

/// What a verb ends with: done, or the exit code of what it has said.
type Outcome = Result<(), Quit>;

/// The exit code of a verb that failed. Which, depends on where in OpenAFS's `vos` it fails, and
/// scripts may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Quit(u8);

impl Quit {
    /// -1, as most verbs return.
    const RETURN: Self = Self(255);
    /// What others exit with.
    const EXIT: Self = Self(1);
    /// -2, of some wrong uses.
    const USE: Self = Self(254);
}

/// Prints to standard output, as `print!` does.
macro_rules! out {
    ($($arg:tt)*) => { $crate::output::help(&format!($($arg)*)) };
}
/// Prints to standard error, as `eprint!` does.
macro_rules! err {
    ($($arg:tt)*) => { $crate::output::usage(&format!($($arg)*)) };
}
use {err, out};

/// What a verb works with.
struct Context<'a> {
    session: &'a Session,
    vos: Vos,
    told: Arc<Told>,
    hosts: Arc<HostNames>,
    json: bool,
}

pub(crate) fn run(command: VosCommand) -> anyhow::Result<ExitCode> {
    let common = command.common().clone();
    let done = afs_args::run(&common, async |session| {
        let context = Context::new(session, &common, command.tells_all());
        let outcome = context.dispatch(&command).await;
        context.told.end();
        Ok(match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(Quit(code)) => ExitCode::from(code),
        })
    });
    // A cell that is not known ends `vos` with 1.
    done.or_else(|error| {
        output::error(&error);
        Ok(ExitCode::from(Quit::EXIT.0))
    })
}

impl VosCommand {
    /// Whether a verb tells each step without being asked to.
    fn tells_all(&self) -> bool {
        match self {
            Self::Syncvldb(args) => args.dryrun && args.volume.is_some(),
            Self::Syncserv(args) => args.dryrun,
            _ => false,
        }
    }
}

impl<'a> Context<'a> {
    fn new(session: &'a Session, common: &Common, verbose: bool) -> Self {
        let hosts = Arc::new(HostNames::default());
        let told = Arc::new(Told::new(verbose || common.verbose));
        let names = Arc::clone(&hosts);
        let noresolve = common.noresolve;
        let vos = Vos::new(session.servers.clone(), Arc::clone(&told) as Arc<_>)
            .with_interrupt(session.interrupt.clone())
            .with_names(Arc::new(move |address: Ipv4Addr| match noresolve {
                true => address.to_string(),
                false => names.name_of(address),
            }));
        Self {
            session,
            vos,
            told,
            hosts,
            json: common.own.json,
        }
    }

    async fn dispatch(&self, command: &VosCommand) -> Outcome {
        match command {
            VosCommand::Addsite(args) => self.addsite(args).await,
            VosCommand::Backup(args) => self.backup(args).await,
            VosCommand::Backupsys(args) => self.backupsys(args).await,
            VosCommand::Changeaddr(args) => self.changeaddr(args).await,
            VosCommand::Changeloc(args) => self.changeloc(args).await,
            VosCommand::Clone(args) => self.clone_volume(args).await,
            VosCommand::ConvertRoToRw(args) => self.convert(args).await,
            VosCommand::Copy(args) => self.copy(args).await,
            VosCommand::Create(args) => self.create(args).await,
            VosCommand::Delentry(args) => self.delentry(args).await,
            VosCommand::Dump(args) => self.dump(args).await,
            VosCommand::Endtrans(args) => self.endtrans(args).await,
            VosCommand::Examine(args) => self.examine(args).await,
            VosCommand::Listaddrs(args) => self.listaddrs(args).await,
            VosCommand::Listpart(args) => self.listpart(args).await,
            VosCommand::Listvldb(args) => self.listvldb(args).await,
            VosCommand::Listvol(args) => self.listvol(args).await,
            VosCommand::Lock(args) => self.lock(args).await,
            VosCommand::Move(args) => self.move_volume(args).await,
            VosCommand::Offline(args) => self.offline(args).await,
            VosCommand::Online(args) => self.online(args).await,
            VosCommand::Partinfo(args) => self.partinfo(args).await,
            VosCommand::Release(args) => self.release(args).await,
            VosCommand::Remaddrs(args) => self.remaddrs(args).await,
            VosCommand::Remove(args) => self.remove(args).await,
            VosCommand::Remsite(args) => self.remsite(args).await,
            VosCommand::Rename(args) => self.rename(args).await,
            VosCommand::Restore(args) => self.restore(args).await,
            VosCommand::Setaddrs(args) => self.setaddrs(args).await,
            VosCommand::Setfields(args) => self.setfields(args).await,
            VosCommand::Shadow(args) => self.shadow(args).await,
            VosCommand::Size(args) => self.size(args).await,
            VosCommand::Status(args) => self.status(args).await,
            VosCommand::Syncserv(args) => self.syncserv(args).await,
            VosCommand::Syncvldb(args) => self.syncvldb(args).await,
            VosCommand::Unlock(args) => self.unlock(args).await,
            VosCommand::Unlockvldb(args) => self.unlockvldb(args).await,
            VosCommand::Zap(args) => self.zap(args).await,
        }
    }

    /// The address a server's name stands for; `what` is what the message calls it. The server of this
    /// machine is meant as others know it: the loopback address would be another server to them.
    fn server(&self, name: &str, what: &str, quit: Quit) -> Result<Ipv4Addr, Quit> {
        let address = self.server_as_typed(name, what, quit)?;
        let here = self.session.here.as_ref();
        Ok(here
            .and_then(|here| here.known_as(address))
            .unwrap_or(address))
    }

    /// The same, for what may be in the database from a time when it was not so.
    fn server_as_typed(&self, name: &str, what: &str, quit: Quit) -> Result<Ipv4Addr, Quit> {
        self.hosts.address_of(name).ok_or_else(|| {
            err!("vos: {what} '{name}' not found in host table\n");
            quit
        })
    }

    fn partition(&self, name: &str, quit: Quit) -> Result<PartitionId, Quit> {
        name.parse().map_err(|_| {
            err!("vos: could not interpret partition name '{name}'\n");
            quit
        })
    }

    /// A partition that the server has.
    async fn partition_there(
        &self,
        server: Ipv4Addr,
        name: &str,
        quit: Quit,
    ) -> Result<ServerPartition, Quit> {
        let partition = self.partition(name, quit)?;
        let has = self.has_partition(server, partition).await;
        self.place(server, partition, name, has, quit)
    }

    /// A partition that the server has, as far as can be found out: what is only a note in the
    /// database is not kept from the administrator by a server that is down.
    async fn partition_to_note(
        &self,
        server: Ipv4Addr,
        name: &str,
        quit: Quit,
    ) -> Result<ServerPartition, Quit> {
        let partition = self.partition(name, quit)?;
        let mut has = self.has_partition(server, partition).await;
        if has == Err(Failure(AbortCode::RX_CALL_DEAD.0)) {
            err!(
                "vos: server {server} does not answer, so it is unknown whether it has partition \
                 {name}; going on\n"
            );
            has = Ok(true);
        }
        self.place(server, partition, name, has, quit)
    }

    async fn has_partition(
        &self,
        server: Ipv4Addr,
        partition: PartitionId,
    ) -> Result<bool, Failure> {
        let partitions = self.vos.partitions(server).await?;
        Ok(partitions.contains(&partition))
    }

    fn place(
        &self,
        server: Ipv4Addr,
        partition: PartitionId,
        name: &str,
        has: Result<bool, Failure>,
        quit: Quit,
    ) -> Result<ServerPartition, Quit> {
        match has {
            Err(Failure(code)) => err!("{}", error_text(code)),
            Ok(false) => err!("vos : partition {name} does not exist on the server\n"),
            Ok(true) => return Ok(ServerPartition { server, partition }),
        }
        Err(quit)
    }

    /// The id that a number or name stands for; `unknown` is said if it stands for none.
    async fn volume_id(&self, typed: &str, unknown: &str, quit: Quit) -> Result<VolumeId, Quit> {
        match self.vos.volume_id(typed).await {
            Ok(VolumeId(0)) => {
                err!("{unknown} '{typed}'\n");
                Err(quit)
            }
            Ok(id) => Ok(id),
            Err(code) => {
                err!("{}", error_text(code));
                Err(quit)
            }
        }
    }

    /// What is said last of a verb that failed.
    fn diagnose(&self, verb: &str, Failure(code): Failure, quit: Quit) -> Quit {
        self.told.end();
        match code {
            EACCES => err!("You are not authorized to perform the 'vos {verb}' command ({code})\n"),
            EXDEV => err!(
                "Error in vos {verb} command.\nClone volume is not in the same partition as the \
                 read-write volume.\n"
            ),
            _ => err!("Error in vos {verb} command.\n{}", error_text(code)),
        }
        quit
    }
}

#[cfg(test)]
mod tests;
