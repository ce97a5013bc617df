//! Identities of callers: the cell's keys, its realms and administrators, and from these the security
//! classes that each role is served with.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use afar_net::{AbortCode, ClientSecurity, Identity, RxNull, ServerSecurity};
use afar_security::keys::edit;
use afar_security::ticket::{self, TicketPolicy};
use afar_security::{EncryptionType, Identities, KeyRing, Level, rxkad};
use anyhow::Context;
use parking_lot::Mutex;

use crate::config::{Config, Minimum, Role};
use crate::{overseer, userlist};

/// A server's own keys, in its data directory.
const KEY_FILE: &str = "KeyFileExt";
/// Where OpenAFS keeps the keys of a server, its cell's name, and its lists of who is who.
const OPENAFS: &str = "/etc/openafs/server";

/// What a server knows of its callers.
#[derive(Debug)]
pub(crate) struct Security {
    keys: Arc<KeyRing>,
    identities: Arc<Identities>,
    policy: TicketPolicy,
    minimum: Minimum,
    insecure_noauth: bool,
    /// Where `bos adduser` notes users.
    userlist: Mutex<PathBuf>,
}

/// How a role is served to everybody.
pub(crate) struct Public {
    /// The classes that clients may use.
    pub(crate) classes: Vec<Arc<dyn ServerSecurity>>,
    /// The identity of a caller that proves nothing.
    pub(crate) identity: Identity,
}

impl Security {
    /// Reads what the configuration names.
    pub(crate) fn open(config: &Config) -> anyhow::Result<Self> {
        if config.security.keys.is_empty() {
            begin_keys(&own_keys(config))?;
        }
        let keys = KeyRing::open(key_files(config))?;
        if keys.is_empty() {
            tracing::warn!(
                "there is no key of the cell: callers from elsewhere are anonymous, and only this \
                 machine administers the server; `afar keys import KEYTAB` imports the key of \
                 afs/CELL from a keytab, `afar keys generate` generates one for a cell without \
                 Kerberos"
            );
        }
        Ok(Self {
            keys: Arc::new(keys),
            identities: Arc::new(identities(config)?),
            policy: TicketPolicy {
                allow_dotted_principals: config.security.allow_dotted_principals,
                danger_allow_des: config.security.danger_allow_des,
            },
            minimum: config.security.minimum,
            insecure_noauth: config.insecure_noauth,
            userlist: Mutex::new(userlist::path(config)),
        })
    }

    /// The cell's keys, as they are now: changed files are read again.
    pub(crate) fn keys(&self) -> &Arc<KeyRing> {
        &self.keys
    }

    /// The users who may administer this server, as they are now.
    pub(crate) fn superusers(&self) -> Vec<String> {
        self.identities.superusers()
    }

    /// Changes the file of users who may administer this server, one change at a time.
    pub(crate) fn change_users(
        &self,
        change: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), AbortCode> {
        let path = self.userlist.lock();
        change(&path).map_err(|error| {
            tracing::warn!("{}: not changed: {error}", path.display());
            overseer::code(&error)
        })?;
        self.identities.look_again();
        Ok(())
    }

    /// Takes realms and administrators from a configuration that was read again. Open connections keep
    /// their identities.
    pub(crate) fn reload(&self, config: &Config) {
        let section = &config.security;
        self.identities.set(&section.realms, &section.superusers);
    }

    /// How a role is served to everybody.
    pub(crate) fn public(&self, role: Role) -> Public {
        let minimum = self.minimum.of(role).level();
        let mut classes: Vec<Arc<dyn ServerSecurity>> = Vec::new();
        if minimum.is_none() {
            classes.push(Arc::new(RxNull));
        }
        classes.push(self.rxkad(minimum.unwrap_or(Level::Clear)));
        let administers = self.insecure_noauth && role != Role::File;
        Public {
            classes,
            identity: if administers {
                Identity::Superuser
            } else {
                Identity::Anonymous
            },
        }
    }

    /// How a service is served to everybody that nobody may listen in to.
    pub(crate) fn private(&self) -> Public {
        Public {
            classes: vec![self.rxkad(Level::Crypt)],
            identity: Identity::Anonymous,
        }
    }

    /// Callers with tickets, at this level at least.
    fn rxkad(&self, minimum: Level) -> Arc<dyn ServerSecurity> {
        let (keys, identities) = (Arc::clone(&self.keys), Arc::clone(&self.identities));
        let server = rxkad::Server::new(keys, identities);
        Arc::new(server.minimum(minimum).policy(self.policy))
    }

    /// How this server proves to another one of the cell that it is one too: by a ticket that it
    /// prints with the newest key. Without keys it does not.
    pub(crate) fn localauth(&self, level: Level) -> Arc<dyn ClientSecurity> {
        if self.keys.newest().is_none() {
            return Arc::new(RxNull);
        }
        match ticket::print(&self.keys) {
            Ok(token) => Arc::new(rxkad::Client::new(Arc::new(token), level)),
            Err(error) => {
                tracing::warn!(%error, "asking another server anonymously");
                Arc::new(RxNull)
            }
        }
    }

    /// The level at which a volume is sent to another server: that what a packet says of itself
    /// cannot be changed, or more if that is asked of callers here.
    pub(crate) fn forward_level(&self) -> Level {
        let asked = self.minimum.of(Role::Vol).level();
        asked.map_or(Level::Auth, |asked| asked.max(Level::Auth))
    }
}

