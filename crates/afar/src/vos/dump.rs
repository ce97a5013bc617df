//! `vos dump`, `restore` and `size`.

use std::fmt::Display;
use std::io::{BufReader, Cursor, IsTerminal};
use std::path::Path;

use afar_admin::vos::words::parse_date;
use afar_admin::vos::{
    DumpOptions, Location, RestoreDate, RestoreOptions, ServerPartition, base_name, is_name_valid,
};
use afar_store::dump::{DumpReader, Limits};
use afar_types::{SiteFlags, UnixTime, VldbEntry, VolumeId, VolumeType};
use serde_json::json as object;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use super::args::{DumpArgs, RestoreArgs, SizeArgs};
use super::change::{answer, has_no_suffix};
use super::{Context, Outcome, Quit, err, json, out};

const CANT_FIND: &str = "vos: can't find volume";
/// Bytes of a dump in which its header is: two texts of at most 1024 and some words.
const HEAD: u64 = 4096;
/// What a dump ends with.
const DUMP_END: [u8; 4] = 0x3A21_4B6E_u32.to_be_bytes();

/// What is done with a volume that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overwrite {
    Ask,
    Abort,
    Full,
    Incremental,
}

fn overwrite(text: Option<&str>) -> Result<Overwrite, Quit> {
    Ok(match text {
        None => Overwrite::Ask,
        Some("a" | "abort") => Overwrite::Abort,
        Some("f" | "full") => Overwrite::Full,
        Some("i" | "inc" | "increment" | "incremental") => Overwrite::Incremental,
        Some(text) => {
            err!("vos: {text} is not a valid argument to -overwrite\n");
            return Err(Quit::EXIT);
        }
    })
}

fn restore_date(text: Option<&str>, option: &str) -> Result<Option<RestoreDate>, Quit> {
    Ok(match text {
        None => None,
        Some("d" | "dump") => Some(RestoreDate::Dump),
        Some("k" | "keep") => Some(RestoreDate::Keep),
        Some("n" | "new") => Some(RestoreDate::New),
        Some(text) => {
            err!("vos: {text} is not a valid argument to {option}\n");
            return Err(Quit::EXIT);
        }
    })
}

fn since(text: Option<&str>) -> Result<UnixTime, Quit> {
    match text {
        None | Some("0") => Ok(UnixTime(0)),
        Some(text) => parse_date(text).ok_or_else(|| {
            err!("vos: failed to parse date '{text}' (error=-1))\n");
            Quit::RETURN
        }),
    }
}

