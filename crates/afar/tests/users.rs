//! A cell without a KDC as its users see it: made with a password or an SSH key, logging in, working
//! with what that gave, changing it.
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
const CELL: &str = "users.example";

/// A cell that runs, at an address of its own, and its users' laptops.
struct Cell {
    dir: TempDir,
    address: String,
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

impl Cell {
    fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let [a, b] = std::process::id().to_be_bytes()[2..] else {
            unreachable!("two bytes are left");
        };
        let address = Ipv4Addr::new(127, 128 | fastrand::u8(..64), a, b.max(1)).to_string();
        let mut child = Command::new(AFAR)
            .arg("up")
            .arg(dir.path().join("cell"))
            .args(["--cell", CELL, "--listen", &address, "--log", "info"])
            .env("AFAR_RUN_DIR", dir.path().join("run"))
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
        let cell = Self {
            dir,
            address,
            child,
            lines,
        };
        cell.until("is up at");
        cell
    }

    /// Waits for a line of the server's log with this in it.
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

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command on the server's machine, with this on its standard input.
    fn here(&self, words: &[&str], input: &str) -> Output {
        let mut command = Command::new(AFAR);
        command.env("AFAR_RUN_DIR", self.path("run"));
        run(command.args(words), input)
    }

    /// The same, where it must succeed; what it prints.
    fn say(&self, words: &[&str], input: &str) -> String {
        let output = self.here(words, input);
        assert!(output.status.success(), "{words:?}: {}", told(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command on the laptop of this user, from which no socket of the server is reached.
    fn away(&self, user: &str, words: &[&str], input: &str) -> Output {
        let laptop = self.path(&format!("laptop-{user}"));
        fs::create_dir_all(&laptop).unwrap();
        let servers = laptop.join("CellServDB");
        let text = format!(">{CELL} #a cell\n{} #its server\n", self.address);
        fs::write(&servers, text).unwrap();
        let mut command = Command::new(AFAR);
        command
            .env("AFAR_RUN_DIR", laptop.join("run"))
            .env("AFAR_TOKENS", laptop.join("tokens"))
            .env("AFAR_CELLSERVDB", &servers)
            .env("HOME", &laptop)
            .env(
                "KRB5CCNAME",
                format!("FILE:{}", laptop.join("cc").display()),
            )
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("SSH_AUTH_SOCK");
        run(command.args(words), input)
    }

    /// Logs in from the user's laptop.
    fn login(&self, user: &str, more: &[&str], input: &str) -> Output {
        let fingerprint = self.fingerprint();
        let mut words = vec!["login", user, "--cell", CELL, "--server", &self.address];
        words.extend(["--fingerprint", &fingerprint]);
        words.extend(more);
        self.away(user, &words, input)
    }

    /// Of the login service, as its administrator would tell it.
    fn fingerprint(&self) -> String {
        let text = fs::read_to_string(self.path(&format!("run/{CELL}/login"))).unwrap();
        text.split_whitespace().nth(1).unwrap().to_owned()
    }

    /// Whether this user may write a file of this name.
    fn writes(&self, user: &str, name: &str) -> Result<(), String> {
        let file = self.path("text");
        fs::write(&file, user).unwrap();
        let target = format!("/afs/{CELL}/{name}");
        let output = self.away(user, &["cp", file.to_str().unwrap(), &target], "");
        if output.status.success() {
            assert_eq!(self.say(&["cat", "--localauth", &target], ""), user);
            Ok(())
        } else {
            Err(told(&output))
        }
    }
}

fn run(command: &mut Command, input: &str) -> Output {
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

/// Makes a key with ssh-keygen; says so where that is missing.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn ssh_key(cell: &Cell, name: &str) -> Option<PathBuf> {
    let path = cell.path(name);
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]);
    match keygen.arg(&path).status() {
        Ok(status) => {
            assert!(status.success());
            Some(path)
        }
        Err(_) => {
            eprintln!("skipped: ssh-keygen is not installed");
            None
        }
    }
}

#[test]
fn passwords_and_keys_open_what_their_users_may() {
    let cell = Cell::start();
    let made = cell.say(
        &["pts", "createuser", "-name", "alice", "--password-stdin"],
        "correct horse\n",
    );
    assert_eq!(made, "User alice has id 1000\n");
    let root = format!("/afs/{CELL}");
    for (user, rights) in [("alice", "all"), ("bob", "read")] {
        let dir = format!("{root}/{user}");
        cell.say(&["mkdir", "--localauth", &dir], "");
        if user == "alice" {
            cell.say(&["fs", "setacl", "-localauth", &dir, user, rights], "");
        }
    }

    // Before and after the login, with the wrong password and the right one.
    assert!(cell.writes("alice", "alice/first").is_err());
    let wrong = cell.login("alice", &["--password-stdin"], "correct hors\n");
    assert!(
        told(&wrong).contains("refuses to log in alice"),
        "{}",
        told(&wrong)
    );
    cell.until("the password is wrong");
    let nobody = cell.login("eve", &["--password-stdin"], "correct horse\n");
    let same = told(&nobody).replace("eve", "alice");
    assert_eq!(same, told(&wrong), "one answer for all");
    let right = cell.login("alice", &["--password-stdin"], "correct horse\n");
    assert!(right.status.success(), "{}", told(&right));
    cell.writes("alice", "alice/first").unwrap();
    cell.writes("alice", "bob/hers").unwrap_err();

    // She changes her password, and nobody else's.
    let words = ["pts", "setpassword", "-name", "alice", "--password-stdin"];
    let changed = cell.away(
        "alice",
        &[&words[..], &["-cell", CELL]].concat(),
        "battery staple\n",
    );
    assert!(changed.status.success(), "{}", told(&changed));
    cell.say(&["pts", "createuser", "bob"], "");
    let words = [
        "pts",
        "setpassword",
        "-name",
        "bob",
        "--password-stdin",
        "-cell",
        CELL,
    ];
    let refused = cell.away("alice", &words, "hers now\n");
    assert!(
        told(&refused).contains("only the users themselves"),
        "{}",
        told(&refused)
    );
    let old = cell.login("alice", &["--password-stdin"], "correct horse\n");
    assert!(!old.status.success(), "the old password is worth nothing");
    let new = cell.login("alice", &["--password-stdin"], "battery staple\n");
    assert!(new.status.success(), "{}", told(&new));

    // A new key of the cell is used at once, without a restart.
    cell.say(
        &[
            "keys",
            "generate",
            "--config",
            cell.path("cell/afar.toml").to_str().unwrap(),
        ],
        "",
    );
    std::thread::sleep(Duration::from_millis(1200));
    let again = cell.login("alice", &["--password-stdin"], "battery staple\n");
    assert!(again.status.success(), "{}", told(&again));
    cell.writes("alice", "alice/second").unwrap();
    cell.say(&["pts", "delete", "alice"], "");
    let gone = cell.login("alice", &["--password-stdin"], "battery staple\n");
    assert!(
        told(&gone).contains("refuses to log in alice"),
        "{}",
        told(&gone)
    );
}

#[test]
fn ssh_keys_are_listed_added_and_removed() {
    let cell = Cell::start();
    let (Some(first), Some(second)) = (ssh_key(&cell, "first"), ssh_key(&cell, "second")) else {
        return;
    };
    let file = |key: &PathBuf| key.to_str().unwrap().to_owned();
    let public = |key: &PathBuf| format!("{}.pub", key.display());
    let made = cell.say(
        &[
            "pts",
            "createuser",
            "-name",
            "bob",
            "--ssh-key",
            &public(&first),
        ],
        "",
    );
    assert_eq!(made, "User bob has id 1000\n");
    let login = |key: &PathBuf| cell.login("bob", &["--ssh-key", &file(key)], "");
    let granted = login(&first);
    assert!(granted.status.success(), "{}", told(&granted));
    assert!(!login(&second).status.success());
    cell.until("none of the keys is the user's");
    let keys = |more: &[&str]| cell.say(&[&["pts", "sshkeys", "-name", "bob"], more].concat(), "");
    let listed = keys(&["--add", &public(&second)]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(login(&second).status.success());
    let fingerprint = listed.split(' ').next().unwrap();
    let left = keys(&["--remove", fingerprint]);
    assert!(left.contains("ssh-ed25519 second"), "{left}");
    assert_eq!(keys(&[]), left);
    assert!(!login(&first).status.success());
    let private = cell.here(
        &["pts", "sshkeys", "-name", "bob", "--add", &file(&first)],
        "",
    );
    assert!(told(&private).contains(".pub"), "{}", told(&private));
    let anonymous = cell.away(
        "eve",
        &["pts", "sshkeys", "-name", "bob", "-cell", CELL],
        "",
    );
    assert!(!anonymous.status.success(), "a stranger sees no keys");
}

#[test]
fn a_server_nobody_vouches_for_is_not_believed_without_a_question() {
    let cell = Cell::start();
    let words = ["pts", "createuser", "-name", "alice", "--password-stdin"];
    cell.say(&words, "x\n");
    let words = ["login", "alice", "--cell", CELL, "--server", &cell.address];
    let unknown = cell.away(
        "alice",
        &[&words[..], &["--password-stdin"]].concat(),
        "x\n",
    );
    let fingerprint = cell.fingerprint();
    assert!(told(&unknown).contains(&fingerprint), "{}", told(&unknown));
    let other = fingerprint.replace("SHA256:", "").to_ascii_lowercase();
    let other = format!("SHA256:{}A", &other[..42]);
    let wrong = cell.away(
        "alice",
        &[&words[..], &["--password-stdin", "--fingerprint", &other]].concat(),
        "x\n",
    );
    assert!(
        told(&wrong).contains("is not the server you want"),
        "{}",
        told(&wrong)
    );
    // Having agreed once is remembered.
    let config = cell.path("laptop-alice/.config/afar");
    fs::create_dir_all(&config).unwrap();
    let line = format!("{CELL} {}:7002 {fingerprint}\n", cell.address);
    fs::write(config.join("known_cells"), &line).unwrap();
    let known = cell.away(
        "alice",
        &[&words[..], &["--password-stdin"]].concat(),
        "x\n",
    );
    assert!(known.status.success(), "{}", told(&known));
    fs::write(
        config.join("known_cells"),
        line.replace(&fingerprint, &other),
    )
    .unwrap();
    let changed = cell.away(
        "alice",
        &[&words[..], &["--password-stdin"]].concat(),
        "x\n",
    );
    assert!(
        told(&changed).contains("another key than before"),
        "{}",
        told(&changed)
    );
    assert!(told(&changed).contains("Line 1 of"), "{}", told(&changed));
}
