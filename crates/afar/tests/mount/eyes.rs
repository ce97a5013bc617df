//! What a mount shows of itself: the folder `.afar` at its top.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::site::{CELL, Site, can_mount, is_mounted, soon, told};

const STRANGER: u32 = 54_323;

/// Reads lines until one has all of these.
fn read_until(log: &mut File, texts: &[&str]) -> String {
    let (mut seen, mut piece) = (String::new(), vec![0; 65_536]);
    let begun = Instant::now();
    loop {
        match log.read(&mut piece) {
            Ok(0) => panic!("it ended: {seen}"),
            Ok(length) => seen.push_str(std::str::from_utf8(&piece[..length]).unwrap()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{error}"),
        }
        let mut lines = seen.lines();
        if let Some(line) = lines.find(|line| texts.iter().all(|text| line.contains(text))) {
            return line.to_owned();
        }
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "no {texts:?} in {seen}"
        );
    }
}

fn not_waiting(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let options = options
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    options.open(path).unwrap()
}

/// A number of the metrics.
fn metric(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let value = lines.find_map(|rest| rest.strip_prefix(' '));
    value
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        .parse()
        .unwrap()
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_mount_tells_its_numbers_and_each_request_in_a_hidden_folder() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.91");
    let mount = site.mount("a");
    let folder = mount.path(".afar");
    let names = |path: &Path| {
        let entries = fs::read_dir(path).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let top = folder.parent().unwrap();
    assert!(!names(top).iter().any(|name| name == ".afar"));
    let listed = names(&folder);
    assert!(listed.iter().any(|name| name == "accesslog"), "{listed:?}");
    assert!(listed.iter().any(|name| name == "stats"), "{listed:?}");

    assert!(listed.iter().any(|name| name == "pending"), "{listed:?}");
    let pending = fs::read_to_string(folder.join("pending")).unwrap();
    assert!(pending.ends_with('\n'), "{pending}");
    assert_eq!(fs::read_to_string(folder.join("conflicts")).unwrap(), "");
    let shown = site.say(&["fs", "conflicts", top.to_str().unwrap()]);
    assert_eq!(shown, "no conflicts\n");
    let shown = site.say(&["fs", "conflicts", top.to_str().unwrap(), "--json"]);
    assert_eq!(shown, "");

    let stats = || fs::read_to_string(folder.join("stats")).unwrap();
    let before = stats();
    fs::write(mount.path("x"), [7; 5000]).unwrap();
    fs::metadata(mount.path("none")).unwrap_err();
    let after = stats();
    let grown = |name: &str| metric(&after, name) - metric(&before, name);
    assert_eq!(grown("afar_mount_written_bytes_total"), 5000);
    assert_eq!(
        grown("afar_mount_operation_seconds_count{operation=\"create\"}"),
        1
    );
    assert!(grown("afar_mount_errors_total{operation=\"lookup\"}") >= 1);
    assert!(metric(&after, "afar_cache_limit_bytes") > 0);

    let mut log = not_waiting(&folder.join("accesslog"));
    let empty = log.read(&mut [0; 100]).unwrap_err();
    assert_eq!(empty.kind(), ErrorKind::WouldBlock);
    fs::create_dir(mount.path("a\nb\u{1b}[2J \"c\"")).unwrap();
    let line = read_until(&mut log, &["mkdir", "OK"]);
    assert!(line.contains("(1,\"a\\nb\\u{1b}[2J \\\"c\\\"\")"), "{line}");
    assert!(line.contains("[uid:0,gid:0,pid:"), "{line}");
    assert!(line.ends_with(" us>"), "{line}");
    fs::metadata(mount.path("none")).unwrap_err();
    read_until(
        &mut log,
        &["lookup (1,\"none\")", "error 2 (No such file or directory)"],
    );
    // A second reader has what happens from now on; one that does not read holds up nothing.
    let _idle = not_waiting(&folder.join("accesslog"));
    let mut second = not_waiting(&folder.join("accesslog"));
    fs::write(mount.path("y"), b"abc").unwrap();
    read_until(&mut second, &["write (", "OK (3)"]);

    // Nothing in there can be changed, and nothing takes its place.
    for name in ["accesslog", "stats"] {
        let error = fs::write(folder.join(name), b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{name}");
        fs::remove_file(folder.join(name)).unwrap_err();
    }
    fs::write(folder.join("new"), b"x").unwrap_err();
    fs::create_dir(&folder).unwrap_err();
    fs::remove_dir(&folder).unwrap_err();
    fs::rename(mount.path("x"), folder.join("x")).unwrap_err();
    fs::rename(&folder, mount.path("z")).unwrap_err();

    // Of others it is what AFS has.
    let as_stranger = |program: &str, path: &Path| {
        let mut command = Command::new(program);
        command
            .uid(STRANGER)
            .gid(STRANGER)
            .current_dir("/")
            .arg(path);
        command.output().unwrap()
    };
    // With --localauth the mount is this user's alone.
    let refused = as_stranger("ls", &folder);
    assert!(!refused.status.success(), "{}", told(&refused));
    mount.stop();
}

/// The names of a mount's metrics and their kinds, as a page or a mount has them.
fn metrics<'a>(
    lines: impl Iterator<Item = &'a str>,
    read: impl Fn(&'a str) -> Option<(&'a str, &'a str)>,
) -> BTreeSet<(String, String)> {
    let of_mount = |name: &str| {
        let begins = ["afar_mount_", "afar_cache_", "afar_process_"];
        // There is none before a call to a server has failed.
        name != "afar_mount_call_errors_total" && begins.iter().any(|begin| name.starts_with(begin))
    };
    let found = lines.filter_map(read);
    let found = found.filter(|(name, _)| of_mount(name));
    found
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect()
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn processes_are_shown_while_somebody_looks_and_the_page_names_what_there_is() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.94");
    let mount = site.mount("a");
    fs::write(mount.path("file"), [7; 5000]).unwrap();
    let stats = || fs::read_to_string(mount.path(".afar/stats")).unwrap();
    assert!(!stats().contains("\nafar_process_"));

    // A process reads while `afar top` looks.
    let script =
        "while :; do dd if=\"$0\" of=/dev/null bs=1000 iflag=direct status=none; sleep 0.02; done";
    let mut reader = Command::new("sh");
    let file = mount.path("file");
    let mut reader = reader.args(["-c", script]).arg(&file).spawn().unwrap();
    let place = mount.path("");
    let place = place.to_str().unwrap().trim_end_matches('/').to_owned();
    let words = [
        "top",
        "mounts",
        "--json",
        "--interval",
        "1",
        "--mount",
        &place,
    ];
    let shown = site.say(&words);
    let rows: Vec<serde_json::Value> = shown
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let sum = |key: &str| -> f64 { rows.iter().filter_map(|row| row[key].as_f64()).sum() };
    assert!(rows.iter().any(|row| row["name"] == "dd"), "{shown}");
    assert!(
        rows.iter().all(|row| row["mount"] == place.as_str()),
        "{shown}"
    );
    assert!(sum("read_per_second") > 1.0, "{shown}");
    assert!(sum("read_bytes_per_second") > 1000.0, "{shown}");
    let table = site.say(&[
        "top",
        "mounts",
        "--once",
        "--interval",
        "0.5",
        "--mount",
        &place,
    ]);
    assert!(
        table.contains("PROCESS") && table.contains("HIT %"),
        "{table}"
    );
    soon("nobody is counted any more", || {
        !stats().contains("\nafar_process_")
    });

    // All metrics are on the page, and no others.
    let _look = File::open(mount.path(".afar/top")).unwrap();
    soon("a process is counted", || {
        stats().contains("\nafar_process_written_bytes_total")
    });
    reader.kill().unwrap();
    reader.wait().unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin/eyes.md");
    let page = fs::read_to_string(page).unwrap();
    let listed = metrics(page.lines(), |line| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        Some((name, rest.split(' ').next()?))
    });
    let text = stats();
    let told = metrics(text.lines(), |line| {
        line.strip_prefix("# TYPE ")?.split_once(' ')
    });
    assert_eq!(listed, told);
    let wrong = site
        .command()
        .args(["top", "mounts", "--mount", "/tmp"])
        .output()
        .unwrap();
    assert!(told_of(&wrong, "no mount of afar"), "{}", told_text(&wrong));
    mount.stop();
}

fn told_text(output: &Output) -> String {
    told(output)
}

fn told_of(output: &Output, text: &str) -> bool {
    !output.status.success() && told(output).contains(text)
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_process_that_waits_is_shown_with_its_server() {
    if !can_mount() {
        return;
    }
    let mut site = Site::new("127.84.0.95");
    // Otherwise it makes the directory itself, and waits for nobody.
    let mount = site.mount_with("a", &["--write-through"]);
    // Not at the top, where the kernel lets nobody look a name up while one is made.
    fs::create_dir(mount.path("dir")).unwrap();
    fs::metadata(mount.path(".afar")).unwrap();
    let place = mount.path("");
    let place = place.to_str().unwrap().trim_end_matches('/').to_owned();
    site.stop();
    // The mount waits for the server, which comes back.
    let mut waiting = Command::new("mkdir")
        .arg(mount.path("dir/new"))
        .spawn()
        .unwrap();
    let mut shown = String::new();
    soon("the server is shown for which it waits", || {
        shown = site.say(&[
            "top",
            "mounts",
            "--json",
            "--interval",
            "0.5",
            "--mount",
            &place,
        ]);
        let mut rows = shown
            .lines()
            .map(|line| -> serde_json::Value { serde_json::from_str(line).unwrap() });
        rows.any(|row| {
            row["name"] == "mkdir"
                && row["waits"]
                    .as_str()
                    .is_some_and(|server| server.starts_with("127.84.0.95:"))
                && row["waits_seconds"].as_f64().is_some()
        })
    });
    site.start();
    assert!(waiting.wait().unwrap().success());
    mount.stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_path_is_told_with_what_is_cached_of_it() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.96");
    let mount = site.mount("a");
    let file = mount.path("file");
    fs::write(&file, [7; 5000]).unwrap();
    let info = |path: &Path| -> serde_json::Value {
        let text = site.say(&["fs", "pathinfo", path.to_str().unwrap(), "--json"]);
        serde_json::from_str(&text).unwrap()
    };
    let fid = |path: &Path| site.say(&["fs", "getfid", path.to_str().unwrap(), "--localauth"]);
    let told = info(&file);
    assert_eq!(told["cell"], CELL);
    assert_eq!(told["volume"]["name"], "root.cell");
    assert_eq!(told["volume"]["type"], "RW");
    assert_eq!(
        (&told["kind"], &told["length"]),
        (&"file".into(), &5000.into())
    );
    assert!(fid(&file).contains(told["fid"].as_str().unwrap()), "{told}");
    assert_eq!(told["cached"]["clean_bytes"], 5000, "{told}");
    assert_eq!(told["cached"]["dirty_bytes"], 0);
    assert!(
        told["promised_seconds"]
            .as_u64()
            .is_some_and(|left| left > 0),
        "{told}"
    );
    assert_eq!(told["servers"][0]["in_use"], true, "{told}");
    assert_eq!(told["is_mount_point"], false);
    // What is written and not closed is dirty.
    let mut open = OpenOptions::new().write(true).open(&file).unwrap();
    std::io::Write::write_all(&mut open, &[8; 100]).unwrap();
    // To begin a program would close the file once, and so store it.
    let mut text = vec![0; 4096];
    let length = rustix::fs::getxattr(&file, "afs.pathinfo", &mut text[..]).unwrap();
    let text = String::from_utf8_lossy(&text[..length]);
    assert!(text.contains("\ndirty 100 1\n"), "{text}");
    drop(open);
    assert_eq!(info(&file)["cached"]["dirty_bytes"], 0);
    let version = |told: &serde_json::Value| told["data_version"].as_u64().unwrap();
    assert!(version(&info(&file)) > version(&told));
    let text = site.say(&["fs", "pathinfo", mount.path("").to_str().unwrap()]);
    assert!(text.contains("  kind          directory\n"), "{text}");
    // Without a mount it is said what is missing, and what to ask instead.
    let outside = site
        .command()
        .args(["fs", "pathinfo", "/tmp"])
        .output()
        .unwrap();
    assert!(
        told_of(&outside, "in no mount of afar"),
        "{}",
        told_text(&outside)
    );
    mount.stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn others_find_what_afs_has_by_the_name_of_the_folder() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.92");
    let open = |path: &Path| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, mode).unwrap();
    };
    open(&site.path("."));
    let root = format!("/afs/{CELL}");
    site.say(&["mkdir", &format!("{root}/.afar"), "--localauth"]);
    site.say(&["fs", "setacl", &root, "system:anyuser", "rl", "--localauth"]);
    let mount = site.mount_with("a", &["-o", "allow_other"]);
    let folder = mount.path(".afar");
    let strangers = |program: &[&str]| {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(&folder);
        command.uid(STRANGER).gid(STRANGER).current_dir("/");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", told(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    // In turns, as the kernel keeps one answer for all.
    for _ in 0..3 {
        let owner = fs::read_dir(&folder).unwrap().count();
        assert!(owner >= 2, "{owner}");
        assert_eq!(strangers(&["ls", "-A"]), "");
    }
    // By the number that they might have from an earlier look they get in no more than by the name.
    let inode = strangers(&["stat", "-c", "%i"]);
    let own = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&folder).unwrap());
    assert_ne!(inode.trim(), own.to_string());
    mount.stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn readers_wait_for_lines_and_do_not_hold_up_the_end() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.93");
    let reader = |path: &Path| {
        let mut command = Command::new("cat");
        let child = command.arg(path).stdout(Stdio::null()).spawn().unwrap();
        let open = format!("/proc/{}/fd", child.id());
        soon("a reader has opened it", || {
            let open = fs::read_dir(&open).into_iter().flatten().flatten();
            let mut places = open.filter_map(|open| fs::read_link(open.path()).ok());
            places.any(|place| place == path)
        });
        child
    };
    let mount = site.mount("a");
    let log = mount.path(".afar/accesslog");
    // A reader that is killed goes at once, though there is nothing to read.
    let mut killed = reader(&log);
    killed.kill().unwrap();
    killed.wait().unwrap();
    // Others end with the mount.
    let mut waiting = reader(&log);
    let begun = Instant::now();
    mount.stop();
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
    assert!(waiting.wait().unwrap().success());

    // So do those of a mount that was detached.
    let mut mount = site.mount("a");
    let place = mount.path("");
    let mut waiting = reader(&mount.path(".afar/accesslog"));
    site.say(&["umount", "--lazy", place.to_str().unwrap()]);
    assert!(!is_mounted(&place));
    assert!(waiting.wait().unwrap().success());
    assert!(mount.process.end());
}
