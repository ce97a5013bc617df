//! The CellServDB file: which cells there are, and their database servers.
//!
//! A line `>cell #comment` begins a cell (with further cells between the two, its linked cell);
//! lines `address #host name` that follow are its servers. An address in brackets is a clone, which
//! does not vote but answers queries. The form is that of OpenAFS's CellServDB(5).
//!
//! Besides the machine's file each user has their own (`own`), whose cells come first.

mod own;

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use afar_types::CellName;
use parking_lot::Mutex;

pub use own::{own_directory, own_path, teach};

/// UDP port of the volume location service.
// spec: afs-rpc#services-and-ports
pub const VL_PORT: u16 = 7003;

/// Hosts of a cell that are looked up at most: it has a handful of database servers.
const HOSTS_MAX: usize = 16;

/// Where the file is looked for if nothing else is said, in this order.
pub const DEFAULT_PATHS: [&str; 3] = [
    "/etc/openafs/CellServDB",
    "/usr/vice/etc/CellServDB",
    "/etc/afar/CellServDB",
];

/// A cell and its database servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellEntry {
    /// The cell.
    pub name: CellName,
    /// The comment on its line: the organisation, usually.
    pub comment: String,
    /// Its volume location servers.
    pub servers: Vec<SocketAddr>,
    /// Names of their hosts, to be looked up when no server answers at its address. The machine's file has
    /// comments in their place, which may be as old as the addresses: those of its cells have none.
    pub hosts: Vec<String>,
}

/// The cells of a CellServDB file, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellServDb {
    /// The file, for messages.
    pub path: PathBuf,
    /// The cells.
    pub cells: Vec<CellEntry>,
    /// Lines that could not be understood; they are skipped.
    pub bad_lines: Vec<BadLine>,
}

/// A line of a CellServDB that could not be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub number: usize,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.number, self.problem)
    }
}

impl CellServDb {
    /// Reads a file.
    ///
    /// # Errors
    /// The system's. Bad lines are no error; they are in [`bad_lines`](Self::bad_lines).
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = String::from_utf8_lossy(&fs::read(path)?).into_owned();
        Ok(Self::parse(path, &text))
    }

    /// Reads the user's own, and the first of the [default places](DEFAULT_PATHS) that has a file; `None`
    /// if there is neither. What the user's own says of a cell counts.
    ///
    /// # Errors
    /// The system's, when a file is there and cannot be read.
    pub fn read_default() -> io::Result<Option<Self>> {
        let own = Self::read_own()?;
        for path in DEFAULT_PATHS.map(Path::new) {
            match Self::read(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                found => return found.map(|found| Some(found.behind(own))),
            }
        }
        Ok(own)
    }

    /// These cells, behind those of the user's own.
    fn behind(mut self, own: Option<Self>) -> Self {
        for cell in &mut self.cells {
            cell.hosts.clear();
        }
        let Some(mut own) = own else {
            return self;
        };
        self.cells.retain(|cell| own.find(&cell.name).is_none());
        own.cells.append(&mut self.cells);
        self.cells = own.cells;
        let place = own.path.display();
        let bad = own.bad_lines.into_iter().map(|line| BadLine {
            problem: format!("{} (in {place})", line.problem),
            ..line
        });
        self.bad_lines.extend(bad);
        self
    }

    /// Understands the text of a file; `path` is for messages.
    #[must_use]
    pub fn parse(path: &Path, text: &str) -> Self {
        let mut this = Self {
            path: path.to_owned(),
            ..Self::default()
        };
        // After a bad cell line its servers belong to nobody, and not to the cell before.
        let mut orphaned = false;
        for (index, line) in text.lines().enumerate() {
            let (content, comment) = line.split_once('#').unwrap_or((line, ""));
            let (content, comment) = (content.trim(), comment.trim());
            if content.is_empty() {
                continue;
            }
            let result = if let Some(cell) = content.strip_prefix('>') {
                let result = this.begin(cell, comment);
                orphaned = result.is_err();
                result
            } else if orphaned {
                Ok(())
            } else {
                this.add_server(content, comment)
            };
            if let Err(problem) = result {
                this.bad_lines.push(BadLine {
                    number: index + 1,
                    problem,
                });
            }
        }
        this
    }

    /// The cell of this name.
    #[must_use]
    pub fn find(&self, name: &CellName) -> Option<&CellEntry> {
        self.cells.iter().find(|cell| cell.name == *name)
    }

    fn begin(&mut self, content: &str, comment: &str) -> Result<(), String> {
        let name = content.split_whitespace().next().unwrap_or_default();
        let name: CellName = name
            .parse()
            .map_err(|error: afar_types::CellNameError| error.to_string())?;
        if self.find(&name).is_some() {
            return Err(format!("cell {name} is listed twice; using the first"));
        }
        self.cells.push(CellEntry {
            name,
            comment: comment.to_owned(),
            servers: Vec::new(),
            hosts: Vec::new(),
        });
        Ok(())
    }

    fn add_server(&mut self, content: &str, comment: &str) -> Result<(), String> {
        let word = content.split_whitespace().next().unwrap_or_default();
        let plain = word
            .strip_prefix('[')
            .and_then(|word| word.strip_suffix(']'))
            .unwrap_or(word);
        let address: IpAddr = plain
            .parse()
            .map_err(|_| format!("{word:?} is neither \">cell\" nor an address"))?;
        let cell = self
            .cells
            .last_mut()
            .ok_or_else(|| format!("address {address} precedes the first \">cell\" line"))?;
        let server = SocketAddr::new(address, VL_PORT);
        if !cell.servers.contains(&server) {
            cell.servers.push(server);
        }
        let host = comment.split_whitespace().next().unwrap_or_default();
        let is_new = !cell.hosts.iter().any(|known| known == host);
        if is_new && cell.hosts.len() < HOSTS_MAX && is_host_name(host) {
            cell.hosts.push(host.to_owned());
        }
        Ok(())
    }
}

