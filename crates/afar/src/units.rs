//! Amounts and times as users write and read them: SI units, binary ones by name.

use std::time::Duration;

/// Units of an amount of bytes.
const BYTES: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", 1_000),
    ("kb", 1_000),
    ("ki", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1_000_000),
    ("mb", 1_000_000),
    ("mi", 1 << 20),
    ("mib", 1 << 20),
    ("g", 1_000_000_000),
    ("gb", 1_000_000_000),
    ("gi", 1 << 30),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];
/// Units of an amount of KiB, as OpenAFS has them.
const KIB: &[(&str, u64)] = &[
    ("", 1),
    ("k", 1),
    ("m", 1 << 10),
    ("g", 1 << 20),
    ("t", 1 << 30),
];

/// The number in an amount, and how much its unit is, in any case.
fn split<'a>(text: &'a str, units: &[(&str, u64)]) -> Result<(&'a str, u64), String> {
    let number = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let suffix = text[number.len()..].trim().to_ascii_lowercase();
    let unit = units.iter().find(|(name, _)| *name == suffix);
    unit.map(|(_, scale)| (number, *scale))
        .ok_or_else(|| format!("{suffix:?} is not a unit: use k, M, G (10^3…) or Ki, Mi, Gi"))
}

/// Reads a number as C's `strtol` does with base 0: decimal, `0x` and a leading `0` for octal; not
/// negative.
///
/// # Errors
/// What is wrong with it, as a phrase.
pub(crate) fn parse_number(text: &str) -> Result<u64, String> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return Err(format!("{text:?} is not a number"));
    }
    u64::from_str_radix(digits, radix).map_err(|error| format!("{text:?}: {error}"))
}

/// Reads an amount of bytes: a number, or a decimal one with k, M, G (powers of 1,000) or Ki, Mi,
/// Gi, Ti (of 1,024).
///
/// # Errors
/// What is wrong with it, as a phrase.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    if text.len() > 1 && text.starts_with('0') {
        return parse_number(text);
    }
    let (number, scale) = split(text, BYTES)?;
    let too_large = || format!("{text:?} is too large");
    parse_number(number)?
        .checked_mul(scale)
        .ok_or_else(too_large)
}

/// Reads the bytes from which data goes out of band: an amount, or `off`, which is 0.
///
/// # Errors
/// What is wrong with it, as a phrase.
pub(crate) fn parse_threshold(text: &str) -> Result<u64, String> {
    match text {
        "off" => Ok(0),
        amount => parse_bytes(amount),
    }
}

/// Reads an amount of KiB as OpenAFS's commands do: a number, with K, M, G or T behind it for more.
pub(crate) fn parse_kib(text: &str) -> Option<i32> {
    let (number, scale) = split(text, KIB).ok()?;
    let number: i64 = number.parse().ok()?;
    let kib = number.checked_mul(i64::try_from(scale).ok()?)?;
    i32::try_from(kib).ok()
}

/// Reads an amount of bytes that fits 32 bits and is not 0.
///
/// # Errors
/// What is wrong with it, as a phrase.
pub(crate) fn parse_size(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|size| *size > 0)
        .ok_or_else(|| format!("{text:?} is out of range 1–{}", u32::MAX))
}

/// Reads a time in seconds, fractions allowed, from a millisecond to a year.
///
/// # Errors
/// What is wrong with it, as a phrase.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .trim_end_matches('s')
        .parse()
        .map_err(|_| format!("{text:?} is not a time"))?;
    if !(0.001..=31_536_000.0).contains(&seconds) {
        return Err(format!("{text:?} is out of range 0.001–31536000 seconds"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A whole number with its thousands apart: `1,048,576`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate or time of any size with about four digits: `0.0421`, `2.346`, `958.2`, `12,345`.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        size if !value.is_finite() || size >= 1e15 => format!("{value:.3e}"),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the value was found to be below 10^15, and rates are not negative"
        )]
        size if size >= 1000.0 => grouped(size.round() as u64),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        size if size >= 1.0 || size == 0.0 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_decimal_and_binary_units() {
        let cases = [
            ("0", 0),
            ("7", 7),
            ("0x100", 256),
            ("010", 8),
            ("3k", 3_000),
            ("3 MB", 3_000_000),
            ("2Mi", 2 << 20),
            ("4GiB", 4 << 30),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "k",
            "-1",
            "1.5M",
            "3x",
            "0x",
            "0x+1",
            "99999999999G",
            "09",
        ] {
            parse_bytes(text).unwrap_err();
        }
        assert_eq!(parse_threshold("off"), Ok(0));
        assert_eq!(parse_threshold("1Mi"), Ok(1 << 20));
        parse_threshold("of").unwrap_err();
    }

    #[test]
    fn quotas_are_in_kib_or_have_a_unit() {
        for (text, kib) in [
            ("5000", 5000),
            ("10M", 10 << 10),
            ("3K", 3),
            ("2g", 2 << 20),
            ("1T", 1 << 30),
            ("-1", -1),
        ] {
            assert_eq!(parse_kib(text), Some(kib), "{text}");
        }
        for text in ["", "M", "x", "10x", "5 000", "3MM", "3MB", "2T"] {
            assert_eq!(parse_kib(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_and_times_have_bounds() {
        assert_eq!(parse_size("512Ki"), Ok(512 << 10));
        parse_size("0").unwrap_err();
        parse_size("4Gi").unwrap_err();
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_seconds("10s"), Ok(Duration::from_secs(10)));
        for text in ["0", "-1", "NaN", "inf", "1e30", "soon"] {
            parse_seconds(text).unwrap_err();
        }
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_048_576), "1,048,576");
        assert_eq!(short(0.042_13), "0.0421");
        assert_eq!(short(2.345_67), "2.346");
        assert_eq!(short(958.21), "958.2");
        assert_eq!(short(12_345.6), "12,346");
    }
}
