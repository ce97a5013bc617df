//! A cell, and the programs that are run in it.

use afar_types::Rights;

use crate::Row;
use crate::content::Content;
use crate::net::Net;
use crate::place::{Place, Ran, run};

/// Whose `vos`, `pts` and `bos`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suites {
    /// Those of OpenAFS, as Debian has them.
    OpenAfs,
    /// `afar vos` and so on.
    Afar,
}

/// A cell with a place where commands run.
pub(crate) struct Side {
    suites: Suites,
    place: Place,
}

impl Side {
    /// The cell of this network, and dumps to restore in it.
    pub(crate) fn new(net: &Net, suites: Suites) -> Self {
        let place = Place::new(net, "cli", net.address("srv"));
        let root = Content::new(Rights(Rights::READ.0 | Rights::LOOKUP.0));
        let root = root.mount("open", "#test.open.");
        root.dump(&place.file("root.dump"));
        Content::new(Rights::ALL)
            .file("hello", 0o644, b"Hello.\n")
            .file("big", 0o600, &vec![b'x'; 300_000])
            .directory("folder", Rights::ALL, "inside")
            .dump(&place.file("open.dump"));
        let closed = Content::new(Rights::NONE);
        closed
            .file("secret", 0o644, b"secret")
            .dump(&place.file("closed.dump"));
        Self { suites, place }
    }

    /// Runs a command to its end, with what it prints as it is.
    pub(crate) fn run(&self, row: &Row) -> Ran {
        let words = words(row.line);
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        let of_a_suite = ["vos", "pts", "bos", "fs"].contains(&words[0]);
        if of_a_suite && !row.bare {
            words.push("-noauth");
        }
        if of_a_suite && self.suites == Suites::Afar {
            // OpenAFS's gives a volume so much without being asked to; afar's no quota, and says so.
            if words.starts_with(&["vos", "create"])
                && !row.bare
                && !row.line.contains("quota")
                && !row.line.ends_with('8')
            {
                words.push("-maxquota");
                words.push("5000");
            }
            words.insert(0, env!("CARGO_BIN_EXE_afar"));
        }
        let mut command = self.place.command(&[], &words);
        // No server's socket is there: requests go through the network, as those of OpenAFS do.
        command.env("AFAR_RUN_DIR", self.place.path());
        run(&mut command)
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
