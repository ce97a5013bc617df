//! Figures as people read them.

use std::fmt;

/// Bytes a second.
pub(super) struct PerSecond(pub(super) f64);

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            rate if rate >= 99.5e6 => write!(f, "{:.0} MB/s", rate / 1e6),
            rate if rate >= 0.995e6 => write!(f, "{:.1} MB/s", rate / 1e6),
            rate => write!(f, "{:.0} KB/s", rate / 1e3),
        }
    }
}

/// Seconds.
pub(super) struct Time(pub(super) f64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            time if time >= 10.0 => write!(f, "{time:.0} s"),
            time if time >= 1.0 => write!(f, "{time:.1} s"),
            time if time >= 0.0995 => write!(f, "{:.0} ms", time * 1e3),
            time if time >= 0.000_95 => write!(f, "{:.1} ms", time * 1e3),
            time => write!(f, "{:.2} ms", time * 1e3),
        }
    }
}

/// A share of 1.
pub(super) struct Percent(pub(super) f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.0 * 100.0)
    }
}

/// Bytes.
pub(super) struct Size(pub(super) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            size if size >= 10 << 30 => write!(f, "{} GiB", size >> 30),
            size if size >= 1 << 20 => write!(f, "{} MiB", size >> 20),
            size => write!(f, "{} KiB", size >> 10),
        }
    }
}

/// How many times as much, for a gain.
pub(super) struct Times(pub(super) f64);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            times if times >= 10.0 => write!(f, "{times:.0} times"),
            times => write!(f, "{times:.1} times"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_two_or_three_digits() {
        let rates = [118.4e6, 3.624e6, 197_000.0].map(|rate| PerSecond(rate).to_string());
        assert_eq!(rates, ["118 MB/s", "3.6 MB/s", "197 KB/s"]);
        let times = [600.0, 1.25, 0.23, 0.0125, 0.000_21].map(|time| Time(time).to_string());
        assert_eq!(times, ["600 s", "1.2 s", "230 ms", "12.5 ms", "0.21 ms"]);
        assert_eq!(Percent(0.0125).to_string(), "1.2 %");
        let sizes = [20 << 30, 8 << 20, 212_992].map(|size| Size(size).to_string());
        assert_eq!(sizes, ["20 GiB", "8 MiB", "208 KiB"]);
        assert_eq!(Times(6.04).to_string(), "6.0 times");
    }
}
