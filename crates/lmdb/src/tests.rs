//! What was written is read, or refused: never a signal, never something else.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use fastrand::Rng;
use heed::types::Bytes;
use heed::{CommitOrAbort, EnvOpenOptions, MdbError};

use super::*;

const MAP: usize = 1 << 28;
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
type Table = heed::Database<'static, Bytes, Bytes>;

fn open_in(dir: &Path, durability: Durability) -> Result<(Env, Watch), OpenError> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.max_dbs(2);
    open(dir, &options, MAP, durability)
}

fn table(env: &Env) -> heed::Result<Table> {
    let txn = env.write_txn()?;
    let made = env.create_databases_and_commit(txn, |options, txn| {
        let rows = options.create_database::<Bytes, Bytes>(txn, Some("rows"))?;
        let other = options.create_database::<Bytes, Bytes>(txn, Some("other"))?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit((rows, other)))
    })?;
    Ok(made.unwrap_commit().0)
}

/// Some commits of puts and deletes, with values on pages of their own among them.
fn fill(env: &Env, table: Table, model: &mut Rows, random: &mut Rng, commits: usize) {
    for _ in 0..commits {
        let mut txn = env.write_txn().unwrap();
        for _ in 0..random.usize(1..60) {
            let key = random.u16(..600).to_be_bytes().to_vec();
            if random.u8(..4) == 0 {
                table.delete(&mut txn, &key).unwrap();
                model.remove(&key);
                continue;
            }
            let most = if random.u8(..20) == 0 { 20_000 } else { 300 };
            let value = vec![random.u8(..); random.usize(..most)];
            table.put(&mut txn, &key, &value).unwrap();
            model.insert(key, value);
        }
        if random.u8(..8) == 0 {
            // What was written is given back.
            txn.abort();
            model.clear();
            let txn = env.read_txn().unwrap();
            for row in table.iter(&txn).unwrap() {
                let (key, value) = row.unwrap();
                model.insert(key.to_vec(), value.to_vec());
            }
        } else {
            txn.commit().unwrap();
        }
    }
}

/// Always false: what was refused is told.
fn is_damage(watch: &Watch, error: &heed::Error) -> bool {
    assert!(
        matches!(error, heed::Error::Mdb(MdbError::Corrupted)),
        "{error}"
    );
    let fault = watch.fault().unwrap();
    assert!(fault.contains(DATA) && fault.contains("page "), "{fault}");
    false
}

/// What reads say: each row as it was written, or that a page is damaged.
fn agrees(env: &Env, table: Table, watch: &Watch, model: &Rows) -> bool {
    let damaged = |error: &heed::Error| is_damage(watch, error);
    let txn = env.read_txn().unwrap();
    let mut whole = true;
    for (key, value) in model {
        match table.get(&txn, key) {
            Ok(found) => assert_eq!(found, Some(value.as_slice())),
            Err(error) => whole = damaged(&error),
        }
    }
    let mut expected = model.iter();
    for row in table.iter(&txn).unwrap() {
        match row {
            Ok(row) => assert_eq!(Some(row), expected.next().map(|(k, v)| (&k[..], &v[..]))),
            Err(error) => return damaged(&error),
        }
    }
    assert!(expected.next().is_none());
    whole
}

fn made(durability: Durability) -> (tempfile::TempDir, Rows) {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Rows::new();
    let (env, watch) = open_in(dir.path(), durability).unwrap();
    let table = table(&env).unwrap();
    fill(&env, table, &mut model, &mut Rng::with_seed(7), 40);
    assert!(agrees(&env, table, &watch, &model));
    env.prepare_for_closing().wait();
    (dir, model)
}

