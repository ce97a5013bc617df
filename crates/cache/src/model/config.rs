//! Settings of a [`Cache`](crate::Cache).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use afar_types::CellName;

use crate::model::owner::Owners;
use crate::model::user::Users;

/// What the top directory is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Root {
    /// The list of the cells known, made up: a cell's directory is the root of its volume
    /// `root.cell`, and with a dot before its name that of the read-write one.
    #[default]
    Dynamic,
    /// The root of a volume: its cell and its name or number.
    Volume(CellName, String),
}

/// Settings of a [`Cache`](crate::Cache).
#[derive(Debug, Clone)]
pub struct CacheConfig {
    /// Where the cache is kept. It belongs to one process at a time.
    pub dir: PathBuf,
    /// Bytes of file data kept. Data not yet stored on a server counts, and is never dropped.
    pub bytes: u64,
    /// Files, directories and symlinks whose status is kept in memory, besides those in use.
    pub files: usize,
    /// Bytes of directories that are kept in memory.
    pub directories: usize,
    /// What the top directory is.
    pub root: Root,
    /// Bytes written to one file that wait to be stored; who writes more waits. From a sixteenth of
    /// it on they are stored while more is written, and do not wait for the file to be closed.
    pub dirty: u64,
    /// Bytes of a file that may still have to be stored when `close` returns. The program that closes a
    /// file then does not learn that it cannot be stored.
    pub store_behind: u64,
    /// Bytes read ahead of a sequential reader at most; of one slower than the network eight times as
    /// many, but no more than a quarter of the cache.
    pub read_ahead: u64,
    /// The identities of this machine's users to cells. Without it all users have the client's identity.
    pub users: Option<Arc<dyn Users>>,
    /// Which users of cells are users of this machine. Without it owners are shown by their cells' numbers.
    pub owners: Option<Arc<dyn Owners>>,
    /// A file server that was asked for nothing for so long is asked whether it is there. One that was killed and
    /// runs again has forgotten what it promised, and says so when it is asked; and one that we reach through a NAT
    /// which gave us another port since learns of that.
    pub probe: Duration,
    /// Whether a change is made by its server before the program that makes it goes on, and what was written is stored
    /// before `close` returns. Otherwise the cache makes changes itself where an afar server has leased it the files and
    /// directories, and sends them within moments.
    pub write_through: bool,
    /// Whether what is cached may be used when its promise has ended and no server can be reached.
    pub disconnected: bool,
}

impl CacheConfig {
    /// The fewest bytes that a cache works with.
    pub const BYTES_MIN: u64 = 64 << 20;

    /// 1 GiB of data, 100,000 files and 16 MiB of directories below this directory, the cells as the
    /// root, 256 MiB of one file written before they are stored, all of it when it is closed, 32 MiB read
    /// ahead, servers asked after a minute.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            bytes: 1 << 30,
            files: 100_000,
            directories: 16 << 20,
            root: Root::Dynamic,
            dirty: 256 << 20,
            store_behind: 0,
            read_ahead: 32 << 20,
            users: None,
            owners: None,
            probe: Duration::from_secs(20),
            write_through: true,
            disconnected: false,
        }
    }
}
