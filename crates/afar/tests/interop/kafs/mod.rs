//! Linux's own client on servers of afar, beside clients of afar.
//!
//! One guest is started for all of this, as a start takes longer than the rest. So the parts that fail
//! are counted, and the others done nevertheless.

mod beside;
mod guest;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use afar_types::Rights;
use sha2::{Digest, Sha256};

use crate::client::{bytes, network};
use crate::content::Content;
use crate::net::Net;
use crate::place::{CELL, Place};
use crate::server::Ours;
use beside::{Beside, Mount};
use guest::Guest;

/// How long until the other side sees a change, on an emulated machine beside busy ones. A promise
/// lasts for hours, so what is not seen by then has not been told.
const SOON: Duration = Duration::from_secs(20);
/// What everybody may change, as the guest sees it.
const WORK: &str = "/afs/test.example/work";
/// Takes an exclusive lock on a file without waiting, says so, and holds it until /run/go is there;
/// then appends a line and closes it. Words: the file; `flock` or `fcntl`.
const LOCKER: &str = r#"
use Fcntl qw(:flock F_SETLK F_WRLCK);
my ($path, $kind) = @ARGV;
open(my $file, "+<", $path) or die "open: $!\n";
my $wanted = pack("s s x![q] q q i x![q]", F_WRLCK, 0, 0, 0, 0);
my $got = $kind eq "flock" ? flock($file, LOCK_EX | LOCK_NB) : fcntl($file, F_SETLK, $wanted);
$got or die "lock: $!\n";
open(my $mark, ">", "/run/locked") or die; close($mark);
select(undef, undef, undef, 0.05) until -e "/run/go";
seek($file, 0, 2); print $file "appended by $kind\n";
close($file) or die "close: $!\n";
"#;

struct Stage<'a> {
    net: &'a Net,
    guest: &'a Guest<'a>,
    beside: Beside<'a>,
    place: Place,
    mount: Mount,
}

impl Stage<'_> {
    /// A script whose folder is that of the volume.
    fn guest(&self, script: &str) -> String {
        self.guest.ok(&format!("set -e; cd {WORK}; {script}"))
    }

    /// Whether a test holds for the guest.
    fn holds(&self, test: &str) -> bool {
        self.guest.run(&format!("cd {WORK} && {test}")).0 == 0
    }

    /// Waits until a test holds for the guest.
    fn guest_sees(&self, test: &str) {
        soon(test, || self.holds(test));
    }

    /// A path in the volume on the mount.
    fn at(&self, name: &str) -> std::path::PathBuf {
        self.mount.path("work").join(name)
    }

    /// The path of a command without a mount.
    fn remote(name: &str) -> String {
        format!("/afs/{CELL}/work/{name}")
    }
}

fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < SOON, "not seen: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a server counts of callbacks.
fn callbacks(metrics: &std::path::Path) -> String {
    let Ok(mut stream) = UnixStream::connect(metrics) else {
        return "the server shows no metrics".to_owned();
    };
    let mut text = String::new();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .and_then(|()| stream.read_to_string(&mut text))
        .unwrap();
    let of_callbacks =
        |line: &&str| line.starts_with("afar_callback") || line.starts_with("afar_host");
    let lines: Vec<&str> = text.lines().filter(of_callbacks).collect();
    lines.join("\n")
}

fn read(path: impl AsRef<std::path::Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
#[ignore = "needs an emulated machine with Linux's own client"]
fn linux_s_own_client_works_beside_ours() {
    let Some(image) = guest::image() else {
        return;
    };
    let net = network();
    let mut server = Some(Ours::start(&net, true));
    let place = Place::new(&net, "cli", net.address("srv"));
    let root = Content::new(Rights(Rights::READ.0 | Rights::LOOKUP.0));
    let root = root
        .mount("work", "#work.")
        .mount("copy", "#work.readonly.");
    root.dump(&place.file("root.dump"));
    Content::new(Rights::ALL).dump(&place.file("work.dump"));
    place.ok("vos restore srv a root.cell -file root.dump -noauth");
    place.ok("vos restore srv a work -file work.dump -noauth");
    let guest = Guest::start(&net, &image);
    let beside = Beside::new(&net);
    let mount = beside.mount();
    let stage = Stage {
        net: &net,
        guest: &guest,
        beside,
        place,
        mount,
    };
    let mut failed = Vec::new();
    let metrics = server.as_ref().and_then(Ours::metrics);
    let mut part = |name: &'static str, work: &mut dyn FnMut()| {
        let begun = Instant::now();
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            failed.push(name);
            // Whether the guest was told, and has answered.
            let told = metrics.as_deref().map(callbacks);
            eprintln!("{}", told.unwrap_or_default());
        }
        eprintln!("{name}: {:.1?}", begun.elapsed());
    };
    part("files", &mut || files(&stage));
    part("data", &mut || what_is_large_arrives_whole(&stage));
    part("seen by the guest", &mut || the_guest_sees(&stage));
    part("seen by ours", &mut || ours_see(&stage));
    part("kept open", &mut || kept_open(&stage));
    part("locks", &mut || locks(&stage));
    part("release", &mut || release(&stage));
    part("restart", &mut || {
        server = server.take().map(|server| server.restart(stage.net));
        restarted(&stage);
    });
    assert!(failed.is_empty(), "{failed:?}");
    drop(stage);
    guest.stop();
    server.unwrap().stop();
}

