//! `cargo xtask tidy`: the house rules, as a test.
//!
//! A rule is a small function in a module of its own that looks at text and returns
//! findings; this module feeds them the tracked files.

mod advice;
mod anchors;
mod borders;
mod codes;
mod docs;
mod engine;
mod english;
mod imports;
mod layers;
mod licences;
mod links;
mod machine_paths;
mod size;
mod spec;
mod words;

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::output;
use crate::sh;

/// Options of `cargo xtask tidy`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Something against the house rules.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    /// Counted from 1; 0 for the file as a whole.
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// A tracked text file.
#[derive(Debug)]
struct Source {
    /// Path from the top of the checkout, with `/` between its parts.
    path: String,
    text: String,
}

impl Source {
    #[cfg(test)]
    fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn is(&self, extension: &str) -> bool {
        self.path
            .rsplit_once('.')
            .is_some_and(|(_, end)| end == extension)
    }

    /// The file's lines with their numbers, counted from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    /// The parent folder's path.
    fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

pub(crate) fn run(_: &Args) -> Result<()> {
    let findings = check(&sh::root())?;
    print(&findings);
    match findings.len() {
        0 => Ok(()),
        1 => bail!("1 finding"),
        n => bail!("{n} findings"),
    }
}

/// Checks the checkout below `root` by all rules.
///
/// # Errors
/// When the files cannot be listed or read, or cargo cannot tell the dependencies.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>> {
    let paths = tracked(root)?;
    let sources = read(root, &paths)?;
    let mut findings = engine::check()?;
    findings.extend(borders::check(&sources));
    findings.extend(docs::check(&sources));
    findings.extend(layers::check(&sources));
    findings.extend(links::check(&sources, |path| is_tracked(&paths, path)));
    findings.extend(spec::check(&sources));
    for source in &sources {
        findings.extend(advice::check(source));
        findings.extend(codes::check(source));
        findings.extend(english::check(source));
        findings.extend(licences::check(source));
        findings.extend(machine_paths::check(source));
        findings.extend(size::check(source));
        findings.extend(words::check(source));
    }
    findings.sort();
    Ok(findings)
}

/// Prints findings, one a line.
pub(crate) fn print(findings: &[Finding]) {
    for finding in findings {
        output::line(&finding.to_string());
    }
    if findings.is_empty() {
        output::line("tidy");
    }
}

/// The paths of all files under version control.
fn tracked(root: &Path) -> Result<Vec<String>> {
    let list = sh::capture(
        Command::new("git")
            .args(["ls-files", "-z"])
            .current_dir(root),
    )
    .context("tidy checks the files under version control")?;
    let paths = list.split('\0').filter(|path| !path.is_empty());
    Ok(paths.map(str::to_owned).collect())
}

/// Whether a path is one of the files or a folder with one of them.
fn is_tracked(paths: &[String], path: &str) -> bool {
    paths.iter().any(|file| {
        let rest = file.strip_prefix(path);
        path.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Reads those files that are text and in the checkout.
fn read(root: &Path, paths: &[String]) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for path in paths {
        let full = root.join(path);
        if !full.is_file() {
            continue;
        }
        let bytes = fs::read(&full).with_context(|| format!("reading {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            sources.push(Source {
                path: path.clone(),
                text,
            });
        }
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_their_folders_are_tracked() {
        let paths = ["docs/admin/link.md".to_owned()];
        for path in ["docs", "docs/admin", "docs/admin/link.md", ""] {
            assert!(is_tracked(&paths, path), "{path}");
        }
        assert!(!is_tracked(&paths, "docs/adm"));
    }
}
