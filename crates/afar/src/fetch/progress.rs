//! How far a copy has come, in a line on standard error; and the changes of a sync.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use afar_transfer::{Change, Event};
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::{Mutex, MutexGuard};

use super::changes::Changes;
use crate::{advice, output};

/// How often the line is written.
const EVERY: Duration = Duration::from_millis(200);
/// Columns of a narrow terminal, which what matters fits in.
const NARROW: usize = 40;
/// Columns of a name that tell something.
const NAME_LEAST: usize = 6;
/// A server that answers within this time is not worth telling of.
const PAUSE: Duration = Duration::from_secs(2);

/// A line on standard error, if that is a terminal.
#[derive(Debug)]
pub(super) struct Bar {
    bar: ProgressBar,
    state: Arc<State>,
    /// Where changes are printed.
    changes: Option<Changes>,
}

/// What the line is made of, besides what the bar counts.
#[derive(Debug)]
struct State {
    begun: Instant,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    /// Those under way, the one that was begun first in front.
    current: Vec<(u64, String)>,
    begun: u64,
    /// Those that are not begun.
    queued: u64,
    /// How long it has waited for a server.
    waiting: Option<Duration>,
}

/// What a line says.
#[derive(Debug, Clone, Default)]
struct Line {
    /// The file that is copied, and how many there are.
    name: String,
    number: u64,
    files: u64,
    bytes: u64,
    of_bytes: u64,
    per_second: f64,
    elapsed: Duration,
    left: Duration,
    /// How long it has waited for a server.
    waiting: Option<Duration>,
}

impl Bar {
    /// A line, if it is wanted.
    pub(super) fn new(wanted: bool) -> Self {
        let state = Arc::new(State {
            begun: Instant::now(),
            files: Mutex::default(),
        });
        let changes = None;
        if !wanted || !io::stderr().is_terminal() {
            let bar = ProgressBar::hidden();
            return Self {
                bar,
                state,
                changes,
            };
        }
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        // What is too long for the terminal is cut off.
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        let (shown, told) = (bar.clone(), Arc::downgrade(&state));
        let thread = std::thread::Builder::new().name("progress".to_owned());
        if let Err(error) = thread.spawn(move || tell(&shown, &told)) {
            tracing::debug!(%error, "no progress is shown");
        }
        Self {
            bar,
            state,
            changes,
        }
    }

    /// The same, which prints changes too.
    pub(super) fn with_changes(mut self, changes: Option<Changes>) -> Self {
        self.changes = changes;
        self
    }

