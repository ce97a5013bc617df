//! A mounted afar cell under work by OpenAFS's client, and two clients that see each other.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use afar_types::Rights;
use sha2::{Digest, Sha256};

use crate::content::Content;
use crate::mount::Mount;
use crate::net::Net;
use crate::place::Place;
use crate::server::Ours;

/// Entries of the large directory.
const MANY: usize = 5_000;
/// How soon one client must see what the other has done. A promise lasts far longer.
const SOON: Duration = Duration::from_secs(1);

/// Servers and two clients.
pub(crate) fn network() -> Net {
    Net::new(&[
        ("srv", "10.97.0.1"),
        ("cli", "10.97.0.2"),
        ("cli2", "10.97.0.3"),
    ])
}

/// Makes `root.cell` and a volume mounted there as `work`, in which everybody may do anything.
pub(crate) fn make_volumes(place: &Place, content: &Content) {
    let root = Content::new(Rights(Rights::READ.0 | Rights::LOOKUP.0));
    root.mount("work", "#work.").dump(&place.file("root.dump"));
    content.dump(&place.file("work.dump"));
    place.ok("vos restore srv a root.cell -file root.dump -noauth");
    place.ok("vos restore srv a work -file work.dump -noauth");
}

/// What a tree holds: kind, mode, and length, sum or target, by path.
pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mode = metadata.permissions().mode() & 0o7777;
            let what = if metadata.is_dir() {
                left.push(path.clone());
                format!("directory {mode:o}")
            } else if metadata.is_symlink() {
                // afsd.fuse puts something in front of the target.
                let target = fs::read_link(&path).unwrap();
                format!("symlink {}", target.ends_with("somewhere/else"))
            } else {
                format!("file {mode:o} {} {}", metadata.len(), sum(&path))
            };
            found.insert(path.strip_prefix(root).unwrap().to_owned(), what);
        }
    }
    found
}

fn sum(path: &Path) -> String {
    let mut file = File::open(path).unwrap();
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer).unwrap();
        if read == 0 {
            break format!("{:x}", hasher.finalize());
        }
        hasher.update(&buffer[..read]);
    }
}

