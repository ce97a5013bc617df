//! Which users of a cell are shown as which of this machine: `--map-owner`.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use afar_admin::pts;
use afar_admin::{Security, Servers};
use afar_cache::{Cache, Owner, Owners, OwnersOfCell};
use afar_cell::Client;
use afar_types::{CellName, PtsId};
use anyhow::{Context, bail, ensure};
use nix::unistd::{Uid, User, getegid, geteuid};

use crate::advice;
use crate::fetch::Seen;
use crate::tokens::Finder;

/// How often the mount checks whether the user has another token.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many looks after a cell could not be asked, it is asked again.
const ASK_AGAIN: u32 = 30;

/// What `--map-owner` says once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MapOwner {
    /// Numbers are shown as the cell has them.
    None,
    /// The files of the mount's user are shown as the user's own.
    Own,
    /// Those of a user or id of the cell, as those of a user of this machine and the user's group.
    Pair(String, (u32, u32)),
}

impl FromStr for MapOwner {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "none" => return Ok(Self::None),
            "self" => return Ok(Self::Own),
            _ => {}
        }
        let pair = text.split_once('=').filter(|(user, _)| !user.is_empty());
        let (user, local) = pair.context(
            "give PTS=LOCAL, a user of the cell and one of this machine by names or numbers, or self, \
             or none",
        )?;
        Ok(Self::Pair(user.to_owned(), local_user(local)?))
    }
}

/// The number and the group of a user of this machine.
fn local_user(text: &str) -> anyhow::Result<(u32, u32)> {
    let number = text.parse::<u32>().ok();
    let found = match number {
        Some(number) => User::from_uid(Uid::from_raw(number)),
        None => User::from_name(text),
    };
    let found = found.with_context(|| format!("cannot look up the user {text}"))?;
    match (found, number) {
        (Some(user), _) => Ok((user.uid.as_raw(), user.gid.as_raw())),
        (None, Some(number)) => Ok((number, number)),
        (None, None) => bail!("this machine has no user {text}; give a number"),
    }
}

/// Knows the owners of a mount's cells.
#[derive(Debug)]
pub(super) struct MountOwners {
    client: Client,
    seen: Seen,
    /// Whether the mount's user is shown as the local user.
    own: bool,
    pairs: Vec<(String, (u32, u32))>,
    /// Whether something could not be found out.
    failed: AtomicBool,
}

impl MountOwners {
    /// What is wanted of a mount whose client is seen so; `None` if numbers are to be shown as they are. Where
    /// nothing is said, the files of a mount's only user are that user's.
    ///
    /// # Errors
    /// When what is wanted excludes itself.
    pub(super) fn new(
        wanted: &[MapOwner],
        of_one_user: bool,
        client: Client,
        seen: Seen,
    ) -> anyhow::Result<Option<Self>> {
        if wanted.contains(&MapOwner::None) {
            ensure!(
                wanted.len() == 1,
                "--map-owner none shows all numbers as they are; omit the others"
            );
            return Ok(None);
        }
        let pairs = wanted.iter().filter_map(|wanted| match wanted {
            MapOwner::Pair(user, local) => Some((user.clone(), *local)),
            MapOwner::Own | MapOwner::None => None,
        });
        let owners = Self {
            own: wanted.contains(&MapOwner::Own) || (wanted.is_empty() && of_one_user),
            pairs: pairs.collect(),
            client,
            seen,
            failed: AtomicBool::new(false),
        };
        Ok((owners.own || !owners.pairs.is_empty()).then_some(owners))
    }

    async fn find(&self, cell: &CellName) -> anyhow::Result<Vec<Owner>> {
        let mut owners = Vec::new();
        let mut add = |id, (uid, gid)| owners.push(Owner { id, uid, gid });
        for (user, local) in &self.pairs {
            match user.parse() {
                Ok(id) => add(PtsId(id), *local),
                Err(_) => match self.id_of(cell, std::slice::from_ref(user)).await? {
                    PtsId::ANONYMOUS => {
                        tracing::warn!("--map-owner: cell {cell} has no user {user}");
                    }
                    id => add(id, *local),
                },
            }
        }
        if self.own {
            let own = (geteuid().as_raw(), getegid().as_raw());
            add(self.own_id(cell).await?, own);
        }
        Ok(owners)
    }

