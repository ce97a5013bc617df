//! Real data: how small it becomes, and how fast it is read.

pub(super) mod medium;
pub(super) mod ratio;
pub(super) mod read;

use std::path::PathBuf;

use super::Bench;
use super::data::Corpus;

/// Files of all sources, from each an equal share of the limit.
fn mixed(bench: &Bench) -> anyhow::Result<Vec<PathBuf>> {
    let sources = &bench.sizes.sources;
    let share = bench.sizes.data / (sources.len() as u64).max(1);
    let mut files = Vec::new();
    for source in sources {
        files.extend(Corpus::collect(source, share)?.files);
    }
    Ok(files)
}
