//! Files of keys: read, changed, broken, replaced.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::tests::hex;

/// A KeyFileExt as `asetkey` 1.8 writes it: a key of rxgk and two for tickets.
const EXT: &str = "00000003
    00000010 00000001 00000001 00000012 00000004 01020304
    00000010 00000002 00000005 00000011 00000010 000102030405060708090a0b0c0d0e0f
    00000010 00000002 00000005 00000012 00000020
        000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn file(name: &str, content: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    (folder, path)
}

fn key(kvno: u32, etype: EncryptionType) -> Key {
    Key {
        kvno,
        key: EncryptionKey::random(etype),
    }
}

fn ids(infos: &[KeyInfo]) -> Vec<(KeyKind, u32, i32)> {
    infos
        .iter()
        .map(|info| (info.kind, info.kvno, info.etype))
        .collect()
}

#[test]
fn a_key_file_ext_is_read_and_written_alike() {
    let (_folder, path) = file("KeyFileExt", &hex(EXT));
    let ring = KeyRing::open([&path]).unwrap();
    let long = ring.find(5, 18).unwrap();
    assert_eq!(long.key.octets(), (0..32).collect::<Vec<u8>>());
    assert_eq!(ring.find(5, 17).unwrap().key.octets().len(), 16);
    assert_eq!(ring.find(5, 20), None);
    assert_eq!(ring.find(1, 18), None, "a key of rxgk opens no tickets");
    assert_eq!(ring.newest(), Some(long));
    assert!(!ring.is_empty());
    let records = keyfile::parse_ext(&hex(EXT)).unwrap();
    assert_eq!(*keyfile::write_ext(&records), hex(EXT));
    let told: Vec<String> = ring.list().iter().map(ToString::to_string).collect();
    assert_eq!(told[2], "rxkad_krb5 kvno 5: aes256-cts-hmac-sha1-96");
    assert!(
        !format!("{ring:?}{records:?}").contains("31"),
        "no key is printed"
    );
}

#[test]
fn longer_heads_are_skipped() {
    let longer = "00000001 00000014 00000002 00000005 00000017 ffffffff 00000010
        000102030405060708090a0b0c0d0e0f";
    let records = keyfile::parse_ext(&hex(longer)).unwrap();
    assert_eq!(records[0].id(), (KeyKind::RxkadKrb5, 5, 23));
}

#[test]
fn what_is_broken_is_named() {
    let whole = hex(EXT);
    let damaged = |octets: &[u8]| {
        let (_folder, path) = file("KeyFileExt", octets);
        let error = KeyRing::open([&path]).unwrap_err();
        assert!(error.to_string().contains("KeyFileExt"), "{error}");
        match error {
            KeyError::Damaged { record, .. } => record,
            KeyError::NoKeyFile { .. } => 0,
            other => panic!("{other}"),
        }
    };
    assert_eq!(damaged(&[]), 0);
    assert_eq!(damaged(&whole[..5]), 1);
    assert_eq!(damaged(&whole[..whole.len() - 1]), 3);
    assert_eq!(damaged(&[&whole[..], &[0]].concat()), 0);
    // The number is written last.
    assert_eq!(damaged(&[&[0; 4], &whole[4..]].concat()), 0);
    let mut short = whole.clone();
    short[7] = 15;
    assert_eq!(damaged(&short), 1);
    let mut other_type = whole;
    other_type[4 + 24 + 15] = 18;
    assert_eq!(damaged(&other_type), 2);
    assert_eq!(damaged(&[0xff; 64]), 1);
    let missing = KeyRing::open(["/proc/nonexistent/KeyFileExt"]).unwrap_err();
    assert!(matches!(missing, KeyError::Read { .. }), "{missing}");
}

#[test]
fn a_key_file_has_des_keys() {
    let mut content = hex("00000002 00000003 0123456789abcdef 00000004 fedcba9876543210");
    content.resize(100, 0);
    let (_folder, path) = file("KeyFile", &content);
    let ring = KeyRing::open([&path]).unwrap();
    for etype in 1..=3 {
        let key = ring.find(4, etype).unwrap().key;
        assert_eq!(
            (key.etype(), key.octets()),
            (etype, &hex("fedcba9876543210")[..])
        );
    }
    assert_eq!(ring.find(4, 18), None);
    assert_eq!(ring.newest(), None);
    assert_eq!(ids(&ring.list())[0], (KeyKind::Rxkad, 3, 0));
    let (_folder, path) = file("KeyFile", &content[..15]);
    assert!(matches!(
        KeyRing::open([&path]),
        Err(KeyError::Damaged { record: 1, .. })
    ));
}

