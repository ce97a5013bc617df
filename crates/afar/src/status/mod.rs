//! `afar status`: what of afar runs on this machine, and whether it works.
//!
//! - `servers`: servers that have a run directory; `tokens`: the user's
//! - here: all together, as text and as JSON

mod servers;

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::mount::{Health, MountState, mounts};
use crate::output::Output;
use crate::tokens::{self, TokenState};
use crate::top::{long, short_bytes, shown};
use servers::ServerState;

/// Options of `afar status`.
#[derive(Debug, Args)]
#[command(
    about = "Show what of afar runs on this machine: servers, mounts and their caches, tokens",
    after_help = "Exit status: 0 if all of it works, 1 if something does not: a server that does not answer, \
    a mount that nobody serves, an expired token."
)]
pub(crate) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Everything, and whether it works.
#[derive(Debug, Serialize)]
struct Status {
    /// Whether all of it works.
    up: bool,
    servers: Vec<ServerState>,
    mounts: Vec<Mount>,
    tokens: Vec<TokenState>,
    /// What is damaged.
    problems: Vec<String>,
}

/// A mount as it is told.
#[derive(Debug, Serialize)]
struct Mount {
    place: PathBuf,
    source: String,
    process: Option<String>,
    state: &'static str,
    cache: Option<Cache>,
}

/// Bytes of a mount's cache.
#[derive(Debug, Serialize)]
struct Cache {
    used: u64,
    size: u64,
    unstored: u64,
}

impl From<MountState> for Mount {
    fn from(mount: MountState) -> Self {
        let (state, cache) = match mount.health {
            Health::Up([used, size, unstored]) => {
                let cache = Cache {
                    used,
                    size,
                    unstored,
                };
                ("up", Some(cache))
            }
            Health::Private => ("up", None),
            Health::Dead => ("dead", None),
            Health::Stuck => ("stuck", None),
        };
        Self {
            place: mount.place,
            source: mount.source,
            process: mount.process,
            state,
            cache,
        }
    }
}

/// Shows the state of this machine.
///
/// # Errors
/// The kernel's table of mounts cannot be read.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let (tokens, problems) = tokens::states();
    let servers = servers::all();
    let mounts: Vec<Mount> = mounts()?.into_iter().map(Mount::from).collect();
    let up = problems.is_empty()
        && servers.iter().all(ServerState::is_up)
        && mounts.iter().all(|mount| mount.state == "up")
        && tokens.iter().all(|token| !token.expired);
    let status = Status {
        up,
        servers,
        mounts,
        tokens,
        problems,
    };
    Output::new(args.json, None)?.report(&status)?;
    Ok(match status.up {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<String> = Vec::new();
        lines.extend(self.servers.iter().map(ToString::to_string));
        lines.extend(self.mounts.iter().map(ToString::to_string));
        lines.extend(self.tokens.iter().map(token));
        lines.extend(
            self.problems
                .iter()
                .map(|text| format!("problem  {}", shown(text))),
        );
        if lines.is_empty() {
            lines.push(
                "No server and no mount of afar is on this machine, and this user has no token."
                    .to_owned(),
            );
        }
        f.write_str(&lines.join("\n"))
    }
}

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.display().to_string();
        let (place, source) = (shown(&place), shown(&self.source));
        write!(f, "mount    {place}: {source}, ")?;
        match self.state {
            "dead" => write!(f, "nobody serves it: `afar umount {place}` removes it")?,
            "stuck" => f.write_str("it does not answer")?,
            up => f.write_str(up)?,
        }
        if let Some(process) = &self.process {
            write!(f, ", process {process}")?;
        }
        if let Some(cache) = &self.cache {
            let (used, size) = (short_bytes(cache.used), short_bytes(cache.size));
            write!(f, ", cache {used} of {size}")?;
            if cache.unstored > 0 {
                write!(f, ", {} to be stored", short_bytes(cache.unstored))?;
            }
        }
        Ok(())
    }
}

/// A token in a line.
fn token(token: &TokenState) -> String {
    let user = token.user.as_ref();
    let user = user.map_or(String::new(), |user| format!(", {}", shown(user)));
    let state = match token.expired {
        true => "expired: `afar login` gets another".to_owned(),
        false => format!("expires in {}", long(token.seconds_left)),
    };
    format!("token    {}{user}, {state}", shown(&token.cell))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(health: Health) -> Mount {
        Mount::from(MountState {
            place: "/afs\n".into(),
            source: "dynroot".to_owned(),
            process: Some("812".to_owned()),
            health,
        })
    }

    #[test]
    fn each_part_has_a_line() {
        let token = |expired| TokenState {
            cell: "example.org".to_owned(),
            user: Some("ann\u{1b}".to_owned()),
            expires: 7,
            expired,
            seconds_left: 7500.0,
            from: "a file".to_owned(),
        };
        let status = Status {
            up: false,
            servers: Vec::new(),
            mounts: vec![
                mount(Health::Up([1 << 30, 20 << 30, 4096])),
                mount(Health::Dead),
            ],
            tokens: vec![token(false), token(true)],
            problems: vec!["bad".to_owned()],
        };
        assert_eq!(
            status.to_string(),
            "mount    /afs\\n: dynroot, up, process 812, cache 1G of 20G, 4K to be stored\n\
             mount    /afs\\n: dynroot, nobody serves it: `afar umount /afs\\n` removes it, process 812\n\
             token    example.org, ann\\u{1b}, expires in 2h05m\n\
             token    example.org, ann\\u{1b}, expired: `afar login` gets another\n\
             problem  bad"
        );
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["mounts"][0]["cache"]["used"], 1 << 30);
        assert_eq!(json["mounts"][1]["state"], "dead");
        assert_eq!(json["up"], false);
    }
}
