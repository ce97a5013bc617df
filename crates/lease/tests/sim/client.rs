//! A client: a program that reads, writes, makes files and calls fsync; a journal that survives crashes; the engine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use afar_lease::holder::Action;
use afar_lease::wire::{Claim, Lease};
use afar_lease::{Holder, Sent};
use afar_types::Fid;

use crate::net::{Change, Packet, Reply, Request};
use crate::world::{Bug, Clock, Event, World};

/// A call that is under way.
struct Asked {
    request: Request,
    sent: Sent,
    claim: Option<Claim>,
    tried: bool,
}

pub(crate) struct Client {
    pub(crate) clock: Clock,
    pub(crate) up: bool,
    life: u64,
    pub(crate) holder: Holder,
    /// Values and versions of what is leased.
    pub(crate) cached: BTreeMap<Fid, (u64, u64)>,
    journal: VecDeque<Change>,
    /// The batch under way: its number, and how many changes it has.
    batch: Option<(u64, usize)>,
    batches: u64,
    calls: BTreeMap<u64, Asked>,
    last: u64,
    /// Leases to be given back once the journal has nothing of them.
    ending: BTreeSet<Fid>,
    saying: bool,
    claiming: bool,
    /// Values that an fsync waits for.
    syncing: Vec<u64>,
    /// Values of which a conflict was told.
    told: BTreeSet<u64>,
    timer: u64,
}

impl Client {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            up: false,
            life: 0,
            holder: Holder::new(),
            cached: BTreeMap::new(),
            journal: VecDeque::new(),
            batch: None,
            batches: 0,
            calls: BTreeMap::new(),
            last: 0,
            ending: BTreeSet::new(),
            saying: false,
            claiming: false,
            syncing: Vec::new(),
            told: BTreeSet::new(),
            timer: 0,
        }
    }

    pub(crate) fn lives(&self, life: u64) -> bool {
        self.up && self.life == life
    }

    fn unsent(&self, fid: Fid) -> bool {
        // What is made in a directory is a change of it.
        let mut changes = self.journal.iter();
        changes.any(|change| change.fid == fid || change.parent == Some(fid))
    }
}

impl World {
    pub(crate) fn start_client(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if client.up {
            return;
        }
        client.up = true;
        client.life += 1;
        let leases = client.journal.iter().filter_map(|change| {
            let number = change.lease?;
            Some(Lease {
                fid: change.fid,
                number,
            })
        });
        let session = client.holder.session();
        client.holder = Holder::resume(session, &leases.collect::<Vec<_>>());
        client.ending.clear();
        let life = client.life;
        self.after(1000, Event::Step(index, life));
        self.client_actions(index);
    }

    pub(crate) fn stop_client(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.up = false;
        client.calls.clear();
        client.cached.clear();
        client.saying = false;
        client.claiming = false;
        client.syncing.clear();
        self.client_gone(index);
    }

    pub(crate) fn client_timer(&mut self, index: usize) {
        self.client_timer_now(index);
        self.client_actions(index);
    }

    /// Lets time pass for a client, no more.
    pub(crate) fn client_timer_now(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if client.up {
            let now = client.clock.local(self.now);
            client.holder.handle_timeout(now);
            self.lose(index);
        }
    }

    /// Notes which leases are lost, and keeps the other actions.
    fn lose(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let mut others = Vec::new();
        while let Some(action) = client.holder.poll_action() {
            match action {
                Action::Lost(fid) => {
                    for change in &mut client.journal {
                        if change.fid == fid {
                            change.lease = None;
                        }
                    }
                    client.cached.remove(&fid);
                    client.ending.remove(&fid);
                    if self.check.pending.contains_key(&(index, fid)) {
                        self.check.late.insert((index, fid));
                    }
                }
                Action::Flush(fid) => {
                    client.cached.remove(&fid);
                    client.ending.insert(fid);
                }
                other => others.push(other),
            }
        }
        for action in others {
            match action {
                Action::Say => client.saying = true,
                Action::Claim => client.claiming = true,
                Action::Lost(_) | Action::Flush(_) => {}
            }
        }
    }

    /// Does what the engine wants done.
    fn client_actions(&mut self, index: usize) {
        self.lose(index);
        if !self.clients[index].up {
            return;
        }
        let client = &mut self.clients[index];
        let flushed = client
            .ending
            .iter()
            .copied()
            .filter(|&fid| !client.unsent(fid));
        for fid in flushed.collect::<Vec<_>>() {
            client.ending.remove(&fid);
            client.holder.flushed(fid);
        }
        if !client.ending.is_empty() {
            self.flush(index);
        }
        self.lose(index);
        let client = &mut self.clients[index];
        let now = client.clock.local(self.now);
        if std::mem::take(&mut client.claiming)
            && let Some((claim, sent)) = client.holder.claim(now)
        {
            let request = Request::Claim(claim.clone());
            self.call(index, request, sent, Some(claim));
        }
        let client = &mut self.clients[index];
        let under_way = client
            .calls
            .values()
            .any(|call| matches!(call.request, Request::Renew(_)));
        if client.saying && !under_way {
            client.saying = false;
            let (note, sent) = client.holder.note(now, &[], 0);
            self.call(index, Request::Renew(note), sent, None);
        }
        self.lose(index);
        let client = &mut self.clients[index];
        if let Some(next) = client.holder.poll_timeout() {
            let at = client.clock.global(next);
            if at != client.timer {
                client.timer = at;
                self.at(at, Event::ClientTimer(index));
            }
        }
    }

