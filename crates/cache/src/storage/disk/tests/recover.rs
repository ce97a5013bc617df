//! What a later process finds.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use afar_types::DataVersion;

use super::{content, fill, has_all, joined, kept, key, open, set, settle, there};
use crate::model::error::CacheError;
use crate::storage::disk::{Disk, Limits};
use crate::storage::{Storage, Wait};

#[test]
fn clean_octets_are_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let lengths = [1, 4096, 5000, 65_536, 65_537, 1_000_000];
    for (vnode, length) in (0..).zip(lengths) {
        fill(&disk, vnode, 3, length);
    }
    fill(&disk, 10, 1, 100_000);
    fill(&disk, 10, 2, 70_000);
    fill(&disk, 11, 1, 5000);
    disk.forget(&key(11));
    drop(disk);
    let disk = open(dir.path());
    for (vnode, length) in (0..).zip(lengths) {
        assert!(has_all(&disk, vnode, 3, length), "{vnode}");
    }
    assert!(has_all(&disk, 10, 2, 70_000));
    assert!(there(&disk, 10, 1, 0..100_000).is_empty());
    assert!(there(&disk, 11, 1, 0..5000).is_empty());
}

#[test]
fn stored_octets_are_clean_ones_of_the_new_version_then() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    fill(&disk, 2, 1, 200_000);
    disk.write_dirty(&key(2), 10_000, &content(9, 9, 10_000..150_000))
        .unwrap();
    let from = Some((DataVersion(1), 200_000));
    disk.stored(&key(2), &set(&[10_000..150_000]), from, DataVersion(2))
        .unwrap();
    drop(disk);
    let disk = open(dir.path());
    let read = joined(
        &disk
            .read(&key(2), DataVersion(2), 0..200_000, Wait::Yes)
            .unwrap(),
        0,
    );
    let parts = [
        content(2, 1, 0..10_000),
        content(9, 9, 10_000..150_000),
        content(2, 1, 150_000..200_000),
    ];
    assert!(read == parts.concat());
}

#[test]
fn kept_octets_are_left_and_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    for vnode in [2, 4, 6] {
        disk.write_dirty(&key(vnode), 1000, &content(vnode, 0, 1000..50_000))
            .unwrap();
    }
    let of_two = kept(5, &[1000..50_000], 60_000);
    disk.keep(&key(2), &of_two).unwrap();
    disk.keep(&key(4), &kept(1, &[1000..50_000], 50_000))
        .unwrap();
    let stored = set(&[1000..50_000]);
    disk.stored(&key(4), &stored, Some((DataVersion(1), 0)), DataVersion(2))
        .unwrap();
    disk.keep(&key(8), &kept(1, &[], 77)).unwrap();
    settle(&disk);
    drop(disk);

    let disk = open(dir.path());
    let mut left = disk.left();
    left.sort_by_key(|left| left.key.fid);
    let found: Vec<_> = left.iter().map(|left| left.key.clone()).collect();
    assert_eq!(found, [key(2), key(8)]);
    assert_eq!(left[0].kept, of_two);
    // Somebody writes to the file before it is taken up.
    disk.write_dirty(&key(2), 0, b"newer").unwrap();
    assert!(!disk.adopt(&left[0]).unwrap());
    assert_eq!(
        joined(&disk.read_dirty(&key(2), 0..u64::MAX).unwrap(), 0),
        b"newer"
    );
    disk.cut_dirty(&key(2), 0).unwrap();
    assert!(disk.adopt(&left[0]).unwrap());
    let read = disk.read_dirty(&key(2), 0..u64::MAX).unwrap();
    assert!(joined(&read, 1000) == content(2, 0, 1000..50_000));
    assert!(!disk.adopt(&left[0]).unwrap(), "only once");
    drop(disk);

    // It is as before until it is stored.
    let disk = open(dir.path());
    assert_eq!(disk.left().len(), 2);
    let left = disk
        .left()
        .into_iter()
        .find(|left| left.key == key(2))
        .unwrap();
    assert!(disk.adopt(&left).unwrap());
    let stored = set(&[1000..50_000]);
    disk.stored(&key(2), &stored, Some((DataVersion(5), 0)), DataVersion(6))
        .unwrap();
    drop(disk);
    assert_eq!(open(dir.path()).left().len(), 1);
}

