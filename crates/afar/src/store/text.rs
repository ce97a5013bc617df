//! Names, times and sizes as they are typed.

use afar_types::{UnixTime, VolumeType};

/// Whether a name is as a pattern says: `*` stands for anything, `?` for one character.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to try again: behind the last star, with one more byte for it.
    let mut again = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                again = Some((p + 1, n + 1));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match again {
                Some((star, next)) => {
                    p = star;
                    n = next;
                    again = Some((star, next + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// `RW`, `RO` or `BK`, as `vos listvol` has it.
pub(crate) fn short_kind(kind: VolumeType) -> &'static str {
    match kind {
        VolumeType::ReadWrite => "RW",
        VolumeType::ReadOnly => "RO",
        VolumeType::Backup => "BK",
    }
}

/// Reads a time in UTC: `2026-11-21`, `2026-11-21 13:25` or `2026-11-21T13:25:07`, or seconds since
/// 1970 as `@1795267507`.
///
/// # Errors
/// What is wrong with it, as a phrase.
pub(super) fn parse_time(text: &str) -> Result<UnixTime, String> {
    let wrong = || format!("{text:?} is not a time: write 2026-11-21 13:25 (UTC), or @SECONDS");
    if let Some(seconds) = text.strip_prefix('@') {
        return seconds.parse().map(UnixTime).map_err(|_| wrong());
    }
    let (date, time) = text.split_once([' ', 'T']).unwrap_or((text, "0:0"));
    let numbers = |text: &str, separator| -> Result<Vec<u64>, String> {
        let parts = text.trim_end_matches('Z').split(separator);
        parts
            .map(|part| part.parse().map_err(|_| wrong()))
            .collect()
    };
    let (date, time) = (numbers(date, '-')?, numbers(time, ':')?);
    let (&[year, month, day], &[hour, minute, ref second @ ..]) = (&date[..], &time[..]) else {
        return Err(wrong());
    };
    let second = match second {
        [] => 0,
        [second] => *second,
        _ => return Err(wrong()),
    };
    let fits = (1970..=2106).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !fits {
        return Err(wrong());
    }
    let days = (1970..year)
        .map(|year| if leap(year) { 366 } else { 365 })
        .sum::<u64>()
        + (1..month).map(|month| days_of(year, month)).sum::<u64>()
        + day
        - 1;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    u32::try_from(seconds).map(UnixTime).map_err(|_| wrong())
}

fn leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 if leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name) in [
            ("*", ""),
            ("user.*", "user.alice"),
            ("*.backup", "user.alice.backup"),
            ("u?er.*l*e", "user.alice"),
            ("a*b*c", "aXbXbc"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("user", "user.alice"),
            ("?", ""),
            ("a*b", "acbd"),
            ("", "a"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn times_are_read_as_utc() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("2026-11-21 13:25:07", 1_795_267_507),
            ("2026-11-21T13:25:07Z", 1_795_267_507),
            ("@17", 17),
            ("2106-02-07 06:28:15", u32::MAX),
        ] {
            assert_eq!(parse_time(text), Ok(UnixTime(seconds)), "{text}");
        }
        for text in [
            "",
            "yesterday",
            "2026-13-01",
            "2025-02-29",
            "2026-1-1 24:00",
            "2106-02-08",
        ] {
            parse_time(text).unwrap_err();
        }
    }
}
