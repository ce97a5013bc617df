//! Two mounts of one cell, as two machines would have it.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use crate::site::{Site, can_mount, soon};

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn each_sees_what_the_other_does() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.31");
    let (here, there) = (site.mount("a"), site.mount("b"));
    // Both know that there is nothing, and what there is.
    assert!(!there.path("file").exists());
    fs::write(here.path("file"), b"one").unwrap();
    soon("a new file", || there.path("file").exists());
    assert_eq!(fs::read(there.path("file")).unwrap(), b"one");
    // Content of the same length, within the same second.
    for round in 0..20 {
        let text = format!("{round:03}");
        fs::write(here.path("file"), &text).unwrap();
        soon("new content", || {
            fs::read(there.path("file")).unwrap() == text.as_bytes()
        });
        let text = format!("{:03}", round + 500);
        fs::write(there.path("file"), &text).unwrap();
        soon("new content, back", || {
            fs::read(here.path("file")).unwrap() == text.as_bytes()
        });
    }
    // Longer and shorter, seen by one who has it open.
    let open = File::open(there.path("file")).unwrap();
    fs::write(here.path("file"), vec![7; 300_000]).unwrap();
    soon("the length", || open.metadata().unwrap().len() == 300_000);
    let mut last = [0];
    soon("the content of an open file", || {
        open.read_at(&mut last, 299_999).unwrap() == 1 && last == [7]
    });
    let cut = OpenOptions::new()
        .write(true)
        .open(here.path("file"))
        .unwrap();
    cut.set_len(10).unwrap();
    drop(cut);
    soon("that it is shorter", || {
        open.metadata().unwrap().len() == 10
    });
    drop(open);
    // Names.
    fs::rename(here.path("file"), here.path("moved")).unwrap();
    soon("the old name is gone", || !there.path("file").exists());
    soon("the new name", || there.path("moved").exists());
    fs::create_dir(there.path("dir")).unwrap();
    soon("a directory", || here.path("dir").is_dir());
    symlink("moved", there.path("dir/link")).unwrap();
    soon("a link", || fs::read_link(here.path("dir/link")).is_ok());
    fs::remove_file(here.path("dir/link")).unwrap();
    fs::remove_dir(here.path("dir")).unwrap();
    soon("it is gone", || !there.path("dir").exists());
    // A file made again under the name of one that was removed.
    fs::remove_file(here.path("moved")).unwrap();
    fs::write(here.path("moved"), b"new").unwrap();
    soon("the other file", || {
        fs::read(there.path("moved")).is_ok_and(|text| text == b"new")
    });
    let number = fs::metadata(here.path("moved")).unwrap().ino();
    assert_eq!(fs::metadata(here.path("moved")).unwrap().ino(), number);
    here.stop();
    there.stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_counter_in_turns_loses_nothing() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.32");
    let mounts = [site.mount("a"), site.mount("b")];
    fs::write(mounts[0].path("counter"), b"").unwrap();
    for turn in 0..100 {
        // Opened behind the other's close: close-to-open, so at once and not soon. What the kernel
        // keeps is dropped by a thread, and so the test waits for the length.
        let path = mounts[turn % 2].path("counter");
        soon("all turns so far", || {
            fs::metadata(&path).unwrap().len() == turn as u64
        });
        let mut options = OpenOptions::new();
        let open = options.read(true).append(true).open(&path).unwrap();
        (&open).write_all(b"x").unwrap();
    }
    for mount in &mounts {
        soon("all turns", || {
            fs::read(mount.path("counter")).unwrap().len() == 100
        });
    }
    for mount in mounts {
        mount.stop();
    }
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_server_that_starts_again_loses_nobody() {
    if !can_mount() {
        return;
    }
    let mut site = Site::new("127.84.0.33");
    let (here, there) = (site.mount("a"), site.mount("b"));
    fs::write(here.path("file"), b"before").unwrap();
    soon("the file", || there.path("file").exists());
    let open = OpenOptions::new()
        .write(true)
        .open(here.path("file"))
        .unwrap();
    open.write_all_at(b"during", 0).unwrap();
    site.stop();
    site.start();
    open.sync_all().unwrap();
    drop(open);
    soon("what was written while it was away", || {
        fs::read(there.path("file")).is_ok_and(|text| text == b"during")
    });
    fs::write(there.path("file"), b"after").unwrap();
    soon("what is written since", || {
        fs::read(here.path("file")).is_ok_and(|text| text == b"after")
    });
    here.stop();
    there.stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn who_works_in_a_folder_stays_in_it_when_its_parent_changes() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.35");
    let (here, there) = (site.mount("a"), site.mount("b"));
    fs::create_dir(here.path("folder")).unwrap();
    soon("the folder", || there.path("folder").exists());
    let mut inside = Command::new("sh")
        .args(["-c", "read word; exec /bin/pwd -P"])
        .current_dir(there.path("folder"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(!there.path("new").exists());
    fs::write(here.path("new"), b"x").unwrap();
    soon("a new file", || there.path("new").exists());
    inside.stdin.take().unwrap().write_all(b"now\n").unwrap();
    let told = inside.wait_with_output().unwrap();
    let folder = there.path("folder").canonicalize().unwrap();
    assert_eq!(
        String::from_utf8(told.stdout).unwrap(),
        format!("{}\n", folder.display())
    );
    here.stop();
    there.stop();
}

/// As databases do: read under a lock for reading, make it one for writing, write what follows.
#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn what_was_read_under_a_lock_holds_when_it_is_one_for_writing() {
    const TIMES: u64 = 60;
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.34");
    let mounts = [site.mount("a"), site.mount("b")];
    fs::write(mounts[0].path("count"), 0_u64.to_le_bytes()).unwrap();
    soon("the count", || mounts[1].path("count").exists());
    std::thread::scope(|scope| {
        for mount in &mounts {
            let path = mount.path("count");
            let file = File::options().read(true).write(true).open(path).unwrap();
            scope.spawn(move || (0..TIMES).for_each(|_| count_one(&file)));
        }
    });
    for mount in mounts {
        let count = fs::read(mount.path("count")).unwrap();
        assert_eq!(count, (2 * TIMES).to_le_bytes());
        mount.stop();
    }
}

/// Adds one to the number in a file.
fn count_one(file: &File) {
    let pause = || std::thread::sleep(Duration::from_micros(fastrand::u64(..3000)));
    loop {
        if lock_part(file, libc::F_RDLCK) {
            let mut count = [0; 8];
            file.read_exact_at(&mut count, 0).unwrap();
            // Others who read keep this from being had, and so may they wait for each other.
            for _ in 0..5 {
                if lock_part(file, libc::F_WRLCK) {
                    let next = u64::from_le_bytes(count) + 1;
                    file.write_all_at(&next.to_le_bytes(), 0).unwrap();
                    file.sync_all().unwrap();
                    assert!(lock_part(file, libc::F_UNLCK));
                    return;
                }
                pause();
            }
            assert!(lock_part(file, libc::F_UNLCK));
        }
        pause();
    }
}

/// Whether this kind of lock of some bytes of a file is available now.
fn lock_part(file: &File, kind: i32) -> bool {
    let lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 1000,
        l_len: 10,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_SETLK(&lock)).is_ok()
}
