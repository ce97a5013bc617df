//! The line by which one machine tells another of a cell: `afar://CELL@HOST[:PORT]#FINGERPRINT`.
//!
//! It is copied by hand, mailed or shown as a picture, so nothing in it is believed before it is
//! whole: the cell's name becomes part of paths, the host is connected to, and the fingerprint
//! (docs/protocol/login.md) decides which server is the right one. There is one spelling of each
//! part, so that nobody reads another host in it than the program does.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use afar_types::{CellName, CellNameError};

use crate::{Fingerprint, NoFingerprint, PORT};

/// What it begins with.
pub const SCHEME: &str = "afar://";
/// Bytes of the longest line: cell and host have 255 at most, the fingerprint 50.
const LONGEST: usize = 600;
/// Characters of a line that an error repeats.
const SHOWN: usize = 100;
/// Bytes of the longest host name (RFC 1035).
const HOST_LONGEST: usize = 253;

/// A cell, the server to log in to, and the key that server is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellUri {
    cell: CellName,
    host: String,
    port: u16,
    fingerprint: Fingerprint,
}

/// Why a text is no such line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line:?} is not the line of a cell, afar://CELL@HOST[:PORT]#SHA256:…: {cause}")]
pub struct CellUriError {
    /// The line, or its beginning.
    line: String,
    /// What is wrong with it.
    pub cause: Cause,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// It is longer than any can be.
    #[error("it has more than {LONGEST} bytes")]
    TooLong,
    /// Blanks, control characters or letters of other alphabets.
    #[error("it contains {0:?}")]
    Character(char),
    /// It begins otherwise.
    #[error("it does not begin with {SCHEME}")]
    Scheme,
    /// No key is named.
    #[error("the server's fingerprint behind # is missing")]
    NoFingerprint,
    /// What is named is no key's.
    #[error(transparent)]
    Fingerprint(NoFingerprint),
    /// There is no cell, or no host.
    #[error("there is not one @ between the cell and the host")]
    Parts,
    /// The cell's name is none.
    #[error(transparent)]
    Cell(CellNameError),
    /// An address of IPv6.
    #[error("AFS servers have IPv4 addresses, but its host is an IPv6 address")]
    Ipv6,
    /// The host is none.
    #[error("{0:?} is neither the name nor the address of a host")]
    Host(String),
    /// The port is none.
    #[error("{0:?} is not a port: use a number from 1 to 65535")]
    Port(String),
}

impl CellUri {
    /// Of a server at an address.
    #[must_use]
    pub fn new(cell: CellName, address: Ipv4Addr, port: u16, fingerprint: Fingerprint) -> Self {
        Self {
            cell,
            host: address.to_string(),
            port,
            fingerprint,
        }
    }

    /// The cell.
    #[must_use]
    pub fn cell(&self) -> &CellName {
        &self.cell
    }

    /// The name or IPv4 address of its server.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The TCP port of its login service.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's key.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

impl fmt::Display for CellUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}@{}", self.cell, self.host)?;
        if self.port != PORT {
            write!(f, ":{}", self.port)?;
        }
        write!(f, "#{}", self.fingerprint)
    }
}

impl FromStr for CellUri {
    type Err = CellUriError;

    fn from_str(line: &str) -> Result<Self, CellUriError> {
        read(line).map_err(|cause| CellUriError {
            line: line.chars().take(SHOWN).collect(),
            cause,
        })
    }
}

fn read(line: &str) -> Result<CellUri, Cause> {
    if line.len() > LONGEST {
        return Err(Cause::TooLong);
    }
    let strange = |c: &char| !c.is_ascii_graphic() || matches!(c, '%' | '\\' | '?');
    if let Some(character) = line.chars().find(strange) {
        return Err(Cause::Character(character));
    }
    let rest = line.strip_prefix(SCHEME).ok_or(Cause::Scheme)?;
    let (place, fingerprint) = rest.split_once('#').ok_or(Cause::NoFingerprint)?;
    let fingerprint = fingerprint.parse().map_err(Cause::Fingerprint)?;
    let (cell, server) = place.split_once('@').ok_or(Cause::Parts)?;
    if server.contains('@') {
        return Err(Cause::Parts);
    }
    let cell = cell.parse().map_err(Cause::Cell)?;
    let (host, port) = place_of(server)?;
    Ok(CellUri {
        cell,
        host,
        port,
        fingerprint,
    })
}

/// A host, and its port if it is named.
fn place_of(server: &str) -> Result<(String, u16), Cause> {
    if server.starts_with('[') || server.matches(':').count() > 1 {
        return Err(Cause::Ipv6);
    }
    let (host, port) = match server.split_once(':') {
        Some((host, digits)) => {
            let wrong = || Cause::Port(digits.to_owned());
            // A sign would be taken for a part of the number.
            let plain = digits.bytes().all(|b| b.is_ascii_digit());
            let port = digits.parse().ok().filter(|&port: &u16| plain && port != 0);
            (host, port.ok_or_else(wrong)?)
        }
        None => (server, PORT),
    };
    if is_host(host) {
        Ok((host.to_ascii_lowercase(), port))
    } else {
        Err(Cause::Host(host.to_owned()))
    }
}

/// Whether this is an address that a server can have, or a host's name. Numbers that resolvers take
/// for addresses, such as `127.1` and `0x7f000001`, are neither.
fn is_host(host: &str) -> bool {
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return !address.is_unspecified() && !address.is_broadcast() && !address.is_multicast();
    }
    let is_label = |label: &str| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        (1..=63).contains(&label.len()) && label.bytes().all(allowed) && !label.starts_with('-')
    };
    let last = host.rsplit('.').next().unwrap_or_default();
    let named = last.bytes().any(|b| b.is_ascii_alphabetic()) && !is_number(last);
    host.len() <= HOST_LONGEST && named && host.split('.').all(is_label)
}

