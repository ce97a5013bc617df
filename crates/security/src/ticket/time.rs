//! The times of tickets: how they are written, and when a ticket holds.

use std::time::{Duration, SystemTime};

use crate::RxkadError;

/// How far clocks may be apart, in seconds.
pub(super) const SKEW: u64 = 15 * 60;

/// The longest life of a ticket, in seconds.
pub(super) const LIFE_MAX: u64 = 30 * DAY;

/// The end of tickets that do not end, and the start of those whose life is not limited.
const NEVER: u32 = u32::MAX;
const ALWAYS: u32 = 0;

const DAY: u64 = 24 * 60 * 60;

/// A point in time as tickets count it: seconds since 1970, down to the second that has begun.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs()
}

/// Whether a ticket with these times holds now; a peer's `tkt_CheckTimes`.
///
/// # Errors
/// `BadTicket` for times that make no sense or span more than [`LIFE_MAX`], and long after the end;
/// `Expired` after the end; `NoAuth` before the start. Clocks may be [`SKEW`] apart.
// spec: rxkad#times
pub(super) fn check(start: u32, end: u32, now: u64) -> Result<(), RxkadError> {
    let (from, to) = (u64::from(start), u64::from(end));
    if from >= to || from > now + SKEW + LIFE_MAX {
        return Err(RxkadError::BadTicket);
    }
    if start != ALWAYS && end != NEVER && to - from > LIFE_MAX {
        return Err(RxkadError::BadTicket);
    }
    if end != NEVER && to + SKEW < now {
        let long_ago = start != ALWAYS && now - from > LIFE_MAX + DAY;
        return Err(if long_ago {
            RxkadError::BadTicket
        } else {
            RxkadError::Expired
        });
    }
    if from > now + SKEW {
        return Err(RxkadError::NoAuth);
    }
    Ok(())
}

/// Reads a time of Kerberos, which is `YYYYMMDDhhmmssZ` and nothing else, as seconds since 1970.
pub(super) fn parse(text: &[u8]) -> Option<i64> {
    let (digits, b"Z") = text.split_at_checked(14)? else {
        return None;
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |at: std::ops::Range<usize>| {
        let digits = digits[at].iter();
        digits.fold(0, |number, &digit| number * 10 + i64::from(digit - b'0'))
    };
    let (year, month, day) = (number(0..4), number(4..6), number(6..8));
    let (hour, minute, second) = (number(8..10), number(10..12), number(12..14));
    let valid = (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    valid.then(|| ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

/// Writes seconds since 1970 as a time of Kerberos.
pub(super) fn format(seconds: u32) -> String {
    let (mut left, time) = (i64::from(seconds) / 86400, seconds % 86400);
    let mut year = 1970;
    while left >= days(year + 1, 1, 1) - days(year, 1, 1) {
        left -= days(year + 1, 1, 1) - days(year, 1, 1);
        year += 1;
    }
    let mut month = 1;
    while left >= days_of(year, month) {
        left -= days_of(year, month);
        month += 1;
    }
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    let day = left + 1;
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}Z")
}

const fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970 to a day.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let leaps =
        |before: i64| before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
    let leaps = leaps(year - 1) - leaps(1969);
    let months: i64 = (1..month).map(|month| days_of(year, month)).sum();
    (year - 1970) * 365 + leaps + months + day - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: u64 = 1_800_000_000;
    const HOUR: u64 = 3600;

    #[test]
    fn when_a_ticket_holds() {
        use RxkadError::{BadTicket, Expired, NoAuth};
        let never = u64::from(NEVER);
        for (start, end, expected) in [
            (NOW - HOUR, NOW + HOUR, Ok(())),
            (NOW, NOW + 1, Ok(())),
            // No life.
            (NOW, NOW, Err(BadTicket)),
            (NOW + HOUR, NOW - HOUR, Err(BadTicket)),
            // The longest life, unless it has no start or no end.
            (NOW - HOUR, NOW - HOUR + LIFE_MAX, Ok(())),
            (NOW - HOUR, NOW - HOUR + LIFE_MAX + 1, Err(BadTicket)),
            (0, 0x7fff_ffff, Ok(())),
            (0, never, Ok(())),
            (NOW - HOUR, never, Ok(())),
            (1, 0x7fff_ffff, Err(BadTicket)),
            // The start.
            (NOW + SKEW, NOW + HOUR, Ok(())),
            (NOW + SKEW + 1, NOW + HOUR, Err(NoAuth)),
            (NOW + SKEW + 1, never, Err(NoAuth)),
            (NOW + SKEW + LIFE_MAX, never, Err(NoAuth)),
            (NOW + SKEW + LIFE_MAX + 1, never, Err(BadTicket)),
            // The end.
            (NOW - HOUR, NOW - SKEW, Ok(())),
            (NOW - HOUR, NOW - SKEW - 1, Err(Expired)),
            (0, NOW - SKEW - 1, Err(Expired)),
            (NOW - LIFE_MAX - DAY, NOW - HOUR - DAY, Err(Expired)),
            (NOW - LIFE_MAX - DAY - 1, NOW - HOUR - DAY, Err(BadTicket)),
        ] {
            let at = |time| u32::try_from(time).unwrap();
            assert_eq!(check(at(start), at(end), NOW), expected, "{start} {end}");
        }
        // Soon after 1970 nothing wraps around.
        assert_eq!(check(10, 20, 0), Ok(()));
        assert_eq!(check(0, 1, 10_000), Err(Expired));
    }

    #[test]
    fn times_of_kerberos() {
        for (text, seconds) in [
            ("19700101000000Z", Some(0)),
            ("20380119031407Z", Some(0x7fff_ffff)),
            ("21060207062815Z", Some(0xffff_ffff)),
            ("20000229235959Z", Some(951_868_799)),
            ("19691231235959Z", Some(-1)),
            ("99991231235959Z", Some(253_402_300_799)),
            ("00000101000000Z", Some(-62_167_219_200)),
            ("19000229000000Z", None),
            ("20261301000000Z", None),
            ("20260100000000Z", None),
            ("20260101240000Z", None),
            ("20260101006000Z", None),
            ("20260101000061Z", None),
            ("2026010100000Z", None),
            ("20260101000000", None),
            ("20260101000000.5Z", None),
            ("20260101000000+", None),
            ("2026010100000 Z", None),
            ("", None),
        ] {
            assert_eq!(parse(text.as_bytes()), seconds, "{text}");
        }
    }

    proptest! {
        #[test]
        fn times_lead_back(seconds: u32) {
            prop_assert_eq!(parse(format(seconds).as_bytes()), Some(seconds.into()));
        }
    }
}
