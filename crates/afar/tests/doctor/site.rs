//! A link between two namespaces, a cell at one end, and `afar doctor` at the other.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

const AFAR: &str = env!("CARGO_BIN_EXE_afar");
pub(crate) const CELL: &str = "doctor.example";
/// Bytes of the file that the cell has: enough for three seconds at 400 Mbit/s.
const FILE: usize = 32 << 20;

/// Two namespaces with a link, removed in the end.
pub(crate) struct Link {
    name: String,
    pub(crate) server: String,
    pub(crate) client: String,
}

/// A cell of afar's at the server's end.
pub(crate) struct Cell {
    pub(crate) dir: TempDir,
    child: Child,
}

/// What `afar doctor` said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) json: Value,
}

/// Says so on the terminal: what the macros print is kept back while a test passes.
pub(crate) fn skipped(what: &str) {
    let text = format!("skipped: {what}\n");
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

pub(crate) fn said(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Link {
    /// `None`, and a line that says why, where links cannot be made.
    pub(crate) fn up(case: &str, options: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/net/tun").exists() {
            skipped(&format!("{case}: a link needs root and /dev/net/tun"));
            return None;
        }
        let name = format!("d{}{case}", std::process::id());
        let mut up = Command::new(AFAR);
        let text = said(
            &up.args(["link", "up", &name])
                .args(options)
                .output()
                .unwrap(),
        );
        let words: Vec<_> = text.split_whitespace().collect();
        let after = |word: String| {
            let at = words.iter().position(|it| *it == word).unwrap();
            words[at + 1].to_owned()
        };
        Some(Self {
            server: after(format!("{name}-srv")),
            client: after(format!("{name}-cli")),
            name,
        })
    }

    /// A program at an end.
    pub(crate) fn at(&self, side: &str, program: &str) -> Command {
        let mut command = Command::new(AFAR);
        command.args(["link", "exec", &self.name, side, program]);
        command
    }

    /// The namespace of an end.
    pub(crate) fn namespace(&self, side: &str) -> String {
        format!("{}-{side}", self.name)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // What does not go is told by the next `afar link ls`.
        Command::new(AFAR)
            .args(["link", "down", &self.name])
            .output()
            .ok();
    }
}

impl Cell {
    /// A cell with one file, which everybody may read.
    pub(crate) fn start(link: &Link) -> Self {
        Self::start_with(link, &[], None)
    }

    /// The same with variables of the server's environment, and a line of its configuration changed.
    pub(crate) fn start_with(
        link: &Link,
        variables: &[(&str, &str)],
        line: Option<[&str; 2]>,
    ) -> Self {
        let dir = TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let (cell, run) = (path("cell"), path("run"));
        let mut begin = link.at("srv", AFAR);
        begin.args(["up", &cell, "--cell", CELL, "--listen", &link.server]);
        let child = begun(begin.env("AFAR_RUN_DIR", &run).env_remove("AFAR_CONFIG"));
        let mut site = Self { dir, child };
        let big = site.path("big");
        let data: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..))
            .take(FILE)
            .collect();
        fs::write(&big, data).unwrap();
        let root = format!("/afs/{CELL}");
        let file = format!("{root}/big");
        site.local(
            link,
            &["fs", "setacl", "--localauth", &root, "system:anyuser", "rl"],
        );
        site.local(link, &["cp", "--localauth", big.to_str().unwrap(), &file]);
        if !variables.is_empty() || line.is_some() {
            site.restart(link, variables, line);
        }
        let servers = format!(">{CELL} # a cell\n{} # server\n", link.server);
        fs::write(site.path("CellServDB"), servers).unwrap();
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command of the administrator at the server's end.
    pub(crate) fn local(&self, link: &Link, words: &[&str]) -> String {
        let mut command = link.at("srv", AFAR);
        command.args(words).env("AFAR_RUN_DIR", self.path("run"));
        said(&command.output().unwrap())
    }

    fn restart(&mut self, link: &Link, variables: &[(&str, &str)], line: Option<[&str; 2]>) {
        self.end();
        if let Some([before, after]) = line {
            let config = self.path("cell/afar.toml");
            let text = fs::read_to_string(&config).unwrap();
            assert!(text.contains(before), "{text}");
            fs::write(&config, text.replace(before, after)).unwrap();
        }
        let mut again = link.at("srv", AFAR);
        again.arg("up").arg(self.path("cell"));
        again
            .env("AFAR_RUN_DIR", self.path("run"))
            .env_remove("AFAR_CONFIG");
        self.child = begun(again.envs(variables.iter().copied()));
    }

    fn end(&mut self) {
        let id = i32::try_from(self.child.id()).unwrap();
        let id = nix::unistd::Pid::from_raw(id);
        // It may have ended by itself.
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).ok();
        self.child.wait().unwrap();
    }

    /// `afar doctor` at the client's end.
    pub(crate) fn doctor(&self, link: &Link, words: &[&str]) -> Said {
        let command = link.at("cli", AFAR);
        doctor(command, &self.path("CellServDB"), words)
    }

    /// The same about the cell's file.
    pub(crate) fn doctor_of_file(&self, link: &Link) -> Said {
        self.doctor(link, &[&format!("/afs/{CELL}/big")])
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs `afar doctor`. Its cache is in memory, unless the words say where: the machine's disk may be slow.
pub(crate) fn doctor(mut command: Command, cellservdb: &Path, words: &[&str]) -> Said {
    command.args(["doctor", "--json", "--no-dns", "--cellservdb"]);
    command.arg(cellservdb).args(words);
    if !words.contains(&"--localauth") {
        command.arg("--noauth");
    }
    if !words.contains(&"--cache") {
        command.args(["--cache", "/dev/shm"]);
    }
    let output = command.env_remove("AFAR_RUN_DIR").output().unwrap();
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    Said {
        code: output.status.code(),
        json,
    }
}

impl Said {
    /// The causes found, the worst first.
    pub(crate) fn causes(&self) -> Vec<&str> {
        let all = self.json["diagnoses"].as_array().unwrap();
        all.iter()
            .map(|one| one["cause"].as_str().unwrap())
            .collect()
    }

    /// Just these were found, with this in the first sentence, which is shown.
    #[track_caller]
    pub(crate) fn is(&self, causes: &[&str], sentence: &str) {
        let verdict = self.json["verdict"].as_str().unwrap();
        let shown = format!("{verdict}\n");
        std::io::stderr().write_all(shown.as_bytes()).unwrap();
        assert_eq!(self.causes(), causes, "{self:#?}");
        assert!(
            verdict.contains(sentence),
            "{sentence} is not in: {verdict}"
        );
        assert_eq!(self.code, Some(i32::from(!causes.is_empty())), "{self:#?}");
    }
}

/// Starts a server and waits until it is up.
fn begun(command: &mut Command) -> Child {
    let mut child = (command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped()))
    .spawn()
    .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let (up, is_up) = mpsc::channel();
    std::thread::spawn(move || {
        let mut seen = Vec::new();
        for line in lines.map_while(Result::ok) {
            if line.contains(" is up at ") {
                up.send(()).ok();
            }
            seen.push(line);
        }
        if up.send(()).is_ok() {
            let text = seen.join("\n");
            std::io::stderr().write_all(text.as_bytes()).ok();
        }
    });
    is_up.recv_timeout(Duration::from_secs(60)).unwrap();
    child
}
