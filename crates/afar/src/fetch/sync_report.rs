//! What `afar sync` prints at its end: totals.

use std::fmt::Write as _;

use afar_cell::Client;
use afar_transfer::Totals;
use indicatif::HumanBytes;
use serde::Serialize;

use super::Failures;
use super::report::Traffic;

/// A whole run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Nothing was changed: this is what would be.
    dry_run: bool,
    /// Files copied.
    files: u64,
    /// Directories made.
    directories: u64,
    symlinks: u64,
    /// Files of which only mode or time was set.
    attributes: u64,
    /// Files and symlinks that were the same.
    unchanged: u64,
    /// Names left alone (--exclude).
    excluded: u64,
    deleted: u64,
    failed: u64,
    bytes: u64,
    /// Bytes of these that a mount of this machine had in its cache.
    cached: u64,
    /// Bytes that an interrupted run had left, and that were not copied again.
    kept: u64,
    /// From when the paths are known to the last change.
    seconds: f64,
    /// From the start of the first file to the end of the last.
    transfer_seconds: f64,
    /// Bytes a second, by `transfer_seconds`.
    rate: f64,
    /// Calls that fetched or stored data.
    calls: u64,
    /// Files restarted, as they had changed.
    restarts: u64,
    #[serde(flatten)]
    traffic: Traffic,
}

impl Report {
    pub(super) async fn new(
        dry_run: bool,
        client: &Client,
        totals: &Totals,
        failures: &Failures,
    ) -> Self {
        Self {
            dry_run,
            files: totals.files,
            directories: totals.directories,
            symlinks: totals.symlinks,
            attributes: totals.attributes,
            unchanged: totals.unchanged,
            excluded: totals.skipped,
            deleted: totals.deleted,
            failed: failures.count,
            bytes: totals.bytes,
            cached: totals.cached,
            kept: totals.kept,
            seconds: totals.whole.as_secs_f64(),
            transfer_seconds: totals.transfer.as_secs_f64(),
            rate: totals.rate(),
            calls: totals.calls,
            restarts: totals.restarts,
            traffic: Traffic::of(client).await,
        }
    }
}

/// The totals in one line, as people read them.
pub(super) fn summary(dry_run: bool, totals: &Totals, failed: u64) -> String {
    let would = if dry_run { "would have " } else { "" };
    let bytes = HumanBytes(totals.bytes);
    let mut text = format!("{would}copied {} ({bytes}", totals.files + totals.symlinks);
    // Writing to a string does not fail.
    if !dry_run && totals.bytes > 0 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a figure to look at"
        )]
        let rate = HumanBytes(totals.rate() as u64);
        let _written = write!(text, ", {rate}/s");
    }
    text.push(')');
    if totals.kept > 0 {
        let kept = HumanBytes(totals.kept);
        let _written = write!(text, ", resumed after {kept}");
    }
    let _written = write!(text, ", unchanged {}", totals.unchanged);
    for (what, count) in [
        ("attributes set", totals.attributes),
        ("directories made", totals.directories),
        ("deleted", totals.deleted),
        ("excluded", totals.skipped),
        ("failed", failed),
    ] {
        if count > 0 {
            let _written = write!(text, ", {what} {count}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_says_what_was_done() {
        let totals = Totals {
            files: 2,
            symlinks: 1,
            bytes: 4 << 20,
            transfer: Duration::from_secs(2),
            unchanged: 5,
            ..Totals::default()
        };
        let text = "copied 3 (4.00 MiB, 2.00 MiB/s), unchanged 5";
        assert_eq!(summary(false, &totals, 0), text);
        let totals = Totals {
            kept: 1 << 20,
            deleted: 7,
            ..totals
        };
        let text = "would have copied 3 (4.00 MiB), resumed after 1.00 MiB, unchanged 5, deleted 7, \
                    failed 1";
        assert_eq!(summary(true, &totals, 1), text);
    }
}
