//! The page's section on files out of band.

use crate::bench::figures::{Figures, tables};

/// The section as Markdown; nothing if nothing was measured.
pub(in crate::bench) fn section(results: &Figures) -> String {
    tables::section(INTRODUCTION, results, METHOD)
}

const INTRODUCTION: &str = "
## Files out of band

TLS on TCP ([the protocol](protocol/oob.md)) in turns with Rx. Made by `cargo xtask bench oob` from
[the single results](benchmarks/oob.json); to repeat it, as root:

```console
# cargo xtask bench oob                        measure everything
# cargo xtask bench oob --only read,packed     measure some
```
";

const METHOD: &str = "
### How files out of band are measured

- One `afar cp` copies 160 files of 1 MiB and then files of 64 MiB, with a ticket for the cell's key: by Rx at rxkad's
  level clear, by Rx at the level crypt, and with `oob.enabled` at the server and the level crypt. Then iperf3 runs on
  the same link with CUBIC and with BBR, each for as long as the copy by TLS took (4 to 30 s); the better one counts.
  A ratio is taken within a run.
- The server restarts before each copy. It counts what goes out of band: a copy by TLS fails the run unless
  that is at least half of the bytes. The others are those that the client fetches by Rx until its connection is there.
- Rates and processor time are those of the whole copy, its start by Rx included. Processor time is that of all threads of
  both processes, in user space and in the kernel, for each 10⁹ bytes. On the loopback and the virtual cable Rx crypt
  copies a quarter of the large files.
- The kernel has the files in its page cache. The client writes to a file system in memory; the copies are compared
  byte by byte. Files that are written go to a new cell each time, whose server makes each operation durable on its disk; they
  are read back and compared.
- The text consists of random words, and the server stores it compressed. The rate is that of the plain bytes.
- A volume moves with `afar vos move` to a second server at the other end of the link, back, and is released there, by Rx and
  out of band in turns. What is timed is the whole command, its steps at both volume servers and the databases included.
- The limited cable lets through 5 Mbit/s of UDP and 1 Gbit/s of TCP, by a queue discipline at both ends. The start of the
  copy goes by Rx, so the rate is also taken from the first bytes out of band to the last, as the server counts them.
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
        results.replace(&session("s1"), row("read-12", 1.5));
        let text = section(&results);
        assert!(
            text.contains("| some read-12 | time | 1.50 | ms | ≤ 2 | pass |"),
            "{text}"
        );
    }
}
