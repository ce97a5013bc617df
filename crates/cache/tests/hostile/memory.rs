//! How much memory a cache takes.

use std::fs;

use afar_cache::{Cache, Ino};

use crate::WHO;
use crate::server::{ROOT, fid, start_with};

/// Files of one directory.
const EACH: u32 = 50_000;
/// Octets of memory that may be taken for each file the kernel knows, with its name in its directory.
const MOST: u64 = 2048;

/// Octets of memory that are in use.
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() << 10
}

/// Lists a directory; what it lists stays known.
async fn list(cache: &Cache, name: &str) -> u64 {
    let entry = cache.lookup(WHO, Ino::ROOT, name.as_bytes()).await.unwrap();
    let handle = cache.opendir(WHO, entry.attr.ino).await.unwrap();
    let (mut offset, mut known) = (0, 0);
    loop {
        let entries = cache.readdir(handle, offset, true).await.unwrap();
        let Some(last) = entries.last() else {
            break;
        };
        offset = last.offset;
        known += entries.iter().filter(|entry| entry.entry.is_some()).count() as u64;
    }
    cache.releasedir(handle);
    known
}

/// `AFAR_TEST_VNODES=1000000` takes a few minutes.
#[tokio::test]
async fn what_is_known_of_files_takes_little() {
    let files = std::env::var("AFAR_TEST_VNODES");
    let files: u32 = files
        .ok()
        .and_then(|files| files.parse().ok())
        .unwrap_or(EACH);
    let directories = files.div_ceil(EACH);
    let (_server, cache) = start_with(
        |state| {
            let names: Vec<_> = (0..directories)
                .map(|n| (format!("d{n}"), 2 * n + 3))
                .collect();
            state.directory(ROOT, &names);
            for number in 0..directories {
                let first = 1_000_000 + number * EACH;
                let files = (first..first + EACH).map(|file| (format!("f{file}"), 2 * file));
                let files: Vec<_> = files.collect();
                state.directory(fid(2 * number + 3), &files);
                for (_, vnode) in files {
                    state.file(fid(vnode), "");
                }
            }
        },
        |config| config.files = 2 * files as usize,
    )
    .await;
    let before = resident();
    let mut known = 0;
    for number in 0..directories {
        known += list(&cache, &format!("d{number}")).await;
    }
    let taken = resident().saturating_sub(before);
    println!(
        "{known} files: {} MiB, {} octets each",
        taken >> 20,
        taken / known
    );
    assert!(known >= u64::from(directories * EACH));
    assert!(taken / known <= MOST, "{} octets each", taken / known);
}