/// Whether resolvers may be asked for this, and do not take it for an address.
fn is_host_name(text: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let last = text.rsplit('.').next().unwrap_or_default();
    text.bytes().all(is_letter) && last.bytes().any(|b| b.is_ascii_alphabetic())
}

/// A CellServDB that is read again when its file has changed.
#[derive(Debug)]
pub(crate) struct Watched {
    /// Where it was said to be.
    named: Option<PathBuf>,
    state: Mutex<(Stamp, Option<Arc<CellServDb>>)>,
}

/// What tells whether files are others: of each its place, inode, length, and time of change in
/// nanoseconds.
type Stamp = Vec<(PathBuf, u64, u64, i64)>;

impl Watched {
    /// Reads a file, or the first of the [default places](DEFAULT_PATHS) that has one.
    ///
    /// # Errors
    /// The system's; a default place may have none.
    pub(crate) fn open(named: Option<&Path>) -> io::Result<Self> {
        let stamp = stamp(named);
        Ok(Self {
            named: named.map(Path::to_owned),
            state: Mutex::new((stamp, read(named)?.map(Arc::new))),
        })
    }

    /// What is never read: there are no cells in it.
    pub(crate) fn none() -> Self {
        Self {
            named: Some(PathBuf::new()),
            state: Mutex::default(),
        }
    }

    /// As the file is now. If it cannot be read any more, as it was.
    pub(crate) fn now(&self) -> Option<Arc<CellServDb>> {
        let mut state = self.state.lock();
        let stamp = stamp(self.named.as_deref());
        // While a file is replaced there may be none for a moment: what was read stays.
        if !stamp.is_empty() && stamp != state.0 {
            match read(self.named.as_deref()) {
                Ok(Some(database)) => {
                    for line in &database.bad_lines {
                        tracing::warn!("{}: {line}", database.path.display());
                    }
                    state.1 = Some(Arc::new(database));
                }
                Ok(None) => {}
                Err(error) => tracing::warn!("keeping the CellServDB as it was: {error}"),
            }
            // Even of one that cannot be read: it is tried once for each change, not for each request.
            state.0 = stamp;
        }
        state.1.clone()
    }
}

fn read(named: Option<&Path>) -> io::Result<Option<CellServDb>> {
    match named {
        Some(path) => CellServDb::read(path).map(Some),
        None => CellServDb::read_default(),
    }
}

