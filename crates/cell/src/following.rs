//! What others read next, in one answer of afar's servers.
// spec: trees#what-follows

use std::sync::Arc;

use afar_rpc::rxafs;
use afar_types::{Fid, Reads};

use crate::client::Client;
use crate::error::Error;
use crate::server::Answers;
use crate::tree::{TreePart, most};
use crate::volume::Volume;

/// How much is wanted of what follows.
#[derive(Debug, Clone, Copy, Default)]
pub struct FollowingWanted {
    /// Vnodes, at most.
    pub entries: u32,
    /// Bytes of data, pages of directories included, at most.
    pub bytes: u32,
    /// Bytes of the largest file whose data comes; of larger ones the status does.
    pub largest: u32,
}

impl Client {
    /// Tells what programs here read in a volume, in that order; and reads what those on other hosts read behind `before` and
    /// then `now`, in their order, with the server's promises: nothing if it does not know, and `None` if it is not known to
    /// tell such things. What the user may not read, or was removed meanwhile, is left out.
    ///
    /// # Errors
    /// When the volume cannot be read.
    pub async fn following(
        &self,
        volume: &Arc<Volume>,
        before: Fid,
        now: Fid,
        read: Reads,
        wanted: FollowingWanted,
    ) -> Result<Option<Vec<TreePart>>, Error> {
        let FollowingWanted {
            entries,
            bytes,
            largest,
        } = wanted;
        let ask = |server: rxafs::Client| {
            let read = read.clone();
            async move {
                server
                    .fetch_following(before, now, read, entries, bytes, largest)
                    .await
            }
        };
        self.many(volume, Answers::Following, most(entries, bytes), ask)
            .await
    }
}