/// Whether resolvers take a label for a number.
fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x");
    let hexadecimal = hexadecimal.or_else(|| label.strip_prefix("0X"));
    hexadecimal.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// For fuzzing: a line that is read says the same when it is written and read again.
#[doc(hidden)]
pub fn fuzz(line: &str) {
    if let Ok(uri) = line.parse::<CellUri>() {
        assert_eq!(uri.to_string().parse(), Ok(uri));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "SHA256:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";

    #[test]
    fn a_line_says_where_a_cell_is_and_by_which_key() {
        for (place, cell, host, port) in [
            ("home.arpa@192.168.1.5", "home.arpa", "192.168.1.5", 7002),
            (
                "home.arpa@192.168.1.5:7102",
                "home.arpa",
                "192.168.1.5",
                7102,
            ),
            (
                "Example.ORG@DB1.example.org",
                "example.org",
                "db1.example.org",
                7002,
            ),
            ("home@nas", "home", "nas", 7002),
        ] {
            let uri: CellUri = format!("afar://{place}#{KEY}").parse().unwrap();
            assert_eq!(
                (uri.cell().as_str(), uri.host(), uri.port()),
                (cell, host, port)
            );
            assert_eq!(uri.fingerprint().to_string(), KEY);
            assert_eq!(uri.to_string().parse(), Ok(uri));
        }
    }

    #[test]
    fn hostile_lines_are_refused_with_what_is_wrong() {
        let long = format!("afar://{}@h#{KEY}", "a.".repeat(300));
        let with = |place: &str| format!("afar://{place}#{KEY}");
        let short = &KEY[..KEY.len() - 1];
        #[rustfmt::skip]
        let table: Vec<(String, &str)> = vec![
            (long, "more than 600 bytes"),
            (String::new(), "does not begin with afar://"),
            (format!("http://home.arpa@h#{KEY}"), "does not begin with afar://"),
            (format!(" afar://home.arpa@h#{KEY}"), "contains ' '"),
            (with("home.arpa@h\n"), "contains '\\n'"),
            (with("home.arpa@h\u{1b}[2J"), "contains '\\u{1b}'"),
            (with("home.arpa@h\0"), "contains '\\0'"),
            (with("home.arpa@\u{202e}h"), "contains '\\u{202e}'"),
            (with("home.arpa@hо.st"), "contains 'о'"),
            (with("home.arpa@h%2e"), "contains '%'"),
            (with("home.arpa@h\\x"), "contains '\\\\'"),
            (with("home.arpa@h?x"), "contains '?'"),
            (with("../../etc@h"), "contains '/'"),
            (with("..@h"), "empty part"),
            (with("@h"), "empty part"),
            (with(&format!("{}@h", "a".repeat(64))), "too long"),
            (with("home.arpa"), "not one @"),
            (with("home.arpa@good@evil"), "not one @"),
            (with("home.arpa:secret@h"), "contains ':'"),
            (with("home.arpa@"), "\"\" is neither"),
            (with("home.arpa@h/etc"), "\"h/etc\" is neither"),
            (with("home.arpa@-oProxyCommand"), "neither"),
            (with("home.arpa@0.0.0.0"), "\"0.0.0.0\" is neither"),
            (with("home.arpa@255.255.255.255"), "neither"),
            (with("home.arpa@224.0.0.1"), "neither"),
            (with("home.arpa@127.1"), "\"127.1\" is neither"),
            (with("home.arpa@2130706433"), "neither"),
            (with("home.arpa@0x7f000001"), "neither"),
            (with("home.arpa@1.2.3.0x4"), "neither"),
            (with("home.arpa@a..b"), "neither"),
            (with("home.arpa@[::1]:7002"), "IPv6"),
            (with("home.arpa@2001:db8::1"), "IPv6"),
            (with("home.arpa@h:"), "\"\" is not a port"),
            (with("home.arpa@h:0"), "\"0\" is not a port"),
            (with("home.arpa@h:+1"), "\"+1\" is not a port"),
            (with("home.arpa@h:65536"), "\"65536\" is not a port"),
            ("afar://home.arpa@h".to_owned(), "fingerprint behind # is missing"),
            ("afar://home.arpa@h#".to_owned(), "is not a fingerprint"),
            (format!("afar://home.arpa@h#{short}"), "is not a fingerprint"),
            (format!("afar://home.arpa@h#{KEY}A"), "is not a fingerprint"),
            (format!("afar://home.arpa@h#{KEY}#{KEY}"), "is not a fingerprint"),
            (format!("afar://home.arpa@h#MD5:{}", &KEY[7..]), "is not a fingerprint"),
        ];
        for (line, cause) in table {
            let error = line.parse::<CellUri>().unwrap_err().to_string();
            assert!(error.contains(cause), "{line:?}: {error}");
            assert!(
                error.contains("afar://CELL@HOST[:PORT]#SHA256:…"),
                "{error}"
            );
            assert!(
                error.len() < 1000 && !error.contains(char::is_control),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(line in ".*", place in "[ -~]{0,40}") {
            fuzz(&line);
            fuzz(&format!("afar://{place}#{KEY}"));
            fuzz(&format!("afar://a@{place}#{KEY}"));
        }
    }
}
