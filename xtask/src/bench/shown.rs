//! Numbers as the page shows them.

use super::sample::Spread;

/// Median and, if they differ from it, least and most.
pub(super) fn spread(spread: &Spread, show: impl Fn(f64) -> String) -> String {
    let median = show(spread.median);
    let (least, most) = (show(spread.least), show(spread.most));
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
