//! Where a program of OpenAFS runs: in a namespace of the network, seeing a configuration and a
//! table of hosts of its own, in a folder of its own.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::net::Net;

/// The name of every cell here.
pub(crate) const CELL: &str = "test.example";

/// A folder with configuration and scratch space for programs in one namespace.
pub(crate) struct Place {
    namespace: String,
    dir: TempDir,
    environment: Vec<(&'static str, OsString)>,
}

/// What a program did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Its exit status; none if it was killed.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Shows a place's folders where programs look for theirs. Words: the folder, the command.
const ENTER: &str = "dir=$1; shift
mount --bind $dir/etc /etc/openafs
mount --bind $dir/hosts /etc/hosts
[ ! -e /etc/resolv.conf ] || mount --bind /dev/null /etc/resolv.conf
PATH=$PATH:/usr/sbin:/sbin:/usr/lib/openafs
cd $dir/work
exec \"$@\"
";

impl Place {
    /// A place in a member's namespace, knowing the cell by its database server's address.
    pub(crate) fn new(net: &Net, member: &str, database: &str) -> Self {
        let dir = TempDir::new().unwrap();
        for folder in ["etc", "work", "cache", "afs"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let mount = dir.path().join("afs").display().to_string();
        let cache = dir.path().join("cache").display().to_string();
        for (name, text) in [
            ("etc/ThisCell", format!("{CELL}\n")),
            (
                "etc/CellServDB",
                format!(">{CELL}\n{database} #{database}\n"),
            ),
            ("etc/cacheinfo", format!("{mount}:{cache}:50000\n")),
            ("hosts", net.hosts(CELL)),
            ("enter", ENTER.to_owned()),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        Self {
            namespace: net.namespace(member),
            dir,
            environment: Vec::new(),
        }
    }

    /// The place with more in the environment of its programs.
    pub(crate) fn with_environment(mut self, more: &[(&'static str, OsString)]) -> Self {
        self.environment.extend_from_slice(more);
        self
    }

    /// The place of an administrator, with the servers' keys.
    pub(crate) fn with_keys(self, keys: &Path) -> Self {
        let to = self.dir.path().join("etc/server");
        fs::create_dir(&to).unwrap();
        for entry in fs::read_dir(keys).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
        self
    }

    /// The place's own folder.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A file in the folder where commands run.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    /// A command that will run here. It ends when the thread that starts it does.
    pub(crate) fn command(&self, unshare: &[&str], words: &[&str]) -> Command {
        let mut command = inside(&self.namespace);
        command
            .args(["unshare", "--mount", "--propagation", "private"])
            .args(unshare)
            .args(["--", "sh", "-e"])
            .arg(self.dir.path().join("enter"))
            .arg(self.dir.path())
            .args(words)
            .env("TZ", "UTC")
            .env("LC_ALL", "C")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        run(&mut self.command(&[], words))
    }

    /// Runs a command, written with blanks between its words, that must do well; what it prints.
    pub(crate) fn ok(&self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ran = self.run(&words);
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
        ran.out
    }
}

/// The beginning of a command in a namespace, which ends with the thread that starts it.
pub(crate) fn inside(namespace: &str) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--", "nsenter"])
        .arg(format!("--net=/run/netns/{namespace}"))
        .arg("--");
    command
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}
