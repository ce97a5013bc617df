//! Codes in the words of OpenAFS's `vos`.

use afar_types::UnixTime;
use afar_types::error::{self, lookup};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// A time as C's `ctime` prints it, without the line's end, in the machine's time zone.
#[must_use]
pub fn date(time: UnixTime) -> String {
    // All 32-bit times are within what the calendar holds.
    let time = Timestamp::from_second(time.0.into()).unwrap_or_default();
    let local = time.to_zoned(TimeZone::system());
    local.strftime("%a %b %e %H:%M:%S %Y").to_string()
}

/// A time as users type it, in the machine's time zone: `now`, or `MM/DD/YYYY` with or without
/// `hh:mm` or `hh:mm:ss` after it. Two digits of a year mean 1970 to 2069.
#[must_use]
pub fn parse_date(text: &str) -> Option<UnixTime> {
    if text == "now" {
        return Some(std::time::SystemTime::now().into());
    }
    let (day, time) = text.split_once([' ', '.']).unwrap_or((text, "00:00"));
    let numbers = |text: &str, separator| -> Option<Vec<i16>> {
        text.split(separator)
            .map(|part| part.parse().ok())
            .collect()
    };
    let &[month, day, year] = numbers(day, '/')?.as_slice() else {
        return None;
    };
    let (hour, minute, second) = match *numbers(time.trim(), ':')?.as_slice() {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let year = match year {
        0..70 => year + 2000,
        70..100 => year + 1900,
        _ => year,
    };
    let part = |number: i16| i8::try_from(number).ok();
    let time = DateTime::new(
        year,
        part(month)?,
        part(day)?,
        part(hour)?,
        part(minute)?,
        part(second)?,
        0,
    );
    let time = time.ok()?.to_zoned(TimeZone::system()).ok()?;
    u32::try_from(time.timestamp().as_second())
        .ok()
        .map(UnixTime)
}

/// What a code means, with the line's end; nothing for 0.
#[must_use]
pub fn error_text(code: i32) -> String {
    if code == 0 {
        return String::new();
    }
    if let Some((_, text)) = KNOWN.iter().find(|(known, _)| *known == code) {
        return format!("{text}\n");
    }
    format!("{}: {}\n", table_name(code), message(code))
}

const KNOWN: &[(i32, &str)] = &[
    (error::RX_CALL_DEAD, "Possible communication failure"),
    (error::VSALVAGE, "Volume needs to be salvaged"),
    (error::VNOVNODE, "Bad vnode number quoted"),
    (
        error::VNOVOL,
        "Volume not attached, does not exist, or not on line",
    ),
    (error::VVOLEXISTS, "Volume already exists"),
    (error::VNOSERVICE, "Volume is not in service"),
    (error::VOFFLINE, "Volume is off line"),
    (error::VONLINE, "Volume is already on line"),
    (error::VDISKFULL, "Partition is full"),
    (error::VOVERQUOTA, "Volume max quota exceeded"),
    (error::VBUSY, "Volume temporarily unavailable"),
    (error::VMOVED, "Volume has moved to another server"),
    (error::VL_IDEXIST, "VLDB: volume Id exists in the vldb"),
    (error::VL_IO, "VLDB: a read terminated too early"),
    (error::VL_NAMEEXIST, "VLDB: volume entry exists in the vldb"),
    (error::VL_CREATEFAIL, "VLDB: internal creation failure"),
    (error::VL_NOENT, "VLDB: no such entry"),
    (error::VL_EMPTY, "VLDB: vldb database is empty"),
    (error::VL_ENTDELETED, "VLDB: entry is deleted (soft delete)"),
    (error::VL_BADNAME, "VLDB: volume name is illegal"),
    (error::VL_BADINDEX, "VLDB: index was out of range"),
    (error::VL_BADVOLTYPE, "VLDB: bad volume type"),
    (
        error::VL_BADSERVER,
        "VLDB: illegal server number (not within limits)",
    ),
    (error::VL_BADPARTITION, "VLDB: bad partition number"),
    (
        error::VL_REPSFULL,
        "VLDB: run out of space for replication sites",
    ),
    (error::VL_NOREPSERVER, "VLDB: no such repsite server exists"),
    (
        error::VL_DUPREPSERVER,
        "VLDB: replication site server already exists",
    ),
    (error::VL_RWNOTFOUND, "VLDB: parent r/w entry not found"),
    (
        error::VL_BADREFCOUNT,
        "VLDB: illegal reference count number",
    ),
    (
        error::VL_SIZEEXCEEDED,
        "VLDB: vldb size for attributes exceeded",
    ),
    (error::VL_BADENTRY, "VLDB: bad incoming vldb entry"),
    (error::VL_BADVOLIDBUMP, "VLDB: illegal max volid increment"),
    (
        error::VL_IDALREADYHASHED,
        "VLDB: (RO/BACK) Id already hashed",
    ),
    (error::VL_ENTRYLOCKED, "VLDB: vldb entry is already locked"),
    (error::VL_BADVOLOPER, "VLDB: bad volume operation code"),
    (error::VL_BADRELLOCKTYPE, "VLDB: bad release lock type"),
    (
        error::VL_RERELEASE,
        "VLDB: status report: last release was aborted",
    ),
    (
        error::VL_BADSERVERFLAG,
        "VLDB: invalid replication site server flag",
    ),
    (error::VL_PERM, "VLDB: no permission access for call"),
    (
        error::VOLSERREAD_DUMPERROR,
        "VOLSER:  Problems encountered in reading the dump file !",
    ),
    (
        error::VOLSERDUMPERROR,
        "VOLSER: Problems encountered in doing the dump !",
    ),
    (
        error::VOLSERATTACH_ERROR,
        "VOLSER: Could not attach the volume",
    ),
    (
        error::VOLSERILLEGAL_PARTITION,
        "VOLSER: encountered illegal partition number",
    ),
    (
        error::VOLSERDETACH_ERROR,
        "VOLSER: Could not detach the volume",
    ),
    (
        error::VOLSERBAD_ACCESS,
        "VOLSER: permission denied, not a super user",
    ),
    (
        error::VOLSERVLDB_ERROR,
        "VOLSER: error detected in the VLDB",
    ),
    (error::VOLSERBADNAME, "VOLSER: error in volume name"),
    (error::VOLSERVOLMOVED, "VOLSER: volume has moved"),
    (error::VOLSERBADOP, "VOLSER: illegal operation"),
    (
        error::VOLSERBADRELEASE,
        "VOLSER: release could not be completed",
    ),
    (error::VOLSERVOLBUSY, "VOLSER: volume is busy"),
    (
        error::VOLSERNO_MEMORY,
        "VOLSER: volume server is out of memory",
    ),
    (
        error::VOLSERNOVOL,
        "VOLSER: no such volume - location specified incorrectly or volume does not exist",
    ),
    (
        error::VOLSERMULTIRWVOL,
        "VOLSER: multiple RW volumes with same ID, one of which should be deleted",
    ),
    (
        error::VOLSERFAILEDOP,
        "VOLSER: not all entries were successfully processed",
    ),
];

/// The name of a code's table: its number without the last eight bits, in six bits a letter.
fn table_name(code: i32) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz0123456789_";
    let number = code >> 8;
    (0..4)
        .rev()
        .filter_map(|place| {
            let digit = usize::try_from((number >> (6 * place)) & 0o77).ok()?;
            LETTERS.get(digit.checked_sub(1)?).copied().map(char::from)
        })
        .collect()
}