/// Bytes that look random, the same for the same seed.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Work of many kinds, done alike in any folder.
fn work(root: &Path) {
    let at = |name: &str| root.join(name);
    fs::create_dir(at("files")).unwrap();
    for (number, len) in [0, 1, 4095, 4096, 4097, 65_536, 1_000_000, 12 << 20]
        .iter()
        .enumerate()
    {
        let path = at(&format!("files/{len}"));
        fs::write(&path, bytes(number as u64, *len)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes(number as u64, *len));
    }
    // In place, past the end, shorter, longer.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(at("files/1000000"))
        .unwrap();
    for step in 0..50_u64 {
        let piece = bytes(step, 3_000);
        file.write_all_at(&piece, step * 31_337 % 990_000).unwrap();
    }
    file.write_all_at(b"far", 3_000_000).unwrap();
    drop(file);
    // afsd.fuse does this by name, and forgets what was written before through an open file.
    let file = OpenOptions::new()
        .write(true)
        .open(at("files/1000000"))
        .unwrap();
    file.set_len(2_500_000).unwrap();
    drop(file);
    let mut file = OpenOptions::new()
        .append(true)
        .open(at("files/4096"))
        .unwrap();
    file.write_all(b"appended").unwrap();
    drop(file);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(at("files/65536"))
        .unwrap();
    file.seek(SeekFrom::End(-10)).unwrap();
    file.write_all(b"over the old end").unwrap();
    drop(file);
    // Names.
    fs::create_dir_all(at("a/b/c/d")).unwrap();
    fs::write(at("a/b/c/d/leaf"), b"leaf").unwrap();
    fs::rename(at("a/b/c"), at("c")).unwrap();
    fs::hard_link(at("c/d/leaf"), at("c/d/other")).unwrap();
    fs::rename(at("c/d/leaf"), at("c/d/renamed")).unwrap();
    fs::write(at("replaced"), b"old").unwrap();
    fs::write(at("replacing"), b"new").unwrap();
    fs::rename(at("replacing"), at("replaced")).unwrap();
    symlink("/afs/somewhere/else", at("link")).unwrap();
    fs::set_permissions(at("replaced"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::remove_file(at("files/4095")).unwrap();
    let full = fs::remove_dir(at("a"));
    // ENOTEMPTY; by way of AFS it is EEXIST.
    let code = full.unwrap_err().raw_os_error();
    assert!(code == Some(39) || code == Some(17), "{code:?}");
    fs::remove_dir(at("a/b")).unwrap();
    // What is open stays readable, whatever happens to its name.
    fs::write(at("gone"), b"still here").unwrap();
    let mut open = File::open(at("gone")).unwrap();
    fs::rename(at("gone"), at("elsewhere")).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    large_directory(&at("many"));
}

/// Many names, half of them removed again and some of those made again.
fn large_directory(dir: &Path) {
    let path = |number: usize| dir.join(format!("entry-{number:05}"));
    fs::create_dir(dir).unwrap();
    for number in 0..MANY {
        File::create(path(number)).unwrap();
    }
    assert_eq!(fs::read_dir(dir).unwrap().count(), MANY);
    for number in (0..MANY).step_by(2) {
        fs::remove_file(path(number)).unwrap();
    }
    assert_eq!(fs::read_dir(dir).unwrap().count(), MANY / 2);
    for number in (0..MANY).step_by(10) {
        fs::write(path(number), number.to_string()).unwrap();
    }
    assert!(!path(2).exists() && path(10).exists());
}

#[test]
#[ignore = "needs OpenAFS's client"]
fn a_mount_takes_work_and_keeps_it() {
    let net = network();
    let server = Ours::start(&net, true);
    let place = Place::new(&net, "cli", net.address("srv"));
    make_volumes(&place, &Content::new(Rights::ALL));
    let local = tempfile::tempdir().unwrap();
    work(local.path());
    let expected = tree(local.path());
    let mount = Mount::new(place);
    work(&mount.volume("work"));
    assert_same(&expected, &tree(&mount.volume("work")));
    drop(mount);
    // What the server kept, also over a restart of its own.
    let server = server.restart(&net);
    let mount = Mount::new(Place::new(&net, "cli2", net.address("srv")));
    assert_same(&expected, &tree(&mount.volume("work")));
    drop(mount);
    server.stop();
}

/// Two trees are the same, up to the first few differences.
pub(crate) fn assert_same(expected: &BTreeMap<PathBuf, String>, found: &BTreeMap<PathBuf, String>) {
    let names = expected.keys().chain(found.keys());
    let differing = names.filter(|name| expected.get(*name) != found.get(*name));
    let shown: Vec<String> = differing
        .take(10)
        .map(|name| {
            format!(
                "{}: {:?}, {:?}",
                name.display(),
                expected.get(name),
                found.get(name)
            )
        })
        .collect();
    assert!(shown.is_empty(), "{}", shown.join("\n"));
}

/// Waits until something is so, which must be soon.
fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(
            begun.elapsed() < SOON,
            "{what}: not seen by the other client"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
#[ignore = "needs OpenAFS's client"]
fn two_clients_see_what_the_other_does() {
    let net = network();
    let server = Ours::start(&net, true);
    let place = Place::new(&net, "cli", net.address("srv"));
    make_volumes(&place, &Content::new(Rights::ALL).file("file", 0o644, b"0"));
    let one = Mount::new(place);
    let two = Mount::new(Place::new(&net, "cli2", net.address("srv")));
    let sides = [one.volume("work"), two.volume("work")];
    for side in &sides {
        assert_eq!(fs::read(side.join("file")).unwrap(), b"0");
        assert_eq!(fs::read_dir(side).unwrap().count(), 1);
    }
    for round in 0..10 {
        let (here, there) = (&sides[round % 2], &sides[(round + 1) % 2]);
        let text = format!("round {round}");
        fs::write(here.join("file"), &text).unwrap();
        soon("data", || {
            fs::read(there.join("file")).unwrap() == text.as_bytes()
        });
        let name = |kind: &str| format!("{kind}-{round}");
        assert!(!there.join(name("new")).exists());
        fs::write(here.join(name("new")), b"x").unwrap();
        soon("a new name", || there.join(name("new")).exists());
        fs::rename(here.join(name("new")), here.join(name("moved"))).unwrap();
        soon("a new place", || {
            there.join(name("moved")).exists() && !there.join(name("new")).exists()
        });
        fs::create_dir(here.join(name("dir"))).unwrap();
        soon("a directory", || there.join(name("dir")).is_dir());
        let mode = 0o600 + u32::try_from(round).unwrap();
        fs::set_permissions(here.join("file"), fs::Permissions::from_mode(mode)).unwrap();
        soon("a mode", || {
            fs::metadata(there.join("file"))
                .unwrap()
                .permissions()
                .mode()
                & 0o777
                == mode
        });
        fs::remove_file(here.join(name("moved"))).unwrap();
        soon("a removal", || !there.join(name("moved")).exists());
        fs::remove_dir(here.join(name("dir"))).unwrap();
        soon("a removal", || fs::read_dir(there).unwrap().count() == 1);
    }
    drop((one, two));
    server.stop();
}
