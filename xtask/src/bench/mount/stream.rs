//! A film: read at a steady rate by a player that buffers little, while another client copies an
//! image of a disk.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::client::{Kind, Mounted};
use super::server::Server;
use super::work::LIMIT;
use crate::bench::cell::site;
use crate::sh;

/// Bytes a second of the film.
const RATE: f64 = 8e6;
/// What the player reads at a time.
const READ: usize = 256 << 10;
/// The player begins to play when it has read this much.
const BUFFER: Duration = Duration::from_secs(2);
/// When that of copy and film begins that does so later.
const LATER: Duration = Duration::from_secs(30);
/// The image is longer than what can be copied while the film plays.
const IMAGE_SHARE: u32 = 2;

/// How the film is played and the image copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// A copy as by `ionice -c 3 cp`, begun with the film.
    Idle,
    /// A copy as by `cp`, begun while the film plays.
    Later,
    /// A copy begun with the film, which is played as by `ionice -n 0`.
    First,
    /// The same, begun while the image is copied.
    Joining,
    /// A copy begun with the film.
    Same,
}

impl Beside {
    pub(super) const ALL: [Self; 5] = [
        Self::Idle,
        Self::Later,
        Self::First,
        Self::Joining,
        Self::Same,
    ];

    /// How long the copy and the player wait for each other.
    const fn waits(self) -> [Duration; 2] {
        match self {
            Self::Later => [LATER, Duration::ZERO],
            Self::Joining => [Duration::ZERO, LATER],
            Self::Idle | Self::First | Self::Same => [Duration::ZERO; 2],
        }
    }

    /// The I/O class of the copy and of the player, if it is said.
    const fn classes(self) -> [Option<&'static str>; 2] {
        match self {
            Self::Idle => [Some("-c3"), None],
            Self::First | Self::Joining => [None, Some("-n0")],
            Self::Later | Self::Same => [None, None],
        }
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "beside an idle copy",
            Self::Later => "beside a copy begun later",
            Self::First => "beside a copy, played first",
            Self::Joining => "begun beside a copy, played first",
            Self::Same => "beside a copy begun with it",
        })
    }
}

/// Gives the calling thread an I/O class, which is looked at when it opens a file.
fn ionice(class: &str) -> Result<()> {
    let thread = rustix::thread::gettid().as_raw_nonzero();
    sh::capture(Command::new("ionice").args([class, "-p", &thread.to_string()]))?;
    Ok(())
}

/// How the film was to be seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Seconds for which the picture stood still.
    pub(super) stalled: f64,
    /// Seconds until it began.
    pub(super) start: f64,
    /// Seconds of film that the player had at least from then on.
    pub(super) reserve: f64,
    /// What the other client got meanwhile, in Mbit/s.
    pub(super) beside: f64,
}

/// Puts a film and an image there.
///
/// # Errors
/// They cannot be made or copied.
pub(super) fn prepare(server: &Server<'_>, mib: u32) -> Result<()> {
    for (name, mib) in [("film", mib), ("image", mib * IMAGE_SHARE)] {
        let local = server.path(name);
        site::noise(&local, mib)?;
        server.put(&local, name)?;
    }
    Ok(())
}

