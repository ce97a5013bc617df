//! OpenAFS's clients read and write on both kinds of servers, with tickets and at each level, and are
//! told the same.

use std::fs;
use std::path::Path;

use super::{HOME, REALM, Realm, User, make_volumes, place, register, security};
use crate::client::bytes;
use crate::net::Net;
use crate::openafs::OpenAfs;
use crate::place::{CELL, Place, Ran};
use crate::script::network;
use crate::server::Server;

const LEVELS: [&str; 3] = ["clear", "auth", "crypt"];
/// Bytes of a file: many packets, and not a whole number of them.
const LEN: usize = 3_000_001;

/// A network with servers in it, and who uses them.
pub(super) struct Side<'a> {
    net: &'a Net,
    realm: &'a Realm,
    users: &'a [(&'static str, User)],
    /// What everybody was told, in its order.
    told: Vec<(String, Ran)>,
}

impl<'a> Side<'a> {
    pub(super) fn new(net: &'a Net, realm: &'a Realm, users: &'a [(&'static str, User)]) -> Self {
        Self {
            net,
            realm,
            users,
            told: Vec::new(),
        }
    }

    fn place(&self, user: &str) -> Place {
        let found = self.users.iter().find(|(name, _)| *name == user);
        let place = place(self.net);
        match found {
            Some((_, user)) => place.with_environment(&user.only(&["KRB5_CONFIG", "KRB5CCNAME"])),
            None => place,
        }
    }

    /// Runs the small client as a user, and notes what it is told.
    fn client(&mut self, user: &str, level: &str, words: &[&str]) -> Ran {
        let client = self.realm.programs.client();
        let address = self.net.address("srv");
        let start = [client.to_str().unwrap(), address, CELL, level];
        let ran = self.place(user).run(&[&start, words].concat());
        let mut noted = ran.clone();
        if words[0] == "create" && ran.code == Some(0) {
            // Each kind of server counts its files in its own way.
            noted.out = "made\n".to_owned();
        }
        let line = format!("{user} {level} {}", words[0]);
        self.told.push((line, noted));
        ran
    }

    /// Runs a line of the shell with an afsio that can use tickets.
    fn afsio(&mut self, user: &str, line: &str) -> Ran {
        let preload = self.realm.programs.afsio();
        let place = self.place(user);
        let shell = format!(
            "LD_PRELOAD={}; export LD_PRELOAD; {line}",
            preload.display()
        );
        let ran = place.run(&["sh", "-c", &shell]);
        self.told.push((format!("{user}: {line}"), ran.clone()));
        ran
    }

    fn ok(&mut self, user: &str, level: &str, words: &[&str]) -> String {
        let ran = self.client(user, level, words);
        assert_eq!(ran.code, Some(0), "{user} {level} {words:?}: {ran:?}");
        ran.out
    }

    /// What everybody does.
    pub(super) fn work(&mut self, folder: &Path) {
        let home = format!("{HOME}.1.1");
        self.ok(
            "admin",
            "crypt",
            &["acl", &home, "alice=127", "system:authuser=8"],
        );
        for (number, level) in LEVELS.into_iter().enumerate() {
            let data = bytes(number as u64, LEN);
            let local = folder.join(level);
            fs::write(&local, &data).unwrap();
            let name = format!("file-{level}");
            let fid = self.ok("alice", level, &["create", &home, &name]);
            let fid = fid.trim();
            let client = self.realm.programs.client();
            let write = format!(
                "{} {} {CELL} {level} write {fid} <{}",
                client.display(),
                self.net.address("srv"),
                local.display()
            );
            let ran = self.place("alice").run(&["sh", "-c", &write]);
            assert_eq!(ran.code, Some(0), "{ran:?}");
            for other in LEVELS {
                let read = format!(
                    "{} {} {CELL} {other} read {fid} | cmp - {}",
                    client.display(),
                    self.net.address("srv"),
                    local.display()
                );
                let ran = self.place("alice").run(&["sh", "-c", &read]);
                assert_eq!(ran.code, Some(0), "{level}, then {other}: {ran:?}");
            }
            for (user, level) in [("bob", level), ("nobody", "none")] {
                let read = self.client(user, level, &["read", fid]);
                assert_eq!((read.code, read.out.as_str()), (Some(1), ""), "{user}");
                let made = self.client(user, level, &["create", &home, "not-mine"]);
                assert_eq!(made.code, Some(1), "{user}");
                let changed = self.client(user, level, &["acl", &home, "bob=127"]);
                assert_eq!(changed.code, Some(1), "{user}");
            }
            self.client("bob", level, &["status", &home]);
            self.client("admin", level, &["status", &home]);
        }
        self.afsio_work(folder);
    }

    /// The packaged afsio knows two levels.
    fn afsio_work(&mut self, folder: &Path) {
        for level in ["clear", "crypt"] {
            let file = format!("-{level} -file /afs/{CELL}/home/file-{level}");
            let local = folder.join(level);
            let compare = format!("afsio read {file} | cmp - {}", local.display());
            let ran = self.afsio("alice", &compare);
            assert_eq!(ran.code, Some(0), "{ran:?}");
            let other = folder.join("auth");
            let write = format!("afsio write {file} -force <{}", other.display());
            let ran = self.afsio("alice", &write);
            assert_eq!(ran.code, Some(0), "{ran:?}");
            let compare = format!("afsio read {file} | cmp - {}", other.display());
            let ran = self.afsio("alice", &compare);
            assert_eq!(ran.code, Some(0), "{ran:?}");
            let ran = self.afsio("bob", &format!("afsio read {file}"));
            assert_eq!(ran.out, "", "{ran:?}");
        }
    }
}

#[test]
#[ignore = "needs OpenAFS's servers"]
fn openafs_s_clients_are_told_the_same_by_both_kinds_of_servers() {
    let (openafs, afar) = (network(), network());
    let theirs = OpenAfs::start_with(&openafs, "srv", &["--kerberos"]);
    let ours = Server::start(&afar, "srv", &security(&theirs.keys()));
    register(&place(&afar).with_keys(&theirs.keys()));
    let realm = Realm::of(&theirs);
    let users = ["admin", "alice", "bob"].map(|name| (name, realm.login(&openafs, name)));
    let carol = realm.login_as(&openafs, "carol", "carol@OTHER.EXAMPLE");
    let folder = tempfile::TempDir::new().unwrap();
    let sides = [&openafs, &afar].map(|net| {
        let place = place(net).with_environment(users[0].1.environment());
        make_volumes(&place, "");
        // Users of a trusted realm register themselves, as aklog does; without its group they
        // could not.
        let foreign = super::place(net).with_environment(carol.environment());
        foreign.run(&["pts", "createuser", "carol@other.example"]);
        let seen = place.ok("pts membership carol@other.example");
        let mut side = Side::new(net, &realm, &users);
        side.work(folder.path());
        (seen, side.told)
    });
    let [(seen_there, there), (seen_here, here)] = sides;
    assert_eq!(seen_there, seen_here);
    assert!(
        seen_there.contains("system:authuser@other.example"),
        "{seen_there} in {REALM}"
    );
    for (there, here) in there.into_iter().zip(here) {
        assert_eq!(there, here);
    }
    ours.stop();
}
