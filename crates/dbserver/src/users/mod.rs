//! How the users of a cell without a KDC prove who they are: passwords, of which only OPAQUE's
//! record is kept, and SSH keys. They lie among the rows of the protection server, and are
//! replicated and removed with its users.

pub(crate) mod rows;
mod service;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use afar_login::password::{Record, Setup};
use afar_login::server::{Directory, DirectoryError, User};
use afar_login::sshkey::SshKey;
use afar_rpc::{Calls, users};
use afar_telemetry::Registry;

use crate::pr::{PrError, ProtectionServer};

/// The users of a protection server, and their passwords and keys. Its clones are the same.
#[derive(Debug, Clone)]
pub struct UserServer {
    protection: Arc<ProtectionServer>,
    calls: Calls,
}

impl UserServer {
    /// Looks after the users of this server. The first time, it makes the secret by which passwords
    /// are checked.
    ///
    /// # Errors
    /// When the database cannot be read or changed.
    pub async fn open(protection: Arc<ProtectionServer>) -> Result<Self, PrError> {
        let calls = Calls::new(users::INTERFACE, &Registry::default());
        let server = Self { protection, calls };
        let database = server.protection.database();
        if database.read(|rows| Ok::<_, PrError>(rows::setup(*rows)?.is_none()))? {
            let new = Setup::generate().to_octets();
            database.write(move |rows| rows::begin(rows, &new)).await?;
        }
        Ok(server)
    }

    /// The same, whose counters this registry shows.
    #[must_use]
    pub fn with_registry(mut self, registry: &Registry) -> Self {
        self.calls = Calls::new(users::INTERFACE, registry);
        self
    }

    fn read_setup(&self) -> Result<Setup, PrError> {
        self.protection.database().read(|rows| {
            let octets = rows::setup(*rows)?;
            let octets = octets.ok_or(PrError::Damaged("the login service's secret is gone"))?;
            Setup::of_octets(octets)
                .map_err(|_| PrError::Damaged("the login service's secret is damaged"))
        })
    }
}

impl Directory for UserServer {
    fn canonical(&self, name: &str) -> String {
        String::from_utf8_lossy(&self.protection.canonical(name.as_bytes())).into_owned()
    }

    fn find(&self, name: &str) -> Result<Option<User>, DirectoryError> {
        let found = self.protection.database().read(|rows| {
            let Some(entry) = self.protection.user(*rows, name.as_bytes())? else {
                return Ok(None);
            };
            let known = rows::credentials(*rows, entry.id)?;
            let password = (!known.password.is_empty()).then(|| Record::of_octets(&known.password));
            let password = password
                .transpose()
                .map_err(|_| PrError::Damaged("the record of a password is damaged"))?;
            let keys = known.keys.iter().filter_map(|line| {
                let line = std::str::from_utf8(line.as_bytes()).ok()?;
                SshKey::parse(line).ok()
            });
            Ok::<_, PrError>(Some(User {
                id: entry.id.0,
                name: String::from_utf8_lossy(&entry.name).into_owned(),
                password,
                keys: keys.collect(),
            }))
        });
        found.map_err(DirectoryError::new)
    }

    fn setup(&self) -> Result<Setup, DirectoryError> {
        self.read_setup().map_err(DirectoryError::new)
    }
}
