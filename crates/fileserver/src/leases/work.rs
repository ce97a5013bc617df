//! What leases bring about: calls to holders, rows on the disk, lines in the log.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use afar_lease::{Action, RESEND, Row};
use afar_types::{AfsUuid, Fid};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::counts::count;
use super::rows::RowsError;
use super::{Leases, now};
use crate::hosts::Hosts;
use crate::volumes::Volumes;
use afar_lease::wire::{Recall, VERSION};

/// How long the worker rests at most: clocks of tasks do not count the time that the machine was suspended.
const REST: Duration = Duration::from_secs(10);
/// How long rows stay on the disk that are of no use any more.
const FORGET: Duration = Duration::from_secs(10);
/// How soon after a line in the log of a host another one may come.
const LINES: Duration = Duration::from_secs(60);
/// Hosts of which is known when there was one.
const LINES_OF: usize = 1024;

/// Works as long as there are leases.
pub(super) async fn work(
    leases: Weak<Leases>,
    (hosts, volumes): (Arc<Hosts>, Arc<Volumes>),
    mut actions: mpsc::UnboundedReceiver<Action>,
) {
    let mut worker = Worker {
        changed: None,
        wanted: Vec::new(),
        writing: JoinSet::new(),
        calls: JoinSet::new(),
        returns: JoinSet::new(),
        called: HashSet::new(),
        lines: HashMap::new(),
        asked: JoinSet::new(),
        asks: Instant::now(),
    };
    loop {
        let Some(here) = leases.upgrade() else {
            return;
        };
        let next = here.with(|state, now| {
            let due = state.server.poll_timeout()?;
            Some(due.saturating_sub(now))
        });
        worker.write(&here);
        worker.ask(&here, &hosts);
        let rest = next.unwrap_or(REST).clamp(Duration::from_millis(1), REST);
        let rest = rest.min(worker.patience()).min(worker.unasked());
        let until = Instant::now() + rest;
        tokio::select! {
            action = actions.recv() => match action {
                Some(Action::Returned { host, block }) => {
                    worker.changed.get_or_insert_with(Instant::now);
                    let (here, volumes) = (Arc::clone(&here), Arc::clone(&volumes));
                    worker.returns.spawn_blocking(move || here.take_back(&volumes, host, block));
                }
                Some(action) => worker.begin(&here, &hosts, action),
                None => return,
            },
            Some(called) = worker.calls.join_next() => {
                if let Ok(host) = called {
                    worker.called.remove(&host);
                }
            }
            Some(written) = worker.writing.join_next() => {
                if let Ok((rows, result)) = written {
                    worker.written(&here, &rows, result);
                }
            }
            Some(_) = worker.returns.join_next() => {}
            Some(_) = worker.asked.join_next() => {}
            () = here.earlier.notified() => {}
            () = sleep_until(until) => {}
        }
    }
}

struct Worker {
    /// Since when the file is not what it should be.
    changed: Option<Instant>,
    /// Rows that somebody waits for.
    wanted: Vec<Row>,
    writing: JoinSet<(Vec<Row>, Result<(), RowsError>)>,
    calls: JoinSet<AfsUuid>,
    /// Blocks on their way back to the store.
    returns: JoinSet<()>,
    /// Hosts that are being called.
    called: HashSet<AfsUuid>,
    /// When a line was last written of a host.
    lines: HashMap<AfsUuid, Instant>,
    /// Hosts that are being asked for their claims.
    asked: JoinSet<()>,
    /// When those are asked that have not claimed by then.
    asks: Instant,
}

impl Worker {
    fn begin(&mut self, here: &Arc<Leases>, hosts: &Arc<Hosts>, action: Action) {
        match action {
            Action::Recall(host) => {
                if self.called.insert(host) {
                    let (leases, hosts) = (Arc::downgrade(here), Arc::clone(hosts));
                    self.calls.spawn(async move {
                        recall(&leases, &hosts, host).await;
                        host
                    });
                }
            }
            Action::Persist {
                host,
                volume,
                session,
            } => {
                let row = Row {
                    host,
                    volume,
                    session,
                };
                here.rows.put(row);
                self.wanted.push(row);
                self.changed.get_or_insert_with(Instant::now);
            }
            Action::Forget {
                host,
                volume,
                session,
            } => {
                let row = Row {
                    host,
                    volume,
                    session,
                };
                // What was wanted and is of no use by now is in the file until it is written again.
                here.rows.remove(row);
                self.changed.get_or_insert_with(Instant::now);
            }
            Action::Revoked { host, fid } => {
                count(&here.counts.revoked, 1);
                self.tell_revoked(host, fid);
            }
            // They are seen to before.
            Action::Freed(_) | Action::FreedVolume(_) | Action::Returned { .. } => {}
        }
    }

