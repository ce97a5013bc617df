//! Tickets by MIT Kerberos's own library, where it is installed: every kind of ticket cache, the
//! site's `krb5.conf`, KDCs, passwords, renewal.
//!
//! It is loaded when it is first needed, so that afar starts without it. Everything here may wait
//! for a KDC.

mod sys;

use std::ffi::CStr;
use std::time::{Duration, SystemTime};

use afar_types::CellName;
use zeroize::Zeroizing;

use crate::{Token, kvno, ticket};
use sys::{Failure, c_text};

/// The ticket can be renewed (`TKT_FLG_RENEWABLE`).
const RENEWABLE: i32 = 0x0080_0000;
/// For how long a new ticket is to be renewable: KDCs grant less.
const RENEW_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Codes of the library, by their names in its header.
mod code {
    pub(super) const CLIENT_UNKNOWN: i32 = -1_765_328_378;
    pub(super) const SERVER_UNKNOWN: i32 = -1_765_328_377;
    pub(super) const PREAUTH_FAILED: i32 = -1_765_328_360;
    pub(super) const BAD_INTEGRITY: i32 = -1_765_328_353;
    pub(super) const TICKET_EXPIRED: i32 = -1_765_328_352;
    pub(super) const WRONG_REALM: i32 = -1_765_328_316;
    pub(super) const CACHE_NOT_FOUND: i32 = -1_765_328_243;
    pub(super) const REALM_UNKNOWN: i32 = -1_765_328_230;
    pub(super) const KDC_UNREACHABLE: i32 = -1_765_328_228;
    pub(super) const NO_CACHE_FILE: i32 = -1_765_328_189;
    pub(super) const REALM_CANNOT_RESOLVE: i32 = -1_765_328_164;
}

/// Kerberos does not give a ticket.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Krb5Error {
    /// The library is not installed.
    #[error("MIT Kerberos's library cannot be loaded ({0})")]
    Missing(String),
    /// The library says why.
    #[error("{what}: {message}{}", meaning(*code))]
    Failed {
        /// What was tried.
        what: String,
        /// The library's code.
        code: i32,
        /// The library's message.
        message: String,
    },
    /// The KDC's ticket is of no use to AFS.
    #[error(
        "the ticket for {service} has a session key of encryption type {etype}, which cannot make \
         a token"
    )]
    Key {
        /// The service.
        service: String,
        /// The encryption type.
        etype: i32,
    },
}

impl Krb5Error {
    const fn code(&self) -> i32 {
        match self {
            Self::Failed { code, .. } => *code,
            Self::Missing(_) | Self::Key { .. } => 0,
        }
    }

    /// What it comes to, if a user can do something about it.
    #[must_use]
    pub const fn problem(&self) -> Option<Krb5Problem> {
        Some(match self.code() {
            code::CLIENT_UNKNOWN => Krb5Problem::UnknownUser,
            code::SERVER_UNKNOWN | code::WRONG_REALM => Krb5Problem::UnknownService,
            code::PREAUTH_FAILED | code::BAD_INTEGRITY => Krb5Problem::WrongPassword,
            code::TICKET_EXPIRED => Krb5Problem::Expired,
            code::CACHE_NOT_FOUND | code::NO_CACHE_FILE => Krb5Problem::NoCache,
            code::REALM_UNKNOWN | code::REALM_CANNOT_RESOLVE => Krb5Problem::UnknownRealm,
            code::KDC_UNREACHABLE => Krb5Problem::Unreachable,
            _ => return None,
        })
    }

    /// Whether there is no cache of tickets, or none for this.
    #[must_use]
    pub const fn is_no_cache(&self) -> bool {
        matches!(self.problem(), Some(Krb5Problem::NoCache))
    }

    /// Whether the realm has no KDC as far as is known here.
    #[must_use]
    pub const fn is_no_kdc(&self) -> bool {
        matches!(
            self.problem(),
            Some(Krb5Problem::UnknownRealm | Krb5Problem::Unreachable)
        )
    }

    /// Whether the realm knows no such service.
    #[must_use]
    pub const fn is_unknown_service(&self) -> bool {
        matches!(self.problem(), Some(Krb5Problem::UnknownService))
    }

    /// Whether the library is missing.
    #[must_use]
    pub const fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }
}

/// What a user can do something about, of all that Kerberos's library fails with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Krb5Problem {
    /// The realm does not know the user.
    UnknownUser,
    /// The realm does not know the cell's service, or refers to another realm.
    UnknownService,
    /// The password is wrong.
    WrongPassword,
    /// The ticket that gets tickets has expired.
    Expired,
    /// There is no cache of tickets.
    NoCache,
    /// No KDC of the realm is known here.
    UnknownRealm,
    /// No KDC of the realm answers.
    Unreachable,
}

