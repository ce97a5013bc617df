//! What there is of a file, told to those on this machine who would fetch it themselves otherwise.

use std::sync::Arc;

use afar_types::{DataVersion, FetchStatus, Rights};

use crate::model::held::Held;
use crate::model::key::FileKey;
use crate::model::place_name::{Object, PlaceName};
use crate::model::rights::rights;
use crate::model::types::Who;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;

/// Ranges that are told of a file: an extended attribute has at most 64 KiB.
const RANGES_MOST: usize = 1000;

impl Cache {
    /// What there is of a file that this user may read; nothing is asked for what is not there.
    pub(crate) async fn held(&self, who: Who, place: &PlaceName) -> Option<Held> {
        let (vnode, status) = self.clean(who, place).await?;
        let (version, all) = (status.data_version, 0..status.length);
        let present = self.0.storage.present(&vnode.key(), version, all);
        let sites = vnode.volume.sites();
        Some(Held {
            version,
            servers: sites.iter().map(|site| site.address()).collect(),
            ranges: present.ok()?.iter().take(RANGES_MOST).collect(),
        })
    }

    /// The version of which there is something, if [`held`](Self::held) tells of one.
    pub(crate) async fn held_version(&self, who: Who, place: &PlaceName) -> Option<DataVersion> {
        let (_, status) = self.clean(who, place).await?;
        Some(status.data_version)
    }

    /// A file of which something is there, while nothing is written to it here.
    async fn clean(&self, who: Who, place: &PlaceName) -> Option<(Arc<Vnode>, FetchStatus)> {
        let Object::Fid(fid) = place.object else {
            return None;
        };
        let key = FileKey {
            fid,
            cell: place.cell.clone(),
        };
        // Of most files there is nothing: those who ask are not to wait for a server to hear that.
        if !self.0.storage.knows(&key) {
            return None;
        }
        let user = self.user(who.uid).await;
        let vnode = self.spot_of(&place.cell, fid).await.ok()?.vnode;
        let may = |status: &FetchStatus| rights(status).contains(Rights::READ);
        let status = self.rights_for(&user, &vnode, may).await.ok()?;
        let clean = vnode.lock().rare.dirty.is_none();
        (may(&status) && clean).then_some((vnode, status))
    }
}
