//! Segments: what records take, what is dead or free, and what nothing is known of.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use super::{Check, ProblemKind, Stage};
use crate::error::Result;
use crate::meta::{Rows, SegmentRow, Table, dead_key, split_dead_key};
use crate::segment::{BLOCK, Extent};

/// Bytes of a segment.
pub(super) type Stretch = (u32, Range<u64>);

/// All references to records in segments, in 16 bytes each.
#[derive(Default)]
pub(super) struct Extents {
    list: Vec<Reference>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Reference {
    segment: u32,
    offset: u32,
    stored: u32,
    /// A hash of the whole extent: references to one record agree in it.
    tag: u32,
}

impl Reference {
    fn of(extent: &Extent) -> Self {
        let [a, b, c, d, ..] = xxh3_64(&extent.to_bytes()).to_be_bytes();
        Self {
            segment: extent.segment,
            offset: extent.offset,
            stored: extent.stored,
            tag: u32::from_be_bytes([a, b, c, d]),
        }
    }
}

impl Extents {
    pub(super) fn push(&mut self, extent: &Extent) {
        self.list.push(Reference::of(extent));
    }

    fn of(&self, segment: u32) -> &[Reference] {
        let from = self.list.partition_point(|place| place.segment < segment);
        let to = self.list.partition_point(|place| place.segment <= segment);
        &self.list[from..to]
    }
}

/// What a stretch of a segment is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Live,
    Dead,
    Free,
}

impl Use {
    fn name(self) -> &'static str {
        match self {
            Self::Live => "a record",
            Self::Dead => "a dead stretch",
            Self::Free => "a free stretch",
        }
    }
}

/// All there is to a segment.
struct Segment {
    number: u32,
    row: SegmentRow,
    used: Vec<(Range<u64>, Use)>,
    live: u64,
}

