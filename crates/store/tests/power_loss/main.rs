//! Power lost at any moment, and disks that fail: what the store acknowledged is there, and its
//! check is clean.
//!
//! The test's own definitions of the C library's file calls ([`interpose`]) record what LMDB and
//! the store do to a directory ([`recorder`]). From the log, [`power_cut`] makes what a disk may
//! hold after power was lost at a point: synced writes, and any part of the others. The shipped code
//! runs unchanged, and opens the result. `harness` shows that this finds what it should.
//!
//! `AFAR_TEST_CRASH_POINTS`, `AFAR_TEST_KILLS` and `AFAR_TEST_FAULTS` set how often power is lost, a
//! process killed and a disk made to fail; `AFAR_TEST_SEED` begins with another seed.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

mod clients;
mod content;
mod crash;
mod event;
mod failing;
mod fault;
mod harness;
mod interpose;
mod killed;
mod model;
mod power_cut;
mod recorder;
mod relaxed;
mod respawn;
mod session;
mod subject;
mod upgrade;

use std::env;
use std::str::FromStr;

/// A number from the environment, for long runs and to repeat one.
fn setting<T: FromStr>(name: &str, default: T) -> T {
    match env::var(name) {
        Ok(text) => match text.parse() {
            Ok(number) => number,
            Err(_) => panic!("{name} is a number, not {text:?}"),
        },
        Err(_) => default,
    }
}
