//! What a disk may hold after power was lost.
//!
//! A file system promises that what fsync or fdatasync covered is there. Of the rest:
//!
//! - A file's pages go to disk in any order, each at any time: afterwards a page holds what it did
//!   after some number of the writes to it since the last sync. A page that was on its way when
//!   power was lost is mixed by sectors from two such states.
//! - A file's length is the last synced one or any it had since. It may be there without its data
//!   (zeros then) or the data without it (cut off then).
//! - A write through an `O_DSYNC` descriptor is there when it has returned, with the length it needs.
//! - Names are there when their directory was synced. Those changed since are changed or not, each
//!   for itself in the worst case, in order in the usual one; several changes of one name keep their
//!   order, and a rename happens wholly or not at all.
//! - What a failed sync was to write is gone.
//!
//! The sector is what a disk writes whole.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::Path;

use fastrand::Rng;

use crate::content::Content;
use crate::event::{Event, Kind, NodeId, Tree};
use crate::recorder::Log;

const SECTOR: u64 = 512;
const PAGE: u64 = 4096;

/// A file since its last sync.
#[derive(Clone, Debug, Default)]
struct Unsynced {
    /// Of each page, the events that changed it, oldest first.
    pages: BTreeMap<u64, Vec<usize>>,
    /// The lengths the file had, and the events that gave them.
    lengths: Vec<(usize, u64)>,
}

/// Walks through a log from sync to sync and tells what may be on disk at each point.
pub(crate) struct PowerCut<'log> {
    log: &'log Log,
    point: usize,
    disk: Tree,
    files: BTreeMap<NodeId, Unsynced>,
    /// Changes of names that no sync of a directory covers yet.
    names: Vec<usize>,
}

impl<'log> PowerCut<'log> {
    pub(crate) fn new(log: &'log Log) -> Self {
        let disk = log.base.clone();
        Self {
            log,
            point: 0,
            disk,
            files: BTreeMap::new(),
            names: Vec::new(),
        }
    }

    /// Writes to an empty directory what may be on disk when power is lost after the first `point`
    /// events, while the next is under way. Points must not decrease from call to call.
    pub(crate) fn image(&mut self, point: usize, seed: u64, to: &Path) -> io::Result<()> {
        assert!(
            self.point <= point && point <= self.log.len(),
            "points go forward"
        );
        while self.point < point {
            self.pass(self.point);
            self.point += 1;
        }
        let mut files = self.files.clone();
        let mut names = self.names.clone();
        // The event under way is like those before it that nothing has synced.
        if let Some(event) = self.log.events.get(point) {
            match event.changes() {
                Some(file) => self.change(point, files.entry(file).or_default()),
                None if !event.names().is_empty() => names.push(point),
                None => {}
            }
        }
        let pages = files.values().flat_map(|unsynced| unsynced.pages.values());
        let oldest = pages
            .flatten()
            .chain(&names)
            .min()
            .copied()
            .unwrap_or(point);
        let mut draw = Draw::new(seed, oldest, point);
        let mut tree = self.disk.clone();
        self.lose_names(&names, &mut tree, &mut draw);
        for (file, unsynced) in &files {
            let content = tree.files.entry(*file).or_default();
            self.lose_data(unsynced, content, &mut draw);
        }
        tree.save(&self.log.kinds, to)
    }

    /// An event has happened.
    fn pass(&mut self, number: usize) {
        let log = self.log;
        match &log.events[number] {
            Event::Write {
                file,
                offset,
                data,
                synced: true,
            } => {
                let range = *offset..offset + data.len() as u64;
                self.sync_range(*file, range, number);
            }
            Event::Sync { node, covers } if log.kind(*node) == Kind::Directory => {
                self.sync_names(*node, *covers);
            }
            Event::Sync { node, covers } => self.sync_file(*node, *covers),
            Event::SyncFailed { node } => {
                if let Some(unsynced) = self.files.get_mut(node) {
                    unsynced.pages.clear();
                }
            }
            event if !event.names().is_empty() => self.names.push(number),
            event => {
                if let Some(file) = event.changes() {
                    let mut unsynced = self.files.remove(&file).unwrap_or_default();
                    self.change(number, &mut unsynced);
                    self.files.insert(file, unsynced);
                }
            }
        }
    }