impl Context<'_> {
    /// Where a volume is: as typed, or as the database says.
    async fn source(
        &self,
        id: VolumeId,
        server: Option<&str>,
        partition: Option<&str>,
    ) -> Result<ServerPartition, Quit> {
        let (Some(server), Some(partition)) = (server, partition) else {
            if server.is_some() || partition.is_some() {
                err!("Must specify both -server and -partition options\n");
                return Err(Quit::RETURN);
            }
            return Ok(self.vos.locate(id).await.map_err(|_| Quit::RETURN)?.place);
        };
        let Some(server) = self.hosts.address_of(server) else {
            err!("Invalid server name\n");
            return Err(Quit::RETURN);
        };
        let Ok(partition) = partition.parse() else {
            err!("Invalid partition name\n");
            return Err(Quit::RETURN);
        };
        Ok(ServerPartition { server, partition })
    }

    pub(super) async fn dump(&self, args: &DumpArgs) -> Outcome {
        let id = self.volume_id(&args.id, CANT_FIND, Quit::RETURN).await?;
        let (server, partition) = (args.server.as_deref(), args.partition.as_deref());
        let at = self.source(id, server, partition).await?;
        let options = DumpOptions {
            since: since(args.time.as_deref())?,
            omit_directories: args.omitdirs,
        };
        self.session.stop_in_order();
        self.told.begin(self.about(at, id, options.since).await);
        let dumped = match &args.file {
            Some(path) => {
                let mut file = match tokio::fs::File::create(path).await {
                    Ok(file) => file,
                    Err(error) => {
                        self.told.end();
                        err!("Could not create file '{}': {error}\n", path.display());
                        return Err(Quit::RETURN);
                    }
                };
                let dumped = match args.clone {
                    true => self.vos.dump_clone(id, at, options, &mut file).await,
                    false => self.vos.dump(id, at, options, &mut file).await,
                };
                // A dump that is reported done must be on the disk whatever happens next.
                match (dumped, file.shutdown().await) {
                    (Ok(()), Err(error)) => {
                        err!("Could not close dump file {}: {error}\n", path.display());
                        return Err(Quit::RETURN);
                    }
                    (dumped, _) => dumped,
                }
            }
            None => {
                let mut stdout = tokio::io::stdout();
                match args.clone {
                    true => self.vos.dump_clone(id, at, options, &mut stdout).await,
                    false => self.vos.dump(id, at, options, &mut stdout).await,
                }
            }
        };
        dumped.map_err(|code| self.diagnose("dump", code, Quit::RETURN))?;
        self.told.end();
        match &args.file {
            Some(path) => err!("Dumped volume {} in file {}\n", args.id, path.display()),
            None => err!("Dumped volume {} in stdout \n", args.id),
        }
        Ok(())
    }

    /// An estimate of a dump's length, for progress: a whole one is as long as what its volume takes.
    async fn about(&self, at: ServerPartition, id: VolumeId, since: UnixTime) -> Option<u64> {
        if since != UnixTime(0) || !std::io::stderr().is_terminal() {
            return None;
        }
        let info = self.vos.volume(at, id).await.ok()?;
        let kilobytes = u64::try_from(info.size).ok()?;
        Some(kilobytes * 1024)
    }

    pub(super) async fn size(&self, args: &SizeArgs) -> Outcome {
        let id = self.volume_id(&args.id, CANT_FIND, Quit::RETURN).await?;
        let (server, partition) = (args.server.as_deref(), args.partition.as_deref());
        let at = self.source(id, server, partition).await?;
        let since = since(args.time.as_deref())?;
        if !self.json {
            out!("Volume: {}\n", args.id);
        }
        let mut size = None;
        if args.dump {
            let found = self.vos.dump_size(id, at, since).await;
            size = Some(found.map_err(|code| self.diagnose("size", code, Quit::RETURN))?);
        }
        match size {
            _ if self.json => {
                json::print(&object!({ "volume": id.0, "dump_size": size }));
            }
            Some(size) => out!("dump_size: {size}\n"),
            None => {}
        }
        Ok(())
    }

    pub(super) async fn restore(&self, args: &RestoreArgs) -> Outcome {
        let mut id = match &args.id {
            Some(typed) => Some(self.volume_id(typed, CANT_FIND, Quit::EXIT).await?),
            None => None,
        };
        let mut overwrite = overwrite(args.overwrite.as_deref())?;
        let creation = restore_date(args.creation.as_deref(), "-creation")?;
        let last_update = restore_date(args.lastupdate.as_deref(), "-lastupdate")?;
        let server = self.server(&args.server, "server", Quit::EXIT)?;
        let to = self
            .partition_there(server, &args.partition, Quit::EXIT)
            .await?;
        let name = &args.name;
        if !is_name_valid(name) {
            err!("vos: the name of the volume {name} exceeds the size limit\n");
            return Err(Quit::EXIT);
        }
        if !has_no_suffix(name) {
            err!("Illegal volume name {name}, should not end in .readonly or .backup\n");
            return Err(Quit::EXIT);
        }
        if let Some(path) = &args.file
            && !path.exists()
        {
            err!("Can't access file {}\n", path.display());
            return Err(Quit::EXIT);
        }
        let mut full = true;
        let mut parent = None;
        if let Ok(entry) = self.vos.entry_by_name(base_name(name)).await {
            let kind = match args.readonly {
                true => VolumeType::ReadOnly,
                false => VolumeType::ReadWrite,
            };
            let known = entry.volume_ids[if args.readonly { 1 } else { 0 }];
            if id.is_none() || known.0 != 0 {
                id = Some(known).filter(|id| id.0 != 0);
            }
            parent = Some(entry.volume_ids[0]);
            if has_site(&entry, kind) {
                full = self
                    .restore_over(args, &entry, known, to, &mut overwrite)
                    .await?;
            } else if matches!(overwrite, Overwrite::Incremental | Overwrite::Abort) {
                let kind = if args.readonly { "RO" } else { "RW" };
                err!("{kind} Volume does not exist; Will perform a full restore\n");
            }
        } else if matches!(overwrite, Overwrite::Incremental | Overwrite::Abort) {
            err!("Volume does not exist; Will perform a full restore\n");
        }
        let options = RestoreOptions {
            id,
            parent,
            full,
            offline: args.offline,
            read_only: args.readonly,
            keep_old_site: args.nodelete,
            creation: creation.unwrap_or(match overwrite {
                Overwrite::Full => RestoreDate::New,
                _ => RestoreDate::Keep,
            }),
            last_update: last_update.unwrap_or(RestoreDate::Dump),
        };
        let replaces = full && options.id.is_some();
        self.session.stop_in_order();
        self.restore_from(args.file.as_deref(), name, to, &options, replaces)
            .await?;
        out!(
            "Restored volume {name} on {} {}\n",
            args.server,
            to.partition
        );
        Ok(())
    }

    /// Decides what becomes of a volume that is there. Returns whether it goes first.
    async fn restore_over(
        &self,
        args: &RestoreArgs,
        entry: &VldbEntry,
        id: VolumeId,
        to: ServerPartition,
        overwrite: &mut Overwrite,
    ) -> Result<bool, Quit> {
        let Location { place, .. } = self.vos.locate(id).await.map_err(|_| Quit::EXIT)?;
        let same = self.vos.is_same_server(place.server, to.server).await;
        let same = same.map_err(|code| {
            err!(
                "Failed to get info about server's {} address(es) from vlserver (err={code}); \
                 aborting call!\n",
                place.server
            );
            Quit::EXIT
        })?;
        let elsewhere = !same || place.partition != to.partition;
        if *overwrite == Overwrite::Ask {
            *overwrite = ask(args, entry, id, elsewhere)?;
        }
        match *overwrite {
            Overwrite::Full => {
                err!("Volume exists; Will delete and perform full restore\n");
                Ok(true)
            }
            Overwrite::Incremental if elsewhere => {
                let kind = if args.readonly { "RO" } else { "RW" };
                err!("{kind} volume {id} already exists on a different server/part; not allowed\n");
                Err(Quit::EXIT)
            }
            Overwrite::Incremental => Ok(false),
            Overwrite::Ask | Overwrite::Abort => {
                err!("Volume exists; Aborting restore command\n");
                Err(Quit::EXIT)
            }
        }
    }

    async fn restore_from(
        &self,
        path: Option<&Path>,
        name: &str,
        to: ServerPartition,
        options: &RestoreOptions,
        replaces: bool,
    ) -> Outcome {
        let restored = match path {
            None => {
                let mut dump = begin(tokio::io::stdin(), replaces).await?;
                self.told.begin(None);
                self.vos.restore(name, to, options, &mut dump).await
            }
            Some(path) => {
                let file = open_dump(path).await?;
                let length = file.metadata().await.ok().map(|data| data.len());
                if replaces && !self.session.servers.is_afar(to.server).await {
                    // Such a server removes the volume before it sees the dump.
                    whole(path).await?;
                }
                let mut dump = begin(file, replaces).await?;
                self.told.begin(length);
                self.vos.restore(name, to, options, &mut dump).await
            }
        };
        self.told.end();
        restored.map_err(|code| self.diagnose("restore", code, Quit::EXIT))?;
        Ok(())
    }
}