    fn call(&mut self, index: usize, request: Request, sent: Sent, claim: Option<Claim>) {
        let client = &mut self.clients[index];
        client.last += 1;
        let (life, id) = (client.life, client.last);
        let asked = Asked {
            request,
            sent,
            claim,
            tried: false,
        };
        client.calls.insert(id, asked);
        self.resend(index, life, id);
    }

    pub(crate) fn resend(&mut self, index: usize, life: u64, id: u64) {
        let client = &self.clients[index];
        if !client.lives(life) {
            return;
        }
        if let Some(asked) = client.calls.get(&id) {
            let request = asked.request.clone();
            if asked.tried && asked.claim.is_some() && self.random.bool() {
                // It is given up, and another one made.
                let client = &mut self.clients[index];
                client.calls.remove(&id);
                client.claiming = true;
                self.client_actions(index);
                return;
            }
            if let Some(asked) = self.clients[index].calls.get_mut(&id) {
                asked.tried = true;
            }
            self.send(&Packet::Request {
                client: index,
                life,
                id,
                request,
            });
            self.after(1_000_000, Event::Resend(index, life, id));
        }
    }

    pub(crate) fn client_receives(&mut self, packet: Packet) {
        match packet {
            Packet::Recall {
                client: index,
                recall,
            } => {
                let client = &mut self.clients[index];
                if !client.up {
                    return;
                }
                let answer = client.holder.recalled(&recall);
                self.send(&Packet::Answer {
                    client: index,
                    recall,
                    answer,
                });
                self.client_actions(index);
            }
            Packet::Reply {
                client: index,
                life,
                id,
                reply,
            } => {
                if self.clients[index].lives(life)
                    && let Some(asked) = self.clients[index].calls.remove(&id)
                {
                    self.answered(index, &asked, reply);
                    self.client_actions(index);
                }
            }
            Packet::Request { .. } | Packet::Answer { .. } => unreachable!("not to a client"),
        }
    }

    fn answered(&mut self, index: usize, asked: &Asked, reply: Reply) {
        // Leases that are over are over before the reply is looked at.
        self.client_timer_now(index);
        let client = &mut self.clients[index];
        let now = client.clock.local(self.now);
        let mut sent = asked.sent.clone();
        if self.bug == Bug::CountsFromReception {
            let wishes = match &asked.request {
                Request::Read(_, note) | Request::Write(_, _, note) => note.wishes.to_vec(),
                _ => Vec::new(),
            };
            sent = client.holder.note(now, &wishes, 0).1;
        }
        let life = client.life;
        match reply {
            Reply::Is(value, version, mut word) => {
                if self.bug == Bug::IgnoresNumbers {
                    let mut grants = word.grants.to_vec();
                    grants.iter_mut().for_each(|lease| lease.number += 1 << 30);
                    word.grants = grants.try_into().unwrap();
                }
                client.holder.answered(now, &sent, &word);
                for lease in &word.grants {
                    let its = client.holder.lease(now, lease.fid) == Some(lease.number);
                    if its && !client.unsent(lease.fid) {
                        client.cached.insert(lease.fid, (value, version));
                    }
                }
                let pause = self.random.u64(1000..800_000);
                self.after(pause, Event::Step(index, life));
            }
            Reply::Batch(results, word) => {
                client.holder.answered(now, &sent, &word);
                self.lose(index);
                self.batch_answered(index, results);
            }
            Reply::Renewed(word) => client.holder.answered(now, &sent, &word),
            Reply::Claimed(answer) => {
                if let Some(claim) = &asked.claim {
                    client.holder.claimed(now, &sent, claim, &answer);
                }
            }
        }
        self.lose(index);
    }

    fn batch_answered(&mut self, index: usize, results: Option<Vec<bool>>) {
        let client = &mut self.clients[index];
        let life = client.life;
        let Some(results) = results else {
            // The same changes go again, with the numbers that they have then.
            self.after(200_000, Event::Flush(index, life));
            return;
        };
        client.batch = None;
        for made in results {
            let change = client.journal.pop_front().unwrap();
            if !made {
                client.told.insert(change.value);
                self.counts.conflicts += 1;
                self.check.done(index, change.fid, change.value);
                client.cached.remove(&change.fid);
                client.holder.forget(change.fid);
                client.ending.remove(&change.fid);
            }
        }
        if !client.journal.is_empty() {
            self.after(1000, Event::Flush(index, life));
        }
    }

