//! Volumes between an OpenAFS and an afar file server of one cell, all of whom prove to each other who they
//! are: `vos`, with an administrator's ticket or the cell's key, and the servers among themselves.

use std::time::{Duration, Instant};

use super::{HOME, Realm, make_volumes, place, security};
use crate::client::bytes;
use crate::content::Content;
use crate::net::Net;
use crate::openafs::OpenAfs;
use crate::place::Place;
use crate::server::Server;

use afar_types::Rights;

/// Where the database says the read-write volume is.
fn site(place: &Place) -> String {
    let text = place.ok("vos listvldb -name work -noauth");
    let line = text.lines().find(|line| line.contains("RW Site")).unwrap();
    line.split_whitespace().nth(1).unwrap().to_owned()
}

#[test]
#[ignore = "needs OpenAFS's servers"]
fn volumes_move_between_servers_that_prove_who_they_are() {
    let net = Net::new(&[
        ("srv", "10.97.0.1"),
        ("cli", "10.97.0.2"),
        ("afar", "10.97.0.4"),
    ]);
    let openafs = OpenAfs::start_with(&net, "srv", &["--kerberos"]);
    let database = net.address("srv");
    let afar = Server::start(
        &net,
        "afar",
        &format!(
            "roles = [\"file\", \"vol\", \"bos\"]\nlocation.servers = [{database:?}]\n\
             protection.servers = [{database:?}]\n{}\nsecurity.minimum.vol = \"clear\"",
            security(&openafs.keys())
        ),
    );
    let cell = place(&net);
    let begun = Instant::now();
    while !cell.ok("vos listaddrs -noauth").contains("afar.") {
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(20), "does not register");
        std::thread::sleep(Duration::from_millis(50));
    }
    let realm = Realm::of(&openafs);
    let [admin, alice] = ["admin", "alice"].map(|name| {
        let user = realm.login(&net, name);
        place(&net).with_environment(user.environment())
    });
    make_volumes(&admin, "");
    let work = Content::new(Rights::NONE).file("data", 0o644, &bytes(1, 5_000_000));
    work.dump(&admin.file("work.dump"));
    admin.ok("vos restore srv a work -file work.dump");
    let keys = place(&net).with_keys(&openafs.keys());
    let first = site(&cell);
    admin.ok("vos dump work -file before.dump");

    // By ticket there, by key back, and once more with everything encrypted.
    let ways = [
        (&admin, "srv a afar a", ""),
        (&keys, "afar a srv b", "-localauth"),
        (&admin, "srv b afar b", "-encrypt"),
        (&keys, "afar b srv a", "-localauth -encrypt"),
    ];
    for (who, way, options) in ways {
        let refused = alice.run(&["sh", "-c", &format!("vos move work {way}")]);
        assert_ne!(refused.code, Some(0), "alice moves a volume: {refused:?}");
        who.ok(&format!("vos move work {way} {options}"));
        let there = site(&cell);
        assert_eq!(
            there == first,
            way.ends_with("srv a") || way.ends_with("srv b"),
            "{way}"
        );
    }
    // Copies on the other kind of server come by the servers' own tickets.
    admin.ok("vos addsite afar b work");
    admin.ok("vos release work");
    admin.ok("vos copy work srv a copied afar a");
    admin.ok("vos dump work -file after.dump");
    let len = |name: &str| std::fs::metadata(admin.file(name)).unwrap().len();
    assert_eq!(len("before.dump"), len("after.dump"));
    let examined = admin.ok("vos examine copied");
    assert!(examined.contains("On-line"), "{examined} (beside {HOME})");

    let log = afar.log();
    assert!(
        log.contains("who=admin"),
        "the audit does not name admin: {log}"
    );
    assert!(
        !log.contains("who=anonymous operation=AFSVol.trans_create"),
        "{log}"
    );
    afar.stop();
}
