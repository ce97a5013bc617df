//! The page's section on whole cells.

use crate::bench::figures::{Figures, tables};

/// The section as Markdown; nothing if nothing was measured.
pub(in crate::bench) fn section(results: &Figures) -> String {
    tables::section(INTRODUCTION, results, METHOD)
}

const INTRODUCTION: &str = "
## Whole cells

Made by `cargo xtask bench cell` from [the single results](benchmarks/cell.json); to repeat it, as root:

```console
# cargo xtask bench cell                       measure everything
# cargo xtask bench cell --only fetch,stock    measure some
```
";

const METHOD: &str = "
### How cells are measured

- afar's servers are one process of `afar up` at the server's end of an emulated link, with the defaults: data
  that cannot be compressed, each operation durable when it returns. TCP is the better of iperf3 with CUBIC and
  with BBR on the same link in the same run.
- Before each fetch the server restarts and the kernel's page cache is empty. The copy's SHA-256 is
  compared. `afar cp -j 1 --piece` makes the call; its time is that of the data, without the lookup of the
  file, as iperf3 reports it.
- The clients are processes that start together; Jain's index is computed from the rates they report.
- OpenAFS's programs are those of Debian's packages, with afar's servers and with OpenAFS's on identical links,
  anonymous. Each program runs with one server and right after that with the other; the order changes each time.
  vos dump and vos restore stream; afsio makes a call for every 64 KiB.
- What the client's window allows: vos dump and vos restore move 32 packets of 1,416 bytes in a round trip, the
  time of a small call, which is measured with `afar rxperf` on the same link. afsio reads 64 KiB in two round
  trips and writes them in seven: one asks for the file's status, and its window begins with one packet in each
  call and doubles. The time for an empty volume or file is subtracted from a program's time.
- rxkad's levels are measured with a ticket for the cell's key. On one machine, OpenAFS's side is Debian's file
  server and a small client on its own Rx and rxkad (libafsrpc) with a ticket of a user, which reads the file in
  one call and discards it; afar's client writes it to a file. Processor time is that of the whole process of
  each end, for each 10⁹ bytes.
- A release goes from a server at one end of a link to three at the other end, and the rate is that of the three
  copies together.
- Promises, batches and locations are measured by examples of their crates, `callback_scale`, `batches` and `vldb_scale`.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::tests::row;
    use crate::bench::sample::tests::session;

    #[test]
    fn the_section_shows_what_was_measured() {
        let mut results = Figures::default();
        assert_eq!(section(&results), "");
        results.replace(&session("s1"), row("fetch-12", 1.5));
        let text = section(&results);
        assert!(
            text.contains("| some fetch-12 | time | 1.50 | ms | ≤ 2 | pass |"),
            "{text}"
        );
    }
}
