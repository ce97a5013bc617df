//! Restoring a volume from a dump.

use std::cell::Cell;
use std::io::{self, BufReader, Read};
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use afar_types::{UnixTime, VolumeId, VolumeType};

use super::TransferProgress;
use super::batch::Batch;
use super::dump::message;
use super::existing::Existing;
use super::load::{Loaded, Loader};
use super::tree::{Tree, Usage};
use crate::dump::{DumpHeader, DumpReader, Limits, VolumeHeader};
use crate::error::{Result, StoreError};
use crate::meta::{Rows, VolumeInfo, VolumeRow};
use crate::partition::Partition;
use crate::segment::Compression;
use crate::volume::{Filling, check_id, check_name};

/// Bytes read at a time.
const BUFFER: usize = 256 << 10;

/// What becomes of what the volume holds already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreMode {
    /// The volume holds what the dump has, and nothing else. The dump must be a full one.
    Full {
        /// A volume of that number is replaced; otherwise there must be none.
        overwrite: bool,
    },
    /// The volume is brought up to the dump's state: what the dump only lists is kept, what it
    /// does not even list is removed.
    Incremental,
}

/// How to restore a dump. `None` takes what the volume there has, or else what is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreOptions {
    /// The volume's number, whatever the dump's is.
    pub id: VolumeId,
    /// Its name; or else the dump's.
    pub name: Option<String>,
    /// Its kind; or else read-write.
    pub kind: Option<VolumeType>,
    /// The group's read-write volume; or else the volume itself if it is read-write, or what the
    /// dump says.
    pub parent: Option<VolumeId>,
    /// The newest read-only clone; or else none.
    pub clone: Option<VolumeId>,
    /// Whether it is full or incremental.
    pub mode: RestoreMode,
    /// Whether it is meant to be used; `None` takes what the dump says.
    pub in_service: Option<bool>,
    /// How data is packed; or else as the partition's options say.
    pub compression: Option<Compression>,
}

impl RestoreOptions {
    /// A full restore as a volume that is not there yet.
    #[must_use]
    pub fn new(id: VolumeId) -> Self {
        Self {
            id,
            name: None,
            kind: None,
            parent: None,
            clone: None,
            mode: RestoreMode::Full { overwrite: false },
            in_service: None,
            compression: None,
        }
    }

    /// Under this name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// In this mode.
    #[must_use]
    pub fn mode(mut self, mode: RestoreMode) -> Self {
        self.mode = mode;
        self
    }
}

/// What a restore did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestoreSummary {
    /// Vnodes the dump lists.
    pub vnodes: u64,
    /// Those it gives with their content.
    pub given: u64,
    /// Bytes of the stream.
    pub bytes: u64,
    /// Bytes of file data and directory pages in it.
    pub data: u64,
    /// Vnodes the volume had and the dump does not list.
    pub removed: u64,
    /// Vnodes in the dump without a name in any directory below the root. They were left out.
    pub orphans: u64,
    /// Link counts that were not the number of names. They were put right.
    pub link_counts: u64,
}

impl Partition {
    /// Restores a volume from a dump stream (AFSVolRestore). Until it is all there and found sound
    /// nothing is seen of it; if it fails, nothing changes, and the space it took is given back.
    ///
    /// # Errors
    ///
    /// [`StoreError::Dump`] and [`StoreError::BadDump`] if the stream is damaged or what it says
    /// does not hold together, [`StoreError::VolumeExists`], [`StoreError::NoVolume`] for an
    /// incremental restore, [`StoreError::NoSpace`], and [`StoreError::Conflict`] if the volume
    /// was changed meanwhile.
    pub fn restore<R: Read>(
        self: &Arc<Self>,
        input: R,
        options: &RestoreOptions,
    ) -> Result<RestoreSummary> {
        self.restore_with_progress(input, options, |_| {})
    }

    /// [`Partition::restore`], telling after each vnode, and within large ones, how far it is.
    ///
    /// # Errors
    ///
    /// As [`Partition::restore`].
    pub fn restore_with_progress<R: Read>(
        self: &Arc<Self>,
        input: R,
        options: &RestoreOptions,
        mut progress: impl FnMut(TransferProgress),
    ) -> Result<RestoreSummary> {
        check_id(options.id)?;
        let count = Rc::new(Cell::new(0));
        let counted = Counted {
            input,
            count: Rc::clone(&count),
        };
        let input = BufReader::with_capacity(BUFFER, counted);
        let (mut stream, dump) = DumpReader::new(input, Limits::default())?;
        let header = stream.volume_header()?;
        let target = Target::find(self, options, &dump)?;
        let name = target.name(options, &header)?;
        let compression = target.compression(self, options);

        let filling = match options.mode {
            RestoreMode::Full { .. } => Filling::fresh(self, options.id)?,
            RestoreMode::Incremental => Filling::next(self, options.id)?,
        };
        // What was there when the filling began: nothing may be written to it from now on.
        let target = Target::find(self, options, &dump)?;
        let at = filling.at();
        let base = target.base(options.mode);
        let mut loader = Loader {
            id: options.id,
            from: dump.from.0,
            batch: Batch::new(self, at),
            existing: base.map(|base| Existing::new(self, base)),
            compression,
            loaded: Loaded::default(),
            last: None,
            buffer: Vec::new(),
        };
        let tell = |loaded: &Loaded| {
            progress(TransferProgress {
                bytes: count.get(),
                vnodes: loaded.vnodes,
            });
        };
        loader.all(&mut stream, tell)?;
        stream.finish()?;
        let (mut batch, loaded) = loader.finish()?;

        let usage = Tree::new(self, at, options.id, &mut batch).check(loaded.vnodes)?;
        batch.flush()?;
        drop(batch);
        let row = target.row(options, &header, compression, &loaded, &usage);
        let info = target.info(&name, &dump, &header);
        let (id, expected) = (options.id, target.row);
        filling.finish(row, info, move |found| match (expected, found) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(StoreError::VolumeExists(id)),
            (Some(_), None) => Err(StoreError::NoVolume(id)),
            (Some(expected), Some(found)) if base.is_some() && expected != *found => {
                Err(StoreError::Conflict(afar_types::Fid::root(id)))
            }
            (Some(_), Some(_)) => Ok(()),
        })?;
        Ok(RestoreSummary {
            vnodes: loaded.vnodes,
            given: loaded.given,
            bytes: count.get(),
            data: loaded.data,
            removed: loaded.removed,
            orphans: usage.orphans,
            link_counts: usage.link_counts,
        })
    }
}