    /// Prints something without disturbing the line.
    pub(super) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Takes the line away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl afar_transfer::Progress for Bar {
    fn tell(&self, event: Event<'_>) {
        match event {
            Event::Begun { number, path } => {
                let name = String::from_utf8_lossy(path).into_owned();
                let mut files = self.state.lock();
                files.begun = files.begun.max(number);
                files.current.push((number, name));
            }
            Event::Ended { number } => {
                let mut files = self.state.lock();
                files.current.retain(|(current, _)| *current != number);
            }
            Event::Queued(names) => self.state.lock().queued = names,
            Event::Expected(bytes) => self.bar.inc_length(bytes),
            Event::Copied(bytes) => self.bar.inc(bytes),
            Event::Void(bytes) => self.bar.dec(bytes),
            Event::Waiting(waiting) => self.state.lock().waiting = waiting,
            Event::LeftBehind {
                path,
                incomplete,
                error,
            } => {
                let incomplete = if incomplete { " incomplete" } else { "" };
                let error = advice::told_of(error);
                let text = format!("{}: left behind{incomplete}: {error}", path.display());
                self.suspend(|| output::note(&text));
            }
            _ => {}
        }
    }

    fn changed(&self, change: Change, path: &[u8]) -> io::Result<()> {
        match &self.changes {
            Some(changes) => self.suspend(|| changes.print(change, path)),
            None => Ok(()),
        }
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock()
    }

    fn line(&self, bar: &ProgressBar) -> Line {
        let files = self.lock();
        let current = files.current.first();
        Line {
            name: current.map(|(_, name)| name.clone()).unwrap_or_default(),
            number: current.map_or(files.begun, |(number, _)| *number),
            files: files.begun + files.queued,
            bytes: bar.position(),
            of_bytes: bar.length().unwrap_or(0),
            per_second: bar.per_sec(),
            elapsed: self.begun.elapsed(),
            left: bar.eta(),
            waiting: files.waiting.filter(|time| *time >= PAUSE),
        }
    }
}

/// Writes the line, as long as there is anything to tell of.
fn tell(bar: &ProgressBar, state: &Weak<State>) {
    while let Some(state) = state.upgrade().filter(|_| !bar.is_finished()) {
        bar.set_message(state.line(bar).text());
        drop(state);
        std::thread::sleep(EVERY);
    }
}

impl Line {
    /// What matters first, in [`NARROW`] columns: which file it is, how much is done, how fast, since when, and how
    /// long it will take; or that it waits for a server. How much that is in bytes comes last.
    fn text(&self) -> String {
        let mut head = String::new();
        // Writing to a string does not fail.
        if self.files > 1 {
            let _written = write!(head, "{}/{} ", self.number, self.files);
        }
        let done = self.bytes.min(self.of_bytes).saturating_mul(100);
        let percent = done.checked_div(self.of_bytes).unwrap_or(0);
        let mut tail = String::new();
        if let Some(waiting) = self.waiting {
            let _written = write!(tail, " waiting for the server {} s", waiting.as_secs());
        } else {
            let (rate, elapsed) = (short(self.per_second), clock(self.elapsed));
            let _written = write!(tail, " {percent}% {rate}/s {elapsed}");
            if self.bytes > 0 && self.bytes < self.of_bytes {
                let _written = write!(tail, " {} left", clock(self.left));
            }
        }
        let room = NARROW.saturating_sub(head.chars().count() + tail.chars().count());
        let name = self.name.rsplit('/').next().unwrap_or_default();
        let name = shortened(name, room.max(NAME_LEAST));
        let bytes = (HumanBytes(self.bytes), HumanBytes(self.of_bytes));
        format!("{head}{name}{tail}, {} of {}", bytes.0, bytes.1)
    }
}

/// A name in so many columns, its end with it.
fn shortened(name: &str, room: usize) -> String {
    // What would do something to the terminal does nothing.
    let clean = name.chars().map(|c| if c.is_control() { '?' } else { c });
    let clean: Vec<char> = clean.collect();
    if clean.len() <= room {
        return clean.into_iter().collect();
    }
    let end = (room - 1) / 2;
    let begin = room - 1 - end;
    let (begin, end) = (&clean[..begin], &clean[clean.len() - end..]);
    begin.iter().chain(&['…']).chain(end).collect()
}

/// Bytes in few columns.
fn short(bytes: f64) -> String {
    let units = ["B", "K", "M", "G", "T"];
    let (mut left, mut unit) = (bytes, 0);
    while left >= 999.5 && unit + 1 < units.len() {
        left /= 1024.0;
        unit += 1;
    }
    format!("{left:.0}{}", units[unit])
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        1..=99 => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => format!("{} d", hours / 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        Line {
            name: "/afs/a.org/films/a film with a long name.mkv".to_owned(),
            number: 3,
            files: 12,
            bytes: 1 << 30,
            of_bytes: 5 << 29,
            per_second: 31.2 * 1024.0 * 1024.0,
            elapsed: Duration::from_secs(70),
            left: Duration::from_secs(52),
            waiting: None,
        }
    }

    /// What a narrow terminal shows.
    fn narrow(line: &Line) -> String {
        line.text().chars().take(NARROW).collect()
    }

    #[test]
    fn forty_columns_say_what_matters() {
        assert_eq!(
            line().text(),
            "3/12 a fil….mkv 40% 31M/s 1:10 0:52 left, 1.00 GiB of 2.50 GiB"
        );
        assert_eq!(narrow(&line()), "3/12 a fil….mkv 40% 31M/s 1:10 0:52 left");
        let waiting = Line {
            waiting: Some(Duration::from_secs(12)),
            ..line()
        };
        let narrow = narrow(&waiting);
        assert!(narrow.contains("waiting for the server 12 s"), "{narrow}");
    }

    #[test]
    fn one_short_name_is_shown_whole() {
        let one = Line {
            name: "film.mkv".to_owned(),
            files: 1,
            ..line()
        };
        assert!(one.text().starts_with("film.mkv 40% 31M/s"));
        // Nothing is known yet, and names may say anything.
        let nothing = Line {
            name: "\u{1b}[2J".to_owned(),
            ..Line::default()
        };
        assert_eq!(nothing.text(), "?[2J 0% 0B/s 0:00, 0 B of 0 B");
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(short(999.0), "999B");
        assert_eq!(short(1024.0 * 1024.0), "1M");
        assert_eq!(short(f64::MAX).chars().last(), Some('T'));
        assert_eq!(clock(Duration::from_secs(3661)), "1:01:01");
        assert_eq!(clock(Duration::MAX), "213503982334601 d");
    }
}
