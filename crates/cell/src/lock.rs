//! Locks of whole files, which file servers keep for 300 s at a time.

use std::sync::Arc;
use std::time::Duration;

use afar_types::Fid;

use crate::client::Client;
use crate::error::Error;
use crate::volume::{Failure, Repeat, Volume};

/// How long a server keeps a lock that is not extended (AFS_LOCKWAIT).
// spec: afs-rpc#locks
pub const LOCK_TIME: Duration = Duration::from_secs(300);

/// Whether others may have a lock at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockType {
    /// Others that read.
    Read,
    /// Nobody.
    Write,
}

impl Client {
    /// Takes a lock (RXAFS SetLock). A server counts readers' locks without knowing whose they are,
    /// so after a lost answer it is not asked for again: what it may have given expires.
    ///
    /// # Errors
    /// With EAGAIN when somebody else has one in the way, or when the server refuses.
    pub async fn set_lock(
        &self,
        volume: &Arc<Volume>,
        fid: Fid,
        kind: LockType,
    ) -> Result<(), Error> {
        // spec: afs-rpc#locks
        let kind = match kind {
            LockType::Read => 0,
            LockType::Write => 1,
        };
        let request =
            |server: afar_rpc::rxafs::Client| async move { server.set_lock(fid, kind).await };
        let result = self.attempt(volume, &request, Repeat::NeverTwice).await;
        once(result.map(drop))
    }

    /// Keeps a lock for another [`LOCK_TIME`] (RXAFS ExtendLock).
    ///
    /// # Errors
    /// When the server knows of no lock, or refuses.
    pub async fn extend_lock(&self, volume: &Arc<Volume>, fid: Fid) -> Result<(), Error> {
        self.on_volume(
            volume,
            |server| async move { server.extend_lock(fid).await },
        )
        .await?;
        Ok(())
    }

    /// Gives a lock up (RXAFS ReleaseLock), once.
    ///
    /// # Errors
    /// When the server knows of no lock, or refuses; then it expires.
    pub async fn release_lock(&self, volume: &Arc<Volume>, fid: Fid) -> Result<(), Error> {
        let request =
            |server: afar_rpc::rxafs::Client| async move { server.release_lock(fid).await };
        let result = self.attempt(volume, &request, Repeat::NeverTwice).await;
        once(result.map(drop))
    }
}

fn once(result: Result<(), Failure>) -> Result<(), Error> {
    result.map_err(|failure| match failure {
        Failure::Sure(error) => error,
        Failure::InDoubt(error) => Error::InDoubt(Box::new(error)),
    })
}