/// Begins to read a dump. One that is to take the place of a volume is refused here if it does not begin
/// as one that can.
async fn begin(
    mut dump: impl AsyncRead + Unpin,
    replaces: bool,
) -> Result<impl AsyncRead + Unpin, Quit> {
    let mut head = Vec::new();
    if replaces {
        let read = (&mut dump).take(HEAD).read_to_end(&mut head).await;
        read.map_err(|error| {
            err!("Could not read the dump: {error}\n");
            Quit::EXIT
        })?;
        match DumpReader::new(&head[..], Limits::default()) {
            Ok((_, header)) if header.is_incremental() => {
                err!(
                    "The dump has only what changed; it cannot take the place of the volume. Restore it \
                     with -overwrite incremental\n"
                );
                return Err(Quit::EXIT);
            }
            Ok(_) => {}
            Err(error) => return Err(damaged(&error)),
        }
    }
    Ok(Cursor::new(head).chain(dump))
}

/// Goes through a dump, and refuses one that is damaged.
async fn whole(path: &Path) -> Outcome {
    let path = path.to_owned();
    let checked = tokio::task::spawn_blocking(move || {
        let file = std::fs::File::open(path)?;
        let (mut dump, _) = DumpReader::new(BufReader::new(file), Limits::default())?;
        dump.volume_header()?;
        while dump.next_vnode()?.is_some() {}
        dump.finish().map(drop).map_err(anyhow::Error::from)
    });
    match checked.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(damaged(&error)),
        Err(error) => Err(damaged(&error)),
    }
}

