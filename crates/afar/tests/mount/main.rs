//! `afar mount` as its users see it: a cell of `afar up`, mounted once or twice on this machine.
//!
//! Without /dev/fuse, or without the right to mount, each test says so and does nothing.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]
#![expect(
    clippy::print_stderr,
    reason = "what is left out, and what helps to understand a failure, is shown"
)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "made-up content may wrap, and files of tests are small"
)]

mod cache;
mod coherence;
mod commands;
mod crash;
mod eyes;
mod files;
mod handover;
mod mapping;
mod model;
mod moves;
mod names;
mod nearby;
mod owners;
mod posix;
mod random;
mod site;
mod together;
mod users;
mod workloads;
