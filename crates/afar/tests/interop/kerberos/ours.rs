//! afar's client and tools, with tickets of a KDC, in a cell of OpenAFS's servers.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use super::{HOME, REALM, Realm, User, make_volumes, place};
use crate::client::bytes;
use crate::net::Net;
use crate::openafs::OpenAfs;
use crate::place::{CELL, Place, Ran};
use crate::script::network;

/// The program under test.
const AFAR: &str = env!("CARGO_BIN_EXE_afar");
/// Bytes of a file.
const LEN: usize = 2_000_003;

/// A user's place, with nothing in the environment but these; tokens of afar's own go to a folder there.
fn at(net: &Net, user: &User, names: &[&str]) -> Place {
    let place = place(net);
    let tokens = place.path().join("tokens");
    let servers = place.path().join("etc/CellServDB");
    place
        .with_environment(&[
            ("AFAR_TOKENS", OsString::from(tokens)),
            ("AFAR_CELLSERVDB", OsString::from(servers)),
        ])
        .with_environment(&user.only(names))
}

fn afar(place: &Place, words: &[&str]) -> Ran {
    place.run(&[&[AFAR], words].concat())
}

fn ok(place: &Place, words: &[&str]) -> String {
    let ran = afar(place, words);
    assert_eq!(ran.code, Some(0), "afar {words:?}: {ran:?}");
    ran.out
}

/// A refusal names the identity that was refused.
fn refused(place: &Place, who: &str, words: &[&str]) {
    let ran = afar(place, words);
    assert!(
        ran.code != Some(0) && ran.err.contains(who),
        "afar {words:?} is not refused to {who}: {ran:?}"
    );
}

/// Files at each level, with a ticket in the cache and nothing else.
fn files(net: &Net, alice: &User, bob: &User) {
    let tickets = ["KRB5_CONFIG", "KRB5CCNAME"];
    let (alice, bob) = (at(net, alice, &tickets), at(net, bob, &tickets));
    for (number, level) in ["clear", "auth", "crypt"].into_iter().enumerate() {
        let data = bytes(number as u64, LEN);
        fs::write(alice.file("local"), &data).unwrap();
        let remote = format!("/afs/{CELL}/home/ours-{level}");
        ok(&alice, &["cp", "--level", level, "local", &remote]);
        ok(&alice, &["cp", "--level", level, &remote, "back"]);
        assert!(fs::read(alice.file("back")).unwrap() == data, "{level}");
        let listed = ok(
            &alice,
            &["ls", "--level", level, &format!("/afs/{CELL}/home")],
        );
        assert!(listed.contains(&format!("ours-{level}")), "{listed}");
        refused(&bob, "bob", &["cat", "--level", level, &remote]);
        refused(
            &bob,
            "bob",
            &["cp", "--level", level, "/etc/hosts", &remote],
        );
    }
    let anonymous = at(net, &alice_without(), &[]);
    refused(
        &anonymous,
        "anonymous",
        &["cat", &format!("/afs/{CELL}/home/ours-crypt")],
    );
}

/// Nobody's environment.
fn alice_without() -> User {
    User {
        environment: Vec::new(),
    }
}

/// Logging in: afar's own store of tokens, and the kernel module's, which OpenAFS's programs share.
fn tokens(net: &Net, alice: &User) {
    let own = at(net, alice, &["KRB5_CONFIG", "KRB5CCNAME"]);
    let file = format!("/afs/{CELL}/home/ours-crypt");
    let said = ok(&own, &["login"]);
    assert!(said.contains(&format!("alice@{REALM}")), "{said}");
    let listed = ok(&own, &["tokens"]);
    assert!(
        listed.contains("alice") && listed.contains(CELL),
        "{listed}"
    );
    // The token does without the tickets, until it is given up.
    let without = |words: &str| {
        let line = format!("KRB5CCNAME=FILE:/nowhere {AFAR} {words}");
        own.run(&["sh", "-c", &line])
    };
    let length = without(&format!("cat {file} | wc -c"));
    assert_eq!(length.out.trim(), LEN.to_string(), "{length:?}");
    ok(&own, &["logout"]);
    let listed = without("tokens");
    assert!(!listed.out.contains("alice"), "{listed:?}");
    refused(
        &at(net, &alice_without(), &[]),
        "anonymous",
        &["cat", &file],
    );

    // What aklog has put into the module, afar takes; what afar puts there, OpenAFS's tools take.
    let module = at(
        net,
        alice,
        &["KRB5_CONFIG", "AFAR_TEST_TOKENS", "LD_PRELOAD"],
    );
    let whole = ok(&module, &["cat", &file]);
    assert_eq!(whole.chars().next().is_some(), LEN > 0);
    module.ok("unlog");
    let both = at(
        net,
        alice,
        &[
            "KRB5_CONFIG",
            "KRB5CCNAME",
            "AFAR_TEST_TOKENS",
            "LD_PRELOAD",
        ],
    );
    ok(&both, &["login"]);
    let text = both.ok("tokens");
    assert!(text.contains(&format!("okens for {CELL}")), "{text}");
    let text = both.ok("pts examine alice");
    assert!(text.contains("id: 2001"), "{text}");
    ok(&both, &["logout"]);
    let text = both.ok("tokens");
    assert!(!text.contains(&format!("okens for {CELL}")), "{text}");
}

