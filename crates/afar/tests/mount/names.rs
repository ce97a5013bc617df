//! Directories, symlinks, mount points.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;

use crate::site::{CELL, Site, can_mount};

/// Names in a folder, with `d`, `l` or `-` before them as readdir says, without a status.
fn list(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        let letter = match (kind.is_dir(), kind.is_symlink(), kind.is_socket()) {
            (true, ..) => 'd',
            (_, true, _) => 'l',
            _ => '-',
        };
        format!("{letter}{}", entry.file_name().to_str().unwrap())
    });
    entries.collect()
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn names_come_move_and_go() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.11");
    let mount = site.mount("a");
    let at = |name: &str| mount.path(name);
    fs::create_dir(at("dir")).unwrap();
    fs::create_dir(at("dir/sub")).unwrap();
    fs::write(at("dir/file"), b"1").unwrap();
    symlink("file", at("dir/link")).unwrap();
    symlink("/no/where", at("dangling")).unwrap();
    assert_eq!(list(&at("dir")), set(["dsub", "-file", "llink"]));
    assert_eq!(list(&at(".")), set(["ddir", "ldangling"]));
    assert_eq!(fs::read(at("dir/link")).unwrap(), b"1");
    assert_eq!(
        fs::read_link(at("dangling")).unwrap(),
        Path::new("/no/where")
    );
    assert_eq!(fs::metadata(at("dir")).unwrap().nlink(), 3);

    let error = |result: std::io::Result<()>| result.unwrap_err().kind();
    assert_eq!(error(fs::create_dir(at("dir"))), ErrorKind::AlreadyExists);
    assert_eq!(
        error(fs::remove_dir(at("dir"))),
        ErrorKind::DirectoryNotEmpty
    );
    assert_eq!(error(fs::remove_dir(at("none"))), ErrorKind::NotFound);
    assert_eq!(
        error(fs::remove_dir(at("dir/file"))),
        ErrorKind::NotADirectory
    );
    assert_eq!(error(fs::write(at("none/file"), b"")), ErrorKind::NotFound);
    assert_eq!(error(fs::write(at("dir"), b"")), ErrorKind::IsADirectory);
    assert_eq!(
        error(fs::write(at(&"x".repeat(256)), b"")),
        ErrorKind::InvalidFilename
    );
    // Below itself.
    assert_eq!(
        error(fs::rename(at("dir"), at("dir/sub/dir"))),
        ErrorKind::InvalidInput
    );
    // Hard links are for one directory.
    assert_eq!(
        error(fs::hard_link(at("dir/file"), at("file"))),
        ErrorKind::CrossesDevices
    );

    fs::rename(at("dir/file"), at("file")).unwrap();
    assert_eq!(fs::read(at("file")).unwrap(), b"1");
    assert!(!at("dir/file").exists());
    fs::write(at("over"), b"2").unwrap();
    fs::rename(at("over"), at("file")).unwrap();
    assert_eq!(fs::read(at("file")).unwrap(), b"2");
    fs::rename(at("dir/sub"), at("sub")).unwrap();
    let up = fs::canonicalize(at("sub/..")).unwrap();
    assert_eq!(up, at(".").canonicalize().unwrap());
    fs::remove_file(at("dir/link")).unwrap();
    fs::remove_dir(at("dir")).unwrap();
    assert_eq!(list(&at(".")), set(["dsub", "-file", "ldangling"]));
    mount.stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_large_directory_is_listed_whole_and_once() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.12");
    let mount = site.mount("a");
    let folder = mount.path("many");
    fs::create_dir(&folder).unwrap();
    let count = 3000;
    for number in 0..count {
        fs::write(folder.join(format!("file-{number:05}")), b"").unwrap();
    }
    let listed = list(&folder);
    assert_eq!(listed.len(), count);
    mount.stop();
    fs::remove_dir_all(site.path("cache-a")).unwrap();
    // Cold, with a status each.
    let mount = site.mount("a");
    let folder = mount.path("many");
    let entries = fs::read_dir(&folder).unwrap();
    let names: Vec<_> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            assert!(entry.metadata().unwrap().is_file());
            format!("-{}", entry.file_name().to_str().unwrap())
        })
        .collect();
    assert_eq!(names.len(), count);
    assert!(names.into_iter().collect::<BTreeSet<_>>() == listed);
    // Removing while it is being listed leaves nothing out.
    fs::remove_dir_all(&folder).unwrap();
    assert!(!folder.exists());
    mount.stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn volumes_are_entered_by_their_mount_points() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.13");
    let root = format!("/afs/{CELL}");
    site.say(&["vos", "create", site.address(), "a", "user.ann"]);
    let point = format!("{root}/ann");
    site.say(&["fs", "mkmount", &point, "user.ann", "--localauth"]);
    let none = format!("{root}/none");
    site.say(&["fs", "mkmount", &none, "no.such.volume", "--localauth"]);
    let mount = site.mount("a");
    let at = |name: &str| mount.path(name);
    assert!(fs::metadata(at("ann")).unwrap().is_dir());
    fs::write(at("ann/hello"), b"Ann").unwrap();
    assert_eq!(fs::read(at("ann/hello")).unwrap(), b"Ann");
    assert_eq!(
        fs::canonicalize(at("ann/..")).unwrap(),
        at(".").canonicalize().unwrap()
    );
    // One that leads nowhere is listed, and does not keep the others from being listed.
    assert!(list(&at(".")).contains("dann"));
    let names: BTreeSet<_> = list(&at("."))
        .iter()
        .map(|name| name[1..].to_owned())
        .collect();
    assert_eq!(names, set(["ann", "none"]));
    fs::metadata(at("none")).unwrap_err();
    let crossing = fs::rename(at("ann/hello"), at("hello")).unwrap_err();
    assert_eq!(crossing.kind(), ErrorKind::CrossesDevices);
    mount.stop();
    // What was written is there without a mount.
    assert_eq!(
        site.say(&["cat", "--localauth", &format!("{root}/ann/hello")]),
        "Ann"
    );
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn all_cells_are_below_one_mount() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.14");
    let place = site.place("afs");
    let mut command = site.mount_command("afs");
    command.arg("--dynroot").arg(&place);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", crate::site::told(&output));
    assert!(list(&place).contains(&format!("d{CELL}")));
    fs::write(place.join(CELL).join("file"), b"x").unwrap();
    assert_eq!(fs::read(place.join(format!(".{CELL}/file"))).unwrap(), b"x");
    fs::write(place.join("file"), b"x").unwrap_err();
    fs::metadata(place.join("no.such.cell.example")).unwrap_err();
    site.say(&["umount", place.to_str().unwrap()]);
}