    /// As whom the mount's user makes files.
    async fn own_id(&self, cell: &CellName) -> anyhow::Result<PtsId> {
        match self.seen {
            Seen::Nobody => return Ok(PtsId::ANONYMOUS),
            // What is made with the cell's own rights belongs to its administrators.
            Seen::Sockets | Seen::Keys => return Ok(PtsId::ADMINISTRATORS),
            Seen::Tokens { .. } => {}
        }
        let wanted = cell.clone();
        let found = tokio::task::spawn_blocking(move || Finder::default().find(&wanted, None));
        let Ok(Some(found)) = found.await? else {
            return Ok(PtsId::ANONYMOUS);
        };
        let id = found.held.vice_id.and_then(|id| i32::try_from(id).ok());
        match (id, &found.held.user) {
            (Some(id), _) => Ok(PtsId(id)),
            (None, Some(user)) => self.id_of(cell, &names(user, cell)).await,
            (None, None) => Ok(PtsId::ANONYMOUS),
        }
    }

    /// The id of the first of these names that the cell has; of nobody if it has none of them.
    async fn id_of(&self, cell: &CellName, names: &[String]) -> anyhow::Result<PtsId> {
        let servers: Vec<_> = self.client.cell(cell).await?.servers().collect();
        let endpoint = self.client.endpoint().clone();
        // Everybody may look names up.
        let servers = Servers::new(endpoint, &servers, Security::none());
        let asked: Vec<_> = names.iter().map(String::as_str).collect();
        let ids = pts::ids(&servers, &asked).await?;
        let known = ids.into_iter().find(|id| *id != PtsId::ANONYMOUS);
        Ok(known.unwrap_or(PtsId::ANONYMOUS))
    }
}

/// The names by which a cell may know the user of a token, `name/instance@REALM`.
fn names(user: &str, cell: &CellName) -> Vec<String> {
    let (name, realm) = user.split_once('@').unwrap_or((user, ""));
    let name = name.replace('/', ".").to_lowercase();
    if realm.is_empty() || realm.eq_ignore_ascii_case(cell.as_str()) {
        return vec![name];
    }
    // A realm of another name may be the cell's all the same.
    vec![format!("{name}@{}", realm.to_lowercase()), name]
}

impl Owners for MountOwners {
    fn of<'a>(&'a self, cell: &'a CellName) -> OwnersOfCell<'a> {
        Box::pin(async move {
            // Until it is answered, as the caller may not wait for the answer.
            self.failed.store(true, Ordering::Relaxed);
            match self.find(cell).await {
                Ok(owners) => {
                    self.failed.store(false, Ordering::Relaxed);
                    tracing::debug!(%cell, ?owners, "owners that are users of this machine");
                    Some(owners)
                }
                Err(error) => {
                    tracing::warn!(
                        "cannot map the owners of {cell} yet: {}",
                        advice::told(&error)
                    );
                    None
                }
            }
        })
    }
}

/// Has a mount know within a moment when its user is somebody else to cells.
pub(super) fn follow(cache: Cache, owners: Arc<MountOwners>) {
    tokio::spawn(async move {
        let mut before = None;
        let mut looks = 0;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let stamp = tokio::task::spawn_blocking(|| Finder::default().stamp());
            let Ok(stamp) = stamp.await else {
                continue;
            };
            looks += 1;
            let again = owners.failed.load(Ordering::Relaxed) && looks >= ASK_AGAIN;
            if before == Some(stamp) && !again {
                continue;
            }
            (before, looks) = (Some(stamp), 0);
            cache.renew_owners().await;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_given_by_names_and_numbers() {
        let read = |text: &str| text.parse::<MapOwner>();
        assert_eq!(read("none").unwrap(), MapOwner::None);
        assert_eq!(read("self").unwrap(), MapOwner::Own);
        let root = MapOwner::Pair("ann".to_owned(), (0, 0));
        assert_eq!(read("ann=root").unwrap(), root);
        assert_eq!(read("ann=0").unwrap(), root);
        let pair = MapOwner::Pair("7".to_owned(), (4_000_000_000, 4_000_000_000));
        assert_eq!(read("7=4000000000").unwrap(), pair);
        for wrong in ["", "ann", "=0", "ann=no such user", "self=none"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_token_names_its_user_as_the_cell_does() {
        let cell: CellName = "a.org".parse().unwrap();
        assert_eq!(names("ann@A.ORG", &cell), ["ann"]);
        assert_eq!(names("Ann/admin", &cell), ["ann.admin"]);
        assert_eq!(names("ann@B.ORG", &cell), ["ann@b.org", "ann"]);
    }
}
