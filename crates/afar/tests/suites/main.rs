//! `afar vos`, `afar pts` and `afar bos` beside OpenAFS's programs of these names.
//!
//! Two cells are alike. In one, OpenAFS's program does all that a list of commands says, in the
//! other afar's; what they print to either stream and their exit codes must be the same but for
//! dates, for what a row says, and for what is in [`differences`], with the reason.
//!
//! - `side`: a cell and the programs that are run in it
//! - `compare`: what differs
//! - `ids`: which volume in the one cell is which in the other
//! - `usage`, `servers`, `small`: rows of commands
//! - from the tests of the servers: networks, places, servers, their rows of commands
//!
//! Needs root, OpenAFS's programs, and in `AFAR_TEST_XTASK` the path of the xtask program, which
//! `cargo xtask test --only interop` sets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(
    clippy::print_stderr,
    reason = "what helps to understand a failure is shown"
)]

mod compare;
#[path = "../interop/content.rs"]
mod content;
mod differences;
mod ids;
#[path = "../interop/script/mask.rs"]
mod mask;
#[path = "../interop/net.rs"]
#[expect(dead_code, reason = "the tests of the servers use the rest")]
mod net;
#[path = "../interop/openafs.rs"]
#[expect(dead_code, reason = "the tests of the servers use the rest")]
mod openafs;
#[path = "../interop/place.rs"]
#[expect(dead_code, reason = "the tests of the servers use the rest")]
mod place;
#[path = "../interop/script/pts.rs"]
mod pts;
#[path = "../interop/server.rs"]
#[expect(dead_code, reason = "the tests of the servers use the rest")]
mod server;
mod servers;
mod side;
mod small;
mod usage;
#[path = "../interop/script/vos.rs"]
mod vos;

use crate::compare::compare;
use crate::mask::Mask;
use crate::net::Net;
use crate::openafs::OpenAfs;
use crate::server::Server;
use crate::side::{Side, Suites};

/// A command, and what in its output says nothing.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    line: &'static str,
    /// Without the options that all others get.
    bare: bool,
    masks: Vec<Mask>,
}

/// A command: words between blanks, those with blanks in single quotes.
fn row(line: &'static str) -> Row {
    Row {
        line,
        bare: false,
        masks: vec![Mask::Dates],
    }
}

/// A command that gets no more options than it has.
fn bare(line: &'static str) -> Row {
    Row {
        bare: true,
        ..row(line)
    }
}

impl Row {
    fn mask(mut self, mask: Mask) -> Self {
        self.masks.push(mask);
        self
    }
}

/// Two servers and a client.
fn network() -> Net {
    Net::new(&[
        ("srv", "10.97.0.1"),
        ("cli", "10.97.0.2"),
        ("srv2", "10.97.0.3"),
    ])
}

/// An afar cell: all roles on one server, files and volumes on the other.
fn afar(net: &Net) -> [Server; 2] {
    let database = net.address("srv");
    let second = format!(
        "roles = [\"file\", \"vol\", \"bos\"]\ninsecure_noauth = true\n\
         location.servers = [{database:?}]\nprotection.servers = [{database:?}]"
    );
    [
        Server::start(net, "srv", "insecure_noauth = true"),
        Server::start(net, "srv2", &second),
    ]
}

#[test]
#[ignore = "needs OpenAFS's programs"]
fn the_same_is_printed_of_afar_servers() {
    let nets = [network(), network()];
    let cells = [afar(&nets[0]), afar(&nets[1])];
    let rows = [
        usage::rows(),
        vos::rows(),
        vos::more_rows(),
        servers::rows(),
        pts::rows(),
        small::overseer(),
    ]
    .concat();
    assert!(rows.len() >= 60, "{} rows", rows.len());
    let [theirs, ours] = &nets;
    compare(
        &rows,
        Side::new(theirs, Suites::OpenAfs),
        Side::new(ours, Suites::Afar),
        differences::AFAR_SERVERS,
    );
    for server in cells.into_iter().flatten() {
        server.stop();
    }
}

#[test]
#[ignore = "needs OpenAFS's servers"]
fn the_same_is_printed_of_openafs_servers() {
    let nets = [network(), network()];
    let [theirs, ours] = &nets;
    let _cells = [
        OpenAfs::start(theirs, "srv", true),
        OpenAfs::start(ours, "srv", true),
    ];
    compare(
        &small::rows(),
        Side::new(theirs, Suites::OpenAfs),
        Side::new(ours, Suites::Afar),
        differences::OPENAFS_SERVERS,
    );
}
