//! Against a KDC of the test's own, where MIT's is installed.

use std::path::Path;

use super::*;
use crate::ccache::Ccache;
use crate::tests::kdc::Kdc;

/// How long a KDC may take to start.
const STARTING: Duration = Duration::from_secs(20);

/// Runs this test again with `KRB5_CONFIG`, which cannot be set while threads run.
#[test]
fn tickets_come_from_a_kdc() {
    if Krb5::new().is_err_and(|error| error.is_missing()) {
        eprintln!("skipped: there is no Kerberos library (Debian: libkrb5-3)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let queries = [
        "modprinc -maxrenewlife 7d krbtgt/EXAMPLE.ORG",
        "addprinc -pw secret -maxrenewlife 7d alice",
        "addprinc -randkey -maxrenewlife 7d afs/example.org",
    ];
    let Some(kdc) = Kdc::start(dir.path(), &queries) else {
        return;
    };
    let output = kdc
        .command(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "libkrb5::tests::with_a_kdc"])
        .env("AFAR_TEST_KDC_DIR", dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{told}");
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "tickets_come_from_a_kdc runs it where there is a KDC"]
fn with_a_kdc() {
    let Some(dir) = std::env::var_os("AFAR_TEST_KDC_DIR") else {
        eprintln!("skipped: only tickets_come_from_a_kdc runs this");
        return;
    };
    let cell: CellName = "example.org".parse().unwrap();
    let krb5 = Krb5::new().unwrap();
    let cache = krb5.cache(None).unwrap();
    let path = Path::new(&dir).join("usual");
    assert_eq!(cache.name(), format!("FILE:{}", path.display()));
    let error = cache.user().unwrap_err();
    assert!(error.is_no_cache(), "{error}");

    // The KDC may still be starting.
    let begun = SystemTime::now();
    let mut wrong = cache.log_in("alice", b"wrong").unwrap_err();
    while wrong.is_no_kdc() {
        assert!(begun.elapsed().unwrap() < STARTING, "{wrong}");
        std::thread::sleep(Duration::from_millis(50));
        wrong = cache.log_in("alice", b"wrong").unwrap_err();
    }
    assert!(
        wrong.to_string().contains("the password is wrong"),
        "{wrong}"
    );
    let nobody = cache.log_in("nobody", b"secret").unwrap_err().to_string();
    assert!(nobody.contains("nobody@EXAMPLE.ORG"), "{nobody}");
    let nowhere = cache.log_in("alice@NOWHERE.TEST", b"secret").unwrap_err();
    assert!(nowhere.is_no_kdc(), "{nowhere}");

    cache.log_in("alice", b"secret").unwrap();
    assert_eq!(cache.user().unwrap(), "alice@EXAMPLE.ORG");
    assert_eq!(krb5.full_name("bob").unwrap(), "bob@EXAMPLE.ORG");
    let realms = realms_of(
        &cell,
        None,
        Some(&krb5),
        &["fs1.example.net".to_owned()],
        None,
    );
    assert_eq!(realms, ["EXAMPLE.ORG"]);
    let ticket = cache.ticket(&cell, &realms).unwrap();
    assert_eq!(ticket.client, "alice@EXAMPLE.ORG");
    assert_eq!(ticket.service, "afs/example.org@EXAMPLE.ORG");
    assert!(ticket.token.left(SystemTime::now()).is_some());

    // Our own reader finds the same.
    let read = Ccache::read(&path).unwrap();
    let found = read.for_cell("example.org", SystemTime::now()).unwrap();
    assert_eq!(found.client.to_string(), "alice@EXAMPLE.ORG");
    assert_eq!(found.token().unwrap(), ticket.token);

    let other: CellName = "example.com".parse().unwrap();
    let error = cache.ticket(&other, &realms).unwrap_err();
    assert!(error.is_unknown_service(), "{error}");
    assert!(
        error.to_string().contains("afs/example.com@EXAMPLE.ORG"),
        "{error}"
    );

    assert!(
        !cache
            .renew(SystemTime::now(), Duration::from_secs(60))
            .unwrap()
    );
    std::thread::sleep(Duration::from_millis(1100));
    let week = Duration::from_secs(7 * 24 * 3600);
    assert!(cache.renew(SystemTime::now(), week).unwrap());
    let renewed = cache.ticket(&cell, &realms).unwrap();
    assert!(renewed.token.end > ticket.token.end);
    assert_ne!(renewed.token.ticket, ticket.token.ticket);
}

#[test]
fn realms_without_the_library() {
    let cell: CellName = "example.org".parse().unwrap();
    let realms = |given, user| realms_of(&cell, given, None, &[], user);
    assert_eq!(realms(None, None), ["EXAMPLE.ORG"]);
    assert_eq!(
        realms(None, Some("alice@A.TEST")),
        ["A.TEST", "EXAMPLE.ORG"]
    );
    assert_eq!(realms(None, Some("alice@EXAMPLE.ORG")), ["EXAMPLE.ORG"]);
    assert_eq!(realms(Some("B.TEST"), Some("alice@A.TEST")), ["B.TEST"]);
}