    /// Adds an event to those no sync covers.
    fn change(&self, number: usize, unsynced: &mut Unsynced) {
        let event = &self.log.events[number];
        let file = event.changes().expect("called for changes of files");
        let stored = self.disk.files.get(&file);
        let len = unsynced.lengths.last().map(|(_, len)| *len);
        let len = len.unwrap_or_else(|| stored.map_or(0, Content::len));
        let (touched, new_len) = match event {
            Event::Write { offset, data, .. } => {
                let end = offset + data.len() as u64;
                for page in offset / PAGE..end.div_ceil(PAGE) {
                    unsynced.pages.entry(page).or_default().push(number);
                }
                (0..0, len.max(end))
            }
            Event::Truncate { len, .. } => (*len..u64::MAX, *len),
            Event::Extend { len: end, .. } => (0..0, len.max(*end)),
            Event::Zero {
                offset, len: zeros, ..
            } => (*offset..offset + zeros, len),
            _ => (0..0, len),
        };
        // What is zero already cannot become so.
        if !touched.is_empty() {
            let touched = touched.start / PAGE..touched.end.div_ceil(PAGE);
            let mut pages: BTreeSet<u64> = unsynced
                .pages
                .range(touched.clone())
                .map(|(page, _)| *page)
                .collect();
            for range in stored.into_iter().flat_map(Content::ranges) {
                let start = (range.start / PAGE).max(touched.start);
                pages.extend(start..(range.end / PAGE).min(touched.end));
            }
            for page in pages {
                unsynced.pages.entry(page).or_default().push(number);
            }
        }
        if new_len != len {
            unsynced.lengths.push((number, new_len));
        }
    }

    /// A sync of a file has returned.
    fn sync_file(&mut self, file: NodeId, covers: usize) {
        let content = self.disk.files.entry(file).or_default();
        let Some(unsynced) = self.files.get_mut(&file) else {
            return;
        };
        unsynced.pages.retain(|page, events| {
            let covered = events.partition_point(|event| *event < covers);
            for number in events.drain(..covered) {
                replay(&self.log.events[number], content, page_range(*page));
            }
            !events.is_empty()
        });
        let lengths = &mut unsynced.lengths;
        let covered = lengths.partition_point(|(event, _)| *event < covers);
        if let Some((_, len)) = lengths.drain(..covered).next_back() {
            content.set_len(len);
        }
    }

    /// A synced write has returned: the pages it touched are on disk, and the length it needs.
    fn sync_range(&mut self, file: NodeId, range: Range<u64>, number: usize) {
        let content = self.disk.files.entry(file).or_default();
        let unsynced = self.files.entry(file).or_default();
        for page in range.start / PAGE..range.end.div_ceil(PAGE) {
            for earlier in unsynced.pages.remove(&page).into_iter().flatten() {
                replay(&self.log.events[earlier], content, page_range(page));
            }
        }
        replay(&self.log.events[number], content, 0..u64::MAX);
        if range.end > content.len() {
            content.set_len(range.end);
            unsynced.lengths.retain(|(_, len)| *len > range.end);
        }
    }

    /// A sync of a directory has returned: its names are on disk, and whatever changes of other
    /// names they need.
    fn sync_names(&mut self, dir: NodeId, covers: usize) {
        let mut needed: BTreeSet<(NodeId, &str)> = BTreeSet::new();
        let mut covered = BTreeSet::new();
        let earlier = self.names.iter().filter(|number| **number < covers);
        for number in earlier.rev() {
            let names = self.log.events[*number].names();
            if names
                .iter()
                .any(|name| name.0 == dir || needed.contains(name))
            {
                needed.extend(names);
                covered.insert(*number);
            }
        }
        for number in &covered {
            self.disk.apply_names(&self.log.events[*number]);
        }
        self.names.retain(|number| !covered.contains(number));
    }

    /// Keeps or loses the changes of names.
    fn lose_names(&self, names: &[usize], tree: &mut Tree, draw: &mut Draw) {
        let mut lost: BTreeSet<(NodeId, &str)> = BTreeSet::new();
        for number in names {
            let event = &self.log.events[*number];
            let names = event.names();
            if names.iter().any(|name| lost.contains(name)) || !draw.name_kept(*number) {
                lost.extend(names);
            } else {
                tree.apply_names(event);
            }
        }
    }

