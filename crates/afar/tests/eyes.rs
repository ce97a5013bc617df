//! `afar top` and `afar status` beside a cell that runs here: what loads it, and whether it works.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tempfile::TempDir;

const AFAR: &str = env!("CARGO_BIN_EXE_afar");

/// `afar up` with directories of its own, killed when dropped.
struct Cell {
    dir: TempDir,
    child: Child,
    address: Ipv4Addr,
}

impl Drop for Cell {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl Cell {
    fn start() -> Self {
        let [a, b] = std::process::id().to_be_bytes()[2..] else {
            unreachable!("two bytes are left");
        };
        let address = Ipv4Addr::new(127, 160 | fastrand::u8(..32), a, b.max(1));
        let dir = TempDir::new().unwrap();
        let mut child = command(&dir)
            .arg("up")
            .arg(dir.path().join("data"))
            .args(["--cell", "top.example", "--listen", &address.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let mut lines = lines.map_while(Result::ok);
        let ready = lines.any(|line| {
            said.push(line.clone());
            line.contains(" is up at ")
        });
        assert!(ready, "{said:#?}");
        // It goes on to write what nobody reads.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            dir,
            child,
            address,
        }
    }

    fn run(&self, words: &[&str]) -> Output {
        command(&self.dir).args(words).output().unwrap()
    }

    fn rows(&self, words: &[&str]) -> Vec<BTreeMap<String, Value>> {
        let output = self.run(words);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn command(dir: &TempDir) -> Command {
    let mut command = Command::new(AFAR);
    command.env("AFAR_RUN_DIR", dir.path().join("run"));
    command.env("HOME", dir.path());
    command.env("AFAR_TOKENS", dir.path().join("tokens"));
    command.env(
        "KRB5CCNAME",
        format!("FILE:{}", dir.path().join("cc").display()),
    );
    for variable in [
        "AFAR_CONFIG",
        "AFAR_CELLSERVDB",
        "AFSCELL",
        "XDG_CONFIG_HOME",
    ] {
        command.env_remove(variable);
    }
    command
}

#[test]
fn what_loads_a_server_is_shown() {
    let cell = Cell::start();
    let file = cell.dir.path().join("file");
    fs::write(&file, vec![7; 300_000]).unwrap();
    let target = "/afs/top.example/file";
    let stored = cell.run(&["cp", "--localauth", file.to_str().unwrap(), target]);
    assert!(stored.status.success(), "{stored:?}");
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let done = Arc::clone(&done);
        let mut cat = command(&cell.dir);
        cat.args(["cat", "--localauth", target]);
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let output = cat.output().unwrap();
                assert_eq!(output.stdout.len(), 300_000, "{output:?}");
            }
        })
    };
    for (table, key, name) in [
        ("volumes", "name", "root.cell"),
        ("clients", "user", "superuser"),
        ("files", "name", "root.cell"),
    ] {
        let rows = cell.rows(&["top", table, "--json", "--interval", "2"]);
        let mut found = rows.iter().filter(|row| row[key] == name);
        let is_busy = found.any(|row| {
            let calls = row["calls_per_second"].as_f64();
            calls.is_some_and(|calls| calls > 0.0)
        });
        assert!(is_busy, "{table}: {rows:#?}");
    }
    let rows = cell.rows(&[
        "top",
        "files",
        "--json",
        "--sort",
        "bytes_per_second",
        "--limit",
        "1",
    ]);
    let bytes = rows[0]["bytes_per_second"].as_f64().unwrap();
    assert!(bytes > 30_000.0 && rows.len() == 1, "{rows:#?}");
    // What is printed elsewhere than on a terminal is a table.
    let output = cell.run(&["top", "volumes", "--sort", "reads", "--interval", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("PARTITION") && lines[1].contains("root.cell"),
        "{text}"
    );
    done.store(true, Ordering::Relaxed);
    reader.join().unwrap();
}

#[test]
fn what_cannot_be_shown_is_told() {
    let dir = TempDir::new().unwrap();
    for (words, says) in [
        (
            &["top", "volumes", "--once"][..],
            "no server runs on this machine",
        ),
        (
            &["top", "calls", "--cell", "x.example"],
            "no server of x.example",
        ),
        (
            &["top", "files", "--sort", "rename"],
            "no column \"rename\"",
        ),
        (&["top", "files", "--interval", "0"], "from 0.5 to 300"),
        (&["top", "discs"], "volumes, clients, files, calls, disks"),
        (&["top", "calls", "--socket", "none"], "is it running"),
    ] {
        let output = command(&dir).args(words).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && told.contains(says),
            "{words:?}: {told}"
        );
    }
}

