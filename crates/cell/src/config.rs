//! Settings of a [`Client`](crate::Client).

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::cellservdb::CellEntry;
use crate::credentials::Credentials;
use crate::patience::Patience;
use crate::preferences::ServerKind;
use crate::sysname::default_sysnames;

/// Settings of a [`Client`](crate::Client).
#[derive(Debug, Clone)]
pub struct Config {
    /// The CellServDB to read; without it the first of the
    /// [default places](crate::cellservdb::DEFAULT_PATHS) that has one.
    pub cellservdb: Option<PathBuf>,
    /// Cells known besides, which come before those of the same names in the CellServDB.
    pub cells: Vec<CellEntry>,
    /// Whether these are all the cells there are, and neither CellServDB nor DNS is asked: for an
    /// endpoint that reaches no others.
    pub only_cells: bool,
    /// Volume location servers to ask for every cell, whatever CellServDB and DNS say.
    pub vl_servers: Vec<SocketAddr>,
    /// Whether cells that are in no CellServDB are looked up in DNS.
    pub dns: bool,
    /// What `@sys` stands for, the best first.
    pub sysnames: Vec<String>,
    /// UDP port of file servers.
    pub file_port: u16,
    /// Fetch calls a file server gets at a time; without it, as many as fill the path to it.
    pub calls: Option<usize>,
    /// Calls at a time to make ready for at a file server's first answer. Connections take a round
    /// trip each to make, so one who means to fetch much begins early.
    pub lanes: usize,
    /// Bytes fetched by one call; without it, as suits the path.
    pub piece: Option<u64>,
    /// Bytes from which a piece of a file goes out of band, where its server offers that; without it, or if
    /// it is 0, none does. It is what the client [begins](crate::Client::set_oob_threshold) with.
    pub oob_threshold: Option<u64>,
    /// The client's identity to file servers. Location servers are asked anonymously, unless they
    /// refuse that. Without it the client is anonymous.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// Ranks of servers, the less the better, instead of those by the way to them.
    pub ranks: Vec<(ServerKind, IpAddr, u16)>,
    /// After this time the client looks up again, in the background, which servers a cell has, where a
    /// volume is, and which of them is the nearest.
    pub fresh: Duration,
    /// How long a busy server or volume is asked again before that is an error.
    pub busy_limit: Duration,
    /// How long a request waits for servers that do not answer before that is an error.
    pub patience: Patience,
}

impl Default for Config {
    /// CellServDB and DNS, anonymous, port 7000, a minute of patience with busy servers, none with silent ones.
    fn default() -> Self {
        Self {
            cellservdb: None,
            cells: Vec::new(),
            only_cells: false,
            vl_servers: Vec::new(),
            dns: true,
            sysnames: default_sysnames(),
            file_port: 7000,
            calls: None,
            lanes: 4,
            piece: None,
            oob_threshold: Some(1 << 20),
            credentials: None,
            ranks: Vec::new(),
            fresh: Duration::from_secs(600),
            busy_limit: Duration::from_secs(60),
            patience: Patience::NONE,
        }
    }
}
