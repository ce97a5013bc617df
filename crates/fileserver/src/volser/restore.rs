//! Volumes out of dump streams.

use std::io;

use afar_net::AbortCode;
use afar_rpc::{Caller, UploadSource, afsvol, spawn_blocking};
use afar_store::dump::{DumpReader, Limits};
use afar_store::{RestoreMode, RestoreOptions, RestoreSummary, StoreError, Volume, VolumeChange};
use afar_types::{RestoreCookie, TransactionFlags, VolumeType};

use super::dump::permit;
use super::streams::{Feed, FeedReader, feed};
use super::transactions::Traffic;
use super::{Volser, codes, failed, superuser};

/// Bytes of a dump in which its header is: two texts of at most 1024 and some words.
const HEAD: usize = 4096;

impl Volser {
    /// Fills a transaction's volume. Until the dump is there as a whole the volume stays as it
    /// was; if it fails, for good.
    pub(super) async fn restore(
        &self,
        caller: &Caller,
        request: &afsvol::restore::Request,
        data: &mut UploadSource<'_>,
    ) -> Result<(), AbortCode> {
        superuser(caller)?;
        let used = self.transactions.find(request.transaction, "Restore")?;
        used.writable()?;
        let volume = used.transaction.volume.clone();
        let (id, flags) = (volume.id(), used.flags());
        let options = options(&volume, &request.cookie, flags)?;
        tracing::info!(volume = %id, partition = %used.transaction.partition, "restoring");
        let permit = permit(&self.incoming).await?;
        let (feed, reader) = feed();
        let thread = spawn_blocking(move || {
            let _permit = permit;
            fill(&volume, reader, options, flags)
        });
        let received = receive(data, feed, &used.transaction.traffic).await;
        let result = thread.await.unwrap_or_else(|stopped| {
            let source = io::Error::other(stopped).into();
            let what = "the thread that restores".to_owned();
            Err(StoreError::Io { what, source })
        });
        // A call that failed says more than that its dump was not whole.
        received?;
        let summary = result.map_err(|error| failed("restoring", id, &error))?;
        tracing::info!(volume = %id, octets = summary.bytes, vnodes = summary.vnodes,
            given = summary.given, removed = summary.removed, "restored");
        self.break_callbacks(id).await;
        Ok(())
    }
}

/// How to restore into a volume. Name and kind come from the caller, the group stays as it was made,
/// all else is from the dump (OpenAFS CopyVolumeHeader).
// spec: volumes#making-and-filling-a-volume
fn options(
    volume: &Volume,
    cookie: &RestoreCookie,
    flags: TransactionFlags,
) -> Result<RestoreOptions, AbortCode> {
    let name = std::str::from_utf8(cookie.name.as_bytes()).map_err(|_| codes::BADNAME)?;
    let kind = VolumeType::from_number(cookie.kind).ok_or(codes::EINVAL)?;
    let mut options = RestoreOptions::new(volume.id()).name(name);
    options.kind = Some(kind);
    options.clone = Some(cookie.clone_id);
    // Otherwise the dump of a volume in service would bring this one on line before its time, if
    // the server stopped before the caller has said that it is whole.
    let stay_out = flags.contains(TransactionFlags::OUT_OF_SERVICE);
    options.in_service = stay_out.then_some(false);
    Ok(options)
}

/// Takes what the client sends to the thread. That the thread has had enough is not an error here:
/// it says why.
async fn receive(
    data: &mut UploadSource<'_>,
    mut feed: Feed,
    traffic: &Traffic,
) -> Result<(), AbortCode> {
    while let Some(chunk) = data.chunk().await? {
        traffic.received(chunk.len());
        // The thread has ended, and its result says why.
        if feed.push(chunk).await.is_err() {
            return Ok(());
        }
    }
    if feed.end().await.is_err() {
        tracing::debug!("the dump continues after its end");
    }
    Ok(())
}

fn fill(
    volume: &Volume,
    mut reader: FeedReader,
    mut options: RestoreOptions,
    flags: TransactionFlags,
) -> Result<RestoreSummary, StoreError> {
    let head = reader.peek(HEAD).map_err(|source| StoreError::Io {
        what: "reading a dump".to_owned(),
        source: source.into(),
    })?;
    options.mode = mode(&head);
    let summary = volume.partition().restore(reader, &options)?;
    if flags.contains(TransactionFlags::DELETE_ON_SALVAGE) {
        // The caller said so, and has not said yet that the volume is to stay.
        volume.change(VolumeChange {
            destroy_me: Some(true),
            ..VolumeChange::default()
        })?;
    }
    Ok(summary)
}

/// What a dump itself says it is. One that says nothing sensible is refused in either mode.
fn mode(head: &[u8]) -> RestoreMode {
    match DumpReader::new(head, Limits::default()) {
        Ok((_, header)) if header.is_incremental() => RestoreMode::Incremental,
        _ => RestoreMode::Full { overwrite: true },
    }
}
