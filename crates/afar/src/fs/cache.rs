//! `fs getcacheparms`, `setcachesize` and `storebehind`: settings of a mount's cache while it is in use.

use std::process::ExitCode;

use afar_cache::xattr_name;
use clap::Args;
use rustix::io::Errno;
use serde::Serialize;

use super::report::Report;
use super::setting::OfMount;

/// Bytes of the blocks that OpenAFS's users count in.
const BLOCK: u64 = 1024;
/// What a size is that is refused.
const TOO_SMALL: &str = "a cache needs 65536 blocks (64 MiB) or more";

/// Options of `fs setcachesize`.
#[derive(Debug, Args)]
pub(crate) struct SizeArgs {
    /// size in 1K byte blocks (0 => reset)
    #[arg(
        long,
        value_name = "size in 1K byte blocks (0 => reset)",
        required_unless_present = "reset"
    )]
    blocks: Option<u64>,
    /// reset size back to what the mount began with
    #[arg(long)]
    reset: bool,
    #[command(flatten)]
    of: OfMount,
}

/// Options of `fs storebehind`.
#[derive(Debug, Args)]
pub(crate) struct StoreBehindArgs {
    /// new default (KB)
    #[arg(long, value_name = "new default (KB)")]
    allfiles: Option<u64>,
    #[command(flatten)]
    of: OfMount,
}

/// What a cache is.
#[derive(Debug, Serialize)]
struct Parameters {
    used: u64,
    available: u64,
    unstored: u64,
}

/// What is stored after a file is closed.
#[derive(Debug, Serialize)]
struct Asynchrony {
    store_behind: u64,
}

/// `fs getcacheparms`.
pub(super) fn parameters(of: &OfMount) -> anyhow::Result<ExitCode> {
    show(of, usage(of), |found| {
        format!(
            "AFS using {} of the cache's available {} 1K byte blocks.",
            found.used.div_ceil(BLOCK),
            found.available / BLOCK
        )
    })
}

/// `fs setcachesize`.
pub(super) fn set_size(args: &SizeArgs) -> anyhow::Result<ExitCode> {
    let blocks = args.blocks.filter(|_| !args.reset).unwrap_or_default();
    let changed = set(
        &args.of,
        xattr_name::CACHE_SIZE,
        blocks.saturating_mul(BLOCK),
    );
    let found = changed.and_then(|()| usage(&args.of));
    show(&args.of, found, |_| "New cache size set.".to_owned())
}

/// `fs storebehind`: sets it if it is to be another, and tells what it is.
pub(super) fn store_behind(args: &StoreBehindArgs) -> anyhow::Result<ExitCode> {
    let of = &args.of;
    let changed = match args.allfiles {
        Some(kib) => set(of, xattr_name::STORE_BEHIND, kib.saturating_mul(BLOCK)),
        None => Ok(()),
    };
    let found = changed.and_then(|()| {
        let [store_behind] = get(of, xattr_name::STORE_BEHIND)?;
        Ok(Asynchrony { store_behind })
    });
    show(of, found, |found| {
        let kib = found.store_behind / BLOCK;
        format!("Default store asynchrony is {kib} kbytes.")
    })
}

/// Prints what was found, or why it was not.
fn show<T: Serialize>(
    of: &OfMount,
    found: Result<T, Errno>,
    text: impl FnOnce(&T) -> String,
) -> anyhow::Result<ExitCode> {
    match found {
        Ok(found) => {
            let mut report = Report::new(of.json, false);
            report.either(&found, || text(&found))?;
            report.finish()
        }
        Err(error) => Ok(of.failed(error, TOO_SMALL)),
    }
}

fn usage(of: &OfMount) -> Result<Parameters, Errno> {
    let [used, available, unstored] = get(of, xattr_name::CACHE)?;
    Ok(Parameters {
        used,
        available,
        unstored,
    })
}

/// The numbers that an attribute of a mount tells.
fn get<const COUNT: usize>(of: &OfMount, name: &str) -> Result<[u64; COUNT], Errno> {
    let text = of.get(name)?;
    let numbers: Option<Vec<u64>> = text.split(' ').map(|word| word.parse().ok()).collect();
    let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
    numbers.ok_or(Errno::BADMSG)
}

fn set(of: &OfMount, name: &str, octets: u64) -> Result<(), Errno> {
    of.set(name, &octets.to_string())
}
