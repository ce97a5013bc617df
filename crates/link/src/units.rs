//! Quantities as the command line writes them: `12.5ms`, `1gbit`, `64KiB`, `0.1%`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One value for each direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerDirection<T> {
    /// From the `srv` namespace to the `cli` namespace.
    pub srv_to_cli: T,
    /// From the `cli` namespace to the `srv` namespace.
    pub cli_to_srv: T,
}

impl<T: Clone> PerDirection<T> {
    /// The same value for both directions.
    pub fn both(value: T) -> Self {
        Self {
            srv_to_cli: value.clone(),
            cli_to_srv: value,
        }
    }
}

impl<T> PerDirection<T> {
    /// The two values, `srv` to `cli` first.
    pub fn into_array(self) -> [T; 2] {
        [self.srv_to_cli, self.cli_to_srv]
    }
}

/// Parses `X` (both directions) or `X,Y` (`srv` to `cli`, then `cli` to `srv`).
///
/// # Errors
///
/// Whatever `parse` says about the first bad part.
pub fn per_direction<T: Clone>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<PerDirection<T>, String> {
    match text.split_once(',') {
        None => Ok(PerDirection::both(parse(text)?)),
        Some((x, y)) => Ok(PerDirection {
            srv_to_cli: parse(x)?,
            cli_to_srv: parse(y)?,
        }),
    }
}

/// Splits a number from its unit; the unit comes back in lower case.
fn split(text: &str) -> Result<(f64, String), String> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number
        .parse()
        .map_err(|_| format!("'{text}' does not begin with a number"))?;
    Ok((number, unit.trim().to_ascii_lowercase()))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is checked to be in range just before"
)]
fn whole(text: &str, value: f64) -> Result<u64, String> {
    // 2^53: up to here every whole number has its own f64.
    if (0.0..9_007_199_254_740_992.0).contains(&value) {
        Ok(value.round() as u64)
    } else {
        Err(format!("'{text}' is too large"))
    }
}

/// Parses a time: `250us`, `12.5ms`, `1s`, `0`.
///
/// # Errors
///
/// A message for the user if it is no number, has no known unit, or exceeds an hour.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let nanos = match unit.as_str() {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" if number == 0.0 => 1.0,
        _ => return Err(format!("'{text}' needs a unit: ns, us, ms or s")),
    };
    if number * nanos > 3600e9 {
        return Err(format!("'{text}' is more than an hour"));
    }
    Ok(Duration::from_nanos(whole(text, number * nanos)?))
}

/// Parses a rate in bits per second: `30mbit`, `1gbit`, `2.5gbit`; `unlimited` is `None`.
///
/// # Errors
///
/// A message for the user if it is no number, has no known unit, or is outside 1 kbit/s to 1 Tbit/s.
pub fn rate(text: &str) -> Result<Option<u64>, String> {
    if text.trim() == "unlimited" {
        return Ok(None);
    }
    let (number, unit) = split(text)?;
    let factor = match unit.as_str() {
        "" | "bit" => 1.0,
        "k" | "kbit" => 1e3,
        "m" | "mbit" => 1e6,
        "g" | "gbit" => 1e9,
        _ => {
            return Err(format!(
                "'{text}' has an unknown unit: bit, kbit, mbit, gbit or 'unlimited'"
            ));
        }
    };
    let bits = whole(text, number * factor)?;
    if !(1_000..=1_000_000_000_000).contains(&bits) {
        return Err(format!("'{text}' is not between 1kbit and 1000gbit"));
    }
    Ok(Some(bits))
}

/// Parses a number of bytes: `65536`, `64KiB`, `1.5MiB`, `100kB`.
///
/// # Errors
///
/// A message for the user if it is no number or has no known unit.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor = match unit.as_str() {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1_048_576.0,
        _ => {
            return Err(format!(
                "'{text}' has an unknown unit: B, kB, KiB, MB or MiB"
            ));
        }
    };
    whole(text, number * factor)
}

/// Parses a probability: `0.1%` or `0.001`.
///
/// # Errors
///
/// A message for the user if it is no number or not between 0 and 1.
pub fn probability(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text)?;
    let value = match unit.as_str() {
        "" => number,
        "%" => number / 100.0,
        _ => return Err(format!("'{text}' is not a share like 0.1% or 0.001")),
    };
    if value > 1.0 {
        return Err(format!("'{text}' is more than all packets"));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_with_their_units() {
        assert_eq!(duration("12.5ms").unwrap(), Duration::from_micros(12_500));
        assert_eq!(duration("0").unwrap(), Duration::ZERO);
        assert_eq!(rate("1gbit").unwrap(), Some(1_000_000_000));
        assert_eq!(rate("unlimited").unwrap(), None);
        assert_eq!(bytes("64KiB").unwrap(), 65_536);
        assert_eq!(bytes("100kB").unwrap(), 100_000);
        assert!((probability("0.1%").unwrap() - 0.001).abs() < 1e-12);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "ms",
            "-1ms",
            "5",
            "1e9s",
            "9999999999999s",
            "1.2.3ms",
            "12 parsec",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in ["0", "10", "fast", "1e30gbit", "99999gbit", "-1mbit"] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert!(probability("101%").is_err());
        assert!(probability("1.5").is_err());
        assert!(bytes("10 furlongs").is_err());
        assert!(bytes("99999999999999999999").is_err());
    }

    #[test]
    fn one_value_or_one_for_each_direction() {
        let one = per_direction("10ms", duration).unwrap();
        assert_eq!(one.srv_to_cli, one.cli_to_srv);
        let two = per_direction("1gbit,30mbit", rate).unwrap();
        assert_eq!(two.into_array(), [Some(1_000_000_000), Some(30_000_000)]);
        assert!(per_direction("1ms,2ms,3ms", duration).is_err());
    }
}
