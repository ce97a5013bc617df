//! Between the file and the rows.

use std::collections::BTreeSet;

use afar_types::PtsId;

use super::{Prdb, PrdbEntry};
use crate::kv::Database;
use crate::pr::rows::{LEAST, Rows, RowsMut, clear, groups, members, slots};
use crate::pr::{PrError, ProtectionServer};

/// Entries, or memberships, that are written in one change of the database. Each is up to four
/// rows, and servers agree on no more than 3,000 at once.
const PIECE: usize = 500;

impl ProtectionServer {
    /// Fills a database that has no users and groups yet with those of a file. Until all are
    /// there, it is still taken for empty.
    ///
    /// # Errors
    /// PREXIST when the database has users and groups; when it cannot be read or changed.
    pub async fn import(database: &Database, prdb: Prdb) -> Result<(), PrError> {
        if database.read(|rows| rows.header())?.is_some() {
            return Err(PrError::NameTaken);
        }
        // What an import that was cut short has left.
        while !database.write(|rows| clear(rows, PIECE)).await? {}
        let Prdb { header, entries } = prdb;
        let ids: BTreeSet<_> = entries.iter().map(|entry| entry.entry.id).collect();
        let mut pairs = Vec::new();
        let mut pieces = entries.into_iter().peekable();
        while pieces.peek().is_some() {
            let mut piece = Vec::new();
            for PrdbEntry {
                mut entry,
                elements,
            } in pieces.by_ref().take(PIECE)
            {
                if entry.is_group() {
                    pairs.extend(elements.iter().map(|&member| (member, entry.id)));
                    // A group of an owner without entry is one whose owner is gone.
                    if entry.owner.0 != 0 && !ids.contains(&entry.owner) {
                        entry.owner = PtsId(0);
                    }
                }
                piece.push(entry);
            }
            let put =
                database.write(move |rows| piece.iter().try_for_each(|entry| rows.insert(entry)));
            put.await?;
        }
        for piece in pairs.chunks(PIECE) {
            let piece = piece.to_vec();
            let put = database.write(move |rows| {
                piece
                    .iter()
                    .try_for_each(|&(member, group)| rows.put_membership(member, group))
            });
            put.await?;
        }
        database.write(move |rows| rows.put_header(&header)).await
    }

    /// All users and groups, as of one moment.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn export(&self) -> Result<Prdb, PrError> {
        let header = self.header()?;
        self.database.read(|rows| {
            let mut entries = Vec::new();
            for row in slots(*rows, 0) {
                let (_, id) = row?;
                let entry = rows.entry(id)?;
                let elements = if entry.is_group() {
                    members(*rows, id, LEAST).collect::<Result<Vec<_>, _>>()?
                } else {
                    groups(*rows, id, LEAST).collect::<Result<Vec<_>, _>>()?
                };
                entries.push(PrdbEntry { entry, elements });
            }
            Ok(Prdb { header, entries })
        })
    }
}