/// What the library's message does not say plainly.
const fn meaning(code: i32) -> &'static str {
    match code {
        code::PREAUTH_FAILED | code::BAD_INTEGRITY => "; the password is wrong",
        _ => "",
    }
}

/// A ticket for a cell's servers, as a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Whose it is: `alice@EXAMPLE.ORG`.
    pub client: String,
    /// For which service: `afs/example.org@EXAMPLE.ORG`.
    pub service: String,
    /// The token.
    pub token: Token,
}

/// The library, with the settings of now. For one thread.
#[derive(Debug)]
pub struct Krb5(sys::Session);

/// A cache of tickets.
#[derive(Debug)]
pub struct Cache<'a> {
    krb5: &'a Krb5,
    raw: sys::Cache<'a>,
}

impl Krb5 {
    /// Loads the library, if it is not loaded, and reads `krb5.conf`.
    ///
    /// # Errors
    /// When it is not installed, or its settings are wrong.
    pub fn new() -> Result<Self, Krb5Error> {
        sys::Session::new().map(Self).map_err(|error| match error {
            Ok(failure) => failed("MIT Kerberos's library", failure),
            Err(cause) => Krb5Error::Missing(cause),
        })
    }

    /// The cache of tickets of this name (`FILE:/tmp/krb5cc_0`, `KEYRING:…`, `KCM:…`); without one,
    /// that of `KRB5CCNAME` or `krb5.conf`.
    ///
    /// # Errors
    /// When the library knows no such kind.
    pub fn cache(&self, name: Option<&str>) -> Result<Cache<'_>, Krb5Error> {
        let what = || match name {
            Some(name) => format!("the ticket cache {name}"),
            None => "the usual ticket cache".to_owned(),
        };
        let name = name.map(c_text).transpose();
        let raw = name.and_then(|name| self.0.cache(name.as_deref()));
        let raw = raw.map_err(|failure| failed(what(), failure))?;
        Ok(Cache { krb5: self, raw })
    }

    /// The realm that `krb5.conf` (domain_realm) gives a host or domain.
    #[must_use]
    pub fn realm_of(&self, host: &str) -> Option<String> {
        self.0.host_realm(&c_text(host).ok()?)
    }

    /// The full name of a user: with the usual realm if it has none.
    ///
    /// # Errors
    /// When it cannot be a name, or there is no usual realm.
    pub fn full_name(&self, user: &str) -> Result<String, Krb5Error> {
        let principal = self.parse(user)?;
        principal.text().map_err(|failure| failed(user, failure))
    }

    fn parse(&self, name: &str) -> Result<sys::Principal<'_>, Krb5Error> {
        let parsed = c_text(name).and_then(|text| self.0.parse(&text));
        parsed.map_err(|failure| failed(format!("the name {name}"), failure))
    }
}

