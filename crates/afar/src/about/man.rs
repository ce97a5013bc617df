//! `afar man`.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode, Stdio};

use anyhow::{Context, bail};
use clap::{Args, Command};

use super::page;
use crate::output;

/// What shows a page, and what it takes one from its standard input by.
const VIEWER: [&str; 3] = ["man", "-l", "-"];

/// Options of `afar man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The command to show, such as `vos create` [default: afar itself]
    #[arg(value_name = "VERB")]
    verb: Vec<String>,
    /// Write the pages of all commands into this directory, which is created if missing
    #[arg(long, value_name = "DIR", conflicts_with = "verb")]
    all: Option<PathBuf>,
}

/// Shows a page on a terminal, or prints it as man(1) reads it; or writes all pages.
pub(crate) fn man(root: Command, args: &ManArgs) -> anyhow::Result<ExitCode> {
    let root = built(root);
    if let Some(dir) = &args.all {
        write_all(&root, dir)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut line = vec![&root];
    let mut command = &root;
    for verb in &args.verb {
        let Some(found) = page::children(command).find(|child| child.get_name() == verb) else {
            let name = command.get_bin_name().unwrap_or("afar");
            bail!("{name} {verb}: no such command; `{name} --help` lists all commands");
        };
        command = found;
        line.push(command);
    }
    let page = page::of(&line)?;
    if !io::stdout().is_terminal() {
        output::document(&page).context("cannot write the page")?;
        return Ok(ExitCode::SUCCESS);
    }
    show(&page)
}

/// The commands with the names they have on pages.
fn built(root: Command) -> Command {
    let mut root = root.disable_help_subcommand(true);
    root.build();
    root
}

fn show(page: &[u8]) -> anyhow::Result<ExitCode> {
    let [program, arguments @ ..] = VIEWER;
    let mut viewer = process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot run man; install it (Debian: man-db), or use --help")?;
    if let Some(mut to) = viewer.stdin.take() {
        // A viewer that ends early has said why.
        let _unread = to.write_all(page);
    }
    let status = viewer.wait().context("waiting for man")?;
    Ok(match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn write_all(root: &Command, dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    write_below(&mut vec![root], root, dir)
}

/// Writes the page of a command and of all below it; `line` is the program and the verbs down to it.
fn write_below<'a>(
    line: &mut Vec<&'a Command>,
    command: &'a Command,
    dir: &Path,
) -> anyhow::Result<()> {
    let file = dir.join(format!("{}.1", page::name(command)));
    fs::write(&file, page::of(line)?)
        .with_context(|| format!("cannot write {}", file.display()))?;
    for child in page::children(command) {
        line.push(child);
        write_below(line, child, dir)?;
        line.pop();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    fn pages() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        write_all(&built(cli::command()), dir.path()).unwrap();
        dir
    }

    /// Each page with its name.
    fn read(dir: &Path) -> Vec<(String, String)> {
        let mut pages: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                (name, fs::read_to_string(path).unwrap())
            })
            .collect();
        pages.sort();
        pages
    }

    #[test]
    fn each_command_has_a_page_that_is_whole() {
        let dir = pages();
        let pages = read(dir.path());
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for wanted in ["afar", "afar-vos", "afar-vos-create", "afar-store-check"] {
            assert!(names.contains(&wanted), "{wanted} is not in {names:?}");
        }
        for (name, page) in &pages {
            for section in [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "\"EXIT STATUS\"",
                "\"SEE ALSO\"",
            ] {
                let heading = format!(".SH {section}\n");
                assert_eq!(page.matches(&heading).count(), 1, "{name}: {section}");
            }
        }
    }

    #[test]
    fn a_page_names_pages_that_there_are() {
        let dir = pages();
        let pages = read(dir.path());
        for (name, page) in &pages {
            let (_, others) = page.split_once(".SH \"SEE ALSO\"\n").unwrap();
            let others = others
                .replace("\\fB", "")
                .replace("\\fR", "")
                .replace("\\-", "-");
            for other in others.split([',', '\n', ' ']) {
                let Some(other) = other
                    .strip_suffix("(1)")
                    .filter(|it| it.starts_with("afar"))
                else {
                    continue;
                };
                assert!(
                    pages.iter().any(|(there, _)| there == other),
                    "{name} names {other}, which is no page"
                );
            }
        }
    }

    #[test]
    fn man_has_nothing_to_say_against_any_page() {
        let dir = pages();
        let mut judge = process::Command::new("man");
        judge.env("LC_ALL", "C.UTF-8").env("MANWIDTH", "80");
        judge.args(["--warnings", "-P", "cat", "-l"]);
        judge.args(
            read(dir.path())
                .iter()
                .map(|(name, _)| dir.path().join(format!("{name}.1"))),
        );
        let Ok(said) = judge.stdin(Stdio::null()).output() else {
            return eprintln!("skipped: no man");
        };
        let errors = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success() && errors.is_empty(), "{errors}");
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(text.contains("-server <machine name>"), "{text}");
    }
}
