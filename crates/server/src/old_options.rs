//! Command lines of OpenAFS's servers, for those who bring them: every option of its fileserver,
//! vlserver, ptserver, volserver and salvager, and of their demand-attach kin, is understood, checked, and
//! answered with what takes its place here.
//!
//! A number that OpenAFS needs to be told raises a limit here and never lowers one: what suits a pool of
//! 128 threads would only slow this server down. An option that keeps somebody out is never passed over.

mod table;

use anyhow::{Context, bail, ensure};

use crate::config::{Config, within};
use table::{OPTIONS, PROGRAMS};

/// An option of one or several programs.
struct OldOption {
    name: &'static str,
    /// Bits of [`PROGRAMS`].
    of: u8,
    takes: Takes,
    meaning: Meaning,
}

/// What an option takes.
#[derive(Clone, Copy)]
enum Takes {
    Nothing,
    /// A number in these bounds.
    Number(i64, i64),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Any word.
    Word,
    /// A number or nothing.
    MaybeNumber,
    /// Words, up to the next option.
    Words,
}

/// What became of an option.
#[derive(Clone, Copy)]
enum Meaning {
    /// It sets something; this tells what, or that it stays.
    Set(fn(&mut Config, &[String]) -> anyhow::Result<String>),
    /// It is not needed any more, for this reason.
    Needless(&'static str),
    /// It has no effect; this is to be done or known instead.
    Instead(&'static str),
    /// A server that takes no notice of it would let through what it is to stop.
    Refused(&'static str),
}

/// Takes old options off a command line into the configuration. Returns a remark for each.
///
/// A word that names a program, as in a line of BosConfig, says whose the options after it are; without
/// one they are the file server's first.
///
/// # Errors
/// Names the option that is unknown, has a wrong value, or cannot be passed over.
pub fn apply(options: &[String], config: &mut Config) -> anyhow::Result<Vec<String>> {
    let mut remarks = Vec::new();
    let mut program = table::FILE;
    let mut rest = options;
    while let [name, more @ ..] = rest {
        rest = more;
        if let Some(named) = program_of(name) {
            program = named;
            continue;
        }
        let option = find(name, program)?;
        let (values, more) = option.values(more)?;
        rest = more;
        let shown = [std::slice::from_ref(name), values].concat().join(" ");
        remarks.push(match option.meaning {
            Meaning::Set(set) => {
                let what = set(config, values).with_context(|| shown.clone())?;
                format!("{shown}: {what}")
            }
            Meaning::Needless(why) => format!("{shown}: not needed; {why}"),
            Meaning::Instead(what) => format!("{shown}: ignored; {what}"),
            Meaning::Refused(what) => bail!("{shown}: {what}"),
        });
    }
    Ok(remarks)
}

/// The program that a word names, by itself or with a path.
fn program_of(word: &str) -> Option<u8> {
    let name = word.rsplit('/').next().unwrap_or(word);
    let found = PROGRAMS.iter().find(|(known, _)| *known == name);
    found.map(|(_, bit)| *bit)
}

/// The option of this name: of the program, else of any; as in OpenAFS the beginning of a name is enough
/// where it is the only one.
fn find(name: &str, program: u8) -> anyhow::Result<&'static OldOption> {
    let of_program = |option: &&OldOption| option.of & program != 0;
    let exact = |option: &&OldOption| option.name == name;
    let mut own = OPTIONS.iter().filter(of_program);
    if let Some(option) = own.find(exact).or_else(|| OPTIONS.iter().find(exact)) {
        return Ok(option);
    }
    let own = OPTIONS.iter().filter(of_program);
    let mut begin = own.filter(|option| name.len() > 1 && option.name.starts_with(name));
    match (begin.next(), begin.next()) {
        (Some(option), None) => Ok(option),
        (Some(one), Some(other)) => {
            bail!("{name}: is it {} or {}? Write it out", one.name, other.name)
        }
        _ => bail!(
            "{name}: not an option of OpenAFS's fileserver, vlserver, ptserver, volserver or salvager; \
             `afar config explain` explains the configuration"
        ),
    }
}

impl OldOption {
    /// Takes what belongs to the option, and returns the rest.
    fn values<'w>(&self, rest: &'w [String]) -> anyhow::Result<(&'w [String], &'w [String])> {
        let name = self.name;
        let one = |what: &str| {
            let first = rest.split_at_checked(1);
            first.with_context(|| format!("{name} takes {what}"))
        };
        let is_value = |word: &&String| !word.starts_with('-') && program_of(word).is_none();
        match self.takes {
            Takes::Nothing => Ok((&[], rest)),
            Takes::Number(least, most) => {
                let (value, rest) = one("a number")?;
                check_number(name, value, least, most)?;
                Ok((value, rest))
            }
            Takes::OneOf(known) => {
                let what = format!("one of {}", known.join(", "));
                let (value, rest) = one(&what)?;
                let is_known = value.iter().all(|word| known.contains(&word.as_str()));
                ensure!(is_known, "{name} {}: it takes {what}", value.concat());
                Ok((value, rest))
            }
            Takes::Word => one("a word"),
            Takes::MaybeNumber => {
                let number = rest.first().is_some_and(|word| word.parse::<u32>().is_ok());
                Ok(rest.split_at(usize::from(number)))
            }
            Takes::Words => {
                let count = rest.iter().take_while(is_value).count();
                ensure!(count > 0, "{name} takes a word, or several");
                Ok(rest.split_at(count))
            }
        }
    }
}

/// Refuses what is no number, or out of range.
fn check_number(name: &str, value: &[String], least: i64, most: i64) -> anyhow::Result<()> {
    let text = value.concat();
    let number: i64 = text
        .parse()
        .with_context(|| format!("{name} {text}: not a number"))?;
    within(name, number, least, most)
}

#[cfg(test)]
mod tests;
