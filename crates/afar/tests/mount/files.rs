//! Files of one mount: data, attributes, locks.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    FlockOperation, XattrFlags, fcntl_lock, flock, getxattr, listxattr, setxattr, statvfs,
};
use rustix::io::Errno;

use crate::site::{Site, can_mount};

fn text(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8 ^ seed).collect()
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn data_is_what_was_written_now_and_after_another_mount() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.1");
    let mount = site.mount("a");
    let file = mount.path("file");
    fs::write(&file, b"Hello.\n").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"Hello.\n");
    // Appending, also by two who have it open.
    let mut one = OpenOptions::new().append(true).open(&file).unwrap();
    let mut two = OpenOptions::new().append(true).open(&file).unwrap();
    one.write_all(b"one\n").unwrap();
    two.write_all(b"two\n").unwrap();
    one.write_all(b"three\n").unwrap();
    drop((one, two));
    assert_eq!(fs::read(&file).unwrap(), b"Hello.\none\ntwo\nthree\n");
    // In the middle, over the end, and beyond it.
    let open = OpenOptions::new()
        .write(true)
        .read(true)
        .open(&file)
        .unwrap();
    open.write_all_at(b"J", 0).unwrap();
    open.write_all_at(b"end", 100_000).unwrap();
    assert_eq!(open.metadata().unwrap().len(), 100_003);
    let mut read = vec![7; 10];
    open.read_exact_at(&mut read, 50_000).unwrap();
    assert_eq!(read, [0; 10]);
    // Shorter, longer again: what was cut off is zero.
    open.set_len(3).unwrap();
    open.set_len(8).unwrap();
    open.sync_all().unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"Jel\0\0\0\0\0");
    drop(open);
    // Emptied when opened.
    let mut emptied = File::create(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().len(), 0);
    emptied.write_all(b"new").unwrap();
    drop(emptied);
    // More than a request, a chunk and a record hold.
    let large = text(9_000_001, 0);
    fs::write(mount.path("large"), &large).unwrap();
    assert_eq!(fs::metadata(mount.path("large")).unwrap().len(), 9_000_001);
    assert!(fs::read(mount.path("large")).unwrap() == large);
    mount.stop();
    // Nothing of it was only in the cache.
    fs::remove_dir_all(site.path("cache-a")).unwrap();
    let again = site.mount("a");
    assert_eq!(fs::read(again.path("file")).unwrap(), b"new");
    assert!(fs::read(again.path("large")).unwrap() == large);
    let mut open = File::open(again.path("large")).unwrap();
    open.seek(SeekFrom::Start(8_999_000)).unwrap();
    let mut tail = Vec::new();
    open.read_to_end(&mut tail).unwrap();
    assert!(tail == large[8_999_000..]);
    again.stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn what_is_unlinked_or_renamed_while_open_stays_itself() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.2");
    let mount = site.mount("a");
    let new = |name: &str| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.open(mount.path(name)).unwrap()
    };
    let gone = new("gone");
    gone.write_all_at(b"before", 0).unwrap();
    fs::remove_file(mount.path("gone")).unwrap();
    gone.write_all_at(b"after", 6).unwrap();
    let mut read = [0; 11];
    gone.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"beforeafter");
    assert_eq!(gone.metadata().unwrap().len(), 11);
    // By this programs find out that what they hold is not the file of that name any more.
    assert_eq!(gone.metadata().unwrap().nlink(), 0);
    // Its name is free for another.
    let other = new("gone");
    other.write_all_at(b"other", 0).unwrap();
    gone.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"beforeafter");
    drop(gone);
    drop(other);
    assert_eq!(fs::read(mount.path("gone")).unwrap(), b"other");

    let moved = new("moved");
    moved.write_all_at(b"1", 0).unwrap();
    fs::rename(mount.path("moved"), mount.path("there")).unwrap();
    moved.write_all_at(b"2", 1).unwrap();
    drop(moved);
    assert_eq!(fs::read(mount.path("there")).unwrap(), b"12");
    // Over one that is open: he keeps what he has.
    let over = File::open(mount.path("there")).unwrap();
    fs::rename(mount.path("gone"), mount.path("there")).unwrap();
    let mut kept = String::new();
    (&over).read_to_string(&mut kept).unwrap();
    assert_eq!(kept, "12");
    assert_eq!(over.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read(mount.path("there")).unwrap(), b"other");
    drop(over);
    mount.stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn attributes_are_kept_and_told() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.3");
    let mount = site.mount("a");
    let file = mount.path("file");
    fs::write(&file, b"x").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o640);
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_modified(then)
        .unwrap();
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), then);
    fs::hard_link(&file, mount.path("second")).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().nlink(), 2);
    let same = fs::metadata(mount.path("second")).unwrap().ino();
    assert_eq!(fs::metadata(&file).unwrap().ino(), same);
    fs::remove_file(mount.path("second")).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().nlink(), 1);

    let space = statvfs(mount.path(".")).unwrap();
    assert!(space.f_blocks > 0 && space.f_bavail <= space.f_blocks);
    assert_eq!(space.f_namemax, 255);

    let value = |name: &str| {
        let mut buffer = vec![0; 4096];
        let length = getxattr(&file, name, &mut buffer).unwrap();
        buffer.truncate(length);
        String::from_utf8(buffer).unwrap()
    };
    assert_eq!(value("afs.cell"), CELL_NAME);
    assert_eq!(value("afs.volume"), "root.cell");
    assert!(value("afs.fid").contains('.'));
    let mut names = vec![0; 4096];
    let length = listxattr(&file, &mut names).unwrap();
    names.truncate(length);
    let names: Vec<_> = names.split(|&octet| octet == 0).collect();
    assert!(names.contains(&b"afs.fid".as_slice()), "{names:?}");
    let none = getxattr(&file, "user.none", &mut [0; 9]);
    assert_eq!(none, Err(Errno::NODATA));
    let set = setxattr(&file, "user.none", b"", XattrFlags::empty());
    assert_eq!(set, Err(Errno::OPNOTSUPP));
    let short = getxattr(&file, "afs.cell", &mut [0; 3]);
    assert_eq!(short, Err(Errno::RANGE));
    mount.stop();
}

