//! A cell without a KDC: the tickets that its login service gives serve OpenAFS's programs too.

use std::fs;
use std::process::Command;

use super::files::Side;
use super::{REALM, Realm, User, make_volumes, place, register, security};
use crate::net::Net;
use crate::place::{CELL, Place, run};
use crate::script::network;
use crate::server::Server;

const AFAR: &str = env!("CARGO_BIN_EXE_afar");
const USERS: [&str; 3] = ["admin", "alice", "bob"];

/// Gives the users of the protection database passwords, as one who has the cell's keys.
fn set_passwords(place: &Place) {
    for user in USERS {
        let line = format!(
            "echo {user}-secret | {AFAR} pts setpassword {user} --password-stdin -localauth"
        );
        let ran = place.run(&["sh", "-c", &line]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}

/// Logs a user in with his password, and gets a token for OpenAFS's programs with its `aklog`.
fn login(net: &Net, server: &Server, realm: &Realm, name: &str) -> User {
    let user = realm.user(name);
    let told = fs::read_to_string(server.run_dir().join("login")).unwrap();
    let fingerprint = told.split_whitespace().nth(1).unwrap();
    let line = format!(
        "echo {name}-secret | {AFAR} login {name} --cell {CELL} --server {} \
         --fingerprint {fingerprint} --password-stdin --ccache $KRB5CCNAME",
        net.address("srv"),
    );
    let here = place(net).with_environment(&user.only(&["KRB5_CONFIG", "KRB5CCNAME"]));
    let tokens = here.file("tokens").into();
    let here = here.with_environment(&[("AFAR_TOKENS", tokens)]);
    let ran = here.run(&["sh", "-c", &line]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let shown = here.ok("klist");
    assert!(shown.contains(&format!("afs/{CELL}@{REALM}")), "{shown}");
    place(net)
        .with_environment(user.environment())
        .ok(&format!("aklog -c {CELL} -k {REALM}"));
    user
}

#[test]
#[ignore = "needs OpenAFS's programs"]
fn a_password_gives_openafs_s_programs_a_token() {
    let net = network();
    let folder = tempfile::TempDir::new().unwrap();
    let keys = folder.path().join("keys");
    fs::create_dir(&keys).unwrap();
    // What OpenAFS's programs want of a server's configuration, to be an administrator's.
    let database = net.address("srv");
    fs::write(keys.join("ThisCell"), format!("{CELL}\n")).unwrap();
    fs::write(
        keys.join("CellServDB"),
        format!(">{CELL}\n{database} #{database}\n"),
    )
    .unwrap();
    let mut command = Command::new(AFAR);
    command.args(["keys", "generate", "--file"]);
    let ran = run(command.arg(keys.join("KeyFileExt")));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let server = Server::start(&net, "srv", &security(&keys));
    let administrator = place(&net).with_keys(&keys);
    register(&administrator);
    set_passwords(&administrator);
    let realm = Realm::without_kdc(folder.path());
    let users = USERS.map(|name| (name, login(&net, &server, &realm, name)));
    let with_token =
        |user: usize| -> Place { place(&net).with_environment(users[user].1.environment()) };

    // Tools with the tokens that aklog made: administrators may, others may not.
    make_volumes(&with_token(0), "");
    with_token(0).ok("pts createuser carol -id 2003");
    let refused = with_token(1).run(&["pts", "createuser", "dave"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("Permission denied"), "{refused:?}");
    let seen = with_token(1).ok("tokens");
    assert!(seen.contains(&format!("tokens for {CELL}")), "{seen}");

    // Files with the tickets, at each level.
    let mut side = Side::new(&net, &realm, &users);
    side.work(folder.path());
    server.stop();
}
