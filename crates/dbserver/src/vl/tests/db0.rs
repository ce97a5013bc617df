//! OpenAFS's file.

use std::process::Command;

use proptest::prelude::*;

use super::super::db0::{HEADER_LEN, decode, export_vldb};
use super::super::{Db0Error, Entry, Identity, Server, SiteBytes, Vldb, import_vldb};
use super::{Fixture, address, entry, uuid};

fn server(n: u8, identity: Option<(u8, u8)>) -> (u8, Server) {
    let identity = identity.map(|slot| Identity {
        uuid: uuid(n),
        uniquifier: 7,
        slot,
    });
    let count = if identity.is_some() { 3 } else { 1 };
    let addresses = (0..count).map(|a| address(n) + (a << 8)).collect();
    (
        n,
        Server {
            identity,
            addresses,
        },
    )
}

/// Thousands of entries, so that every chain has some.
fn large() -> Vldb {
    let entry = |n: u32| Entry {
        name: format!("volume.{n}").into_bytes(),
        ids: [
            3 * n + 9,
            3 * n + 10,
            if n.is_multiple_of(2) { 0 } else { 3 * n + 11 },
        ],
        flags: if n.is_multiple_of(3) { 0x3000 } else { 0x3010 },
        lock_time: n % 3,
        clone_id: n % 5,
        places: (0..u8::try_from(n % 14).unwrap().max(1))
            .map(|copy| SiteBytes {
                server: copy % 3,
                partition: copy,
                flags: if copy == 0 { 4 } else { 2 },
            })
            .collect(),
        ..Entry::default()
    };
    Vldb {
        max_volume_id: 0x2000_0000,
        servers: vec![
            server(0, None),
            server(1, Some((0, 1))),
            server(2, Some((1, 63))),
        ],
        entries: (0..20_000).map(entry).collect(),
    }
}

#[test]
fn what_is_written_is_read() {
    let vldb = large();
    let file = export_vldb(&vldb, 1_700_000_000).unwrap();
    assert_eq!(import_vldb(&mut file.as_slice()).unwrap(), vldb);
    let empty = Vldb::default();
    let file = export_vldb(&empty, 1).unwrap();
    assert_eq!(file.len(), 64 + HEADER_LEN.next_multiple_of(1024));
    assert_eq!(decode(&file).unwrap(), empty);
}

