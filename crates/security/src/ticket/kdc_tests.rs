//! Tickets of MIT's KDC and the keytab of its administrator, where they are installed.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use super::{TicketPolicy, open};
use crate::ccache::Ccache;
use crate::keys::edit;
use crate::tests::kdc::{Kdc, succeed};
use crate::{KeyRing, RxkadError, kvno};

/// An encryption type as `kadmin` calls it, and the cell whose key is of that type.
const CELLS: [(&str, &str); 6] = [
    ("aes128-cts", "17.example.org"),
    ("aes256-cts", "18.example.org"),
    ("aes128-sha2", "19.example.org"),
    ("aes256-sha2", "20.example.org"),
    ("arcfour-hmac", "23.example.org"),
    ("camellia256-cts", "26.example.org"),
];

#[test]
fn tickets_of_a_kdc_are_opened_with_its_keytab() {
    let folder = tempfile::tempdir().unwrap();
    let keytab = folder.path().join("afs.keytab");
    let mut queries = vec!["addprinc -pw secret alice/admin".to_owned()];
    for (etype, cell) in CELLS {
        queries.push(format!("addprinc -randkey -e {etype}:normal afs/{cell}"));
        // Twice, so that the number is not 1 and an older key is in the file.
        for _ in 0..2 {
            let to = keytab.display();
            queries.push(format!("ktadd -k {to} -e {etype}:normal afs/{cell}"));
        }
    }
    let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
    let Some(kdc) = Kdc::start(folder.path(), &queries) else {
        return;
    };
    log_in(&kdc);
    let services = CELLS.map(|(_, cell)| format!("afs/{cell}"));
    succeed(kdc.command("kvno").args(services));

    let ext = folder.path().join("KeyFileExt");
    let imported = edit::import(&ext, &keytab).unwrap();
    assert_eq!((imported.added.len(), imported.skipped.len()), (10, 2));
    let cache = Ccache::read(&folder.path().join("usual")).unwrap();
    let now = SystemTime::now();
    for keys in [&keytab, &ext] {
        let keys = KeyRing::open([keys]).unwrap();
        for (etype, cell) in CELLS {
            let credential = cache.for_cell(cell, now).unwrap();
            let opened = open(
                kvno::K5,
                &credential.ticket,
                &keys,
                &TicketPolicy::default(),
                now,
            );
            if etype.starts_with("camellia") {
                assert_eq!(opened, Err(RxkadError::UnknownKey));
                continue;
            }
            let opened = opened.unwrap();
            assert_eq!(opened.client.to_string(), "alice.admin@EXAMPLE.ORG");
            let token = credential.token().unwrap();
            assert!(opened.key == token.key, "{etype}");
            assert_eq!((opened.start, opened.end), (token.start, token.end));
        }
    }
}

/// Logs in as soon as the KDC answers.
fn log_in(kdc: &Kdc) {
    let password = "echo secret | kinit alice/admin";
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        if kdc
            .command("sh")
            .args(["-c", password])
            .output()
            .unwrap()
            .status
            .success()
        {
            return;
        }
        sleep(Duration::from_millis(50));
    }
    succeed(kdc.command("sh").args(["-c", password]));
}