/// A keytab as `ktutil` of MIT krb5 writes it: afs/example.org, a hole, host/fs1, afs.
fn keytab() -> Vec<u8> {
    let entry = |components: &[&str], kvno: u32, etype: u16, key: &[u8]| {
        let text = |text: &str| {
            let len = u16::try_from(text.len()).unwrap().to_be_bytes();
            [&len[..], text.as_bytes()].concat()
        };
        let mut entry = u16::try_from(components.len())
            .unwrap()
            .to_be_bytes()
            .to_vec();
        entry.extend(text("EXAMPLE.ORG"));
        for component in components {
            entry.extend(text(component));
        }
        entry.extend([0, 0, 0, 1, 0x65, 0, 0, 0, kvno.to_le_bytes()[0]]);
        entry.extend(etype.to_be_bytes());
        entry.extend(u16::try_from(key.len()).unwrap().to_be_bytes());
        entry.extend(key);
        entry.extend(kvno.to_be_bytes());
        let len = u32::try_from(entry.len()).unwrap().to_be_bytes();
        [&len[..], &entry].concat()
    };
    [
        vec![5, 2],
        entry(&["afs", "example.org"], 300, 18, &[1; 32]),
        hex("fffffffb 0000000000"),
        entry(&["host", "fs1"], 300, 18, &[2; 32]),
        entry(&["afs"], 2, 23, &[3; 16]),
        entry(&["afs"], 2, 1, &[4; 8]),
        entry(&["afs"], 2, 26, &[5; 32]),
    ]
    .concat()
}

#[test]
fn a_keytab_gives_the_keys_of_afs() {
    let (_folder, path) = file("afs.keytab", &keytab());
    let ring = KeyRing::open([&path]).unwrap();
    assert_eq!(
        ids(&ring.list()),
        [
            (KeyKind::RxkadKrb5, 300, 18),
            (KeyKind::RxkadKrb5, 2, 23),
            (KeyKind::Rxkad, 2, 0),
            (KeyKind::RxkadKrb5, 2, 26),
        ]
    );
    assert_eq!(ring.find(300, 18).unwrap().key.octets(), [1; 32]);
    assert_eq!(ring.find(2, 3).unwrap().key.octets(), [4; 8]);
    let usable: Vec<bool> = ring.list().iter().map(KeyInfo::is_usable).collect();
    assert_eq!(usable, [true, true, true, false]);
}

#[test]
fn broken_keytabs_are_refused() {
    let whole = keytab();
    let (_folder, path) = file("afs.keytab", &whole[..whole.len() - 1]);
    assert!(matches!(
        KeyRing::open([&path]),
        Err(KeyError::Damaged { record: 6, .. })
    ));
    let mut version = whole.clone();
    version[1] = 1;
    let (_folder, path) = file("afs.keytab", &version);
    assert!(matches!(
        KeyRing::open([&path]),
        Err(KeyError::NoKeyFile { .. })
    ));
    // The first entry says that its realm has 65535 bytes.
    let mut long = whole;
    long[8..10].fill(0xff);
    let (_folder, path) = file("afs.keytab", &long);
    assert!(matches!(
        KeyRing::open([&path]),
        Err(KeyError::Damaged { record: 1, .. })
    ));
}

#[test]
fn several_files_are_one_ring() {
    let (folder, ext) = file("KeyFileExt", &hex(EXT));
    let tab = folder.path().join("afs.keytab");
    fs::write(&tab, keytab()).unwrap();
    let ring = KeyRing::open([&ext, &tab]).unwrap();
    assert_eq!(ring.find(5, 18).unwrap().key.octets()[1], 1);
    assert_eq!(ring.newest().unwrap().kvno, 300);
    assert_eq!(ring.list().len(), 7);
    assert!(ring.sources().contains("afs.keytab"));
}

