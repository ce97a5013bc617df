//! `afar pts` beside OpenAFS's `pts`, both with a protection server of ours. Skipped, saying so,
//! where `pts` is missing or no network namespace can be made.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use afar_dbserver::kv::{Database, Options};
use afar_dbserver::pr::{ProtectionConfig, ProtectionServer};
use afar_net::{Config, Endpoint};
use afar_rpc::{Identity, pr};
use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn skipped(why: &str) {
    eprintln!("skipped: {why}");
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
        let endpoint = runtime.block_on(async {
            let rows = dir.path().join("db");
            let database = Database::open(&rows, &Options::default()).unwrap();
            let config = ProtectionConfig::default();
            let server = ProtectionServer::open(database, config).await.unwrap();
            let address = "127.0.0.1:7002".parse().unwrap();
            // Another test may have the port for a while.
            let mut tries = 0..600;
            let endpoint = loop {
                match Endpoint::bind(address, Config::default()) {
                    Err(error)
                        if error.kind() == ErrorKind::AddrInUse && tries.next().is_some() =>
                    {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                    bound => break bound.unwrap(),
                }
            };
            let service = pr::Server::with_identity(server, Identity::Superuser);
            endpoint.serve(pr::SERVICE, pr::NAME, service);
            endpoint
        });
        Self {
            dir,
            _endpoint: endpoint,
            _runtime: runtime,
        }
    }

    fn run(&self, program: &mut Command, args: &str) -> Output {
        program
            .args(args.split_whitespace())
            .args(["-noauth", "-config"])
            .arg(self.dir.path())
            .output()
            .unwrap()
    }

    fn ours(&self, args: &str) -> Output {
        let mut afar = Command::new(env!("CARGO_BIN_EXE_afar"));
        self.run(afar.arg("pts"), args)
    }

    fn theirs(&self, args: &str) -> Output {
        self.run(&mut Command::new("pts"), args)
    }
}

/// Output, errors without the second end of line that OpenAFS gives them, exit code.
fn said(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes| String::from_utf8_lossy(bytes).replace('\r', "");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (out, err, output.status.code())
}

/// Commands, each typed in another way that `pts` takes.
const SESSION: &[&str] = &[
    "listmax",
    "createuser alice",
    "createu -name bob carol -id 20 30",
    "cu dave -id 0x64",
    "createuser alice",
    "createuser erin -id 20",
    "createuser erin -id -5",
    "creategroup alice:friends -owner alice",
    "creategroup bob:x -owner alice",
    "creategroup x:y -owner nobody-here",
    "creategroup friends -id 5",
    "cg staff -id -1000",
    "creategroup system:x",
    "adduser -user bob carol -group alice:friends staff",
    "adduser alice:friends staff",
    "adduser bob staff",
    "adduser bob staff -force",
    "adduser nobody-here staff",
    "membership alice:friends bob staff",
    "mem -nameorid 20",
    "membership staff -expandgroups",
    "membership bob -expandgroups",
    "groups alice:friends -supergroups",
    "membership nobody-here",
    "membership 999",
    "examine alice staff 30 -204 anonymous",
    "examine nobody-here",
    "check 999",
    "setfields staff -access SOmar -groupquota 5",
    "setfields staff -access 377",
    "examine staff",
    "setfields staff -access -----",
    "setfields staff -access SOM",
    "setfields staff -access xOMar",
    "setfields -101 -access S----",
    "examine -1000",
    "chown alice:friends bob",
    "chown alice:friends bob",
    "rename bob:friends bob:pals",
    "rename bob:pals alice:pals",
    "chname carol caroline",
    "listowned bob system:administrators",
    "adduser alice system:administrators",
    "examine alice",
    "delete bob 999 -force",
    "delete 999",
    "delete system:anyuser",
    "listowned 0",
    "setmax -user 500 -group -2000",
    "setmax",
    "setmax -user -5",
    "listmax",
    "removeuser caroline bob:pals",
    "removeuser caroline bob:pals",
    "listentries",
    "listentries -groups",
    "liste -users -groups",
];

#[test]
fn both_say_the_same() {
    if !Path::new("/usr/bin/pts").exists() {
        return skipped("pts is not installed");
    }
    in_a_namespace(|| {
        // Each with a cell of its own, one after the other, as both are at the same port.
        let run = |pts: fn(&Cell, &str) -> Output| {
            let cell = Cell::start();
            let said = SESSION.iter().map(|command| said(&pts(&cell, command)));
            said.collect::<Vec<_>>()
        };
        let (theirs, ours) = (run(Cell::theirs), run(Cell::ours));
        let said = SESSION.iter().zip(theirs).zip(ours);
        let differing: Vec<_> = said.filter(|((_, theirs), ours)| theirs != ours).collect();
        assert!(differing.is_empty(), "{differing:#?}");
    });
}

#[test]
fn json_is_an_object_a_line() {
    in_a_namespace(|| {
        let cell = Cell::start();
        let json = |args: &str| {
            let output = cell.ours(&format!("{args} -json"));
            assert!(output.status.success(), "{args}: {output:?}");
            let text = String::from_utf8(output.stdout).unwrap();
            let objects = text.lines().map(serde_json::from_str);
            objects
                .collect::<Result<Vec<serde_json::Value>, _>>()
                .unwrap()
        };
        let made = json("createuser -name alice bob");
        assert_eq!(made[0]["id"], 1);
        json("creategroup alice:f -owner alice");
        json("adduser bob alice:f");
        let members = &json("membership alice:f")[0];
        assert_eq!(members["list"], "members");
        assert_eq!(members["names"][0], "bob");
        let examined = &json("examine alice system:administrators");
        assert_eq!(examined[0]["group_quota"], 20);
        assert!(examined[1]["group_quota"].is_null());
        assert_eq!(examined[0]["flags"], "S----");
        assert_eq!(json("listmax")[0]["group"], -206);
        let entries = json("listentries -users -groups");
        assert_eq!(entries.len(), 9);
        assert_eq!(entries[8]["name"], "alice:f");
    });
}
