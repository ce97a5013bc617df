//! The table on a terminal, until a key ends it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use afar_server::view::{Snapshot, View};
use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::rates::Between;
use super::screen::{self, Picture};
use super::source::Source;
use super::state::{Action, State};
use super::table::{Order, Table};
use crate::advice;

/// How long it takes at most until something new is drawn.
const PAUSE: Duration = Duration::from_millis(100);

/// What to show at first.
pub(super) struct Options {
    pub(super) view: View,
    pub(super) interval: Duration,
    pub(super) order: Order,
    pub(super) filter: String,
    pub(super) limit: Option<usize>,
}

/// A look at the server, or why there is none.
type Look = (View, anyhow::Result<Snapshot>);

/// Shows the table until a key ends it.
///
/// # Errors
/// The server cannot be asked at first, or the terminal does not work.
pub(super) fn run(source: Source, options: Options) -> anyhow::Result<()> {
    // What is wrong at the beginning is said where it stays.
    let first = source.fetch(options.view, options.interval)?;
    let (views, asked) = channel();
    let (looks, seen) = channel();
    let interval = options.interval;
    std::thread::spawn(move || look(&source, interval, &asked, &looks));
    let mut live = Live {
        state: State::new(options.view, options.order, options.filter),
        interval,
        limit: options.limit,
        between: Between::default(),
        error: None,
    };
    live.between.next(first);
    if views.send(options.view).is_err() {
        anyhow::bail!("the thread that asks the server has ended");
    }
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).context("cannot catch signals")?;
    }
    let mut terminal = ratatui::try_init().context("cannot use this terminal; try --once")?;
    let done = live.run(&mut terminal, &views, &seen, &ended);
    // Whatever has happened, the terminal is as it was.
    let restored = ratatui::try_restore();
    done?;
    restored.context("cannot put the terminal back as it was; try `reset`")
}

/// Looks at the server again and again, until nobody wants it.
fn look(source: &Source, interval: Duration, asked: &Receiver<View>, looks: &Sender<Look>) {
    let Ok(mut view) = asked.recv() else {
        return;
    };
    loop {
        match asked.recv_timeout(interval) {
            Ok(other) => view = other,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if looks.send((view, source.fetch(view, interval))).is_err() {
            return;
        }
    }
}

struct Live {
    state: State,
    interval: Duration,
    limit: Option<usize>,
    between: Between,
    error: Option<String>,
}

impl Live {
    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        views: &Sender<View>,
        seen: &Receiver<Look>,
        ended: &AtomicBool,
    ) -> anyhow::Result<()> {
        let mut table = self.table();
        let mut page = self.draw(terminal, &table)?;
        while !ended.load(Ordering::Relaxed) {
            let event = next_event().context("cannot read from the terminal")?;
            // A window of another size is an event too.
            let mut is_new = event.is_some();
            if let Some(Event::Key(key)) = event {
                match self.state.key(key, page, table.rows.len()) {
                    Action::Quit => break,
                    Action::Draw => {}
                    Action::Switch => {
                        self.between = Between::default();
                        // The thread ends with its channels only.
                        views.send(self.state.view).ok();
                    }
                }
            }
            for (view, look) in seen.try_iter() {
                is_new |= self.takes(view, look);
            }
            if is_new {
                table = self.table();
                page = self.draw(terminal, &table)?;
            }
        }
        Ok(())
    }

    /// Draws; returns how many rows are shown.
    fn draw(&mut self, terminal: &mut DefaultTerminal, table: &Table) -> anyhow::Result<usize> {
        let page = terminal.size().map_or(0, |size| screen::page(size.height));
        let last = table.rows.len().saturating_sub(page);
        self.state.skipped = self.state.skipped.min(last);
        let picture = Picture {
            state: &self.state,
            between: &self.between,
            table,
            interval: self.interval.as_secs_f64(),
            error: self.error.as_deref(),
        };
        let drawn = terminal.draw(|frame| screen::draw(&picture, frame.area(), frame.buffer_mut()));
        drawn.context("cannot write to the terminal")?;
        Ok(page)
    }

    /// Takes a look; whether it changes the picture.
    fn takes(&mut self, view: View, look: anyhow::Result<Snapshot>) -> bool {
        if view != self.state.view || self.state.frozen {
            return false;
        }
        match look {
            Ok(snapshot) => {
                self.between.next(snapshot);
                self.error = None;
            }
            Err(error) => self.error = Some(advice::told(&error)),
        }
        true
    }

    /// The rows as they are shown.
    fn table(&self) -> Table {
        let mut table = Table::of(self.state.view, &self.between);
        table.filter(&self.state.filter);
        table.sort(&self.state.order);
        table.rows.truncate(self.limit.unwrap_or(usize::MAX));
        table
    }
}

/// The next event, if there is one soon.
fn next_event() -> io::Result<Option<Event>> {
    match event::poll(PAUSE)? {
        true => event::read().map(Some),
        false => Ok(None),
    }
}