    fn tell_revoked(&mut self, host: AfsUuid, fid: Fid) {
        let now = Instant::now();
        if self.lines.len() >= LINES_OF {
            self.lines
                .retain(|_, since| now.duration_since(*since) < LINES);
        }
        let last = self.lines.get(&host);
        let is_due = last.is_none_or(|last| now.duration_since(*last) >= LINES);
        if is_due && self.lines.len() < LINES_OF {
            self.lines.insert(host, now);
            tracing::warn!(
                %host, %fid,
                "a client did not give a lease back in time: what it has changed and not sent may be refused"
            );
        }
    }

    /// Has hosts say what they had before the server was restarted. A host with nothing to say does not know that it was,
    /// and all others would wait. A host is known as soon as it has called, or from what was saved of promises.
    // spec: leases#restart-of-the-server
    fn ask(&mut self, here: &Arc<Leases>, hosts: &Arc<Hosts>) {
        if !self.unasked().is_zero() || !self.asked.is_empty() {
            return;
        }
        let awaited = here.with(|state, _| state.server.awaited());
        self.asks = Instant::now() + if awaited.is_empty() { REST } else { RESEND };
        for (host, session) in awaited {
            let hosts = Arc::clone(hosts);
            let recall = Recall {
                version: VERSION,
                session,
                ..Recall::default()
            };
            self.asked.spawn(async move {
                // It says so by a call of its own.
                drop(hosts.recall(host, &recall, RESEND).await);
            });
        }
    }

    fn unasked(&self) -> Duration {
        self.asks.saturating_duration_since(Instant::now())
    }

    /// When rows are to be written that nobody waits for.
    fn patience(&self) -> Duration {
        match self.changed {
            Some(since) if self.writing.is_empty() => {
                (since + FORGET).saturating_duration_since(Instant::now())
            }
            _ => REST,
        }
    }

    /// Writes the rows if it is time.
    fn write(&mut self, leases: &Arc<Leases>) {
        let is_due = !self.wanted.is_empty() || self.patience().is_zero();
        if self.changed.is_none() || !self.writing.is_empty() || !is_due {
            return;
        }
        self.changed = None;
        let (rows, leases) = (std::mem::take(&mut self.wanted), Arc::clone(leases));
        self.writing
            .spawn_blocking(move || (rows, leases.rows.write()));
    }

    fn written(&mut self, leases: &Arc<Leases>, rows: &[Row], result: Result<(), RowsError>) {
        if let Err(error) = result {
            // Nobody gets a lease by these rows; and the next ones are tried.
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "leases are not given: what must outlive a restart is not on the disk"
            );
            return;
        }
        leases.with(|state, _| {
            for row in rows {
                state.server.persisted(row.host, row.volume, row.session);
            }
        });
        leases.durable.notify_waiters();
    }
}

/// Recalls what a host has not heard of, as long as it answers. If it does not, this is done again in a second.
async fn recall(leases: &Weak<Leases>, hosts: &Arc<Hosts>, host: AfsUuid) {
    let mut last = None;
    loop {
        let Some(here) = leases.upgrade() else {
            return;
        };
        let Some(recall) = here.with(|state, _| state.server.recall_of(host)) else {
            return;
        };
        if last.as_ref() == Some(&recall) {
            return;
        }
        count(&here.counts.recalled, 1);
        drop(here);
        let began = now();
        let Some(answer) = hosts.recall(host, &recall, RESEND).await else {
            tracing::debug!(%host, took = ?now().saturating_sub(began), "no answer to a recall");
            return;
        };
        let Some(here) = leases.upgrade() else {
            return;
        };
        here.ending(|state, now| state.server.recall_answered(now, host, &recall, &answer));
        last = Some(recall);
    }
}