impl Check<'_> {
    /// Compares records with segments. Returns what is lost of `quiet` segments, which are sorted.
    pub(super) fn space(&mut self, mut extents: Extents, quiet: &[u32]) -> Result<Vec<Stretch>> {
        extents.list.sort_unstable();
        self.known(&extents)?;
        let numbers = self.segment_numbers(&extents)?;
        let mut lost = Vec::new();
        self.report.segments = numbers.len() as u64;
        for (done, &number) in numbers.iter().enumerate() {
            self.tell(Stage::Space, done as u64, numbers.len() as u64);
            let of = extents.of(number);
            let mut segment = Segment {
                number,
                row: self.segment_row(number)?,
                used: Vec::with_capacity(of.len()),
                live: 0,
            };
            self.records(&mut segment, of)?;
            self.file(&segment);
            for (table, usage) in [(Table::Dead, Use::Dead), (Table::Free, Use::Free)] {
                for (offset, value) in self.of_segment(table, number)? {
                    let range = u64::from(offset)..u64::from(offset) + u64::from(value);
                    let len = range.end - range.start;
                    match usage {
                        Use::Dead => self.report.dead_octets += len,
                        _ => self.report.free_octets += len,
                    }
                    segment.used.push((range, usage));
                }
            }
            self.live(&segment);
            let gaps = self.gaps(segment);
            if quiet.binary_search(&number).is_ok() {
                lost.extend(gaps.into_iter().map(|gap| (number, gap)));
            }
        }
        Ok(lost)
    }

    /// Records that are known by a hash have to be there, and to know it.
    fn known(&mut self, extents: &Extents) -> Result<()> {
        for row in self.reader.scan(Table::Dedup, &[])? {
            let Some((key, value)) = super::skip_damaged(row)? else {
                continue;
            };
            let (Ok(extent), 16) = (Extent::from_bytes(value), key.len()) else {
                self.malformed(|| format!("a record known by its hash (key {key:02x?})"));
                continue;
            };
            let (segment, offset) = (extent.segment, extent.offset);
            let back = self
                .reader
                .get(Table::DedupKeys, &dead_key(segment, offset));
            let back = super::skip_damaged(back)?;
            if extents.list.binary_search(&Reference::of(&extent)).is_err()
                || back.is_some_and(|back| back != Some(key))
            {
                self.problems.add(ProblemKind::Segment, || {
                    format!("segment {segment}: what is known by a hash at {offset} is not there")
                });
            }
        }
        Ok(())
    }

    /// Numbers of all segments anything is said of.
    fn segment_numbers(&self, extents: &Extents) -> Result<BTreeSet<u32>> {
        let mut numbers: BTreeSet<u32> = extents.list.iter().map(|place| place.segment).collect();
        for row in self.reader.scan(Table::Segments, &[])? {
            if let Some((key, _)) = super::skip_damaged(row)? {
                numbers.extend(key.try_into().map(u32::from_be_bytes));
            }
        }
        for table in [Table::Dead, Table::Free, Table::Shared] {
            let mut next = Some(0_u32);
            while let Some(number) = next {
                let mut rows = self.reader.scan(table, &number.to_be_bytes())?;
                let mut found = None;
                while let Some(row) = rows.next().map(super::skip_damaged).transpose()? {
                    if let Some((key, _)) = row {
                        found = split_dead_key(key);
                        break;
                    }
                }
                numbers.extend(found.map(|(segment, _)| segment));
                next = found.and_then(|(segment, _)| segment.checked_add(1));
            }
        }
        Ok(numbers)
    }

    fn segment_row(&mut self, number: u32) -> Result<SegmentRow> {
        let value = super::skip_damaged(self.reader.get(Table::Segments, &number.to_be_bytes()))?;
        match value {
            // Told already that it is damaged.
            None => {}
            Some(None) => self.problems.add(ProblemKind::Segment, || {
                format!("segment {number} is used and has no row")
            }),
            Some(Some(value)) => match SegmentRow::from_bytes(value) {
                Some(row) => return Ok(row),
                None => self.malformed(|| format!("row of segment {number}")),
            },
        }
        Ok(SegmentRow::default())
    }

    /// The rows of a table of stretches that are of one segment: offset and number.
    fn of_segment(&mut self, table: Table, segment: u32) -> Result<Vec<(u32, u32)>> {
        let mut found = Vec::new();
        for row in self.reader.scan(table, &dead_key(segment, 0))? {
            let Some((key, value)) = super::skip_damaged(row)? else {
                continue;
            };
            let (Some((same, offset)), Ok(value)) = (split_dead_key(key), value.try_into()) else {
                self.malformed(|| format!("a row of {table:?} (key {key:02x?})"));
                continue;
            };
            if same != segment {
                break;
            }
            found.push((offset, u32::from_be_bytes(value)));
        }
        Ok(found)
    }

    /// Takes in the records of a segment, each once, and compares how often each is referred to.
    fn records(&mut self, segment: &mut Segment, places: &[Reference]) -> Result<()> {
        let number = segment.number;
        let mut shared: BTreeMap<u32, u32> = self
            .of_segment(Table::Shared, number)?
            .into_iter()
            .collect();
        for same in places.chunk_by(|a, b| a == b) {
            let place = same[0];
            let range = u64::from(place.offset)..u64::from(place.offset) + u64::from(place.stored);
            segment.live += u64::from(place.stored);
            self.report.records += 1;
            segment.used.push((range, Use::Live));
            let counted = u64::from(shared.remove(&place.offset).unwrap_or(0)) + 1;
            if counted != same.len() as u64 {
                self.problems.add(ProblemKind::Segment, || {
                    format!(
                        "segment {number}: the record at {} has {} references, but {counted} are \
                         counted",
                        place.offset,
                        same.len()
                    )
                });
            }
        }
        self.report.live_octets += segment.live;
        for offset in shared.into_keys() {
            self.problems.add(ProblemKind::Segment, || {
                format!("segment {number}: nothing refers to {offset}, which is to be shared")
            });
        }
        Ok(())
    }

    /// Whether the file is there as far as there are records in it.
    fn file(&mut self, segment: &Segment) {
        let number = segment.number;
        let needed = segment.used.iter().map(|(range, _)| range.end).max();
        // Nobody needs the file of a segment without records: it may be on its way out.
        let Some(needed) = needed else { return };
        match self
            .partition
            .segments()
            .file(number)
            .and_then(|file| file.metadata())
        {
            Ok(metadata) if metadata.len() >= needed => {}
            Ok(metadata) => self.problems.add(ProblemKind::Segment, || {
                let len = metadata.len();
                format!("segment {number}: its file has {len} bytes, but records up to {needed}")
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.problems.add(ProblemKind::Segment, || {
                    format!("segment {number}: its file is missing")
                });
            }
            Err(error) => self.problems.add(ProblemKind::Segment, || {
                format!("segment {number}: its file cannot be opened: {error}")
            }),
        }
    }

    fn live(&mut self, segment: &Segment) {
        let (number, row) = (segment.number, segment.row);
        if segment.live != row.live {
            self.problems.add(ProblemKind::Segment, || {
                format!(
                    "segment {number}: records take {} bytes, but {} are counted",
                    segment.live, row.live
                )
            });
        }
    }

    /// Looks for stretches that overlap or lie behind the end, and returns those between that are
    /// worth giving back.
    fn gaps(&mut self, segment: Segment) -> Vec<Range<u64>> {
        let Segment {
            number,
            row,
            mut used,
            ..
        } = segment;
        let end = u64::from(row.end);
        used.sort_unstable_by_key(|(range, _)| (range.start, range.end));
        let mut gaps = Vec::new();
        let mut last = (0..0, Use::Live);
        for (range, usage) in used {
            if range.start < last.0.end && !range.is_empty() {
                let (what, other) = (usage.name(), last.1.name());
                let (at, before) = (range.start, last.0.start);
                self.problems.add(ProblemKind::Segment, || {
                    format!("segment {number}: {what} at {at} overlaps {other} at {before}")
                });
            }
            if range.end > end {
                self.problems.add(ProblemKind::Segment, || {
                    let what = usage.name();
                    format!(
                        "segment {number}: {what} at {} ends past {end}, the end",
                        range.start
                    )
                });
            }
            self.gap(
                last.0.end..range.start,
                last.1 != Use::Live || usage != Use::Live,
                &mut gaps,
            );
            if range.end > last.0.end {
                last = (range, usage);
            }
        }
        self.gap(last.0.end..end, last.1 != Use::Live, &mut gaps);
        gaps
    }

    /// Takes in a stretch between two others; `joins` if one of them is dead or free.
    fn gap(&mut self, gap: Range<u64>, joins: bool, gaps: &mut Vec<Range<u64>>) {
        if gap.start >= gap.end {
            return;
        }
        self.report.lost_octets += gap.end - gap.start;
        // Less than a block has no hole in it, unless it is joined with others.
        if joins || gap.end - gap.start >= u64::from(BLOCK) {
            gaps.push(gap);
        }
    }
}
