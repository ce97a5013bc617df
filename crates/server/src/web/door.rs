//! Which requests are answered: at a TCP port those with a token, and without one only those that come from
//! this machine by its own name.

use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap};
use subtle::ConstantTimeEq;

/// Characters of a token, at least and at most.
const TOKEN_MIN: usize = 16;
const TOKEN_MAX: usize = 1024;

/// Which requests are let in.
#[derive(Debug)]
pub(crate) enum Door {
    /// All that reach it by a name of this machine: a Unix socket, or a port of the loopback interface.
    Local,
    /// Those with the token.
    Token(Token),
}

/// A secret that viewers know.
pub(crate) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

impl Token {
    /// From a file that others cannot read.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the token for the page, {shown}"))?;
        let mode = fs::metadata(path)?.permissions().mode();
        ensure!(
            mode & 0o007 == 0,
            "every user of this machine may read the token for the page: chmod o= {shown}"
        );
        Self::parse(&text).with_context(|| {
            format!("{shown}; a new token: head -c 24 /dev/urandom | base64 >{shown}")
        })
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let token = text.trim();
        ensure!(
            token.bytes().all(|byte| byte.is_ascii_graphic()),
            "the token for the page is not one line of ASCII characters without blanks"
        );
        ensure!(
            (TOKEN_MIN..=TOKEN_MAX).contains(&token.len()),
            "the token for the page has {} characters: it needs {TOKEN_MIN} to {TOKEN_MAX}",
            token.len()
        );
        Ok(Self(token.to_owned()))
    }

    /// Whether a header has it: as a bearer's, or as the password of any user, which browsers ask for.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let Some(given) = headers.get(AUTHORIZATION) else {
            return false;
        };
        let given = given.as_bytes();
        let Some(space) = given.iter().position(|byte| *byte == b' ') else {
            return false;
        };
        let (scheme, rest) = (&given[..space], given[space..].trim_ascii());
        let decoded;
        let given = if scheme.eq_ignore_ascii_case(b"Bearer") {
            rest
        } else if scheme.eq_ignore_ascii_case(b"Basic") {
            decoded = BASE64_STANDARD.decode(rest).unwrap_or_default();
            let Some(colon) = decoded.iter().position(|byte| *byte == b':') else {
                return false;
            };
            &decoded[colon + 1..]
        } else {
            return false;
        };
        self.0.as_bytes().ct_eq(given).into()
    }
}

impl Door {
    /// For those who know the token in a file, if there is to be one.
    ///
    /// # Errors
    /// The file is not as it should be.
    pub(crate) fn open(token: Option<&Path>) -> anyhow::Result<Self> {
        token.map_or(Ok(Self::Local), |path| Token::read(path).map(Self::Token))
    }

    /// Lets a request in, or says with which status it is refused.
    pub(super) fn admit(&self, headers: &HeaderMap) -> Result<(), StatusCode> {
        match self {
            Self::Token(token) if token.is_in(headers) => Ok(()),
            Self::Token(_) => Err(StatusCode::UNAUTHORIZED),
            // A page of somebody else's, whose name leads to this machine, is not to read this one.
            Self::Local if is_local(headers) => Ok(()),
            Self::Local => Err(StatusCode::MISDIRECTED_REQUEST),
        }
    }
}

/// Whether a request names this machine as itself.
fn is_local(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    let name = name.unwrap_or_default();
    let is_loopback = |name: &str| name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    name.eq_ignore_ascii_case("localhost") || is_loopback(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    const SECRET: &str = "0123456789abcdef+/:";

    fn with(name: hyper::header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn a_token_opens_the_door_and_nothing_else_does() {
        let door = Door::Token(Token::parse(&format!("{SECRET}\n")).unwrap());
        let admits = |value: &str| door.admit(&with(AUTHORIZATION, value)).is_ok();
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        assert!(admits(&format!("Bearer {SECRET}")));
        assert!(admits(&format!("bearer   {SECRET} ")));
        assert!(admits(&basic(&format!("anybody:{SECRET}"))));
        assert!(admits(&basic(&format!(":{SECRET}"))));
        for value in [
            "",
            "Bearer",
            "Bearer ",
            SECRET,
            &format!("Bearer {SECRET}x"),
            &format!("Bearer {}", &SECRET[1..]),
            &format!("Digest {SECRET}"),
            &basic(SECRET),
            &basic(&format!("{SECRET}:")),
            "Basic ====",
            "Basic Og==",
        ] {
            assert!(!admits(value), "{value}");
        }
        assert_eq!(door.admit(&HeaderMap::new()), Err(StatusCode::UNAUTHORIZED));
        assert_eq!(
            door.admit(&with(HOST, "localhost")),
            Err(StatusCode::UNAUTHORIZED)
        );
    }

    #[test]
    fn without_a_token_only_this_machine_is_let_in() {
        let admits = |host: &str| Door::Local.admit(&with(HOST, host)).is_ok();
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:9110",
            "127.1.2.3",
            "[::1]:9110",
            "[::1]",
        ] {
            assert!(admits(host), "{host}");
        }
        for host in [
            "",
            "example.org",
            "localhost.example.org:80",
            "192.0.2.1",
            "[2001:db8::1]",
            "127.0.0.1.example.org",
        ] {
            assert!(!admits(host), "{host}");
        }
        assert!(Door::Local.admit(&HeaderMap::new()).is_err());
    }

    #[test]
    fn a_file_with_a_token_is_private_and_the_token_long() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("web.token");
        let read = |text: &str, mode| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            Token::read(&file).map_err(|error| format!("{error:#}"))
        };
        assert!(read(SECRET, 0o640).is_ok());
        assert!(read(SECRET, 0o644).unwrap_err().contains("chmod o="));
        assert!(read("short", 0o600).unwrap_err().contains("5 characters"));
        assert!(read("", 0o600).unwrap_err().contains("urandom"));
        assert!(read("two words of a long token", 0o600).is_err());
        fs::remove_file(&file).unwrap();
        assert!(Token::read(&file).is_err());
    }
}
