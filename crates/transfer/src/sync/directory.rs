//! A directory in DEST while it is made the same.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use afar_cell::{Client, Node, Volume};
use afar_types::{Fid, StoreStatus};

use crate::error::Result;
use crate::facts::Facts;
use crate::origin::Origin;
use crate::path::FILL_DIRECTORY;

/// A directory in DEST.
#[derive(Debug)]
pub(super) struct Directory {
    /// Where it is; `None` if it is only said what would be done, and it is not there.
    pub(super) at: Option<Origin>,
    pub(super) path: PathBuf,
    /// What it is to have in the end.
    pub(super) wanted: Facts,
    /// What it had, if it was there.
    there: Option<Facts>,
    /// Set when something in it is changed, which changes its time.
    changed: OnceLock<()>,
}

impl Directory {
    pub(super) fn new(
        at: Option<Origin>,
        path: PathBuf,
        wanted: Facts,
        there: Option<Facts>,
    ) -> Self {
        Self {
            at,
            path,
            wanted,
            there,
            changed: OnceLock::new(),
        }
    }

    /// Something in it is about to be changed: its owner must be able to.
    pub(super) fn change(&self) {
        self.changed.get_or_init(|| {
            if let (Some(Origin::Local(path)), Some(there)) = (&self.at, self.there)
                && there.mode & FILL_DIRECTORY != FILL_DIRECTORY
            {
                let mode = Permissions::from_mode(there.mode | FILL_DIRECTORY);
                // Where that is not allowed, the change itself tells why.
                let _allowed = fs::set_permissions(path, mode);
            }
        });
    }

    /// Whether its attributes are to be set in the end.
    pub(super) fn is_to_be_set(&self) -> bool {
        let wanted = (self.wanted.mode, self.wanted.modified);
        let has = self.there.map(|there| (there.mode, there.modified));
        self.at.is_some() && (self.changed.get().is_some() || has != Some(wanted))
    }
}

/// Makes a directory in AFS that its owner can fill.
pub(super) async fn make_in_afs(
    client: &Client,
    volume: &Arc<Volume>,
    directory: Fid,
    name: &[u8],
    wanted: &Facts,
) -> Result<Origin> {
    let attributes = wanted.attributes(true, 0);
    let attributes = StoreStatus {
        unix_mode_bits: attributes.unix_mode_bits | FILL_DIRECTORY,
        ..attributes
    };
    let made = client.make_dir(volume, directory, name, attributes).await?;
    Ok(Origin::Afs(Node {
        volume: Arc::clone(volume),
        fid: made.fid,
        status: made.status,
        mount: None,
    }))
}
