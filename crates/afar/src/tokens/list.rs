//! `afar tokens`: what OpenAFS's `tokens` prints, and where tokens are.

use std::process::ExitCode;
use std::time::SystemTime;

use afar_security::ccache::Ccache;
use afar_security::tokens::{Held, Store, kafs, openafs};
use clap::Args;
use serde::Serialize;

use super::find::{Found, Origin, cache_name};
use super::short_date;
use crate::{advice, output};

/// Options of `afar tokens`.
#[derive(Debug, Args)]
pub(crate) struct TokensArgs {
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Also list sources without tokens, and why
    #[arg(long, short)]
    verbose: bool,
}

#[derive(Serialize)]
struct Shown<'a> {
    cell: &'a str,
    user: Option<&'a str>,
    afs_id: Option<u32>,
    /// In seconds since 1970.
    expires: u32,
    expired: bool,
    kvno: u32,
    from: String,
}

/// Lists tokens.
pub(crate) fn tokens(args: &TokensArgs) -> anyhow::Result<ExitCode> {
    let (found, problems) = all();
    let mut exit = ExitCode::SUCCESS;
    if args.json {
        for found in &found {
            output::help(&format!("{}\n", serde_json::to_string(&shown(found))?));
        }
    } else {
        let lines: String = found.iter().map(line).collect();
        output::help(&format!(
            "\nTokens held by afar:\n\n{lines}   --End of list--\n"
        ));
    }
    for problem in problems {
        match problem {
            Problem::Nothing(text) if args.verbose => output::note(&text),
            Problem::Nothing(_) => {}
            Problem::Damaged(text) => {
                output::note(&text);
                exit = ExitCode::FAILURE;
            }
        }
    }
    Ok(exit)
}

/// A token of this user.
#[derive(Debug, Serialize)]
pub(crate) struct TokenState {
    pub(crate) cell: String,
    pub(crate) user: Option<String>,
    /// In seconds since 1970.
    pub(crate) expires: u32,
    pub(crate) expired: bool,
    pub(crate) seconds_left: f64,
    pub(crate) from: String,
}

/// All tokens of this user, and what is damaged.
pub(crate) fn states() -> (Vec<TokenState>, Vec<String>) {
    let (found, problems) = all();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs_f64();
    let states = found.iter().map(|found| {
        let shown = shown(found);
        TokenState {
            cell: shown.cell.to_owned(),
            user: shown.user.map(str::to_owned),
            expires: shown.expires,
            expired: shown.expired,
            seconds_left: (f64::from(shown.expires) - now).max(0.0),
            from: shown.from,
        }
    });
    let damaged = problems.into_iter().filter_map(|problem| match problem {
        Problem::Damaged(text) => Some(text),
        Problem::Nothing(_) => None,
    });
    (states.collect(), damaged.collect())
}

/// Why a place gives no tokens.
enum Problem {
    /// It is not there.
    Nothing(String),
    /// What is there is no token.
    Damaged(String),
}

/// All tokens of all places, and what is wrong with places.
fn all() -> (Vec<Found>, Vec<Problem>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let kept = |held, source| Found {
        held,
        origin: Origin::Kept(source),
    };
    for token in Store::new().all() {
        match token {
            Ok((held, source)) => found.push(kept(held, source)),
            Err(error) => problems.push(Problem::Damaged(advice::told_of(&error))),
        }
    }
    let of_openafs = openafs::Client::open().and_then(|client| client.all());
    for (source, tokens) in [
        (afar_security::tokens::Source::OpenAfs, of_openafs),
        (afar_security::tokens::Source::Kafs, kafs::all()),
    ] {
        match tokens {
            Ok(tokens) => {
                found.extend(tokens.into_iter().map(|held| kept(held, source.clone())));
            }
            Err(error) => problems.push(Problem::Nothing(format!("{source}: {error}"))),
        }
    }
    match cache_name() {
        Some(name) => match of_cache(&name) {
            Ok(tickets) => found.extend(tickets),
            Err(problem) => problems.push(Problem::Nothing(problem)),
        },
        None => problems.push(Problem::Nothing(
            "KRB5CCNAME names no ticket cache".to_owned(),
        )),
    }
    (found, problems)
}

