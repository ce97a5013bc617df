//! Commands of OpenAFS's `bos` for what afar's servers do otherwise, or not at all: each says what to do.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use crate::output;

/// Whatever such a command is given.
#[derive(Debug, Args)]
pub(crate) struct ElsewhereArgs {
    /// as for OpenAFS's bos
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "options"
    )]
    _words: Vec<OsString>,
}

/// What takes the place of a command.
#[derive(Debug, Clone, Copy)]
pub(super) enum Instead {
    /// Starting and stopping processes.
    Processes,
    /// Setting what processes there are.
    Roles,
    /// Salvaging.
    Salvage,
    /// Keys.
    Keys,
    /// Database servers.
    Hosts,
    /// Authentication.
    Auth,
    /// Programs and old files.
    Programs,
    /// Commands of a shell.
    Exec,
    /// Times of restarts.
    Times,
}

impl Instead {
    const fn text(self) -> &'static str {
        match self {
            Self::Processes => {
                "the services of an afar server are one process, which its service manager starts and \
                 stops: systemctl start|stop afar; bos restart starts it again from here"
            }
            Self::Roles => {
                "what an afar server serves is `roles` in its configuration: afar config explain roles"
            }
            Self::Salvage => {
                "no salvage is needed: changes on afar's servers are atomic; afar store check \
                 checks a partition"
            }
            Self::Keys => {
                "change keys on the server itself, which notices the change: afar keys help"
            }
            Self::Hosts => {
                "which database servers a cell has is in CellServDB, DNS and the configuration of its file \
                 servers: afar config explain location protection"
            }
            Self::Auth => {
                "what callers must prove is in the server's configuration: afar config explain \
                 security.minimum"
            }
            Self::Programs => {
                "programs come with the system's packages, and there are no .BAK, .OLD and core files to \
                 remove"
            }
            Self::Exec => {
                "afar's servers run no commands for anybody, as OpenAFS's in restricted mode"
            }
            Self::Times => {
                "afar's servers restart when told to, never by the clock; a timer of systemd can do it: \
                 systemctl restart afar"
            }
        }
    }
}

/// Says it.
pub(super) fn tell(instead: Instead) -> ExitCode {
    output::usage(&format!("bos: {}\n", instead.text()));
    ExitCode::FAILURE
}