    /// Gives each page of a file the state it may have.
    fn lose_data(&self, unsynced: &Unsynced, content: &mut Content, draw: &mut Draw) {
        for (page, events) in &unsynced.pages {
            let (kept, other) = draw.states(events);
            let range = page_range(*page);
            if kept == other {
                for number in &events[..kept] {
                    replay(&self.log.events[*number], content, range.clone());
                }
                continue;
            }
            for sector in range.step_by(index(SECTOR)) {
                let kept = if draw.rng.bool() { kept } else { other };
                for number in &events[..kept] {
                    replay(&self.log.events[*number], content, sector..sector + SECTOR);
                }
            }
        }
        if let Some(last) = draw.length(&unsynced.lengths).checked_sub(1) {
            content.set_len(unsynced.lengths[last].1);
        }
    }
}

/// How much of what no sync covers is kept.
#[derive(Clone, Copy, Debug)]
enum Mood {
    Nothing,
    Everything,
    /// What was done before this event, nothing from it on.
    Before(usize),
    /// So many of a hundred pages and names, each by chance.
    Scattered(u8),
}

/// The choices of one image.
struct Draw {
    rng: Rng,
    mood: Mood,
    /// The event under way; it may happen in part whatever the mood.
    under_way: usize,
}

impl Draw {
    fn new(seed: u64, oldest: usize, under_way: usize) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mood = match rng.u8(0..8) {
            0 => Mood::Nothing,
            1 => Mood::Everything,
            2 | 3 => Mood::Before(rng.usize(oldest..=under_way)),
            4 => Mood::Scattered(10),
            5 => Mood::Scattered(90),
            _ => Mood::Scattered(50),
        };
        Self {
            rng,
            mood,
            under_way,
        }
    }

    /// Of the events that changed a page, how many are kept; and how many in those sectors that
    /// differ, if the page is torn.
    fn states(&mut self, events: &[usize]) -> (usize, usize) {
        let all = events.len();
        if events.last() == Some(&self.under_way) && self.rng.bool() {
            return (self.rng.usize(0..=all), self.rng.usize(all - 1..=all));
        }
        let kept = match self.mood {
            Mood::Nothing => 0,
            Mood::Everything => all,
            Mood::Before(cut) => events.partition_point(|event| *event < cut),
            Mood::Scattered(kept) if self.rng.u8(0..100) < kept => all,
            Mood::Scattered(_) => self.rng.usize(0..all),
        };
        let torn = matches!(self.mood, Mood::Scattered(_)) && self.rng.u8(0..8) == 0;
        (kept, if torn { self.rng.usize(0..=all) } else { kept })
    }

    fn name_kept(&mut self, event: usize) -> bool {
        match self.mood {
            _ if event == self.under_way => self.rng.bool(),
            Mood::Nothing => false,
            Mood::Everything => true,
            Mood::Before(cut) => event < cut,
            Mood::Scattered(kept) => self.rng.u8(0..100) < kept,
        }
    }

    /// How many of a file's changes of length are kept.
    fn length(&mut self, lengths: &[(usize, u64)]) -> usize {
        match self.mood {
            Mood::Nothing => 0,
            Mood::Everything => lengths.len(),
            Mood::Before(cut) => lengths.partition_point(|(event, _)| *event < cut),
            Mood::Scattered(_) => self.rng.usize(0..=lengths.len()),
        }
    }
}

/// Does to a range of a file's bytes what an event did, leaving its length.
fn replay(event: &Event, content: &mut Content, range: Range<u64>) {
    match event {
        Event::Write { offset, data, .. } => {
            let end = offset + data.len() as u64;
            let (from, to) = (range.start.max(*offset), range.end.min(end));
            if from < to {
                content.write(from, &data[index(from - offset)..index(to - offset)]);
            }
        }
        Event::Truncate { len, .. } => content.zero(range.start.max(*len)..range.end),
        Event::Zero { offset, len, .. } => {
            content.zero(range.start.max(*offset)..range.end.min(offset + len));
        }
        _ => {}
    }
}

fn page_range(page: u64) -> Range<u64> {
    page * PAGE..(page + 1) * PAGE
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("a 64-bit machine")
}
