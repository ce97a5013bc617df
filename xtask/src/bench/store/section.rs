//! The page's section on the store.

use std::fmt::{self, Write};

use crate::bench::chart::{Chart, Line};
use crate::bench::figures::{self, Figure, Figures, Row};
use crate::bench::shown;
use crate::bench::stats::Stats;

/// The chart's file.
pub(in crate::bench) const CHART: &str = "store-attach.svg";

/// Lines of the chart: what a figure's name begins with, what the line is called, milliseconds in
/// its unit, its colour.
const LINES: [(&str, &str, f64, &str); 3] = [
    ("process started", "first volume served", 1.0, "#0072b2"),
    ("all listed", "all listed", 1e3, "#d55e00"),
    ("volumes made", "one made", f64::NAN, "#009e73"),
];

/// The section as Markdown; nothing if nothing was measured.
pub(in crate::bench) fn section(results: &Figures) -> String {
    let mut out = String::new();
    if !results.rows.is_empty() {
        // Writing to a string does not fail.
        write_section(&mut out, results).ok();
    }
    out
}

fn write_section(out: &mut String, results: &Figures) -> fmt::Result {
    out.push_str(INTRODUCTION);
    figures::tables::sessions(out, &results.sessions)?;
    attach(out, results)?;
    out.push_str("\n### Everything else\n\n| | | | unit | goal | |\n|---|---|---|---|---|---|\n");
    for row in results.rows.iter().filter(|row| !row.is_of("attach")) {
        figures::tables::figures(out, row)?;
    }
    out.push_str(METHOD);
    Ok(())
}

/// A row for each number of volumes.
fn attach(out: &mut String, results: &Figures) -> fmt::Result {
    let rows: Vec<&Row> = curve(results).collect();
    let Some(first) = rows.first() else {
        return Ok(());
    };
    out.push_str("\n### Opening partitions of few and of very many volumes\n\n|");
    for figure in &first.figures {
        write!(out, " | {}, {}", figure.name, figure.unit)?;
    }
    writeln!(out, " |\n|---{}|", "|---".repeat(first.figures.len()))?;
    for row in &rows {
        write!(out, "| {}", row.title)?;
        for figure in &row.figures {
            let shown = figure
                .stats()
                .map(|stats| shown::stats(&stats, figures::tables::digits));
            write!(out, " | {}", shown.unwrap_or_default())?;
            if let Some(goal) = figure.goal {
                write!(out, " ({}: {})", goal.shown(), figure.verdict())?;
            }
        }
        out.push_str(" |\n");
    }
    write!(
        out,
        "\n![Time over the number of volumes](benchmarks/{CHART})\n\n\
         Marks are medians, bars go from the least to the most. `one made` is the time a volume takes when\n\
         they are made a thousand in a commit.\n"
    )
}

fn curve(results: &Figures) -> impl Iterator<Item = &Row> {
    results
        .rows
        .iter()
        .filter(|row| row.is_of("attach") && row.number().is_some())
}

/// The attach curve; `None` if it was not measured.
pub(in crate::bench) fn chart(results: &Figures) -> Option<Chart> {
    let rows: Vec<&Row> = curve(results).collect();
    if rows.is_empty() {
        return None;
    }
    let lines = LINES.iter().map(|(start, name, scale, colour)| Line {
        name: (*name).to_owned(),
        colour,
        reckoned: false,
        values: rows
            .iter()
            .map(|row| {
                let figure = row
                    .figures
                    .iter()
                    .find(|figure| figure.name.starts_with(start))?;
                in_ms(figure, *scale)
            })
            .collect(),
    });
    Some(Chart {
        title: "Attach, list, make: time over the number of volumes".to_owned(),
        x_title: "volumes in all partitions".to_owned(),
        y_title: "milliseconds".to_owned(),
        places: rows
            .iter()
            .filter_map(|row| row.number())
            .map(|n| n.to_string())
            .collect(),
        y_range: (0.001, 10_000.0),
        lines: lines.collect(),
    })
}

/// A figure in milliseconds: a time, or by a scale that is no number the inverse of a rate.
fn in_ms(figure: &Figure, scale: f64) -> Option<Stats> {
    let ms = |value: f64| {
        if scale.is_nan() {
            1e3 / value
        } else {
            value * scale
        }
    };
    Stats::of(
        figure
            .values
            .iter()
            .map(|value| ms(*value).clamp(0.001, 10_000.0)),
    )
}

const INTRODUCTION: &str = "
## Volume store

Made by `cargo xtask bench store` from [the single results](benchmarks/store.json); to repeat it, as root
(`afar store bench` alone prints the same figures):

```console
# cargo xtask bench store                       measure everything
# cargo xtask bench store --only create,clone   measure some
```
";

const METHOD: &str = "
### How the store is measured

- Volumes for the curve are created a thousand in a commit. Before each measurement the page cache drops all files of
  the partitions; then a new process opens all partitions and reads the root directory's status of
  a volume in the last. Memory is VmRSS and RssAnon of that process. `all listed` is the whole command
  `afar store list`, its output discarded, again with nothing cached.
- Empty volumes are removed alternately from the partition of many and that of 500, 200 of each in a run, each
  removal durable when it returns; each is created again afterwards.
- A volume is removed while one reader reads another, of 64 MiB, at random places without pause. Space is
  back when the segments have at most 1 % of the removed volume's bytes left.
- Writing 4 KiB to one file of a hundred touches a volume; `data read` counts bytes read from segments.
- The store compresses data record by record as it cuts files: 128 KiB, or 1 MiB from 16 MiB on. gzip -6 gets
  up to 1,500 of these records, one at a time; 12 bytes of its header and trailer do not count, because a compressing
  file system would not write them. Its speed is that of one process over all of them. `in` and `out` are
  of one thread.
- One thread reads files one after another in pieces of 1 MiB: plain ones with open, read and close, those of
  a volume by their fids. Plain files and a volume alternate, each time in a new process, so that the
  kernel's cache is warm and the process's own cache of decompressed records is empty; ratios are of neighbours.
  `the second time` is in a process that has read the volume once, as the plain files were read once before: it still
  has what it decompressed then, in up to a tenth of the machine's memory.
- Random reads likewise: first one in each of up to 10,000 records, then the same again from the process's own cache.
- The slow medium is the same disk with the reader in a cgroup of limited rate, nothing cached.
- All writers make durable changes in one volume, each in a directory of its own, in slices that alternate with
  one thread that appends 4 KiB to a file and calls fdatasync, on the same file system. Ratios are of neighbours.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::tests::row;
    use crate::bench::sample::tests::session;

    #[test]
    fn sections_show_what_was_measured() {
        let mut results = Figures::default();
        assert_eq!(section(&results), "");
        assert!(chart(&results).is_none());
        for name in ["attach-10", "attach-1000", "create"] {
            results.replace(&session("s1"), row(name, 1.5));
        }
        let text = section(&results);
        assert!(
            text.contains("| some attach-10 | 1.50 (≤ 2: pass) |"),
            "{text}"
        );
        assert!(
            text.contains("| some create | time | 1.50 | ms | ≤ 2 | pass |"),
            "{text}"
        );
        assert!(text.contains("Testium"), "{text}");
        assert_eq!(chart(&results).unwrap().places, ["10", "1000"]);
    }
}
