//! Command lines of a mount, whichever program writes them.
//!
//! `mount -t afar CELL /afs -o OPTIONS`, and so a line of fstab, runs `mount.afar CELL /afs -o OPTIONS`:
//! this program by another name. What `-o` says there and what flags say in `afar mount` is one
//! set: `-o cache=DIR` is `--cache DIR`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{Arg, Command};

/// What `mount -t afar` runs.
const HELPER: &str = "mount.afar";
/// The command that does the same.
const MOUNT: &str = "mount";
/// What stands in fstab where there is nothing to name.
const NO_SOURCE: [&str; 5] = ["dynroot", "none", "afar", "afs", "AFS"];
/// Flags of the command that are none of a mount.
const NOT_AN_OPTION: [&str; 2] = ["help", "option"];

/// Spells a command line out if it is of `mount` or `mount.afar`; others stay as they are.
pub(crate) fn rewrite(root: &Command, argv: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut argv: Vec<OsString> = argv.into_iter().collect();
    let called = argv.first().and_then(|name| Path::new(name).file_name());
    if called == Some(OsStr::new(HELPER)) {
        argv.splice(..1, ["afar".into(), HELPER.into()]);
    }
    let Some(verb) = argv.get(1).and_then(|verb| verb.to_str()) else {
        return argv;
    };
    let is_helper = verb == HELPER;
    if !is_helper && verb != MOUNT {
        return argv;
    }
    let rest = argv.split_off(2);
    let rest = if is_helper { helper(rest) } else { rest };
    argv.truncate(1);
    argv.push(MOUNT.into());
    match root.find_subcommand(MOUNT) {
        Some(mount) => argv.extend(spell_out(mount, rest)),
        None => argv.extend(rest),
    }
    argv
}

/// The command line of mount(8) for its helpers: `SOURCE DIR [-sfnv] [-N namespace] [-o options]
/// [-t type.subtype]`.
fn helper(typed: Vec<OsString>) -> Vec<OsString> {
    let mut spelled = Vec::new();
    let mut places = Vec::new();
    let mut typed = typed.into_iter();
    while let Some(word) = typed.next() {
        match word.to_str() {
            Some("-o") => {
                spelled.push(word);
                spelled.extend(typed.next());
            }
            Some("-t" | "-N") => drop(typed.next()),
            Some("-f") => spelled.push("--fake".into()),
            Some(flags) if flags.starts_with('-') && flags.len() > 1 && is_ignored(flags) => {
                if flags.contains('f') {
                    spelled.push("--fake".into());
                }
            }
            _ => places.push(word),
        }
    }
    if places
        .first()
        .is_some_and(|source| NO_SOURCE.iter().any(|none| source == none))
    {
        places[0] = "--dynroot".into();
    }
    spelled.extend(places);
    spelled
}

/// Whether these are flags of mount(8) that mean nothing here: sloppy, fake, no mtab, verbose.
fn is_ignored(flags: &str) -> bool {
    flags[1..].chars().all(|flag| "sfnv".contains(flag))
}

/// Turns options behind `-o` that flags have names for into these.
fn spell_out(mount: &Command, typed: Vec<OsString>) -> Vec<OsString> {
    let mut spelled = Vec::new();
    let mut typed = typed.into_iter();
    while let Some(word) = typed.next() {
        let list = match word.to_str() {
            Some("--") => {
                spelled.push(word);
                spelled.extend(typed);
                return spelled;
            }
            Some("-o" | "--option") => typed.next(),
            Some(joined) => joined
                .strip_prefix("-o")
                .or_else(|| joined.strip_prefix("--option="))
                .filter(|_| !joined.starts_with("--") || joined.starts_with("--option="))
                .map(OsString::from),
            None => None,
        };
        let Some(list) = list else {
            spelled.push(word);
            continue;
        };
        let Some(list) = list.to_str() else {
            // clap says what is wrong with it.
            spelled.extend(["-o".into(), list]);
            continue;
        };
        for option in list.split(',').filter(|option| !option.is_empty()) {
            spell_option(mount, option, &mut spelled);
        }
    }
    spelled
}

fn spell_option(mount: &Command, option: &str, spelled: &mut Vec<OsString>) {
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    // fstab's options are written with either dash.
    let long = name.replace('_', "-");
    let flag = mount.get_arguments().find(|arg| {
        arg.get_long() == Some(long.as_str()) && !NOT_AN_OPTION.contains(&long.as_str())
    });
    match (flag, value) {
        (Some(flag), Some(value)) if takes_value(flag) => {
            spelled.push(format!("--{long}={value}").into());
        }
        (Some(flag), None) if !takes_value(flag) => spelled.push(format!("--{long}").into()),
        _ => spelled.extend(["-o".into(), option.into()]),
    }
}

fn takes_value(flag: &Arg) -> bool {
    flag.get_action().takes_values()
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::*;
    use crate::mount::MountArgs;

    fn rewritten(line: &str) -> String {
        let root = Command::new("afar").subcommand(MountArgs::augment_args(Command::new(MOUNT)));
        let words = rewrite(&root, line.split(' ').map(OsString::from));
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn options_that_are_flags_become_flags() {
        for (typed, spelled) in [
            ("afar mount /afs", "afar mount /afs"),
            (
                "afar mount -o ro,cache=/c,no_dns /afs",
                "afar mount -o ro --cache=/c --no-dns /afs",
            ),
            (
                "afar mount -oserver=a,server=b /afs",
                "afar mount --server=a --server=b /afs",
            ),
            // A flag's value is missing, or there is one too many: said where options are read.
            (
                "afar mount -o cache,localauth=1 /afs",
                "afar mount -o cache -o localauth=1 /afs",
            ),
            ("afar mount -- -o", "afar mount -- -o"),
            ("afar ls -o x=y", "afar ls -o x=y"),
        ] {
            assert_eq!(rewritten(typed), spelled, "{typed}");
        }
    }

    #[test]
    fn the_helper_of_mount_is_the_command() {
        for (typed, spelled) in [
            (
                "/sbin/mount.afar a.org /afs -o rw,cache_size=1G,write_through",
                "afar mount -o rw --cache-size=1G --write-through a.org /afs",
            ),
            (
                "afar mount.afar none /afs -sv -t afar",
                "afar mount --dynroot /afs",
            ),
            (
                "mount.afar -f dynroot /afs",
                "afar mount --fake --dynroot /afs",
            ),
            (
                "mount.afar dynroot /afs -nf",
                "afar mount --fake --dynroot /afs",
            ),
        ] {
            assert_eq!(rewritten(typed), spelled, "{typed}");
        }
    }
}
