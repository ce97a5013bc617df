//! What is known of a path, without asking servers.

use afar_types::{FetchStatus, FileType};
use tokio::time::Instant;

use crate::model::path_info::PathInfo;
use crate::model::place::Spot;
use crate::model::user::User;
use crate::ops::cache::Cache;

impl Cache {
    /// What is known of something in a volume.
    pub(crate) async fn path_info(&self, user: &User, spot: &Spot) -> PathInfo {
        let volume = &spot.mount.volume;
        let vnode = &spot.vnode;
        let name = self.volume_name(user, spot).await;
        let state = vnode.lock();
        let status = state.status();
        let dirty = state.rare.dirty.as_ref().map(|dirty| &dirty.ranges);
        let dirty = dirty.map_or((0, 0), |ranges| (ranges.bytes(), count(ranges.iter())));
        let pages = state.rare.pages.as_ref();
        let pages = pages.map(|copy| (copy.pages.len() as u64, 1));
        let promise = state.promise.map(|promise| promise.until());
        let length = state.length();
        drop(state);
        let promised_seconds = promise
            .and_then(|until| until.checked_duration_since(Instant::now()))
            .map(|left| left.as_secs());
        let is_directory = vnode.fid.vnode.is_directory();
        let clean = match (status, is_directory) {
            (_, true) => pages.unwrap_or_default(),
            (Some(status), false) => self.clean_bytes(spot, &status),
            (None, false) => (0, 0),
        };
        let sites = volume.sites();
        PathInfo {
            cell: volume.cell_name().to_string(),
            fid: vnode.fid,
            volume: name,
            volume_type: volume.kind(),
            kind: kind(status.map(|status| status.file_type)).to_owned(),
            mount_point: match vnode.fid == afar_types::Fid::root(vnode.fid.volume) {
                true => spot.mount.text.clone(),
                false => None,
            },
            data_version: status.map(|status| status.data_version),
            length,
            servers: (sites.iter())
                .map(|site| (site.address(), !site.is_down()))
                .collect(),
            clean,
            dirty,
            promised_seconds,
        }
    }

    /// How many bytes of a file's version are there, and in how many ranges.
    fn clean_bytes(&self, spot: &Spot, status: &FetchStatus) -> (u64, u64) {
        let key = spot.vnode.key();
        if !self.0.storage.knows(&key) {
            return (0, 0);
        }
        let all = 0..status.length;
        match self.0.storage.present(&key, status.data_version, all) {
            Ok(ranges) => (ranges.bytes(), count(ranges.iter())),
            Err(error) => {
                tracing::debug!(%error, "cannot tell what is cached");
                (0, 0)
            }
        }
    }
}

fn count(all: impl Iterator) -> u64 {
    all.count() as u64
}

/// What something is, in a word.
fn kind(kind: Option<FileType>) -> &'static str {
    match kind {
        Some(FileType::File) => "file",
        Some(FileType::Directory) => "directory",
        Some(FileType::Symlink) => "symlink",
        Some(FileType::Invalid | FileType::Other(_)) | None => "unknown",
    }
}