#[test]
fn what_was_written_is_read_by_the_same_and_the_next_process() {
    for durability in [Durability::EachCommit, Durability::Checkpoints] {
        let dir = tempfile::tempdir().unwrap();
        let mut model = Rows::new();
        let mut random = Rng::with_seed(1);
        for _ in 0..6 {
            let (env, watch) = open_in(dir.path(), durability).unwrap();
            let table = table(&env).unwrap();
            assert!(agrees(&env, table, &watch, &model));
            fill(&env, table, &mut model, &mut random, 25);
            assert!(agrees(&env, table, &watch, &model));
            let commit = env.read_txn().unwrap().id() as u64;
            assert_eq!(watch.verify(commit).unwrap(), Some(Vec::new()));
            env.prepare_for_closing().wait();
        }
    }
}

#[test]
fn a_large_transaction_reads_what_it_has_written_already() {
    let dir = tempfile::tempdir().unwrap();
    let (env, watch) = open_in(dir.path(), Durability::EachCommit).unwrap();
    let table = table(&env).unwrap();
    let mut txn = env.write_txn().unwrap();
    let mut model = Rows::new();
    // More pages than LMDB keeps: it writes some before the commit, and reads them again.
    for number in 0..150_000_u32 {
        let key = number.wrapping_mul(2_654_435_761).to_be_bytes().to_vec();
        let value = vec![number.to_le_bytes()[0]; 1_000];
        table.put(&mut txn, &key, &value).unwrap();
        if number % 50 == 0 {
            model.insert(key, value);
        }
    }
    for (key, value) in &model {
        assert_eq!(table.get(&txn, key).unwrap(), Some(value.as_slice()));
    }
    txn.commit().unwrap();
    let txn = env.read_txn().unwrap();
    for (key, value) in &model {
        assert_eq!(table.get(&txn, key).unwrap(), Some(value.as_slice()));
    }
    assert_eq!(watch.fault(), None);
}

/// Flips a bit of a file, fills a page with noise, or cuts it off.
fn damage(path: &Path, random: &mut Rng) -> String {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let at = random.u64(..len);
    match random.u8(..4) {
        0 => {
            let noise: Vec<u8> = (0..4096).map(|_| random.u8(..)).collect();
            let at = at & !4095;
            let end = usize::try_from((len - at).min(4096)).unwrap();
            file.write_all_at(&noise[..end], at).unwrap();
            format!("noise at {at}")
        }
        1 => {
            file.set_len(at).unwrap();
            format!("cut off at {at}")
        }
        _ => {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1 << random.u8(..8)], at)
                .unwrap();
            format!("a bit at {at}")
        }
    }
}

#[test]
fn damage_is_refused_and_nothing_else_is_read() {
    let (dir, model) = made(Durability::EachCommit);
    let files = [DATA, SUMS].map(|name| (name, fs::read(dir.path().join(name)).unwrap()));
    let tries = std::env::var("AFAR_DAMAGE_TRIES").map_or(150, |tries| tries.parse().unwrap());
    let mut random = Rng::with_seed(3);
    let mut refused = 0;
    for attempt in 0..tries {
        let other = tempfile::tempdir().unwrap();
        for (name, bytes) in &files {
            fs::write(other.path().join(name), bytes).unwrap();
        }
        let name = files[random.usize(..4).min(1)].0;
        let what = damage(&other.path().join(name), &mut random);
        eprintln!("{attempt}: {name}: {what}");
        match open_in(other.path(), Durability::EachCommit) {
            Err(OpenError::Damaged { file, .. }) => {
                assert!(file.ends_with(DATA));
                refused += 1;
            }
            // LMDB's own words for a page that does not begin a database.
            Err(OpenError::Lmdb(error)) => panic!("{error}"),
            Err(error) => panic!("{error}"),
            Ok((env, watch)) => {
                let table = match table(&env) {
                    Ok(table) => table,
                    Err(error) => {
                        refused += usize::from(!is_damage(&watch, &error));
                        continue;
                    }
                };
                refused += usize::from(!agrees(&env, table, &watch, &model));
                // Writing meets damage too.
                let write = || {
                    let mut txn = env.write_txn()?;
                    for key in 0..600_u16 {
                        table.put(&mut txn, &key.to_be_bytes(), b"new")?;
                    }
                    txn.commit()
                };
                match write() {
                    Ok(()) => {}
                    // What LMDB met while it made room: it says so at the commit.
                    Err(heed::Error::Mdb(MdbError::BadTxn)) => assert!(watch.fault().is_some()),
                    Err(error) => assert!(!is_damage(&watch, &error)),
                }
                env.prepare_for_closing().wait();
            }
        }
    }
    assert!(refused > tries / 4, "{refused} of {tries}");
}

