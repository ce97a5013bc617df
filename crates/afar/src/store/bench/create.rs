//! Durable changes a second, and what one fsync for each would allow.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use afar_store::{Partition, PartitionOptions, Volume};
use afar_types::Fid;
use anyhow::anyhow;

use super::data::{new_vnode, new_volume, open};
use super::report::{Figure, Row, permille};
use super::{Bench, progress};

/// Pairs of slices in a run: disks are slower at times, so only neighbours are compared.
const PAIRS: usize = 5;
/// Links are removed again before a slice if a directory has so many.
const LINKS: usize = 5_000;

/// What is done over and over.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Create,
    Rename,
    Link,
    Unlink,
}

const WORKS: [(Work, &str, &str); 4] = [
    (Work::Create, "create", "files created"),
    (Work::Rename, "rename", "files renamed"),
    (Work::Link, "link", "files linked"),
    (Work::Unlink, "unlink", "names removed"),
];

/// A writer in its directory.
struct Writer {
    volume: Volume,
    home: Fid,
    /// The file that is renamed and linked.
    file: Fid,
    /// Files that were created, and are not removed.
    files: std::ops::Range<u32>,
    /// Links that were made, and are not removed.
    links: std::ops::Range<u32>,
    renamed: bool,
}

pub(super) fn run(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let place = bench.place("create")?;
    let path = place.join("partition");
    Partition::init(&path, &PartitionOptions::default())?;
    let partition = open(&path)?;
    let volume = partition.create_volume(&new_volume(1, "work"))?;
    let mut writers = Vec::new();
    for number in 0..bench.sizes.writers {
        writers.push(Writer::new(&volume, number)?);
    }
    let count = writers.len();
    let slice = bench.sizes.slice;
    let pairs = usize::try_from(bench.runs)? * PAIRS;
    let bar = progress("slices", (WORKS.len() * pairs * 2) as u64);
    let mut rows = Vec::new();
    for (work, name, what) in WORKS {
        let (mut syncs, mut rates, mut ratios, mut batch, mut worst) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..pairs {
            for writer in &mut writers {
                writer.make_room()?;
            }
            let sync = sync_rate(&place, slice)?;
            bar.advance(1);
            let before = partition.commit_stats();
            let (rate, times) = rate(&mut writers, work, slice)?;
            bar.advance(1);
            let after = partition.commit_stats();
            let commits = after.commits.saturating_sub(before.commits).max(1);
            let operations = after.operations.saturating_sub(before.operations);
            batch.push(operations as f64 / commits as f64);
            syncs.push(sync);
            rates.push(rate);
            ratios.push(rate / sync);
            worst.push(permille(&times, 990));
        }
        let title = format!("{what}, durable, {count} writers");
        rows.push(
            Row::new(name, title)
                .with(Figure::new(what, "1/s", rates))
                .with(Figure::new(
                    "appends of 4 KiB with fdatasync, one thread",
                    "1/s",
                    syncs,
                ))
                .with(Figure::new("ratio", "×", ratios).at_least(5.0))
                .with(Figure::new("in a commit", "", batch))
                .with(Figure::new("99 of 100 within", "ms", worst)),
        );
    }
    Ok(rows)
}

/// Appends and syncs a second, by one who does nothing else.
fn sync_rate(dir: &Path, slice: Duration) -> anyhow::Result<f64> {
    let path = dir.join("appended");
    let mut file = File::create(&path)?;
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < slice {
        file.write_all(&[0x5a; 4096])?;
        file.sync_data()?;
        count += 1;
    }
    let rate = f64::from(count) / start.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    Ok(rate)
}

/// Changes a second by all writers, and how long each took, in milliseconds.
fn rate(writers: &mut [Writer], work: Work, slice: Duration) -> anyhow::Result<(f64, Vec<f64>)> {
    let start = Instant::now();
    let times = thread::scope(|scope| {
        let running: Vec<_> = writers
            .iter_mut()
            .map(|writer| scope.spawn(move || writer.go_on(work, start + slice)))
            .collect();
        let mut times = Vec::new();
        for writer in running {
            times.extend(writer.join().map_err(|_| anyhow!("a thread panicked"))??);
        }
        Ok::<_, anyhow::Error>(times)
    })?;
    Ok((times.len() as f64 / start.elapsed().as_secs_f64(), times))
}

impl Writer {
    fn new(volume: &Volume, number: u32) -> anyhow::Result<Self> {
        let name = format!("writer{number}");
        let home = volume.make_directory(volume.root(), name.as_bytes(), &new_vnode())?;
        let home = home.vnode.fid;
        let file = volume.create_file(home, b"file", &new_vnode())?.vnode.fid;
        Ok(Self {
            volume: volume.clone(),
            home,
            file,
            files: 0..0,
            links: 0..0,
            renamed: false,
        })
    }

    fn go_on(&mut self, work: Work, until: Instant) -> anyhow::Result<Vec<f64>> {
        let mut times = Vec::new();
        while Instant::now() < until {
            if work == Work::Unlink && self.links.is_empty() && self.files.is_empty() {
                self.once(Work::Create)?;
            }
            let start = Instant::now();
            self.once(work)?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times)
    }

    /// Removes links if there are many.
    fn make_room(&mut self) -> anyhow::Result<()> {
        if self.links.len() >= LINKS {
            while !self.links.is_empty() {
                self.once(Work::Unlink)?;
            }
        }
        Ok(())
    }

    fn once(&mut self, work: Work) -> anyhow::Result<()> {
        let (volume, home) = (&self.volume, self.home);
        match work {
            Work::Create => {
                let name = format!("f{}", self.files.end);
                volume.create_file(home, name.as_bytes(), &new_vnode())?;
                self.files.end += 1;
            }
            Work::Rename => {
                let names: [&[u8]; 2] = [b"file", b"another name"];
                let (from, to) = (
                    names[usize::from(self.renamed)],
                    names[usize::from(!self.renamed)],
                );
                volume.rename(home, from, home, to)?;
                self.renamed = !self.renamed;
            }
            Work::Link => {
                let name = format!("l{}", self.links.end);
                volume.link(home, name.as_bytes(), self.file)?;
                self.links.end += 1;
            }
            Work::Unlink => {
                let (prefix, names) = if self.links.is_empty() {
                    ('f', &mut self.files)
                } else {
                    ('l', &mut self.links)
                };
                let name = format!("{prefix}{}", names.start);
                volume.remove_file(home, name.as_bytes())?;
                names.start += 1;
            }
        }
        Ok(())
    }
}
