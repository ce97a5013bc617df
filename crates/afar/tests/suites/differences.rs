//! Where afar's programs print something else than OpenAFS's do, and why.

use crate::place::Ran;

/// A difference that is meant.
#[derive(Debug)]
pub(crate) struct Difference {
    /// The beginning of command lines it is of.
    command: &'static str,
    /// What OpenAFS's program prints, on either stream.
    openafs: &'static str,
    /// What afar's prints in its place.
    afar: &'static str,
    /// Why.
    #[expect(
        dead_code,
        reason = "for who reads it, here or in what a failed test prints"
    )]
    reason: &'static str,
}

impl Difference {
    /// Whether it is of this command.
    pub(crate) fn is_of(&self, line: &str) -> bool {
        line.starts_with(self.command)
    }

    /// Makes what OpenAFS's program has printed what afar's prints; whether there was anything to
    /// do.
    pub(crate) fn allow(&self, ran: &mut Ran) -> bool {
        let mut found = false;
        for text in [&mut ran.out, &mut ran.err] {
            if text.contains(self.openafs) {
                *text = text.replace(self.openafs, self.afar);
                found = true;
            }
        }
        found
    }
}

/// The one that depends on how fast the commands come: afar's `release` ends early if nothing has
/// changed for sure, where OpenAFS's copies once more. Takes what they say of that from both.
pub(crate) fn without_unchanged_release(line: &str, expected: &mut Ran, found: &mut Ran) {
    const UNCHANGED: &str = "has not changed since its last release\n";
    let Some(end) = found.out.find(UNCHANGED) else {
        return;
    };
    let theirs = expected.out.find("This is a complete release").zip({
        let last = "updating VLDB ... done\n";
        expected.out.rfind(last).map(|at| at + last.len())
    });
    if let Some((from, to)) = theirs.filter(|_| line.starts_with("vos release")) {
        expected.out.replace_range(from..to, "");
        let begin = found.out[..end].rfind('\n').map_or(0, |at| at + 1);
        found.out.replace_range(begin..end + UNCHANGED.len(), "");
    }
}

/// With afar's servers.
pub(crate) const AFAR_SERVERS: &[Difference] = &[
    Difference {
        command: "vos create srv a x 5 6 7 8",
        openafs: "vos: can't find cell 8's hosts in /etc/openafs//CellServDB\n\
                  could not initialize VLDB library (code=70354689) \n",
        afar: "afar: cell 8 is not known: it is not in /etc/openafs/CellServDB, and DNS is not \
               usable here: io error: no nameservers found in config; check its name, or name a \
               server with --server\n",
        reason: "it says where was looked, and what to do",
    },
    Difference {
        command: "vos restore srv a test.open -file open.dump -verbose",
        openafs: "..Deleting the previous volume 536870920 ... done\n",
        afar: ".. done\n",
        reason: "a server of afar keeps the previous volume until the dump is there",
    },
    Difference {
        command: "vos restore srv a other -file /etc/openafs/ThisCell",
        openafs: "Restoring volume other Id 536870922 on server srv.test.example partition \
                  /vicepa ..",
        afar: "",
        reason: "a file that is no dump is found out before anything is made on a server",
    },
    Difference {
        command: "vos restore srv a other -file /etc/openafs/ThisCell",
        openafs: "Could not transmit data\nVOLSER: illegal operation\nError in vos restore \
                  command.\nVOLSER: illegal operation\n",
        afar: "",
        reason: "the same",
    },
    Difference {
        command: "pts help",
        openafs: "interactive     enter interactive mode\n",
        afar: "",
        reason: "there is no interactive mode",
    },
    Difference {
        command: "pts help",
        openafs: "quit            exit program\n",
        afar: "",
        reason: "it is of the interactive mode",
    },
    Difference {
        command: "pts help",
        openafs: "sleep           pause for a bit\nsource          read commands from file\n",
        afar: "setpassword     set the password with which a user logs in where there is no KDC\n\
               sshkeys         list, add and remove the SSH keys with which a user logs in\n",
        reason: "the former are of the interactive mode, the latter afar's own",
    },
];

/// With OpenAFS's servers.
pub(crate) const OPENAFS_SERVERS: &[Difference] = &[];
