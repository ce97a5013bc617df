//! From names to ids and back.

use afar_types::{PrIds, PrName, PrNameText, PrNamesAsked, PtsId};

use super::PtsError;
use crate::Servers;

/// Ids, or names, in one question. Servers of OpenAFS take more, but not all do.
const ASKED_MAX: usize = 1000;

/// A user or group that was named by its name or its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// There is one, or at least an id was given.
    Known {
        /// Its id.
        id: PtsId,
        /// Its name, or the id's digits if there is no such entry.
        name: String,
    },
    /// It is no name that the cell knows, and no id.
    Unknown {
        /// What was given.
        name: String,
    },
}

/// The ids of these names, one for each: [`PtsId::ANONYMOUS`] where nobody has it.
///
/// # Errors
/// When a name is too long to be one, and as for all steps.
pub async fn ids(servers: &Servers, names: &[&str]) -> Result<Vec<PtsId>, PtsError> {
    let mut found = Vec::new();
    for names in names.chunks(ASKED_MAX) {
        let asked = names.iter().map(|name| on_wire(name));
        let asked = asked.collect::<Result<Vec<_>, _>>()?;
        let asked = PrNamesAsked::new(asked).map_err(|_| PtsError::AnswerLength)?;
        let reply = servers
            .pr(async |server| server.name_to_id(asked.clone()).await)
            .await?;
        if reply.ids.len() != names.len() {
            return Err(PtsError::AnswerLength);
        }
        found.extend(reply.ids);
    }
    Ok(found)
}

/// The id of this name.
///
/// # Errors
/// [`PtsError::NoEntry`] when nobody has it, and as [`ids`].
pub async fn id(servers: &Servers, name: &str) -> Result<PtsId, PtsError> {
    match ids(servers, &[name]).await?.first() {
        Some(&id) if id != PtsId::ANONYMOUS => Ok(id),
        _ => Err(PtsError::NoEntry),
    }
}

/// The names of these ids, one for each: the id's digits where there is no such entry.
///
/// # Errors
/// As for all steps.
pub async fn names(servers: &Servers, ids: &[PtsId]) -> Result<Vec<String>, PtsError> {
    let mut found = Vec::new();
    for ids in ids.chunks(ASKED_MAX) {
        let asked = PrIds::new(ids).map_err(|_| PtsError::AnswerLength)?;
        let reply = servers
            .pr(async |server| server.id_to_name(asked.clone()).await)
            .await?;
        if reply.names.len() != ids.len() {
            return Err(PtsError::AnswerLength);
        }
        found.extend(reply.names.iter().map(ToString::to_string));
    }
    Ok(found)
}

/// The name of this id, or its digits.
///
/// # Errors
/// As [`names`].
pub async fn name(servers: &Servers, id: PtsId) -> Result<String, PtsError> {
    let names = names(servers, &[id]).await?;
    names.into_iter().next().ok_or(PtsError::AnswerLength)
}

/// Users and groups by their names or ids. What is both the name of one and the id of another is
/// taken for the name. As `pts` has it, those found by their names come first.
///
/// # Errors
/// As [`ids`].
pub async fn find(servers: &Servers, given: &[&str]) -> Result<Vec<Found>, PtsError> {
    let by_name = ids(servers, given).await?;
    let mut found = Vec::new();
    let mut numbers = Vec::new();
    for (&given, id) in given.iter().zip(by_name) {
        let name = given.to_owned();
        match given.parse().map(PtsId) {
            _ if id != PtsId::ANONYMOUS => found.push(Found::Known { id, name }),
            Ok(number) => numbers.push(number),
            Err(_) => found.push(Found::Unknown { name }),
        }
    }
    let names = names(servers, &numbers).await?;
    let numbered = numbers.into_iter().zip(names);
    found.extend(numbered.map(|(id, name)| Found::Known { id, name }));
    Ok(found)
}

/// A name as it is looked up.
fn on_wire(name: &str) -> Result<PrName, PtsError> {
    PrName::new(name.to_ascii_lowercase()).map_err(|_| PtsError::NameTooLong)
}

/// A name as an argument of its own.
pub(super) fn argument(name: &str) -> Result<PrNameText, PtsError> {
    let short = on_wire(name)?;
    PrNameText::new(short.as_bytes()).map_err(|_| PtsError::NameTooLong)
}
