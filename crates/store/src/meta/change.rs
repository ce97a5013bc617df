//! A change in progress: writing rows, so that they can be taken back.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::env::{Batch, Table, seal};
use super::hold::Hold;
use super::key::{
    At, DoomedKey, Item, Kind, NoteName, change_key, dead_key, member_key, note_key, row_key,
    split_row_key, vnode_slot_key,
};
use super::memtable::{Layers, Sealed, Slots};
use super::record::{NewRecord, Record};
use super::rows::{MemberState, SegmentRow, VnodeRow, VolumeInfo, VolumeRow};
use super::versions::Rows;
use crate::error::Result;
use crate::segment::Extent;

/// What a change does to a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SegmentDelta {
    /// The farthest end of a new record.
    pub(crate) end: u32,
    /// Bytes that came alive, less those that died.
    pub(crate) live: i64,
}

/// What a change did that was kept.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) segments: BTreeMap<u32, SegmentDelta>,
    /// Rows in the order they were written; one may be there several times.
    pub(crate) rows: Vec<WrittenRow>,
    /// New records.
    pub(crate) records: Vec<Extent>,
    /// Volumes whose rows are written at the end of the commit.
    pub(crate) volumes: BTreeMap<u32, VolumeRow>,
}

/// A row that was written.
pub(crate) struct WrittenRow {
    pub(crate) table: Table,
    pub(crate) key: Arc<[u8]>,
    /// Its sealed value, or that it was deleted.
    pub(crate) sealed: Sealed,
}

/// One operation's writes in a commit it shares with others.
///
/// A failed operation is taken back by [`Change::roll_back`], and the others go on.
pub(crate) struct Change<'c> {
    batch: &'c mut Batch,
    /// Seconds since 1970.
    now: u32,
    writes: Vec<WrittenRow>,
    /// What the memtable had of each of them before.
    before: Vec<Option<Sealed>>,
    slots_before: Slots,
    segments: BTreeMap<u32, SegmentDelta>,
    records: Vec<Extent>,
    /// Generations of the live members of the tree looked at last.
    members: Option<(u64, Vec<u32>)>,
    /// Rows of volumes that are newer than their table's: every change of a vnode changes its
    /// volume's, which is written once a commit.
    volumes: BTreeMap<u32, VolumeRow>,
    /// What `volumes` had before, in the order it was changed.
    volumes_before: Vec<(u32, Option<VolumeRow>)>,
}

impl Rows for Change<'_> {
    fn layers(&self) -> Layers<'_> {
        self.batch.layers()
    }

    fn volume(&self, id: u32) -> Result<Option<VolumeRow>> {
        match self.volumes.get(&id) {
            Some(row) => Ok(Some(*row)),
            None => self.stored_volume(id),
        }
    }
}

impl<'c> Change<'c> {
    pub(crate) fn new(batch: &'c mut Batch, now: u32) -> Self {
        Self {
            slots_before: batch.rows.slots(),
            before: Vec::new(),
            batch,
            now,
            writes: Vec::new(),
            segments: BTreeMap::new(),
            records: Vec::new(),
            members: None,
            volumes: BTreeMap::new(),
            volumes_before: Vec::new(),
        }
    }

    /// Goes on with what earlier changes of the same commit left to be written at its end.
    pub(crate) fn with_volumes(mut self, volumes: BTreeMap<u32, VolumeRow>) -> Self {
        self.volumes = volumes;
        self
    }

    /// The time of the change, in seconds since 1970.
    pub(crate) fn now(&self) -> u32 {
        self.now
    }

    /// The time that a change has which was made elsewhere at that time, by a clock that may be wrong.
    pub(crate) fn made(&self, time: u32) -> u32 {
        let since = self.env().unfrozen_since().min(self.now);
        time.clamp(since, self.now)
    }

    /// Sets a key's value.
    pub(crate) fn put(&mut self, table: Table, key: &[u8], value: Vec<u8>) {
        let sealed = seal(table, key, value);
        self.set(table, key, Some(sealed.into()));
    }

    /// Removes a key, if it is there.
    pub(crate) fn delete(&mut self, table: Table, key: &[u8]) -> Result<()> {
        if self.layers().get(table, key)?.is_some() {
            self.set(table, key, None);
        }
        Ok(())
    }

