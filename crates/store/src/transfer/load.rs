//! From the stream's vnodes to rows.

use std::io::{self, BufRead, Read};

use afar_dir::PAGE_SIZE;
use afar_types::{AclRecord, VolumeId};

use super::batch::Batch;
use super::existing::{Existing, parts};
use crate::dump::{Data, DumpError, DumpReader, VnodeFields, VnodeKind, VnodeRecord};
use crate::error::{Result, StoreError};
use crate::meta::{At, Item, Kind, VnodeRow};
use crate::partition::Partition;
use crate::segment::Compression;
use crate::vnode::{RECORD_SHIFT, pack_page, shift_for, trim_acl};

/// What the vnodes of a stream came to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Loaded {
    pub(super) vnodes: u64,
    pub(super) given: u64,
    pub(super) data: u64,
    pub(super) removed: u64,
    /// The greatest seen.
    pub(super) uniquifier: u32,
    pub(super) last_directory: u32,
    pub(super) last_file: u32,
    /// Unused vnode numbers noted.
    free: u64,
}

/// Takes vnodes from a stream and puts rows in a batch.
pub(super) struct Loader<'p> {
    pub(super) id: VolumeId,
    /// Of an incremental dump, what it is on top of.
    pub(super) from: u32,
    pub(super) batch: Batch<'p>,
    /// What the volume holds, if it is not filled from nothing.
    pub(super) existing: Option<Existing<'p>>,
    pub(super) compression: Compression,
    pub(super) loaded: Loaded,
    pub(super) last: Option<Item>,
    pub(super) buffer: Vec<u8>,
}

impl<'p> Loader<'p> {
    /// Loads all vnodes of a stream.
    pub(super) fn all<R: BufRead>(
        &mut self,
        stream: &mut DumpReader<R>,
        mut tell: impl FnMut(&Loaded),
    ) -> Result<()> {
        while let Some(record) = stream.next_vnode()? {
            let vnode = record.vnode.0;
            let item = Item::vnode(vnode);
            self.check_order(item)?;
            self.remove_up_to(Some(item))?;
            let was = self.take_existing(item)?;
            self.loaded.vnodes += 1;
            self.loaded.uniquifier = self.loaded.uniquifier.max(record.uniquifier.0);
            match &record.body {
                None => self.keep(&record, was.as_ref())?,
                Some(fields) => {
                    self.loaded.given += 1;
                    let data = stream.data();
                    if fields.kind == VnodeKind::Directory {
                        self.directory(&record, fields, was.is_some(), data)?;
                    } else {
                        self.file(&record, fields, was.is_some(), data, &mut tell)?;
                    }
                }
            }
            tell(&self.loaded);
        }
        self.remove_up_to(None)
    }

    pub(super) fn finish(mut self) -> Result<(Batch<'p>, Loaded)> {
        self.batch.flush()?;
        Ok((self.batch, self.loaded))
    }

    fn bad(&self, what: impl Into<String>) -> StoreError {
        StoreError::BadDump {
            volume: self.id,
            what: what.into(),
        }
    }

    /// Directories come first, then files, both by rising number, each once. Every server has
    /// always written them so, and a restore counts on it.
    fn check_order(&mut self, item: Item) -> Result<()> {
        if let Some(last) = self.last
            && item <= last
        {
            let why = if item == last {
                "is given twice"
            } else {
                "is out of order"
            };
            return Err(self.bad(format!(
                "vnode {} {why}: it follows vnode {}",
                item.vnode, last.vnode
            )));
        }
        let (class, first) = match item.kind {
            Kind::DirectoryVnode => (&mut self.loaded.last_directory, 1),
            _ => (&mut self.loaded.last_file, 2),
        };
        let before = std::mem::replace(class, item.vnode);
        let expected = if before == 0 {
            first
        } else {
            before.saturating_add(2)
        };
        self.last = Some(item);
        if self.existing.is_none() {
            self.note_free(expected, item.vnode)?;
        }
        Ok(())
    }

