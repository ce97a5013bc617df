//! Whose the files in a mount are, as programs see it.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::site::{CELL, Mounted, Process, Site, can_mount, soon, told};

const PASSWORD: &str = "correct horse\n";

/// A cell where alice may write to a directory, and who on this machine has her token.
struct Hers {
    site: Site,
}

impl Hers {
    fn new(address: &'static str) -> Self {
        let hers = Self {
            site: Site::new(address),
        };
        for name in ["alice", "bob"] {
            hers.fed(&["pts", "createuser", "-name", name, "--password-stdin"]);
        }
        let dir = format!("/afs/{CELL}/hers");
        hers.site.say(&["mkdir", "--localauth", &dir]);
        for name in ["alice", "bob"] {
            hers.site
                .say(&["fs", "setacl", &dir, name, "rlidwk", "-localauth"]);
        }
        hers.login("alice");
        hers
    }

    fn login(&self, name: &str) {
        self.fed(&["login", name, "--cell", CELL, "--password-stdin"]);
    }

    fn logout(&self) {
        let output = self.command(&["logout", "--cell", CELL]).output().unwrap();
        assert!(output.status.success(), "{}", told(&output));
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.site.command();
        command
            .args(words)
            .env("AFAR_TOKENS", self.site.path("tokens"))
            .env("HOME", self.site.path("."))
            .env("KRB5CCNAME", "FILE:/proc/nonexistent")
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("SSH_AUTH_SOCK");
        command
    }

    fn fed(&self, words: &[&str]) {
        use std::io::Write;
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(PASSWORD.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", told(&output));
    }

    fn mount(&self, name: &str, more: &[&str]) -> Mounted {
        let place = self.site.place(name);
        let mut command = self.command(&["mount", "--cache"]);
        command
            .arg(self.site.path(&format!("cache-{name}")))
            .arg("--foreground")
            .args(more)
            .arg(CELL)
            .arg(&place);
        let mut process = Process::start(command);
        process.until("is mounted on");
        Mounted::of(process, place)
    }
}

fn owner(path: impl AsRef<Path>) -> (u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid())
}

/// A line of shell that must succeed, without any setting of its user.
fn sh(dir: &Path, line: &str) {
    let mut command = Command::new("sh");
    command.args(["-ec", line]).current_dir(dir);
    command
        .env("HOME", "/proc/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{line}: {}", told(&output));
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_mount_of_one_user_shows_his_files_as_his() {
    if !can_mount() {
        return;
    }
    let hers = Hers::new("127.84.0.61");
    let mounted = hers.mount("own", &["-o", "no_allow_other"]);
    let dir = mounted.path("hers");
    fs::write(dir.join("file"), "x").unwrap();
    assert_eq!(owner(dir.join("file")), (0, 0));
    sh(
        &dir,
        "git init -q repository; cd repository; echo x > a; git add a
         git -c user.name=a -c user.email=a@b commit -qm a; git status --porcelain",
    );
    sh(
        &dir,
        "from=$(mktemp -d); cd $from; mkdir tree; echo x > tree/file
         chown -R 4321:4322 tree; tar cf tree.tar tree; cd -
         tar xf $from/tree.tar
         cp -a $from/tree copied
         rsync -a $from/tree/ synced/
         rm -r $from",
    );
    assert_eq!(owner(dir.join("tree/file")), (0, 0), "it is still hers");
    // With somebody else's token the files are his.
    hers.logout();
    hers.login("bob");
    soon("files are no longer hers", || {
        owner(dir.join("file")).0 == 1000
    });
    // What is made before the mount looks at the token is still hers.
    let mut made = 0;
    soon("what he makes is shown as his", || {
        made += 1;
        let file = dir.join(format!("his{made}"));
        fs::write(&file, "x").is_ok() && owner(file) == (0, 0)
    });
    mounted.stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn owners_are_shown_as_is_said() {
    if !can_mount() {
        return;
    }
    let hers = Hers::new("127.84.0.62");
    let first = hers.mount("first", &[]);
    fs::write(first.path("hers/file"), "x").unwrap();
    // A mount that others use too has the cell's numbers, and root may restore all the same.
    let file = first.path("hers/file");
    assert_eq!(owner(&file).0, 1000);
    chown(&file, Some(4321), Some(4322)).unwrap();
    assert_eq!(owner(&file).0, 1000);
    let pairs = ["--map-owner", "alice=54321", "--map-owner", "1001=54322"];
    let second = hers.mount("second", &pairs);
    let file = second.path("hers/file");
    assert_eq!(owner(&file), (54_321, 54_321));
    chown(&file, Some(54_321), Some(54_321)).unwrap();
    let third = hers.mount("third", &["-o", "no_allow_other", "--map-owner", "none"]);
    assert_eq!(owner(third.path("hers/file")).0, 1000);
    // What an administrator of the cell gives away is given away, by the number of this machine.
    let whole = hers.site.mount_with("whole", &pairs);
    chown(whole.path("hers/file"), Some(54_322), None).unwrap();
    assert_eq!(owner(whole.path("hers/file")).0, 54_322);
    soon("others see it", || owner(third.path("hers/file")).0 == 1001);
    for mounted in [first, second, third, whole] {
        mounted.stop();
    }
}
