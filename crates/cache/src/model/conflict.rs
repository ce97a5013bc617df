//! A change that could not be made at its server, as it is told and recorded.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

use afar_telemetry::is_harmful;
use afar_types::{CellName, Fid, UnixTime};

use super::path_info::fid;

/// What is between the fields of a line.
const BETWEEN: char = '\t';

/// A change that was made here and could not be made at its server. Its text is a line of fields with tabs between,
/// in which nothing ends the line or does something to a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// When this was found.
    pub time: UnixTime,
    /// The cell.
    pub cell: CellName,
    /// The file, or the directory in which the name is.
    pub fid: Fid,
    /// What was to be done, such as `mkdir` or `store`.
    pub verb: String,
    /// The name that was to be made, moved or removed; empty if it is of none.
    pub name: Vec<u8>,
    /// Why it was not.
    pub why: String,
    /// Where data that was written is kept, if there is any.
    pub kept: Option<PathBuf>,
}

impl Conflict {
    /// Its name as part of a text: nothing in it ends the line or does something to a terminal.
    #[must_use]
    pub fn name_text(&self) -> String {
        escaped(&self.name)
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.kept.as_ref().map(|path| path.as_os_str().as_bytes());
        write!(f, "{}{BETWEEN}{}{BETWEEN}", self.time.0, self.cell)?;
        write!(f, "{}{BETWEEN}", self.fid)?;
        for field in [self.verb.as_bytes(), &self.name, self.why.as_bytes()] {
            write!(f, "{}{BETWEEN}", escaped(field))?;
        }
        f.write_str(&escaped(kept.unwrap_or_default()))
    }
}

/// A text that does not tell of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not what a mount tells of a conflict")]
pub struct ConflictError;

impl FromStr for Conflict {
    type Err = ConflictError;

    fn from_str(line: &str) -> Result<Self, ConflictError> {
        let fields: Vec<&str> = line.split(BETWEEN).collect();
        let [time, cell, about, verb, name, why, kept] =
            fields.try_into().map_err(|_| ConflictError)?;
        let text = |field| {
            let bytes = unescaped(field)?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let read = || {
            let kept = unescaped(kept)?;
            Some(Self {
                time: UnixTime(time.parse().ok()?),
                cell: cell.parse().ok()?,
                fid: fid(about)?,
                verb: text(verb)?,
                name: unescaped(name)?,
                why: text(why)?,
                kept: (!kept.is_empty()).then(|| OsString::from_vec(kept).into()),
            })
        };
        read().ok_or(ConflictError)
    }
}

/// Bytes as text: those that are no harmless text, and backslashes, as `\x` and two digits.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let escape = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    };
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter == '\\' || is_harmful(letter) {
                true => escape(&mut text, letter.encode_utf8(&mut [0; 4]).as_bytes()),
                false => text.push(letter),
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let part = part.strip_prefix('x')?;
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Conflict {
        Conflict {
            time: UnixTime(1_795_267_507),
            cell: "a.example".parse().unwrap(),
            fid: Fid::new(536_870_915, 1, 1),
            verb: "mkdir".to_owned(),
            name: b"new".to_vec(),
            why: "it exists already".to_owned(),
            kept: None,
        }
    }

    #[test]
    fn a_conflict_is_a_line_and_can_be_read_again() {
        let line = some().to_string();
        assert_eq!(
            line,
            "1795267507\ta.example\t536870915.1.1\tmkdir\tnew\tit exists already\t"
        );
        assert_eq!(line.parse::<Conflict>(), Ok(some()));
        let stored = Conflict {
            verb: "store".to_owned(),
            name: Vec::new(),
            kept: Some("/var/cache/afar/afs/lost+found/a.example.5.2.7".into()),
            ..some()
        };
        assert_eq!(stored.to_string().parse::<Conflict>(), Ok(stored));
    }

    #[test]
    fn names_are_harmless_and_stay_what_they_are() {
        for name in [
            &b"a\nb\tc\\d\x1b[2J"[..],
            b"\xff\xfe \xc3",
            "\u{fc}ber \u{202e}".as_bytes(),
            b"\\x41",
        ] {
            let conflict = Conflict {
                name: name.to_vec(),
                ..some()
            };
            let line = conflict.to_string();
            assert!(
                !line.chars().any(|it| it != '\t' && is_harmful(it)),
                "{line:?}"
            );
            assert_eq!(line.parse::<Conflict>(), Ok(conflict));
        }
        assert_eq!(escaped("\u{fc}\n".as_bytes()), "\u{fc}\\x0a");
    }

    #[test]
    fn what_is_no_conflict_is_refused() {
        let line = some().to_string();
        for wrong in [
            "",
            "a",
            line.trim_end_matches('\t'),
            &format!("{line}\t"),
            &line.replace("new", "\\y41"),
            &line.replace("new", "\\x4"),
            &line.replace("536870915.1.1", "536870915.1"),
            &line.replace("1795267507", "then"),
        ] {
            assert_eq!(wrong.parse::<Conflict>(), Err(ConflictError), "{wrong:?}");
        }
    }
}