const CELL_NAME: &str = crate::site::CELL;

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_mount_for_reading_refuses_changes() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.4");
    let mount = site.mount_with("a", &["-o", "ro,noexec"]);
    let error = fs::write(mount.path("file"), b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    mount.stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn locks_hold_within_a_mount_and_between_two() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.5");
    let (here, there) = (site.mount("a"), site.mount("b"));
    fs::write(here.path("file"), b"x").unwrap();
    let open = |mount: &crate::site::Mounted| {
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .open(mount.path("file"))
            .unwrap()
    };
    let (one, two, other) = (open(&here), open(&here), open(&there));
    flock(&one, FlockOperation::NonBlockingLockExclusive).unwrap();
    for second in [&two, &other] {
        let refused = flock(second, FlockOperation::NonBlockingLockShared);
        assert_eq!(refused, Err(Errno::WOULDBLOCK));
    }
    flock(&one, FlockOperation::Unlock).unwrap();
    flock(&other, FlockOperation::NonBlockingLockShared).unwrap();
    flock(&two, FlockOperation::NonBlockingLockShared).unwrap();
    let refused = flock(&one, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(Errno::WOULDBLOCK));
    // A close gives a lock up.
    drop((two, other));
    let other = open(&there);
    crate::site::soon("the lock of a closed file is free", || {
        flock(&one, FlockOperation::NonBlockingLockExclusive).is_ok()
    });
    flock(&one, FlockOperation::Unlock).unwrap();
    // POSIX locks, whose owner is the process: between the two mounts they conflict as well.
    fcntl_lock(&one, FlockOperation::NonBlockingLockExclusive).unwrap();
    let refused = fcntl_lock(&other, FlockOperation::NonBlockingLockExclusive);
    assert!(
        matches!(refused, Err(Errno::AGAIN | Errno::ACCESS)),
        "{refused:?}"
    );
    drop(one);
    // One that waits gets it.
    fcntl_lock(&other, FlockOperation::LockExclusive).unwrap();
    drop(other);
    here.stop();
    there.stop();
}
