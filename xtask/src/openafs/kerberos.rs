//! A Kerberos realm for a cell, and one that trusts it: MIT's KDC beside the servers.
//!
//! All its files are in the cell's folder; programs in the cell find them by the environment.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::cell::{Cell, Role};
use crate::sh;

/// The folder in a cell's folder that holds all of Kerberos.
const FOLDER: &str = "kerberos";
/// The realm whose users this cell's realm trusts.
const FOREIGN: &str = "OTHER.EXAMPLE";
/// The KDC's port.
const PORT: u16 = 88;
/// The only type of the service's key.
const ENCTYPE: &str = "aes256-cts-hmac-sha1-96:normal";

/// Users of the cell's realm, with their numbers in the protection database.
pub(super) const USERS: [(&str, i32); 3] = [("admin", 2000), ("alice", ALICE), ("bob", 2002)];
pub(super) const ALICE: i32 = 2001;
/// The user of the other realm, who is not in the protection database.
const FOREIGN_USER: &str = "carol";
/// The group of all users of the other realm.
pub(super) const FOREIGN_GROUP: i32 = -2003;

/// What the cell's description says of its realm.
#[derive(Serialize)]
pub(super) struct Description {
    /// The cell's realm.
    realm: String,
    /// A realm whose users may come too.
    foreign_realm: &'static str,
    /// What KRB5_CONFIG must name.
    krb5_conf: PathBuf,
    /// The folder of the users' key tables, `USER.keytab`; a password is `USER-password`.
    keytabs: PathBuf,
    /// Users of the cell's realm.
    users: Vec<&'static str>,
    /// A user of the other realm.
    foreign_user: &'static str,
}

impl Description {
    pub(super) fn of(cell: &Cell) -> Self {
        let folder = cell.dir.join(FOLDER);
        Self {
            realm: realm(cell),
            foreign_realm: FOREIGN,
            krb5_conf: folder.join("krb5.conf"),
            keytabs: folder,
            users: USERS.iter().map(|(name, _)| *name).collect(),
            foreign_user: FOREIGN_USER,
        }
    }
}

/// The realm of a cell: its name in capitals.
pub(super) fn realm(cell: &Cell) -> String {
    cell.name.to_ascii_uppercase()
}

/// Makes both realms with their users and the service's key, in that key table.
pub(super) fn create(cell: &Cell, service_keytab: &Path) -> Result<()> {
    let folder = cell.dir.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let realm = realm(cell);
    for (name, text) in [
        ("krb5.conf", client_configuration(cell, &realm)),
        ("kdc.conf", kdc_configuration(cell, &folder, &realm)),
    ] {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    for realm in [&realm, FOREIGN] {
        let words = ["kdb5_util", "create", "-s", "-r", realm, "-P", "master"];
        sh::capture(&mut cell.command(Role::Server, &words))?;
    }
    let service = format!("afs/{}", cell.name);
    kadmin(
        cell,
        &realm,
        &["addprinc", "-randkey", "-e", ENCTYPE, &service],
    )?;
    export(cell, &realm, &service, service_keytab)?;
    for (user, _) in USERS {
        add_user(cell, &folder, &realm, user)?;
    }
    add_user(cell, &folder, FOREIGN, FOREIGN_USER)?;
    // The same key on both sides is what the trust is.
    let trust = format!("krbtgt/{realm}@{FOREIGN}");
    for realm in [&realm, FOREIGN] {
        let words = ["addprinc", "-pw", "trust", "-e", ENCTYPE, &trust];
        kadmin(cell, realm, &words)?;
    }
    Ok(())
}

/// The arguments with which the KDC serves both realms.
pub(super) fn kdc_arguments(cell: &Cell) -> Vec<String> {
    let words = ["-n", "-r", &realm(cell), "-r", FOREIGN];
    words.map(str::to_owned).to_vec()
}

/// Whether the KDC answers: gets a ticket as a user does.
pub(super) fn probe(cell: &Cell) -> Result<()> {
    let keytab = cell.dir.join(FOLDER).join("admin.keytab");
    let cache = format!("FILE:{}", cell.dir.join(FOLDER).join("probe").display());
    let mut kinit = cell.command(Role::Client, &["kinit", "-c", &cache, "-k", "-t"]);
    sh::capture(kinit.arg(keytab).arg("admin")).map(drop)
}

/// Makes the users in the protection database, one of them an administrator, and the group of
/// the other realm's users.
pub(super) fn register(cell: &Cell) -> Result<()> {
    for (user, number) in USERS {
        cell.admin(&["pts", "createuser", user, "-id", &number.to_string()])?;
    }
    cell.admin(&["pts", "adduser", "admin", "system:administrators"])?;
    let group = format!("system:authuser@{}", FOREIGN.to_ascii_lowercase());
    let number = FOREIGN_GROUP.to_string();
    cell.admin(&["pts", "creategroup", &group, "-id", &number])
        .map(drop)
}

fn add_user(cell: &Cell, folder: &Path, realm: &str, user: &str) -> Result<()> {
    let password = format!("{user}-password");
    kadmin(cell, realm, &["addprinc", "-pw", &password, user])?;
    export(cell, realm, user, &folder.join(format!("{user}.keytab")))
}

/// Writes a principal's keys to a key table as they are.
fn export(cell: &Cell, realm: &str, principal: &str, keytab: &Path) -> Result<()> {
    let path = keytab
        .to_str()
        .context("the cell's folder has a name that is not UTF-8")?;
    kadmin(cell, realm, &["ktadd", "-norandkey", "-k", path, principal])?;
    // The program says by nothing but words that it failed.
    ensure!(keytab.exists(), "kadmin.local did not write {path}");
    Ok(())
}

fn kadmin(cell: &Cell, realm: &str, words: &[&str]) -> Result<()> {
    let mut command = cell.command(Role::Server, &["kadmin.local", "-r", realm]);
    sh::capture(command.args(words)).map(drop)
}

fn client_configuration(cell: &Cell, realm: &str) -> String {
    let (name, kdc) = (&cell.name, format!("{}:{PORT}", cell.pair.server_address));
    format!(
        "[libdefaults]
 default_realm = {realm}
 dns_lookup_realm = false
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 100000
 forwardable = true
[realms]
 {realm} = {{
  kdc = {kdc}
 }}
 {FOREIGN} = {{
  kdc = {kdc}
 }}
[domain_realm]
 .{name} = {realm}
 {name} = {realm}
"
    )
}

fn kdc_configuration(cell: &Cell, folder: &Path, realm: &str) -> String {
    let address = &cell.pair.server_address;
    let listen = format!("{address}:{PORT}");
    let mut text = format!(
        "[kdcdefaults]
 kdc_listen = {listen}
 kdc_tcp_listen = {listen}
[logging]
 kdc = FILE:{log}
[realms]
",
        log = cell.dir.join("server/log/kdc.log").display()
    );
    let folder = folder.display();
    for realm in [realm, FOREIGN] {
        text.push_str(&format!(
            " {realm} = {{
  database_name = {folder}/{realm}
  key_stash_file = {folder}/{realm}.stash
  acl_file = {folder}/acl
  max_life = 10d
  max_renewable_life = 30d
  supported_enctypes = {ENCTYPE} aes128-cts-hmac-sha1-96:normal
 }}
"
        ));
    }
    text
}
