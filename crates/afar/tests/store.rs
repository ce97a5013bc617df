//! `afar store` as its user sees it: output, errors, exit codes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use afar_store::segment::Compression;
use afar_store::{
    NewClone, NewVnode, NewVolume, Partition, PartitionOptions, StoreOptions, Volume,
};
use afar_types::{PtsId, VolumeId, VolumeType};
use serde_json::Value;
use tempfile::TempDir;

fn afar(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_afar"));
    command.arg("store").args(args).stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a command that must do well, and gives its output.
fn done(args: &[&str]) -> String {
    let output = afar(args);
    assert!(
        output.status.success(),
        "{args:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The same, as JSON lines.
fn reports(args: &[&str]) -> Vec<Value> {
    let out = done(&[args, &["--json"]].concat());
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Runs a command that must fail with this exit status, and gives its standard error.
fn refused(args: &[&str], status: i32) -> String {
    let output = afar(args);
    assert_eq!(
        output.status.code(),
        Some(status),
        "{args:?}: {}",
        text(&output.stdout)
    );
    text(&output.stderr)
}

/// A partition in a directory of its own.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        drop(Partition::init(&dir.path().join("vicepa"), &PartitionOptions::default()).unwrap());
        Self { dir }
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn partition(&self) -> String {
        self.file("vicepa")
    }

    fn open(&self) -> Arc<Partition> {
        let path = self.partition();
        Arc::new(Partition::open(Path::new(&path), &PartitionOptions::default()).unwrap())
    }

    /// Three volumes, one of them with two files, in a group with a backup clone; one is offline.
    fn filled() -> Self {
        let place = Self::new();
        let partition = place.open();
        let new = NewVolume::new(VolumeId(536_870_912), "root.cell").max_quota(0);
        let volume = partition.create_volume(&new).unwrap();
        put(&volume, "readme", &b"All is well here. ".repeat(20_000));
        put(&volume, "noise", &noise(200_000));
        let clone = NewClone::new(
            VolumeId(536_870_914),
            "root.cell.backup",
            VolumeType::Backup,
        );
        volume.make_clone(&clone).unwrap();
        let new = NewVolume::new(VolumeId(536_870_915), "user.alice")
            .compression(Compression::Lz4)
            .unfinished();
        let unfinished = partition.create_volume(&new).unwrap();
        let change = afar_store::VolumeChange {
            destroy_me: Some(false),
            offline_message: Some(b"being moved".to_vec()),
            ..afar_store::VolumeChange::default()
        };
        unfinished.change(change).unwrap();
        place
    }
}

fn put(volume: &Volume, name: &str, data: &[u8]) {
    let new = NewVnode::new(PtsId(7), 0o644);
    let made = volume
        .create_file(volume.root(), name.as_bytes(), &new)
        .unwrap();
    volume
        .write(made.vnode.fid, 0, data, &StoreOptions::default())
        .unwrap();
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn read(volume: &Volume, name: &str) -> Vec<u8> {
    let fid = volume.lookup(volume.root(), name.as_bytes()).unwrap();
    volume.read_all(fid, 1 << 20).unwrap()
}

#[test]
fn a_partition_is_made_once() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("vicepb");
    let path = path.to_str().unwrap();
    let said = done(&["init", path]);
    assert_eq!(said, format!("{path}: a partition of format version 3\n"));
    let error = refused(&["init", path], 1);
    assert!(
        error.contains("a new partition needs an empty directory"),
        "{error}"
    );
    let stat = reports(&["stat", path]).remove(0);
    assert_eq!(stat["format_version"], 3);
    assert_eq!(stat["dedup"], false);
    assert_eq!(stat["volumes"]["total"], 0);

    let other = dir.path().join("vicepc");
    let other = other.to_str().unwrap();
    let report = reports(&["init", other, "--dedup"]).remove(0);
    assert_eq!(report["dedup"], true);
    assert!(done(&["stat", other]).contains("dedup on"));
}

#[test]
fn what_is_no_partition_is_told_from_what_is_wrong() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().to_str().unwrap();
    for command in ["stat", "list"] {
        let error = refused(&[command, path], 1);
        assert!(error.contains("`afar store init` creates one"), "{error}");
    }
    for command in ["check", "scrub"] {
        refused(&[command, path], 2);
        refused(&[command], 2);
    }
    fs::write(dir.path().join("format"), "afar-store 999\n").unwrap();
    let error = refused(&["check", path], 2);
    assert!(
        error.contains("version 999") && error.contains("newer afar"),
        "{error}"
    );
}

#[test]
fn a_partition_in_use_is_left_alone() {
    let place = Place::filled();
    let held = place.open();
    for (command, status) in [("stat", 1), ("list", 1), ("check", 2), ("scrub", 2)] {
        let error = refused(&[command, &place.partition()], status);
        assert!(error.contains("in use by another process"), "{error}");
    }
    drop(held);
    done(&["list", &place.partition()]);
}

#[test]
fn volumes_are_listed_as_vos_listvol_does() {
    let place = Place::filled();
    let path = place.partition();
    let out = done(&["list", &path]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], format!("Partition {path}: 3 volumes"));
    assert_eq!(
        lines[1],
        "root.cell                         536870912 RW        550 K On-line"
    );
    assert_eq!(
        lines[2],
        "root.cell.backup                  536870914 BK        550 K On-line"
    );
    assert_eq!(
        lines[3],
        "user.alice                        536870915 RW          2 K Off-line"
    );
    assert_eq!(lines[4], "Total: 2 On-line, 1 Off-line, 1102 K");
    assert_eq!(lines.len(), 5);

    let out = done(&["list", &path, "--name", "*.backup"]);
    assert_eq!(out.lines().count(), 3);
    let long = done(&["list", &path, "--long", "--name", "user.*"]);
    for part in [
        "MaxQuota 5000 K",
        "Compression lz4",
        "Off-line because: being moved",
    ] {
        assert!(long.contains(part), "{part}: {long}");
    }
    let volumes = reports(&["list", &path]);
    assert_eq!(volumes.len(), 3);
    assert_eq!(volumes[0]["backup"], 536_870_914);
    assert_eq!(volumes[0]["files"], 3);
    assert_eq!(volumes[1]["type"], "BK");
    assert_eq!(volumes[1]["read_write"], 536_870_912);
    assert_eq!(volumes[2]["online"], false);
    assert_eq!(volumes[2]["offline_message"], "being moved");

    // One that fails does not hide the others.
    let output = afar(&["list", "/proc/nonexistent", &path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("user.alice"));
}

#[test]
fn stat_tells_what_is_there_and_how_well_it_is_packed() {
    let place = Place::filled();
    let stat = reports(&["stat", &place.partition(), "--full"]).remove(0);
    assert_eq!(stat["volumes"]["read_write"], 2);
    assert_eq!(stat["volumes"]["backup"], 1);
    assert_eq!(stat["volumes"]["offline"], 1);
    assert_eq!(stat["vnodes"], 7);
    let octets = &stat["octets"];
    assert!(octets["live"].as_u64() >= Some(200_000), "{octets}");
    assert!(
        octets["segments"].as_u64() >= octets["live"].as_u64(),
        "{octets}"
    );
    let full = &stat["full"];
    // The clone shares all with its volume.
    assert_eq!(full["files"], 2);
    assert_eq!(full["directories"], 2);
    assert_eq!(full["all"]["plain"], 360_000 + 200_000);
    assert_eq!(full["raw"]["plain"], 200_000);
    assert!(full["all"]["ratio"].as_f64() > Some(2.0), "{full}");
    let said = done(&["stat", &place.partition(), "--full"]);
    assert!(
        said.contains("volumes    3: 2 RW, 0 RO, 1 BK; 1 Off-line"),
        "{said}"
    );
    assert!(said.contains("2.") && said.contains(" to 1"), "{said}");
}

#[test]
fn damage_is_found_and_named() {
    let place = Place::filled();
    let path = place.partition();
    let clean = done(&["check", &path, "--data"]);
    assert!(clean.contains("all is well; 3 volumes"), "{clean}");
    assert_eq!(reports(&["scrub", &path, "--rate", "1G"])[0]["clean"], true);

    let segment = fs::read_dir(Path::new(&path).join("seg"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    // The noise is raw, so it is found again.
    let data = fs::read(segment.path()).unwrap();
    let at = data
        .windows(64)
        .position(|part| part == &noise(64)[..])
        .unwrap();
    let mut file = File::options().write(true).open(segment.path()).unwrap();
    file.seek(SeekFrom::Start(at as u64 + 5)).unwrap();
    file.write_all(&[!data[at + 5]]).unwrap();
    drop(file);

    done(&["check", &path]);
    let output = afar(&["check", &path, "--data", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["problem_count"], 1);
    assert_eq!(report["problems"][0]["kind"], "data");
    let output = afar(&["scrub", &path]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(
        said.contains("noise") && said.contains("1 problem"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 2, "{said}");
    // What cannot be looked at weighs more than what is wrong.
    refused(&["scrub", &path, "/proc/nonexistent"], 2);
    refused(&["scrub", &path, "--rate", "0"], 2);
}

#[test]
fn volumes_go_out_and_come_back() {
    let place = Place::filled();
    let (path, dump) = (place.partition(), place.file("root.cell.dump"));
    let report = reports(&["export", &path, "root.cell", &dump]).remove(0);
    assert_eq!(report["vnodes"], 3);
    assert_eq!(report["octets"], fs::metadata(&dump).unwrap().len());

    let other = place.file("vicepb");
    done(&["init", &other]);
    let said = done(&["import", &other, &dump, "--id", "77", "--name", "copy"]);
    assert!(said.starts_with("volume 77 (copy): 3 vnodes"), "{said}");
    let error = refused(&["import", &other, &dump, "--id", "77"], 1);
    assert!(error.contains("volume 77 exists already"), "{error}");
    done(&[
        "import",
        &other,
        &dump,
        "--id",
        "77",
        "--overwrite",
        "--compression",
        "none",
    ]);
    {
        let options = PartitionOptions::default();
        let partition = Arc::new(Partition::open(Path::new(&other), &options).unwrap());
        let volume = partition.volume(VolumeId(77)).unwrap();
        assert!(read(&volume, "noise") == noise(200_000));
        assert_eq!(read(&volume, "readme").len(), 360_000);
    }
    done(&["check", &other, "--data"]);

    // Through pipes, by number.
    let output = afar(&["export", &path, "536870914", "-"]);
    assert!(output.status.success());
    let mut child = Command::new(env!("CARGO_BIN_EXE_afar"))
        .args([
            "store", "import", &other, "-", "--id", "78", "--name", "piped",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(&output.stdout)
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(reports(&["list", &other]).len(), 2);
}

#[test]
fn a_bad_dump_leaves_nothing_behind() {
    let place = Place::filled();
    let (path, dump) = (place.partition(), place.file("dump"));
    done(&["export", &path, "root.cell", &dump]);
    let len = fs::metadata(&dump).unwrap().len();
    File::options()
        .write(true)
        .open(&dump)
        .unwrap()
        .set_len(len / 2)
        .unwrap();
    let error = refused(&["import", &path, &dump, "--id", "99"], 1);
    assert!(error.contains("dump"), "{error}");
    assert_eq!(reports(&["list", &path]).len(), 3);
    done(&["check", &path]);

    let error = refused(&["export", &path, "no.such", &dump], 1);
    assert!(error.contains("no volume \"no.such\""), "{error}");
    let error = refused(&["export", &path, "root.cell", "-", "--json"], 1);
    assert!(error.contains("needs another FILE"), "{error}");
    refused(
        &["export", &path, "root.cell", &dump, "--since", "yesterday"],
        2,
    );
    assert_eq!(fs::metadata(&dump).unwrap().len(), len / 2);
}

#[test]
fn an_incremental_dump_has_what_changed() {
    let place = Place::filled();
    let (path, dump) = (place.partition(), place.file("later.dump"));
    let report = reports(&["export", &path, "root.cell", &dump, "--since", "2106-01-01"]).remove(0);
    assert_eq!(report["vnodes"], 3);
    assert!(report["octets"].as_u64() < Some(10_000), "{report}");
    let report = reports(&["export", &path, "root.cell", &dump, "--since", "@1"]).remove(0);
    assert!(report["octets"].as_u64() > Some(500_000), "{report}");
}

#[test]
fn every_row_of_the_bench_is_measured() {
    let place = Place::new();
    let data = place.file("data");
    fs::create_dir(&data).unwrap();
    fs::write(
        format!("{data}/text"),
        b"some words, and more words; ".repeat(9_000),
    )
    .unwrap();
    fs::write(format!("{data}/noise"), noise(100_000)).unwrap();
    let dir = place.dir.path().to_str().unwrap();
    let sizes = [
        "--volumes",
        "30",
        "--siblings",
        "500",
        "--files",
        "100",
        "--clone-files",
        "200",
    ];
    let more = ["--data", "512Ki", "--slice", "0.02", "--sources", &data];
    let args = ["bench", "--quick", "--runs", "1", "--dir", dir];
    let rows = reports(&[&args[..], &sizes, &more].concat());
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["row"].as_str().unwrap())
        .collect();
    for wanted in [
        "attach-10",
        "attach-30",
        "remove-empty",
        "remove-full",
        "clone",
        "compress-read",
        "compress-random",
        "compress-medium",
        "create",
        "rename",
        "link",
        "unlink",
    ] {
        assert!(names.contains(&wanted), "{wanted}: {names:?}");
    }
    for row in &rows {
        let figures = row["figures"].as_array().unwrap();
        assert!(!figures.is_empty() || row["skipped"].is_string(), "{row}");
        for figure in figures {
            let value = figure["median"].as_f64().unwrap();
            assert!(value.is_finite() && value >= 0.0, "{row}");
        }
    }
    let share = rows.iter().find(|row| row["row"] == "clone").unwrap();
    let share = share["figures"].as_array().unwrap();
    let share = share
        .iter()
        .find(|figure| figure["goal"]["at_most"] == 3.0)
        .unwrap();
    assert_eq!(share["met"], true, "{share}");
    // All is put away.
    let left: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(
        left.iter().all(|name| name == "vicepa" || name == "data"),
        "{left:?}"
    );

    let listed = done(&["bench", "--list", "--only", "remove"]);
    assert_eq!(listed.lines().count(), 2);
    let error = refused(&["bench", "--only", "speed"], 1);
    assert!(error.contains("no row \"speed\""), "{error}");
    let error = refused(&["bench", "--siblings", "7"], 1);
    assert!(error.contains("500 to 4000000"), "{error}");
}