    /// Sends what is in the journal.
    pub(crate) fn flush(&mut self, index: usize) {
        self.client_timer_now(index);
        let client = &mut self.clients[index];
        let under_way = client
            .calls
            .values()
            .any(|call| matches!(call.request, Request::Batch(..)));
        if under_way || client.journal.is_empty() {
            return;
        }
        let (number, count) = client.batch.unwrap_or_else(|| {
            client.batches += 1;
            (client.batches, client.journal.len().min(20))
        });
        client.batch = Some((number, count));
        let changes = client.journal.iter().take(count).map(|change| {
            let mut change = change.clone();
            change.lease = change.lease.and_then(|_| client.holder.number(change.fid));
            let parent = change.lease.and(change.parent);
            let parent = parent.and_then(|parent| client.holder.number(parent));
            (change, parent)
        });
        let changes = changes.collect();
        let now = client.clock.local(self.now);
        let (note, sent) = client.holder.note(now, &[], 0);
        self.call(index, Request::Batch(number, changes, note), sent, None);
    }

    /// The program does one thing.
    pub(crate) fn step(&mut self, index: usize, life: u64) {
        if !self.clients[index].lives(life) {
            return;
        }
        self.client_timer_now(index);
        // Each has vnodes that it uses most.
        let mut place = self.random.usize(..self.fids.len());
        if self.random.u8(..40) > 0 {
            place -= place % crate::world::CLIENTS;
            place = (place + index).min(self.fids.len() - 1);
        }
        let fid = self.fids[place];
        let client = &mut self.clients[index];
        let now = client.clock.local(self.now);
        let here = client.cached.contains_key(&fid) && client.holder.may(now, fid).is_some();
        match self.random.u8(..20) {
            0 if !client.journal.is_empty() => {
                client.syncing = client.journal.iter().map(|change| change.value).collect();
            }
            1..=4 => self.make(index),
            kind if here => self.here(index, fid, kind < 12),
            kind if !client.unsent(fid) => {
                let few = client.holder.reserved(fid.volume) < 2;
                let reserve = if few { 8 } else { 0 };
                let (note, sent) = client.holder.note(now, &[fid], reserve);
                let request = if kind < 12 {
                    self.check.values += 1;
                    Request::Write(fid, self.check.values, note)
                } else {
                    Request::Read(fid, note)
                };
                self.call(index, request, sent, None);
                self.client_actions(index);
                // The answer goes on.
                return;
            }
            _ => {}
        }
        if !self.clients[index].syncing.is_empty() {
            self.sync(index);
        }
        self.client_actions(index);
        let pause = self.random.u64(1000..500_000);
        self.after(pause, Event::Step(index, life));
    }

    /// A read or write without the server.
    fn here(&mut self, index: usize, fid: Fid, writes: bool) {
        self.check_alone(Some(index), fid, "something here");
        self.check_nothing_overlooked(Some(index), fid);
        self.check_sight(index, fid);
        self.counts.local += 1;
        if !writes {
            return;
        }
        self.check.values += 1;
        let value = self.check.values;
        let client = &mut self.clients[index];
        let version = client.cached[&fid].1;
        client.cached.insert(fid, (value, version + 1));
        let lease = client.holder.number(fid);
        self.log(
            index,
            Change {
                fid,
                lease,
                parent: None,
                value,
                expected: version,
            },
        );
    }

    /// A new file in a leased directory.
    fn make(&mut self, index: usize) {
        if self.fids.len() > 30 {
            return;
        }
        let client = &mut self.clients[index];
        let now = client.clock.local(self.now);
        for directory in self.fids.clone().into_iter().take(crate::world::VNODES) {
            let client = &mut self.clients[index];
            if client.cached.contains_key(&directory)
                && let Some(fid) = client.holder.born(now, directory, false)
            {
                self.check_alone(Some(index), directory, "a birth");
                self.check.values += 1;
                let value = self.check.values;
                let client = &mut self.clients[index];
                client.cached.insert(fid, (value, 1));
                let lease = client.holder.number(fid);
                let parent = Some(directory);
                self.fids.push(fid);
                self.log(
                    index,
                    Change {
                        fid,
                        lease,
                        parent,
                        value,
                        expected: 0,
                    },
                );
                return;
            }
        }
    }

    fn log(&mut self, index: usize, change: Change) {
        self.check.wrote(index, change.fid, change.value);
        let client = &mut self.clients[index];
        client.journal.push_back(change);
        let life = client.life;
        let delay = self.random.u64(1000..4_000_000);
        self.after(delay, Event::Flush(index, life));
    }

    /// Answers an fsync once the journal has nothing of what was before it.
    fn sync(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let waits = |value: &u64| client.journal.iter().any(|change| change.value == *value);
        if client.syncing.iter().any(waits) {
            self.flush(index);
            return;
        }
        let synced = std::mem::take(&mut client.syncing);
        self.counts.synced += 1;
        for value in synced {
            let told = self.clients[index].told.contains(&value);
            if !self.check.history.contains(&value) && !told {
                self.fail(format!("{index} answered for {value}, which is nowhere"));
            }
        }
    }
}
