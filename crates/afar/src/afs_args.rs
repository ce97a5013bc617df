//! Command lines as AFS's administrators have typed them for decades.
//!
//! `vos`, `pts`, `bos` and `fs` share one grammar (OpenAFS's `cmd` library): options begin with one
//! dash (`-server fs1`), any beginning of a name that fits one option or command only stands for it
//! (`vos exa`), and values without an option go to the options that take values, in the order in
//! which a command's syntax lists them (`vos create fs1 a user.pat`), until the first option with a
//! value is named. Scripts depend on all of it.
//!
//! Commands are defined with clap by long options alone; [`rewrite`] turns such a command line into
//! one with every option spelled out, going by the definition. What clap then sees is always well
//! formed, and all that is wrong with it is said here, in the words scripts may look for.

mod common;
mod usage;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use clap::{Arg, ArgAction, Command};

pub(crate) use common::{Common, OWN, OwnArgs, Session, open, run};

/// The commands with this grammar.
const SUITES: [&str; 4] = ["vos", "pts", "bos", "fs"];

/// Whether a command has this grammar.
pub(crate) fn is_suite(verb: &str) -> bool {
    SUITES.contains(&verb)
}

/// The usage of a suite's command in the suites' own form, on one line.
pub(crate) fn synopsis(suite: &str, command: &Command) -> String {
    let usage = usage::syntax(suite, command);
    let words: Vec<&str> = usage.split_whitespace().skip(1).collect();
    format!("afar {}", words.join(" "))
}

/// What a suite's exit status says.
pub(crate) fn exit_status(suite: &str) -> String {
    let wrong = match Wrong::Command.code(suite) {
        same if same == Wrong::TooFew.code(suite) => same.to_string(),
        _ => format!("{} to {}", Wrong::Values as u8, Wrong::TooFew as u8),
    };
    format!(
        "As with OpenAFS's {suite}: 0 success, other values failure (standard error says what and \
         why); {wrong} is wrong usage. {} interrupted before it was done.",
        common::INTERRUPTED
    )
}

/// What is to be done about a command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rewritten {
    /// It goes to clap.
    Parse(Vec<OsString>),
    /// Help: this goes to standard output, and the program ends with this code.
    Print(String, u8),
    /// It is wrong: this goes to standard error, without the program's own name before it, and
    /// the program ends with this code.
    Fail(String, u8),
}

/// Spells a command line out if it is of `vos`, `pts`, `bos` or `fs`; others stay as they are. A
/// program that is called by one of these names is that command.
pub(crate) fn rewrite(root: &Command, argv: impl IntoIterator<Item = OsString>) -> Rewritten {
    let mut argv: Vec<OsString> = argv.into_iter().collect();
    let called = argv.first().and_then(|name| Path::new(name).file_name());
    if let Some(suite) = SUITES
        .iter()
        .find(|suite| called == Some(OsStr::new(suite)))
    {
        argv.splice(..1, ["afar".into(), (*suite).into()]);
    }
    let suite = argv.get(1).and_then(|name| {
        let name = name.to_str().filter(|name| SUITES.contains(name))?;
        root.get_subcommands()
            .find(|suite| suite.get_name() == name)
    });
    let Some(suite) = suite else {
        return Rewritten::Parse(argv);
    };
    let rest = argv.split_off(2);
    match spell_out(suite, &rest) {
        Ok(spelled) => {
            argv.extend(spelled);
            Rewritten::Parse(argv)
        }
        Err(other) => other,
    }
}

fn spell_out(suite: &Command, typed: &[OsString]) -> Result<Vec<OsString>, Rewritten> {
    let name = suite.get_name();
    let fail = |(wrong, text): (Wrong, String)| Rewritten::Fail(text, wrong.code(name));
    if typed.first().is_some_and(|verb| verb == "--help") {
        return Ok(vec!["--help".into()]);
    }
    let Some((verb, typed)) = typed.split_first() else {
        let text = format!("{name}: Type '{name} help' or '{name} help <topic>' for help\n");
        return Err(Rewritten::Print(text, Wrong::NoCommand.code(name)));
    };
    let found = match find_command(suite, verb) {
        Ok(Verb::Command(found)) => found,
        Ok(Verb::Help) => return Err(usage::help(suite, typed)),
        Ok(Verb::Apropos) => return Err(usage::apropos(suite, typed)),
        Ok(Verb::Version) => {
            let text = format!("afar {}\n", env!("CARGO_PKG_VERSION"));
            return Err(Rewritten::Print(text, 0));
        }
        Err(ambiguous) => {
            let what = if ambiguous {
                "Ambiguous"
            } else {
                "Unrecognized"
            };
            let verb = verb.to_string_lossy();
            return Err(fail((
                Wrong::Command,
                format!("{name}: {what} operation '{verb}'; type '{name} help' for list\n"),
            )));
        }
    };
    if typed.iter().any(|token| token == "--help") {
        // clap tells more than the suites do.
        return Ok(vec![found.get_name().into(), "--help".into()]);
    }
    if found.get_arguments().any(Arg::is_trailing_var_arg_set) {
        // It takes whatever it is given.
        let front = [found.get_name().into(), "--".into()];
        return Ok(front.into_iter().chain(typed.iter().cloned()).collect());
    }
    let mut line = Line::new(name, found);
    for token in typed {
        line.take(token).map_err(fail)?;
    }
    if line.help {
        return Err(Rewritten::Print(usage::syntax(name, found), 0));
    }
    line.check().map_err(fail)?;
    let mut spelled = vec![OsString::from(found.get_name())];
    spelled.extend(line.spelled);
    Ok(spelled)
}

