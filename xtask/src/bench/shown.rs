//! Numbers as the page shows them.

use super::stats::Stats;

/// Median and, if it is more than a point, the interval.
pub(super) fn stats(stats: &Stats, show: impl Fn(f64) -> String) -> String {
    let median = show(stats.median);
    let (least, most) = (show(stats.least), show(stats.most));
    if least == most {
        median
    } else {
        format!("{median} [{least}..{most}]")
    }
}

/// A figure with as many digits as mean something.
pub(super) fn figure(value: f64) -> String {
    if value >= 1000.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
