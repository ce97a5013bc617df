//! What servers and cache managers have in common in the words that OpenAFS's tools ask for by GetXStats
//! (`src/fsint/afsint.xg`, `src/afs/afs_stats.h`).

use afar_telemetry::Distribution;

/// The operations that move data to a client, and from one.
pub const FETCHES: [&str; 2] = ["fetch_data", "fetch_data64"];
/// See [`FETCHES`].
pub const STORES: [&str; 2] = ["store_data", "store_data64"];
/// The operations of RXAFS in the order of the figures, by their names in [`crate::rxafs::OPERATIONS`].
// spec: afs-rpc#counters
pub const OPERATIONS: [&[&str]; 28] = [
    &FETCHES,
    &["fetch_acl"],
    &["fetch_status"],
    &STORES,
    &["store_acl", "old_store_acl"],
    &["store_status"],
    &["remove_file"],
    &["create_file"],
    &["rename"],
    &["symlink"],
    &["link"],
    &["make_dir"],
    &["remove_dir"],
    &["set_lock", "old_set_lock"],
    &["extend_lock", "old_extend_lock"],
    &["release_lock", "old_release_lock"],
    &["get_statistics", "get_statistics64"],
    &["give_up_call_backs", "give_up_all_call_backs"],
    &["get_volume_info"],
    &["get_volume_status"],
    &["set_volume_status"],
    &["get_root_volume"],
    &["check_token"],
    &["get_time"],
    &["n_get_volume_info"],
    &["bulk_status", "inline_bulk_status"],
    &["x_stats_version"],
    &["get_x_stats"],
];

/// The lower 32 bits: counters in old forms start over when they are full.
#[must_use]
pub fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default()
}

/// Seconds and microseconds, in the form with times of 32 bits.
fn time(micros: u64) -> [u32; 2] {
    [low(micros / 1_000_000), low(micros % 1_000_000)]
}

/// Calls and successes; the sum of the times of these, which are given in nanoseconds, that of the squares, the least and
/// the greatest.
#[must_use]
pub fn times(served: &Distribution, failed: u64) -> [u32; 10] {
    let mut words = [0; 10];
    let counts = [
        low(served.count().wrapping_add(failed)),
        low(served.count()),
    ];
    let spans = [
        time(served.sum() / 1000),
        // Tools make a deviation of the squares, for which they are near enough.
        time(served.squares(1_000_000)),
        time(served.min() / 1000),
        time(served.max() / 1000),
    ];
    let all = counts.into_iter().chain(spans.into_iter().flatten());
    for (word, value) in words.iter_mut().zip(all) {
        *word = value;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rxafs;

    #[test]
    fn operations_are_those_of_the_interface() {
        for name in OPERATIONS.iter().copied().flatten() {
            assert!(
                rxafs::OPERATIONS.iter().any(|row| row.name == *name),
                "{name}"
            );
        }
    }
}