/// What programs do with files, by the guest, and what comes of it.
fn files(stage: &Stage<'_>) {
    stage.guest(
        "mkdir ops; cd ops
        echo first >file; test \"$(cat file)\" = first
        echo second >>file; test \"$(wc -l <file)\" = 2
        printf X | dd of=file bs=1 seek=3 conv=notrunc 2>/dev/null; test \"$(head -n 1 file)\" = firXt
        truncate -s 5 file; test \"$(cat file)\" = firXt
        truncate -s 5000 file; test \"$(stat -c %s file)\" = 5000
        chmod 640 file; test \"$(stat -c %a file)\" = 640
        touch -d @1000000000 file; test \"$(stat -c %Y file)\" = 1000000000
        mv file moved; test ! -e file
        ln moved second; test \"$(stat -c %h moved)\" = 2
        ln -s moved link; test \"$(readlink link)\" = moved; test \"$(stat -L -c %s link)\" = 5000
        mkdir dir dir/below; echo x >dir/below/leaf
        ! rmdir dir 2>/dev/null
        mv dir/below .; test -e below/leaf
        rmdir dir
        echo old >replaced; echo new >replacing; mv replacing replaced; test \"$(cat replaced)\" = new
        echo x >removed; rm removed; test ! -e removed
        exec 5<replaced; rm replaced; test \"$(cat <&5)\" = new; exec 5<&-
        i=0; mkdir many; while [ $i -lt 300 ]; do : >many/entry-$i; i=$((i + 1)); done
        test \"$(ls many | wc -l)\" = 300; rm many/entry-1*; test \"$(ls many | wc -l)\" = 189
        ! mkdir many 2>/dev/null; ! cat nothing 2>/dev/null
        df . >/dev/null; sync",
    );
    let at = |name: &str| stage.at("ops").join(name);
    let metadata = fs::metadata(at("moved")).unwrap();
    assert_eq!(metadata.len(), 5000);
    assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
    assert_eq!((metadata.mtime(), metadata.nlink()), (1_000_000_000, 2));
    assert_eq!(&fs::read(at("second")).unwrap()[..6], b"firXt\0");
    assert_eq!(fs::read_link(at("link")).unwrap().to_str(), Some("moved"));
    assert_eq!(read(at("below/leaf")), "x\n");
    assert_eq!(fs::read_dir(at("many")).unwrap().count(), 189);
    let mut names: Vec<String> = fs::read_dir(at(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["below", "link", "many", "moved", "second"]);
}

/// Files of many packets, both ways.
fn what_is_large_arrives_whole(stage: &Stage<'_>) {
    let sum = |data: &[u8]| format!("{:x}", Sha256::digest(data));
    let data = bytes(1, (5 << 20) + 7);
    fs::write(stage.at("ours"), &data).unwrap();
    let seen = stage.guest("sha256sum <ours");
    assert_eq!(seen.split_whitespace().next(), Some(sum(&data).as_str()));
    let made = stage.guest(
        "head -c 6000001 /dev/urandom >/run/data; cp /run/data theirs; sha256sum </run/data",
    );
    let stored = fs::read(stage.at("theirs")).unwrap();
    assert_eq!(stored.len(), 6_000_001);
    assert_eq!(made.split_whitespace().next(), Some(sum(&stored).as_str()));
    // In the middle, and past the end.
    stage.guest(
        "printf middle | dd of=theirs bs=1 seek=3000000 conv=notrunc 2>/dev/null
        printf end | dd of=theirs bs=1 seek=6500000 conv=notrunc 2>/dev/null",
    );
    soon("the new end", || {
        fs::metadata(stage.at("theirs")).unwrap().len() == 6_500_003
    });
    let changed = fs::read(stage.at("theirs")).unwrap();
    assert_eq!(&changed[3_000_000..3_000_006], b"middle");
    assert_eq!(&changed[..3_000_000], &stored[..3_000_000]);
    assert_eq!(&changed[3_000_006..6_000_001], &stored[3_000_006..]);
    assert!(changed[6_000_001..6_500_000].iter().all(|byte| *byte == 0));
    assert_eq!(&changed[6_500_000..], b"end");
}

/// The guest has things in its cache; a mount and commands change them.
fn the_guest_sees(stage: &Stage<'_>) {
    fs::create_dir(stage.at("shared")).unwrap();
    let at = |name: &str| stage.at("shared").join(name);
    fs::write(at("file"), "0").unwrap();
    stage.guest_sees("test \"$(cat shared/file)\" = 0");
    for round in 0..3 {
        let name = |kind: &str| format!("{kind}-{round}");
        stage.guest("ls -l shared >/dev/null; cat shared/file >/dev/null");
        fs::write(at("file"), format!("mount {round}")).unwrap();
        stage.guest_sees(&format!("test \"$(cat shared/file)\" = 'mount {round}'"));
        assert!(!stage.holds(&format!("test -e shared/new-{round}")));
        fs::write(at(&name("new")), "x").unwrap();
        stage.guest_sees(&format!("test -e shared/new-{round}"));
        fs::rename(at(&name("new")), at(&name("moved"))).unwrap();
        stage.guest_sees(&format!(
            "test -e shared/moved-{round} -a ! -e shared/new-{round}"
        ));
        fs::create_dir(at(&name("dir"))).unwrap();
        symlink("file", at(&name("link"))).unwrap();
        stage.guest_sees(&format!(
            "test -d shared/dir-{round} -a -L shared/link-{round}"
        ));
        let mode = 0o600 + round;
        fs::set_permissions(at("file"), fs::Permissions::from_mode(mode)).unwrap();
        stage.guest_sees(&format!("test $(stat -c %a shared/file) = {mode:o}"));
        fs::remove_file(at(&name("moved"))).unwrap();
        fs::remove_file(at(&name("link"))).unwrap();
        fs::remove_dir(at(&name("dir"))).unwrap();
        stage.guest_sees("test \"$(ls shared)\" = file");
        let shorter = OpenOptions::new().write(true).open(at("file")).unwrap();
        shorter.set_len(2).unwrap();
        drop(shorter);
        stage.guest_sees("test $(stat -c %s shared/file) = 2");
        // Without a mount.
        let text = format!("command {round}");
        stage.beside.put(&text, &Stage::remote("shared/file"));
        stage.guest_sees(&format!("test \"$(cat shared/file)\" = '{text}'"));
        let (file, other) = (Stage::remote("shared/file"), Stage::remote("shared/other"));
        stage.beside.ok(&["mv", &file, &other]);
        stage.guest_sees("test -e shared/other -a ! -e shared/file");
        stage.beside.ok(&["mv", &other, &file]);
        stage.guest_sees("test -e shared/file -a ! -e shared/other");
        let folder = Stage::remote("shared/folder");
        stage.beside.ok(&["mkdir", &folder]);
        stage.guest_sees("test -d shared/folder");
        stage.beside.ok(&["rm", "-r", &folder]);
        stage.guest_sees("test ! -e shared/folder");
    }
}

/// A mount has things in its cache; the guest changes them.
fn ours_see(stage: &Stage<'_>) {
    fs::create_dir(stage.at("back")).unwrap();
    let at = |name: &str| stage.at("back").join(name);
    fs::write(at("file"), "0").unwrap();
    stage.guest_sees("test -e back/file");
    for round in 0..3 {
        let name = |kind: &str| format!("{kind}-{round}");
        assert!(!read(at("file")).is_empty() && fs::read_dir(at("")).unwrap().count() == 1);
        stage.guest(&format!("printf 'guest {round}' >back/file"));
        soon("data", || read(at("file")) == format!("guest {round}"));
        let file = Stage::remote("back/file");
        stage.beside.ok(&["ls", "-l", &file]);
        assert!(!at(&name("new")).exists());
        stage.guest(&format!("echo x >back/new-{round}"));
        soon("a new name", || at(&name("new")).exists());
        stage.guest(&format!("mv back/new-{round} back/moved-{round}"));
        soon("a new place", || {
            at(&name("moved")).exists() && !at(&name("new")).exists()
        });
        stage.guest(&format!(
            "mkdir back/dir-{round}; ln -s file back/link-{round}"
        ));
        soon("a directory and a link", || {
            at(&name("dir")).is_dir() && at(&name("link")).is_symlink()
        });
        let mode = 0o600 + round;
        stage.guest(&format!("chmod {mode:o} back/file"));
        soon("a mode", || {
            fs::metadata(at("file")).unwrap().permissions().mode() & 0o777 == mode
        });
        stage.guest(&format!(
            "rm back/moved-{round} back/link-{round}; rmdir back/dir-{round}; truncate -s 3 back/file"
        ));
        soon("removals and a cut", || {
            fs::read_dir(at("")).unwrap().count() == 1 && read(at("file")) == "gue"
        });
    }
}

/// Files that stay open on one side while the other changes them.
fn kept_open(stage: &Stage<'_>) {
    fs::write(stage.at("open"), "before").unwrap();
    stage.guest_sees("test \"$(cat open)\" = before");
    std::thread::scope(|scope| {
        let script = "rm -f /run/opened; exec 5<open; cat <&5; : >/run/opened
            i=0; while ! grep -q after /proc/self/fd/5 && [ $i -lt 200 ]; do
                sleep 0.1; i=$((i + 1)); done
            cat /proc/self/fd/5";
        let reader = scope.spawn(|| stage.guest(script));
        stage.guest_sees("test -e /run/opened");
        fs::write(stage.at("open"), "after all").unwrap();
        assert_eq!(reader.join().unwrap(), "beforeafter all");
    });
    let mut open = File::open(stage.at("open")).unwrap();
    stage.guest("printf 'by the guest' >open");
    soon("data in an open file", || {
        let mut text = String::new();
        open.read_to_string(&mut text).unwrap();
        let mut again = [0; 12];
        open.read_exact_at(&mut again, 0).is_ok() && &again == b"by the guest"
    });
}

/// Locks hold between the guest and a mount, and what was written under them is seen.
fn locks(stage: &Stage<'_>) {
    fs::write(stage.at("locked"), "begun\n").unwrap();
    let open = || {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .append(true)
            .open(stage.at("locked"))
            .unwrap()
    };
    let mut expected = "begun\n".to_owned();
    stage.guest(&format!("cat >/run/locker <<'END'\n{LOCKER}\nEND"));
    for kind in ["flock", "fcntl"] {
        let lock = format!("perl /run/locker {WORK}/locked {kind}");
        stage.guest("rm -f /run/locked /run/go; cat locked >/dev/null");
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| stage.guest(&lock));
            stage.guest_sees("test -e /run/locked");
            let mine = open();
            assert!(mine.try_lock().is_err(), "{kind}: the guest has it");
            stage.guest(": >/run/go");
            holder.join().unwrap();
            soon("it is given up", || mine.try_lock().is_ok());
            expected.push_str(&format!("appended by {kind}\n"));
            assert_eq!(read(stage.at("locked")), expected);
            // The other way round; /run/go is there, so nothing waits.
            let (status, said) = stage.guest.run(&lock);
            assert!(status != 0 && said.contains("lock: "), "{kind}: {said}");
            (&mine).write_all(b"appended by a mount\n").unwrap();
            expected.push_str("appended by a mount\n");
            mine.unlock().unwrap();
        });
        soon("it is given up", || stage.guest.run(&lock).0 == 0);
        expected.push_str(&format!("appended by {kind}\n"));
        soon("what was appended", || read(stage.at("locked")) == expected);
        assert_eq!(stage.guest("cat locked"), expected.trim_end());
    }
}