/// What is wrong with a command line: the low bits of the code the `cmd` library has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// More than one value for an option that takes one.
    Values = 2,
    /// More than there are options for.
    TooMany = 3,
    /// No command at all.
    NoCommand = 4,
    /// No such command.
    Command = 5,
    /// No such option.
    Switch = 6,
    /// Something is missing.
    TooFew = 8,
}

impl Wrong {
    /// What the program of this name returns for it.
    fn code(self, suite: &str) -> u8 {
        match suite {
            "vos" => 255,
            "pts" => 1,
            _ => self as u8,
        }
    }
}

/// What the first word stands for.
enum Verb<'a> {
    Command(&'a Command),
    Help,
    Apropos,
    Version,
}

/// The command of this name, or the only one whose name begins so; else whether there are several.
fn find_command<'a>(suite: &'a Command, typed: &OsStr) -> Result<Verb<'a>, bool> {
    let typed = typed.as_bytes();
    match typed {
        b"help" | b"-help" => return Ok(Verb::Help),
        b"version" | b"-version" | b"--version" => return Ok(Verb::Version),
        b"apropos" => return Ok(Verb::Apropos),
        _ => {}
    }
    let commands = || suite.get_subcommands();
    let exact = commands().find(|command| names(command).any(|name| name.as_bytes() == typed));
    if let Some(exact) = exact {
        return Ok(Verb::Command(exact));
    }
    let fitting = commands().filter(|command| {
        !command.is_hide_set() && names(command).any(|name| name.as_bytes().starts_with(typed))
    });
    let fitting = fitting.map(Verb::Command);
    let own = [
        ("help", Verb::Help),
        ("apropos", Verb::Apropos),
        ("version", Verb::Version),
    ];
    let own = own
        .into_iter()
        .filter(|(name, _)| name.as_bytes().starts_with(typed))
        .map(|(_, verb)| verb);
    let mut fitting = fitting.chain(own);
    let first = fitting.next().ok_or(false)?;
    if fitting.next().is_some() {
        return Err(true);
    }
    Ok(first)
}

fn names(command: &Command) -> impl Iterator<Item = &str> {
    std::iter::once(command.get_name()).chain(command.get_all_aliases())
}

/// A command's options in the order of its syntax, and how far a line of them is read.
struct Line<'a> {
    suite: &'a str,
    command: &'a str,
    slots: Vec<Slot<'a>>,
    /// The slot that the next value goes to.
    current: usize,
    /// No option with a value was named yet.
    positional: bool,
    help: bool,
    spelled: Vec<OsString>,
}

/// An option.
struct Slot<'a> {
    arg: &'a Arg,
    name: &'a str,
    kind: Kind,
    /// The suites do not have it elsewhere.
    own: bool,
    /// It was named.
    named: bool,
    /// Values it has so far.
    values: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flag,
    Single,
    List,
}

impl<'a> Line<'a> {
    fn new(suite: &'a str, command: &'a Command) -> Self {
        let slots = options(command).map(|(name, arg)| Slot {
            arg,
            name,
            kind: kind(arg),
            own: is_own(arg) || !usage::is_told(suite, name),
            named: false,
            values: 0,
        });
        Self {
            suite,
            command: command.get_name(),
            slots: slots.collect(),
            current: 0,
            positional: true,
            help: false,
            spelled: Vec::new(),
        }
    }

    /// Reads one word.
    fn take(&mut self, token: &OsStr) -> Result<(), (Wrong, String)> {
        let bytes = token.as_bytes();
        // What begins with a dash and a digit is a negative number.
        if bytes.first() == Some(&b'-') && !bytes.get(1).is_some_and(u8::is_ascii_digit) {
            self.option(token)
        } else {
            self.value(token)
        }
    }