    /// Notes numbers nobody uses, so that they are used again; but not so many that a few vnodes
    /// with great numbers cost much.
    fn note_free(&mut self, from: u32, to: u32) -> Result<()> {
        let mut vnode = from;
        while vnode < to && self.loaded.free <= self.loaded.vnodes {
            self.batch.free(vnode)?;
            self.loaded.free += 1;
            vnode += 2;
        }
        Ok(())
    }

    /// What the volume holds under this number.
    fn take_existing(&mut self, item: Item) -> Result<Option<VnodeRow>> {
        let Some(existing) = &mut self.existing else {
            return Ok(None);
        };
        match existing.peek()? {
            Some((found, _)) if *found == item => Ok(existing.pop().map(|(_, row)| row)),
            _ => Ok(None),
        }
    }

    /// Removes what the volume holds before a vnode, or to the end: the dump does not list it.
    fn remove_up_to(&mut self, until: Option<Item>) -> Result<()> {
        let Some(mut existing) = self.existing.take() else {
            return Ok(());
        };
        while let Some((item, row)) = existing.peek()? {
            if until.is_some_and(|until| *item >= until) {
                break;
            }
            let (item, directory) = (*item, row.is_directory());
            existing.pop();
            self.clear(&existing, item.vnode, directory, 0)?;
            self.batch.delete(item)?;
            self.batch.free(item.vnode)?;
            self.loaded.removed += 1;
        }
        self.existing = Some(existing);
        Ok(())
    }

    /// Removes the pages or records a vnode had, from one on.
    fn clear(
        &mut self,
        existing: &Existing<'_>,
        vnode: u32,
        directory: bool,
        from: u64,
    ) -> Result<()> {
        for &kind in Kind::parts(directory) {
            let first = Item {
                kind,
                vnode,
                index: from,
            };
            drop_parts(&mut self.batch, first, |from| existing.parts(from))?;
        }
        Ok(())
    }

    /// A vnode that is only listed: the volume must have it.
    fn keep(&self, record: &VnodeRecord, was: Option<&VnodeRow>) -> Result<()> {
        let (vnode, uniquifier) = (record.vnode, record.uniquifier);
        if self.from == 0 {
            return Err(self.bad(format!("vnode {vnode} has no content, in a full dump")));
        }
        match was {
            Some(row) if row.uniquifier == uniquifier.0 => Ok(()),
            Some(row) => Err(self.bad(format!(
                "vnode {vnode} is unchanged since {} with uniquifier {uniquifier}, but the volume \
                 has {}; restore what comes before this dump first",
                self.from, row.uniquifier
            ))),
            None => Err(self.bad(format!(
                "vnode {vnode} is unchanged since {}, but the volume does not have it; restore \
                 what comes before this dump first",
                self.from
            ))),
        }
    }

    fn directory<R: BufRead>(
        &mut self,
        record: &VnodeRecord,
        fields: &VnodeFields,
        replaces: bool,
        mut data: Data<'_, R>,
    ) -> Result<()> {
        let vnode = record.vnode.0;
        let mut pages = std::mem::take(&mut self.buffer);
        pages.clear();
        // The stream's reader lets at most 2 MiB through.
        data.read_to_end(&mut pages).map_err(stream_error)?;
        if pages.is_empty() {
            return Err(self.bad(format!("directory {vnode} has no pages")));
        }
        if let Err(problems) = afar_dir::check(&pages) {
            let first = problems
                .first()
                .map(ToString::to_string)
                .unwrap_or_default();
            return Err(self.bad(format!("directory {vnode} is damaged: {first}")));
        }
        let acl = self.acl(vnode, fields)?;
        for (index, page) in pages.as_chunks::<PAGE_SIZE>().0.iter().enumerate() {
            let packed = pack_page(page);
            let index = index as u64;
            // Incremental dumps have all directories, and most are as they were.
            if replaces && self.has_page(vnode, index, &packed)? {
                continue;
            }
            self.batch.page(vnode, index, packed)?;
        }
        if replaces && let Some(existing) = self.existing.take() {
            let count = (pages.len() / PAGE_SIZE) as u64;
            self.clear(&existing, vnode, true, count)?;
            self.existing = Some(existing);
        }
        self.loaded.data += pages.len() as u64;
        let row = row(record, fields, RECORD_SHIFT, pages.len() as u64, acl);
        self.buffer = pages;
        self.batch.vnode(vnode, row)
    }