/// A copy that is released shows what it shows, at once.
fn release(stage: &Stage<'_>) {
    fs::write(stage.at("released"), "one").unwrap();
    stage.place.ok("vos addsite srv a work -noauth");
    stage.place.ok("vos release work -noauth");
    let copy = format!("/afs/{CELL}/copy/released");
    let shows = |text: &str| stage.holds(&format!("test \"$(cat {copy})\" = '{text}'"));
    // A client may have known that there was no copy.
    soon("the copy", || shows("one"));
    assert!(!stage.holds(&format!("echo x >{copy}")), "it is read-only");
    for text in ["two, longer", "3"] {
        let before = stage.guest.ok(&format!("cat {copy}"));
        fs::write(stage.at("released"), text).unwrap();
        stage.guest_sees(&format!("test \"$(cat released)\" = '{text}'"));
        assert!(shows(&before), "not released yet");
        stage.place.ok("vos release work -noauth");
        soon("the release", || shows(text));
    }
}

/// The servers were restarted: the guest goes on, and sees what others change.
fn restarted(stage: &Stage<'_>) {
    stage.guest("printf 'after the restart' >file; test \"$(cat file)\" = 'after the restart'");
    soon("what was written", || {
        read(stage.at("file")) == "after the restart"
    });
    for round in 0..2 {
        let text = format!("others {round}");
        stage.beside.put(&text, &Stage::remote("file"));
        stage.guest_sees(&format!("test \"$(cat file)\" = '{text}'"));
        stage
            .beside
            .put(&text, &Stage::remote(&format!("new-{round}")));
        stage.guest_sees(&format!("test -e new-{round}"));
    }
}
