//! A new key of the cell while both kinds of servers run: tickets of the old and of the new one work until
//! the old one is taken away.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{HOME, REALM, Realm, User, make_volumes, place, register, security};
use crate::net::Net;
use crate::openafs::OpenAfs;
use crate::place::{CELL, Ran, run};
use crate::script::network;
use crate::server::Server;

/// RXKADUNKNOWNKEY, as the client prints it.
const UNKNOWN_KEY: &str = "19270408";
/// Servers notice a changed file within this time.
const PATIENCE: Duration = Duration::from_secs(5);

struct World {
    openafs: Net,
    afar: Net,
    theirs: OpenAfs,
    realm: Realm,
}

impl World {
    /// What a user is told when he asks for the root of `home`, at the strictest level.
    fn status(&self, net: &Net, user: &User) -> Ran {
        let place = place(net).with_environment(&user.only(&["KRB5_CONFIG", "KRB5CCNAME"]));
        let client = self.realm.programs.client();
        let root = format!("{HOME}.1.1");
        place.run(&[
            client.to_str().unwrap(),
            net.address("srv"),
            CELL,
            "crypt",
            "status",
            &root,
        ])
    }

    /// Both kinds of servers do as is said of their answer to a user, at once or soon.
    fn expect(&self, user: &User, what: &str, is_so: impl Fn(&Ran) -> bool) {
        for (kind, net) in [("OpenAFS", &self.openafs), ("afar", &self.afar)] {
            let begun = Instant::now();
            loop {
                let ran = self.status(net, user);
                if is_so(&ran) {
                    break;
                }
                assert!(begun.elapsed() < PATIENCE, "{kind}: {what}: {ran:?}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    fn beside(&self, words: &[&str]) {
        let ran = self.theirs.beside(words);
        assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}");
    }
}

fn keys(verb: &str, file: &Path, words: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_afar"));
    command.args(["keys", verb, "--file"]).arg(file).args(words);
    let ran = run(&mut command);
    assert_eq!(ran.code, Some(0), "afar keys {verb}: {ran:?}");
}

#[test]
#[ignore = "needs OpenAFS's servers"]
fn old_and_new_keys_open_tickets_without_a_restart() {
    let (openafs, afar) = (network(), network());
    let theirs = OpenAfs::start_with(&openafs, "srv", &["--kerberos"]);
    // Each kind of server has a file of its own.
    let own = tempfile::TempDir::new().unwrap();
    for entry in fs::read_dir(theirs.keys()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), own.path().join(entry.file_name())).unwrap();
    }
    let own_file = own.path().join("KeyFileExt");
    let ours = Server::start(&afar, "srv", &security(own.path()));
    register(&place(&afar).with_keys(own.path()));
    for (net, keys) in [(&openafs, theirs.keys()), (&afar, own.path().to_owned())] {
        make_volumes(&place(net).with_keys(&keys), "-localauth");
    }
    let realm = Realm::of(&theirs);
    let alice = realm.login(&openafs, "alice");
    let world = World {
        openafs,
        afar,
        theirs,
        realm,
    };
    let served = |ran: &Ran| ran.code == Some(0);
    world.expect(&alice, "the first key's ticket", served);

    // A new key in the KDC, and from there in both files.
    let service = format!("afs/{CELL}");
    let keytab = own.path().join("new.keytab");
    let path = keytab.to_str().unwrap();
    let enctype = "aes256-cts-hmac-sha1-96:normal";
    world.beside(&["kadmin.local", "cpw", "-randkey", "-e", enctype, &service]);
    world.beside(&["kadmin.local", "ktadd", "-norandkey", "-k", path, &service]);
    let principal = format!("{service}@{REALM}");
    let bob = world.realm.login(&world.openafs, "bob");
    let unknown = |ran: &Ran| ran.code == Some(1) && ran.err.contains(UNKNOWN_KEY);
    world.expect(&bob, "a ticket of a key nobody has yet", unknown);
    world.beside(&["asetkey", "add", "rxkad_krb5", "2", "18", path, &principal]);
    keys("import", &own_file, &[path]);
    world.expect(&bob, "the second key's ticket", served);
    world.expect(&alice, "the first key's ticket beside the second", served);

    // Servers print their own tickets with the newest key; the tools on the machine as well.
    let printed = |net: &Net, keys: &Path| {
        place(net)
            .with_keys(keys)
            .ok("pts examine alice -localauth")
    };
    assert_eq!(
        printed(&world.openafs, &world.theirs.keys()),
        printed(&world.afar, own.path())
    );

    world.beside(&["asetkey", "delete", "rxkad_krb5", "1", "18"]);
    keys("remove", &own_file, &["1"]);
    world.expect(&alice, "the ticket of the key that is gone", unknown);
    world.expect(&bob, "the second key's ticket alone", served);
    ours.stop();
}
