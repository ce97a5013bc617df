//! The same commands in an OpenAFS cell and in an afar cell, which print the same.
//!
//! Both cells are alike as far as a client sees: the same name, addresses, hosts and partitions, and
//! no volumes. A row is a command line; what it prints to either stream and its exit status must be
//! the same but for dates and for what the row says. What may differ otherwise is in
//! [`differences`], with the reason.

mod bos;
mod differences;
mod files;
mod mask;
mod pts;
mod refused;
mod tickets;
mod vos;

use std::fmt::Write;
use std::time::{Duration, Instant};

use afar_types::Rights;

use crate::content::Content;
use crate::mount::Mount;
use crate::net::Net;
use crate::openafs::OpenAfs;
use crate::place::{Place, Ran};
use crate::server::Ours;
use differences::Difference;
use mask::Mask;

/// A command, and what in its output says nothing.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    line: &'static str,
    /// The folder of the cell to run it in, through the mount; none: a tool at the command line.
    folder: Option<&'static str>,
    masks: Vec<Mask>,
}

/// A tool's command line: words between blanks, those with blanks in single quotes.
fn row(line: &'static str) -> Row {
    Row {
        line,
        folder: None,
        masks: vec![Mask::Dates],
    }
}

impl Row {
    fn mask(mut self, mask: Mask) -> Self {
        self.masks.push(mask);
        self
    }

    /// Masks and replacements applied.
    fn normalised(&self, ran: Ran) -> Ran {
        let text = |text: String| self.masks.iter().fold(text, |text, mask| mask.apply(&text));
        Ran {
            code: ran.code,
            out: text(ran.out),
            err: text(ran.err),
        }
    }
}

/// A cell with a client's place, and later a mount.
struct Side<'a> {
    net: &'a Net,
    place: Place,
    /// What makes the tools' user who they are to be, if their place does not.
    options: Option<&'static str>,
    mount: Option<Mount>,
}

impl<'a> Side<'a> {
    fn new(net: &'a Net, place: Place, options: Option<&'static str>) -> Self {
        let root = Content::new(Rights(Rights::READ.0 | Rights::LOOKUP.0));
        let root = root
            .mount("open", "#test.open.")
            .mount("closed", "#test.closed.")
            .mount("nowhere", "#test.missing.");
        root.dump(&place.file("root.dump"));
        let lookup = Rights::LOOKUP;
        Content::new(Rights::ALL)
            .file("hello", 0o644, b"Hello.\n")
            .file("big", 0o600, &vec![b'x'; 3_000_000])
            .file("unreadable", 0o000, b"secret")
            .directory("list-only", lookup, "inside")
            .directory("insert-only", Rights(lookup.0 | Rights::INSERT.0), "inside")
            .directory(
                "no-delete",
                Rights(Rights::ALL.0 & !Rights::DELETE.0),
                "inside",
            )
            .dump(&place.file("open.dump"));
        let closed = Content::new(Rights::NONE);
        closed
            .file("secret", 0o644, b"secret")
            .dump(&place.file("closed.dump"));
        Self {
            net,
            place,
            options,
            mount: None,
        }
    }

    fn run(&mut self, row: &Row) -> Ran {
        let Some(folder) = row.folder else {
            let words = words(row.line);
            let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
            if ["vos", "pts", "bos"].contains(&words[0]) {
                words.extend(self.options);
            }
            return self.place.run(&words);
        };
        let net = self.net;
        let mount = self
            .mount
            .get_or_insert_with(|| Mount::new(Place::new(net, "cli", net.address("srv"))));
        mount.shell(folder, row.line)
    }
}

/// Words between blanks; one in single quotes may hold blanks.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        if number % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// A network as both cells have it: servers in one namespace, clients in the other.
pub(crate) fn network() -> Net {
    Net::new(&[("srv", "10.97.0.1"), ("cli", "10.97.0.2")])
}

fn show(ran: &Ran) -> String {
    let mut text = ran.out.clone();
    for line in ran.err.lines() {
        writeln!(text, "(stderr) {line}").unwrap();
    }
    writeln!(text, "[{:?}]", ran.code).unwrap();
    text
}

/// A client's place in a cell.
fn place(net: &Net) -> Place {
    Place::new(net, "cli", net.address("srv"))
}

/// What all rows print in a cell, and how long each took.
fn transcript(rows: &[Row], mut side: Side<'_>) -> Vec<(Ran, Duration)> {
    let timed = |row: &Row| {
        let begun = Instant::now();
        (row.normalised(side.run(row)), begun.elapsed())
    };
    rows.iter().map(timed).collect()
}

/// Runs all rows in both cells at once, and fails with all that differ.
fn compare(rows: &[Row], theirs: Side<'_>, ours: Side<'_>, differences: &[Difference]) {
    let (expected, found) = std::thread::scope(|scope| {
        let expected = scope.spawn(|| transcript(rows, theirs));
        let found = transcript(rows, ours);
        (expected.join().unwrap(), found)
    });
    let mut used = vec![false; differences.len()];
    let mut report = String::new();
    let mut differing = 0;
    for ((row, (mut expected, before)), (found, after)) in rows.iter().zip(expected).zip(found) {
        if std::env::var_os("AFAR_TEST_SHOW").is_some() {
            let times = (before, after);
            eprintln!("$ {} # {times:.1?}\n{}", row.line, show(&expected));
        }
        for (difference, used) in differences.iter().zip(&mut used) {
            if expected != found && difference.is_of(row.line) {
                *used |= difference.allow(&mut expected);
            }
        }
        if expected != found {
            differing += 1;
            let (expected, found) = (show(&expected), show(&found));
            let line = row.line;
            writeln!(report, "$ {line}\n--- OpenAFS\n{expected}--- afar\n{found}").unwrap();
        }
    }
    for (difference, _) in differences.iter().zip(used).filter(|(_, used)| !used) {
        differing += 1;
        writeln!(report, "not there, so take it away: {difference:?}").unwrap();
    }
    assert_eq!(differing, 0, "of {} rows:\n{report}", rows.len());
}

#[test]
#[ignore = "needs OpenAFS's servers"]
fn tools_print_the_same() {
    let (openafs, afar) = (network(), network());
    let theirs = OpenAfs::start(&openafs, "srv", false);
    let ours = Ours::start(&afar, true);
    let rows = [
        vos::rows(),
        files::rows(),
        vos::more_rows(),
        pts::rows(),
        bos::rows(),
    ]
    .concat();
    assert!(rows.len() >= 60, "{} rows", rows.len());
    let administrator = place(&openafs).with_keys(&theirs.keys());
    compare(
        &rows,
        Side::new(&openafs, administrator, Some("-localauth")),
        Side::new(&afar, place(&afar), Some("-noauth")),
        differences::ALL,
    );
    ours.stop();
}

#[test]
#[ignore = "needs OpenAFS's servers"]
fn nobody_is_an_administrator_by_default() {
    let (openafs, afar) = (network(), network());
    let _theirs = OpenAfs::start(&openafs, "srv", false);
    let ours = Ours::start(&afar, false);
    compare(
        &refused::rows(),
        Side::new(&openafs, place(&openafs), Some("-noauth")),
        Side::new(&afar, place(&afar), Some("-noauth")),
        &[differences::REFUSED, differences::NEW_CELL].concat(),
    );
    ours.stop();
}