#[test]
fn the_best_type_is_preferred_to_the_highest_number() {
    let ring = KeyRing::of([
        key(9, EncryptionType::Rc4),
        key(8, EncryptionType::Aes256Sha2),
        key(3, EncryptionType::Aes256Sha1),
        key(4, EncryptionType::Aes256Sha1),
        key(5, EncryptionType::Aes128Sha1),
    ]);
    let newest = ring.newest().unwrap();
    assert_eq!((newest.kvno, newest.key.etype()), (4, 18));
}

#[test]
fn a_ring_follows_its_file() {
    let (_folder, path) = file("KeyFileExt", &hex(EXT));
    let ring = KeyRing::open([&path]).unwrap().always_look();
    let new = edit::generate(&path, None, EncryptionType::Aes256Sha1).unwrap();
    assert_eq!(new.kvno, 6);
    assert_eq!(ring.find(6, 18), Some(new.clone()));
    fs::write(&path, b"rubbish").unwrap();
    assert_eq!(ring.newest(), Some(new));
    fs::write(&path, [0; 4]).unwrap();
    assert!(ring.is_empty());
}

#[test]
fn keys_are_added_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("KeyFileExt");
    let first = edit::generate(&path, None, EncryptionType::Aes256Sha1).unwrap();
    assert_eq!(first.kvno, 1);
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let second = key(1, EncryptionType::Aes128Sha2);
    assert!(edit::add(&path, &second).unwrap());
    assert!(!edit::add(&path, &second).unwrap(), "it is there already");
    let other = edit::add(&path, &key(1, EncryptionType::Aes128Sha2));
    assert!(matches!(
        other,
        Err(KeyError::Exists {
            kvno: 1,
            etype: 19,
            ..
        })
    ));
    let generated = edit::generate(&path, Some(1), EncryptionType::Aes256Sha1);
    assert!(matches!(generated, Err(KeyError::Exists { .. })));
    let ring = KeyRing::open([&path]).unwrap();
    assert_eq!(ring.find(1, 18), Some(first));
    assert_eq!(ring.find(1, 19), Some(second));

    assert_eq!(
        ids(&edit::remove(&path, 1, Some(18)).unwrap()),
        [(KeyKind::RxkadKrb5, 1, 18)]
    );
    assert!(matches!(
        edit::remove(&path, 1, Some(18)),
        Err(KeyError::Missing { .. })
    ));
    assert_eq!(edit::remove(&path, 1, None).unwrap().len(), 1);
    assert_eq!(edit::list(&path).unwrap(), []);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing is left beside it"
    );
}

#[test]
fn keys_that_open_nothing_are_not_added() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("KeyFileExt");
    let add = |etype, len| {
        let key = Key {
            kvno: 1,
            key: EncryptionKey::new(etype, vec![1; len]),
        };
        edit::add(&path, &key).unwrap_err()
    };
    assert!(matches!(add(1, 8), KeyError::Des(_)));
    assert!(matches!(
        add(18, 16),
        KeyError::Unusable {
            etype: 18,
            length: 16
        }
    ));
    assert!(matches!(add(26, 32), KeyError::Unusable { .. }));
    let generated = edit::generate(&path, None, EncryptionType::DesMd5);
    assert!(matches!(generated, Err(KeyError::Des(_))));
    assert!(!path.exists());
}

#[test]
fn a_change_keeps_what_others_wrote_and_where_it_is() {
    let (folder, path) = file("KeyFileExt", &hex(EXT));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    edit::remove(&link, 5, Some(17)).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let left = [(KeyKind::Rxgk, 1, 18), (KeyKind::RxkadKrb5, 5, 18)];
    assert_eq!(ids(&edit::list(&path).unwrap()), left);
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let generated = edit::generate(&path, None, EncryptionType::Rc4).unwrap();
    assert_eq!(generated.kvno, 6);
}

#[test]
fn only_a_key_file_ext_is_changed() {
    for (name, content) in [("KeyFile", &[0; 4][..]), ("afs.keytab", &keytab())] {
        let (_folder, path) = file(name, content);
        let changed = edit::generate(&path, None, EncryptionType::Aes256Sha1);
        assert!(matches!(changed, Err(KeyError::NoKeyFile { .. })), "{name}");
        assert_eq!(fs::read(&path).unwrap(), content);
    }
    let nowhere = Path::new("/proc/nonexistent/KeyFileExt");
    let changed = edit::generate(nowhere, None, EncryptionType::Aes256Sha1);
    assert!(matches!(changed, Err(KeyError::Write { .. })));
}