/// The tools: by the cell's key, by an administrator's ticket, and by a user's.
fn tools(net: &Net, theirs: &OpenAfs, admin: &User, alice: &User) {
    let keys = theirs.keys();
    let config = keys.to_str().unwrap();
    let nobody = at(net, &alice_without(), &[]);
    let by_key = ["-localauth", "-config", config];
    let with = |words: &[&'static str]| [words, &by_key[..]].concat();
    ok(&nobody, &with(&["vos", "create", "srv", "a", "bykey"]));
    ok(&nobody, &with(&["vos", "backup", "bykey", "-encrypt"]));
    ok(&nobody, &with(&["pts", "createuser", "dora"]));
    ok(&nobody, &with(&["bos", "status", "srv"]));
    ok(&nobody, &with(&["vos", "remove", "-id", "bykey"]));

    let tickets = ["KRB5_CONFIG", "KRB5CCNAME"];
    let admin = at(net, admin, &tickets);
    ok(&admin, &["vos", "create", "srv", "b", "byticket"]);
    ok(
        &admin,
        &[
            "vos", "move", "byticket", "srv", "b", "srv", "a", "-encrypt",
        ],
    );
    ok(&admin, &["pts", "creategroup", "admin:friends"]);
    ok(&admin, &["pts", "adduser", "alice", "admin:friends"]);
    let members = ok(&admin, &["pts", "membership", "admin:friends"]);
    assert!(members.contains("alice"), "{members}");

    let alice = at(net, alice, &tickets);
    let own = ok(&alice, &["pts", "examine", "alice"]);
    assert!(own.contains("2001"), "{own}");
    for words in [
        &["vos", "create", "srv", "a", "alices"][..],
        &["vos", "remove", "-id", "byticket"],
        &["pts", "createuser", "erik"],
        &["pts", "adduser", "alice", "system:administrators"],
    ] {
        let ran = afar(&alice, words);
        assert_ne!(ran.code, Some(0), "alice may {words:?}: {ran:?}");
    }
    ok(&admin, &["vos", "remove", "-id", "byticket"]);
}

/// What is done with a mount, in the same mount namespace as it; `$1` is afar, and the next words are
/// those of a shell. The mount ends by itself, with all stored.
const MOUNTED: &str = "afar=$1; shift
$afar mount --cache ../cache $CELL ../afs
trap '$afar umount ../afs' EXIT
\"$@\"
";

/// Runs a line of shell where the cell is mounted.
fn mounted(place: &Place, line: &str) -> Ran {
    let script = MOUNTED.replace("$CELL", CELL);
    place.run(&["sh", "-ec", &script, "sh", AFAR, "sh", "-ec", line])
}

/// The cell's files through a mount, with a ticket in the cache and nothing else.
fn mount(net: &Net, alice: &User, bob: &User) {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: mounting needs /dev/fuse");
        return;
    }
    let tickets = ["KRB5_CONFIG", "KRB5CCNAME"];
    let hers = "cd ../afs/home; mkdir mounted; echo hers > mounted/file; mv mounted/file mounted/it
        dd if=/dev/urandom of=mounted/large bs=1M count=5 conv=fsync status=none
        sha256sum < mounted/large; stat -c %u mounted/it; ls mounted";
    let ran = mounted(&at(net, alice, &tickets), hers);
    let lines: Vec<&str> = ran.out.lines().collect();
    let [sum, owner, names @ ..] = &lines[..] else {
        panic!("{ran:?}");
    };
    assert_eq!((ran.code, *owner), (Some(0), "2001"), "{ran:?}");
    assert_eq!(names, ["it", "large"]);
    // By a mount that has nothing of it.
    let again = "cd ../afs/home/mounted; sha256sum < large; cat it";
    let ran = mounted(&at(net, alice, &tickets), again);
    assert_eq!(ran.out, format!("{sum}\nhers\n"), "{ran:?}");
    for (who, names) in [(bob, &tickets[..]), (&alice_without(), &[])] {
        for line in ["ls ../afs/home", "cat ../afs/home/mounted/it"] {
            let ran = mounted(&at(net, who, names), line);
            assert!(ran.err.contains("Permission denied"), "{line}: {ran:?}");
        }
    }
}

#[test]
#[ignore = "needs OpenAFS's servers"]
fn our_programs_use_tickets_in_a_cell_of_openafs_s_servers() {
    let net = network();
    let theirs = OpenAfs::start_with(&net, "srv", &["--kerberos"]);
    make_volumes(&place(&net).with_keys(&theirs.keys()), "-localauth");
    let realm = Realm::of(&theirs);
    let [admin, alice, bob] = ["admin", "alice", "bob"].map(|name| realm.login(&net, name));
    let client = realm.programs.client();
    let root = format!("{HOME}.1.1");
    let words = [
        client.to_str().unwrap(),
        net.address("srv"),
        CELL,
        "crypt",
        "acl",
        &root,
        "alice=127",
    ];
    let ran = at(&net, &admin, &["KRB5_CONFIG", "KRB5CCNAME"]).run(&words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    files(&net, &alice, &bob);
    tokens(&net, &alice);
    mount(&net, &alice, &bob);
    tools(&net, &theirs, &admin, &alice);
}
