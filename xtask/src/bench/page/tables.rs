//! The page's text and tables.

use std::fmt::{self, Write};

use super::{CHART_LOSS, CHART_RTT, Judged, judge, measured};
use crate::bench::contender::Contender;
use crate::bench::process::Cpu;
use crate::bench::rows::{Row, Work};
use crate::bench::sample::{Measured, Results};
use crate::bench::shown::{figure, stats};
use crate::bench::stats::Stats;

/// The page as Markdown.
pub(super) fn page(results: &Results) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    write_page(&mut out, results).ok();
    out
}

fn write_page(out: &mut String, results: &Results) -> fmt::Result {
    out.push_str(INTRODUCTION);
    sessions(out, results)?;
    transfers(out, results)?;
    others(out, results)?;
    costs(out, results)?;
    write!(
        out,
        "\n## Charts\n\n\
         ![Throughput over round-trip time](benchmarks/{CHART_RTT})\n\n\
         ![Throughput over random loss](benchmarks/{CHART_LOSS})\n\n\
         Six seconds a point, start-up included, from server to client; marks are medians, bars\n\
         are intervals. The broken line is what OpenAFS's window allows, 45 KB in each round trip as measured,\n\
         before any loss.\n"
    )?;
    noise(out, results)?;
    out.push_str(METHOD);
    failures(out, results)
}

const INTRODUCTION: &str = "\
# Benchmarks

Made by `cargo xtask bench rx` from [the single results](benchmarks/rx.json); to repeat it, as root:

```console
# cargo xtask bench                       list the rows
# cargo xtask bench rx                    measure all of them
# cargo xtask bench rx --only 12ms,rpc    measure some
```

Figures are medians, with the interval in brackets in which the true median lies by at least 92 % (of five runs, from
the least to the most). A goal within the interval is `undecided`. Ratios are computed within a run: afar and
TCP take turns over the same link, with new processes each time.
";

const METHOD: &str = "
## How it is measured

- One call of `afar rxperf` without security (rxnull), one TCP connection of iperf3, over an emulated link
  ([afar link](admin/link.md)) between two network namespaces of one machine, in the order afar, TCP CUBIC,
  TCP BBR, and again. New processes run every transfer. `send` is from client to server, `recv` from server to
  client. The better of the two TCPs counts, by its median.
- A rate is payload over time from the start of the exchange, start-up included, until the receiver has
  everything. For afar this includes the round trip of the request or of the reply. iperf3 runs with `-R`,
  its ends swapped where payload goes to the server, since only then `-n` counts what arrived.
- On links with random loss TCP CUBIC runs for 15 seconds instead of a number of bytes, which would take many minutes.
- Socket buffers may grow to 64 MiB on both sides; the link's queue holds one bandwidth-delay product, at
  least 64 KiB.
- Fairness: four servers and four clients of afar, each a process, beside `iperf3 -P 4` with CUBIC.
- The client reads files from the file server of Debian's OpenAFS with its default options; a time is that of the
  whole command, which writes the copy to a file that is compared by SHA-256. `OpenAFS` is `vos dump` of the volume,
  measured in the first run only: the fastest of OpenAFS's clients that need no kernel module (`afsio` and
  `afsd.fuse` read slower).
- Cycles are processor time in user space (`/proc/PID/stat`) times the nominal clock, since the machine has
  no hardware counters for its guests; instructions are counted by `valgrind --tool=callgrind` as the
  difference between transfers of 40 and 8 MiB with packets of 1,444 bytes, divided by that of packets.
";

fn sessions(out: &mut String, results: &Results) -> fmt::Result {
    write!(
        out,
        "\n| measured (UTC) | commit | machine | software | command |\n|---|---|---|---|---|\n"
    )?;
    for s in &results.sessions {
        writeln!(
            out,
            "| {} | {} | {} × {}, {:.0} MHz, {:.0} GiB | Linux {}, {}, {} | `cargo xtask {}` |",
            s.id,
            s.commit,
            s.processors,
            s.processor,
            s.clock_mhz,
            s.memory_gib,
            s.kernel,
            s.iperf,
            s.afar,
            s.options
        )?;
    }
    Ok(())
}

/// Transfers and reads: everything that is compared with TCP.
fn transfers(out: &mut String, results: &Results) -> fmt::Result {
    let kind = |work: &Work| matches!(work, Work::Transfer { .. } | Work::Fetch { .. });
    out.push_str(
        "\n## Against TCP on the same link\n\nPayload in Mbit/s.\n\n\
         | | afar | TCP CUBIC | TCP BBR | OpenAFS | ratio | goal | |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in measured(results, kind) {
        let value = |contender| {
            let found = results.stats(&row.name, contender);
            found.map_or_else(|| "–".to_owned(), |found| stats(&found, figure))
        };
        let (shown, goals, words) = verdicts(results, &row);
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {shown} | {goals} | {words} |",
            row.title,
            value(Contender::Afar),
            value(Contender::Cubic),
            value(Contender::Bbr),
            value(Contender::Openafs),
        )?;
    }
    Ok(())
}

