//! `bos adduser`, `removeuser`, `restart`, and what only administrators are told: `listkeys`, `getlog`; and
//! `getdate`.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use afar_admin::bos;
use afar_admin::vos::words::date;
use afar_rpc::RpcError;
use afar_types::{BozoText, UnixTime};
use clap::Args;
use serde::Serialize;

use super::{at, words};
use crate::afs_args::Common;
use crate::output::{self, Output};

/// Where OpenAFS's programs are, as overseers know it.
const PROGRAMS: &str = "/usr/afs/bin";
/// ENOENT.
const NO_SUCH: i32 = 2;

/// Options of `bos adduser` and `removeuser`.
#[derive(Debug, Args)]
pub(crate) struct UserArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    server: String,
    /// user names
    #[arg(long, value_name = "user names", required = true, num_args = 1..)]
    user: Vec<String>,
    #[command(flatten)]
    common: Common,
}

pub(super) fn add_users(args: &UserArgs) -> anyhow::Result<ExitCode> {
    at(&args.common, &args.server, async |server| {
        let mut code = ExitCode::SUCCESS;
        for user in &args.user {
            let name = BozoText::new(user.as_bytes())?;
            if let Err(error) = server.add_s_user(name).await {
                words::failed(&format!("add user '{user}'"), &error);
                code = ExitCode::FAILURE;
            }
        }
        Ok(code)
    })
}

pub(super) fn remove_users(args: &UserArgs) -> anyhow::Result<ExitCode> {
    at(&args.common, &args.server, async |server| {
        let mut code = ExitCode::SUCCESS;
        for user in &args.user {
            let name = BozoText::new(user.as_bytes())?;
            let Err(error) = server.delete_s_user(name).await else {
                continue;
            };
            words::not_removed(user, &error, error.code().0 == NO_SUCH);
            code = ExitCode::FAILURE;
        }
        Ok(code)
    })
}