fn message(code: i32) -> String {
    match code {
        error::RX_CALL_DEAD => "server or network not responding".to_owned(),
        error::RX_INVALID_OPERATION => "invalid RPC (RX) operation".to_owned(),
        error::RX_CALL_TIMEOUT => "server not responding promptly".to_owned(),
        error::RX_ADDRINUSE => "port address already in use".to_owned(),
        -499..=error::RXGEN_CC_MARSHAL => format!("RPC interface mismatch ({code})"),
        i32::MIN..=-1 => format!("unknown RPC error ({code})"),
        1..256 => system_message(code),
        _ => lookup(code).map_or_else(
            || {
                let (table, offset) = (table_name(code), code & 0xff);
                format!("Unknown code {table} {offset}")
            },
            |info| info.text.to_owned(),
        ),
    }
}

fn system_message(code: i32) -> String {
    let text = std::io::Error::from_raw_os_error(code).to_string();
    let number = format!(" (os error {code})");
    text.strip_suffix(&number).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_come_back() {
        for text in [
            "11/21/2026 13:25:07",
            "2/29/24",
            "1/1/99 7:05",
            "12/31/1999.23:59",
        ] {
            assert!(parse_date(text).is_some(), "{text}");
        }
        let time = parse_date("11/21/2026 13:25:07").unwrap();
        assert_eq!(date(time), "Sat Nov 21 13:25:07 2026");
        assert_eq!(parse_date("2/29/24"), parse_date("02/29/2024 0:00"));
        for text in [
            "",
            "yesterday",
            "13/1/2026",
            "2/30/2026",
            "1/1/2026 25:00",
            "1/1",
        ] {
            assert_eq!(parse_date(text), None, "{text}");
        }
    }

    #[test]
    fn codes_are_said_in_known_words() {
        assert_eq!(error_text(0), "");
        assert_eq!(error_text(363_524), "VLDB: no such entry\n");
        assert_eq!(
            error_text(1_492_325_127),
            "VOLSER: permission denied, not a super user\n"
        );
        assert_eq!(error_text(2), ": No such file or directory\n");
        assert_eq!(error_text(-455), "___9: RPC interface mismatch (-455)\n");
        assert!(error_text(5376).starts_with("u: "), "{}", error_text(5376));
        assert!(
            error_text(19_270_409).starts_with("rxk: "),
            "{}",
            error_text(19_270_409)
        );
    }
}
