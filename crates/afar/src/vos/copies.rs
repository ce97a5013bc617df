//! Verbs that bring a volume to another place: `move`, `copy`, `shadow`.

use afar_admin::vos::{CopyOptions, MoveFailure, ServerPartition};
use afar_types::VolumeId;

use super::args::{CopyArgs, MoveArgs, ShadowArgs};
use super::{Context, Outcome, Quit, err, out};

const CANT_FIND: &str = "vos: can't find volume ID or name";

/// A place as it is typed.
#[derive(Clone, Copy)]
struct Typed<'a> {
    server: &'a str,
    partition: &'a str,
}

impl Context<'_> {
    /// The places a volume goes from and to.
    async fn ways(
        &self,
        from: Typed<'_>,
        to: Typed<'_>,
    ) -> Result<(ServerPartition, ServerPartition), Quit> {
        let from_server = self.server(from.server, "server", Quit::RETURN)?;
        let to_server = self.server(to.server, "server", Quit::RETURN)?;
        let from = self
            .partition_there(from_server, from.partition, Quit::RETURN)
            .await?;
        let to = self
            .partition_there(to_server, to.partition, Quit::RETURN)
            .await?;
        Ok((from, to))
    }

    /// Whether there is room for a volume, of which `less` KiB need not go there.
    async fn room(
        &self,
        id: VolumeId,
        from: ServerPartition,
        to: ServerPartition,
        verb: &str,
        less: i64,
    ) -> Outcome {
        let partition = to.partition;
        let Ok(there) = self.vos.partition_size(to).await else {
            err!("vos: cannot access partition {partition}\n");
            return Err(Quit::EXIT);
        };
        let Ok(info) = self.vos.volume(from, id).await else {
            err!("vos:cannot access volume {id}\n");
            return Err(Quit::EXIT);
        };
        if there.free <= (i64::from(info.size) - less).max(0) {
            err!("vos: no space on target partition {partition} to {verb} volume {id}\n");
            return Err(Quit::EXIT);
        }
        Ok(())
    }

    pub(super) async fn move_volume(&self, args: &MoveArgs) -> Outcome {
        let id = self.volume_id(&args.id, CANT_FIND, Quit::RETURN).await?;
        let from = Typed {
            server: &args.fromserver,
            partition: &args.frompartition,
        };
        let to = Typed {
            server: &args.toserver,
            partition: &args.topartition,
        };
        let (from, to) = self.ways(from, to).await?;
        self.room(id, from, to, "move", 0).await?;
        self.session.stop_in_order();
        match self.vos.move_volume(id, from, to, args.live).await {
            Ok(()) => {
                out!(
                    "Volume {id} moved from {} {} to {} {} \n",
                    args.fromserver,
                    from.partition,
                    args.toserver,
                    to.partition
                );
                Ok(())
            }
            Err(MoveFailure::Refused(code)) => Err(self.diagnose("move", code, Quit::RETURN)),
            Err(_) => Err(Quit::EXIT),
        }
    }

    pub(super) async fn copy(&self, args: &CopyArgs) -> Outcome {
        let id = self.volume_id(&args.id, CANT_FIND, Quit::RETURN).await?;
        let from = Typed {
            server: &args.fromserver,
            partition: &args.frompartition,
        };
        let to = Typed {
            server: &args.toserver,
            partition: &args.topartition,
        };
        self.new_name(&args.toname)?;
        if self.vos.entry_by_name(&args.toname).await.is_ok() {
            err!(
                "Volume {} already exists\nError in vos copy command.\n",
                args.toname
            );
            return Err(Quit::RETURN);
        }
        let (from, to) = self.ways(from, to).await?;
        self.room(id, from, to, "copy", 0).await?;
        let options = CopyOptions {
            offline: args.offline,
            read_only: args.readonly,
            live: args.live,
            ..CopyOptions::default()
        };
        self.session.stop_in_order();
        let copied = self.vos.copy(id, from, &args.toname, to, &options).await;
        copied.map_err(|_| Quit::EXIT)?;
        out!(
            "Volume {id} copied from {} {} to {} on {} {} \n",
            args.fromserver,
            from.partition,
            args.toname,
            args.toserver,
            to.partition
        );
        Ok(())
    }

    pub(super) async fn shadow(&self, args: &ShadowArgs) -> Outcome {
        let id = self.volume_id(&args.id, CANT_FIND, Quit::RETURN).await?;
        let from = Typed {
            server: &args.fromserver,
            partition: &args.frompartition,
        };
        let to = Typed {
            server: &args.toserver,
            partition: &args.topartition,
        };
        let (from, to) = self.ways(from, to).await?;
        let name = match &args.toname {
            Some(name) => {
                self.new_name(name)?;
                name.clone()
            }
            None => {
                let Ok(info) = self.vos.volume(from, id).await else {
                    err!("vos:cannot access volume {id}\n");
                    return Err(Quit::EXIT);
                };
                info.name.to_string()
            }
        };
        let typed = args.toid.as_ref().unwrap_or(&name);
        let new = self.volume_id(typed, CANT_FIND, Quit::RETURN).await?;
        let there = self.vos.volume(to, new).await;
        let less = there.map_or(0, |info| i64::from(info.size));
        self.room(id, from, to, "copy", less).await?;
        let options = CopyOptions {
            id: Some(new),
            offline: args.offline,
            read_only: args.readonly,
            live: args.live,
            shadow: true,
            incremental: args.incremental,
        };
        self.session.stop_in_order();
        let copied = self.vos.copy(id, from, &name, to, &options).await;
        copied.map_err(|_| Quit::EXIT)?;
        out!(
            "Volume {id} shadowed from {} {} to {} {} \n",
            args.fromserver,
            from.partition,
            args.toserver,
            to.partition
        );
        Ok(())
    }
}
