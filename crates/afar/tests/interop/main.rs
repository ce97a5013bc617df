//! OpenAFS's own programs against afar's servers, and both kinds of servers in one cell.
//!
//! - `net`, `place`: a network of namespaces, and what programs see in one of them
//! - `openafs`, `server`, `mount`: a cell of OpenAFS; a server of afar; OpenAFS's client on a mount
//! - `content`: volumes to begin with, as dumps
//! - `script`: the same commands in both kinds of cells, row by row, and what they print
//! - `requests`: the same for requests to the file server that no program of OpenAFS makes
//! - `client`: a mounted afar cell under work, and two that look at each other
//! - `debug`: what OpenAFS's tools show of a mount of afar
//! - `joining`: an afar server in an OpenAFS cell, volumes that move between them
//! - `kerberos`: the same with keys and tickets: a realm's users on both kinds of servers
//! - `kafs`: Linux's own client, in an emulated machine, which `AFAR_TEST_KAFS` names
//!
//! Needs root, OpenAFS's programs, and in `AFAR_TEST_XTASK` the path of the xtask program, which
//! `cargo xtask test --only interop` sets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(
    clippy::print_stderr,
    reason = "what helps to understand a failure is shown"
)]

mod client;
mod content;
mod debug;
mod joining;
mod kafs;
mod kerberos;
mod mount;
mod net;
mod openafs;
mod place;
mod requests;
mod script;
mod server;