#[test]
fn what_cannot_be_stored_is_put_where_it_is_found() {
    let dir = tempfile::tempdir().unwrap();
    for text in [&b"one"[..], b"another"] {
        let disk = open(dir.path());
        disk.write_dirty(&key(2), 5, text).unwrap();
        let end = 5 + text.len() as u64;
        disk.keep(&key(2), &kept(1, &[5..end], end + 1)).unwrap();
        drop(disk);
        let disk = open(dir.path());
        let left = disk.left();
        let path = disk.put_aside(&left[0]).unwrap();
        assert!(path.starts_with(dir.path().join("lost+found")));
        assert!(
            path.to_str().unwrap().contains("a.example.7.2.1"),
            "{path:?}"
        );
        let expected = [&[0; 5], text, &[0]].concat();
        assert_eq!(fs::read(path).unwrap(), expected);
        assert!(disk.left().is_empty());
    }
    assert!(open(dir.path()).left().is_empty());
    assert_eq!(
        fs::read_dir(dir.path().join("lost+found")).unwrap().count(),
        2
    );
}

#[test]
fn changes_that_others_could_read_they_cannot_any_more() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let journal = dir.path().join("journal");
    fs::write(&journal, "changes").unwrap();
    fs::set_permissions(&journal, Permissions::from_mode(0o644)).unwrap();
    drop(open(dir.path()));
    let mode = fs::metadata(&journal).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn it_belongs_to_one_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        bytes: 1 << 20,
        files: 10,
    };
    let disk = Disk::open(dir.path(), limits).unwrap();
    let error = Disk::open(dir.path(), limits).unwrap_err();
    assert!(matches!(error, CacheError::InUse { .. }), "{error}");
    assert!(
        error.to_string().contains(dir.path().to_str().unwrap()),
        "{error}"
    );
    drop(disk);
    drop(Disk::open(dir.path(), limits).unwrap());
}

#[test]
fn a_newer_format_is_refused_and_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    fill(&disk, 2, 1, 5000);
    drop(disk);
    let format = dir.path().join("format");
    assert_eq!(fs::read_to_string(&format).unwrap(), "afar-cache 1\n");
    fs::write(&format, "afar-cache 2\n").unwrap();
    let error = Disk::open(dir.path(), super::ROOMY).unwrap_err();
    assert!(
        matches!(
            error,
            CacheError::Newer {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error}"
    );
    fs::write(&format, "afar-cache 1\n").unwrap();
    assert!(has_all(&open(dir.path()), 2, 1, 5000));
}

#[test]
fn another_format_begins_empty_and_keeps_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("notes"), "somebody else's").unwrap();
    for text in [
        &b"afar-cache 0\n"[..],
        b"",
        b"\xff\xfe nonsense",
        b"afar-cache 1",
    ] {
        // Changes that no server has.
        fs::write(dir.path().join("journal"), "not read here").unwrap();
        let disk = open(dir.path());
        fill(&disk, 2, 1, 5000);
        if disk.left().is_empty() {
            disk.write_dirty(&key(4), 0, b"text").unwrap();
            disk.keep(&key(4), &kept(1, &[0..4], 4)).unwrap();
        }
        drop(disk);
        fs::write(dir.path().join("format"), text).unwrap();
        let disk = open(dir.path());
        assert!(there(&disk, 2, 1, 0..5000).is_empty(), "{text:?}");
        assert_eq!(disk.left().len(), 1, "{text:?}");
        let journal = fs::read_to_string(dir.path().join("journal"));
        assert_eq!(journal.unwrap(), "not read here");
    }
    assert!(dir.path().join("notes").exists());
}
