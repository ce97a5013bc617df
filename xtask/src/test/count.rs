//! Counting tests from what the test runners print.

/// How many tests ran, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// Tests run here that an ordinary run counts as skipped.
    pub(crate) deferred_run: u64,
}

impl Counts {
    /// Adds another count to this one.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.deferred_run += other.deferred_run;
    }

    /// A few words for a summary line; empty when nothing was counted.
    pub(crate) fn describe(self) -> String {
        let ran = self.passed + self.failed;
        if ran + self.skipped == 0 {
            return String::new();
        }
        let mut text = format!("{ran} tests");
        if self.failed > 0 {
            text.push_str(&format!(", {} failed", self.failed));
        }
        if self.skipped > 0 {
            text.push_str(&format!(", {} not run here", self.skipped));
        }
        text
    }
}

/// Counts the tests of a run by libtest (`test result:` lines) or nextest (the `Summary` line). What
/// nextest shows of a test that failed is indented, and has a line of libtest's that does not count.
pub(crate) fn from_output(text: &str) -> Counts {
    let mut counts = Counts::default();
    for line in text.lines() {
        let by_nextest = ["tests run: ", "test run: "]
            .iter()
            .find_map(|mark| line.split_once(mark))
            .map(|(_, result)| result);
        let Some(result) = line.strip_prefix("test result: ").or(by_nextest) else {
            continue;
        };
        let result = result
            .trim_start_matches("ok. ")
            .trim_start_matches("FAILED. ");
        for part in result.split([';', ',']) {
            let mut words = part.split_whitespace();
            let Some(number) = words.next().and_then(|word| word.parse::<u64>().ok()) else {
                continue;
            };
            match words.next() {
                Some("passed") => counts.passed += number,
                Some("failed" | "timed") => counts.failed += number,
                Some("ignored" | "skipped") => counts.skipped += number,
                _ => {}
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtest_lines_add_up() {
        let text = "test result: ok. 12 passed; 0 failed; 2 ignored; 0 measured; 1 filtered out; \
                    finished in 0.01s\n\
                    test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";
        let counts = from_output(text);
        assert_eq!((counts.passed, counts.failed, counts.skipped), (15, 1, 2));
    }

    #[test]
    fn nextest_summary_is_read() {
        let text = "     Summary [   4.2s] 120 tests run: 118 passed (1 slow), 2 failed, 5 skipped";
        let counts = from_output(text);
        assert_eq!((counts.passed, counts.failed, counts.skipped), (118, 2, 5));
    }

    #[test]
    fn a_test_that_failed_counts_once() {
        let text = "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured\n     \
                    Summary [   0.1s] 2 tests run: 1 passed, 1 failed, 0 skipped";
        let counts = from_output(text);
        assert_eq!((counts.passed, counts.failed, counts.skipped), (1, 1, 0));
    }

    #[test]
    fn a_single_test_is_read() {
        assert_eq!(
            from_output("Summary [0.1s] 1 test run: 1 passed, 0 skipped").passed,
            1
        );
    }

    #[test]
    fn other_text_counts_nothing() {
        assert_eq!(
            from_output("3 passed the post\nrunning 5 tests"),
            Counts::default()
        );
    }
}
