//! Several users of one mount, each with his own tokens and rights.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::site::{CELL, Mounted, Process, Site, can_mount, soon, told};

const ALICE: u32 = 54_321;
const BOB: u32 = 54_322;
const PASSWORD: &str = "correct horse\n";

/// A cell with two users, mounted for all of this machine.
struct Shared {
    site: Site,
    mounted: Option<Mounted>,
}

impl Shared {
    fn new(address: &'static str) -> Self {
        let site = Site::new(address);
        // Others must get to what is below.
        let open = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        open(&site.path("."));
        for name in ["alice", "bob"] {
            let words = ["pts", "createuser", "-name", name, "--password-stdin"];
            let mut command = site.command();
            let output = fed(command.args(words), PASSWORD);
            assert!(output.status.success(), "{}", told(&output));
        }
        let servers = site.path("CellServDB");
        fs::write(&servers, format!(">{CELL} #\n{} #\n", site.address())).unwrap();
        fs::set_permissions(&servers, Permissions::from_mode(0o644)).unwrap();
        let binary = site.path("afar");
        fs::copy(env!("CARGO_BIN_EXE_afar"), &binary).unwrap();
        open(&binary);
        for uid in [ALICE, BOB] {
            let home = site.path(&format!("home-{uid}"));
            fs::create_dir(&home).unwrap();
            std::os::unix::fs::chown(&home, Some(uid), Some(uid)).unwrap();
        }
        let mut shared = Self {
            site,
            mounted: None,
        };
        shared.administer(&["mkdir", &shared.afs("private")]);
        let private = shared.afs("private");
        shared.administer(&["fs", "setacl", &private, "alice", "rlidwka", "-clear"]);
        let place = shared.site.place("shared");
        let mut command = shared.site.command();
        command
            .arg("mount")
            .arg("--cache")
            .arg(shared.site.path("cache"));
        command.env("AFAR_TOKENS", shared.site.path("roots-tokens"));
        command.env("KRB5CCNAME", "FILE:/proc/nonexistent");
        command.args(["--foreground", "--log", "warn,afar_cache=debug"]);
        command.arg(CELL).arg(&place);
        let mut process = Process::start(command);
        process.until("is mounted on");
        shared.mounted = Some(Mounted::of(process, place));
        shared
    }

    fn afs(&self, name: &str) -> String {
        format!("/afs/{CELL}/{name}")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mounted.as_ref().unwrap().path(name)
    }

    fn administer(&self, words: &[&str]) {
        let mut command = self.site.command();
        let output = command.args(words).arg("--localauth").output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", told(&output));
    }

    /// A program run by a user.
    fn by(&self, uid: u32, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let home = self.site.path(&format!("home-{uid}"));
        let mut command = Command::new(program);
        command.uid(uid).gid(uid).current_dir("/");
        command
            .env("HOME", &home)
            .env("AFAR_RUN_DIR", home.join("run"))
            .env("AFAR_CELLSERVDB", self.site.path("CellServDB"))
            .env("KRB5CCNAME", format!("FILE:{}", home.join("cc").display()))
            .env_remove("AFAR_TOKENS")
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("SSH_AUTH_SOCK");
        command
    }