/// The files with the cell's keys, as the configuration names them or by default.
pub fn key_files(config: &Config) -> Vec<PathBuf> {
    key_files_beside(config, Path::new(OPENAFS))
}

fn key_files_beside(config: &Config, openafs: &Path) -> Vec<PathBuf> {
    if !config.security.keys.is_empty() {
        return config.security.keys.clone();
    }
    let own = own_keys(config);
    let has_keys = edit::list(&own).is_ok_and(|keys| !keys.is_empty());
    let theirs = openafs.join(KEY_FILE);
    if !has_keys && theirs.exists() && is_cell_of(openafs, config) {
        vec![own, theirs]
    } else {
        vec![own]
    }
}

/// Where a server's own keys are, unless the configuration says otherwise.
pub fn own_keys(config: &Config) -> PathBuf {
    config.data.0.join(KEY_FILE)
}

/// Whether the OpenAFS of this machine is of the same cell.
fn is_cell_of(openafs: &Path, config: &Config) -> bool {
    let cell = fs::read_to_string(openafs.join("ThisCell"));
    cell.is_ok_and(|cell| cell.trim().eq_ignore_ascii_case(&config.cell))
}

/// Makes a file without keys, so that keys that come later are noticed.
fn begin_keys(path: &Path) -> anyhow::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let made = file.and_then(|mut file| {
        // The number of keys.
        file.write_all(&0_u32.to_be_bytes())
    });
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot make {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Makes the first key of a cell that has none.
pub fn first_key(config: &Config) -> anyhow::Result<()> {
    let keys = KeyRing::open(key_files(config).into_iter().filter(|path| path.exists()))?;
    if keys.is_empty() && config.security.keys.is_empty() {
        let path = own_keys(config);
        fs::create_dir_all(&config.data.0)
            .with_context(|| format!("cannot make {}", config.data.0.display()))?;
        edit::generate(&path, Some(1), EncryptionType::Aes256Sha1)?;
    }
    Ok(())
}

/// Identities, according to the configuration and OpenAFS's files of this machine's cell.
fn identities(config: &Config) -> anyhow::Result<Identities> {
    let section = &config.security;
    let mut identities = Identities::new(&config.cell);
    for realm in &section.realms {
        identities = identities.realm(realm);
    }
    for user in &section.superusers {
        identities = identities.superuser(user);
    }
    identities = identities.superusers_file(userlist::path(config))?;
    let openafs = Path::new(OPENAFS);
    if is_cell_of(openafs, config) {
        identities = identities
            .realms_file(openafs.join("krb.conf"))?
            .exclusions_file(openafs.join("krb.excl"))?;
    }
    Ok(identities)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(data: &Path) -> Config {
        let text =
            format!("cell = \"example.org\"\ndata = {data:?}\n[partition.a]\npath = \"/vicepa\"\n");
        Config::parse(&text).unwrap()
    }

    #[test]
    fn keys_of_openafs_serve_where_the_cell_is_the_same_and_there_are_no_own_ones() {
        let (data, openafs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = config(data.path());
        let own = data.path().join(KEY_FILE);
        let theirs = openafs.path().join(KEY_FILE);
        let files = || key_files_beside(&config, openafs.path());
        assert_eq!(files(), std::slice::from_ref(&own));
        edit::generate(&theirs, None, EncryptionType::Aes256Sha1).unwrap();
        assert_eq!(files(), std::slice::from_ref(&own));
        fs::write(openafs.path().join("ThisCell"), "Example.org\n").unwrap();
        assert_eq!(files(), [own.clone(), theirs]);
        edit::generate(&own, None, EncryptionType::Aes256Sha1).unwrap();
        assert_eq!(files(), [own]);
    }

    #[test]
    fn keys_that_come_later_are_noticed_and_the_first_is_made_once() {
        let data = tempfile::tempdir().unwrap();
        let config = config(data.path());
        let security = Security::open(&config).unwrap();
        assert!(security.keys().is_empty());
        first_key(&config).unwrap();
        first_key(&config).unwrap();
        let keys = edit::list(&own_keys(&config)).unwrap();
        assert_eq!(keys.iter().map(|key| key.kvno).collect::<Vec<_>>(), [1]);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while security.keys().is_empty() {
            assert!(
                std::time::Instant::now() < until,
                "the new key was not seen"
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    #[test]
    fn who_may_stay_anonymous_is_by_role() {
        let data = tempfile::tempdir().unwrap();
        let mut config = config(data.path());
        config.security.minimum = toml::from_str("vol = \"crypt\"").unwrap();
        config.insecure_noauth = true;
        let security = Security::open(&config).unwrap();
        let offered = |role| {
            let classes = security.public(role).classes;
            classes
                .iter()
                .map(|class| class.index().0)
                .collect::<Vec<_>>()
        };
        assert_eq!(offered(Role::Vl), [0, 2]);
        assert_eq!(offered(Role::Vol), [2]);
        assert_eq!(security.public(Role::Vol).identity, Identity::Superuser);
        assert_eq!(security.public(Role::File).identity, Identity::Anonymous);
        assert_eq!(security.forward_level(), Level::Crypt);
    }
}
