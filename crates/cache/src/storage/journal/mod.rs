//! The journal: changes that the mount has made under a lease, and that no file server has yet.
//!
//! It is a file that is added to. What is in it when a process begins is what earlier ones have acknowledged and not
//! brought to a server. See docs/formats/cache.md.
//!
//! - `record`: what is in it; `open`: reading it
//! - `index`: what of it counts, and where that is
//! - `tail`: the file, and adding to it

mod index;
mod open;
mod record;
mod tail;

#[cfg(any(test, fuzzing))]
mod fuzzing;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use afar_xdr::List;
use parking_lot::Mutex;

#[cfg(any(test, fuzzing))]
pub use self::fuzzing::fuzz;
use self::index::Index;
pub(crate) use self::index::LeftChanges;
use self::record::{Draft, HEADER, NUMBERS, Place, payload};
pub(crate) use self::record::{Made, SentBatch};
use self::tail::Tail;

/// The file.
pub(super) const NAME: &str = "journal";
/// The same while it is rewritten.
const NEW: &str = "journal.new";
/// A file longer than this is rewritten if enough of it does not count.
const REWRITE_OVER: u64 = 64 << 20;
/// That is: of so many bytes less than one counts.
const LIVE_PART: u64 = 4;

/// The journal of a cache, whose directory belongs to this process.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: PathBuf,
    rewrite_over: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// None before there is a change.
    tail: Option<Tail>,
    index: Index,
    /// The length over which rewriting is tried next.
    rewrite_over: u64,
}

impl Journal {
    /// The number of the next change: greater than all in the journal. Each is given once.
    pub(crate) fn next_number(&self) -> u64 {
        self.state.lock().index.next_number()
    }

    /// When this returns, the change survives this process. It survives the machine as far as the file system has
    /// written it: in order, never a later change without an earlier one.
    pub(crate) fn made(&self, made: &Made) -> io::Result<()> {
        let mut draft = Draft::made(made);
        let mut state = self.state.lock();
        if state.index.has(made.number) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("change {} is in the journal already", made.number),
            ));
        }
        let place = self.add(&mut state, &mut draft)?;
        state.index.made(made.number, place);
        self.rewrite_if_worth_it(&mut state);
        Ok(())
    }

    /// A batch is about to be sent. It survives as changes do.
    pub(crate) fn sent(&self, batch: &SentBatch) -> io::Result<()> {
        let mut draft = Draft::sent(batch);
        let mut state = self.state.lock();
        let place = self.add(&mut state, &mut draft)?;
        state.index.sent(batch, place);
        self.rewrite_if_worth_it(&mut state);
        Ok(())
    }

    /// Changes that the server has, or that are in lost+found. If that cannot be written, a later process may find
    /// some of them again.
    pub(crate) fn done(&self, numbers: &[u64]) -> io::Result<()> {
        let mut state = self.state.lock();
        let there = numbers.iter().copied();
        let mut there: Vec<u64> = there.filter(|number| state.index.has(*number)).collect();
        there.sort_unstable();
        there.dedup();
        if there.is_empty() {
            return Ok(());
        }
        if there.len() == state.index.count() && self.cut_to_nothing(&mut state) {
            return Ok(());
        }
        for part in there.chunks(NUMBERS) {
            let numbers = List::new(part).map_err(io::Error::other)?;
            self.add(&mut state, &mut Draft::done(&numbers))?;
            state.index.done(part);
        }
        self.rewrite_if_worth_it(&mut state);
        Ok(())
    }

    /// Bytes the changes take that are not done.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().index.bytes()
    }

    fn add(&self, state: &mut State, draft: &mut Draft) -> io::Result<Place> {
        let tail = match &mut state.tail {
            Some(tail) => tail,
            none => none.insert(Tail::make(&self.dir.join(NAME))?),
        };
        tail.add(draft)
    }

    /// Cuts the file to its header, as all in it is done. Returns whether that was possible.
    fn cut_to_nothing(&self, state: &mut State) -> bool {
        let tail = state.tail.as_mut();
        let Some(tail) = tail.filter(|tail| tail.length() > HEADER) else {
            return false;
        };
        if let Err(error) = tail.cut(HEADER) {
            tracing::warn!(dir = %self.dir.display(), %error, "cannot empty the journal");
            return false;
        }
        state.index.clear();
        state.rewrite_over = self.rewrite_over;
        true
    }

    /// Rewrites the file if it is long and little of it counts.
    fn rewrite_if_worth_it(&self, state: &mut State) {
        let length = state.tail.as_ref().map_or(0, Tail::length);
        if length <= state.rewrite_over || state.index.live() >= length / LIVE_PART {
            return;
        }
        match self.rewrite(state) {
            Ok(()) => state.rewrite_over = self.rewrite_over,
            Err(error) => {
                tracing::warn!(dir = %self.dir.display(), %error, "cannot rewrite the journal");
                // It is right as it is. Not with every change again.
                state.rewrite_over = length.saturating_add(self.rewrite_over);
            }
        }
    }

    fn rewrite(&self, state: &mut State) -> io::Result<()> {
        let Some(old) = &state.tail else {
            return Ok(());
        };
        let path = self.dir.join(NEW);
        let mut new = Tail::make(&path)?;
        let mut index = state.index.clone();
        let copied = copy(old, &mut new, &mut index).and_then(|()| {
            // What others were told of must be there under the old name, or under the new one.
            new.sync()?;
            fs::rename(&path, self.dir.join(NAME))
        });
        if let Err(error) = copied {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "cannot be removed from the cache");
            }
            return Err(error);
        }
        state.tail = Some(new);
        state.index = index;
        // From here on the new file counts, even if a crash were to bring the old one back.
        if let Err(error) = File::open(&self.dir).and_then(|dir| dir.sync_all()) {
            tracing::warn!(dir = %self.dir.display(), %error, "cannot sync");
        }
        Ok(())
    }
}

/// Copies the records that count, and notes their places.
fn copy(old: &Tail, new: &mut Tail, index: &mut Index) -> io::Result<()> {
    for place in index.places() {
        let bytes = old.read(*place)?;
        let payload = payload(place.at, &bytes).ok_or_else(|| {
            let what = format!("the record at byte {} is damaged", place.at);
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        *place = new.add(&mut Draft::again(payload))?;
    }
    // Numbers go on after it, though the records of those that were given last are not here.
    let last = index.last();
    if !index.has(last) {
        let numbers = List::new([last]).map_err(io::Error::other)?;
        new.add(&mut Draft::done(&numbers))?;
    }
    Ok(())
}