#[test]
fn a_keytab_is_imported() {
    let (folder, tab) = file("afs.keytab", &keytab());
    let path = folder.path().join("KeyFileExt");
    let imported = edit::import(&path, &tab).unwrap();
    assert_eq!(
        ids(&imported.added),
        [(KeyKind::RxkadKrb5, 300, 18), (KeyKind::RxkadKrb5, 2, 23)]
    );
    assert_eq!(
        ids(&imported.skipped),
        [(KeyKind::Rxkad, 2, 0), (KeyKind::RxkadKrb5, 2, 26)]
    );
    let again = edit::import(&path, &tab).unwrap();
    assert_eq!((again.added.len(), again.present.len()), (0, 2));
    assert_eq!(KeyRing::open([&path]).unwrap().newest().unwrap().kvno, 300);

    let other = folder.path().join("other");
    let conflicting = edit::generate(&other, Some(300), EncryptionType::Aes256Sha1).unwrap();
    assert!(matches!(
        edit::import(&other, &tab),
        Err(KeyError::Exists { kvno: 300, .. })
    ));
    let ring = KeyRing::open([&other]).unwrap();
    assert_eq!((ring.list().len(), ring.newest()), (1, Some(conflicting)));
}

#[test]
fn changes_at_once_are_all_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("KeyFileExt");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| edit::generate(&path, None, EncryptionType::Aes128Sha1).unwrap());
        }
    });
    let kvnos: Vec<u32> = edit::list(&path)
        .unwrap()
        .iter()
        .map(|info| info.kvno)
        .collect();
    assert_eq!(kvnos, (1..=8).collect::<Vec<_>>());
}

fn record() -> impl Strategy<Value = Record> {
    let octets = prop::collection::vec(any::<u8>(), 0..40);
    // Kinds that say nothing about the length of their keys.
    (3u32..6, any::<u32>(), any::<i32>(), octets).prop_map(|(kind, kvno, etype, octets)| Record {
        kind: KeyKind::from_number(kind),
        kvno,
        etype,
        octets: Secret::new(octets),
    })
}

/// Of nothing, of a KeyFileExt, of a keytab.
const STARTS: &[&[u8]] = &[&[], &[0, 0, 0, 2, 0, 0, 0, 16], &[5, 2, 0, 0, 0, 60]];

proptest! {
    #[test]
    fn records_lead_back(mut records in prop::collection::vec(record(), 0..10)) {
        records.sort_by_key(|record| (record.kind.number(), record.kvno, record.etype));
        let content = keyfile::write_ext(&records);
        prop_assert_eq!(keyfile::parse_ext(&content), Ok(records));
    }

    #[test]
    fn random_files_never_panic(
        content in prop::collection::vec(any::<u8>(), 0..200),
        start in prop::sample::select(STARTS),
    ) {
        let content = [start, &content].concat();
        drop(keyfile::parse_ext(&content));
        drop(keyfile::parse_des(&content));
        drop(keytab::parse(&content));
    }

    #[test]
    fn altered_files_never_panic(at: prop::sample::Index, octet: u8, cut: prop::sample::Index) {
        for whole in [hex(EXT), keytab()] {
            let mut content = whole.clone();
            content[at.index(whole.len())] = octet;
            drop(keyfile::parse_ext(&content));
            drop(keytab::parse(&content));
            let cut = &whole[..cut.index(whole.len())];
            prop_assert!(keyfile::parse_ext(cut).is_err());
            drop(keytab::parse(cut));
        }
    }
}

#[test]
fn checksums_are_those_of_openafs() {
    // A vector of FIPS 81's time: a block of zeros under this key.
    let key = [0x10, 0x31, 0x6e, 0x02, 0x8c, 0x8f, 0x3b, 0x4a];
    assert_eq!(des_checksum(&key), Some([0x82, 0xdc, 0xba, 0xfb]));
    assert_eq!(des_checksum(&key[..7]), None);
}
