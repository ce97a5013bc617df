//! Dumping a volume.

use std::io::{BufWriter, Write};

use afar_types::{PtsId, Uniquifier, UnixTime, VnodeId, VolumeId, VolumeType};

use super::TransferProgress;
use super::pin::Pin;
use crate::dump::{
    DumpHeader, DumpWriter, MESSAGE_MAX, VnodeFields, VnodeKind, VnodeRecord, VolumeHeader,
};
use crate::error::Result;
use crate::meta::{Item, Kind, Rows, VnodeRow};
use crate::vnode::full_acl;
use crate::volume::Volume;

/// Bytes gathered before they go out.
const BUFFER: usize = 256 << 10;
/// Vnodes looked up at a time.
const VNODES: usize = 256;
/// Bytes of a directory read at a time.
const PAGES: u64 = 128 << 10;

/// What a dump is to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DumpOptions {
    /// An incremental dump: content of what the server changed at this time or later. All other
    /// vnodes are listed only. `None` or 0 is a full dump.
    pub from: Option<UnixTime>,
    /// In an incremental dump, list unchanged directories too instead of giving all of them, as
    /// AFSVolForward does and AFSVolDump does not.
    pub omit_unchanged_directories: bool,
}

/// What was dumped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DumpSummary {
    /// Vnodes the volume has.
    pub vnodes: u64,
    /// Those given with their content.
    pub given: u64,
    /// Bytes of the stream.
    pub bytes: u64,
    /// Bytes of file data and directory pages that were read for it.
    pub data: u64,
}

impl Volume {
    /// Writes the volume's present state as a dump stream (AFSVolDump). The volume can be used and
    /// changed meanwhile, and need not be online. Sizes above 2^31 − 1 KiB in the volume's header
    /// are given as that, which is the most the stream's readers take.
    ///
    /// # Errors
    ///
    /// [`StoreError::Dump`](crate::StoreError::Dump) if the output fails,
    /// [`StoreError::Read`](crate::StoreError::Read) if a record does.
    pub fn dump<W: Write>(&self, out: W, options: &DumpOptions) -> Result<DumpSummary> {
        self.dump_with_progress(out, options, |_| {})
    }

    /// [`Volume::dump`], telling after each vnode, and within large ones, how far it is.
    ///
    /// # Errors
    ///
    /// As [`Volume::dump`].
    pub fn dump_with_progress<W: Write>(
        &self,
        out: W,
        options: &DumpOptions,
        progress: impl FnMut(TransferProgress),
    ) -> Result<DumpSummary> {
        let pin = Pin::new(self)?;
        let from = options.from.map_or(0, |from| from.0);
        let output = BufWriter::with_capacity(BUFFER, out);
        let mut writer = DumpWriter::new(output, &dump_header(self.id(), &pin, from))?;
        writer.volume_header(&volume_header(self.id(), &pin))?;
        let mut dumper = Dumper {
            pin: &pin,
            writer,
            summary: DumpSummary::default(),
            progress,
            buffer: Vec::new(),
        };
        let all = !options.omit_unchanged_directories;
        dumper.index(Kind::DirectoryVnode, if all { 0 } else { from })?;
        dumper.index(Kind::FileVnode, from)?;
        dumper.finish()
    }
}

struct Dumper<'p, W: Write, P> {
    pin: &'p Pin,
    writer: DumpWriter<BufWriter<W>>,
    summary: DumpSummary,
    progress: P,
    buffer: Vec<u8>,
}

