//! `afar config explain`: tells what can be configured.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use afar_server::config::{Config, DEFAULT_PATH};
use afar_server::explain::{Explanation, explain};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::output::Output;

/// What can be done with a configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Explain the keys of the configuration: meaning, default, range, and value in a file.
    Explain(ExplainArgs),
}

/// Options of `afar config explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Keys to explain, such as `files.max_calls` or `files` [default: all]
    keys: Vec<String>,
    /// The configuration whose values to show [default: /etc/afar/afar.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON, one object for each key
    #[arg(long)]
    json: bool,
}

/// A key as it is told.
#[derive(Debug, Serialize)]
struct Explained {
    key: &'static str,
    meaning: &'static str,
    range: &'static str,
    default: Option<String>,
    value: Option<String>,
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.key)?;
        writeln!(f, "    {}", self.meaning)?;
        write!(f, "    range: {}", self.range)?;
        if let Some(default) = &self.default {
            write!(f, "\n    default: {default}")?;
        }
        if let Some(value) = &self.value {
            write!(f, "\n    here: {value}")?;
        }
        Ok(())
    }
}

impl From<Explanation> for Explained {
    fn from(explanation: Explanation) -> Self {
        let Explanation {
            key,
            meaning,
            range,
            default,
            value,
        } = explanation;
        Self {
            key,
            meaning,
            range,
            default,
            value,
        }
    }
}

/// Does what is asked with a configuration.
pub(crate) fn run(command: ConfigCommand) -> anyhow::Result<ExitCode> {
    let ConfigCommand::Explain(args) = command;
    let file = match args.config {
        Some(path) => Some(Config::read(&path)?),
        None if PathBuf::from(DEFAULT_PATH).exists() => Some(Config::read(DEFAULT_PATH.as_ref())?),
        None => None,
    };
    let explained = explain(&args.keys, file.as_ref())?;
    let mut output = Output::new(args.json, None)?;
    for explanation in explained {
        output.report(&Explained::from(explanation))?;
    }
    Ok(ExitCode::SUCCESS)
}
