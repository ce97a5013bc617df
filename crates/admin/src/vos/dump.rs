//! `vos dump` and `vos size`.

use afar_cell::{VolumeDump, VolumeOob};
use afar_rpc::afsvol;
use afar_types::{AttachFlags, TransactionId, UnixTime, VolumeId, VolumeType};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::codes::{EPIPE, RXGEN_OPCODE};
use super::event::{Answer, OrFail};
use super::transaction::{DOOMED, name_text};
use super::words::date;
use super::{Failure, ServerPartition, Vos, complain, step};

/// What a dump holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DumpOptions {
    /// What changed since then; all with 0.
    pub since: UnixTime,
    /// Directories that did not change are left out.
    pub omit_directories: bool,
}

/// Like `step!`, but not to standard output, where the dump itself may go.
macro_rules! aside {
    ($vos:expr, $($arg:tt)*) => { $vos.step_aside(format_args!($($arg)*)) };
}

impl Vos {
    /// Writes a dump of a volume.
    ///
    /// # Errors
    /// What the server says, or EPIPE if the dump cannot be written.
    pub async fn dump(
        &self,
        id: VolumeId,
        at: ServerPartition,
        options: DumpOptions,
        out: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), Failure> {
        let server = self.volume_server(at.server);
        self.dump_heading(options);
        aside!(self, "Starting transaction on volume {id}...");
        let begun = self
            .begin(&server, id, at.partition, AttachFlags::BUSY)
            .await;
        let begun = begun.or_fail_loudly(self, || {
            format!("Could not start transaction on the volume {id} to be dumped\n")
        });
        let transaction = self.end(begun)?;
        aside!(self, " done\n");
        let mut dumped = self
            .dump_within(&server, transaction, (id, id), options, out)
            .await;
        aside!(self, "Ending transaction on volume {id}...");
        let finished = self.finish(&server, transaction).await.or_fail(self, || {
            format!("Could not end transaction on the volume {id}\n")
        });
        dumped = dumped.and(finished);
        aside!(self, " done\n");
        self.end(dumped)
    }

    /// Writes a dump of a clone that is made for it, so that the volume itself is busy for a
    /// moment only.
    ///
    /// # Errors
    /// What a server says, or EPIPE if the dump cannot be written.
    pub async fn dump_clone(
        &self,
        id: VolumeId,
        at: ServerPartition,
        options: DumpOptions,
        out: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), Failure> {
        let server = self.volume_server(at.server);
        self.dump_heading(options);
        let cloned = self.clone_to_dump(&server, id, at).await;
        let (clone, transaction) = self.end(cloned)?;
        let mut dumped = self
            .dump_within(&server, transaction, (id, clone), options, out)
            .await;
        aside!(self, "Deleting the cloned volume {clone} ...");
        let deleted = self.calm().rpc(server.delete_volume(transaction)).await;
        let deleted = deleted.map(|_| ()).or_fail(self, || {
            format!("Failed to delete the cloned volume {clone}\n")
        });
        dumped = dumped.and(deleted);
        aside!(
            self,
            " done\nEnding transaction on cloned volume {clone}..."
        );
        let finished = self.finish(&server, transaction).await.or_fail(self, || {
            format!("Could not end transaction on the cloned volume {clone}\n")
        });
        dumped = dumped.and(finished);
        aside!(self, " done\n");
        self.end(dumped)
    }

    fn dump_heading(&self, options: DumpOptions) {
        match options.since.0 {
            0 => aside!(self, "Full Dump ...\n"),
            _ => aside!(
                self,
                "Incremental Dump (as of {})...\n",
                date(options.since)
            ),
        }
    }

    async fn clone_to_dump(
        &self,
        server: &afsvol::Client,
        id: VolumeId,
        at: ServerPartition,
    ) -> Result<(VolumeId, TransactionId), Failure> {
        aside!(self, "Starting transaction on volume {id}...");
        let begun = self
            .begin(server, id, at.partition, AttachFlags::BUSY)
            .await;
        let transaction = begun.or_fail_loudly(self, || {
            format!("Could not start transaction on the volume {id} to be dumped\n")
        })?;
        aside!(self, " done\n");
        let cloned = self.clone_within_dump(server, transaction, id).await;
        aside!(self, "Ending the transaction on the volume {id} ...");
        let finished = self.finish(server, transaction).await;
        let clone = cloned?;
        finished.or_fail_loudly(self, || {
            format!("Failed to end the transaction on the volume {id}\n")
        })?;
        aside!(
            self,
            " done\nStarting transaction on the cloned volume {clone} ..."
        );
        let begun = self
            .begin(server, clone, at.partition, AttachFlags::OFFLINE)
            .await;
        let transaction = begun.or_fail_loudly(self, || {
            format!("Failed to start a transaction on the cloned volume{clone}\n")
        })?;
        aside!(self, " done\nSetting flags on cloned volume {clone} ...");
        let set = self.set_flags(server, transaction, DOOMED).await;
        let set = set.or_fail_loudly(self, || {
            format!("Could not set falgs on the cloned volume {clone}\n")
        });
        if let Err(failure) = set {
            let vos = self.calm();
            let deleted = vos.rpc(server.delete_volume(transaction)).await;
            if deleted
                .map(|_| ())
                .and(vos.finish(server, transaction).await)
                .is_err()
            {
                complain!(self, "Failed to delete the cloned volume {clone}\n");
            }
            return Err(failure);
        }
        aside!(self, " done\n");
        Ok((clone, transaction))
    }

