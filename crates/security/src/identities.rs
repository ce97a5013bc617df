//! Which user of AFS somebody is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use afar_rx::Identity;
use parking_lot::RwLock;

use crate::Principal;
use crate::reload::{self, Watched};
use crate::ticket::SUPERUSER;

/// Bytes of a name in the protection database.
const NAME_MAX: usize = 63;

/// The lines of an optional file.
type Lines = Watched<Vec<String>, IdentityError>;

/// A file that says who is who cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}; may this user read it?", path.display())]
pub struct IdentityError {
    path: PathBuf,
    source: io::Error,
}

/// Says which user of the protection database the owner of a ticket is, and whether he may
/// administer servers.
///
/// Users of the cell's own realms go by their name alone. A realm is the cell's own if it is called
/// like the cell, in any case, or was made known as one ([`realm`](Self::realm),
/// [`realms_file`](Self::realms_file)); of the latter, those listed in
/// [`exclusions_file`](Self::exclusions_file) are foreign all the same. Foreign users are called
/// `name@realm`. Files are optional, and read again when they change.
#[derive(Debug)]
pub struct Identities {
    cell: String,
    named: RwLock<Named>,
    realms_file: Option<Lines>,
    exclusions_file: Option<Lines>,
    superusers_file: Option<Lines>,
}

/// What is not in files.
#[derive(Debug, Default)]
struct Named {
    realms: Vec<String>,
    superusers: Vec<String>,
}

impl Identities {
    /// Those of a cell without other realms and without superusers.
    #[must_use]
    pub fn new(cell: impl Into<String>) -> Self {
        Self {
            cell: cell.into(),
            named: RwLock::default(),
            realms_file: None,
            exclusions_file: None,
            superusers_file: None,
        }
    }

    /// Makes a realm the cell's own.
    #[must_use]
    pub fn realm(mut self, realm: impl Into<String>) -> Self {
        self.named.get_mut().realms.push(realm.into());
        self
    }

    /// Makes the realms in the first line of a file the cell's own (OpenAFS's `krb.conf`).
    ///
    /// # Errors
    /// [`IdentityError`] if the file is there and cannot be read.
    pub fn realms_file(mut self, path: impl Into<PathBuf>) -> Result<Self, IdentityError> {
        self.realms_file = Some(Watched::open(path.into(), first_line)?);
        Ok(self)
    }

    /// Takes from a file whom the cell's own realms do not make local: one a line, `name@REALM` or
    /// `name.instance@REALM`, as their tickets spell it (OpenAFS's `krb.excl`).
    ///
    /// # Errors
    /// [`IdentityError`] if the file is there and cannot be read.
    pub fn exclusions_file(mut self, path: impl Into<PathBuf>) -> Result<Self, IdentityError> {
        self.exclusions_file = Some(Watched::open(path.into(), first_words)?);
        Ok(self)
    }

    /// Lets a user administer servers: `name`, `name.instance`, or with `@realm` for a foreign user.
    #[must_use]
    pub fn superuser(mut self, name: impl Into<String>) -> Self {
        self.named.get_mut().superusers.push(name.into());
        self
    }

    /// Lets the users in a file administer servers, one a line (OpenAFS's `UserList`). Lines that
    /// begin with a blank, which are for other security classes, are skipped.
    ///
    /// # Errors
    /// [`IdentityError`] if the file is there and cannot be read.
    pub fn superusers_file(mut self, path: impl Into<PathBuf>) -> Result<Self, IdentityError> {
        self.superusers_file = Some(Watched::open(path.into(), first_words)?);
        Ok(self)
    }

    /// Puts other realms and superusers in the place of those that were named one by one; those in files
    /// stay.
    pub fn set(&self, realms: &[String], superusers: &[String]) {
        *self.named.write() = Named {
            realms: realms.to_vec(),
            superusers: superusers.to_vec(),
        };
    }

    /// Reads the file of superusers again if it has changed, at once.
    pub fn look_again(&self) {
        if let Some(file) = &self.superusers_file {
            file.look_now();
        }
    }

    /// The identity of a ticket's owner. A name that the protection database cannot have, or that reads
    /// like a group's or a foreign user's, is nobody in particular.
    ///
    /// A printed ticket ([`print`](crate::ticket::print())) has no realm: that is the superuser.
    #[must_use]
    pub fn identity(&self, client: &Principal) -> Identity {
        // spec: security#superusers
        if client.realm.is_empty() && client.local_name() == SUPERUSER {
            return Identity::Superuser;
        }
        let local = client.local_name();
        let is_local = self.is_local(client);
        let name = if is_local {
            local.clone()
        } else {
            client.to_string()
        };
        if !is_plain(&local) || !is_plain(&client.realm) || name.len() > NAME_MAX {
            return Identity::Anonymous;
        }
        let known: Arc<str> = name.to_ascii_lowercase().into();
        // A foreign user may be listed with the realm as the ticket spells it, or in lower case.
        let lower = format!("{local}@{}", client.realm.to_ascii_lowercase());
        let operator = self.is_superuser(&name) || (!is_local && self.is_superuser(&lower));
        if operator {
            Identity::Operator(known)
        } else {
            Identity::User(known)
        }
    }

    /// The users who may administer servers, as the files are now.
    #[must_use]
    pub fn superusers(&self) -> Vec<String> {
        let mut users = self.named.read().superusers.clone();
        if let Some(file) = &self.superusers_file {
            users.extend(file.get().iter().cloned());
        }
        users
    }

    // spec: security#names-of-users
    fn is_local(&self, client: &Principal) -> bool {
        let realm = &client.realm;
        if realm.is_empty() || realm.eq_ignore_ascii_case(&self.cell) {
            return true;
        }
        let is = |own: &str| own.eq_ignore_ascii_case(realm);
        listed(&self.named.read().realms, self.realms_file.as_ref(), is) && {
            let name = client.to_string();
            !listed(&[], self.exclusions_file.as_ref(), |excluded| {
                excluded == name
            })
        }
    }

    fn is_superuser(&self, name: &str) -> bool {
        let file = self.superusers_file.as_ref();
        listed(&self.named.read().superusers, file, |superuser| {
            superuser == name
        })
    }
}

/// Whether something is in a list, or in the file that goes with it.
fn listed(given: &[String], file: Option<&Lines>, is: impl Fn(&str) -> bool) -> bool {
    given.iter().any(|entry| is(entry))
        || file.is_some_and(|file| file.get().iter().any(|entry| is(entry)))
}

/// Whether a name or a realm means nothing else than itself: `system:administrators` is a group,
/// and `user@realm` in one component is not the user of that realm.
fn is_plain(part: &str) -> bool {
    !part.contains(|c: char| matches!(c, '@' | ':' | '/') || c.is_whitespace() || c.is_control())
}

/// The words of a file's first line; none if there is no file.
fn first_line(path: &Path) -> Result<Vec<String>, IdentityError> {
    let text = text(path)?;
    let line = text.lines().next().unwrap_or_default();
    Ok(line.split_whitespace().map(str::to_owned).collect())
}

/// The first word of each line that begins with one; none if there is no file.
fn first_words(path: &Path) -> Result<Vec<String>, IdentityError> {
    let text = text(path)?;
    let lines = text.lines().filter(|line| !line.starts_with([' ', '\t']));
    let words = lines.filter_map(|line| line.split_whitespace().next());
    Ok(words.map(str::to_owned).collect())
}

fn text(path: &Path) -> Result<String, IdentityError> {
    match reload::read(path) {
        Ok((content, _)) => Ok(String::from_utf8_lossy(&content).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(IdentityError {
            path: path.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests;