/// Options of `bos restart`.
#[derive(Debug, Args)]
pub(crate) struct RestartArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    server: String,
    /// instances
    #[arg(long, value_name = "instances", num_args = 1..)]
    instance: Vec<String>,
    /// restart bosserver
    #[arg(long)]
    bosserver: bool,
    /// restart all processes
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) fn restart(args: &RestartArgs) -> anyhow::Result<ExitCode> {
    if (args.all || args.bosserver) && !args.instance.is_empty() {
        let flag = if args.all { "-all" } else { "-bosserver" };
        words::not_both(&format!("'{flag}' and specific instances"));
        return Ok(ExitCode::FAILURE);
    }
    if !args.all && !args.bosserver && args.instance.is_empty() {
        words::no_instance();
        return Ok(ExitCode::FAILURE);
    }
    at(&args.common, &args.server, async |server| {
        if args.bosserver {
            return Ok(done("restart bosserver", server.re_bozo().await.map(drop)));
        }
        if args.all {
            return Ok(done(
                "restart servers",
                server.restart_all().await.map(drop),
            ));
        }
        for instance in &args.instance {
            let name = BozoText::new(instance.as_bytes())?;
            if let Err(error) = server.restart(name).await {
                words::failed(&format!("restart instance {instance}"), &error);
                return Ok(ExitCode::FAILURE);
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn done(what: &str, done: Result<(), RpcError>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            words::failed(what, &error);
            ExitCode::FAILURE
        }
    }
}

/// Options of `bos listkeys`.
#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    server: String,
    #[command(flatten)]
    common: Common,
}

/// A key of a server.
#[derive(Serialize)]
struct Key {
    kvno: i32,
    checksum: u32,
    changed: u32,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.checksum {
            0 => write!(f, "key version is {}", self.kvno),
            checksum => write!(f, "key {} has cksum {checksum}", self.kvno),
        }
    }
}

pub(super) fn list_keys(args: &KeysArgs) -> anyhow::Result<ExitCode> {
    at(&args.common, &args.server, async |server| {
        let mut reports = Output::new(args.common.own.json, None)?;
        let (keys, end) = bos::keys(&server).await;
        for key in &keys {
            reports.report(&Key {
                kvno: key.kvno,
                checksum: key.info.checksum,
                changed: key.info.modified.0,
            })?;
        }
        if !args.common.own.json
            && let Some(last) = keys.last()
        {
            output::help(&format!(
                "Keys last changed on {}.\n",
                date(last.info.modified)
            ));
        }
        if let Err(error) = end {
            words::keys_ended(&error);
            return Ok(ExitCode::FAILURE);
        }
        if !args.common.own.json {
            output::help("All done.\n");
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Options of `bos getlog`.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    server: String,
    /// log file to examine
    #[arg(long, value_name = "log file to examine", required = true)]
    file: String,
    #[command(flatten)]
    common: Common,
}

pub(super) fn get_log(args: &LogArgs) -> anyhow::Result<ExitCode> {
    at(&args.common, &args.server, async |server| {
        let mut out = std::io::stdout();
        writeln!(out, "Fetching log file '{}'...", args.file)?;
        let name = BozoText::new(args.file.as_bytes())?;
        let log = bos::log(&server, name, &mut out).await;
        match log {
            Ok(written) => {
                written?;
                out.flush()?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => {
                words::log_ended(&error);
                Ok(ExitCode::FAILURE)
            }
        }
    })
}

/// Options of `bos getdate`.
#[derive(Debug, Args)]
pub(crate) struct DateArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    server: String,
    /// files to check
    #[arg(long, value_name = "files to check", required = true, num_args = 1..)]
    file: Vec<String>,
    /// destination dir
    #[arg(long, value_name = "destination dir")]
    dir: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// When a program was installed.
#[derive(Serialize)]
struct Dates {
    file: String,
    new: u32,
    bak: u32,
    old: u32,
}

impl fmt::Display for Dates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File {} ", self.file)?;
        match self.new {
            0 => f.write_str("does not exist, ")?,
            time => write!(f, "dated {}, ", date(UnixTime(time)))?,
        }
        match self.bak {
            0 => f.write_str("no .BAK file, ")?,
            time => write!(f, ".BAK file dated {}, ", date(UnixTime(time)))?,
        }
        match self.old {
            0 => f.write_str("no .OLD file."),
            time => write!(f, ".OLD file dated {}.", date(UnixTime(time))),
        }
    }
}

pub(super) fn get_dates(args: &DateArgs) -> anyhow::Result<ExitCode> {
    at(&args.common, &args.server, async |server| {
        let mut output = Output::new(args.common.own.json, None)?;
        let dir = args.dir.as_deref().unwrap_or(PROGRAMS);
        for file in &args.file {
            let name = file.rsplit('/').next().unwrap_or(file);
            let path = format!("{dir}/{name}");
            match server.get_dates(BozoText::new(path.as_bytes())?).await {
                Ok(dates) => output.report(&Dates {
                    file: path,
                    new: dates.new_time.0,
                    bak: dates.bak_time.0,
                    old: dates.old_time.0,
                })?,
                Err(error) => {
                    words::failed(&format!("check date on {file}"), &error);
                    return Ok(ExitCode::FAILURE);
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_dates_are_told_as_bos_tells_them() {
        let key = |checksum| Key {
            kvno: 3,
            checksum,
            changed: 0,
        };
        assert_eq!(key(0).to_string(), "key version is 3");
        assert_eq!(key(7).to_string(), "key 3 has cksum 7");
        let dates = Dates {
            file: "/usr/afs/bin/vlserver".to_owned(),
            new: 0,
            bak: 0,
            old: 0,
        };
        assert_eq!(
            dates.to_string(),
            "File /usr/afs/bin/vlserver does not exist, no .BAK file, no .OLD file."
        );
    }
}
