//! `afar keys` as an administrator sees it, and servers whose keys change while they run.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "the tests of rights need more of it")]
#[path = "../rights/cell.rs"]
mod cell;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use afar_net::{Config, Endpoint};
use afar_rpc::vl;
use afar_security::{Level, Token};

use cell::{Cell, REALM, security};

/// RXKADUNKNOWNKEY.
const UNKNOWN_KEY: i32 = 19_270_408;
/// VL_PERM: what a user is told who may not do this, but is known.
const VL_PERM: i32 = 363_546;

/// `afar keys` with a file, and something on its standard input.
fn keys(file: &Path, words: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_afar"))
        .arg("keys")
        .args(words)
        .arg("--file")
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Commands that read nothing may have ended.
    let _gone = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn keys_are_made_added_listed_and_removed_and_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("KeyFileExt");
    let secret = "0f".repeat(32);
    assert!(refused(&keys(&file, &["list"], "")).contains("there is no key in"));
    let made = said(&keys(&file, &["generate"], ""));
    assert!(
        made.contains("made rxkad_krb5 kvno 1: aes256-cts-hmac-sha1-96"),
        "{made}"
    );
    let added = said(&keys(
        &file,
        &["add", "--kvno", "7"],
        &format!("{secret}\n"),
    ));
    assert!(added.contains("added rxkad_krb5 kvno 7"), "{added}");
    let again = said(&keys(&file, &["add", "--kvno", "7"], &secret));
    assert!(again.contains("there already"), "{again}");
    let made = said(&keys(&file, &["generate", "--etype", "aes128-cts"], ""));
    assert!(made.contains("kvno 8: aes128"), "{made}");

    let listed = said(&keys(&file, &["list"], ""));
    let numbers: Vec<_> = listed
        .lines()
        .map(|line| line.split(':').next().unwrap())
        .collect();
    let kvnos = [1, 7, 8].map(|kvno| format!("rxkad_krb5 kvno {kvno}"));
    assert_eq!(numbers, kvnos);
    let json = said(&keys(&file, &["list", "--json"], ""));
    assert!(!listed.contains("0f0f") && !json.contains("0f0f"));
    let object: serde_json::Value = serde_json::from_str(json.lines().nth(1).unwrap()).unwrap();
    assert_eq!((&object["kvno"], &object["etype"]), (&7.into(), &18.into()));

    let gone = said(&keys(&file, &["remove", "7"], ""));
    assert!(gone.contains("removed rxkad_krb5 kvno 7"), "{gone}");
    let other = dir.path().join("other");
    let taken = keys(&other, &["import", file.to_str().unwrap()], "");
    assert_eq!(said(&taken).matches("added").count(), 2);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&other).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn mistakes_are_told_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("KeyFileExt");
    said(&keys(&file, &["generate", "--kvno", "3"], ""));
    let before = std::fs::read(&file).unwrap();
    let missing = dir.path().join("missing");
    for (words, input, says) in [
        (&["add", "--kvno", "4"] as &[&str], "0f0f", "32 bytes"),
        (&["add", "--kvno", "4"], "secret", "hexadecimal"),
        (
            &["add", "--kvno", "3"],
            &"0f".repeat(32),
            "another key kvno 3",
        ),
        (&["generate", "--kvno", "3"], "", "another key kvno 3"),
        (&["generate", "--etype", "des-cbc-crc"], "", "broken"),
        (&["remove", "9"], "", "no key kvno 9"),
        (
            &["import", missing.to_str().unwrap()],
            "",
            "cannot read keys",
        ),
    ] {
        let told = refused(&keys(&file, words, input));
        assert!(told.contains(says), "{words:?}: {told}");
        assert!(!told.contains("0f0f"), "{told}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

/// How a new connection with this token fares at the location server.
async fn code(endpoint: &Endpoint, cell: &Cell, token: &Token) -> i32 {
    let class = security(Some(token), Level::Crypt);
    let connection = endpoint.connect((cell.address(), 7003).into(), vl::SERVICE, class);
    let refused = vl::Client::new(connection).get_new_volume_id(1).await;
    refused.unwrap_err().code().0
}

/// Waits until it fares so: servers look at the file once a second.
async fn becomes(endpoint: &Endpoint, cell: &Cell, token: &Token, wanted: i32) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let got = code(endpoint, cell, token).await;
        if got == wanted {
            return;
        }
        assert!(Instant::now() < until, "still {got}, not {wanted}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_change_while_the_server_runs() {
    let cell = Cell::start("");
    let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
    let old = cell.token("ann", REALM);
    // Her identity is known; that she may not do this is another matter.
    assert_eq!(code(&endpoint, &cell, &old).await, VL_PERM);
    let file = cell.key_file();
    said(&keys(&file, &["generate"], ""));
    let new = cell.token("ann", REALM);
    assert_ne!(old.ticket, new.ticket);
    becomes(&endpoint, &cell, &new, VL_PERM).await;
    assert_eq!(code(&endpoint, &cell, &old).await, VL_PERM);
    // Servers go on asking each other, and the administrator goes on.
    said(&keys(&file, &["remove", "1"], ""));
    becomes(&endpoint, &cell, &old, UNKNOWN_KEY).await;
    assert_eq!(code(&endpoint, &cell, &new).await, VL_PERM);
    let admin = security(Some(&cell.localauth()), Level::Clear);
    let connection = endpoint.connect((cell.address(), 7003).into(), vl::SERVICE, admin);
    let taken = vl::Client::new(connection).get_new_volume_id(1).await;
    assert!(taken.is_ok(), "{taken:?}");
    // A broken file changes nothing.
    std::fs::write(&file, "nonsense").unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(code(&endpoint, &cell, &new).await, VL_PERM);
}
