//! A command's manual page, made from its definition: what `--help` tells, in the sections that
//! readers of manual pages look for.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::afs_args;

/// Where a command's text behind its help tells of its exit status.
const STATUS: &str = "Exit status: ";
/// Where it shows how it is used.
const EXAMPLE: &str = "Example";

/// Related commands of afar, for SEE ALSO.
const RELATED: &[(&str, &[&str])] = &[
    (
        "afar",
        &[
            "up", "server", "mount", "login", "cp", "vos", "pts", "fs", "bos",
        ],
    ),
    ("up", &["server", "mount", "login", "keys"]),
    ("server", &["config", "keys", "store", "bos", "up"]),
    ("config", &["server"]),
    ("keys", &["server", "login"]),
    ("mount", &["umount", "login", "fs"]),
    ("umount", &["mount"]),
    ("login", &["tokens", "logout", "pts"]),
    ("tokens", &["login", "logout"]),
    ("logout", &["login", "tokens"]),
    ("ls", &["stat", "cp", "mount"]),
    ("stat", &["ls", "fs"]),
    ("cat", &["cp", "ls"]),
    ("cp", &["sync", "ls", "login", "mount"]),
    ("sync", &["cp", "login", "mount"]),
    ("mkdir", &["rmdir", "cp", "fs"]),
    ("rm", &["rmdir", "mv"]),
    ("rmdir", &["rm", "mkdir"]),
    ("mv", &["cp", "rm"]),
    ("ln", &["cp", "mv"]),
    ("rxperf", &["link"]),
    ("store", &["server", "vos"]),
    ("vos", &["pts", "fs", "bos", "store"]),
    ("pts", &["vos", "fs", "login"]),
    ("bos", &["vos", "server"]),
    ("fs", &["mount", "vos", "pts"]),
    ("link", &["rxperf"]),
    ("man", &["completions"]),
    ("completions", &["man"]),
];
/// And pages of others.
const FOREIGN: &[(&str, &[&str])] = &[
    ("mount", &["mount(8)", "fusermount3(1)"]),
    ("umount", &["umount(8)"]),
    ("login", &["kinit(1)", "ssh-agent(1)"]),
    ("server", &["systemd.socket(5)"]),
];

/// The commands of a command that are told of.
pub(super) fn children(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|child| !child.is_hide_set() && child.get_name() != "help")
}

/// The name of a command's page, such as `afar-vos-create`.
pub(super) fn name(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

/// The page of a command, as man(1) reads it; `line` is the program and the verbs down to the command.
///
/// # Errors
/// None in practice: memory takes all that is written.
pub(super) fn of(line: &[&Command]) -> io::Result<Vec<u8>> {
    let Some(command) = line.last() else {
        return Ok(Vec::new());
    };
    let suite = line.get(1).map(|verb| verb.get_name());
    let suite = suite.filter(|verb| afs_args::is_suite(verb));
    let mut shown = Command::clone(command);
    if let Some(suite) = suite.filter(|_| line.len() > 2) {
        // Its options have one dash in all that was ever written of the suites.
        shown = shown.override_usage(afs_args::synopsis(suite, command));
    }
    let man = Man::new(shown)
        .source(concat!("afar ", env!("CARGO_PKG_VERSION")))
        .manual("AFS for long and fat links");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if suite.is_some() {
        let mut rest = Roff::new();
        grammar(&mut rest);
        rest.to_writer(&mut page)?;
    }
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if children(command).next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::new();
    more(&mut rest, &after(command));
    exit_status(&mut rest, line, suite);
    see_also(&mut rest, line);
    rest.to_writer(&mut page)?;
    Ok(page)
}

/// How command lines of the suites are read.
fn grammar(page: &mut Roff) {
    page.control("PP", []);
    page.text([roman(
        "Options begin with one dash or two. Any unique prefix of the name of a command or an \
         option stands for it. Values without an option go to the options that take values, in \
         the order of the synopsis, until the first of these is named.",
    )]);
}

/// The text behind a command's help.
fn after(command: &Command) -> String {
    command
        .get_after_long_help()
        .or_else(|| command.get_after_help())
        .map(ToString::to_string)
        .unwrap_or_default()
}

fn more(page: &mut Roff, after: &str) {
    if after.starts_with(EXAMPLE) {
        page.control("SH", ["EXAMPLES"]);
        page.control("nf", []);
        for line in after.lines() {
            page.text([roman(line)]);
        }
        page.control("fi", []);
    } else if !after.is_empty() && !after.starts_with(STATUS) {
        page.control("SH", ["NOTES"]);
        for line in after.lines() {
            page.text([roman(line)]);
        }
    }
}

fn exit_status(page: &mut Roff, line: &[&Command], suite: Option<&str>) {
    let told = line.iter().rev().map(|command| after(command));
    let mut told = told.filter_map(|text| Some(text.strip_prefix(STATUS)?.to_owned()));
    let text = match suite {
        Some(suite) => afs_args::exit_status(suite),
        // What a command does not tell of itself is as with all.
        None => told.next().unwrap_or_default(),
    };
    page.control("SH", ["EXIT STATUS"]);
    page.text([roman(text)]);
}

fn see_also(page: &mut Roff, line: &[&Command]) {
    let above = line.iter().rev().skip(1);
    let mut others: Vec<String> = above.map(|above| format!("{}(1)", name(above))).collect();
    let verb = line.last().map_or("", |command| command.get_name());
    if line.len() < 3 {
        let related = row(RELATED, verb).iter();
        others.extend(related.map(|verb| format!("afar-{verb}(1)")));
        others.extend(row(FOREIGN, verb).iter().map(|&other| other.to_owned()));
    }
    page.control("SH", ["SEE ALSO"]);
    let mut text: Vec<Inline> = Vec::new();
    for other in &others {
        let (title, section) = other.split_once('(').unwrap_or((other, "1)"));
        if !text.is_empty() {
            text.push(roman(", "));
        }
        text.extend([bold(title), roman(format!("({section}"))]);
    }
    page.text(text);
}

fn row(table: &[(&str, &'static [&'static str])], verb: &str) -> &'static [&'static str] {
    let row = table.iter().find(|(name, _)| *name == verb);
    row.map_or(&[], |(_, others)| *others)
}