    fn set(&mut self, table: Table, key: &[u8], sealed: Sealed) {
        let key: Arc<[u8]> = key.into();
        let rows = &mut self.batch.rows;
        let before = rows.set(table, Arc::clone(&key), sealed.clone());
        self.before.push(before);
        self.writes.push(WrittenRow { table, key, sealed });
    }

    /// Takes everything back. What is left is of the changes before.
    pub(crate) fn roll_back(mut self) -> Kept {
        let slots = self.slots_before.clone();
        self.back_to(0, slots, 0);
        Kept {
            volumes: self.volumes,
            ..Kept::default()
        }
    }

    /// Takes rows back until so many writes are left, and changes of volumes until so many are.
    fn back_to(&mut self, writes: usize, slots: Slots, volumes: usize) {
        let rows = &mut self.batch.rows;
        while self.writes.len() > writes
            && let (Some(row), Some(before)) = (self.writes.pop(), self.before.pop())
        {
            rows.restore(row.table, &row.key, before);
        }
        rows.restore_slots(slots);
        while self.volumes_before.len() > volumes
            && let Some((id, before)) = self.volumes_before.pop()
        {
            match before {
                Some(row) => self.volumes.insert(id, row),
                None => self.volumes.remove(&id),
            };
        }
    }

    /// Does a part of the change, which is taken back alone if it fails.
    pub(crate) fn part<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let slots = self.batch.rows.slots();
        let (writes, volumes) = (self.writes.len(), self.volumes_before.len());
        let (segments, records) = (self.segments.clone(), self.records.len());
        let result = work(self);
        if result.is_err() {
            self.back_to(writes, slots, volumes);
            self.segments = segments;
            self.records.truncate(records);
            self.members = None;
        }
        result
    }

    /// What it does, once it is kept: to segments, and which rows it changed.
    pub(crate) fn finish(self) -> Kept {
        Kept {
            segments: self.segments,
            records: self.records,
            rows: self.writes,
            volumes: self.volumes,
        }
    }

    /// Sets or deletes a row as the log has it.
    pub(crate) fn put_logged(
        &mut self,
        table: u8,
        key: &[u8],
        sealed: Option<&[u8]>,
    ) -> Result<()> {
        let table = Table::from_byte(table)
            .ok_or_else(|| self.env().corrupt(format!("the log names table {table}")))?;
        self.batch
            .rows
            .set(table, key.into(), sealed.map(Arc::from));
        Ok(())
    }

    /// Sets a volume's row, whose flags stay as they are, by the end of the commit.
    pub(crate) fn update_volume(&mut self, id: u32, row: &VolumeRow) {
        let before = self.volumes.insert(id, *row);
        self.volumes_before.push((id, before));
    }

    /// Writes the rows that were left for the end of the commit.
    pub(crate) fn write_volumes(&mut self) {
        for (id, row) in std::mem::take(&mut self.volumes) {
            self.put(Table::Volumes, &id.to_be_bytes(), row.to_bytes());
        }
    }

    /// What is set at once is not to be overwritten at the end.
    fn forget_volume(&mut self, id: u32) {
        if let Some(row) = self.volumes.remove(&id) {
            self.volumes_before.push((id, Some(row)));
        }
    }

    /// Sets a volume's row.
    pub(crate) fn put_volume(&mut self, id: u32, row: &VolumeRow) -> Result<()> {
        self.forget_volume(id);
        let key = id.to_be_bytes();
        self.put(Table::Volumes, &key, row.to_bytes());
        let noted = self.get(Table::Unfinished, &key)?.is_some();
        match (row.has(VolumeRow::DESTROY_ME), noted) {
            (true, false) => self.put(Table::Unfinished, &key, Vec::new()),
            (false, true) => self.delete(Table::Unfinished, &key)?,
            _ => {}
        }
        Ok(())
    }

    /// Removes all there is to tell of a volume, but not what it holds.
    pub(crate) fn delete_volume(&mut self, id: u32) -> Result<()> {
        self.forget_volume(id);
        for table in [Table::Volumes, Table::Infos, Table::Unfinished] {
            self.delete(table, &id.to_be_bytes())?;
        }
        for (name, _) in self.notes(id)? {
            self.put_note(id, name, None)?;
        }
        Ok(())
    }

    /// A note of a volume.
    pub(crate) fn note(&self, volume: u32, name: NoteName) -> Result<Option<Vec<u8>>> {
        let row = self.get(Table::Settings, &note_key(volume, name))?;
        Ok(row.map(<[u8]>::to_vec))
    }

    /// All notes of a volume.
    pub(crate) fn notes(&self, volume: u32) -> Result<Vec<(NoteName, Vec<u8>)>> {
        let mut notes = Vec::new();
        let first = note_key(volume, [0; 16]);
        for row in self.scan(Table::Settings, &first)? {
            let (key, value) = row?;
            match key.split_last_chunk::<16>() {
                Some((head, name)) if *head == first[..8] => notes.push((*name, value.to_vec())),
                _ => break,
            }
        }
        Ok(notes)
    }

    /// Sets or removes a note of a volume. It goes when the volume does.
    pub(crate) fn put_note(
        &mut self,
        volume: u32,
        name: NoteName,
        text: Option<Vec<u8>>,
    ) -> Result<()> {
        let key = note_key(volume, name);
        match text {
            Some(text) => self.put(Table::Settings, &key, text),
            None => self.delete(Table::Settings, &key)?,
        }
        Ok(())
    }

    /// Sets what else there is to tell of a volume.
    pub(crate) fn put_info(&mut self, id: u32, info: &VolumeInfo) {
        self.put(Table::Infos, &id.to_be_bytes(), info.to_bytes());
    }

    /// Adds a member to a tree, or changes its state.
    pub(crate) fn put_member(&mut self, at: At, volume: u32, state: MemberState) {
        self.members = None;
        self.put(Table::Members, &member_key(at, volume), state.to_bytes());
    }

    /// Takes a member out of a tree.
    pub(crate) fn delete_member(&mut self, at: At, volume: u32) -> Result<()> {
        self.members = None;
        self.delete(Table::Members, &member_key(at, volume))
    }

    /// Leaves a tree, or what a shade was the last to see, to the reaper.
    pub(crate) fn doom(&mut self, doomed: DoomedKey) {
        self.put(Table::Doomed, &doomed.to_bytes(), Vec::new());
    }

    /// Takes it from the reaper's list.
    pub(crate) fn spare(&mut self, doomed: DoomedKey) -> Result<()> {
        self.delete(Table::Doomed, &doomed.to_bytes())
    }

    /// Lets a vnode's number be used again.
    pub(crate) fn put_slot(&mut self, tree: u64, directory: bool, vnode: u32) {
        let key = vnode_slot_key(tree, directory, vnode);
        self.put(Table::VnodeSlots, &key, Vec::new());
        let rows = &mut self.batch.rows;
        let first = rows.first_slot(tree, directory).min(vnode.into());
        rows.set_first_slot(tree, directory, first);
    }

    /// Takes the least vnode number that may be used again, if there is one.
    pub(crate) fn take_slot(&mut self, tree: u64, directory: bool) -> Result<Option<u32>> {
        let rows = &self.batch.rows;
        let Ok(first) = u32::try_from(rows.first_slot(tree, directory)) else {
            return Ok(None);
        };
        let from = vnode_slot_key(tree, directory, first);
        let found = self.scan(Table::VnodeSlots, &from)?.next().transpose()?;
        let vnode = found.and_then(|(key, _)| {
            let (list, vnode) = key.split_last_chunk::<4>()?;
            from.starts_with(list).then(|| u32::from_be_bytes(*vnode))
        });
        let next = vnode.map_or(u64::MAX, |vnode| u64::from(vnode) + 1);
        if let Some(vnode) = vnode {
            let key = vnode_slot_key(tree, directory, vnode);
            self.set(Table::VnodeSlots, &key, None);
        }
        self.batch.rows.set_first_slot(tree, directory, next);
        Ok(vnode)
    }

    /// Sets a segment's state.
    pub(crate) fn put_segment(&mut self, number: u32, row: SegmentRow) {
        self.put(Table::Segments, &number.to_be_bytes(), row.to_bytes());
    }

    /// Sets a vnode.
    pub(crate) fn put_vnode(&mut self, at: At, vnode: u32, row: &VnodeRow) -> Result<()> {
        self.put_row(at, Item::vnode(vnode), row.to_bytes())
    }

    /// Sets a record of a file.
    pub(crate) fn put_record(
        &mut self,
        at: At,
        vnode: u32,
        index: u64,
        new: &NewRecord,
    ) -> Result<()> {
        if let Record::Extent(extent) = &new.record {
            if new.shared {
                self.share_or_revive(extent, new.hash)?;
            } else {
                self.take(extent);
                self.records.push(*extent);
                self.note_hash(extent, new.hash)?;
            }
        }
        self.put_row(at, Item::record(vnode, index), new.record.to_bytes())
    }

    /// Lets others find a record by the hash of its plain bytes.
    fn note_hash(&mut self, extent: &Extent, hash: Option<[u8; 16]>) -> Result<()> {
        let Some(hash) = hash else { return Ok(()) };
        if self.get(Table::Dedup, &hash)?.is_some() {
            return Ok(());
        }
        self.put(Table::Dedup, &hash, extent.to_bytes().to_vec());
        let key = dead_key(extent.segment, extent.offset);
        self.put(Table::DedupKeys, &key, hash.to_vec());
        Ok(())
    }

    /// Adds a reference to a record somebody found by its hash and has pinned since: if its last
    /// owner gave it up meanwhile, it is not yet given back and comes alive again.
    fn share_or_revive(&mut self, extent: &Extent, hash: Option<[u8; 16]>) -> Result<()> {
        let key = dead_key(extent.segment, extent.offset);
        if self.get(Table::Dead, &key)?.is_none() {
            return self.share(extent);
        }
        self.delete(Table::Dead, &key)?;
        self.take(extent);
        self.note_hash(extent, hash)
    }

    /// Counts a new record's bytes.
    fn take(&mut self, extent: &Extent) {
        let delta = self.segments.entry(extent.segment).or_default();
        delta.end = delta.end.max(extent.offset.saturating_add(extent.stored));
        delta.live += i64::from(extent.stored);
    }

    /// Sets a page of a directory to what its row is to be: nothing of it is changed any more.
    pub(crate) fn put_page(&mut self, at: At, vnode: u32, page: u64, row: Vec<u8>) -> Result<()> {
        self.put_row(at, Item::page(vnode, page), row)?;
        self.delete_row(at, Item::page_change(vnode, page))
    }

    /// Sets an item at a member's generation. Clones go on seeing what they saw.
    pub(crate) fn put_row(&mut self, at: At, item: Item, value: Vec<u8>) -> Result<()> {
        let key = row_key(at, item);
        self.free_old(item, &key)?;
        self.put(Table::Rows, &key, value);
        if at.generation > FIRST_GENERATION {
            self.put(Table::Changes, &change_key(at, item), Vec::new());
            self.prune(at.tree, item)?;
        }
        Ok(())
    }

    /// Removes an item at a member's generation. Clones go on seeing what they saw.
    pub(crate) fn delete_row(&mut self, at: At, item: Item) -> Result<()> {
        if self.row(at, item)?.is_none() {
            return Ok(());
        }
        self.remove_row(at, item)
    }

    /// The same with an item that is there.
    pub(crate) fn remove_row(&mut self, at: At, item: Item) -> Result<()> {
        if at.generation > FIRST_GENERATION {
            return self.put_row(at, item, Vec::new());
        }
        self.drop_row(at, item)
    }

    /// Removes one version of an item that is there, with what it points to.
    pub(crate) fn drop_row(&mut self, at: At, item: Item) -> Result<()> {
        let key = row_key(at, item);
        self.free_old(item, &key)?;
        self.set(Table::Rows, &key, None);
        if at.generation > FIRST_GENERATION {
            self.delete(Table::Changes, &change_key(at, item))?;
        }
        Ok(())
    }

    /// Removes the versions of an item that no live member of the tree sees.
    pub(crate) fn prune(&mut self, tree: u64, item: Item) -> Result<()> {
        let live = self.live(tree)?;
        let from = At {
            tree,
            generation: 0,
        };
        let mut versions = Vec::new();
        for row in self.scan(Table::Rows, &row_key(from, item))? {
            let (key, value) = row?;
            match split_row_key(key) {
                Some((at, same)) if at.tree == tree && same == item => {
                    versions.push((at.generation, value.is_empty()));
                }
                _ => break,
            }
        }
        let mut older = false;
        for (index, &(generation, gone)) in versions.iter().enumerate() {
            let next = versions.get(index + 1).map(|(next, _)| *next);
            let from = live.partition_point(|member| *member < generation);
            let seen = live
                .get(from)
                .is_some_and(|member| next.is_none_or(|next| *member < next));
            // A mark that the item is gone is of use only above a version that is kept.
            if seen && (older || !gone) {
                older = true;
            } else {
                self.drop_row(At { tree, generation }, item)?;
            }
        }
        Ok(())
    }

    /// Keeps a generation from being pruned.
    pub(crate) fn hold(&mut self, at: At) -> Hold {
        self.members = None;
        self.env().holds().hold(at)
    }

    /// Generations of a tree's members whose rows count, in order.
    pub(crate) fn live(&mut self, tree: u64) -> Result<Vec<u32>> {
        if let Some((same, live)) = &self.members
            && *same == tree
        {
            return Ok(live.clone());
        }
        let members = self.members(tree)?;
        let mut live: Vec<u32> = members
            .into_iter()
            .filter(|(_, _, state)| *state != MemberState::Shade)
            .map(|(generation, _, _)| generation)
            .collect();
        let held = self.env().holds().generations(tree);
        if !held.is_empty() {
            live.extend(held);
            live.sort_unstable();
        }
        self.members = Some((tree, live.clone()));
        Ok(live)
    }

    /// Gives up what the row of an item points to, before the row changes.
    fn free_old(&mut self, item: Item, key: &[u8]) -> Result<()> {
        if item.kind != Kind::Record {
            return Ok(());
        }
        let old = self
            .get(Table::Rows, key)?
            .filter(|value| !value.is_empty());
        let Some(old) = old.map(Record::from_bytes) else {
            return Ok(());
        };
        match old {
            Some(Record::Extent(extent)) => self.free(&extent),
            Some(Record::Inline { .. }) => Ok(()),
            None => Err(self.env().corrupt("a record that is to be freed")),
        }
    }

    /// Gives up one reference to a record; the last one makes its bytes dead.
    pub(crate) fn free(&mut self, extent: &Extent) -> Result<()> {
        let key = dead_key(extent.segment, extent.offset);
        if let Some(count) = self.shared(extent)? {
            match count {
                0 | 1 => self.delete(Table::Shared, &key)?,
                more => self.put(Table::Shared, &key, (more - 1).to_be_bytes().to_vec()),
            }
            return Ok(());
        }
        if let Some(hash) = self.get(Table::DedupKeys, &key)?.map(<[u8]>::to_vec) {
            self.delete(Table::Dedup, &hash)?;
            self.delete(Table::DedupKeys, &key)?;
        }
        let delta = self.segments.entry(extent.segment).or_default();
        delta.live -= i64::from(extent.stored);
        self.put(Table::Dead, &key, extent.stored.to_be_bytes().to_vec());
        Ok(())
    }

    /// Makes the bytes of a record that is not to be used dead.
    pub(crate) fn discard(&mut self, extent: &Extent) -> Result<()> {
        self.take(extent);
        self.free(extent)
    }

    /// How many references to a record there are beyond the first, if any.
    fn shared(&self, extent: &Extent) -> Result<Option<u32>> {
        let key = dead_key(extent.segment, extent.offset);
        let Some(value) = self.get(Table::Shared, &key)? else {
            return Ok(None);
        };
        let count = value
            .try_into()
            .map_err(|_| self.env().corrupt("a count of references"))?;
        Ok(Some(u32::from_be_bytes(count)))
    }

    /// Counts one more reference to a record's bytes.
    pub(crate) fn share(&mut self, extent: &Extent) -> Result<()> {
        let count = self.shared(extent)?.unwrap_or(0) + 1;
        let key = dead_key(extent.segment, extent.offset);
        self.put(Table::Shared, &key, count.to_be_bytes().to_vec());
        Ok(())
    }
}

/// The generation a tree begins with. Its rows need no entries in the list of changes: they are
/// looked for only between two members, the older of which is at least this old.
pub(crate) const FIRST_GENERATION: u32 = 1;
