//! Checking a cell with OpenAFS's own tools.

use std::collections::BTreeMap;
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
    checks.check("vos dump gives the restored vnodes", || same_dump(&cell));
    let sums = sums(&cell.dir.join(FIXTURE))?;
    for (volume, path) in FILES {
        checks.check(&format!("afsio read {volume}/{path}"), || {
            let full = format!("/afs/{}/{volume}/{path}", cell.name);
            let words = ["afsio", "read", "-file", full.as_str()];
            let pipe = format!("{}/client/read", cell.dir.display());
            let script = format!("\"$@\" >{pipe} && sha256sum <{pipe}");
            let words = [&["sh", "-c", script.as_str(), "read"], words.as_slice()].concat();
            let text = sh::capture(&mut cell.command(Role::Client, &words))?;
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
            let full = format!("/afs/{}/{volume}/{path}", cell.name);
            let words = ["afsio", "read", "-file", full.as_str()];
            let refused = sh::capture(&mut cell.command(Role::Client, &words));
            let error = refused.err().context("it was read")?;
            let text = error.to_string();
            ensure!(
                text.contains("ermission") || text.contains("13"),
                "another error: {text}"
            );
            Ok(())
        });
    }
    Ok(checks.0)
}

/// Checks that the salvager of the file server finds nothing to mend and that a dump of a
/// restored volume is as long as one without change must be.
fn same_dump(cell: &Cell) -> Result<()> {
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

/// SHA-256 of each file of the fixture, by volume and path.
fn sums(list: &Path) -> Result<BTreeMap<(String, String), String>> {
    let text = fs::read(list).with_context(|| format!("reading {}", list.display()))?;
    let entries: Vec<Value> =
        serde_json::from_slice(&text).with_context(|| format!("reading {}", list.display()))?;
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
