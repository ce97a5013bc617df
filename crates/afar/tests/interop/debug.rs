//! What OpenAFS's tools show of a mount of afar.

use std::fs;

use afar_types::Rights;

use crate::client::{make_volumes, network};
use crate::content::Content;
use crate::mount::Mount;
use crate::net::Net;
use crate::place::Place;
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
fn tools_show_a_mount_to_its_machine() {
    let net = network();
    let (server, ours) = mounted(&net);
    let line = format!("cmdebug -servers cli -port {PORT} -cache");
    let cache = shape(&ours.place().ok(&line));
    let lines = [
        "Chunk files: 9",
        "Stat caches: 9",
        "Data caches: 9",
        "Volume caches: 9",
        "Chunk size: 9",
        "Cache size: 9 kB",
        "Set time: no",
        "Cache type: disk",
    ];
    assert_eq!(cache, lines);
    assert!(number(&xstat(ours.place(), "cli"), "afs_lookup") > 0);
    drop(ours);
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
