//! Where a token for a cell is found: in afar's own store, in the clients of the kernel, or made of
//! a ticket.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use afar_security::Token;
use afar_security::ccache::{Ccache, CcacheError};
use afar_security::libkrb5::{Krb5, Krb5Error, realms_of};
use afar_security::tokens::{Held, Source, Store, kafs, openafs};
use afar_types::CellName;
use anyhow::{Context, anyhow};

use super::short_date;

/// Names the user's cache of tickets.
pub(super) const CCACHE_VARIABLE: &str = "KRB5CCNAME";

/// A token, and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) held: Held,
    pub(crate) origin: Origin,
}

/// Where a token comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was kept.
    Kept(Source),
    /// It was made of a ticket of the cache of this name.
    Ticket(String),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kept(source) => source.fmt(f),
            Self::Ticket(cache) => f.write_str(cache),
        }
    }
}

/// Finds tokens. What it is asked may take as long as a KDC takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Finder {
    /// afar's own store.
    pub(crate) store: Store,
    /// The realm of the cell, if it is given.
    pub(crate) realm: Option<String>,
    /// The name of the cache of tickets, if it is given.
    pub(crate) ccache: Option<String>,
    /// Names of the cell's servers, by which its realm may be found.
    pub(crate) hosts: Vec<String>,
    /// Another user of this machine, whose tokens are looked for by root.
    pub(crate) other: Option<u32>,
}

impl Finder {
    /// Finds the tokens of any user of this machine, for root: those in the kernel's keyrings
    /// and in files, and tickets in the usual file.
    pub(crate) fn of_user(uid: u32) -> Self {
        Self {
            store: Store::of_user(uid),
            other: Some(uid),
            ..Self::default()
        }
    }

    /// A token for the cell that has not expired and is not `refused`: one that was kept, then one
    /// that a client of the kernel has, then one from a ticket. `None` if there is nothing at all.
    ///
    /// # Errors
    /// Why there is none although there should be one.
    pub(crate) fn find(
        &self,
        cell: &CellName,
        refused: Option<&Token>,
    ) -> anyhow::Result<Option<Found>> {
        let now = SystemTime::now();
        let good = |held: &Held| !held.is_expired(now) && Some(&held.token) != refused;
        let kept = self.store.find(cell);
        if let Ok(Some((held, source))) = &kept
            && good(held)
        {
            return Ok(Some(Found {
                held: held.clone(),
                origin: Origin::Kept(source.clone()),
            }));
        }
        // What clients of the kernel have for this process is not another user's.
        let of_kernel = match self.other {
            None => of_kernel(cell),
            Some(_) => Vec::new(),
        };
        if let Some((held, source)) = of_kernel.into_iter().find(|(held, _)| good(held)) {
            let origin = Origin::Kept(source);
            return Ok(Some(Found { held, origin }));
        }
        let problem = match self.of_ticket(cell) {
            Ok(Some(found)) if good(&found.held) => return Ok(Some(found)),
            Ok(_) => None,
            Err(problem) => Some(problem),
        };
        match (kept, problem) {
            (Err(error), _) => Err(error.into()),
            (Ok(Some((held, _))), _) if held.is_expired(now) => {
                Err(anyhow!("{}; log in again with afar login", expired(&held)))
            }
            (_, Some(problem)) => Err(problem),
            _ => Ok(None),
        }
    }

