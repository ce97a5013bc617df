//! OpenAFS's own tools against the protection server and its files: `pts`, `pt_util` and
//! `prdb_check`. Skipped, saying so, where they are missing or no network namespace can be made.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use afar_dbserver::kv::{Database, Options};
use afar_dbserver::pr::prdb::Prdb;
use afar_dbserver::pr::{ProtectionConfig, ProtectionServer};
use afar_net::{Config, Endpoint};
use afar_rpc::{Identity, pr};
use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

fn installed(tool: &str) -> bool {
    let paths = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
    let found = paths.iter().any(|path| Path::new(path).join(tool).exists());
    if !found {
        skipped(&format!("{tool} is not installed"));
    }
    found
}

/// Runs this where nothing else is on port 7002: in a network namespace that has only loopback.
fn in_a_namespace(work: impl FnOnce() + Send + 'static) {
    let done = std::thread::spawn(|| {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            return skipped(&format!("no network namespace can be made: {error}"));
        }
        let mut up = Command::new("ip");
        match up.args(["link", "set", "lo", "up"]).status() {
            Ok(status) if status.success() => work(),
            other => skipped(&format!("loopback cannot be set up: {other:?}")),
        }
    });
    done.join().unwrap();
}

/// A protection server on the usual port, its callers taken for administrators.
struct Cell {
    dir: TempDir,
    server: ProtectionServer,
    _endpoint: Endpoint,
    /// Keeps serving in its threads.
    _runtime: tokio::runtime::Runtime,
}

impl Cell {
    fn start() -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("ThisCell"), "example.org\n").unwrap();
        let servers = ">example.org #a cell\n127.0.0.1 #localhost\n";
        std::fs::write(dir.path().join("CellServDB"), servers).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (server, endpoint) = runtime.block_on(async {
            let rows = dir.path().join("db");
            let database = Database::open(&rows, &Options::default()).unwrap();
            let config = ProtectionConfig::default();
            let server = ProtectionServer::open(database, config).await.unwrap();
            let address = "127.0.0.1:7002".parse().unwrap();
            let endpoint = Endpoint::bind(address, Config::default()).unwrap();
            let service = pr::Server::with_identity(server.clone(), Identity::Superuser);
            endpoint.serve(pr::SERVICE, pr::NAME, service);
            (server, endpoint)
        });
        Self {
            dir,
            server,
            _endpoint: endpoint,
            _runtime: runtime,
        }
    }

    /// What `pts` prints, errors after the output.
    fn pts(&self, args: &str) -> String {
        let output = Command::new("pts")
            .args(args.split_whitespace())
            .args(["-noauth", "-config"])
            .arg(self.dir.path())
            .output()
            .unwrap();
        text(&output)
    }
}

fn text(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    // Lines of errors end with both.
    format!("{out}{}", String::from_utf8_lossy(&output.stderr)).replace('\r', "")
}

#[test]
fn pts_finds_what_it_expects() {
    if !installed("pts") {
        return;
    }
    in_a_namespace(|| {
        let cell = Cell::start();
        for (command, output) in SESSION {
            assert_eq!(cell.pts(command), *output, "pts {command}");
        }
    });
}