/// What tickets for cells are in a cache: commands make tokens of them.
fn of_cache(name: &str) -> Result<Vec<Found>, String> {
    let path = Ccache::path_of(name).ok_or_else(|| {
        format!("{name} is not a file: its tickets are found when they are needed")
    })?;
    let cache = Ccache::read(path).map_err(|error| advice::told_of(&error))?;
    let tokens = cache.credentials.iter().filter_map(|credential| {
        let [afs, cell] = &credential.server.components[..] else {
            return None;
        };
        let held = Held {
            cell: cell.parse().ok().filter(|_| afs == "afs")?,
            user: Some(credential.client.to_string()),
            vice_id: None,
            token: credential.token()?,
        };
        let origin = Origin::Ticket(name.to_owned());
        Some(Found { held, origin })
    });
    Ok(tokens.collect())
}

fn shown(found: &Found) -> Shown<'_> {
    let Held {
        cell,
        user,
        vice_id,
        token,
    } = &found.held;
    Shown {
        cell: cell.as_str(),
        user: user.as_deref(),
        afs_id: *vice_id,
        expires: token.end,
        expired: found.held.is_expired(SystemTime::now()),
        kvno: token.kvno,
        from: found.origin.to_string(),
    }
}

fn line(found: &Found) -> String {
    let held = &found.held;
    let whose = match (&held.user, held.vice_id) {
        (Some(user), _) => format!("User {user}'s rxkad tokens"),
        (None, Some(id)) => format!("User's (AFS ID {id}) rxkad tokens"),
        (None, None) => "rxkad Tokens".to_owned(),
    };
    let until = if held.is_expired(SystemTime::now()) {
        ">> Expired <<".to_owned()
    } else {
        format!("Expires {}", short_date(held.token.end))
    };
    let (cell, kvno) = (&held.cell, held.token.kvno);
    format!(
        "{whose} for {cell} [{until}] kvno {kvno}, {}\n",
        found.origin
    )
}

#[cfg(test)]
mod tests {
    use afar_security::tokens::Source;
    use afar_security::{SessionKey, Token};

    use super::*;

    fn found(user: Option<&str>, vice_id: Option<u32>, end: u32) -> Found {
        Found {
            held: Held {
                cell: "example.org".parse().unwrap(),
                user: user.map(str::to_owned),
                vice_id,
                token: Token {
                    kvno: 256,
                    key: SessionKey::new([1; 8]),
                    ticket: "ticket".into(),
                    start: 0,
                    end,
                },
            },
            origin: Origin::Kept(Source::Keyring),
        }
    }

    #[test]
    fn lines_begin_as_those_of_openafs() {
        let end = u32::MAX;
        let expected = format!(
            "User a@R's rxkad tokens for example.org [Expires {}] kvno 256, the kernel's keyring\n",
            short_date(end)
        );
        assert_eq!(line(&found(Some("a@R"), Some(7), end)), expected);
        let other = line(&found(None, Some(7), 1));
        let begin = "User's (AFS ID 7) rxkad tokens for example.org [>> Expired <<] ";
        assert!(other.starts_with(begin), "{other}");
        let nobody = line(&found(None, None, end));
        assert!(
            nobody.starts_with("rxkad Tokens for example.org [Expires "),
            "{nobody}"
        );
    }

    #[test]
    fn json_has_no_secret() {
        let json = serde_json::to_string(&shown(&found(Some("a@R"), None, 1))).unwrap();
        let expected = r#"{"cell":"example.org","user":"a@R","afs_id":null,"expires":1,"expired":true,"kvno":256,"from":"the kernel's keyring"}"#;
        assert_eq!(json, expected);
    }
}