    fn option(&mut self, token: &OsStr) -> Result<(), (Wrong, String)> {
        let bytes = token.as_bytes();
        let equals = bytes.iter().rposition(|&byte| byte == b'=');
        let (typed, value) = match equals {
            Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
            None => (bytes, None),
        };
        let typed = typed.strip_prefix(b"-").unwrap_or(typed);
        let typed = match typed {
            [b'-', rest @ ..] if rest.len() > 1 => rest,
            _ => typed,
        };
        if !typed.is_empty() && b"help".starts_with(typed) && self.find(typed).is_none() {
            self.help = true;
            return Ok(());
        }
        let suite = self.suite;
        let Some(found) = self.find(typed) else {
            let (token, command) = (token.to_string_lossy(), self.command);
            let text = format!(
                "{suite}: Unrecognized or ambiguous switch '{token}'; type '{suite} help \
                 {command}' for detailed help\n"
            );
            return Err((Wrong::Switch, text));
        };
        let slot = &mut self.slots[found];
        if slot.kind == Kind::Flag {
            if value.is_some() {
                let name = slot.name;
                let text = format!("{suite}: Switch '-{name}' doesn't take an argument\n");
                return Err((Wrong::TooMany, text));
            }
            if !std::mem::replace(&mut slot.named, true) {
                self.spelled.push(format!("--{}", slot.name).into());
            }
            return Ok(());
        }
        slot.named = true;
        self.positional = false;
        self.current = found;
        match value {
            Some(value) => self.fill(found, OsStr::from_bytes(value)),
            None => Ok(()),
        }
    }

    /// The option of this name, or the only one whose name begins so.
    fn find(&self, typed: &[u8]) -> Option<usize> {
        let exact = |slot: &Slot<'_>| {
            let short = slot.arg.get_short_and_visible_aliases().unwrap_or_default();
            let mut short = short.into_iter().map(String::from);
            let mut long = slot.arg.get_all_aliases().unwrap_or_default().into_iter();
            slot.name.as_bytes() == typed
                || short.any(|name| name.as_bytes() == typed)
                || long.any(|name| name.as_bytes() == typed)
        };
        if let Some(found) = self.slots.iter().position(exact) {
            return Some(found);
        }
        // A beginning that the suites know must not stand for more because of what is our own.
        let begins = |slot: &Slot<'_>| {
            !slot.arg.is_hide_set() && !slot.own && slot.name.as_bytes().starts_with(typed)
        };
        let mut fitting = (0..self.slots.len()).filter(|&slot| begins(&self.slots[slot]));
        let first = fitting.next()?;
        fitting.next().is_none().then_some(first)
    }

    fn value(&mut self, value: &OsStr) -> Result<(), (Wrong, String)> {
        while self.slots.get(self.current).is_some_and(|slot| {
            slot.kind == Kind::Flag || ((slot.own || slot.arg.is_hide_set()) && !slot.named)
        }) {
            self.current += 1;
        }
        if self.current >= self.slots.len() {
            let text = format!("{}: Too many arguments\n", self.suite);
            return Err((Wrong::TooMany, text));
        }
        self.fill(self.current, value)?;
        // The last option that takes a list takes all that is left.
        let expands = self.slots[self.current].kind == Kind::List
            && self.slots[self.current + 1..]
                .iter()
                .all(|slot| slot.kind != Kind::List || slot.own);
        if self.positional && !expands {
            let mut later = self.current + 1..self.slots.len();
            let next = later.find(|&slot| {
                let slot = &self.slots[slot];
                slot.kind != Kind::Flag && !slot.own && !slot.arg.is_hide_set()
            });
            self.current = next.unwrap_or(self.current);
        }
        Ok(())
    }

    fn fill(&mut self, number: usize, value: &OsStr) -> Result<(), (Wrong, String)> {
        let slot = &mut self.slots[number];
        if slot.kind == Kind::Single && slot.values > 0 {
            let (suite, name) = (self.suite, slot.name);
            let text = format!("{suite}: Too many values after switch -{name}\n");
            return Err((Wrong::Values, text));
        }
        slot.values += 1;
        let mut spelled = format!("--{}=", slot.name).into_bytes();
        spelled.extend_from_slice(value.as_bytes());
        self.spelled.push(OsString::from_vec(spelled));
        Ok(())
    }

    /// Whether all that is needed is there.
    fn check(&self) -> Result<(), (Wrong, String)> {
        let suite = self.suite;
        for slot in self.slots.iter().filter(|slot| slot.kind != Kind::Flag) {
            if slot.named && slot.values == 0 {
                let name = slot.name;
                let text = format!("{suite}:  The field '-{name}' isn't completed properly\n");
                return Err((Wrong::TooFew, text));
            }
            if slot.arg.is_required_set() && slot.values == 0 {
                let name = slot.name;
                let text = format!("{suite}: Missing required parameter '-{name}'\n");
                return Err((Wrong::TooFew, text));
            }
        }
        Ok(())
    }
}

/// A command's options by their names, in the order of its syntax.
fn options(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    let named = |arg| Arg::get_long(arg).map(|name| (name, arg));
    command
        .get_arguments()
        .filter_map(named)
        .filter(|(name, _)| !matches!(*name, "help" | "version"))
}

fn is_own(arg: &Arg) -> bool {
    matches!(arg.get_help_heading(), Some(OWN | crate::fetch::REACH))
}

fn kind(arg: &Arg) -> Kind {
    match arg.get_action() {
        ArgAction::Append => Kind::List,
        ArgAction::Set => Kind::Single,
        _ => Kind::Flag,
    }
}

#[cfg(test)]
mod tests;