/// What a session with a ptserver of OpenAFS 1.8.9 looks like, `-localauth`.
const SESSION: &[(&str, &str)] = &[
    ("listmax", "Max user id is 0 and max group id is -205.\n"),
    ("createuser alice", "User alice has id 1\n"),
    (
        "createuser -name bob carol -id 20 30",
        "User bob has id 20\nUser carol has id 30\n",
    ),
    (
        "createuser alice",
        "pts: Entry for name already exists ; unable to create user alice \n",
    ),
    (
        "creategroup alice:friends -owner alice",
        "group alice:friends has id -206\n",
    ),
    (
        "creategroup bob:x -owner alice",
        "pts: Badly formed name (group prefix doesn't match owner?) ; unable to create group \
         bob:x with id 0 owned by 'alice'\n",
    ),
    ("creategroup staff -id -1000", "group staff has id -1000\n"),
    ("adduser -user bob carol -group alice:friends", ""),
    ("adduser -user alice:friends -group staff", ""),
    (
        "adduser bob alice:friends",
        "pts: Entry for id already exists ; unable to add user bob to group alice:friends \n",
    ),
    (
        "membership alice:friends bob staff",
        "Members of alice:friends (id: -206) are:\n  bob\n  carol\n\
         Groups bob (id: 20) is a member of:\n  alice:friends\n\
         Members of staff (id: -1000) are:\n  alice:friends\n",
    ),
    (
        "membership bob -expandgroups",
        "Expanded Groups bob (id: 20) is a member of:\n  alice:friends\n  staff\n",
    ),
    (
        "membership alice:friends -supergroups",
        "Members of alice:friends (id: -206) are:\n  bob\n  carol\n\
         Groups alice:friends (id: -206) is a member of:\n  staff\n",
    ),
    (
        "examine alice staff",
        "Name: alice, id: 1, owner: system:administrators, creator: system:administrators,\n  \
         membership: 0, flags: S----, group quota: 20.\n\
         Name: staff, id: -1000, owner: system:administrators, creator: \
         system:administrators,\n  membership: 1, flags: S-M--, group quota: 0.\n",
    ),
    ("setfields staff -access SOmar -groupquota 5", ""),
    (
        "examine -1000",
        "Name: staff, id: -1000, owner: system:administrators, creator: \
         system:administrators,\n  membership: 1, flags: SOmar, group quota: 5.\n",
    ),
    ("chown alice:friends bob", ""),
    ("rename bob:friends bob:pals", ""),
    (
        "listowned bob",
        "Groups owned by bob (id: 20) are:\n  bob:pals\n",
    ),
    ("delete bob", ""),
    ("listowned 0", "Orphaned groups are:\n  bob:pals\n"),
    ("setmax -user 500 -group -2000", ""),
    ("listmax", "Max user id is 500 and max group id is -2000.\n"),
    ("createuser dave", "User dave has id 501\n"),
    ("removeuser carol bob:pals", ""),
    (
        "removeuser carol bob:pals",
        "pts: User or group doesn't exist ; unable to remove user carol from group bob:pals \n",
    ),
    (
        "examine nobody-here",
        "pts: User or group doesn't exist so couldn't look up id for nobody-here\n",
    ),
    (
        "listentries -users",
        "Name                          ID  Owner Creator\n\
         anonymous                  32766   -204    -204 \n\
         alice                          1   -204    -204 \n\
         carol                         30   -204    -204 \n\
         dave                         501   -204    -204 \n",
    ),
];

#[test]
fn prdb_check_finds_no_fault_in_a_file_of_ours() {
    if !installed("prdb_check") {
        return;
    }
    in_a_namespace(|| {
        let cell = Cell::start();
        if !installed("pts") {
            return;
        }
        for n in 1..=60 {
            cell.pts(&format!("createuser u{n}"));
        }
        cell.pts("creategroup u1:a u1:b u1:c u1:d -owner u1");
        let users = Vec::from_iter((1..=60).map(|n| format!("u{n}"))).join(" ");
        cell.pts(&format!("adduser -user {users} -group u1:a u1:b"));
        cell.pts("adduser -user u1:a -group u1:b u1:c u1:d system:administrators");
        cell.pts("delete u7 u1");
        cell.pts("creategroup system:authuser@other.org");
        cell.pts("createuser eve@other.org");
        let file = cell.server.export().unwrap().encode(1_700_000_000, 1);
        let path = cell.dir.path().join("prdb.DB0");
        std::fs::write(&path, file.unwrap()).unwrap();
        let check = Command::new("prdb_check")
            .args(["-entries", "-verbose", "-database"])
            .arg(&path)
            .output()
            .unwrap();
        let said = text(&check);
        assert!(check.status.success(), "{said}");
        for line in said.lines() {
            assert!(!is_complaint(line), "{line}\nin\n{said}");
        }
    });
}

fn is_complaint(line: &str) -> bool {
    [
        "error",
        "warning",
        "bad ",
        "inconsist",
        "not in",
        "wrong",
        "should",
        "differ",
    ]
    .iter()
    .any(|word| line.to_lowercase().contains(word))
}

#[test]
fn a_file_of_pt_util_is_read() {
    if !installed("pt_util") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("prdb.DB0");
    let mut entries = String::new();
    for n in 1..=50 {
        entries.push_str(&format!("u{n} 128/20 {n} -204 -204\n"));
    }
    entries.push_str("u1:a 2/0 -206 1 1\n");
    for n in 1..=50 {
        entries.push_str(&format!("   u{n} {n}\n"));
    }
    entries.push_str("u2:b 2/0 -207 2 2\n   u3 3\n");
    let mut util = Command::new("pt_util")
        .args(["-w", "-p"])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    util.stdin
        .take()
        .unwrap()
        .write_all(entries.as_bytes())
        .unwrap();
    let said = text(&util.wait_with_output().unwrap());
    let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{error}: {said}"));
    let prdb = Prdb::decode(&file).unwrap();
    assert_eq!(prdb.entries.len(), 6 + 52, "{said}");
    let group = |id| {
        let found = prdb.entries.iter().find(|entry| entry.entry.id.0 == id);
        let found = found.unwrap();
        (found.entry.name.as_slice(), found.elements.len())
    };
    assert_eq!(group(-206), (&b"u1:a"[..], 50));
    assert_eq!(group(-207), (&b"u2:b"[..], 1));
}