/// Plays the film through one mount while the image is copied through another.
///
/// # Errors
/// A read fails, or all takes far too long.
pub(super) fn play(server: &mut Server<'_>, kind: Kind, beside: Beside) -> Result<Seen> {
    let player = Mounted::new(kind, server, "player")?;
    let copier = Mounted::new(kind, server, "copier")?;
    let stop = Arc::new(AtomicBool::new(false));
    let copied = Arc::new(AtomicU64::new(0));
    let copy = {
        let (stop, copied) = (Arc::clone(&stop), Arc::clone(&copied));
        let image = copier.root.join("image");
        thread::spawn(move || copy(&image, beside, &stop, &copied))
    };
    let [copy_waits, film_waits] = beside.waits();
    thread::sleep(film_waits);
    let (begun, before) = (Instant::now(), copied.load(Ordering::Relaxed));
    let (done, seen) = mpsc::channel();
    let film: PathBuf = player.root.join("film");
    thread::spawn(move || done.send(watch(&film, beside)));
    let seen = seen.recv_timeout(LIMIT).context("the film does not end")?;
    let time = begun.elapsed().saturating_sub(copy_waits);
    stop.store(true, Ordering::Relaxed);
    let beside = copied.load(Ordering::Relaxed) - before;
    // The copy ends with the read that is under way.
    let copied = copy.join().ok().context("the copy panicked")?;
    copied.context("the copy beside the film")?;
    let playback = seen?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let beside = beside as f64 * 8e-6 / time.as_secs_f64();
    Ok(Seen {
        stalled: playback.stalled,
        start: playback.start,
        reserve: playback.reserve,
        beside,
    })
}

fn copy(image: &Path, beside: Beside, stop: &AtomicBool, copied: &AtomicU64) -> Result<()> {
    let ([class, _], [wait, _]) = (beside.classes(), beside.waits());
    class.map_or(Ok(()), ionice)?;
    thread::sleep(wait);
    let mut file = File::open(image)?;
    let mut buffer = vec![0; 1 << 20];
    while !stop.load(Ordering::Relaxed) {
        match file.read(&mut buffer)? {
            0 => break,
            read => copied.fetch_add(read as u64, Ordering::Relaxed),
        };
    }
    Ok(())
}

fn watch(film: &Path, beside: Beside) -> Result<Playback> {
    let [_, class] = beside.classes();
    class.map_or(Ok(()), ionice)?;
    let begun = Instant::now();
    let mut file = File::open(film)?;
    let mut buffer = vec![0; READ];
    let mut playback = Playback::new();
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        let now = begun.elapsed();
        let ahead = playback.note(read as u64, now);
        thread::sleep(ahead.saturating_sub(BUFFER));
    }
    Ok(playback)
}

/// What a player has read and shown.
#[derive(Debug)]
struct Playback {
    /// Seconds of film read.
    read: f64,
    /// Seconds until the picture began; 0 before.
    start: f64,
    /// Seconds for which it stood still.
    stalled: f64,
    /// The least that was ahead of the picture.
    reserve: f64,
}

impl Playback {
    fn new() -> Self {
        Self {
            read: 0.0,
            start: 0.0,
            stalled: 0.0,
            reserve: BUFFER.as_secs_f64(),
        }
    }

    /// Takes in what was read by a time since the beginning; returns how much is ahead of the picture.
    fn note(&mut self, octets: u64, now: Duration) -> Duration {
        let now = now.as_secs_f64();
        if self.start > 0.0 {
            // The picture stands where the film read so far ends.
            let shown = now - self.start - self.stalled;
            self.stalled += (shown - self.read).max(0.0);
            self.reserve = self.reserve.min(self.read - shown).max(0.0);
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let seconds = octets as f64 / RATE;
        self.read += seconds;
        if self.start == 0.0 {
            if self.read < BUFFER.as_secs_f64() {
                return Duration::ZERO;
            }
            self.start = now;
        }
        let shown = now - self.start - self.stalled;
        Duration::from_secs_f64((self.read - shown).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_film_that_comes_late_stands_still_for_as_long() {
        let second = 8_000_000;
        let mut playback = Playback::new();
        let at = Duration::from_secs;
        assert_eq!(playback.note(second, at(1)), Duration::ZERO);
        assert_eq!(playback.note(second, at(2)), at(2));
        assert_eq!(playback.note(second, at(3)), at(2));
        assert_eq!(playback.reserve, 1.0);
        // Three seconds of it are shown until the sixth, the next comes at the ninth.
        assert_eq!(playback.note(second, at(9)), at(1));
        assert!((playback.stalled - 4.0).abs() < 1e-9, "{playback:?}");
        assert!((playback.start - 2.0).abs() < 1e-9);
        assert_eq!(playback.reserve, 0.0);
    }
}
