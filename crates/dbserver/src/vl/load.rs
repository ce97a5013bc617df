//! A whole location database as a value, to be put in or taken out.

use afar_net::AbortCode;

use super::codes::{VL_CREATEFAIL, VL_IDEXIST, VL_NAMEEXIST};
use super::row::{Entry, Header, Server};
use super::tables::{
    entries_after, header, number_by_id, number_by_name, numbered, put_header, put_server, servers,
};
use super::{LocationServer, entries};
use crate::kv::Change;

/// Rows of an entry: itself, three ids, its name.
const ROWS: usize = 5;

/// All that a location database knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vldb {
    /// Volume ids from this one on have not been given out.
    pub max_volume_id: u32,
    /// Servers by number; entries name them by it.
    pub servers: Vec<(u8, Server)>,
    /// Entries in the order in which they are listed.
    pub entries: Vec<Entry>,
}

impl LocationServer {
    /// Fills an empty database. If it fails halfway, the database must be thrown away.
    ///
    /// # Errors
    /// VL_CREATEFAIL when there are entries already; VL_IDEXIST or VL_NAMEEXIST when two of the
    /// new ones cannot be told apart; or when the database cannot be written.
    pub async fn load(&self, contents: Vldb) -> Result<(), AbortCode> {
        let Vldb {
            max_volume_id,
            servers,
            entries,
        } = contents;
        self.database
            .write(move |change| begin(change, max_volume_id, &servers))
            .await?;
        let at_once = (self.database.rows_per_change() / ROWS).saturating_sub(1);
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            let part: Vec<Entry> = entries.by_ref().take(at_once.max(1)).collect();
            self.database
                .write(move |change| add(change, &part))
                .await?;
        }
        Ok(())
    }

    /// Everything, as of one moment.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn contents(&self) -> Result<Vldb, AbortCode> {
        self.database.read(|view| {
            let all = servers(view)?;
            let known = numbered(&all).map(|(number, server)| (number, server.clone()));
            Ok(Vldb {
                max_volume_id: header(view)?.max_volume_id,
                servers: known.collect(),
                entries: entries_after(view, 0)
                    .map(|found| found.map(|(_, entry)| entry))
                    .collect::<Result<_, _>>()?,
            })
        })
    }
}

fn begin(
    change: &mut Change<'_>,
    max_volume_id: u32,
    servers: &[(u8, Server)],
) -> Result<(), AbortCode> {
    if entries_after(&change.view(), 0).next().is_some() {
        return Err(VL_CREATEFAIL);
    }
    for (number, server) in servers {
        put_server(change, *number, server)?;
    }
    let header = Header {
        max_volume_id,
        ..Header::default()
    };
    put_header(change, &header)
}

fn add(change: &mut Change<'_>, entries: &[Entry]) -> Result<(), AbortCode> {
    let mut header = header(&change.view())?;
    for entry in entries {
        let view = change.view();
        for (kind, id) in entry.ids.into_iter().enumerate() {
            if (kind == 0 || id != 0) && number_by_id(&view, id, kind)?.is_some() {
                return Err(VL_IDEXIST);
            }
        }
        if number_by_name(&view, &entry.name)?.is_some() {
            return Err(VL_NAMEEXIST);
        }
        entries::append(change, &mut header, entry)?;
    }
    put_header(change, &header)
}
