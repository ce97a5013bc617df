//! Scrubbing: reading all there is, slowly enough not to be in the way.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::report::{CheckReport, Problem, ProblemKind, Problems, Progress, Stage};
use super::whereabouts::{RecordOwner, owners};
use super::{STEP, skip_damaged};
use crate::error::{Result, StoreError};
use crate::meta::{At, Item, Record, Rows, SegmentRow, Table, row_key, split_row_key};
use crate::partition::{Partition, Reader};
use crate::segment::{Extent, MAX_RECORD, unpack};

/// A view of the database is kept no longer than this.
const VIEW: Duration = Duration::from_millis(100);
/// References to records that are sorted at once: about 40 bytes each.
const PIECE: usize = 2_000_000;
/// Between two reports of progress.
const TELL: Duration = Duration::from_millis(100);

/// How a scrub goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Bytes of records read in a second at most; by default as fast as it goes.
    pub octets_per_second: Option<u64>,
    /// Most bad records, and most bad rows, that are listed; the rest is counted.
    pub limit: usize,
}

impl Default for ScrubOptions {
    fn default() -> Self {
        Self {
            octets_per_second: None,
            limit: 1_000,
        }
    }
}

/// A record that cannot be read, or not as what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadRecord {
    /// The segment it is in.
    pub segment: u32,
    /// Where it begins there.
    pub offset: u32,
    /// Bytes it takes there.
    pub length: u32,
    /// Why it cannot be read.
    pub why: String,
    /// The files it belongs to, as far as they are found.
    pub owners: Vec<RecordOwner>,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            segment,
            offset,
            length,
            why,
            owners,
        } = self;
        write!(f, "segment {segment}, {length} bytes at {offset}: {why}")?;
        for owner in owners {
            write!(f, "; {owner}")?;
        }
        Ok(())
    }
}

/// What a scrub found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScrubReport {
    /// Rows of the database that are damaged: the first of them.
    pub problems: Vec<Problem>,
    /// How many rows are damaged.
    pub problem_count: u64,
    /// Records that cannot be read: the first of them.
    pub bad_records: Vec<BadRecord>,
    /// How many records cannot be read.
    pub bad_record_count: u64,
    /// Rows of the database verified.
    pub rows: u64,
    /// Records read.
    pub records: u64,
    /// Bytes they take.
    pub octets: u64,
    /// It was ended before all was read.
    pub cancelled: bool,
}

impl ScrubReport {
    /// Whether nothing that was read is damaged.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problem_count == 0 && self.bad_record_count == 0
    }
}

impl Partition {
    /// Reads and verifies all rows and all records, the latter in the order they lie in on the
    /// disk. The partition can be in use meanwhile; nothing is held up for longer than a moment.
    /// Records that are written or given up while it runs may or may not be read.
    ///
    /// `progress` is asked several times a second whether to go on.
    ///
    /// # Errors
    ///
    /// Only if it cannot go on: the database fails. What is damaged is in the report.
    pub fn scrub(
        &self,
        options: &ScrubOptions,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<ScrubReport> {
        let mut scrub = Scrub {
            partition: self,
            pace: Pace::new(options.octets_per_second),
            limit: options.limit,
            problems: Problems::new(options.limit),
            report: ScrubReport::default(),
            progress,
            told: None,
            total: 0,
        };
        let ended = scrub.all()?;
        let Scrub {
            problems,
            mut report,
            ..
        } = scrub;
        report.problem_count = problems.count;
        report.problems = problems.listed;
        report.cancelled = ended.is_break();
        Ok(report)
    }
}

/// Reads the data for a check, which has looked at the rows already.
pub(super) fn verify_data(
    partition: &Partition,
    problems: &mut Problems,
    report: &mut CheckReport,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    let room = problems.room();
    let mut tell = |at: Progress| {
        if at.stage == Stage::Data {
            progress(at);
        }
        ControlFlow::Continue(())
    };
    let options = ScrubOptions {
        limit: room,
        ..ScrubOptions::default()
    };
    let scrub = partition.scrub(&options, &mut tell)?;
    report.verified_octets = scrub.octets;
    for problem in scrub.problems {
        // Other damaged rows have been noted.
        if problem.kind == ProblemKind::Data {
            problems.note(problem.kind, problem.volume, || problem.what);
        }
    }
    let listed = scrub.bad_records.len() as u64;
    for bad in scrub.bad_records {
        let volume = bad.owners.first().map(|owner| owner.volume);
        problems.note(ProblemKind::Data, volume, || bad.to_string());
    }
    problems.count += scrub.bad_record_count - listed;
    Ok(())
}

/// Where a record lies, and the row that says so.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    offset: u32,
    stored: u32,
    at: At,
    vnode: u32,
    index: u64,
}

