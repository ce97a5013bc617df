//! A Kerberos realm beside both kinds of servers, which have the same key.
//!
//! - `programs`: what is built of the C sources here, and what each is for
//! - `files`: OpenAFS's clients with tickets read and write on both kinds of servers
//! - `ours`: afar's client and tools with tickets in a cell of OpenAFS's servers
//! - `rotation`: a new key while both run
//! - `login`: OpenAFS's programs in an afar cell that has no KDC
//! - `moving`: volumes between both kinds of servers, all of whom prove who they are
//!
//! What OpenAFS's tools print with tickets is compared in `script`.

mod files;
mod login;
mod moving;
mod ours;
mod programs;
mod rotation;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::net::Net;
use crate::openafs::OpenAfs;
use crate::place::{CELL, Place};
use programs::Programs;

/// The cell's realm.
pub(crate) const REALM: &str = "TEST.EXAMPLE";

/// Users of the realm and the programs they use.
pub(crate) struct Realm {
    /// Where the KDC keeps `krb5.conf` and the users' keys.
    kerberos: PathBuf,
    programs: Programs,
    folder: TempDir,
}

/// A user: where his tickets and his tokens are.
#[derive(Debug, Clone)]
pub(crate) struct User {
    /// What his programs have in their environment.
    environment: Vec<(&'static str, OsString)>,
}

impl User {
    /// What his programs have in their environment.
    pub(crate) fn environment(&self) -> &[(&'static str, OsString)] {
        &self.environment
    }

    /// The same, for a program that is to see one of these only.
    fn only(&self, names: &[&str]) -> Vec<(&'static str, OsString)> {
        let wanted = self.environment.iter();
        let wanted = wanted.filter(|(name, _)| names.contains(name));
        wanted.cloned().collect()
    }
}

impl Realm {
    /// The realm that was started with a cell.
    pub(crate) fn of(openafs: &OpenAfs) -> Self {
        Self {
            kerberos: openafs.kerberos(),
            programs: Programs::build(),
            folder: TempDir::new().unwrap(),
        }
    }

    /// A realm that is only a name: nobody but the cell gives tickets. The folder is for its
    /// `krb5.conf`.
    pub(crate) fn without_kdc(folder: &Path) -> Self {
        let config = format!("[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\n");
        fs::write(folder.join("krb5.conf"), config).unwrap();
        Self {
            kerberos: folder.to_owned(),
            programs: Programs::build(),
            folder: TempDir::new().unwrap(),
        }
    }

    /// A user without tickets or tokens.
    pub(crate) fn user(&self, name: &str) -> User {
        let tokens = self.folder.path().join(format!("{name}.tokens"));
        fs::create_dir_all(&tokens).unwrap();
        let cache = self.folder.path().join(name);
        let cache = format!("FILE:{}", cache.display());
        User {
            environment: vec![
                ("KRB5_CONFIG", self.kerberos.join("krb5.conf").into()),
                ("KRB5CCNAME", cache.into()),
                ("AFAR_TEST_TOKENS", tokens.into()),
                ("LD_PRELOAD", self.programs.module().into()),
            ],
        }
    }

    /// A user of this realm with a ticket and a token, both got by programs in a network where the
    /// KDC is.
    pub(crate) fn login(&self, net: &Net, name: &str) -> User {
        self.login_as(net, name, name)
    }

    /// The same for `name@REALM`, whose key table is called after `name`.
    pub(crate) fn login_as(&self, net: &Net, name: &str, principal: &str) -> User {
        let user = self.user(name);
        let place = place(net).with_environment(user.environment());
        let keytab = self.kerberos.join(format!("{name}.keytab"));
        place.ok(&format!("kinit -k -t {} {principal}", keytab.display()));
        place.ok(&format!("aklog -c {CELL} -k {REALM}"));
        user
    }
}

/// A client's place in the cell whose servers are in `srv`.
fn place(net: &Net) -> Place {
    Place::new(net, "cli", net.address("srv"))
}

/// Lines of an afar server's configuration: OpenAFS's keys, and who administers.
pub(crate) fn security(keys: &Path) -> String {
    let file = keys.join("KeyFileExt");
    format!(
        "security.keys = [{:?}]\nsecurity.superusers = [\"admin\"]",
        file.display().to_string()
    )
}

/// Makes the users in an afar cell's protection database that `xtask openafs up --kerberos` makes in
/// OpenAFS's. The place has the cell's keys.
pub(crate) fn register(place: &Place) {
    for (user, number) in [("admin", 2000), ("alice", 2001), ("bob", 2002)] {
        place.ok(&format!("pts createuser {user} -id {number} -localauth"));
    }
    place.ok("pts adduser admin system:administrators -localauth");
    place.ok("pts creategroup system:authuser@other.example -id -2003 -localauth");
}

/// Volumes that `/afs/CELL/home` leads to; `home` has this number, and nobody but administrators may do
/// anything in it yet.
const HOME: u32 = 536_870_950;

/// Makes these volumes, as an administrator whose words go with each command.
fn make_volumes(place: &Place, options: &str) {
    use crate::content::Content;
    use afar_types::Rights;

    let read = Rights(Rights::READ.0 | Rights::LOOKUP.0);
    let afs = Content::new(read).mount(CELL, "#root.cell.");
    afs.dump(&place.file("root.afs.dump"));
    let cell = Content::new(read).mount("home", "#home.");
    cell.dump(&place.file("root.cell.dump"));
    Content::new(Rights::NONE).dump(&place.file("home.dump"));
    for name in ["root.afs", "root.cell"] {
        place.ok(&format!(
            "vos restore srv a {name} -file {name}.dump {options}"
        ));
    }
    place.ok(&format!(
        "vos restore srv a home -file home.dump -id {HOME} {options}"
    ));
}