fn damaged(error: &dyn Display) -> Quit {
    err!("The dump is damaged: {error}. The volume stays as it is\n");
    Quit::EXIT
}

fn has_site(entry: &VldbEntry, kind: VolumeType) -> bool {
    let flag = match kind {
        VolumeType::ReadOnly => SiteFlags::READ_ONLY,
        VolumeType::ReadWrite | VolumeType::Backup => SiteFlags::READ_WRITE,
    };
    entry.sites.iter().any(|site| site.flags.contains(flag))
}

/// Asks on the terminal; the dump itself must not come from there.
fn ask(
    args: &RestoreArgs,
    entry: &VldbEntry,
    id: VolumeId,
    elsewhere: bool,
) -> Result<Overwrite, Quit> {
    if args.file.is_none() {
        err!("Volume exists and no -overwrite option specified; Aborting restore command\n");
        return Err(Quit::EXIT);
    }
    let name = &entry.name;
    if elsewhere {
        err!("The volume {name} {id} already exists on a different server/part\n");
        err!("Do you want to do a full restore or abort? [fa](a): ");
    } else {
        err!("The volume {name} {id} already exists in the VLDB\n");
        err!("Do you want to do a full/incremental restore or abort? [fia](a): ");
    }
    Ok(match answer() {
        Some('f') => Overwrite::Full,
        Some('i') => Overwrite::Incremental,
        _ => Overwrite::Abort,
    })
}

/// Opens a dump that is whole, as far as its end tells.
async fn open_dump(path: &Path) -> Result<tokio::fs::File, Quit> {
    let access = |error| {
        err!("Could not access file '{}': {error}\n", path.display());
        Quit::EXIT
    };
    let mut file = tokio::fs::File::open(path).await.map_err(access)?;
    let length = file.metadata().await.map_err(access)?.len();
    let mut end = [0; 4];
    if let Some(at) = length.checked_sub(4) {
        file.seek(std::io::SeekFrom::Start(at))
            .await
            .map_err(access)?;
        file.read_exact(&mut end).await.map_err(access)?;
        file.rewind().await.map_err(access)?;
    }
    if end != DUMP_END {
        err!("Signature missing from end of file '{}'\n", path.display());
        return Err(Quit::EXIT);
    }
    Ok(file)
}
