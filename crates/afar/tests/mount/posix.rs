//! A foreign suite for file systems, pjdfstest, on a mount: what differs from POSIX is what AFS cannot do.
//!
//! `cargo xtask posix` installs the suite and runs this. `pjdfstest.exclude` has the cases that AFS
//! cannot pass, each with the reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::site::{Site, can_mount};

const EXCLUDED: &str = include_str!("pjdfstest.exclude");
/// What the suite is told. Sleeps are longer than AFS's unit of time; users are some that all systems
/// have.
const SETTINGS: &str = r#"
[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 1.1
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Passed,
    Failed(String),
    Skipped,
}

/// The suite's program, if it is there.
fn suite() -> Option<PathBuf> {
    let named = std::env::var_os("AFAR_TEST_PJDFSTEST").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).map(|folder| folder.join("pjdfstest"));
    let found = named.into_iter().chain(installed).find(|it| it.exists());
    if found.is_none() {
        eprintln!("skipped: pjdfstest is not installed; `cargo xtask posix` does that");
    }
    found
}

/// Runs the suite in a folder; how each case ended. Nothing that a case leaves behind is in the way of
/// the next one.
fn run(program: &Path, settings: &Path, folder: &Path, other: &Path) -> BTreeMap<String, End> {
    let output = Command::new(program)
        .arg("--configuration-file")
        .arg(settings)
        .arg("--path")
        .arg(folder)
        .arg("--secondary-fs")
        .arg(other)
        .env("NO_COLOR", "1")
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut ends = BTreeMap::new();
    let mut last = String::new();
    for line in text.lines() {
        let (case, end) = line.rsplit_once(' ').unwrap_or_default();
        let end = match end {
            "ok" => End::Passed,
            "FAILED" => End::Failed(String::new()),
            "skipped" => End::Skipped,
            _ => {
                // What is said of the case before.
                if let Some(End::Failed(why)) = ends.get_mut(&last) {
                    *why += line.trim();
                    *why += "; ";
                }
                continue;
            }
        };
        last = case.trim().to_owned();
        ends.insert(last.clone(), end);
    }
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(ends.len() > 300, "it ended early: {text}{err}");
    ends
}

/// A folder below another one whose path is as long as the suite needs it: at some lengths it fails to
/// make the longest path there may be, and sockets have short paths only.
fn folder(top: &Path) -> PathBuf {
    const LENGTH: usize = 40;
    /// Lengths that differ by this are the same to the suite, which makes components of half the
    /// greatest length.
    const SAME: usize = 127;
    let length = top.as_os_str().len();
    let more = (LENGTH + SAME * length - length) % SAME;
    let folder = top.join("x".repeat(more));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Cases that are to fail, with the reasons.
fn excluded() -> BTreeMap<&'static str, &'static str> {
    let lines = EXCLUDED.lines().filter(|line| !line.is_empty());
    let cases = lines.filter(|line| !line.starts_with('#'));
    let case = |line: &'static str| {
        let (case, reason) = line.split_once("  # ").unwrap();
        (case.trim(), reason)
    };
    cases.map(case).collect()
}

#[test]
fn each_excluded_case_has_one_line_and_a_reason() {
    let lines = EXCLUDED.lines();
    let cases = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let excluded = excluded();
    assert_eq!(cases.count(), excluded.len());
    for (case, reason) in excluded {
        assert!(case.contains("::") && reason.len() > 10, "{case}");
    }
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn pjdfstest_fails_only_where_afs_differs() {
    if !can_mount() {
        return;
    }
    let Some(program) = suite() else {
        return;
    };
    let site = Site::new("127.84.0.71");
    let mount = site.mount_with("a", &["-o", "allow_other"]);
    let settings = site.path("settings.toml");
    fs::write(&settings, SETTINGS).unwrap();
    let folder = folder(&mount.path(""));
    let ends = run(&program, &settings, &folder, &site.place("local"));
    let excluded = excluded();
    let mut wrong = Vec::new();
    let mut counts = [0; 3];
    for (case, end) in &ends {
        let reason = excluded.get(case.as_str());
        match (end, reason) {
            (End::Passed, None) => counts[0] += 1,
            (End::Failed(_), Some(_)) => counts[1] += 1,
            (End::Skipped, None) => counts[2] += 1,
            (End::Failed(why), None) => wrong.push(format!("{case} failed: {why}")),
            (_, Some(reason)) => {
                wrong.push(format!("{case} ended as {end:?}, excluded since {reason}"));
            }
        }
    }
    let unknown = excluded.keys().filter(|case| !ends.contains_key(**case));
    wrong.extend(unknown.map(|case| format!("{case} is excluded and not there")));
    let [passed, excluded, skipped] = counts;
    eprintln!("{passed} passed, {excluded} failed as AFS has it, {skipped} do not apply");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    mount.stop();
}
