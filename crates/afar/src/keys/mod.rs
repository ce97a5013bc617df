//! `afar keys`: the keys of a cell, with which its servers open tickets.
//!
//! Crate `afar-security` changes the files; here are flags and what is printed, which never is a key.

mod place;

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use afar_security::keys::{Key, KeyInfo, edit};
use afar_security::{EncryptionKey, EncryptionType};
use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::output::{self, Output};
use place::KeyFiles;

/// `afar keys …`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    List(ListArgs),
    Add(AddArgs),
    Generate(GenerateArgs),
    Remove(RemoveArgs),
    Import(ImportArgs),
}

/// Options of `afar keys list`.
#[derive(Debug, Args)]
#[command(about = "List keys: number, encryption type, file; never the key itself")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    place: KeyFiles,
    #[command(flatten)]
    form: Form,
}

/// Options of `afar keys add`.
#[derive(Debug, Args)]
#[command(
    about = "Add a key, read from standard input in hexadecimal digits",
    after_help = "Servers notice a new key by themselves. Give it to all of them before the first \
    ticket is made with it."
)]
pub(crate) struct AddArgs {
    /// The key's number (key version number), as tickets name it
    #[arg(long)]
    kvno: u32,
    #[command(flatten)]
    etype: Etype,
    #[command(flatten)]
    place: KeyFiles,
    #[command(flatten)]
    form: Form,
}

/// Options of `afar keys generate`.
#[derive(Debug, Args)]
#[command(
    about = "Generate a new random key",
    long_about = "Generate a new random key, for a cell without Kerberos. In a cell with Kerberos the KDC \
    makes the key, and `afar keys import` reads it from a keytab.",
    after_help = "To change the key of a cell: generate a key, give the file to its other servers, wait \
    until the tickets of the old key have expired, and remove the old key."
)]
pub(crate) struct GenerateArgs {
    /// The key's number [default: the next one]
    #[arg(long)]
    kvno: Option<u32>,
    #[command(flatten)]
    etype: Etype,
    #[command(flatten)]
    place: KeyFiles,
    #[command(flatten)]
    form: Form,
}

/// Options of `afar keys remove`.
#[derive(Debug, Args)]
#[command(
    about = "Remove keys; servers refuse tickets made with them from then on",
    after_help = "Wait until these tickets have expired; otherwise their users have to log in again."
)]
pub(crate) struct RemoveArgs {
    /// The number of the keys
    kvno: u32,
    /// Remove only the key of this encryption type [default: all of this number]
    #[arg(long)]
    etype: Option<EncryptionType>,
    #[command(flatten)]
    place: KeyFiles,
    #[command(flatten)]
    form: Form,
}

/// Options of `afar keys import`.
#[derive(Debug, Args)]
#[command(
    about = "Import the cell's keys from a keytab, or from the KeyFileExt of another server",
    long_about = "Import the cell's keys from a keytab, or from the KeyFileExt of another server. From a \
    keytab it imports the keys of afs/CELL and afs, and ignores the others.",
    after_help = "Example: kadmin -q 'ktadd -k afs.keytab afs/example.org'\n  \
    afar keys import afs.keytab"
)]
pub(crate) struct ImportArgs {
    /// The keytab or KeyFileExt to read
    from: PathBuf,
    #[command(flatten)]
    place: KeyFiles,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
struct Etype {
    /// The encryption type: its name or number
    #[arg(long, default_value = "aes256-cts-hmac-sha1-96")]
    etype: EncryptionType,
}

#[derive(Debug, Args)]
struct Form {
    /// Print JSON, one object for each key
    #[arg(long)]
    json: bool,
}

/// A key, and what was done with it.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<&'static str>,
    file: PathBuf,
    kind: String,
    kvno: u32,
    etype: i32,
    #[serde(skip)]
    text: String,
}

