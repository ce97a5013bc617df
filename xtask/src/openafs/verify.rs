//! Checking a cell with OpenAFS's own tools.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::FIXTURE;
use super::cell::{Cell, Role};
use crate::output;
use crate::sh;
use crate::test::Counts;

/// Ports of the file, protection, volume location and volume service.
const PORTS: [&str; 4] = ["7000", "7002", "7003", "7005"];
/// Files read back through the stock client, as volume and path.
const FILES: [(&str, &str); 5] = [
    ("test.pub", "hello.txt"),
    ("test.pub", "sizes/1"),
    ("test.pub", "sizes/4097"),
    ("test.pub", "sizes/8388608"),
    ("test.pub", "deep/down/down/at-17"),
];

/// EACCES as afsio prints it: "universal AFS error" 12.
const EACCES: &str = "Unknown code uae 12";

/// Checks the cell in this folder and prints a line for each check.
///
/// # Errors
/// When there is no cell there; a check that fails is counted, not an error.
pub(crate) fn verify(dir: &Path) -> Result<Counts> {
    let cell = Cell::load(dir)?;
    let mut checks = Checks::default();
    let address = cell.pair.server_address.clone();
    checks.check("all daemons run", || {
        ensure!(cell.dead().is_empty(), "ended: {}", cell.dead().join(" "));
        Ok(())
    });
    for port in PORTS {
        checks.check(&format!("rxdebug port {port}"), || {
            let words = ["rxdebug", &address, port, "-version"];
            let text = sh::capture(&mut cell.command(Role::Client, &words))?;
            ensure!(text.contains("OpenAFS"), "no version: {text}");
            Ok(())
        });
    }
    checks.check("vos listvldb, over the link", || {
        let words = ["vos", "listvldb", "-noauth"];
        let text = sh::capture(&mut cell.command(Role::Client, &words))?;
        for name in ["root.afs", "root.cell", "test.pub", "test.private"] {
            ensure!(text.contains(name), "{name} is not listed");
        }
        Ok(())
    });
    checks.check("pts listentries", || {
        let text = cell.admin(&["pts", "listentries", "-groups"])?;
        ensure!(text.contains("system:anyuser"), "no system:anyuser: {text}");
        Ok(())
    });
    checks.check("vos listvol: all on line", || {
        let text = cell.admin(&["vos", "listvol", &address])?;
        ensure!(text.contains("Total volumes offLine 0"), "{text}");
        Ok(())
    });
    checks.check("volscan finds every vnode of test.pub", || scan(&cell));
    checks.check("vos dump of test.pub ends well", || dump_again(&cell));
    let sums = sums(&cell.dir.join(FIXTURE))?;
    anonymous_configuration(&cell)?;
    for (volume, path) in FILES {
        checks.check(&format!("afsio read {volume}/{path}"), || {
            let text = afsio(
                &cell,
                volume,
                path,
                ">client/read && sha256sum <client/read",
            )?;
            let wanted = sums.get(&(volume.to_owned(), path.to_owned()));
            let found = text.split_whitespace().next();
            ensure!(
                found == wanted.map(String::as_str),
                "{found:?} is not {wanted:?}"
            );
            Ok(())
        });
    }
    for (volume, path) in [("test.private", "secret"), ("test.pub", "no-rights/secret")] {
        checks.check(&format!("{volume}/{path} is refused"), || {
            // afsio exits with 0 whatever happens, so its words decide.
            let text = afsio(&cell, volume, path, "2>&1")?;
            ensure!(text.contains(EACCES), "not refused, but: {text}");
            Ok(())
        });
    }
    Ok(checks.0)
}

/// The configuration that [`afsio`] takes in place of the client's, in the cell's folder.
const ANONYMOUS: &str = "client/anonymous";