    /// A token from a ticket for the cell in the cache, or one the KDC gives for what is there.
    /// `None` if there is no cache.
    ///
    /// # Errors
    /// When there is a cache, and no ticket for the cell.
    pub(super) fn of_ticket(&self, cell: &CellName) -> anyhow::Result<Option<Found>> {
        if let Some(uid) = self.other {
            return self.of_users_ticket(cell, uid);
        }
        let name = self.ccache.clone().or_else(cache_name);
        let path = name.as_deref().map_or_else(usual_cache, |name| {
            Ccache::path_of(name).map(Path::to_owned)
        });
        if let Some(path) = &path {
            match Ccache::read(path) {
                Ok(cache) => {
                    if let Some(found) = of_cache(&cache, path, cell) {
                        return Ok(Some(found));
                    }
                }
                Err(CcacheError::File { .. }) if name.is_none() => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        let krb5 = Krb5::new()?;
        match self.of_krb5(&krb5, name.as_deref(), cell) {
            // That there are tickets, for other things, need not mean that one was wanted here.
            Err(error) if name.is_none() && (error.is_no_cache() || error.is_unknown_service()) => {
                tracing::debug!("no token for {cell}: {error}");
                Ok(None)
            }
            found => Ok(Some(found?)),
        }
    }

    /// The same of another user's tickets. Kerberos's library is shown a copy of them: he may put
    /// something else in place of the file at any time.
    fn of_users_ticket(&self, cell: &CellName, uid: u32) -> anyhow::Result<Option<Found>> {
        let Some(path) = usual_cache_of(uid) else {
            return Ok(None);
        };
        let cache = match Ccache::read_of_user(&path, uid) {
            Ok(cache) => cache,
            Err(CcacheError::File { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if let Some(found) = of_cache(&cache, &path, cell) {
            return Ok(Some(found));
        }
        let krb5 = Krb5::new()?;
        let mut copy = tempfile::NamedTempFile::new().context("cannot copy a ticket cache")?;
        copy.write_all(&cache.to_octets())
            .context("cannot copy a ticket cache")?;
        let name = format!("FILE:{}", copy.path().display());
        match self.of_krb5(&krb5, Some(&name), cell) {
            Err(error) if error.is_no_cache() || error.is_unknown_service() => {
                tracing::debug!("no token of user {uid} for {cell}: {error}");
                Ok(None)
            }
            found => Ok(Some(Found {
                origin: Origin::Ticket(format!("FILE:{}", path.display())),
                ..found?
            })),
        }
    }

    /// What tells the tokens and tickets there are now from those of another time; `None` if there
    /// are none. Tickets that are not in a file are not seen.
    pub(crate) fn stamp(&self) -> Option<u64> {
        let now = SystemTime::now();
        let mut hash = DefaultHasher::new();
        let mut any = false;
        for kept in self.store.all() {
            any = true;
            match kept {
                Ok((held, _)) => {
                    held.cell.hash(&mut hash);
                    held.token.ticket.hash(&mut hash);
                    (held.token.end, held.is_expired(now)).hash(&mut hash);
                }
                Err(error) => error.to_string().hash(&mut hash),
            }
        }
        let cache = match self.other {
            Some(uid) => usual_cache_of(uid),
            None => match self.ccache.clone().or_else(cache_name) {
                Some(name) => Ccache::path_of(&name).map(Path::to_owned),
                None => usual_cache(),
            },
        };
        let found = cache.and_then(|path| std::fs::symlink_metadata(path).ok());
        if let Some(found) = found {
            any = true;
            (found.ino(), found.len(), found.mtime(), found.mtime_nsec()).hash(&mut hash);
        }
        any.then(|| hash.finish())
    }

    /// The same by Kerberos's library.
    pub(super) fn of_krb5(
        &self,
        krb5: &Krb5,
        name: Option<&str>,
        cell: &CellName,
    ) -> Result<Found, Krb5Error> {
        let cache = krb5.cache(name)?;
        let user = cache.user()?;
        let given = self.realm.as_deref();
        let realms = realms_of(cell, given, Some(krb5), &self.hosts, Some(&user));
        let ticket = cache.ticket(cell, &realms)?;
        Ok(Found {
            held: Held {
                cell: cell.clone(),
                user: Some(ticket.client),
                vice_id: None,
                token: ticket.token,
            },
            origin: Origin::Ticket(cache.name()),
        })
    }

    /// Has the KDC renew the tickets of a cache if they end soon.
    ///
    /// # Errors
    /// Why they were not renewed.
    pub(super) fn renew(&self, cache: &str, margin: Duration) -> anyhow::Result<bool> {
        let krb5 = Krb5::new()?;
        let cache = krb5.cache(Some(cache))?;
        let renewed = cache.renew(SystemTime::now(), margin);
        renewed.context("the tickets cannot be renewed")
    }
}

/// The tokens that the kernel's clients have for a cell. Where there are none, there are none.
fn of_kernel(cell: &CellName) -> Vec<(Held, Source)> {
    let openafs = openafs::Client::open().and_then(|client| client.find(cell));
    let found = [(openafs, Source::OpenAfs), (kafs::find(cell), Source::Kafs)];
    let given = found.into_iter().filter_map(|(found, source)| match found {
        Ok(found) => found.map(|held| (held, source)),
        Err(error) => {
            tracing::debug!("no token from {source}: {error}");
            None
        }
    });
    given.collect()
}

/// A token from a ticket for the cell that is in a file already: no library and no KDC is needed.
fn of_cache(cache: &Ccache, path: &Path, cell: &CellName) -> Option<Found> {
    let credential = cache.for_cell(cell.as_str(), SystemTime::now())?;
    Some(Found {
        held: Held {
            cell: cell.clone(),
            user: Some(credential.client.to_string()),
            vice_id: None,
            token: credential.token()?,
        },
        origin: Origin::Ticket(format!("FILE:{}", path.display())),
    })
}

/// The cache that the environment names.
pub(super) fn cache_name() -> Option<String> {
    std::env::var(CCACHE_VARIABLE)
        .ok()
        .filter(|name| !name.is_empty())
}

/// The file that is the usual cache where nothing else is said; `None` where `krb5.conf` may say
/// something else.
fn usual_cache() -> Option<PathBuf> {
    usual_cache_of(rustix::process::geteuid().as_raw())
}

fn usual_cache_of(uid: u32) -> Option<PathBuf> {
    let conf = std::env::var_os("KRB5_CONFIG").unwrap_or_else(|| "/etc/krb5.conf".into());
    let said = std::fs::read_to_string(conf).is_ok_and(|text| text.contains("ccache_name"));
    (!said).then(|| PathBuf::from(format!("/tmp/krb5cc_{uid}")))
}

/// That a token has expired.
pub(super) fn expired(held: &Held) -> String {
    format!(
        "the token of {} for {} expired at {}",
        held.who(),
        held.cell,
        short_date(held.token.end)
    )
}
