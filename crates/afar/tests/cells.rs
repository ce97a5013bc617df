//! A cell begun on one machine and told to another: `afar server init`, the line that it prints, and
//! `afar login` with it; and what is answered to those who get it wrong.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tempfile::TempDir;

const AFAR: &str = env!("CARGO_BIN_EXE_afar");
const CELL: &str = "cells.example";
const KEY: &str = "SHA256:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";

/// Folders of a machine with a server, and of a laptop.
struct Site {
    dir: TempDir,
    address: String,
}

/// A server, killed when dropped.
struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl Running {
    /// Waits for a line with this in it.
    fn until(&self, text: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(Duration::from_secs(30)) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.push(line),
                Err(_) => panic!("no line with {text:?}: {seen:#?}"),
            }
        }
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", told(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Site {
    fn new() -> Self {
        let [a, b] = std::process::id().to_be_bytes()[2..] else {
            unreachable!("two bytes are left");
        };
        let address = Ipv4Addr::new(127, 192 | fastrand::u8(..32), a, b.max(1));
        Self {
            dir: TempDir::new().unwrap(),
            address: address.to_string(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A command on the server's machine.
    fn server(&self) -> Command {
        let mut command = Command::new(AFAR);
        command
            .env("AFAR_RUN_DIR", self.path("run"))
            .env_remove("AFAR_CONFIG");
        command
    }

    /// Runs one that must succeed; what it prints.
    fn say(&self, words: &[&str], input: &str) -> String {
        said(&fed(self.server().args(words), input))
    }

    /// Runs one on the laptop, which knows no cell and has no name server.
    fn laptop(&self, words: &[&str], input: &str) -> Output {
        let home = self.path("laptop");
        fs::create_dir_all(&home).unwrap();
        let mut command = Command::new(AFAR);
        command
            .env("AFAR_RUN_DIR", home.join("run"))
            .env("AFAR_TOKENS", home.join("tokens"))
            .env("HOME", &home)
            .env("KRB5CCNAME", format!("FILE:{}/cc", home.display()))
            .env("USER", "alice");
        for variable in ["AFAR_CELLSERVDB", "AFAR_CONFIG", "AFSCELL", "SSH_AUTH_SOCK"] {
            command.env_remove(variable);
        }
        command.env_remove("XDG_CONFIG_HOME");
        fed(command.args(words), input)
    }

    fn start(&self, words: &[&str]) -> Running {
        let mut child = self
            .server()
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        let (keep, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in err.lines().map_while(Result::ok) {
                // Nobody listens any more once the test has seen enough.
                let _gone = keep.send(line);
            }
        });
        Running { child, lines }
    }

    /// A cell of `afar up`, and the line it prints.
    fn up(&self) -> (Running, String) {
        let cell = self.text("cell");
        let words = ["up", &cell, "--cell", CELL, "--listen", &self.address];
        let running = self.start(&words);
        running.until(" is up at ");
        let line = running.until("afar login USER afar://");
        let line = line.rsplit(' ').next().unwrap().to_owned();
        (running, line)
    }
}

fn fed(command: &mut Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended without reading.
    let _gone = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

const CREATE: [&str; 5] = ["pts", "createuser", "-name", "alice", "--password-stdin"];

#[test]
fn a_line_teaches_the_laptop_the_cell() {
    let site = Site::new();
    let (_running, line) = site.up();
    assert!(line.starts_with(&format!("afar://{CELL}@{}#SHA256:", site.address)));
    site.say(&CREATE, "secret\n");
    let unknown = site.laptop(&["ls", "--no-dns", &format!("/afs/{CELL}")], "");
    assert!(!unknown.status.success());
    // Even with a wrong password the laptop knows the cell: its server has shown its key.
    let wrong = site.laptop(&["login", &line, "--password-stdin"], "wrong\n");
    assert!(
        told(&wrong).contains("refuses to log in alice"),
        "{}",
        told(&wrong)
    );
    for words in [["login", &line, "alice"], ["login", "alice", &line]] {
        let login = site.laptop(&[&words[..], &["--password-stdin"]].concat(), "secret\n");
        assert!(login.status.success(), "{}", told(&login));
    }
    said(&site.laptop(&["ls", "--no-dns", &format!("/afs/{CELL}")], ""));
    let cells = said(&site.laptop(&["ls", "/afs"], ""));
    assert!(cells.lines().any(|name| name == CELL), "{cells}");
    let listed = said(&site.laptop(&["pts", "examine", "alice", "-cell", CELL], ""));
    assert!(listed.starts_with("Name: alice"), "{listed}");
    // The key is remembered, for the cell: no question and no option any more.
    let again = ["login", "alice", "--cell", CELL, "--password-stdin"];
    let again = site.laptop(&again, "secret\n");
    assert!(again.status.success(), "{}", told(&again));
}

#[test]
fn a_server_that_is_named_teaches_the_laptop_a_cell_nothing_else_knows() {
    let site = Site::new();
    let (_running, line) = site.up();
    site.say(&CREATE, "secret\n");
    let (_, fingerprint) = line.split_once('#').unwrap();
    let named = ["login", "--cell", CELL, "--server", &site.address];
    let first = [
        &named[..],
        &["--fingerprint", fingerprint, "--password-stdin"],
    ]
    .concat();
    let login = site.laptop(&first, "secret\n");
    assert!(login.status.success(), "{}", told(&login));
    assert!(
        told(&login).contains("your commands know"),
        "{}",
        told(&login)
    );
    said(&site.laptop(&["ls", "--no-dns", &format!("/afs/{CELL}")], ""));
    let remembered = site.laptop(&[&named[..], &["--password-stdin"]].concat(), "secret\n");
    assert!(remembered.status.success(), "{}", told(&remembered));
    // A line with another key is another server.
    let other = line.replace(fingerprint, KEY);
    let refused = site.laptop(&["login", &other, "--password-stdin"], "secret\n");
    assert!(
        told(&refused).contains("is not the server you want"),
        "{}",
        told(&refused)
    );
}

#[test]
fn a_server_is_begun_in_earnest_from_nothing() {
    let site = Site::new();
    let (config, units) = (site.text("etc/afar/afar.toml"), site.text("units"));
    let (data, partition) = (site.text("data"), format!("a={}", site.text("vicepa")));
    let words = |cell: &'static str| {
        let words = [
            "server",
            "init",
            "--config",
            &config,
            "--data",
            &data,
            "--no-start",
        ];
        let more = ["--cell", cell, "--listen", &site.address, "--units", &units];
        let last = ["--partition", &partition];
        let all = words.into_iter().chain(more).chain(last);
        all.map(str::to_owned).collect::<Vec<_>>()
    };
    // A failure leaves nothing: the first listener is in the way.
    let held = std::net::UdpSocket::bind(format!("{}:7003", site.address)).unwrap();
    let failed = site.server().args(words(CELL)).output().unwrap();
    assert!(
        told(&failed).contains("cannot open UDP port"),
        "{}",
        told(&failed)
    );
    let left: Vec<_> = fs::read_dir(site.dir.path()).unwrap().flatten().collect();
    assert!(
        left.iter().all(|entry| entry.file_name() == "run"),
        "{left:?}"
    );
    drop(held);
    let begun = said(&site.server().args(words(CELL)).output().unwrap());
    assert!(
        begun.contains(&format!("afar://{CELL}@{}#", site.address)),
        "{begun}"
    );
    let unit = fs::read_to_string(site.path("units/afar.service.d/init.conf")).unwrap();
    assert!(
        unit.contains(&format!("server --config {config}\n")),
        "{unit}"
    );
    assert!(unit.contains(&format!("ReadWritePaths={data}\n")), "{unit}");
    assert!(site.path("units/afar.service").exists());
    let again = site.server().args(words(CELL)).output().unwrap();
    assert!(told(&again).contains("exists already"), "{}", told(&again));

    let _running = site.start(&["server", "--config", &config]);
    let mut listed = site.server().args(["vos", "listvldb"]).output().unwrap();
    for _ in 0..100 {
        if listed.status.success() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        listed = site.server().args(["vos", "listvldb"]).output().unwrap();
    }
    let listed = said(&listed);
    assert!(
        listed.contains("root.afs") && listed.contains("root.cell"),
        "{listed}"
    );
    site.say(&CREATE, "secret\n");
    // The keys of the cell that runs are found without being told of.
    let keys = site.say(&["keys", "list"], "");
    assert!(keys.contains(&format!("{data}/KeyFileExt")), "{keys}");
    site.say(&["keys", "generate"], "");
    assert_eq!(site.say(&["keys", "list"], "").lines().count(), 2);
}

#[test]
fn the_cell_of_up_becomes_a_server_by_one_command() {
    let site = Site::new();
    let (config, units, cell) = (
        site.text("afar.toml"),
        site.text("units"),
        site.text("cell"),
    );
    let words = [
        "server", "init", "--from", &cell, "--config", &config, "--units", &units,
    ];
    {
        let (_running, _) = site.up();
        site.say(&CREATE, "secret\n");
        let refused = site.server().args(words).output().unwrap();
        assert!(
            told(&refused).contains("is running already"),
            "{}",
            told(&refused)
        );
        assert!(!site.path("afar.toml").exists() && site.path("cell/data/pt").exists());
    }
    let begun = site.say(&[&words[..], &["--json"]].concat(), "");
    let begun: serde_json::Value = serde_json::from_str(&begun).unwrap();
    assert_eq!(
        (&begun["cell"], &begun["started"]),
        (&CELL.into(), &false.into())
    );
    let _running = site.start(&["server", "--config", &config]);
    for _ in 0..100 {
        let found = site
            .server()
            .args(["pts", "examine", "alice"])
            .output()
            .unwrap();
        if found.status.success() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("the user is not there");
}

/// Words, what they are answered with (object, cause, next step), and the exit status.
type Wrong<'a> = (Vec<&'a str>, [&'a str; 3], i32);

#[test]
fn mistakes_are_answered_with_object_cause_and_next_step() {
    let site = Site::new();
    let line = |place: &str| format!("afar://{place}#{KEY}");
    let (good, up) = (line("a.org@127.0.0.1:9"), line("../x@h"));
    let (user, v6) = (line("a.org@good@evil"), line("a.org@[::1]"));
    let cut = &good[..good.len() - 3];
    let escape = "afar://a.org@h\u{1b}[2J#x";
    let file = site.text("file");
    fs::write(&file, "junk").unwrap();
    let config = site.text("none.toml");
    let bad = site.text("bad.toml");
    fs::write(&bad, "cell = 7\n").unwrap();
    let init = |more: &[&'static str]| {
        let words = ["server", "init", "--config", &config];
        let words = words.iter().copied().chain(more.iter().copied());
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let inits = [
        init(&[]),
        init(&["--cell", "a b"]),
        init(&["--cell", "a..b"]),
        init(&["--cell", "a.org", "--data", "here"]),
        init(&["--cell", "a.org", "--partition", "a"]),
        init(&["--cell", "a.org", "--partition", "?=/x"]),
        init(&["--cell", "a.org", "--partition", "a=x"]),
        init(&[
            "--cell",
            "a.org",
            "--partition",
            "a=/x",
            "--partition",
            "a=/y",
        ]),
        init(&["--cell", "a.org", "--listen", "nowhere"]),
        init(&["--from", "/no/such"]),
        init(&["--from", "/no/such", "--cell", "a.org"]),
    ];
    let inits: Vec<Vec<&str>> = inits
        .iter()
        .map(|words| words.iter().map(String::as_str).collect())
        .collect();
    let copy = "copy the whole line";
    #[rustfmt::skip]
    let table: Vec<Wrong<'_>> = vec![
        (vec!["login", ""], ["\"\"", "not a user name", "give your name"], 1),
        (vec!["login", "a\u{7}b"], ["\"a\\u{7}b\"", "not a user name", "give your name"], 1),
        (vec!["login", "a", "b"], ["\"a\" and \"b\"", "two users", "one at a time"], 1),
        (vec!["login", "a", "--cell", "a/b"], ["a/b", "contains '/'", "--help"], 2),
        (vec!["login", "a", "--cell", "a.org", "--fingerprint", "MD5:07"], ["MD5:07", "not a fingerprint", "expected SHA256:"], 2),
        (vec!["login", "a", "--cell", "a.org", "--server", "h:x", "--password-stdin"], ["\"h:x\"", "--server", "give a host"], 1),
        (vec!["login", "a", "--cell", "a.org", "--server", "", "--password-stdin"], ["\"\"", "--server", "give a host"], 1),
        (vec!["login", "a", "--cell", "a.org", "--server", "u@h", "--password-stdin"], ["\"u@h\"", "--server", "give a host"], 1),
        (vec!["login", "a", "--cell", "a.org", "--server", "127.0.0.1:9", "--password-stdin"], ["127.0.0.1", "no login service answers", "is the host right"], 1),
        (vec!["login", &up], ["../x@h", "contains '/'", copy], 1),
        (vec!["login", &user], ["good@evil", "one @", copy], 1),
        (vec!["login", &v6], ["[::1]", "IPv4", copy], 1),
        (vec!["login", cut], ["a.org", "not a fingerprint", copy], 1),
        (vec!["login", escape], ["\\u{1b}", "contains", copy], 1),
        (vec!["login", "http://a.org@h#x"], ["http://", "does not begin", copy], 1),
        (vec!["login", &good, "--cell", "b.org"], ["a.org", "--cell names b.org", "omit --cell"], 1),
        (vec!["login", &good, "--server", "h"], [&good, "names the server", "omit --server"], 1),
        (vec!["login", &good, &good], ["lines", "two", "one cell at a time"], 1),
        (vec!["login", "x", &good, "--password-stdin"], ["127.0.0.1", "no login service answers", "firewall"], 1),
        (vec!["keys", "list"], ["afar.toml", "No such file", "config"], 1),
        (vec!["keys", "list", "--cell", "a.org"], ["a.org", "no server", "--config"], 1),
        (vec!["keys", "list", "--config", &bad], ["bad.toml", "cell", "string"], 1),
        (vec!["keys", "list", "--file", &file], [&file, "key", ""], 1),
        (vec!["keys", "import", "/no/such", "--file", &config], ["/no/such", "cannot read keys", ""], 1),
        (vec!["keys", "remove", "x"], ["'x'", "invalid", "--help"], 2),
        (vec!["server", "init", "--config", &bad, "--cell", "a.org"], ["bad.toml", "exists already", "--config"], 1),
        (inits[0].clone(), ["the cell", "no name", "--cell"], 1),
        (inits[1].clone(), ["a b", "contains ' '", "--help"], 2),
        (inits[2].clone(), ["a..b", "empty part", "--help"], 2),
        (inits[3].clone(), ["--data here", "another directory", "absolute path"], 1),
        (inits[4].clone(), ["\"a\"", "--partition", "such as a=/vicepa"], 1),
        (inits[5].clone(), ["\"?=/x\"", "--partition", "such as a=/vicepa"], 1),
        (inits[6].clone(), ["\"a=x\"", "--partition", "begin with /"], 1),
        (inits[7].clone(), ["/vicepa", "twice", "omit one"], 1),
        (inits[8].clone(), ["nowhere", "invalid", "--help"], 2),
        (inits[9].clone(), ["/no/such", "there is no cell", "--cell"], 1),
        (inits[10].clone(), ["--from", "cannot be used with", "--help"], 2),
    ];
    let mut wrong = Vec::new();
    for (words, parts, status) in table {
        let output = site.laptop(&words, "x\n");
        let text = told(&output);
        let told_all = parts.iter().all(|part| text.contains(part));
        let calm =
            !text.contains("panicked") && !text.contains('\u{1b}') && !text.contains('\u{7}');
        if output.status.code() != Some(status) || !told_all || !calm {
            wrong.push(format!("{words:?}: {:?}: {text}", output.status.code()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!site.path("none.toml").exists());
}
