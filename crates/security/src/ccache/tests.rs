use std::process::Command;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn credential(server: &[&str], end: u32) -> Credential {
    Credential {
        client: Name::new(&["alice"], "EXAMPLE.ORG"),
        server: Name::new(server, "EXAMPLE.ORG"),
        key: EncryptionKey::new(18, (0..32).collect()),
        authenticated: 1000,
        start: 0,
        end,
        renew_till: 0,
        flags: 0x4000_0000,
        ticket: Bytes::from_static(b"a ticket's bytes"),
    }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A cache as `kinit` writes it, put together by hand from the description of its format.
fn by_hand() -> Vec<u8> {
    let count = |count: usize| u32::try_from(count).unwrap().to_be_bytes();
    let data = |text: &[u8]| [&count(text.len())[..], text].concat();
    let name = |parts: &[&[u8]], realm: &[u8]| {
        let mut name = [1u32.to_be_bytes(), count(parts.len())].concat();
        name.extend(data(realm));
        parts.iter().for_each(|part| name.extend(data(part)));
        name
    };
    let credential = |server: Vec<u8>| {
        [
            name(&[b"alice"], b"EXAMPLE.ORG"),
            server,
            vec![0, 18],
            data(&(0..32).collect::<Vec<u8>>()),
            [1000u32, 0, 5000, 0].map(u32::to_be_bytes).concat(),
            vec![0],
            0x4000_0000u32.to_be_bytes().to_vec(),
            // One address, one item of authorization data.
            [&[0, 0, 0, 1, 0, 2][..], &data(&[10, 0, 0, 1])].concat(),
            [&[0, 0, 0, 1, 0, 1][..], &data(b"data")].concat(),
            data(b"a ticket's bytes"),
            data(b""),
        ]
        .concat()
    };
    [
        // The header has the offset of the KDC's clock.
        vec![5, 4, 0, 12, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0],
        name(&[b"alice"], b"EXAMPLE.ORG"),
        credential(name(
            &[b"krb5_ccache_conf_data", b"pa_type"],
            b"X-CACHECONF:",
        )),
        credential(name(&[b"afs", b"example.org"], b"EXAMPLE.ORG")),
    ]
    .concat()
}

#[test]
fn a_cache_is_read() {
    let cache = Ccache::from_octets(&by_hand()).unwrap();
    assert_eq!(cache.principal.to_string(), "alice@EXAMPLE.ORG");
    assert_eq!(
        cache.credentials,
        [credential(&["afs", "example.org"], 5000)]
    );
    let token = cache.for_cell("example.org", at(4999)).unwrap().token();
    let token = token.unwrap();
    assert_eq!((token.kvno, token.start, token.end), (256, 1000, 5000));
    assert_eq!(*token.key.octets(), 0xb60d_b5e3_0b26_6b16_u64.to_be_bytes());
    assert!(cache.for_cell("example.org", at(5000)).is_none());
    assert!(cache.for_cell("example.com", at(0)).is_none());
}

#[test]
fn the_ticket_that_holds_longest_is_taken() {
    let cache = Ccache {
        principal: Name::new(&["alice"], "EXAMPLE.ORG"),
        credentials: vec![
            credential(&["afs", "example.org"], 3000),
            credential(&["afs"], 4000),
            credential(&["afs", "example.com"], 9000),
            credential(&["krbtgt", "EXAMPLE.ORG"], 9000),
        ],
    };
    let end = |cell| cache.for_cell(cell, at(0)).map(|found| found.end);
    assert_eq!(end("example.org"), Some(4000));
    assert_eq!(end("example.com"), Some(9000));
    assert_eq!(end("example.net"), None);
}

#[test]
fn every_end_within_is_told() {
    let whole = by_hand();
    for length in 0..whole.len() {
        let read = Ccache::from_octets(&whole[..length]);
        // Only between tickets a cache may end.
        assert!(
            read.is_err() || read.unwrap().credentials.is_empty(),
            "{length}"
        );
    }
    assert_eq!(
        Ccache::from_octets(&[5, 3, 0, 0]),
        Err(FormatError::Version(0x0503))
    );
}

#[test]
fn names_of_caches_stand_for_files() {
    let path = |name| Ccache::path_of(name).and_then(Path::to_str);
    assert_eq!(path("FILE:/run/cc"), Some("/run/cc"));
    assert_eq!(path("/run/a:b"), Some("/run/a:b"));
    assert_eq!(path("cc"), Some("cc"));
    for other in ["KEYRING:persistent:0", "KCM:", "DIR:/run/ccs", "MEMORY:x"] {
        assert_eq!(path(other), None, "{other}");
    }
}

#[test]
fn tickets_are_stored_in_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cc");
    let first = credential(&["afs", "example.org"], 5000);
    let second = credential(&["afs", "example.com"], 6000);
    let newer = credential(&["afs", "example.org"], 7000);
    for stored in [&first, &second, &newer] {
        Ccache::store(&path, stored).unwrap();
    }
    let mode = fs::metadata(&path).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    let cache = Ccache::read(&path).unwrap();
    assert_eq!(cache.credentials, [second, newer.clone()]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

    let bob = Credential {
        client: Name::new(&["bob"], "EXAMPLE.ORG"),
        ..newer
    };
    let error = Ccache::store(&path, &bob).unwrap_err().to_string();
    assert!(error.contains("is alice@EXAMPLE.ORG's"), "{error}");
    fs::write(&path, "something else").unwrap();
    assert!(matches!(
        Ccache::store(&path, &bob),
        Err(CcacheError::Format { .. })
    ));
}

#[test]
fn mit_kerberos_reads_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cc");
    let year_2100 = 4_102_444_800 / 2;
    Ccache::store(&path, &credential(&["afs", "example.org"], year_2100)).unwrap();
    let listed = Command::new("klist")
        .arg("-c")
        .arg(&path)
        .arg("-f")
        .output();
    let Ok(listed) = listed else {
        eprintln!("skipped: there is no klist (Debian: krb5-user)");
        return;
    };
    let text = String::from_utf8_lossy(&listed.stdout);
    let told = String::from_utf8_lossy(&listed.stderr);
    assert!(listed.status.success(), "{text}{told}");
    assert!(
        text.contains("Default principal: alice@EXAMPLE.ORG"),
        "{text}"
    );
    assert!(text.contains("afs/example.org@EXAMPLE.ORG"), "{text}");
}

proptest! {
    #[test]
    fn no_octets_panic(octets in prop::collection::vec(any::<u8>(), 0..200)) {
        let _read = Ccache::from_octets(&[&[5, 4, 0, 0][..], &octets].concat());
    }

    #[test]
    fn no_damage_panics(at in any::<prop::sample::Index>(), octet: u8) {
        let mut octets = by_hand();
        let at = at.index(octets.len());
        octets[at] = octet;
        if let Ok(cache) = Ccache::from_octets(&octets) {
            // What is read is written so that it is read the same.
            prop_assert_eq!(Ccache::from_octets(&cache.to_octets()), Ok(cache));
        }
    }
}