    async fn clone_within_dump(
        &self,
        server: &afsvol::Client,
        transaction: TransactionId,
        id: VolumeId,
    ) -> Result<VolumeId, Failure> {
        aside!(self, "Getting the name for volume {id} ...");
        let name = self.rpc(server.get_name(transaction)).await;
        let name = name.or_fail_loudly(self, || {
            format!("Failed to get the name of the volume {id}\n")
        })?;
        let name = name_text(&name.name.to_string()).map_err(Failure)?;
        aside!(
            self,
            " done\nAllocating new volume id for clone of volume {id} ..."
        );
        let clone = self.new_ids(1).await.or_fail_loudly(self, || {
            format!("Could not get an ID for the clone of volume {id} from the VLDB\n")
        })?;
        aside!(
            self,
            " done\nCloning source volume {id} to clone volume {clone}..."
        );
        let kind = VolumeType::ReadOnly.number();
        let cloned = self
            .rpc(server.clone(transaction, VolumeId(0), kind, name, clone))
            .await;
        let cloned =
            cloned.or_fail_loudly(self, || format!("Failed to clone the source volume {id}\n"))?;
        aside!(self, " done\n");
        Ok(cloned.volume)
    }

    async fn dump_within(
        &self,
        server: &afsvol::Client,
        transaction: TransactionId,
        (id, dumped): (VolumeId, VolumeId),
        options: DumpOptions,
        out: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), Failure> {
        let cloned = if id == dumped { "on" } else { "from cloned" };
        aside!(self, "Starting volume dump {cloned} volume {dumped}...");
        let since = options.since;
        let mut data = None;
        let out_of_band = self.servers.out_of_band(server).await;
        let start = |flags| self.first(out_of_band, server, (transaction, since, flags));
        if options.omit_directories {
            match start(afsvol::OMIT_DIRECTORIES).await {
                // spec: afs-rpc#unknown-operations
                Err(RXGEN_OPCODE) => {}
                started => data = Some(started),
            }
        }
        let started = match data {
            Some(started) => started,
            None => start(0).await,
        };
        let (mut data, mut next) =
            started.or_fail_loudly(self, || "Could not start the dump process \n".to_owned())?;
        aside!(self, " done\nDumping volume {id}...");
        while let Some(chunk) = next {
            if let Err(error) = out.write_all(&chunk).await {
                complain!(self, "File system write failed: {error}\n");
                return Err(Failure(EPIPE))
                    .map_err(|Failure(code)| code)
                    .or_fail_loudly(self, || "Error while dumping volume \n".to_owned());
            }
            self.moved(chunk.len());
            next = self
                .rpc(data.chunk())
                .await
                .or_fail_loudly(self, || "Error while dumping volume \n".to_owned())?;
        }
        if let Err(error) = out.flush().await {
            complain!(self, "File system write failed: {error}\n");
            return Err(Failure(EPIPE));
        }
        aside!(self, " done\n");
        Ok(())
    }

    /// Starts a dump and waits for its first bytes, with which a refusal would come.
    async fn first(
        &self,
        out_of_band: Option<&VolumeOob>,
        server: &afsvol::Client,
        (transaction, since, flags): (TransactionId, UnixTime, i32),
    ) -> Answer<(VolumeDump, Option<bytes::Bytes>)> {
        self.rpc(async {
            let started = VolumeDump::begin(out_of_band, server, transaction, since, flags);
            let mut data = started.await?;
            let chunk = data.chunk().await?;
            Ok((data, chunk))
        })
        .await
    }

    /// How many bytes a dump would have.
    ///
    /// # Errors
    /// What the server says.
    pub async fn dump_size(
        &self,
        id: VolumeId,
        at: ServerPartition,
        since: UnixTime,
    ) -> Result<u64, Failure> {
        let server = self.volume_server(at.server);
        step!(self, "Starting transaction on volume {id}...");
        let begun = self
            .begin(&server, id, at.partition, AttachFlags::BUSY)
            .await;
        let begun = begun.or_fail_loudly(self, || {
            format!("Could not start transaction on the volume {id} to be measured\n")
        });
        let transaction = self.end(begun)?;
        self.done();
        step!(self, "Getting size of volume on volume {id}...");
        let size = self.rpc(server.get_size(transaction, since)).await;
        let size = size.or_fail_loudly(self, || {
            "Could not start the measurement process \n".to_owned()
        });
        if size.is_ok() {
            self.done();
        }
        step!(self, "Ending transaction on volume {id}...");
        let finished = self.finish(&server, transaction).await.or_fail(self, || {
            format!("Could not end transaction on the volume {id}\n")
        });
        self.done();
        self.end(size.and_then(|size| finished.map(|()| size.size)))
    }
}
