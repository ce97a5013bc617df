//! What a file server tells `xstat`: the words of its collections, by their places.

/// Words of the summary that the collection of full figures begins with.
const SUMMARY: usize = 98;
/// Words that both counts of an operation take, calls and successes, before its four times: their sum, that of their
/// squares, the least and the greatest.
const COUNTS: usize = 2;
const TIMES: usize = 4;
/// Operations of the file server in the order of their figures (OpenAFS's `viced/fs_stats.h`).
// spec: afs-rpc#counters
pub(super) const OPERATIONS: [&str; 28] = [
    "fetch_data",
    "fetch_acl",
    "fetch_status",
    "store_data",
    "store_acl",
    "store_status",
    "remove_file",
    "create_file",
    "rename",
    "symlink",
    "link",
    "make_dir",
    "remove_dir",
    "set_lock",
    "extend_lock",
    "release_lock",
    "get_statistics",
    "give_up_call_backs",
    "get_volume_info",
    "get_volume_status",
    "set_volume_status",
    "get_root_volume",
    "check_token",
    "get_time",
    "n_get_volume_info",
    "bulk_status",
    "x_stats_version",
    "get_x_stats",
];
/// Words of a transfer after those of an operation: KiB in all, and eleven by size.
const SIZES: usize = 12;

/// The figures of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) name: &'static str,
    pub(super) calls: u64,
    pub(super) errors: u64,
    /// Time of those that succeeded, in microseconds.
    pub(super) micros: u64,
}

/// Collection 2, as far as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Full {
    /// When the server started, in seconds since 1970.
    pub(super) started: u64,
    pub(super) operations: Vec<Operation>,
    pub(super) fetched_kib: u64,
    pub(super) stored_kib: u64,
    /// Packets received and sent, and data that was sent again.
    pub(super) packets: [u64; 3],
    pub(super) hosts: u64,
}

/// A word as the unsigned number that it counts in.
pub(super) fn word(words: &[i32], place: usize) -> Option<u64> {
    words.get(place).map(|word| u64::from(word.cast_unsigned()))
}

impl Full {
    /// The figures in the words of collection 2; `None` if there are too few.
    ///
    /// A server sends its memory, so a time has two words (seconds, microseconds) or four, each number with an empty
    /// half before it or behind it.
    // spec: afs-rpc#counters
    pub(super) fn parse(words: &[i32]) -> Option<Self> {
        let length = |half: usize| {
            let times = 1 + TIMES * (OPERATIONS.len() + 2);
            SUMMARY + 2 * half * times + COUNTS * (OPERATIONS.len() + 2) + 2 * SIZES
        };
        // How many words a number of a time has.
        let half = if words.len() < length(2) { 1 } else { 2 };
        let at = |place| word(words, place);
        let number = |place| {
            (place..place + half)
                .map(at)
                .try_fold(0, |sum, half| Some(sum + half?))
        };
        let width = COUNTS + TIMES * 2 * half;
        let first = SUMMARY + 2 * half;
        let operation = |(name, place)| {
            let (calls, served) = (at(place)?, at(place + 1)?);
            let sum = place + COUNTS;
            Some(Operation {
                name,
                calls,
                errors: calls.saturating_sub(served),
                micros: number(sum)? * 1_000_000 + number(sum + half)?,
            })
        };
        let operations = OPERATIONS.into_iter().zip((first..).step_by(width));
        let fetches = first + OPERATIONS.len() * width;
        let stores = fetches + width + SIZES;
        Some(Self {
            started: number(SUMMARY)?,
            operations: operations.map(operation).collect::<Option<_>>()?,
            fetched_kib: at(fetches + width)?,
            stored_kib: at(stores + width)?,
            packets: [at(28)?, at(35)?, at(43)?],
            hosts: at(58)?,
        })
    }
}

/// Names of what collection 3 counts, and their places.
pub(super) const CALLBACKS: [(&str, usize); 6] = [
    ("given_up", 1),
    ("broken", 2),
    ("made", 3),
    ("evicted", 4),
    ("expired", 9),
    ("break_calls", 10),
];
/// Where collection 3 has the promises that stand.
pub(super) const STANDING: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_its_place() {
        let words: Vec<i32> = (0..424).collect();
        let full = Full::parse(&words).unwrap();
        assert_eq!((full.started, full.hosts), (98, 58));
        assert_eq!(full.packets, [28, 35, 43]);
        let last = full.operations.last().unwrap();
        let place = 100 + 27 * 10;
        assert_eq!((last.name, last.calls), ("get_x_stats", place));
        assert_eq!(last.micros, (place + 2) * 1_000_000 + place + 3);
        assert_eq!(last.errors, 0);
        assert_eq!((full.fetched_kib, full.stored_kib), (390, 412));
    }

    #[test]
    fn times_of_servers_with_words_of_64_bits_are_found() {
        let mut words = vec![0; 666];
        words[98] = 1_700_000_000;
        // The second operation: two calls, one of which failed; 3 s and 5 µs.
        let place = 98 + 4 + 18;
        words[place..place + 5].copy_from_slice(&[2, 1, 3, 0, 5]);
        let fetches = 98 + 4 + 28 * 18;
        (words[fetches + 18], words[fetches + 30 + 18]) = (77, 88);
        let full = Full::parse(&words).unwrap();
        assert_eq!(full.started, 1_700_000_000);
        let second = full.operations[1];
        assert_eq!(
            (second.calls, second.errors, second.micros),
            (2, 1, 3_000_005)
        );
        assert_eq!((full.fetched_kib, full.stored_kib), (77, 88));
        // The other order of halves.
        (words[98], words[99]) = (0, 1_700_000_000);
        assert_eq!(Full::parse(&words).unwrap().started, 1_700_000_000);
    }

    #[test]
    fn too_few_words_are_no_figures_and_large_ones_are_not_negative() {
        assert_eq!(Full::parse(&[]), None);
        assert_eq!(Full::parse(&[7; 200]), None);
        let full = Full::parse(&[-1; 700]).unwrap();
        assert_eq!(full.operations[0].calls, u64::from(u32::MAX));
    }
}
