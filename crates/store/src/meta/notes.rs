//! Notes that go with a volume: what its server has to remember of its changes, durable with them.

use super::change::Change;
use super::env::Table;
use super::versions::Rows;
use crate::error::Result;

/// What a note is found by, within its volume.
pub(crate) type NoteName = [u8; 16];

const PREFIX: &[u8; 4] = b"note";
const KEY: usize = 4 + 4 + 16;

fn key(volume: u32, name: NoteName) -> [u8; KEY] {
    let mut key = [0; KEY];
    key[..4].copy_from_slice(PREFIX);
    key[4..8].copy_from_slice(&volume.to_be_bytes());
    key[8..].copy_from_slice(&name);
    key
}

/// A note of a volume.
pub(crate) fn note(rows: &impl Rows, volume: u32, name: NoteName) -> Result<Option<Vec<u8>>> {
    let row = rows.get(Table::Settings, &key(volume, name))?;
    Ok(row.map(<[u8]>::to_vec))
}

/// All notes of a volume.
pub(crate) fn notes(rows: &impl Rows, volume: u32) -> Result<Vec<(NoteName, Vec<u8>)>> {
    let mut notes = Vec::new();
    let first = key(volume, [0; 16]);
    for row in rows.scan(Table::Settings, &first)? {
        let (key, value) = row?;
        match key.split_first_chunk::<8>() {
            Some((head, name)) if *head == first[..8] => match name.try_into() {
                Ok(name) => notes.push((name, value.to_vec())),
                Err(_) => return Err(rows.env().corrupt("the name of a note")),
            },
            _ => break,
        }
    }
    Ok(notes)
}

impl Change<'_> {
    /// Sets or removes a note of a volume. It goes when the volume does.
    pub(crate) fn put_note(
        &mut self,
        volume: u32,
        name: NoteName,
        text: Option<Vec<u8>>,
    ) -> Result<()> {
        match text {
            Some(text) => self.put(Table::Settings, &key(volume, name), text),
            None => self.delete(Table::Settings, &key(volume, name))?,
        }
        Ok(())
    }
}
