//! The identity of a command's client to file servers: the user whose tokens are found, or the
//! administrator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use afar_cell::{Credentials, Secured};
use afar_security::{Level, Token, rxkad};
use afar_types::CellName;
use parking_lot::{Mutex, MutexGuard};

use super::find::{Finder, Found, Origin, cache_name};
use super::short_date;
use crate::{advice, output};

/// Tickets that end so soon are renewed.
const RENEW_BEFORE: Duration = Duration::from_secs(10 * 60);
/// How often to check whether one does.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The user's tokens. Each cell's is looked for once, and again when servers refuse it.
#[derive(Debug)]
pub(crate) struct UserTokens {
    finder: Finder,
    level: Level,
    /// Whether nothing is to be done without a token.
    required: bool,
    known: Mutex<BTreeMap<CellName, Option<Known>>>,
}

/// A token in use.
#[derive(Clone, Debug)]
struct Known {
    secured: Secured,
    token: Arc<Token>,
    origin: Origin,
}

impl UserTokens {
    pub(crate) fn new(finder: Finder, level: Level, required: bool) -> Self {
        Self {
            finder,
            level,
            required,
            known: Mutex::default(),
        }
    }

    /// Has tickets renewed that end soon, and takes the tokens made of the new ones. What cannot be
    /// renewed is used to its end. May wait for a KDC.
    pub(crate) fn renew(&self) {
        let in_use: Vec<_> = {
            let known = self.lock();
            let known = known.iter().filter_map(|(cell, known)| {
                let known = known.as_ref()?;
                Some((cell.clone(), known.clone()))
            });
            known.collect()
        };
        let soon = SystemTime::now() + RENEW_BEFORE;
        for (cell, known) in in_use {
            let Origin::Ticket(cache) = &known.origin else {
                continue;
            };
            if self.finder.other.is_some() {
                // The user's own programs do that.
                continue;
            }
            if known.token.left(soon).is_some() {
                continue;
            }
            if let Err(error) = self.finder.renew(cache, RENEW_BEFORE) {
                tracing::debug!("{error:#}");
            }
            match self.finder.of_ticket(&cell) {
                Ok(Some(found)) if found.held.token.end > known.token.end => {
                    self.lock().insert(cell, Some(self.of(found)));
                }
                Ok(_) => {}
                Err(error) => tracing::debug!("{error:#}"),
            }
        }
    }

    fn of(&self, found: Found) -> Known {
        let token = Arc::new(found.held.token.clone());
        let security = rxkad::Client::new(Arc::clone(&token), self.level);
        Known {
            secured: Secured {
                security: Arc::new(security),
                who: found.held.who().into(),
                until: Some(short_date(token.end).into()),
            },
            token,
            origin: found.origin,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CellName, Option<Known>>> {
        self.known.lock()
    }
}

impl Credentials for UserTokens {
    fn security(
        &self,
        cell: &CellName,
        refused: Option<&Secured>,
    ) -> Result<Option<Secured>, String> {
        // Held meanwhile, so that one asks the KDC and the others wait for the answer.
        let mut known = self.lock();
        let mut refused_token = None;
        if let Some(now) = known.get(cell) {
            let secured = now.as_ref().map(|now| now.secured.clone());
            match (refused, &secured) {
                (Some(refused), Some(secured)) if secured.is(refused) => {
                    refused_token = now.as_ref().map(|now| Arc::clone(&now.token));
                }
                _ => return Ok(secured),
            }
        }
        let found = self.finder.find(cell, refused_token.as_deref());
        if let (Some(refused), Ok(None) | Err(_)) = (refused, &found) {
            // There is nothing better; what to say of it is known to who asks.
            return Ok(Some(refused.clone()));
        }
        let found = match found {
            Ok(None) if self.required => {
                return Err("there is no token for it; get one with afar login".to_owned());
            }
            Err(problem) if self.required => return Err(advice::told(&problem)),
            Ok(found) => found,
            Err(problem) => {
                let problem = advice::told(&problem);
                output::note(&format!("{cell}: {problem}; going on as anonymous"));
                None
            }
        };
        if found.is_none() && cache_name().is_some() {
            tracing::debug!("the ticket cache gives no token for {cell}");
        }
        let now = found.map(|found| self.of(found));
        let secured = now.as_ref().map(|now| now.secured.clone());
        known.insert(cell.clone(), now);
        Ok(secured)
    }
}
