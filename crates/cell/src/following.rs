//! What others read next, in one answer of afar's servers.
// spec: trees#what-follows

use std::sync::Arc;

use afar_types::Fid;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::Error;
use crate::tree::{Answer, TreePart, all_of, most};
use crate::volume::{Volume, Way};

/// How much is wanted of what follows.
#[derive(Debug, Clone, Copy)]
pub struct FollowingWanted {
    /// Vnodes, at most.
    pub entries: u32,
    /// Bytes of data, pages of directories included, at most.
    pub bytes: u32,
    /// Bytes of the largest file whose data comes; of larger ones the status does.
    pub largest: u32,
}

impl Client {
    /// What hosts read next in a volume that have read `before` and then `now`, in their order, with the server's promises:
    /// nothing if it does not know, and `None` if it is not known to tell such things. What the user may not read, or was
    /// removed meanwhile, is left out.
    ///
    /// # Errors
    /// When the volume cannot be read.
    pub async fn following(
        &self,
        volume: &Arc<Volume>,
        before: Fid,
        now: Fid,
        wanted: FollowingWanted,
    ) -> Result<Option<Vec<TreePart>>, Error> {
        let site = volume.sites().into_iter().next();
        // This looks what kind of server it is.
        if volume.way().await != Way::Afar || !volume.may_tell_what_follows() {
            return Ok(None);
        }
        let FollowingWanted {
            entries,
            bytes,
            largest,
        } = wanted;
        let most = most(entries, bytes);
        let answer = self
            .on_volume(volume, |server| async move {
                let (begin, peer) = (Instant::now(), server.connection().peer());
                let asked = server.fetch_following(before, now, entries, bytes, largest);
                let data = all_of(asked.await?, most).await?;
                Ok(Answer { begin, peer, data })
            })
            .await;
        match answer {
            // spec: afs-rpc#unknown-operations
            Err(Error::Refused(error)) if error.is_unknown_operation() => {
                if let Some(site) = site {
                    site.set_no_following();
                }
                Ok(None)
            }
            answer => answer?.parts(now.volume, most).map(Some),
        }
    }
}

impl Volume {
    /// Whether its server is one that may tell what others read next.
    #[must_use]
    pub fn may_tell_what_follows(&self) -> bool {
        let sites = self.sites();
        sites
            .first()
            .is_some_and(|site| site.is_afar() && !site.has_no_following())
    }
}
