//! `afar umount`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use clap::Args;
use indicatif::HumanBytes;

use super::record::{self, Left};
use super::table::{self, KIND, Kept, Manner};
use crate::output;
use crate::store::progress::Progress;

/// After so long the user is told what takes its time.
const SOON: Duration = Duration::from_secs(2);
/// How often to look how much is left.
const LOOK: Duration = Duration::from_millis(500);
/// As many who use a mount are named.
const NAMED: usize = 5;

/// Options of `afar umount`.
#[derive(Debug, Args)]
pub(crate) struct UmountArgs {
    /// Directories mounted by `afar mount`
    #[arg(required = true, value_name = "MOUNTPOINT")]
    places: Vec<PathBuf>,
    /// Detach the mount even if it is in use; programs keep their open files, no others can enter it
    #[arg(short = 'l', long)]
    lazy: bool,
    /// Seconds to wait at most until everything written is stored at the servers
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    wait: u64,
}

/// Unmounts, and waits until what was written is stored.
pub(crate) fn run(args: &UmountArgs) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for place in &args.places {
        if let Err(error) = unmount(args, place) {
            output::error(&error);
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

fn unmount(args: &UmountArgs, place: &Path) -> anyhow::Result<()> {
    let place = table::absolute(place)?;
    let Some(mounted) = table::at(&place)? else {
        // It may have been unmounted otherwise, and still be written back.
        ensure!(
            record::is_served(&place),
            "{}: nothing is mounted here",
            place.display()
        );
        return wait(&place, args.wait);
    };
    ensure!(
        mounted.kind == KIND,
        "{}: {} of type {} is mounted here, not by afar; use umount",
        place.display(),
        mounted.source,
        mounted.kind
    );
    let manner = match args.lazy || table::is_dead(&place) {
        true => Manner::Detach,
        false => Manner::Unused,
    };
    match table::unmount(&place, manner)? {
        Ok(()) | Err(Kept::Nothing) => {}
        Err(Kept::Busy) => bail!(
            "{} is in use{}; end those programs, or add --lazy",
            place.display(),
            by_whom(&place)
        ),
    }
    if args.lazy {
        return Ok(());
    }
    wait(&place, args.wait)
}

fn wait(place: &Path, seconds: u64) -> anyhow::Result<()> {
    let limit = Duration::from_secs(seconds);
    if record::wait_until_gone(place, SOON.min(limit)) {
        return Ok(());
    }
    let mut left = record::left(place);
    output::note(&format_args!(
        "{} is unmounted; waiting until everything written there is stored at its servers{}",
        place.display(),
        sent(left)
    ));
    let (begun, rest) = (Instant::now(), limit.saturating_sub(SOON));
    let mut total = left.map_or(0, |left| left.changes);
    // Large files may be all that is left.
    let progress = (total > 0).then(|| Progress::of_things(total));
    loop {
        let time = rest.saturating_sub(begun.elapsed());
        if record::wait_until_gone(place, LOOK.min(time)) {
            return Ok(());
        }
        left = record::left(place);
        ensure!(
            !time.is_zero(),
            "{}: not everything is stored after {seconds} s{}; the process continues, and its log \
             says what fails",
            place.display(),
            remaining(left)
        );
        if let (Some(left), Some(progress)) = (left, &progress) {
            total = total.max(left.changes);
            progress.set_of(total - left.changes, total);
        }
    }
}

/// `: 12 changes and 3.4 KiB are being sent`, if there are some.
fn sent(left: Option<Left>) -> String {
    match counted(left) {
        Some(counted) => format!(": {counted} are being sent"),
        None => String::new(),
    }
}

/// ` (12 changes and 3.4 KiB are left)`, if there are some.
fn remaining(left: Option<Left>) -> String {
    match counted(left) {
        Some(counted) => format!(" ({counted} are left)"),
        None => String::new(),
    }
}

fn counted(left: Option<Left>) -> Option<String> {
    let left = left.filter(|left| left.changes > 0)?;
    let changes = match left.changes {
        1 => "1 change".to_owned(),
        changes => format!("{changes} changes"),
    };
    Some(format!("{changes} and {}", HumanBytes(left.bytes)))
}

/// ` by bash (812), less (815)`, if we see them.
pub(super) fn by_whom(place: &Path) -> String {
    let users = table::users(place);
    match users.len() {
        0 => String::new(),
        count if count > NAMED => format!(
            " by {} and {} more",
            users[..NAMED].join(", "),
            count - NAMED
        ),
        _ => format!(" by {}", users.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_how_much_is_left() {
        let left = |changes, bytes| Some(Left { changes, bytes });
        for nothing in [None, left(0, 0)] {
            assert_eq!(sent(nothing) + &remaining(nothing), "");
        }
        assert_eq!(sent(left(1, 300)), ": 1 change and 300 B are being sent");
        assert_eq!(
            remaining(left(20_000, 64 << 20)),
            " (20000 changes and 64.00 MiB are left)"
        );
    }
}