    /// A line of shell as a user; what it prints.
    fn sh(&self, uid: u32, line: &str) -> Result<String, String> {
        let mut command = self.by(uid, "sh");
        command.args(["-c", line]).current_dir(self.path("."));
        let output = command.output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(told(&output)),
        }
    }

    fn login(&self, uid: u32, name: &str, tokens: Option<&str>) {
        let run = self.site.path(&format!("run/{CELL}/login"));
        let announced = fs::read_to_string(run).unwrap();
        let fingerprint = announced.split_whitespace().nth(1).unwrap();
        let mut command = self.by(uid, self.site.path("afar"));
        command.args(["login", name, "--cell", CELL, "--password-stdin"]);
        command.args([
            "--server",
            self.site.address(),
            "--fingerprint",
            fingerprint,
        ]);
        command.envs(tokens.map(|place| ("AFAR_TOKENS", place)));
        let output = fed(&mut command, PASSWORD);
        assert!(output.status.success(), "{}", told(&output));
    }

    fn logout(&self, uid: u32, tokens: Option<&str>) {
        let mut command = self.by(uid, self.site.path("afar"));
        command.args(["logout", "--cell", CELL]);
        command.envs(tokens.map(|place| ("AFAR_TOKENS", place)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", told(&output));
    }
}

/// Runs a command with this on its standard input.
fn fed(command: &mut Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn denied(result: &Result<String, String>) -> bool {
    result
        .as_ref()
        .is_err_and(|told| told.contains("Permission denied"))
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn each_user_has_his_own_rights() {
    if !can_mount() {
        return;
    }
    let shared = Shared::new("127.84.0.71");
    let files = format!("/tmp/afar-tokens-{BOB}");
    // Nobody is let in, the administrator of the machine no more than others.
    for uid in [0, ALICE, BOB] {
        assert!(denied(&shared.sh(uid, "ls private")), "{uid}");
    }
    shared.login(ALICE, "alice", None);
    shared.login(BOB, "bob", Some(&files));
    soon("she is let in", || shared.sh(ALICE, "ls private").is_ok());
    shared.sh(ALICE, "echo hers > private/file").unwrap();
    shared
        .sh(ALICE, "mkdir private/deep && echo deep > private/deep/file")
        .unwrap();
    assert_eq!(
        shared
            .sh(ALICE, "cat private/file private/deep/file")
            .unwrap(),
        "hers\ndeep\n"
    );
    // All of it is in the caches of mount and kernel now, and still hers alone.
    for uid in [0, BOB] {
        for line in [
            "ls private",
            "cat private/file",
            "stat private/file",
            "cat private/deep/file",
        ] {
            assert!(denied(&shared.sh(uid, line)), "{uid}: {line}");
        }
        assert!(denied(&shared.sh(uid, "echo x > private/mine")), "{uid}");
    }
    let owner = fs::metadata(shared.path(".")).unwrap().uid();
    let hers = shared.sh(ALICE, "stat -c %u private/file").unwrap();
    assert_ne!(hers.trim(), owner.to_string(), "it is stored as her");
    // She gives him a right, and takes it back.
    let list = |rights: &str| {
        let afar = shared.site.path("afar");
        let mut command = shared.by(ALICE, afar);
        // A path in the mount does as well as one of AFS.
        command.args(["fs", "setacl", "private", "bob", rights]);
        command.current_dir(shared.path("."));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", told(&output));
    };
    list("rl");
    soon("he may read", || {
        shared
            .sh(BOB, "cat private/file")
            .is_ok_and(|text| text == "hers\n")
    });
    assert!(denied(&shared.sh(BOB, "echo his >> private/file")));
    assert!(denied(&shared.sh(0, "cat private/file")));
    let flush = format!(
        "{} fs flush private/file",
        shared.site.path("afar").display()
    );
    shared.sh(BOB, &flush).unwrap();
    assert_eq!(shared.sh(BOB, "cat private/file").unwrap(), "hers\n");
    list("none");
    soon("he may not any more", || {
        denied(&shared.sh(BOB, "cat private/file"))
    });
    assert_eq!(shared.sh(ALICE, "cat private/file").unwrap(), "hers\n");
    // Without her token she is nobody, in a moment; and with it again herself.
    shared.logout(ALICE, None);
    soon("she is nobody", || {
        denied(&shared.sh(ALICE, "cat private/file"))
    });
    shared.login(ALICE, "alice", None);
    soon("she is back", || {
        shared.sh(ALICE, "cat private/file").is_ok()
    });
    shared.logout(ALICE, None);
    shared.logout(BOB, Some(&files));
    fs::remove_dir_all(files).unwrap();
    shared.mounted.unwrap().stop();
}
