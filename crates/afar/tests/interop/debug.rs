//! What OpenAFS's tools show of a mount of afar, beside what they show of OpenAFS's own.

use std::fs;

use afar_types::Rights;

use crate::client::{make_volumes, network};
use crate::content::Content;
use crate::mount::Mount;
use crate::net::Net;
use crate::place::{CELL, Place};
use crate::server::Ours;

/// Where OpenAFS's tools look for a cache manager; `xstat_cm_test` looks nowhere else.
const PORT: u16 = 7001;

/// The text with each number replaced by a sign, and blanks by one.
fn shape(text: &str) -> Vec<String> {
    let shaped = text.lines().map(|line| {
        let words = line.split_whitespace().map(|word| {
            let mut shown = String::new();
            for letter in word.chars() {
                if !letter.is_ascii_digit() {
                    shown.push(letter);
                } else if !shown.ends_with('9') {
                    shown.push('9');
                }
            }
            shown
        });
        words.collect::<Vec<_>>().join(" ")
    });
    shaped.collect()
}

/// What `xstat_cm_test` prints of a cache manager, from its first collection on.
fn xstat(place: &Place, of: &str) -> String {
    let line = format!("xstat_cm_test -cmname {of} -collID 0 1 2 -onceonly");
    let text = place.ok(&line);
    let begins = text.find("AFSCB_XSTATSCOLL_CALL_INFO");
    text[begins.unwrap_or_else(|| panic!("no collection: {text}"))..].to_owned()
}

/// The number before these words.
fn number(text: &str, words: &str) -> u64 {
    let line = text.lines().find(|line| line.trim_end().ends_with(words));
    let line = line.unwrap_or_else(|| panic!("no {words} in {text}"));
    let number = line.split_whitespace().next();
    number.unwrap().parse().unwrap()
}

/// Servers, and a mount of afar whose user has read something.
fn mounted(net: &Net) -> (Ours, Mount) {
    let server = Ours::start(net, true);
    let place = Place::new(net, "cli", net.address("srv"));
    make_volumes(&place, &Content::new(Rights::ALL).file("file", 0o644, b"0"));
    let mount = Mount::afar(place, PORT);
    assert_eq!(fs::read(mount.root().join("work/file")).unwrap(), b"0");
    (server, mount)
}

#[test]
#[ignore = "needs OpenAFS's tools"]
fn tools_show_of_a_mount_what_they_show_of_openafs() {
    let net = network();
    let (server, ours) = mounted(&net);
    let theirs = Mount::new(Place::new(&net, "cli2", net.address("srv")));
    assert_eq!(fs::read(theirs.volume("work").join("file")).unwrap(), b"0");

    let run = |mount: &Mount, of: &str, more: &str| {
        let line = format!("cmdebug -servers {of} -port {PORT} {more}");
        mount.place().ok(&line)
    };
    let both = |more: &str| (run(&ours, "cli", more), run(&theirs, "cli2", more));
    let same = |more: &str| {
        let (own, other) = both(more);
        assert_eq!(shape(&own), shape(&other), "{more}: {own}{other}");
    };
    same("-cache");
    same("-cellservdb");
    // No lock is held.
    assert_eq!(run(&ours, "cli", ""), "");

    // Entries have the same lines, and those of the same files are there.
    let (own, other) = both("-long");
    let entries = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains("Cache entry @"));
        lines.map(str::to_owned).collect()
    };
    assert!(entries(&own).len() >= 3, "{own}");
    let fid = |text: &str, kind: &str| {
        // The entry before the line that says what it is.
        let (before, _) = text.split_once(kind)?;
        let entry = entries(before).pop()?;
        let fid = entry.split_whitespace().last()?.to_owned();
        Some((entry.contains(&format!("[{CELL}]")), fid))
    };
    assert!(fid(&own, "volume root").is_some(), "{own}{other}");
    for entry in entries(&own) {
        assert!(entry.ends_with(&format!("[{CELL}]")), "{entry}");
    }
    let read = |text: &str| text.lines().any(|line| line.contains("           1 bytes"));
    assert!(read(&own) && read(&other), "{own}{other}");
    assert!(own.contains(", stat'd"), "{own}");
    let with_promises = run(&ours, "cli", "-callbacks");
    assert!(!entries(&with_promises).is_empty(), "{own}");

    let addresses = run(&ours, "cli", "-addrs");
    assert!(
        addresses.contains("error") && !addresses.contains("UUID"),
        "{addresses}"
    );

    let (own, other) = (xstat(ours.place(), "cli"), xstat(theirs.place(), "cli2"));
    let named = |text: &str, name: &str| shape(&text.replace(name, "cm"));
    let ([own_shape, other_shape], whole) = (
        [named(&own, "cli"), named(&other, "cli2")],
        format!("{own}\n{other}"),
    );
    // The second line of a collection has the time.
    let titles = |shape: &[String]| -> Vec<String> {
        let lines = shape.iter().filter(|line| !line.starts_with("[Probe"));
        lines.cloned().collect()
    };
    assert_eq!(titles(&own_shape), titles(&other_shape), "{whole}");
    assert!(number(&own, "afs_lookup") > 0, "{own}");
    assert!(number(&own, "SRXAFSCB_GetCE64") > 0, "{own}");
    for counted in [
        "numPerfCalls",
        "numCellsContacted",
        "cacheNumEntries",
        "srvRecords",
    ] {
        assert!(number(&own, counted) > 0, "{counted}: {own}");
    }
    let fetches = own.lines().find(|line| line.contains("FetchData: "));
    assert!(!fetches.unwrap().contains(" 0 ops"), "{own}");
    drop((ours, theirs));
    server.stop();
}

#[test]
#[ignore = "needs OpenAFS's tools"]
fn strangers_learn_numbers_and_no_files() {
    let net = network();
    let (server, mount) = mounted(&net);
    let stranger = Place::new(&net, "cli2", net.address("srv"));
    let run = |more: &str| stranger.ok(&format!("cmdebug -servers cli -port {PORT} {more}"));
    let told = run("-long");
    assert!(told.contains("failed to get cache entry 0"), "{told}");
    assert!(!told.contains("Cache entry @"), "{told}");
    assert_eq!(run("-cellservdb"), "");
    let told = run("-addrs");
    assert!(told.contains("error") && !told.contains("UUID"), "{told}");
    assert!(run("-cache").contains("Cache size: "));
    assert!(number(&xstat(&stranger, "cli"), "afs_lookup") > 0);
    drop(mount);
    server.stop();
}