fn stamp(named: Option<&Path>) -> Stamp {
    let stamp = |path: &Path| {
        let found = fs::metadata(path).ok()?;
        let changed = found.mtime() * 1_000_000_000 + found.mtime_nsec();
        Some((path.to_owned(), found.ino(), found.len(), changed))
    };
    match named {
        Some(path) => stamp(path).into_iter().collect(),
        None => {
            let own = own_path().filter(|path| own::is_own(path));
            let own = own.and_then(|path| stamp(&path));
            let system = DEFAULT_PATHS.iter().map(Path::new).find_map(stamp);
            own.into_iter().chain(system).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# a comment
>Example.ORG     #Example organisation
192.0.2.1        #db1.example.org
[192.0.2.2]      #a clone
192.0.2.1        #again

>other.example first.example #linked
10.0.0.1 #x
nonsense
>bad/cell
10.9.9.9
>empty.example
>example.org #again
10.8.8.8
";

    #[test]
    fn cells_and_servers_are_read() {
        let db = CellServDb::parse(Path::new("x"), TEXT);
        let names: Vec<_> = db.cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names, ["example.org", "other.example", "empty.example"]);
        assert_eq!(db.cells[0].comment, "Example organisation");
        let servers: Vec<_> = db.cells[0]
            .servers
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(servers, ["192.0.2.1:7003", "192.0.2.2:7003"]);
        assert_eq!(db.cells[1].servers.len(), 1);
        assert!(db.cells[2].servers.is_empty());
        assert_eq!(db.cells[0].hosts, ["db1.example.org", "a", "again"]);
    }

    #[test]
    fn bad_lines_are_named_by_number_and_their_servers_go_nowhere() {
        let db = CellServDb::parse(Path::new("x"), TEXT);
        let lines: Vec<_> = db.bad_lines.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "line 9: \"nonsense\" is neither \">cell\" nor an address",
                "line 10: cell name \"bad/cell\" contains '/'",
                "line 13: cell example.org is listed twice; using the first",
            ]
        );
        let early = CellServDb::parse(Path::new("x"), "10.0.0.1\n>a.b\n");
        assert!(early.bad_lines[0].to_string().starts_with("line 1: "));
    }

    #[test]
    fn the_users_own_cells_come_first() {
        let system = CellServDb::parse(Path::new("x"), TEXT);
        let text = ">mine.example\n192.0.2.9\n>example.org #moved\n192.0.2.8\nnonsense\n";
        let own = CellServDb::parse(Path::new("own"), text);
        let both = system.behind(Some(own));
        let names: Vec<_> = both.cells.iter().map(|cell| cell.name.as_str()).collect();
        let all = [
            "mine.example",
            "example.org",
            "other.example",
            "empty.example",
        ];
        assert_eq!(names, all);
        assert_eq!(both.cells[1].comment, "moved");
        assert_eq!(both.path, Path::new("x"));
        let last = both.bad_lines.last().unwrap().to_string();
        assert!(
            last.starts_with("line 5: ") && last.ends_with("(in own)"),
            "{last}"
        );
    }

    #[test]
    fn a_missing_file_is_an_error_if_named() {
        assert!(CellServDb::read(Path::new("/no/such/CellServDB")).is_err());
    }

    #[test]
    fn a_file_that_has_changed_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("CellServDB");
        let put = |text: &str| {
            fs::write(dir.path().join("new"), text).unwrap();
            fs::rename(dir.path().join("new"), &path).unwrap();
        };
        put(">a.org\n192.0.2.1\n");
        let watched = Watched::open(Some(&path)).unwrap();
        let cells = || {
            let now = watched.now().unwrap();
            let names = now.cells.iter().map(|cell| cell.name.to_string());
            names.collect::<Vec<_>>()
        };
        assert_eq!(cells(), ["a.org"]);
        put(">a.org\n192.0.2.1\n>b.org\n192.0.2.2\n");
        assert_eq!(cells(), ["a.org", "b.org"]);
        fs::remove_file(&path).unwrap();
        assert_eq!(cells(), ["a.org", "b.org"]);
        put(">c.org\n");
        assert_eq!(cells(), ["c.org"]);
        assert!(Watched::none().now().is_none());
    }
}