/// Rows with a figure of their own.
fn others(out: &mut String, results: &Results) -> fmt::Result {
    let kind = |work: &Work| {
        matches!(
            work,
            Work::Rpc { .. } | Work::Fairness { .. } | Work::Instructions { .. }
        )
    };
    out.push_str(
        "\n## Calls, fairness, instructions\n\n\
         | | afar | unit | judged | goal | |\n|---|---|---|---|---|---|\n",
    );
    for row in measured(results, kind) {
        let Some(found) = results.stats(&row.name, Contender::Afar) else {
            continue;
        };
        let (shown, goals, words) = verdicts(results, &row);
        let unit = match row.work {
            Work::Fairness { .. } => "% of what both got",
            other => other.unit(),
        };
        writeln!(
            out,
            "| {} | {} | {unit} | {shown} | {goals} | {words} |",
            row.title,
            stats(&found, figure),
        )?;
    }
    for sample in results.of("fairness", Contender::Afar) {
        let rates = sample.measured.detail["afar_mbit_per_s"].as_array();
        let rates: Vec<String> = rates
            .into_iter()
            .flatten()
            .filter_map(serde_json::Value::as_f64)
            .map(|rate| format!("{rate:.1}"))
            .collect();
        let tcp = sample.measured.detail["tcp_mbit_per_s"].as_f64();
        write!(
            out,
            "\nFairness, run {}: flows of afar {} Mbit/s; the four of TCP together {:.1} Mbit/s.\n",
            sample.run,
            rates.join(", "),
            tcp.unwrap_or(0.0)
        )?;
    }
    Ok(())
}

fn verdicts(results: &Results, row: &Row) -> (String, String, String) {
    let verdicts: Vec<Judged> = row
        .goals
        .iter()
        .map(|goal| judge(results, row, *goal))
        .collect();
    let goals: Vec<String> = row.goals.iter().map(ToString::to_string).collect();
    let shown: Vec<&str> = verdicts.iter().map(|v| v.shown.as_str()).collect();
    let words: Vec<&str> = verdicts.iter().map(|v| v.verdict.word()).collect();
    (shown.join("; "), goals.join("; "), words.join("; "))
}

/// Processor time for each byte.
fn costs(out: &mut String, results: &Results) -> fmt::Result {
    out.push_str(
        "\n## Processor time\n\nCycles for each byte of payload in user space, and with the kernel's in \
         brackets; see below for how.\n\n\
         | | afar sends | afar receives | TCP sends | TCP receives |\n|---|---|---|---|---|\n",
    );
    let kind = |work: &Work| matches!(work, Work::Transfer { .. });
    for row in measured(results, kind) {
        let tcp = results.better_tcp(&row.name).unwrap_or(Contender::Cubic);
        let cost = |contender, side: fn(&Measured) -> Option<Cpu>| {
            cycles(results, &row.name, contender, side).unwrap_or_else(|| "–".to_owned())
        };
        writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            row.title,
            cost(Contender::Afar, |m| m.sender),
            cost(Contender::Afar, |m| m.receiver),
            cost(tcp, |m| m.sender),
            cost(tcp, |m| m.receiver),
        )?;
    }
    Ok(())
}

/// Cycles for each byte: user space, then with the kernel.
fn cycles(
    results: &Results,
    row: &str,
    contender: Contender,
    side: fn(&Measured) -> Option<Cpu>,
) -> Option<String> {
    let each = |pick: fn(Cpu) -> f64| {
        Stats::of(results.of(row, contender).filter_map(|sample| {
            let session = results.sessions.iter().find(|s| s.id == sample.session)?;
            let cpu = side(&sample.measured).filter(|_| sample.measured.bytes > 0)?;
            Some(pick(cpu) * session.clock_mhz * 1e6 / sample.measured.bytes as f64)
        }))
    };
    let user = each(|cpu| cpu.user_s)?;
    let all = each(|cpu| cpu.user_s + cpu.system_s)?;
    Some(format!("{:.2} ({:.2})", user.median, all.median))
}

/// Signs of disturbance, the worst of each row.
fn noise(out: &mut String, results: &Results) -> fmt::Result {
    out.push_str(
        "\n## Was the machine quiet?\n\nThe worst of each row. `load` is how many processes wanted a processor \
         in the minute before, those of the\nmeasurement among them; `late` is by how much 99 of 100 packets \
         at most left the emulator after their due\ntime; `stolen` is what a hypervisor took from the machine; \
         `let in` are packets that the emulator, late to look, let\ninto a full queue; `device` are packets \
         dropped outside the link's model.\n\n\
         | row | load | late, ms | stolen, ms | let in | device |\n|---|---|---|---|---|---|\n",
    );
    for row in measured(results, |_| true) {
        let samples = results.samples.iter().filter(|s| s.row == row.name);
        let noises: Vec<_> = samples.map(|sample| &sample.noise).collect();
        let links = || noises.iter().filter_map(|noise| noise.link.as_ref());
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        writeln!(
            out,
            "| {} | {:.1} | {:.2} | {} | {} | {} |",
            row.name,
            most(&mut noises.iter().map(|noise| noise.load)),
            most(&mut links().map(|link| link.late_us_p99 / 1e3)),
            noises.iter().map(|noise| noise.steal_ms).max().unwrap_or(0),
            links()
                .map(|link| link.admitted_after_stall)
                .max()
                .unwrap_or(0),
            links().map(|link| link.device_drops).max().unwrap_or(0),
        )?;
    }
    Ok(())
}

/// What went wrong.
fn failures(out: &mut String, results: &Results) -> fmt::Result {
    let failed: Vec<_> = results
        .samples
        .iter()
        .filter_map(|sample| Some((sample, sample.error.as_ref()?)))
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    out.push_str("\n## Runs that failed\n\nThey count as 0.\n\n");
    for (sample, error) in failed {
        let error = error.replace('\n', " ");
        writeln!(
            out,
            "- {}, run {}, {}: {error}",
            sample.row, sample.run, sample.contender
        )?;
    }
    Ok(())
}
