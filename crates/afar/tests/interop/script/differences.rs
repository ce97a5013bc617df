//! Where afar's servers let OpenAFS's tools print something else than OpenAFS's servers do, and why.

use crate::place::Ran;

/// A difference that is meant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Difference {
    /// The beginning of command lines it is of.
    command: &'static str,
    /// What is printed of OpenAFS's servers, on either stream.
    openafs: &'static str,
    /// What is printed of afar's in its place.
    afar: &'static str,
    /// afar's exit status, if it is another one.
    status: Option<i32>,
    /// Why.
    #[expect(
        dead_code,
        reason = "for who reads it, here or in what a failed test prints"
    )]
    reason: &'static str,
}

impl Difference {
    /// Whether it is of this command.
    pub(super) fn is_of(&self, line: &str) -> bool {
        line.starts_with(self.command)
    }

    /// Makes what OpenAFS's servers have printed what afar's print; whether there was anything to
    /// do.
    pub(super) fn allow(&self, ran: &mut Ran) -> bool {
        let mut found = false;
        for text in [&mut ran.out, &mut ran.err] {
            if text.contains(self.openafs) {
                *text = text.replace(self.openafs, self.afar);
                found = true;
            }
        }
        if found && self.status.is_some() {
            ran.code = self.status;
        }
        found
    }
}

const fn differs(
    command: &'static str,
    openafs: &'static str,
    afar: &'static str,
    reason: &'static str,
) -> Difference {
    Difference {
        command,
        openafs,
        afar,
        status: None,
        reason,
    }
}

const NEW_ROOT: &str = "OpenAFS does not count the root directory of a volume before something \
                        else makes it count all of them";
const ONE_PROCESS: &str = "afar's servers are one process, which the system's service manager \
                           starts, stops and restarts";
const FROM_1000: &str = "users of a new cell of afar are numbered from 1000, as on most systems";
const NOBODY: &str = "no administrators are configured at afar's servers in this comparison";
const ADDRESS: &str = "afar says where its configuration has it ask, which may be an address";

/// For administrators.
pub(super) const ALL: &[Difference] = &[
    differs(
        "vos examine data -extended",
        "used 0 files",
        "used 1 files",
        NEW_ROOT,
    ),
    differs(
        "vos listvol srv b -extended",
        "used 0 files",
        "used 1 files",
        NEW_ROOT,
    ),
    differs(
        "vos examine data -format",
        "filecount\t0",
        "filecount\t1",
        NEW_ROOT,
    ),
    differs(
        "bos status srv",
        "Instance dafs",
        "Instance fs",
        ONE_PROCESS,
    ),
    differs(
        "bos status srv vlserver",
        "/usr/lib/openafs/",
        "",
        ONE_PROCESS,
    ),
    differs("bos listhosts", "afs1.test.example", "10.97.0.1", ADDRESS),
    differs("bos listusers", "SUsers are: admin ", "", NOBODY),
    differs("bos getrestart", "at 5:00 am", "never", ONE_PROCESS),
    differs("bos getrestricted", "off", "on", ONE_PROCESS),
    Difference {
        status: Some(57),
        ..differs(
            "bos stop",
            "no such entity",
            "RPC interface mismatch (-455)",
            ONE_PROCESS,
        )
    },
];

const UNAUTHORISED: &str = "you are not authorized for this operation";
const NOT_SERVED: &str = "RPC interface mismatch (-455)";

/// In a cell in which nobody was given an id yet.
pub(super) const NEW_CELL: &[Difference] = &[differs(
    "pts listmax",
    "Max user id is 0",
    "Max user id is 999",
    FROM_1000,
)];

/// For others.
pub(super) const REFUSED: &[Difference] = &[
    Difference {
        status: Some(57),
        ..differs("bos stop", UNAUTHORISED, NOT_SERVED, ONE_PROCESS)
    },
    differs("bos shutdown", UNAUTHORISED, NOT_SERVED, ONE_PROCESS),
    differs("bos listhosts", "afs1.test.example", "10.97.0.1", ADDRESS),
];
