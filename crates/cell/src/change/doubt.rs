//! Doing something once.

use std::sync::Arc;

use afar_rpc::{RpcError, rxafs};
use afar_types::{FetchStatus, Fid, FileName, StoreStatus};

use crate::client::Client;
use crate::error::Error;
use crate::files::DirEntry;
use crate::volume::{Failure, Repeat, Volume};

/// Times something is tried whose answers get lost.
const TRIES: u32 = 4;

impl Client {
    /// Makes a request that changes `directories`. After a lost answer `look` tells what came of it,
    /// or `None` if nothing did; only then it is made again.
    pub(super) async fn change<T, Q, F, L, G>(
        &self,
        volume: &Arc<Volume>,
        directories: &[Fid],
        request: Q,
        look: L,
    ) -> Result<T, Error>
    where
        Q: Fn(rxafs::Client) -> F + Sync,
        F: Future<Output = Result<T, RpcError>> + Send,
        L: Fn() -> G + Sync,
        G: Future<Output = Result<Option<T>, Error>> + Send,
    {
        volume.check_writable()?;
        let forget = || {
            for &directory in directories {
                volume.forget_directory(directory);
            }
        };
        let mut lost = None;
        for _ in 0..TRIES {
            let result = self.attempt(volume, &request, Repeat::NeverTwice).await;
            forget();
            let error = match result {
                Ok(done) => return Ok(done),
                // After a lost answer it may be the first call's doing that a name exists, or is gone.
                Err(Failure::Sure(error)) if lost.is_none() => return Err(error),
                Err(Failure::Sure(error) | Failure::InDoubt(error)) => error,
            };
            tracing::debug!("unknown whether the change was made: {error}");
            let seen = look().await;
            // What was read may be changed by a call that is still being served.
            forget();
            match seen {
                Ok(Some(done)) => return Ok(done),
                Ok(None) => lost = Some(error),
                // Made again without having looked, it could be done twice.
                Err(_) => return Err(Error::InDoubt(Box::new(error))),
            }
        }
        Err(Error::InDoubt(Box::new(lost.unwrap_or(Error::Gone))))
    }

    /// What has this name now, if it looks as if it was made with these attributes, which have a
    /// time.
    pub(super) async fn find_made(
        &self,
        volume: &Arc<Volume>,
        directory: Fid,
        name: &FileName,
        attributes: StoreStatus,
    ) -> Result<Option<(Fid, FetchStatus)>, Error> {
        let Some(fid) = self.lookup(volume, directory, name.as_bytes()).await? else {
            return Ok(None);
        };
        let status = self.status(volume, fid).await?;
        let same = status.client_mod_time == attributes.client_mod_time;
        Ok(same.then_some((fid, status)))
    }

    /// Whether a name is gone, or names something else now.
    pub(super) async fn is_gone(
        &self,
        volume: &Arc<Volume>,
        directory: Fid,
        entry: &DirEntry,
    ) -> Result<Option<()>, Error> {
        let found = self.lookup(volume, directory, &entry.name).await?;
        Ok((found != Some(entry.fid)).then_some(()))
    }
}