    /// The access list as it is kept. OpenAFS leaves a damaged one out: nobody but administrators
    /// have rights then.
    fn acl(&self, vnode: u32, fields: &VnodeFields) -> Result<Vec<u8>> {
        let Some(acl) = &fields.acl else {
            return Ok(trim_acl(&AclRecord::default().to_bytes()));
        };
        match AclRecord::from_bytes(acl) {
            Ok(_) => Ok(trim_acl(acl)),
            Err(error) => Err(self.bad(format!(
                "the access list of directory {vnode} is damaged: {error}"
            ))),
        }
    }

    fn has_page(&self, vnode: u32, page: u64, packed: &[u8]) -> Result<bool> {
        let Some(existing) = &self.existing else {
            return Ok(false);
        };
        existing.has_page(vnode, page, packed)
    }

    fn file<R: BufRead>(
        &mut self,
        record: &VnodeRecord,
        fields: &VnodeFields,
        replaces: bool,
        mut data: Data<'_, R>,
        tell: &mut impl FnMut(&Loaded),
    ) -> Result<()> {
        let vnode = record.vnode.0;
        if replaces && let Some(existing) = self.existing.take() {
            self.clear(&existing, vnode, false, 0)?;
            self.existing = Some(existing);
        }
        let length = fields.length.unwrap_or(0);
        let shift = shift_for(length);
        let mut plain = std::mem::take(&mut self.buffer);
        let mut left = length;
        let mut index = 0;
        while left > 0 {
            let len = left.min(1 << shift);
            plain.clear();
            let read = data
                .by_ref()
                .take(len)
                .read_to_end(&mut plain)
                .map_err(stream_error)?;
            if read as u64 != len {
                return Err(self.bad(format!("the data of vnode {vnode} ends early")));
            }
            self.batch.record(vnode, index, &plain, self.compression)?;
            self.loaded.data += len;
            left -= len;
            index += 1;
            if left > 0 {
                tell(&self.loaded);
            }
        }
        self.buffer = plain;
        self.batch
            .vnode(vnode, row(record, fields, shift, length, Vec::new()))
    }
}

fn row(
    record: &VnodeRecord,
    fields: &VnodeFields,
    shift: u8,
    length: u64,
    acl: Vec<u8>,
) -> VnodeRow {
    VnodeRow {
        kind: fields.kind as u8,
        record_shift: shift,
        mode: fields.mode & 0o7777,
        link_count: fields.link_count.into(),
        uniquifier: record.uniquifier.0,
        data_version: fields.data_version.into(),
        length,
        modify_time: fields.modify_time.0,
        server_modify_time: fields.server_modify_time.0,
        author: fields.author.0,
        owner: fields.owner.0,
        group: fields.group.0,
        parent: fields.parent.0,
        acl,
    }
}

/// What the stream's reader says through the data.
fn stream_error(error: io::Error) -> StoreError {
    match error.downcast::<DumpError>() {
        Ok(error) => error.into(),
        Err(error) => StoreError::io("reading a dump", error),
    }
}

/// Removes a vnode that nothing names, with what it holds.
pub(super) fn drop_vnode(
    batch: &mut Batch<'_>,
    partition: &Partition,
    at: At,
    item: Item,
) -> Result<()> {
    for &kind in Kind::parts(item.kind == Kind::DirectoryVnode) {
        drop_parts(batch, Item { kind, ..item }, |from| {
            parts(partition, at, from)
        })?;
    }
    batch.delete(item)?;
    batch.free(item.vnode)
}

/// Removes the items of one kind that a vnode has, from one on, given how some of them are found.
fn drop_parts(
    batch: &mut Batch<'_>,
    mut from: Item,
    some: impl Fn(Item) -> Result<Vec<Item>>,
) -> Result<()> {
    loop {
        let parts = some(from)?;
        let Some(last) = parts.last() else {
            return Ok(());
        };
        from.index = last.index + 1;
        for part in parts {
            batch.delete(part)?;
        }
    }
}
