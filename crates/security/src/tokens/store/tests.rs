use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::super::entry::tests::alice;
use super::*;

fn store() -> (TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::in_dir(&dir.path().join("afar/tokens"));
    (dir, store)
}

/// An hour from now, in seconds since 1970.
fn soon() -> u32 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = (now.unwrap() + Duration::from_secs(3600)).as_secs();
    // The lifetime is odd, so that the user's number counts.
    u32::try_from(seconds).unwrap()
}

#[test]
fn tokens_are_found_by_their_cells() {
    let (_dir, store) = store();
    let (first, second) = (alice("a.org", b"one", soon()), alice("b.org", b"two", 4000));
    assert!(store.all().is_empty());
    assert!(store.find(&first.cell).unwrap().is_none());
    assert!(!store.remove(&first.cell).unwrap());
    for held in [&second, &first] {
        let place = store.put(held).unwrap();
        assert_eq!(store.find(&held.cell).unwrap(), Some((held.clone(), place)));
    }
    let all: Vec<_> = store
        .all()
        .into_iter()
        .map(|found| found.unwrap().0)
        .collect();
    assert_eq!(all, [first.clone(), second.clone()]);
    let newer = alice("a.org", b"newer", soon() + 2);
    store.put(&newer).unwrap();
    assert_eq!(store.find(&first.cell).unwrap().unwrap().0, newer);
    assert!(store.remove(&first.cell).unwrap());
    assert!(store.find(&first.cell).unwrap().is_none());
    assert_eq!(store.all().len(), 1);
}

#[test]
fn files_are_for_their_owner_alone() {
    let (dir, store) = store();
    let held = alice("a.org", b"one", soon());
    let Source::File(path) = store.put(&held).unwrap() else {
        panic!("it is in a file");
    };
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(
        store.find(&held.cell),
        Err(StoreError::Unsafe { .. })
    ));
    store.put(&held).unwrap();
    assert!(store.find(&held.cell).unwrap().is_some());

    // A link would make us write where another wants it.
    let elsewhere = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    symlink(elsewhere.path(), &link).unwrap();
    assert!(matches!(
        Store::in_dir(&link).put(&held),
        Err(StoreError::Unsafe { .. })
    ));
    fs::remove_file(&path).unwrap();
    symlink(dir.path().join("nothing"), &path).unwrap();
    assert!(matches!(
        store.find(&held.cell),
        Err(StoreError::File { .. })
    ));

    let open = tempfile::tempdir().unwrap();
    fs::set_permissions(open.path(), Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(
        Store::in_dir(open.path()).put(&held),
        Err(StoreError::Unsafe { .. })
    ));
}

#[test]
fn damage_is_told_with_its_place() {
    let (_dir, store) = store();
    let (held, other) = (
        alice("a.org", b"one", soon()),
        alice("b.org", b"two", soon()),
    );
    let Source::File(path) = store.put(&held).unwrap() else {
        panic!("it is in a file");
    };
    store.put(&other).unwrap();
    for damage in [&b"not a token"[..], &[], &[0xff; 200_000]] {
        fs::write(&path, damage).unwrap();
        let error = store.find(&held.cell).unwrap_err();
        assert!(error.to_string().contains("a.org: "), "{error}");
    }
    // The others stay usable.
    let all = store.all();
    assert_eq!(
        (all.len(), all.iter().filter(|found| found.is_ok()).count()),
        (2, 1)
    );
    store.put(&held).unwrap();
    assert!(store.find(&held.cell).unwrap().is_some());
}

#[test]
fn the_keyring_keeps_tokens_where_there_is_one() {
    let store = Store {
        keyring: true,
        files: None,
        other: None,
    };
    let cell = format!("keyring-{}.test", std::process::id());
    let held = alice(&cell, b"one", soon());
    match store.put(&held) {
        Err(StoreError::Keyring(error)) => {
            eprintln!("skipped: the kernel's keyring does not work here: {error}");
            return;
        }
        put => assert_eq!(put.unwrap(), Source::Keyring),
    }
    let found = store.find(&held.cell).unwrap();
    assert_eq!(found, Some((held.clone(), Source::Keyring)));
    let newer = alice(&cell, b"two", soon() + 2);
    store.put(&newer).unwrap();
    let all = store.all().into_iter().filter_map(Result::ok);
    let ours: Vec<_> = all.filter(|(found, _)| found.cell == held.cell).collect();
    assert_eq!(ours, [(newer, Source::Keyring)]);
    assert!(store.remove(&held.cell).unwrap());
    assert!(!store.remove(&held.cell).unwrap());
    assert!(store.find(&held.cell).unwrap().is_none());
}
