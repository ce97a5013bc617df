//! Rows on their way into a volume that is being filled, some at a time.

use crate::error::Result;
use crate::meta::{At, Item, NewRecord, Record, Rows, VnodeRow};
use crate::partition::{Partition, Pending};
use crate::segment::Compression;
use crate::vnode::pack_record;

/// Rows in a commit: others get in between, and the commit's sync is shared by many rows.
const ROWS: usize = 2_000;
/// Bytes of rows in a commit.
const BYTES: usize = 2 << 20;
/// Bytes of records written to segments before a commit.
const RECORDS: u64 = 64 << 20;

enum Step {
    Vnode(u32, VnodeRow),
    Page(u32, u64, Vec<u8>),
    Record(u32, u64, NewRecord),
    Delete(Item),
    /// A vnode number nobody uses.
    Free(u32),
}

/// Rows not yet committed. What they refer to in segments is given up if they never are.
pub(super) struct Batch<'p> {
    partition: &'p Partition,
    at: At,
    steps: Vec<Step>,
    bytes: usize,
    written: u64,
    pending: Pending<'p>,
}

impl<'p> Batch<'p> {
    pub(super) fn new(partition: &'p Partition, at: At) -> Self {
        Self {
            partition,
            at,
            steps: Vec::new(),
            bytes: 0,
            written: 0,
            pending: Pending::new(partition),
        }
    }

    pub(super) fn vnode(&mut self, vnode: u32, row: VnodeRow) -> Result<()> {
        self.step(64 + row.acl.len(), Step::Vnode(vnode, row))
    }

    pub(super) fn page(&mut self, vnode: u32, page: u64, packed: Vec<u8>) -> Result<()> {
        self.step(packed.len(), Step::Page(vnode, page, packed))
    }

    /// Writes a record, or leaves a hole where it is all zeros.
    pub(super) fn record(
        &mut self,
        vnode: u32,
        index: u64,
        plain: &[u8],
        compression: Compression,
    ) -> Result<()> {
        let Some(new) = pack_record(&mut self.pending, plain, compression)? else {
            return Ok(());
        };
        let len = match &new.record {
            Record::Extent(extent) => {
                self.written += u64::from(extent.stored);
                48
            }
            Record::Inline { stored, .. } => stored.len(),
        };
        self.step(len, Step::Record(vnode, index, new))
    }

    pub(super) fn delete(&mut self, item: Item) -> Result<()> {
        self.step(32, Step::Delete(item))
    }

    pub(super) fn free(&mut self, vnode: u32) -> Result<()> {
        self.step(32, Step::Free(vnode))
    }

    fn step(&mut self, bytes: usize, step: Step) -> Result<()> {
        self.steps.push(step);
        self.bytes += bytes;
        if self.steps.len() >= ROWS || self.bytes >= BYTES || self.written >= RECORDS {
            self.flush()?;
        }
        Ok(())
    }

    /// Commits what there is.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.steps.is_empty() {
            return Ok(());
        }
        let at = self.at;
        let steps = std::mem::take(&mut self.steps);
        let pending = std::mem::replace(&mut self.pending, Pending::new(self.partition));
        (self.bytes, self.written) = (0, 0);
        pending.commit(move |change| {
            for step in steps {
                match step {
                    Step::Vnode(vnode, row) => change.put_vnode(at, vnode, &row)?,
                    Step::Page(vnode, page, packed) => {
                        // A client that knows the directory as it was must look again.
                        change.env().images().lock().remove(&(at, vnode));
                        change.put_page(at, vnode, page, packed)?;
                    }
                    Step::Record(vnode, index, record) => {
                        change.put_record(at, vnode, index, &record)?;
                    }
                    Step::Delete(item) => {
                        change.env().images().lock().remove(&(at, item.vnode));
                        change.delete_row(at, item)?;
                    }
                    Step::Free(vnode) => {
                        change.put_slot(at.tree, vnode % 2 == 1, vnode);
                    }
                }
            }
            Ok(())
        })
    }
}