impl Line {
    fn new(done: Option<&'static str>, info: &KeyInfo, file: &Path) -> Self {
        Self {
            done,
            file: file.to_owned(),
            kind: info.kind.to_string(),
            kvno: info.kvno,
            etype: info.etype,
            text: info.to_string(),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(done) = self.done {
            write!(f, "{done} ")?;
        }
        write!(f, "{}  ({})", self.text, self.file.display())
    }
}

/// Does what the command says.
///
/// # Errors
/// Which file, what is wrong with it, and what to try.
pub(crate) fn run(command: KeysCommand) -> anyhow::Result<ExitCode> {
    match command {
        KeysCommand::List(args) => list(&args),
        KeysCommand::Add(args) => add(&args),
        KeysCommand::Generate(args) => generate(&args),
        KeysCommand::Remove(args) => remove(&args),
        KeysCommand::Import(args) => import(&args),
    }
}

fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let files = args.place.files()?;
    let mut output = Output::new(args.form.json, None)?;
    let mut any = false;
    for file in files.iter().filter(|file| file.exists()) {
        for info in edit::list(file)? {
            any = true;
            output.report(&Line::new(None, &info, file))?;
        }
    }
    if !any {
        let names = files.iter().map(|file| file.display().to_string());
        bail!(
            "there is no key in {}; `afar keys import` imports one from a keytab, `afar keys \
             generate` generates one for a cell without Kerberos",
            names.collect::<Vec<_>>().join(", ")
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn add(args: &AddArgs) -> anyhow::Result<ExitCode> {
    let file = args.place.file()?;
    let mut text = Zeroizing::new(String::new());
    std::io::stdin()
        .take(1024)
        .read_to_string(&mut text)
        .context("cannot read the key from standard input")?;
    let octets = octets(text.trim())?;
    let etype = args.etype.etype;
    ensure!(
        octets.len() == etype.key_len(),
        "a key of {etype} has {} bytes, but {} were given",
        etype.key_len(),
        octets.len()
    );
    let key = Key {
        kvno: args.kvno,
        key: EncryptionKey::new(etype.number(), octets.to_vec()),
    };
    let done = if edit::add(&file, &key)? {
        "added"
    } else {
        "there already:"
    };
    tell(&args.form, done, &file, &key)
}

fn generate(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    let file = args.place.file()?;
    let key = edit::generate(&file, args.kvno, args.etype.etype)?;
    tell(&args.form, "made", &file, &key)
}

fn remove(args: &RemoveArgs) -> anyhow::Result<ExitCode> {
    let file = args.place.file()?;
    let etype = args.etype.map(EncryptionType::number);
    let gone = edit::remove(&file, args.kvno, etype)?;
    let mut output = Output::new(args.form.json, None)?;
    for info in &gone {
        output.report(&Line::new(Some("removed"), info, &file))?;
    }
    if !edit::list(&file)?.iter().any(KeyInfo::is_usable) {
        output::note(&format_args!(
            "{} has no key any more: servers can authenticate nobody",
            file.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let file = args.place.file()?;
    let imported = edit::import(&file, &args.from)?;
    let mut output = Output::new(args.form.json, None)?;
    for (done, infos) in [
        ("added", &imported.added),
        ("there already:", &imported.present),
        ("skipped, because it opens no tickets:", &imported.skipped),
    ] {
        for info in infos {
            output.report(&Line::new(Some(done), info, &file))?;
        }
    }
    ensure!(
        !imported.added.is_empty() || !imported.present.is_empty(),
        "{} has no key of afs/CELL or afs that servers can use; `klist -k -e` lists what is in a \
         keytab",
        args.from.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Tells of one key.
fn tell(form: &Form, done: &'static str, file: &Path, key: &Key) -> anyhow::Result<ExitCode> {
    let infos = edit::list(file)?;
    let etype = key.key.etype();
    let mut those = infos.iter();
    let info = those.find(|info| (info.kvno, info.etype) == (key.kvno, etype));
    let info = info.context("another program has removed the key again")?;
    Output::new(form.json, None)?.report(&Line::new(Some(done), info, file))?;
    Ok(ExitCode::SUCCESS)
}

/// What hexadecimal digits stand for.
fn octets(digits: &str) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let wrong = "the key is not an even number of hexadecimal digits";
    ensure!(
        digits.len().is_multiple_of(2) && digits.is_ascii(),
        "{wrong}"
    );
    let pairs = (0..digits.len()).step_by(2).map(|at| {
        let pair = digits.get(at..at + 2).unwrap_or_default();
        // A sign would be taken for a digit.
        let octet = u8::from_str_radix(pair, 16).ok();
        octet.filter(|_| pair.bytes().all(|b| b.is_ascii_hexdigit()))
    });
    let octets: Option<Vec<u8>> = pairs.collect();
    octets.map(Zeroizing::new).context(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_in_hexadecimal_digits() {
        assert_eq!(**octets("00fFa1").unwrap(), [0, 255, 161]);
        for wrong in ["0", "0x00", "+1", "äa", "zz"] {
            assert!(octets(wrong).is_err(), "{wrong}");
        }
    }
}
