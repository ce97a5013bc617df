//! How small real data becomes, record by record, and how fast.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use afar_store::segment::{Compression, pack, unpack};
use anyhow::{Context, anyhow, bail};

use crate::store::bench::data::Corpus;
use crate::store::bench::report::{Figure, Row};
use crate::store::bench::{Bench, progress};
use crate::store::progress::Progress;
use crate::units::grouped;

/// Bytes of a record of a usual file, and of a large one from [`LARGE`] on, as the store cuts
/// them.
const RECORD: usize = 128 << 10;
const LARGE_RECORD: usize = 1 << 20;
const LARGE: usize = 16 << 20;
/// Records given to gzip, which takes a process for each.
const FOR_GZIP: usize = 1_500;
/// Bytes of gzip's header and trailer beyond those of zlib, which a file system that compresses
/// would write instead.
const WRAPPING: usize = 12;

const CODECS: [&str; 8] = [
    "none", "lz4", "zstd:1", "zstd:3", "zstd:4", "zstd:5", "zstd:6", "zstd:9",
];

pub(in crate::store::bench) fn run(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let place = bench.place("compress-ratio")?;
    let mut rows = Vec::new();
    for source in &bench.sizes.sources {
        let corpus = Corpus::collect(source, bench.sizes.data)?;
        rows.push(measure(&corpus, &place)?);
    }
    if rows.is_empty() {
        rows.push(Row::new("compress-ratio", "real data").skipped("no --sources to take it from"));
    }
    Ok(rows)
}

/// What one way of compressing made of the data.
#[derive(Debug, Default)]
struct Sum {
    plain: u64,
    stored: u64,
    packing: Duration,
    unpacking: Duration,
}

impl Sum {
    fn ratio(&self) -> f64 {
        self.plain as f64 / self.stored.max(1) as f64
    }

    fn rate(&self, time: Duration) -> f64 {
        self.plain as f64 / 1e6 / time.as_secs_f64().max(1e-9)
    }
}

fn measure(corpus: &Corpus, place: &Path) -> anyhow::Result<Row> {
    let compressions: Vec<Compression> = CODECS
        .iter()
        .map(|codec| codec.parse())
        .collect::<Result<_, _>>()?;
    let default = Compression::default();
    let mut sums: Vec<Sum> = CODECS.iter().map(|_| Sum::default()).collect();
    let mut records = 0;
    let mut sample: Vec<Vec<u8>> = Vec::new();
    let every = every(corpus)?;
    let bar = Progress::of_octets(0);
    bar.tell("compress");
    for path in &corpus.files {
        let Ok(data) = fs::read(path) else { continue };
        for record in data.chunks(record_len(data.len())) {
            for (sum, compression) in sums.iter_mut().zip(&compressions) {
                sum.add(record, *compression)?;
            }
            if records % every == 0 {
                sample.push(record.to_vec());
            }
            records += 1;
        }
        bar.advance(data.len() as u64);
    }
    drop(bar);
    let title = format!(
        "{}: {} bytes of {} files in {} records",
        corpus.name,
        grouped(sums[0].plain),
        grouped(corpus.files.len() as u64),
        grouped(records as u64)
    );
    let slug = corpus
        .name
        .trim_matches(['/', '~', '.'])
        .replace(['/', '.'], "-");
    let mut row = Row::new(format!("compress-ratio-{slug}"), title);
    for (codec, sum) in CODECS.iter().zip(&sums) {
        row = row
            .with(Figure::new(
                format!("{codec}, ratio"),
                "×",
                vec![sum.ratio()],
            ))
            .with(Figure::new(
                format!("{codec}, in"),
                "MB/s",
                vec![sum.rate(sum.packing)],
            ))
            .with(Figure::new(
                format!("{codec}, out"),
                "MB/s",
                vec![sum.rate(sum.unpacking)],
            ));
    }
    let gzip = match gzip(&sample, place) {
        Ok(gzip) => gzip,
        Err(error) => return Ok(row.skipped(format!("gzip -6: {error:#}"))),
    };
    let mut ours = Sum::default();
    for record in &sample {
        ours.add(record, default)?;
    }
    Ok(row
        .with(Figure::new(
            "gzip -6 (of a sample), ratio",
            "×",
            vec![gzip.ratio()],
        ))
        .with(Figure::new(
            "gzip -6, in",
            "MB/s",
            vec![gzip.rate(gzip.packing)],
        ))
        .with(Figure::new(
            "gzip -6, out",
            "MB/s",
            vec![gzip.rate(gzip.unpacking)],
        ))
        .with(Figure::new(
            format!("{default} of the sample, ratio"),
            "×",
            vec![ours.ratio()],
        ))
        .with(
            Figure::new(
                format!("{default} to gzip -6, ratios"),
                "×",
                vec![ours.ratio() / gzip.ratio()],
            )
            .at_least(1.0),
        ))
}

