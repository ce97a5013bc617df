//! What the program tells of itself: its version, its manual pages, and to shells how a command line
//! of it goes on.
//!
//! - `page`: a command's manual page, made from its definition
//! - `man`: showing a page, and writing all of them

mod man;
mod page;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

pub(crate) use man::{ManArgs, man};

use crate::output;

/// What can be built in or left out, and is built in.
const FEATURES: &[&str] = if cfg!(feature = "etcd") {
    &["etcd"]
} else {
    &[]
};

/// What `--version` prints behind the program's name.
pub(crate) const VERSION: &str = if cfg!(feature = "etcd") {
    concat!(env!("CARGO_PKG_VERSION"), "\nfeatures: etcd")
} else {
    concat!(env!("CARGO_PKG_VERSION"), "\nfeatures: none")
};

/// Options of `afar version`.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the version, and what is built in.
pub(crate) fn version(args: &VersionArgs) -> anyhow::Result<ExitCode> {
    let text = if args.json {
        let version = env!("CARGO_PKG_VERSION");
        serde_json::json!({ "version": version, "features": FEATURES }).to_string()
    } else {
        format!("afar {VERSION}")
    };
    output::document(format!("{text}\n").as_bytes()).context("cannot write the version")?;
    Ok(ExitCode::SUCCESS)
}

/// Options of `afar completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell to print completions for
    shell: For,
}

/// A shell.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum For {
    Bash,
    Zsh,
    Fish,
}

/// Prints what a shell reads to complete command lines of `root`.
pub(crate) fn completions(mut root: Command, args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let shell = match args.shell {
        For::Bash => Shell::Bash,
        For::Zsh => Shell::Zsh,
        For::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut root, "afar", &mut text);
    output::document(&text).context("cannot write the completions")?;
    Ok(ExitCode::SUCCESS)
}
