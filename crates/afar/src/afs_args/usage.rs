//! Help in the form of the AFS command suites: `vos help`, `vos help create`, `vos create -help`.

use std::ffi::OsString;
use std::fmt::Write;

use clap::{Arg, Command};

use super::{Kind, Rewritten, Verb, Wrong, find_command, is_own, kind, names, options};

/// Columns a line of usage may take.
const WIDTH: usize = 78;

/// `vos help [TOPIC...]`.
pub(super) fn help(suite: &Command, topics: &[OsString]) -> Rewritten {
    let name = suite.get_name();
    let topics = match topics.split_first() {
        Some((first, rest)) if first == "-topic" => rest,
        _ => topics,
    };
    if topics.is_empty() {
        let mut text = format!("{name}: Commands are:\n");
        for (verb, about) in listed(suite) {
            line(&mut text, format_args!("{verb:<15} {about}"));
        }
        return Rewritten::Print(text, 0);
    }
    let mut text = String::new();
    for topic in topics {
        let found = match find_command(suite, topic) {
            Ok(Verb::Command(found)) => found,
            Ok(_) => continue,
            Err(ambiguous) => {
                let topic = topic.to_string_lossy();
                let text = if ambiguous {
                    format!("{name}: Ambiguous topic '{topic}'; use 'apropos' to list\n")
                } else {
                    format!("{name}: Unknown topic '{topic}'\n")
                };
                return Rewritten::Fail(text, Wrong::Command.code(name));
            }
        };
        let verb = found.get_name();
        line(&mut text, format_args!("{name} {verb}: {} ", about(found)));
        let mut aliases = names(found).skip(1).peekable();
        if aliases.peek().is_some() {
            text.push_str("aliases: ");
            for alias in aliases {
                text.push_str(alias);
                text.push(' ');
            }
            text.push('\n');
        }
        text.push_str(&syntax(name, found));
        text.push_str(&flags(name, found));
    }
    Rewritten::Print(text, 0)
}

/// `vos apropos TOPIC`.
pub(super) fn apropos(suite: &Command, topics: &[OsString]) -> Rewritten {
    let name = suite.get_name();
    let topic = match topics {
        [topic] => topic,
        [option, topic] if option == "-topic" => topic,
        _ => {
            let text = format!("{name}: Missing required parameter '-topic'\n");
            return Rewritten::Fail(text, Wrong::TooFew.code(name));
        }
    };
    let topic = topic.to_string_lossy();
    let mut text = String::new();
    for (verb, about) in listed(suite) {
        if verb.contains(&*topic) || about.contains(&*topic) {
            line(&mut text, format_args!("{verb}: {about}"));
        }
    }
    if text.is_empty() {
        text.push_str("Sorry, no commands found\n");
    }
    Rewritten::Print(text, 0)
}

/// `Usage: vos create -server <machine name> …`, as `-help` prints it.
pub(super) fn syntax(suite: &str, command: &Command) -> String {
    let mut text = format!("Usage: {suite} {}", command.get_name());
    let mut column = text.len();
    let mut items: Vec<_> = shown(suite, command)
        .into_iter()
        .map(|(name, arg)| item(suite, name, arg))
        .collect();
    items.push("[-help]".to_owned());
    for item in items {
        if column + 1 + item.len() > WIDTH {
            text.push_str("\n        ");
            column = 8;
        }
        text.push(' ');
        text.push_str(&item);
        column += 1 + item.len();
    }
    text.push('\n');
    text
}

/// The options of all commands that `pts` and `bos` have elsewhere, in their order; the others here
/// are understood, and not told of.
const ALL_COMMANDS: [(&str, &[&str]); 2] = [
    (
        "pts",
        &[
            "cell",
            "noauth",
            "force",
            "localauth",
            "auth",
            "encrypt",
            "config",
        ],
    ),
    ("bos", &["cell", "noauth", "localauth"]),
];
/// All options of any suite's commands.
const COMMON: [&str; 9] = [
    "cell",
    "noauth",
    "force",
    "localauth",
    "auth",
    "encrypt",
    "config",
    "verbose",
    "noresolve",
];

/// Whether a suite has this option elsewhere.
pub(super) fn is_told(suite: &str, option: &str) -> bool {
    let all = ALL_COMMANDS.iter().find(|(name, _)| *name == suite);
    all.is_none_or(|(_, all)| all.contains(&option) || !COMMON.contains(&option))
}

/// Options in the order in which help shows them.
fn shown<'a>(suite: &str, command: &'a Command) -> Vec<(&'a str, &'a Arg)> {
    let all: Vec<_> = options(command).filter(|(_, arg)| is_shown(arg)).collect();
    let Some((_, last)) = ALL_COMMANDS.iter().find(|(name, _)| *name == suite) else {
        return all;
    };
    let own = all.iter().filter(|(name, _)| !COMMON.contains(name));
    let last = last
        .iter()
        .filter_map(|last| all.iter().find(|(name, _)| name == last));
    own.chain(last).copied().collect()
}

fn item(suite: &str, name: &str, arg: &Arg) -> String {
    let mut text = format!("-{name}");
    let shorts = arg.get_short_and_visible_aliases().unwrap_or_default();
    // Only vos has its short name for the cell.
    let shorts = shorts
        .into_iter()
        .filter(|_| suite == "vos" || name != "cell");
    for short in shorts {
        text.push_str(" | -");
        text.push(short);
    }
    if kind(arg) != Kind::Flag {
        let value = arg.get_value_names().and_then(<[_]>::first);
        let value = value.map_or("arg", |value| value.as_str());
        let many = if kind(arg) == Kind::List { "+" } else { "" };
        line_end(&mut text, format_args!(" <{value}>{many}"));
    }
    if arg.is_required_set() {
        text
    } else {
        format!("[{text}]")
    }
}

/// What the flags mean.
fn flags(suite: &str, command: &Command) -> String {
    let flags = shown(suite, command)
        .into_iter()
        .filter(|(_, arg)| kind(arg) == Kind::Flag)
        .filter_map(|(name, arg)| Some((format!("-{name}"), meaning(suite, name, arg)?)));
    let flags: Vec<_> = flags.collect();
    let width = flags.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (number, (name, help)) in flags.iter().enumerate() {
        let prefix = if number == 0 { "Where:" } else { "" };
        line(&mut text, format_args!("{prefix:<7}{name:<width$}  {help}"));
    }
    text
}

/// What an option means, in the words the suite has for it.
fn meaning(suite: &str, name: &str, arg: &Arg) -> Option<String> {
    let text = match (suite, name) {
        ("pts", "noauth") => "run unauthenticated",
        ("pts", "localauth") => "use local authentication",
        ("bos", "localauth") => "create tickets from KeyFile",
        _ => return arg.get_help().map(ToString::to_string),
    };
    Some(text.to_owned())
}

fn is_shown(arg: &Arg) -> bool {
    !arg.is_hide_set() && !is_own(arg)
}

/// Commands with what they do, and those every suite has, by name.
fn listed(suite: &Command) -> Vec<(&str, String)> {
    let shown = suite
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let mut listed: Vec<_> = shown
        .map(|command| (command.get_name(), about(command)))
        .collect();
    listed.push(("apropos", "search by help text".to_owned()));
    listed.push(("help", "get help on commands".to_owned()));
    listed.push(("version", "show version".to_owned()));
    listed.sort_by_key(|(verb, _)| *verb);
    listed
}

fn about(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string);
    about.unwrap_or_default()
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    line_end(text, what);
    text.push('\n');
}

fn line_end(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what)
        .expect("a string takes all that is written");
}