/// Writes a client's configuration in which no server has a domain.
fn anonymous_configuration(cell: &Cell) -> Result<()> {
    let dir = cell.dir.join(ANONYMOUS);
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let (name, address) = (&cell.name, &cell.pair.server_address);
    for (file, text) in [
        ("ThisCell", format!("{name}\n")),
        (
            "CellServDB",
            format!(">{name}\t#a test cell\n{address}\t#afs1\n"),
        ),
    ] {
        let path = dir.join(file);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Reads a file with Debian's afsio as a user without a ticket; `output` says in the shell's
/// words where what it prints goes, from the cell's folder.
///
/// afsio 1.8.9 frees what happens to lie on its stack when it knows the realm and finds no
/// tickets: on some processors it ends by a signal each time. With neither a domain nor a
/// default realm it knows none and asks without a ticket at once.
fn afsio(cell: &Cell, volume: &str, path: &str, output: &str) -> Result<String> {
    let full = format!("/afs/{}/{volume}/{path}", cell.name);
    let script = format!(
        "cd \"$1\" && mount --bind {ANONYMOUS} /etc/openafs &&
         export KRB5_CONFIG=/dev/null && afsio read -file \"$2\" {output}"
    );
    let dir = cell.dir.to_str().context("the cell's folder is no text")?;
    let words = ["sh", "-c", &script, "read", dir, &full];
    sh::capture(&mut cell.command(Role::Client, &words))
}

/// Compares the tree that the file server's own scanner finds on the partition with the
/// fixture's list: kind, length and path of each entry.
fn scan(cell: &Cell) -> Result<()> {
    let text = cell.admin(&["vos", "examine", "test.pub"])?;
    let id = super::volume_id(&text, "RWrite:").context("vos examine tells no number")?;
    let words = format!(
        "volscan -partition a -volumeid {id} -noheading -find file dir mount symlink \
         -output vntype length path"
    );
    let words: Vec<&str> = words.split_whitespace().collect();
    let found = sh::capture(&mut cell.command(Role::Server, &words))?;
    let found: BTreeSet<&str> = found.lines().collect();
    let entries = entries(&cell.dir.join(FIXTURE))?;
    let mut compared = 0;
    for entry in entries.iter().filter(|entry| entry["volume"] == "test.pub") {
        let path = entry["path"].as_str().context("an entry without a path")?;
        // A scan is lines of text: names that are no text, or two lines, cannot be found.
        // It names a vnode once, whatever its links.
        if path.contains(['\n', '\u{fffd}']) || entry["links"].as_u64() > Some(1) {
            continue;
        }
        let wanted = match entry["kind"].as_str() {
            Some("file") => format!("file {} /{path}", entry["length"]),
            Some("directory") => {
                let end = format!(" /{path}");
                let there = found
                    .iter()
                    .any(|line| line.starts_with("dir ") && line.ends_with(&end));
                ensure!(there, "no directory /{path}");
                compared += 1;
                continue;
            }
            kind => {
                // A mount point is a link whose target ends in a dot, which the list omits.
                let target = entry["target"]
                    .as_str()
                    .context("a link without a target")?;
                let dot = usize::from(kind == Some("mount_point"));
                format!("symlink {} /{path}", target.len() + dot)
            }
        };
        ensure!(found.contains(wanted.as_str()), "no `{wanted}`");
        compared += 1;
    }
    ensure!(compared > 3000, "only {compared} entries were compared");
    Ok(())
}

/// Dumps a restored volume and looks at the end of the stream and its length.
fn dump_again(cell: &Cell) -> Result<()> {
    let path = cell.dir.join("check.dump");
    let file = path
        .to_str()
        .context("the cell's folder has a name that is not UTF-8")?;
    cell.admin(&["vos", "dump", "test.pub", "-file", file])?;
    let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    ensure!(
        bytes.ends_with(&[4, 0x3a, 0x21, 0x4b, 0x6e]),
        "the dump has no end mark"
    );
    ensure!(
        bytes.len() > 10 << 20,
        "the dump has only {} bytes",
        bytes.len()
    );
    Ok(())
}

/// The fixture's list.
fn entries(list: &Path) -> Result<Vec<Value>> {
    let text = fs::read(list).with_context(|| format!("reading {}", list.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("reading {}", list.display()))
}

/// SHA-256 of each file of the fixture, by volume and path.
fn sums(list: &Path) -> Result<BTreeMap<(String, String), String>> {
    let entries = entries(list)?;
    let text = |entry: &Value, key: &str| entry[key].as_str().map(str::to_owned);
    Ok(entries
        .iter()
        .filter_map(|entry| {
            let key = (text(entry, "volume")?, text(entry, "path")?);
            Some((key, text(entry, "sha256")?))
        })
        .collect())
}

#[derive(Default)]
struct Checks(Counts);

impl Checks {
    fn check(&mut self, what: &str, check: impl FnOnce() -> Result<()>) {
        match check() {
            Ok(()) => {
                self.0.passed += 1;
                output::note(&format!("ok    {what}"));
            }
            Err(error) => {
                self.0.failed += 1;
                output::note(&format!("FAIL  {what}: {error:#}"));
            }
        }
    }
}
