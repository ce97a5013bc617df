//! The line of a request: its time, its process, what it is, its arguments, what came of it, and how long it took.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use afar_cache::{Errno, Who};
use afar_telemetry::is_harmful;
use jiff::Timestamp;

use super::operation::Operation;

/// Bytes of a name that are shown.
const NAME_MOST: usize = 1024;

/// A name, or another text of a program, between quotes. What would end the line, move a cursor or hide is escaped,
/// and so are bytes that are no UTF-8.
pub(crate) fn quoted(text: &[u8]) -> String {
    let mut shown = String::from('"');
    for chunk in text.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '"' | '\\' => shown.extend(letter.escape_default()),
                letter if is_harmful(letter) => shown.extend(letter.escape_default()),
                letter => shown.push(letter),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _written = write!(shown, "\\x{byte:02x}");
        }
        if shown.len() > NAME_MOST {
            let mut end = NAME_MOST;
            while !shown.is_char_boundary(end) {
                end -= 1;
            }
            shown.truncate(end);
            shown.push('…');
            break;
        }
    }
    shown.push('"');
    shown
}

/// Arguments, as in a call.
pub(crate) fn args(all: &[&dyn std::fmt::Display]) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    all.join(",")
}

/// The line of a request that ended at this time.
pub(super) fn line(
    now: SystemTime,
    who: Who,
    operation: Operation,
    args: &str,
    result: Result<&str, Errno>,
    took: Duration,
) -> String {
    let Who { uid, gid, pid } = who;
    let (name, took) = (operation.name(), took.as_micros());
    let result = match result {
        Ok("") => "OK".to_owned(),
        Ok(text) => format!("OK {text}"),
        Err(Errno(number)) => format!("error {number} ({})", message(number)),
    };
    format!(
        "{} [uid:{uid},gid:{gid},pid:{pid}] {name} ({args}): {result} <{took} us>\n",
        stamp(now)
    )
}

/// What the system calls an error, without its number.
fn message(number: i32) -> String {
    let text = std::io::Error::from_raw_os_error(number).to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

/// A time as in RFC 3339, in UTC, to the microsecond.
fn stamp(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or_default();
    format!("{time:.6}")
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn names_cannot_end_a_line_or_move_a_cursor() {
        assert_eq!(quoted(b"a b"), "\"a b\"");
        assert_eq!(quoted("Zoë".as_bytes()), "\"Zoë\"");
        assert_eq!(quoted(b"a\nb\"\\\x1b[2J"), r#""a\nb\"\\\u{1b}[2J""#);
        assert_eq!(quoted(b"\xff\xfe.txt"), r#""\xff\xfe.txt""#);
        assert_eq!(quoted("\u{202e}gpj".as_bytes()), r#""\u{202e}gpj""#);
        for long in [
            "ü".repeat(9000).into_bytes(),
            vec![0xff; 9000],
            vec![7; 9000],
        ] {
            assert!(quoted(&long).len() < NAME_MOST + 16);
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000007Z"),
            (951_782_399, "2000-02-28T23:59:59.000007Z"),
            (951_782_400, "2000-02-29T00:00:00.000007Z"),
            (1_709_251_200, "2024-03-01T00:00:00.000007Z"),
            (1_795_800_094, "2026-11-27T17:21:34.000007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000007Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(7);
            assert_eq!(stamp(time), text);
        }
    }

    #[test]
    fn a_line_says_who_did_what_and_what_came_of_it() {
        let who = Who {
            uid: 1000,
            gid: 100,
            pid: 7,
        };
        let name = quoted(b"a\nb");
        let args = args(&[&1, &name]);
        let took = Duration::from_micros(34);
        let line = |result| line(UNIX_EPOCH, who, Operation::Lookup, &args, result, took);
        assert_eq!(
            line(Ok("(12)")),
            "1970-01-01T00:00:00.000000Z [uid:1000,gid:100,pid:7] lookup (1,\"a\\nb\"): OK (12) <34 us>\n"
        );
        let failed = line(Err(Errno::ENOENT));
        assert!(
            failed.ends_with("error 2 (No such file or directory) <34 us>\n"),
            "{failed}"
        );
        assert!(line(Ok("")).ends_with(": OK <34 us>\n"));
    }
}
