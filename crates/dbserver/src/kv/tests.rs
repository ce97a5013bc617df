//! The rows on one machine.

use std::path::Path;

use super::{Database, DbError, Options};

fn open(dir: &Path) -> Database {
    Database::open(dir, &Options::default()).unwrap()
}

fn rows(database: &Database, from: &[u8], prefix: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    database
        .read(|view| {
            view.range(from, prefix)
                .map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())))
                .collect::<Result<_, DbError>>()
        })
        .unwrap()
}

#[tokio::test]
async fn changes_are_seen_and_survive() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    let first = database
        .write(|change| {
            change.put(b"a1", b"one")?;
            change.put(b"a2", b"two")?;
            change.put(b"b", b"three")?;
            assert_eq!(change.get(b"a2")?, Some(&b"two"[..]));
            change.delete(b"a2")?;
            change.delete(b"never there")?;
            Ok::<_, DbError>(change.range(b"a", b"a").count())
        })
        .await;
    assert_eq!(first.unwrap(), 1);
    drop(database);
    let database = open(dir.path());
    let expected = vec![(b"a1".to_vec(), b"one".to_vec())];
    assert_eq!(rows(&database, b"", b"a"), expected);
    assert_eq!(rows(&database, b"a2", b"a"), []);
    assert_eq!(rows(&database, b"a", b"").len(), 2);
    assert_eq!(rows(&database, b"", b"").len(), 2);
}

#[derive(Debug)]
enum Refused {
    Wanted,
    Db(DbError),
}

impl From<DbError> for Refused {
    fn from(error: DbError) -> Self {
        Self::Db(error)
    }
}

#[tokio::test]
async fn a_failed_change_leaves_nothing_and_harms_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    let changes = (0..64u8).map(|n| {
        let database = database.clone();
        tokio::spawn(async move {
            database
                .write(move |change| {
                    change.put(&[b'k', n], &[n])?;
                    if n % 3 == 0 {
                        return Err(Refused::Wanted);
                    }
                    assert!(n % 7 != 0 || n == 0, "a fault of the change itself");
                    Ok(())
                })
                .await
        })
    });
    for (n, change) in (0..64u8).zip(changes.collect::<Vec<_>>()) {
        match change.await.unwrap() {
            Ok(()) => assert!(n % 3 != 0 && n % 7 != 0),
            Err(Refused::Wanted) => assert!(n % 3 == 0),
            Err(Refused::Db(DbError::Fault)) => assert!(n % 7 == 0),
            Err(other) => panic!("{other:?}"),
        }
    }
    let kept: Vec<u8> = rows(&database, b"k", b"k")
        .iter()
        .map(|(k, _)| k[1])
        .collect();
    let expected: Vec<u8> = (0..64).filter(|n| n % 3 != 0 && n % 7 != 0).collect();
    assert_eq!(kept, expected);
}

#[tokio::test]
async fn a_view_does_not_move() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    let put = |n: u8| {
        let database = database.clone();
        async move {
            let put = move |change: &mut super::Change<'_>| change.put(b"n", &[n]);
            database.write(put).await.unwrap();
        }
    };
    put(1).await;
    let (looked, wait_looked) = tokio::sync::oneshot::channel();
    let (look, wait_look) = std::sync::mpsc::channel();
    let reader = {
        let database = database.clone();
        tokio::task::spawn_blocking(move || {
            database.read(|view| {
                let before = view.get(b"n")?.map(<[u8]>::to_vec);
                looked.send(()).unwrap();
                wait_look.recv().unwrap();
                let after = view.get(b"n")?.map(<[u8]>::to_vec);
                Ok::<_, DbError>((before, after))
            })
        })
    };
    wait_looked.await.unwrap();
    put(2).await;
    look.send(()).unwrap();
    let seen = reader.await.unwrap().unwrap();
    assert_eq!(seen, (Some(vec![1]), Some(vec![1])));
    assert_eq!(rows(&database, b"n", b"n"), [(b"n".to_vec(), vec![2])]);
}

