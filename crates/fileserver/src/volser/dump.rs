//! Volumes into dump streams.

use std::sync::Arc;

use afar_net::AbortCode;
use afar_rpc::{Caller, DownloadSink};
use afar_store::{DumpOptions, StoreError};
use afar_types::{TransactionId, UnixTime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::streams::{Dump, blocking};
use super::{Volser, codes, failed, superuser};

/// What a dump since this time has. Dumps for callers have all directories, if they do not say
/// otherwise; those that are forwarded have the changed ones only.
pub(super) fn options(from: UnixTime, omit_unchanged_directories: bool) -> DumpOptions {
    DumpOptions {
        from: (from != UnixTime(0)).then_some(from),
        omit_unchanged_directories,
    }
}

/// Waits until one more stream may run.
pub(super) async fn permit(streams: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, AbortCode> {
    let permit = Arc::clone(streams).acquire_owned().await;
    // It is never closed.
    permit.map_err(|_| codes::DUMPERROR)
}

impl Volser {
    pub(super) async fn dump(
        &self,
        caller: &Caller,
        transaction: TransactionId,
        options: DumpOptions,
        data: &mut DownloadSink<'_>,
    ) -> Result<(), AbortCode> {
        superuser(caller)?;
        let used = self.transactions.find(transaction, "Dump")?;
        let volume = used.transaction.volume.clone();
        let id = volume.id();
        tracing::info!(volume = %id, from = options.from.map_or(0, |from| from.0), "dumping");
        let permit = permit(&self.outgoing).await?;
        let mut dump = Dump::start(volume, options, permit);
        while let Some(piece) = dump.piece().await {
            let octets = piece.len();
            data.send(piece).await?;
            used.transaction.traffic.sent(octets);
        }
        let summary = dump.finish().await;
        let summary = summary.map_err(|error| dump_code("dumping", id, &error))?;
        tracing::info!(volume = %id, octets = summary.bytes, vnodes = summary.vnodes, "dumped");
        Ok(())
    }

    /// How large a dump would be. It is found by making one.
    pub(super) async fn dump_size(
        &self,
        caller: &Caller,
        transaction: TransactionId,
        from: UnixTime,
    ) -> Result<u64, AbortCode> {
        superuser(caller)?;
        let used = self.transactions.find(transaction, "GetSize")?;
        let volume = used.transaction.volume.clone();
        let permit = permit(&self.outgoing).await?;
        blocking(move || {
            let _permit = permit;
            let summary = volume.dump(std::io::sink(), &options(from, false));
            match summary {
                Ok(summary) => Ok(summary.bytes),
                Err(error) => Err(dump_code("measuring a dump", volume.id(), &error)),
            }
        })
        .await
    }
}

/// What the caller is told of a dump that failed here.
pub(super) fn dump_code(
    what: &'static str,
    volume: afar_types::VolumeId,
    error: &StoreError,
) -> AbortCode {
    match failed(what, volume, error) {
        codes::READ_DUMPERROR | codes::EIO => codes::DUMPERROR,
        code => code,
    }
}