#[test]
fn a_server_elsewhere_tells_its_clients_and_nothing_of_volumes() {
    let cell = Cell::start();
    let server = cell.address.to_string();
    let file = cell.dir.path().join("file");
    fs::write(&file, "text").unwrap();
    let target = "/afs/top.example/file";
    let stored = cell.run(&["cp", "--localauth", file.to_str().unwrap(), target]);
    assert!(stored.status.success(), "{stored:?}");
    // Over the network.
    cell.run(&["ls", "--noauth", "/afs/top.example"]);
    let rows = cell.rows(&[
        "top",
        "clients",
        "--server",
        &server,
        "--json",
        "--interval",
        "0.5",
    ]);
    assert!(
        rows.iter().all(|row| row["user"] == Value::Null),
        "{rows:#?}"
    );
    let mut addresses = rows.iter().map(|row| row["address"].as_str().unwrap());
    assert!(
        addresses.any(|address| address.starts_with("127.")),
        "{rows:#?}"
    );
    // Its administrator sees all of it.
    let words = [
        "top",
        "clients",
        "--server",
        &server,
        "--localauth",
        "--json",
    ];
    let rows = cell.rows(&[&words[..], &["--interval", "0.5"]].concat());
    assert!(
        rows.iter().any(|row| row["user"] == "superuser"),
        "{rows:#?}"
    );
    let words = [
        "top",
        "volumes",
        "--server",
        &server,
        "--localauth",
        "--json",
    ];
    let rows = cell.rows(&[&words[..], &["--interval", "0.5"]].concat());
    assert!(
        rows.iter().any(|row| row["name"] == "root.cell"),
        "{rows:#?}"
    );
    let calls = cell.run(&["top", "calls", "--server", &server]);
    assert!(calls.status.success(), "{calls:?}");
    assert!(
        String::from_utf8(calls.stdout)
            .unwrap()
            .contains("WAITS FOR")
    );
    for (words, says) in [
        (
            ["top", "volumes", "--server", &server],
            "nothing of volumes",
        ),
        (
            ["top", "calls", "--server", "127.0.0.1:1"],
            "does not answer",
        ),
    ] {
        let output = cell.run(&words);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && told.contains(says), "{told}");
    }
}

#[test]
fn what_runs_here_is_shown_and_whether_it_works() {
    let mut cell = Cell::start();
    let status = |cell: &Cell| -> (Value, bool) {
        let output = cell.run(&["status", "--json"]);
        let text = String::from_utf8(output.stdout).unwrap();
        (
            serde_json::from_str(&text).unwrap(),
            output.status.success(),
        )
    };
    let (told, is_up) = status(&cell);
    let server = &told["servers"][0];
    assert_eq!(
        (&server["cell"], &server["state"]),
        (&"top.example".into(), &"up".into())
    );
    assert_eq!(server["version"], env!("CARGO_PKG_VERSION"));
    let services = ["files", "users", "locations", "volumes", "status"];
    assert_eq!(server["services"], Value::from(services.to_vec()));
    // Other tests may leave mounts that nobody serves.
    let mounts = told["mounts"].as_array().unwrap();
    let others_work = mounts.iter().all(|mount| mount["state"] == "up");
    assert_eq!(
        (is_up, &told["up"]),
        (others_work, &others_work.into()),
        "{told:#}"
    );
    let text = String::from_utf8(cell.run(&["status"]).stdout).unwrap();
    assert!(text.starts_with("server   top.example: up "), "{text}");
    // It is killed, and has removed nothing.
    cell.child.kill().unwrap();
    cell.child.wait().unwrap();
    let (told, is_up) = status(&cell);
    assert!(!is_up && told["up"] == false, "{told:#}");
    assert_eq!(told["servers"][0]["state"], "down");
}

/// The notes of a program by which tracers find its probes: provider, name, and the form of the arguments.
fn notes(program: &[u8]) -> Vec<[String; 3]> {
    const OWNER: &[u8] = b"stapsdt\0";
    /// The addresses of the probe, of the section, and of the count of tracers.
    const ADDRESSES: usize = 3 * 8;
    let starts = program.windows(OWNER.len()).enumerate();
    let starts = starts.filter(|(_, window)| *window == OWNER);
    let text = |bytes: &mut &[u8]| -> Option<String> {
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let text = String::from_utf8(bytes[..end].to_vec()).ok()?;
        *bytes = &bytes[end + 1..];
        Some(text)
    };
    let note = |(start, _): (usize, &[u8])| {
        let mut rest = program.get(start + OWNER.len() + ADDRESSES..)?;
        Some([text(&mut rest)?, text(&mut rest)?, text(&mut rest)?])
    };
    let notes = starts.filter_map(note);
    notes.filter(|[provider, ..]| provider == "afar").collect()
}

/// What the page says of probes is what tracers find in the program, and their scripts use no others.
#[test]
fn probes_are_those_of_the_page_and_of_the_program() {
    if cfg!(not(target_arch = "x86_64")) {
        println!("skipped: the form of the notes is that of x86-64");
        return;
    }
    let found = notes(&fs::read(AFAR).unwrap());
    let found: BTreeMap<String, usize> = found
        .into_iter()
        .map(|[_, name, arguments]| (name, arguments.split_whitespace().count()))
        .collect();
    let probes = afar_probes::ALL.iter();
    let expected = probes.map(|probe| (probe.name.to_owned(), probe.arguments.len()));
    assert_eq!(found, expected.collect());

    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(sources.join("docs/admin/eyes.md")).unwrap();
    for probe in afar_probes::ALL {
        let row = format!("| `{}` | {} |", probe.name, probe.arguments.join(", "));
        assert!(page.contains(&row), "{row}");
    }
    for script in fs::read_dir(sources.join("dist/bpftrace")).unwrap() {
        let path = script.unwrap().path();
        let script = fs::read_to_string(&path).unwrap();
        let used = script.split("usdt:*:afar:").skip(1);
        let mut used = used.filter_map(|rest| rest.split_whitespace().next());
        assert!(
            used.all(|name| found.contains_key(name)),
            "{}",
            path.display()
        );
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
}