fn record_len(file: usize) -> usize {
    if file >= LARGE { LARGE_RECORD } else { RECORD }
}

/// One record of so many is given to gzip.
fn every(corpus: &Corpus) -> anyhow::Result<usize> {
    let mut records = 0;
    for path in &corpus.files {
        let len = fs::metadata(path).map_or(0, |metadata| metadata.len());
        let len = usize::try_from(len)?;
        records += len.div_ceil(record_len(len));
    }
    Ok(records.div_ceil(FOR_GZIP).max(1))
}

impl Sum {
    fn add(&mut self, record: &[u8], compression: Compression) -> anyhow::Result<()> {
        let start = Instant::now();
        let packed = pack(record, compression);
        self.packing += start.elapsed();
        self.plain += record.len() as u64;
        self.stored += packed.bytes().len() as u64;
        let mut out = Vec::with_capacity(record.len());
        let start = Instant::now();
        unpack(packed.codec(), packed.bytes(), packed.plain_len(), &mut out)?;
        self.unpacking += start.elapsed();
        if out != record {
            bail!("a record is not what it was, after {compression}");
        }
        Ok(())
    }
}

/// The same by gzip: each record by itself for the ratio, all together for the speed.
fn gzip(sample: &[Vec<u8>], place: &Path) -> anyhow::Result<Sum> {
    let mut sum = Sum::default();
    let bar = progress("gzip -6", sample.len() as u64);
    for record in sample {
        let packed = through_gzip(record)?;
        sum.plain += record.len() as u64;
        sum.stored += packed.saturating_sub(WRAPPING).min(record.len()) as u64;
        bar.advance(1);
    }
    let (plain, packed) = (place.join("sample"), place.join("sample.gz"));
    fs::write(&plain, sample.concat())?;
    let timed = |args: &[&str], from: &Path, to: &Path| -> anyhow::Result<Duration> {
        let start = Instant::now();
        let status = Command::new("gzip")
            .args(args)
            .stdin(fs::File::open(from)?)
            .stdout(fs::File::create(to)?)
            .status()?;
        if !status.success() {
            bail!("{status}");
        }
        Ok(start.elapsed())
    };
    sum.packing = timed(&["-6", "-c"], &plain, &packed)?;
    sum.unpacking = timed(&["-d", "-c"], &packed, Path::new("/dev/null"))?;
    Ok(sum)
}

/// How long a record is after gzip -6.
fn through_gzip(record: &[u8]) -> anyhow::Result<usize> {
    let mut child = Command::new("gzip")
        .args(["-6", "-n", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting it")?;
    let mut input = child.stdin.take().context("it has no input")?;
    thread::scope(|scope| {
        let fed = scope.spawn(move || input.write_all(record));
        let output = child.wait_with_output()?;
        fed.join().map_err(|_| anyhow!("a thread panicked"))??;
        if !output.status.success() {
            bail!("{}", output.status);
        }
        Ok(output.stdout.len())
    })
}
