//! The page's section on mounts.

use crate::bench::figures::{Figures, tables};

/// The section as Markdown; nothing if nothing was measured.
pub(in crate::bench) fn section(results: &Figures) -> String {
    tables::section(INTRODUCTION, results, METHOD)
}

const INTRODUCTION: &str = "
## Mounts

Made by `cargo xtask bench mount` from [the single results](benchmarks/mount.json); to repeat it, as root:

```console
# cargo xtask bench mount                                       measure everything
# cargo xtask bench mount --only read-12 --servers openafs      measure some
# cargo xtask bench mount --only small --clients afar           measure works on small files, by one client
```
";

const METHOD: &str = "
### How mounts are measured

- Each client mounts the same files again for each measurement, with nothing cached, over the same link in the same
  run, in turns; programs on the mount are `dd`, `ls -lR` and `tar x`, and their time counts from start to end. A client
  beside the server compares written data with its source.
- Writing ends with fsync. OpenAFS's client in user space (`afsd.fuse`) has none and returns from close before
  the data is stored: for it, the time ends with the last data on the link. Small files are measured with afar's mount as
  it is, which makes changes under leases and syncs the folder where `sync` is said, and with `--write-through`.
- `afsd.fuse` would take hours for large files over long links. It gets smaller ones, as the table says, and the rates
  are compared; its tuned form has `-daemons 6 -chunksize 22`.
- sshfs and NFSv4 (nfs-ganesha) serve the same files from the server's end of the link. TCP is the better of iperf3
  with CUBIC and with BBR on the same link in the same run.
- Works on small files (`small-`) each begin with a fresh mount and write to a folder of their own. The same in a folder
  of this machine, whose files the kernel has in memory, is the first limit; the limit that counts adds the time
  that the link needs for the bytes of the files and six round trips. The time is that of the program, but with `sync`
  it ends with the last data on the link for those who store after they have closed a file. `afsd.fuse`, sshfs and rclone
  get a tenth of the files. All folders are on an ext4 with a journal (`TMPDIR`): without one, ext4 searches long for the places
  of new files after many were removed. bindfs shows the folder of this machine through FUSE, and so what each request of a program costs any
  mount in user space on this machine. What came of it is compared with what came of it on this machine.
- `git status` is asked for through a second mount of the clone. The program in C has 60 units. rclone mounts SFTP with
  `--vfs-cache-mode full --vfs-write-back 1s`.
- A player reads the film at 8 MB/s and starts playing after two seconds of film, while another mount copies an image
  over the same link: as fast as it can, or in the background with `ionice -c 3`. The copy begins with the film, or 30 s
  later, or 30 s earlier. Where the film is played first, its player has the priority that `ionice -n 0` gives. The
  reserve is what the player has buffered ahead of the picture, two seconds at most.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::tests::row;
    use crate::bench::sample::tests::session;

    #[test]
    fn the_section_shows_what_was_measured_and_what_was_not() {
        let mut results = Figures::default();
        assert_eq!(section(&results), "");
        let mut measured = row("read-12-openafs", 1.5);
        measured.skipped = Some("NFSv4: no client".to_owned());
        results.replace(&session("s1"), measured);
        let text = section(&results);
        assert!(text.contains("| time | 1.50 | ms | ≤ 2 | pass |"), "{text}");
        assert!(text.contains("NFSv4: no client"), "{text}");
    }
}