/// The volume a dump goes to, as far as it is there.
struct Target {
    row: Option<VolumeRow>,
    info: Option<VolumeInfo>,
}

impl Target {
    /// Looks for the volume, and whether the dump can go there.
    fn find(
        partition: &Arc<Partition>,
        options: &RestoreOptions,
        dump: &DumpHeader,
    ) -> Result<Self> {
        let id = options.id;
        let reader = partition.reader()?;
        let found = Self {
            row: reader.volume(id.0)?,
            info: reader.info(id.0)?,
        };
        match (options.mode, found.row) {
            (RestoreMode::Full { .. }, _) if dump.is_incremental() => Err(StoreError::BadDump {
                volume: id,
                what: format!(
                    "it has only what changed since {}; restore it on top of a full one",
                    dump.from.0
                ),
            }),
            (RestoreMode::Full { overwrite: false }, Some(_)) => Err(StoreError::VolumeExists(id)),
            (RestoreMode::Incremental, None) => Err(StoreError::NoVolume(id)),
            _ => Ok(found),
        }
    }

    /// Where what is kept can be read, if anything is.
    fn base(&self, mode: RestoreMode) -> Option<crate::meta::At> {
        self.row
            .filter(|_| mode == RestoreMode::Incremental)
            .map(|row| row.at())
    }

    fn name(&self, options: &RestoreOptions, header: &VolumeHeader) -> Result<String> {
        let name = match (&options.name, &self.info) {
            (Some(name), _) => name.clone(),
            (None, Some(info)) => String::from_utf8_lossy(&info.name).into_owned(),
            (None, None) => String::from_utf8_lossy(&header.name).into_owned(),
        };
        check_name(&name)?;
        Ok(name)
    }

    fn compression(&self, partition: &Partition, options: &RestoreOptions) -> Compression {
        let there = self.row.map(|row| row.compression);
        let wanted = options.compression.or(there);
        wanted.unwrap_or_else(|| partition.options().new_compression())
    }

    fn row(
        &self,
        options: &RestoreOptions,
        header: &VolumeHeader,
        compression: Compression,
        loaded: &Loaded,
        usage: &Usage,
    ) -> VolumeRow {
        let there = self.row;
        let kind = options
            .kind
            .or_else(|| there.map(|row| row.kind))
            .unwrap_or(VolumeType::ReadWrite);
        let own = if kind == VolumeType::ReadWrite || header.parent.is_none() {
            options.id.0
        } else {
            header.parent.0
        };
        let parent = options
            .parent
            .map(|id| id.0)
            .or_else(|| there.map(|row| row.parent));
        let clone = options
            .clone
            .map(|id| id.0)
            .or_else(|| there.map(|row| row.clone));
        let kept = there.filter(|_| options.mode == RestoreMode::Incremental);
        let mut row = VolumeRow {
            // The filling knows.
            tree: 0,
            generation: 0,
            kind,
            flags: 0,
            compression,
            parent: parent.unwrap_or(own),
            clone: clone.unwrap_or(0),
            backup: there.map_or(0, |row| row.backup),
            uniquifier: loaded
                .uniquifier
                .max(header.uniquifier.0.saturating_sub(1))
                .max(there.map_or(0, |row| row.uniquifier)),
            last_directory: loaded
                .last_directory
                .max(kept.map_or(1, |row| row.last_directory)),
            last_file: loaded.last_file.max(kept.map_or(0, |row| row.last_file)),
            max_quota: header.max_quota.into(),
            disk_used: usage.blocks,
            file_count: usage.vnodes,
            creation_date: header.creation.0,
            update_date: header.update.0,
            copy_date: UnixTime::from(SystemTime::now()).0,
        };
        row.set(VolumeRow::BLESSED, header.blessed);
        row.set(
            VolumeRow::IN_SERVICE,
            options.in_service.unwrap_or(header.in_service),
        );
        row.set(
            VolumeRow::OFFLINE,
            there.is_some_and(|row| row.has(VolumeRow::OFFLINE)),
        );
        row
    }

    fn info(&self, name: &str, dump: &DumpHeader, header: &VolumeHeader) -> VolumeInfo {
        VolumeInfo {
            name: name.as_bytes().to_vec(),
            min_quota: header.min_quota.into(),
            owner: header.owner.0,
            account: header.account,
            access_date: header.access.0,
            expiration_date: header.expiration.0,
            backup_date: header.backup.0,
            restored_from: dump.volume.0,
            update_counter: self.info.as_ref().map_or(0, |info| info.update_counter),
            day_use_date: header.day_use_date.0,
            day_use: header.day_use,
            week_use: header.week_use,
            offline_message: message(&header.offline_message),
            motd: message(&header.motd),
        }
    }
}

/// Counts what is read.
struct Counted<R> {
    input: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buf)?;
        self.count.set(self.count.get() + len as u64);
        Ok(len)
    }
}
