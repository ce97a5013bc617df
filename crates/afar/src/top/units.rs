//! Numbers as people read them: short, of the same width, and never rounded to nothing.

/// What a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// No number, but text.
    Text,
    /// A plain number, or so many in a second.
    Count,
    /// Bytes, or bytes in a second: in powers of 1024.
    Bytes,
    /// Seconds.
    Seconds,
}

/// A number in at most six characters, for numbers below 10^15.
pub(super) fn short(number: f64, unit: Unit) -> String {
    match unit {
        Unit::Text | Unit::Count => scaled(number, 1000.0, &["", "k", "M", "G", "T"]),
        Unit::Bytes => scaled(number, 1024.0, &["", "K", "M", "G", "T"]),
        Unit::Seconds => seconds(number),
    }
}

/// Bytes in powers of 1024.
pub(crate) fn short_bytes(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a size to be shown")]
    let bytes = bytes as f64;
    short(bytes, Unit::Bytes)
}

fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    let (mut number, mut units) = (number, units.iter());
    let mut unit = units.next().copied().unwrap_or_default();
    // What would be rounded to the next unit is in it.
    while number >= step - 0.5 {
        let Some(next) = units.next() else { break };
        (number, unit) = (number / step, next);
    }
    format!("{}{unit}", digits(number))
}

/// Two digits, or more before the point; of a whole number all.
fn digits(number: f64) -> String {
    match number {
        n if n.fract() == 0.0 => format!("{n:.0}"),
        n if n < 0.095 => format!("{n:.2}"),
        n if n < 9.95 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}

fn seconds(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        n if n < 999.5e-6 => format!("{}us", digits(n * 1e6)),
        n if n < 0.9995 => format!("{}ms", digits(n * 1e3)),
        n if n < 99.5 => format!("{}s", digits(n)),
        n => long(n),
    }
}

/// A time in its two greatest units: `3d04h`, `2h05m`, `1m40s`.
pub(crate) fn long(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of floats saturate"
    )]
    let seconds = seconds.round() as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match () {
        () if days > 0 => format!("{days}d{:02}h", hours % 24),
        () if hours > 0 => format!("{hours}h{:02}m", minutes % 60),
        () if minutes > 0 => format!("{minutes}m{:02}s", seconds % 60),
        () => format!("{seconds}s"),
    }
}

/// Text that does nothing to a terminal.
pub(crate) fn shown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match afar_telemetry::is_harmful(letter) {
            true => safe.extend(letter.escape_default()),
            false => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_not_nothing() {
        for (number, unit, text) in [
            (0.0, Unit::Count, "0"),
            (0.05, Unit::Count, "0.05"),
            (0.5, Unit::Count, "0.5"),
            (9.96, Unit::Count, "10"),
            (999.4, Unit::Count, "999"),
            (999.6, Unit::Count, "1.0k"),
            (123_456.0, Unit::Count, "123k"),
            (1e30, Unit::Count, "1000000000000000000T"),
            (1023.0, Unit::Bytes, "1023"),
            (1024.0, Unit::Bytes, "1K"),
            (1.0, Unit::Count, "1"),
            (1.5 * 1024.0 * 1024.0, Unit::Bytes, "1.5M"),
            (0.000_016, Unit::Seconds, "16us"),
            (0.001_24, Unit::Seconds, "1.2ms"),
            (0.9996, Unit::Seconds, "1.0s"),
            (59.0, Unit::Seconds, "59s"),
            (100.0, Unit::Seconds, "1m40s"),
            (7500.0, Unit::Seconds, "2h05m"),
            (273_600.0, Unit::Seconds, "3d04h"),
        ] {
            assert_eq!(short(number, unit), text);
        }
        for power in 0..60 {
            let number = 1.3_f64.powi(power);
            for unit in [Unit::Count, Unit::Bytes, Unit::Seconds] {
                assert!(
                    short(number, unit).len() <= 6,
                    "{number}: {}",
                    short(number, unit)
                );
            }
        }
    }

    #[test]
    fn hostile_text_does_nothing_to_a_terminal() {
        assert_eq!(shown("a\u{1b}[2Jb\r\n"), "a\\u{1b}[2Jb\\r\\n");
        assert_eq!(shown("\u{202e}x\u{9b}"), "\\u{202e}x\\u{9b}");
        // What the server has escaped stays as it is.
        assert_eq!(shown("a\\u{1b} Zoë"), "a\\u{1b} Zoë");
    }
}