/// OpenAFS's own tool follows every chain of the file.
#[test]
fn vldb_check_finds_nothing_to_complain_about() {
    let tool = ["/usr/sbin/vldb_check", "/usr/lib/openafs/vldb_check"];
    let Some(tool) = tool
        .into_iter()
        .find(|tool| std::path::Path::new(tool).exists())
    else {
        eprintln!("skipped: vldb_check of OpenAFS (package openafs-dbserver) is missing");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vldb.DB0");
    std::fs::write(&path, export_vldb(&large(), 1_700_000_000).unwrap()).unwrap();
    let output = Command::new(tool)
        .arg("-database")
        .arg(&path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(
        !text.contains("address "),
        "something is wrong somewhere: {text}"
    );
    assert!(text.contains("largest id found in VLDB is 60008"), "{text}");
}

#[test]
fn damage_is_told() {
    let file = export_vldb(&large(), 1).unwrap();
    let broken = |at: usize, byte: u8| {
        let mut file = file.clone();
        file[at] = byte;
        decode(&file)
    };
    assert!(matches!(decode(&[]), Err(Db0Error::Not(_))));
    assert!(matches!(broken(0, 1), Err(Db0Error::Not(_))));
    assert!(matches!(broken(67, 2), Err(Db0Error::Version(2))));
    assert!(matches!(broken(70, 0), Err(Db0Error::Not(_))));
    assert!(matches!(
        broken(64 + 12, 0x7f),
        Err(Db0Error::Damaged { at: 12, .. })
    ));
    // The second server's place among those with UUIDs.
    for (byte, value) in [(1, 4), (2, 1), (3, 0), (3, 64)] {
        let found = broken(64 + 44 + byte, value);
        assert!(
            matches!(found, Err(Db0Error::Damaged { at: 44, .. })),
            "{byte} {value}"
        );
    }
    for cut in [63, 64, 100, 64 + HEADER_LEN, file.len() - 1025] {
        assert!(decode(&file[..cut]).is_err(), "{cut}");
    }
}

#[tokio::test]
async fn a_database_goes_out_and_comes_in() {
    let cell = Fixture::new();
    cell.register(2, &[address(2), address(22)]).await.unwrap();
    cell.create(entry("root.afs", 100, &[2])).await.unwrap();
    cell.create(entry("root.cell", 200, &[2, 3])).await.unwrap();
    cell.lock(100, 0x20).await.unwrap();
    let file = export_vldb(&cell.server.contents().unwrap(), 1).unwrap();
    let other = Fixture::new();
    other.server.load(decode(&file).unwrap()).await.unwrap();
    assert_eq!(
        other.server.contents().unwrap(),
        cell.server.contents().unwrap()
    );
    for name in ["root.afs", "root.cell"] {
        assert_eq!(other.by_name(name).await, cell.by_name(name).await);
    }
    assert_eq!(
        other.lock(100, 0x20).await,
        Err(super::super::codes::VL_ENTRYLOCKED)
    );
    let again = other.server.load(Vldb::default()).await;
    assert_eq!(again, Err(super::super::codes::VL_CREATEFAIL));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(changes in prop::collection::vec((0..150_000usize, any::<u8>()), 1..20)) {
        let mut vldb = large();
        vldb.entries.truncate(20);
        let mut file = export_vldb(&vldb, 1).unwrap();
        for (at, byte) in changes {
            let at = at % file.len();
            file[at] = byte;
        }
        if let Ok(found) = decode(&file) {
            prop_assert!(found.entries.len() <= file.len() / 148);
        }
    }
}

/// A file that a vlserver of OpenAFS 1.8.9 wrote, as its words that are not 0: a line is an
/// offset and what is there; the first line is the length.
fn real() -> Vec<u8> {
    let mut lines = include_str!("vldb.txt").lines();
    let length = usize::from_str_radix(lines.next().unwrap(), 16).unwrap();
    let mut file = vec![0; length];
    for line in lines {
        let (at, digits) = line.split_once(' ').unwrap();
        let at = usize::from_str_radix(at, 16).unwrap();
        for n in 0..digits.len() / 2 {
            file[at + n] = u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).unwrap();
        }
    }
    file
}

#[tokio::test]
async fn a_database_of_a_real_server_is_taken_over() {
    let vldb = decode(&real()).unwrap();
    assert_eq!(vldb.max_volume_id, 536_870_922);
    let [(0, server)] = vldb.servers.as_slice() else {
        panic!("{:?}", vldb.servers);
    };
    assert_eq!(server.addresses, [0x0a61_0001]);
    let identity = server.identity.unwrap();
    assert_eq!(
        identity.uuid.to_string(),
        "00871bc6-eb40-1b01-a683-0100610aaa77"
    );
    assert_eq!((identity.slot, identity.uniquifier), ((0, 1), 1));
    let cell = Fixture::new();
    cell.server.load(vldb.clone()).await.unwrap();
    let found = cell.by_name("root.cell.readonly").await.unwrap();
    assert_eq!(
        found.volume_id.map(|id| id.0),
        [536_870_913, 536_870_916, 0]
    );
    assert_eq!(
        found.server_flags[..3]
            .iter()
            .map(|f| f.0)
            .collect::<Vec<_>>(),
        [4, 2, 0]
    );
    assert_eq!(
        cell.by_id(536_870_914, 0).await.unwrap().name.as_bytes(),
        b"test.open"
    );
    assert_eq!(cell.server.contents().unwrap(), vldb);
    // What is written of it differs only in its counters and chains, and reads the same.
    let file = export_vldb(&vldb, 1).unwrap();
    assert_eq!(file.len(), real().len());
    assert_eq!(decode(&file).unwrap(), vldb);
}