impl<W: Write, P: FnMut(TransferProgress)> Dumper<'_, W, P> {
    /// Writes all vnodes of one kind, by number.
    ///
    /// The output may take its time, so nothing is written while a view of the database is open:
    /// that would keep all that is freed meanwhile from being used again.
    fn index(&mut self, kind: Kind, from: u32) -> Result<()> {
        let mut next = Some(0);
        while let Some(first) = next {
            let vnodes = self.vnodes(kind, first)?;
            next = match vnodes.last() {
                Some((last, _)) if vnodes.len() == VNODES => last.checked_add(1),
                _ => None,
            };
            for (vnode, row) in vnodes {
                self.vnode(vnode, &row, row.server_modify_time >= from)?;
            }
        }
        Ok(())
    }

    fn vnodes(&self, kind: Kind, first: u32) -> Result<Vec<(u32, VnodeRow)>> {
        let reader = self.pin.partition.reader()?;
        let from = Item {
            kind,
            vnode: first,
            index: 0,
        };
        let mut vnodes = Vec::with_capacity(VNODES);
        for found in reader.items(self.pin.at, from)?.take(VNODES) {
            let (item, value) = found?;
            let row = VnodeRow::from_bytes(value).ok_or_else(|| {
                reader
                    .env()
                    .corrupt(format!("vnode {} of tree {}", item.vnode, self.pin.at.tree))
            })?;
            vnodes.push((item.vnode, row));
        }
        Ok(vnodes)
    }

    fn vnode(&mut self, vnode: u32, row: &VnodeRow, changed: bool) -> Result<()> {
        self.writer.vnode(&VnodeRecord {
            vnode: VnodeId(vnode),
            uniquifier: Uniquifier(row.uniquifier),
            body: changed.then(|| fields(row)),
        })?;
        self.summary.vnodes += 1;
        if changed {
            self.summary.given += 1;
            self.data(vnode, row)?;
        }
        self.tell();
        Ok(())
    }

    fn data(&mut self, vnode: u32, row: &VnodeRow) -> Result<()> {
        let piece = if row.is_directory() {
            PAGES
        } else {
            1 << row.record_shift
        };
        let mut offset = 0;
        while offset < row.length {
            let len = piece.min(row.length - offset);
            // A piece has at most 1 MiB.
            self.buffer.resize(usize::try_from(len).unwrap_or(0), 0);
            let pin = self.pin;
            let reader = pin.partition.reader()?;
            pin.partition
                .read_data(&*reader, pin.at, vnode, row, offset, &mut self.buffer)?;
            drop(reader);
            self.writer.data(&self.buffer)?;
            self.summary.data += len;
            offset += len;
            if offset < row.length {
                self.tell();
            }
        }
        Ok(())
    }

    fn tell(&mut self) {
        (self.progress)(TransferProgress {
            bytes: self.writer.written(),
            vnodes: self.summary.vnodes,
        });
    }

    fn finish(mut self) -> Result<DumpSummary> {
        // The end of the dump: a tag and a word.
        self.summary.bytes = self.writer.written() + 5;
        let summary = self.summary;
        let mut progress = self.progress;
        self.writer.finish()?;
        progress(TransferProgress {
            bytes: summary.bytes,
            vnodes: summary.vnodes,
        });
        Ok(summary)
    }
}

fn dump_header(id: VolumeId, pin: &Pin, from: u32) -> DumpHeader {
    // As OpenAFS has it (volser, DumpDumpHeader).
    let to = match pin.row.kind {
        VolumeType::ReadWrite => pin.row.update_date,
        VolumeType::ReadOnly => pin.row.creation_date,
        VolumeType::Backup => pin.info.backup_date,
    };
    DumpHeader {
        volume: id,
        name: pin.info.name.clone(),
        from: UnixTime(from),
        to: UnixTime(to),
    }
}

fn volume_header(id: VolumeId, pin: &Pin) -> VolumeHeader {
    let (row, info) = (&pin.row, &pin.info);
    VolumeHeader {
        id,
        stamp_version: 1,
        name: info.name.clone(),
        in_service: row.has(crate::meta::VolumeRow::IN_SERVICE),
        blessed: row.has(crate::meta::VolumeRow::BLESSED),
        // spec: volumes#vnodes
        // OpenAFS's file server repairs a volume first that has a vnode with this one.
        uniquifier: Uniquifier(row.uniquifier.saturating_add(1)),
        kind: row.kind,
        parent: VolumeId(row.parent),
        clone_id: VolumeId(row.clone),
        max_quota: clip(row.max_quota),
        min_quota: clip(info.min_quota),
        disk_used: clip(row.disk_used),
        file_count: row.file_count,
        account: info.account,
        owner: PtsId(info.owner),
        creation: UnixTime(row.creation_date),
        access: UnixTime(info.access_date),
        update: UnixTime(row.update_date),
        expiration: UnixTime(info.expiration_date),
        backup: UnixTime(info.backup_date),
        offline_message: message(&info.offline_message),
        motd: message(&info.motd),
        week_use: info.week_use,
        day_use_date: UnixTime(info.day_use_date),
        day_use: info.day_use,
    }
}

/// The sizes are signed on the other side.
fn clip(kib: u64) -> u32 {
    u32::try_from(kib.min(i32::MAX as u64)).unwrap_or(u32::MAX)
}

/// A message as far as the stream can carry it.
pub(super) fn message(text: &[u8]) -> Vec<u8> {
    let end = text
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(text.len());
    text[..end.min(MESSAGE_MAX)].to_vec()
}

fn fields(row: &VnodeRow) -> VnodeFields {
    let kind = match row.kind {
        VnodeRow::DIRECTORY => VnodeKind::Directory,
        VnodeRow::SYMLINK => VnodeKind::Symlink,
        _ => VnodeKind::File,
    };
    VnodeFields {
        kind,
        link_count: u16::try_from(row.link_count).unwrap_or(u16::MAX),
        data_version: low_word(row.data_version),
        modify_time: UnixTime(row.modify_time),
        author: PtsId(row.author),
        owner: PtsId(row.owner),
        group: PtsId(row.group),
        mode: row.mode,
        parent: VnodeId(row.parent),
        server_modify_time: UnixTime(row.server_modify_time),
        acl: row.is_directory().then(|| full_acl(&row.acl)),
        length: Some(row.length),
    }
}

fn low_word(number: u64) -> u32 {
    let [.., a, b, c, d] = number.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}
