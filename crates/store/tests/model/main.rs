//! The store against a model in memory: random operations, the same on both, and the same comes
//! out of both.
//!
//! `AFAR_TEST_MODEL_OPS` sets how many operations are tried, `AFAR_TEST_SEED` with which seed to
//! begin. A seed is good for one partition and [`STEPS`] operations; what fails tells how to repeat
//! it.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

mod choose;
mod compare;
mod data;
mod driver;
mod failure;
mod model;
mod parallel;
mod step;
mod transfer_step;
mod tree;
mod volume;
mod volume_step;

use std::env;

use crate::driver::Driver;

/// Operations on one partition.
const STEPS: u64 = 10_000;
/// Operations if the environment does not say.
const OPERATIONS: u64 = 150_000;

/// A number from the environment, for long runs and to repeat one.
fn setting(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Ok(text) => match text.parse() {
            Ok(number) => number,
            Err(_) => panic!("{name} is a number, not {text:?}"),
        },
        Err(_) => default,
    }
}

#[test]
fn random_operations_agree_with_the_model() {
    let mut left = setting("AFAR_TEST_MODEL_OPS", OPERATIONS);
    let mut seed = setting("AFAR_TEST_SEED", 1);
    let (all, mut changes) = (left, 0);
    while left > 0 {
        let steps = left.min(STEPS);
        let mut driver = Driver::new(seed);
        driver.run(steps);
        driver.finish();
        left -= steps;
        seed += 1;
        changes += driver.changes;
    }
    // Else it compares errors only.
    assert!(
        changes * 3 > all,
        "of {all} operations, {changes} changed something"
    );
}
