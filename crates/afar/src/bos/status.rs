//! `afar bos status`.

use std::fmt;
use std::process::ExitCode;

use afar_admin::bos::{self, Instance};
use afar_admin::vos::words::date;
use afar_types::{BozoState, BozoStatus, BozoText, UnixTime};
use clap::Args;
use serde::Serialize;

use super::{at, words};
use crate::afs_args::Common;
use crate::output::Output;

/// The signal by which a process is told to stop.
const SIGTERM: i32 = 15;

/// Options of `bos status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    server: String,
    /// server process name
    #[arg(long, value_name = "server process name", num_args = 1..)]
    instance: Vec<String>,
    /// long status
    #[arg(long)]
    long: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: StatusArgs) -> anyhow::Result<ExitCode> {
    at(&args.common, &args.server, async |server| {
        // As bos has it: what fails from here on is told, and is no failure of the command.
        let names = if args.instance.is_empty() {
            match bos::instance_names(&server).await {
                Ok(names) => names,
                Err(error) => {
                    words::no_overseer(&error);
                    return Ok(ExitCode::SUCCESS);
                }
            }
        } else {
            args.instance.clone()
        };
        let mut output = Output::new(args.common.own.json, None)?;
        let mut first = true;
        for name in names {
            let found = bos::instance(&server, &BozoText::new(name.as_bytes())?).await;
            match found {
                Ok(instance) => output.report(&Status {
                    instance: Shown::from(&instance),
                    told: instance,
                    long: args.long,
                    first: std::mem::take(&mut first),
                })?,
                Err(error) => words::failed(&format!("get instance info for '{name}'"), &error),
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// A process as it is told.
#[derive(Serialize)]
struct Status {
    #[serde(flatten)]
    instance: Shown,
    #[serde(skip)]
    told: Instance,
    #[serde(skip)]
    long: bool,
    #[serde(skip)]
    first: bool,
}

#[derive(Serialize)]
struct Shown {
    name: String,
    kind: String,
    state: &'static str,
    description: String,
    started: u32,
    starts: i32,
    commands: Vec<String>,
}

impl From<&Instance> for Shown {
    fn from(instance: &Instance) -> Self {
        Self {
            name: instance.name.clone(),
            kind: instance.kind.clone(),
            state: state(instance.state),
            description: instance.description.clone(),
            started: instance.history.process_start_time.0,
            starts: instance.history.process_starts,
            commands: instance.commands.clone(),
        }
    }
}

fn state(state: BozoState) -> &'static str {
    match state {
        BozoState::Normal => "running normally",
        BozoState::Shutdown => "shutdown",
        BozoState::StartingUp => "starting up",
        BozoState::ShuttingDown => "shutting down",
        BozoState::Other(_) => "in a state unknown here",
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Instance {
            history, commands, ..
        } = &self.told;
        let has = |flag| history.flags & flag != 0;
        if self.first && self.long && has(BozoStatus::BAD_DIRECTORY_ACCESS) {
            writeln!(
                f,
                "Bosserver reports inappropriate access on server directories"
            )?;
        }
        write!(f, "Instance {}, ", self.told.name)?;
        if self.long {
            write!(f, "(type is {}) ", self.told.kind)?;
        }
        f.write_str(match (history.file_goal, history.goal) {
            (0, 0) => "disabled, ",
            (file, now) if file == now => "",
            (0, _) => "temporarily enabled, ",
            _ => "temporarily disabled, ",
        })?;
        if has(BozoStatus::ERROR_STOP) {
            f.write_str("stopped for too many errors, ")?;
        }
        if has(BozoStatus::HAS_CORE) {
            f.write_str("has core file, ")?;
        }
        write!(f, "currently {}.", state(self.told.state))?;
        if !self.told.description.is_empty() {
            write!(f, "\n    Auxiliary status is: {}.", self.told.description)?;
        }
        if !self.long {
            return Ok(());
        }
        self.history(f)?;
        for (number, command) in commands.iter().enumerate() {
            write!(f, "\n    Command {} is '{command}'", number + 1)?;
        }
        if let Some(notifier) = &self.told.notifier {
            write!(f, "\n    Notifier  is '{notifier}'")?;
        }
        writeln!(f)
    }
}

impl Status {
    fn history(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let history = &self.told.history;
        if history.process_start_time != UnixTime(0) {
            write!(
                f,
                "\n    Process last started at {} ({} proc starts)",
                date(history.process_start_time),
                history.process_starts
            )?;
        }
        if history.last_any_exit != UnixTime(0) {
            write!(f, "\n    Last exit at {}", date(history.last_any_exit))?;
        }
        if history.last_error_exit == UnixTime(0) {
            return Ok(());
        }
        let at = date(history.last_error_exit);
        write!(f, "\n    Last error exit at {at}, ")?;
        if !self.told.failed.is_empty() {
            write!(f, "by {}, ", self.told.failed)?;
        }
        match history.error_signal {
            0 => write!(f, "by exiting with code {}", history.error_code),
            SIGTERM => f.write_str("due to shutdown request"),
            signal => write!(f, "due to signal {signal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_as_bos_tells_it() {
        let told = Instance {
            name: "fs".to_owned(),
            kind: "fs".to_owned(),
            history: BozoStatus {
                goal: 1,
                file_goal: 1,
                ..BozoStatus::default()
            },
            state: BozoState::Normal,
            description: "file server running".to_owned(),
            failed: String::new(),
            commands: vec!["fileserver".to_owned()],
            notifier: None,
        };
        let mut status = Status {
            instance: Shown::from(&told),
            told,
            long: false,
            first: true,
        };
        assert_eq!(
            status.to_string(),
            "Instance fs, currently running normally.\n    Auxiliary status is: file server running."
        );
        status.long = true;
        status.told.history.file_goal = 0;
        assert_eq!(
            status.to_string(),
            "Instance fs, (type is fs) temporarily enabled, currently running normally.\n    \
             Auxiliary status is: file server running.\n    Command 1 is 'fileserver'\n"
        );
    }
}