impl Listed {
    fn item(&self) -> Item {
        Item::record(self.vnode, self.index)
    }
}

/// References to records of some segments in a row.
#[derive(Default)]
struct Piece {
    segments: BTreeMap<u32, Vec<Listed>>,
    count: usize,
    /// The first segment that did not fit in.
    next: Option<u32>,
}

impl Piece {
    fn push(&mut self, segment: u32, place: Listed) {
        if self.next.is_some_and(|next| segment >= next) {
            return;
        }
        self.segments.entry(segment).or_default().push(place);
        self.count += 1;
        if self.count > PIECE
            && self.segments.len() > 1
            && let Some((segment, places)) = self.segments.pop_last()
        {
            self.count -= places.len();
            self.next = Some(segment);
        }
    }
}

struct Scrub<'a> {
    partition: &'a Partition,
    pace: Pace,
    limit: usize,
    problems: Problems,
    report: ScrubReport,
    progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    told: Option<Instant>,
    total: u64,
}

type Flow = Result<ControlFlow<()>>;

impl Scrub<'_> {
    fn all(&mut self) -> Flow {
        self.total = 0;
        for table in Table::all() {
            self.total += self.partition.reader()?.count(table)?;
        }
        let mut piece = Piece::default();
        for table in Table::all() {
            if self.table(table, 0, &mut piece, true)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        self.total = self.live_octets()?;
        self.told = None;
        loop {
            let next = piece.next;
            for (segment, places) in piece.segments {
                if self.segment(segment, places)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            let Some(from) = next else { return self.last() };
            piece = Piece::default();
            if self.table(Table::Rows, from, &mut piece, false)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    /// Tells that all is done.
    fn last(&mut self) -> Flow {
        self.told = None;
        // Too late to stop.
        Ok(match self.tell(Stage::Data, self.report.octets) {
            ControlFlow::Continue(()) | ControlFlow::Break(()) => ControlFlow::Continue(()),
        })
    }

    fn tell(&mut self, stage: Stage, done: u64) -> ControlFlow<()> {
        if self.told.is_some_and(|told| told.elapsed() < TELL) {
            return ControlFlow::Continue(());
        }
        self.told = Some(Instant::now());
        let total = self.total;
        (self.progress)(Progress { stage, done, total })
    }

    fn live_octets(&self) -> Result<u64> {
        let reader = self.partition.reader()?;
        let mut octets = 0;
        for row in reader.scan(Table::Segments, &[])? {
            let row = skip_damaged(row)?.and_then(|(_, value)| SegmentRow::from_bytes(value));
            octets += row.map_or(0, |row| row.live);
        }
        Ok(octets)
    }

    /// Goes through a table and collects what lies in segments from `from` on. Damaged rows are
    /// noted the `first` time.
    fn table(&mut self, table: Table, from: u32, piece: &mut Piece, first: bool) -> Flow {
        let mut next = Vec::new();
        loop {
            let reader = self.partition.reader()?;
            let since = Instant::now();
            let mut more = false;
            for (index, row) in reader.scan(table, &next)?.enumerate() {
                self.report.rows += u64::from(first);
                match row {
                    Ok((key, value)) => {
                        self.collect(table, key, value, from, piece, first);
                        if index as u64 % STEP == STEP - 1 && since.elapsed() > VIEW {
                            next = [key, &[0]].concat();
                            more = true;
                            break;
                        }
                    }
                    Err(StoreError::Corrupt { what, .. }) if first => {
                        self.problems.add(ProblemKind::RowChecksum, || what);
                    }
                    Err(StoreError::Corrupt { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            drop(reader);
            if first && self.tell(Stage::Rows, self.report.rows).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if !more {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    fn collect(
        &mut self,
        table: Table,
        key: &[u8],
        value: &[u8],
        from: u32,
        piece: &mut Piece,
        first: bool,
    ) {
        let row = split_row_key(key).filter(|(_, item)| item.kind == crate::meta::Kind::Record);
        let Some((at, item)) = row.filter(|_| table == Table::Rows && !value.is_empty()) else {
            return;
        };
        match Record::from_bytes(value) {
            Some(Record::Extent(extent)) if extent.segment >= from => {
                let place = Listed {
                    offset: extent.offset,
                    stored: extent.stored,
                    at,
                    vnode: item.vnode,
                    index: item.index,
                };
                piece.push(extent.segment, place);
            }
            Some(Record::Inline {
                codec,
                plain,
                stored,
            }) if first => {
                let mut out = Vec::new();
                if plain > MAX_RECORD || unpack(codec, &stored, plain, &mut out).is_err() {
                    self.problems.add(ProblemKind::Data, || {
                        format!("{}: its row holds no record", super::rows::name(at, item))
                    });
                }
            }
            _ => {}
        }
    }

    /// Reads the records of a segment.
    fn segment(&mut self, segment: u32, mut places: Vec<Listed>) -> Flow {
        places.sort_unstable();
        let mut out = Vec::new();
        let mut view: Option<(Reader, Instant)> = None;
        for same in places.chunk_by(|a, b| (a.offset, a.stored) == (b.offset, b.stored)) {
            let wait = self.pace.spend(same[0].stored);
            if !wait.is_zero() {
                view = None;
            }
            if self.pause(wait).is_break() || self.tell(Stage::Data, self.report.octets).is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
            if view
                .as_ref()
                .is_none_or(|(_, since)| since.elapsed() > VIEW)
            {
                // The old one goes first, or the reaper would wait for both.
                drop(view.take());
            }
            let (reader, _) = match &view {
                Some(view) => view,
                None => view.insert((self.partition.reader()?, Instant::now())),
            };
            self.record(reader, segment, same, &mut out)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Waits, and lets itself be interrupted.
    fn pause(&mut self, wait: Duration) -> ControlFlow<()> {
        let end = Instant::now() + wait;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return ControlFlow::Continue(());
            }
            std::thread::sleep(left.min(TELL));
            self.tell(Stage::Data, self.report.octets)?;
        }
    }

    /// Reads one record, if any row still refers to it.
    fn record(
        &mut self,
        reader: &Reader,
        segment: u32,
        places: &[Listed],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut left = places.iter();
        let Some((extent, first)) = still_there(reader, segment, &mut left)? else {
            return Ok(());
        };
        self.report.records += 1;
        self.report.octets += u64::from(extent.stored);
        let Err(error) = self.partition.segments().read(&extent, out) else {
            return Ok(());
        };
        self.report.bad_record_count += 1;
        if self.report.bad_records.len() >= self.limit {
            return Ok(());
        }
        let mut found = Vec::new();
        let mut next = Some((extent, first));
        while let Some((extent, place)) = next {
            let value = Record::Extent(extent).to_bytes();
            found.extend(owners(reader, place.at.tree, place.item(), &value)?);
            next = still_there(reader, segment, &mut left)?;
        }
        // A file that several versions of its row are of is one.
        found.sort_by_key(|owner| (owner.volume, owner.vnode));
        found.dedup();
        self.report.bad_records.push(BadRecord {
            segment,
            offset: extent.offset,
            length: extent.stored,
            why: error.kind.to_string(),
            owners: found,
        });
        Ok(())
    }
}

/// The next place that its row still refers to.
fn still_there(
    reader: &Reader,
    segment: u32,
    places: &mut std::slice::Iter<'_, Listed>,
) -> Result<Option<(Extent, Listed)>> {
    for place in places {
        let value = reader.get(Table::Rows, &row_key(place.at, place.item()));
        let record = skip_damaged(value)?.flatten().and_then(Record::from_bytes);
        if let Some(Record::Extent(extent)) = record
            && (extent.segment, extent.offset, extent.stored)
                == (segment, place.offset, place.stored)
        {
            return Ok(Some((extent, *place)));
        }
    }
    Ok(None)
}

/// Keeps to a rate, with at most a tenth of a second's worth at once.
struct Pace {
    rate: Option<u64>,
    /// When all that was spent so far is paid for.
    paid: Instant,
}

impl Pace {
    fn new(rate: Option<u64>) -> Self {
        Self {
            rate: rate.filter(|rate| *rate > 0),
            paid: Instant::now(),
        }
    }

    /// How long to wait before so many bytes are read.
    fn spend(&mut self, octets: u32) -> Duration {
        let Some(rate) = self.rate else {
            return Duration::ZERO;
        };
        let now = Instant::now();
        let nanos = u128::from(octets) * 1_000_000_000 / u128::from(rate);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let wait = self.paid.saturating_duration_since(now);
        let saved = now.checked_sub(VIEW).unwrap_or(now);
        self.paid = self.paid.max(saved) + cost;
        wait
    }
}