#[test]
fn a_file_that_is_cut_off_is_refused_at_once() {
    let (dir, _) = made(Durability::EachCommit);
    let path = dir.path().join(DATA);
    let file = File::options().write(true).open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(len - 1).unwrap();
    let error = open_in(dir.path(), Durability::EachCommit)
        .unwrap_err()
        .to_string();
    assert!(error.contains("truncated at page"), "{error}");
    file.set_len(0).unwrap();
    let error = open_in(dir.path(), Durability::EachCommit)
        .unwrap_err()
        .to_string();
    assert!(error.contains("missing or empty"), "{error}");
}

#[test]
fn a_page_that_is_cut_off_while_it_is_open_is_refused() {
    let (dir, model) = made(Durability::EachCommit);
    let (env, watch) = open_in(dir.path(), Durability::EachCommit).unwrap();
    let path = dir.path().join(DATA);
    let file = File::options().write(true).open(&path).unwrap();
    // The pages that begin the file are in use by now; no other one has been looked at.
    file.set_len(2 * 4096).unwrap();
    assert!(!is_damage(&watch, &table(&env).unwrap_err()));
    assert!(!model.is_empty());
    let fault = watch.fault().unwrap();
    assert!(fault.contains("truncated"), "{fault}");
}

#[test]
fn a_database_without_checksums_gets_them_if_it_is_sound() {
    for damaged in [false, true] {
        let (dir, model) = made(Durability::EachCommit);
        fs::remove_file(dir.path().join(SUMS)).unwrap();
        if damaged {
            let file = File::options()
                .write(true)
                .open(dir.path().join(DATA))
                .unwrap();
            for page in 2..file.metadata().unwrap().len() / 4096 {
                file.write_all_at(&[0xff; 16], page * 4096).unwrap();
            }
        }
        let opened = open_in(dir.path(), Durability::EachCommit);
        if damaged {
            assert!(matches!(opened, Err(OpenError::Damaged { .. })));
            continue;
        }
        let (env, watch) = opened.unwrap();
        assert!(agrees(&env, table(&env).unwrap(), &watch, &model));
    }
}

#[test]
fn pages_at_the_end_that_were_never_used_are_not_missed() {
    let (dir, model) = made(Durability::EachCommit);
    fs::remove_file(dir.path().join(SUMS)).unwrap();
    let path = dir.path().join(DATA);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    // As if a commit of an older version had taken pages at the end and given them back.
    for page in [0, 1] {
        let at = page * 4096 + 16 + 120;
        let mut last = [0; 8];
        file.read_exact_at(&mut last, at).unwrap();
        let more = u64::from_ne_bytes(last) + 40;
        file.write_all_at(&more.to_ne_bytes(), at).unwrap();
    }
    let (env, watch) = open_in(dir.path(), Durability::EachCommit).unwrap();
    assert!(file.metadata().unwrap().len() >= len + 40 * 4096);
    assert!(agrees(&env, table(&env).unwrap(), &watch, &model));
}

#[test]
fn others_may_not_read_it() {
    let (dir, _) = made(Durability::EachCommit);
    let mode = |name: &str| {
        fs::metadata(dir.path().join(name))
            .unwrap()
            .permissions()
            .mode()
    };
    for name in [DATA, SUMS] {
        assert_eq!(mode(name) & 0o777, 0o600);
        let open_to_all = fs::Permissions::from_mode(0o644);
        fs::set_permissions(dir.path().join(name), open_to_all).unwrap();
    }
    let (_env, _watch) = open_in(dir.path(), Durability::EachCommit).unwrap();
    for name in [DATA, SUMS] {
        assert_eq!(mode(name) & 0o777, 0o600);
    }
}