impl Cache<'_> {
    /// Kind and place: `FILE:/tmp/krb5cc_0`.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.raw.name();
        name.unwrap_or_else(|_| "a ticket cache".to_owned())
    }

    /// Whose tickets are in it: `alice@EXAMPLE.ORG`.
    ///
    /// # Errors
    /// When there is no such cache, or nothing in it.
    pub fn user(&self) -> Result<String, Krb5Error> {
        self.principal()?
            .text()
            .map_err(|failure| self.failed(failure))
    }

    /// A ticket for the servers of a cell whose realm is one of these: `afs/CELL`, and of a realm
    /// called like the cell also `afs`. The first realm that has one counts.
    ///
    /// # Errors
    /// Of several realms that failed, what the first said.
    pub fn ticket(&self, cell: &CellName, realms: &[String]) -> Result<Ticket, Krb5Error> {
        let client = self.principal()?;
        let mut first = None;
        for realm in realms {
            // spec: security#getting-a-ticket
            let mut services = vec![format!("afs/{cell}@{realm}")];
            if realm.eq_ignore_ascii_case(cell.as_str()) {
                services.push(format!("afs@{realm}"));
            }
            for service in services {
                match self.ticket_for(&client, service) {
                    Ok(ticket) => return Ok(ticket),
                    // Another may know it. That a cache is empty or expired is the same for all.
                    Err(error) if error.is_unknown_service() || error.is_no_kdc() => {
                        first.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Err(first.unwrap_or_else(|| Krb5Error::Failed {
            what: format!("cell {cell}"),
            code: code::REALM_UNKNOWN,
            message: "its realm is not known".to_owned(),
        }))
    }

    fn ticket_for(
        &self,
        client: &sys::Principal<'_>,
        service: String,
    ) -> Result<Ticket, Krb5Error> {
        let server = self.krb5.parse(&service)?;
        let found = self.raw.ticket(client, &server, false);
        let found = found.map_err(|failure| {
            failed(
                format!("no ticket for {service} by {}", self.name()),
                failure,
            )
        })?;
        let key = ticket::session_key(&found.key).ok_or_else(|| Krb5Error::Key {
            service: service.clone(),
            etype: found.key.etype(),
        })?;
        Ok(Ticket {
            client: found.client,
            service,
            token: Token {
                kvno: kvno::K5,
                key,
                ticket: found.ticket,
                start: found.start,
                end: found.end,
            },
        })
    }

    /// Has the KDC renew the ticket-granting ticket if it ends within `margin` and may be renewed
    /// to hold longer. The other tickets of the cache are dropped then. Says whether it was renewed.
    ///
    /// # Errors
    /// When there is no such ticket, or the KDC refuses or is not reached.
    pub fn renew(&self, now: SystemTime, margin: Duration) -> Result<bool, Krb5Error> {
        let client = self.principal()?;
        let user = client.text().map_err(|failure| self.failed(failure))?;
        let realm = user.rsplit_once('@').map_or("", |(_, realm)| realm);
        let granting = self.krb5.parse(&format!("krbtgt/{realm}@{realm}"))?;
        let found = self.raw.ticket(&client, &granting, true);
        let found = found.map_err(|failure| self.failed(failure))?;
        let now = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let near = u64::from(found.end) < now + margin.as_secs();
        let longer = found.flags & RENEWABLE != 0 && found.renew_till > found.end;
        if !near || !longer || u64::from(found.end) <= now {
            return Ok(false);
        }
        let what = format!("renewing the tickets of {user}");
        let renewed = self.raw.renewed(&client);
        let replaced = renewed.and_then(|mut renewed| self.raw.replace(&client, &mut renewed));
        replaced.map_err(|failure| failed(what, failure))?;
        Ok(true)
    }

    /// Gets a ticket-granting ticket for a user with a password, as `kinit` does, and makes it the
    /// only one in the cache.
    ///
    /// # Errors
    /// When the KDC refuses or is not reached.
    pub fn log_in(&self, user: &str, password: &[u8]) -> Result<(), Krb5Error> {
        let client = self.krb5.parse(user)?;
        let mut text = Zeroizing::new(Vec::with_capacity(password.len() + 1));
        text.extend_from_slice(password);
        text.push(0);
        let what = || format!("no ticket for {user}");
        let text = CStr::from_bytes_with_nul(&text).map_err(|_| Krb5Error::Failed {
            what: what(),
            code: code::PREAUTH_FAILED,
            message: "the password contains a NUL byte".to_owned(),
        })?;
        let life = i32::try_from(RENEW_LIFE.as_secs()).unwrap_or(i32::MAX);
        let gained = self.krb5.0.password(&client, text, life);
        let mut gained = gained.map_err(|failure| failed(what(), failure))?;
        self.raw
            .replace(&client, &mut gained)
            .map_err(|failure| self.failed(failure))
    }

    fn principal(&self) -> Result<sys::Principal<'_>, Krb5Error> {
        self.raw.principal().map_err(|failure| self.failed(failure))
    }

    fn failed(&self, failure: Failure) -> Krb5Error {
        failed(self.name(), failure)
    }
}

fn failed(what: impl Into<String>, failure: Failure) -> Krb5Error {
    Krb5Error::Failed {
        what: what.into(),
        code: failure.code,
        message: failure.message,
    }
}

/// Realms a cell may have, the likeliest first: the one that is given and no other; else those that
/// `krb5.conf` gives its servers and its name, then that of the user, and its name in upper case.
#[must_use]
pub fn realms_of(
    cell: &CellName,
    given: Option<&str>,
    krb5: Option<&Krb5>,
    hosts: &[String],
    user: Option<&str>,
) -> Vec<String> {
    if let Some(given) = given {
        return vec![given.to_owned()];
    }
    let names = hosts.iter().map(String::as_str).chain([cell.as_str()]);
    let known = krb5.map(|krb5| names.filter_map(|name| krb5.realm_of(name)));
    let own = user.and_then(|user| user.rsplit_once('@'));
    let own = own.map(|(_, realm)| realm.to_owned());
    let upper = cell.as_str().to_ascii_uppercase();
    let mut realms: Vec<String> = Vec::new();
    for realm in known.into_iter().flatten().chain(own).chain([upper]) {
        if !realms.contains(&realm) {
            realms.push(realm);
        }
    }
    realms
}

#[cfg(test)]
mod tests;