#[tokio::test]
async fn keys_have_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    for length in [0, 512] {
        let put = database
            .write(move |change| change.put(&vec![1; length], b""))
            .await;
        assert!(matches!(put, Err(DbError::Key(n)) if n == length));
    }
    database
        .write(|change| change.put(&[1; 511], b""))
        .await
        .unwrap();
    let got = database.read(|view| view.get(&[]).map(|_| ()));
    assert!(matches!(got, Err(DbError::Key(0))));
}

#[test]
fn a_place_that_cannot_be_a_directory_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = Database::open(file.path(), &Options::default()).unwrap_err();
    assert!(
        error.to_string().contains(&*file.path().to_string_lossy()),
        "{error}"
    );
}

async fn put_many(database: &Database, count: u32) {
    let put = move |change: &mut super::Change<'_>| {
        (0..count).try_for_each(|n| change.put(&n.to_be_bytes(), &[n.to_le_bytes()[0]; 100]))
    };
    database.write(put).await.unwrap();
}

/// Fills some pages with noise: not those that begin the file.
fn spoil_pages(dir: &Path, which: impl FnOnce(u64) -> std::ops::Range<u64>) {
    let file = std::fs::File::options()
        .write(true)
        .open(dir.join("data.mdb"))
        .unwrap();
    for page in which(file.metadata().unwrap().len() / 4096) {
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xa5; 4096], page * 4096).unwrap();
    }
}

fn spoil(dir: &Path) {
    spoil_pages(dir, |pages| 2..pages);
}

#[tokio::test]
async fn a_damaged_database_is_refused_and_goes_back_to_its_copy() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    put_many(&database, 5_000).await;
    let expected = rows(&database, b"", b"");
    drop(database);
    assert!(Database::copy_made(dir.path()).is_some());
    spoil(dir.path());
    let error = Database::open(dir.path(), &Options::default()).unwrap_err();
    assert!(matches!(error, DbError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("data.mdb: page "), "{error}");
    for _ in 0..2 {
        Database::restore(dir.path()).unwrap();
        assert!(dir.path().join("data.mdb.damaged").exists());
        let database = open(dir.path());
        assert_eq!(rows(&database, b"", b""), expected);
        // Changes after that are in the next copy, whatever the numbers of their commits.
        database
            .write(|change| change.put(b"new", b"row"))
            .await
            .unwrap();
        drop(database);
        spoil(dir.path());
        Database::restore(dir.path()).unwrap();
        let database = open(dir.path());
        assert_eq!(rows(&database, b"new", b"new").len(), 1);
        database
            .write(|change| change.delete(b"new"))
            .await
            .unwrap();
        drop(database);
        spoil(dir.path());
    }
}

#[tokio::test]
async fn a_copy_that_is_damaged_or_cut_off_is_not_gone_back_to() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    put_many(&database, 2_000).await;
    drop(database);
    let copy = dir.path().join("copy");
    let whole = std::fs::read(&copy).unwrap();
    let data = std::fs::read(dir.path().join("data.mdb")).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..50 {
        let mut bytes = whole.clone();
        let at = random.usize(..bytes.len());
        if random.bool() {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << random.u8(..8);
        }
        std::fs::write(&copy, bytes).unwrap();
        assert!(Database::copy_made(dir.path()).is_none());
        let error = Database::restore(dir.path()).unwrap_err();
        assert!(matches!(error, DbError::NoCopy { .. }), "{error}");
    }
    assert!(data == std::fs::read(dir.path().join("data.mdb")).unwrap());
}

#[tokio::test]
async fn a_database_that_is_damaged_while_it_is_open_says_so_and_lives() {
    let dir = tempfile::tempdir().unwrap();
    put_many(&open(dir.path()), 20_000).await;
    let database = open(dir.path());
    // Leaves: what leads to them has been looked at, and stays in the system's memory.
    spoil_pages(dir.path(), |pages| pages / 4..pages / 2);
    let read = database.read(|view| {
        let mut range = view.range(b"", b"");
        range.try_for_each(|row| row.map(|_| ()))
    });
    assert!(matches!(read, Err(DbError::Damaged { .. })), "{read:?}");
    let wrote = database
        .write(|change| (0..20_000_u32).try_for_each(|n| change.put(&n.to_be_bytes(), b"new")));
    let wrote = wrote.await;
    assert!(matches!(wrote, Err(DbError::Damaged { .. })), "{wrote:?}");
}
