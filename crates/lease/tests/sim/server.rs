//! The server's program: a store that survives crashes, calls that are answered once, and the engine.

use std::collections::{BTreeMap, BTreeSet};

use afar_lease::wire::{Block, Lease, Note, Standing};
use afar_lease::{Action, Entry, Heard, Limits, Row, Server, Time, VisitId, VolumeEntry, Wish};
use afar_types::{AfsUuid, Fid, VolumeId};

use crate::net::{Change, Packet, Reply, Request};
use crate::world::{Bug, CLIENTS, Clock, Event, World, uuid};

/// A call that is known.
enum Call {
    Waits { since: Time },
    Runs { visit: VisitId },
    Done(Reply),
}

struct Known {
    request: Request,
    heard: Heard,
    call: Call,
    /// The vnode was not there when it began: it is not for this call, even if it is made meanwhile.
    absent: bool,
}

pub(crate) struct Node {
    pub(crate) clock: Clock,
    pub(crate) engine: Option<Server>,
    pub(crate) instance: u64,
    /// Value and version.
    pub(crate) store: BTreeMap<Fid, (u64, u64)>,
    /// With the session of each.
    rows: BTreeMap<(AfsUuid, VolumeId), u64>,
    /// The last batch of each client, and what became of it.
    batches: BTreeMap<usize, (u64, Vec<bool>)>,
    /// The next vnodes and uniquifiers.
    next: u32,
    calls: BTreeMap<(usize, u64, u64), Known>,
    /// Volumes that somebody needs as a whole, since when.
    closing: BTreeMap<u32, Time>,
    timer: u64,
}

impl Node {
    pub(crate) fn new(clock: Clock, fids: &[Fid]) -> Self {
        Self {
            clock,
            engine: None,
            instance: 0,
            store: fids.iter().map(|&fid| (fid, (0, 1))).collect(),
            rows: BTreeMap::new(),
            batches: BTreeMap::new(),
            next: 100,
            calls: BTreeMap::new(),
            closing: BTreeMap::new(),
            timer: 0,
        }
    }
}

impl World {
    fn server_now(&self) -> Time {
        self.server.clock.local(self.now)
    }

    pub(crate) fn start_server(&mut self) {
        let now = self.server_now();
        let node = &mut self.server;
        node.instance += 1;
        let rows = if self.bug == Bug::ForgetsRows {
            Vec::new()
        } else {
            node.rows
                .iter()
                .map(|(&(host, volume), &session)| Row {
                    host,
                    volume,
                    session,
                })
                .collect()
        };
        node.engine = Some(Server::new(now, node.instance, 7, rows, Limits::default()));
        self.check.recalled.clear();
        self.after_server();
    }

    pub(crate) fn stop_server(&mut self) {
        let node = &mut self.server;
        node.engine = None;
        node.calls.clear();
        node.closing.clear();
    }

    pub(crate) fn server_timer(&mut self) {
        let now = self.server_now();
        if let Some(engine) = &mut self.server.engine {
            engine.handle_timeout(now);
            self.after_server();
        }
    }

    /// Calls of a client's process that has ended are over.
    pub(crate) fn client_gone(&mut self, client: usize) {
        let gone: Vec<_> = self
            .server
            .calls
            .keys()
            .copied()
            .filter(|key| key.0 == client)
            .collect();
        for key in gone {
            if let Some(known) = self.server.calls.remove(&key)
                && let Call::Runs { visit } = known.call
                && let Some(engine) = &mut self.server.engine
            {
                engine.leave(visit);
            }
        }
    }

    pub(crate) fn server_receives(&mut self, packet: Packet) {
        let now = self.server_now();
        let fresh = self.random.u64(1..);
        let Some(engine) = &mut self.server.engine else {
            return;
        };
        match packet {
            Packet::Answer {
                client,
                recall,
                mut answer,
            } => {
                if self.bug == Bug::ReleasesEarly {
                    let released = vec![Standing::Released; answer.standings.len()];
                    answer.standings = released.try_into().unwrap();
                }
                if self.bug == Bug::TrustsStrangers {
                    let trusted = answer.standings.iter().map(|standing| match standing {
                        Standing::Stranger => Standing::Released,
                        known => *known,
                    });
                    answer.standings = trusted.collect::<Vec<_>>().try_into().unwrap();
                }
                engine.recall_answered(now, uuid(client, self.twins), &recall, &answer);
            }
            Packet::Request {
                client,
                life,
                id,
                request,
            } => {
                let key = (client, life, id);
                if !self.clients[client].lives(life) {
                    return;
                }
                if let Some(known) = self.server.calls.get(&key) {
                    if let Call::Done(reply) = &known.call {
                        let reply = reply.clone();
                        self.send(&Packet::Reply {
                            client,
                            life,
                            id,
                            reply,
                        });
                    }
                    return;
                }
                let host = uuid(client, self.twins);
                let heard = match &request {
                    Request::Read(_, note)
                    | Request::Write(_, _, note)
                    | Request::Batch(_, _, note)
                    | Request::Renew(note) => engine.hear(now, host, note, fresh),
                    Request::Claim(_) => Heard::default(),
                };
                let call = Call::Waits { since: now };
                self.server.calls.insert(
                    key,
                    Known {
                        request,
                        heard,
                        call,
                        absent: false,
                    },
                );
            }
            Packet::Reply { .. } | Packet::Recall { .. } => unreachable!("not to the server"),
        }
        self.after_server();
    }

    /// What a call is at.
    fn places(&self, request: &Request, heard: Heard) -> Vec<Fid> {
        let engine = self.server.engine.as_ref().unwrap();
        match request {
            Request::Read(fid, _) | Request::Write(fid, _, _) => vec![*fid],
            Request::Batch(..) if !engine.fits(heard) => Vec::new(),
            Request::Batch(_, changes, _) => {
                let covered = |change: &Change| {
                    let fid = change.fid;
                    let lease = change.lease.map(|number| Lease { fid, number });
                    lease.is_some_and(|lease| engine.covers(heard, lease))
                };
                let made = |change: &Change| change.parent.is_some();
                let changes = changes
                    .iter()
                    .filter(|(change, _)| !covered(change) && !made(change));
                changes.map(|(change, _)| change.fid).collect()
            }
            Request::Renew(_) | Request::Claim(_) => Vec::new(),
        }
    }

    /// A call goes on, or waits.
    fn attempt(&mut self, key: (usize, u64, u64)) {
        let now = self.server_now();
        let Some(known) = self.server.calls.get(&key) else {
            return;
        };
        let Call::Waits { since } = known.call else {
            return;
        };
        let mut fids = self.places(&known.request, known.heard);
        // Before it enters: what is there then is leased if it is anybody's by birth.
        let before = fids.len();
        fids.retain(|fid| self.server.store.contains_key(fid));
        let absent = fids.len() < before;
        let heard = known.heard;
        let engine = self.server.engine.as_mut().unwrap();
        let asked = |engine: &Server, fid: &Fid| engine.holder(*fid).map(|(_, asked)| asked);
        let before: Vec<Fid> = fids
            .iter()
            .copied()
            .filter(|fid| asked(engine, fid) == Some(false))
            .collect();
        let entry = engine.enter(now, None, Some(heard), &fids);
        let recalled = before
            .into_iter()
            .filter(|fid| asked(engine, fid) == Some(true));
        let recalled: BTreeSet<Fid> = recalled.collect();
        match entry {
            Entry::Proceed(visit) => {
                let known = self.server.calls.get_mut(&key).unwrap();
                known.call = Call::Runs { visit };
                known.absent = absent;
                self.check_wait(since, now);
                let work = self.random.u64(0..30_000);
                self.after(work, Event::Finish(key.0, key.1, key.2));
            }
            Entry::Wait(until) => {
                for fid in recalled {
                    self.check_recall(now, fid);
                }
                let at = self.server.clock.global(until);
                self.at(at, Event::ServerTimer);
            }
        }
    }

    pub(crate) fn finish(&mut self, client: usize, life: u64, id: u64) {
        let key = (client, life, id);
        let now = self.server_now();
        let Some(known) = self.server.calls.get(&key) else {
            return;
        };
        let Call::Runs { visit } = known.call else {
            return;
        };
        let (request, heard) = (known.request.clone(), known.heard);
        let absent = known.absent;
        let reply = match request {
            Request::Read(..) | Request::Write(..) if absent => {
                let engine = self.server.engine.as_ref().unwrap();
                Reply::Is(0, 0, engine.word(heard))
            }
            Request::Read(fid, note) => self.single(client, visit, heard, fid, None, &note),
            Request::Write(fid, value, note) => {
                self.single(client, visit, heard, fid, Some(value), &note)
            }
            Request::Batch(number, changes, _) => self.batch(client, number, &changes, heard),
            Request::Renew(_) => {
                let engine = self.server.engine.as_ref().unwrap();
                Reply::Renewed(engine.word(heard))
            }
            Request::Claim(claim) => {
                let engine = self.server.engine.as_mut().unwrap();
                let answer = engine.claim(now, uuid(client, self.twins), &claim);
                let granted = claim.leases.len() - answer.refused.len();
                self.counts.claimed += granted as u64;
                Reply::Claimed(answer)
            }
        };
        self.server.engine.as_mut().unwrap().leave(visit);
        let done = Call::Done(reply.clone());
        self.server.calls.get_mut(&key).unwrap().call = done;
        self.send(&Packet::Reply {
            client,
            life,
            id,
            reply,
        });
        self.after_server();
    }

    /// A read or a write.
    fn single(
        &mut self,
        client: usize,
        visit: VisitId,
        heard: Heard,
        fid: Fid,
        value: Option<u64>,
        note: &Note,
    ) -> Reply {
        self.check_alone(Some(client), fid, "a call");
        self.check_nothing_overlooked(Some(client), fid);
        self.counts.remote += 1;
        if let (Some(value), Some(vnode)) = (value, self.server.store.get_mut(&fid)) {
            *vnode = (value, vnode.1 + 1);
            self.check.history.insert(value);
        }
        let (value, version) = self.server.store.get(&fid).copied().unwrap_or_default();
        let now = self.server_now();
        let node = &mut self.server;
        let engine = node.engine.as_mut().unwrap();
        let wishes = note
            .wishes
            .iter()
            .filter(|&&wish| wish == fid && version > 0);
        let wishes: Vec<Wish> = wishes.map(|&fid| Wish { fid, alone: true }).collect();
        let mut word = engine.answer(now, heard, visit, &wishes);
        self.counts.grants += word.grants.len() as u64;
        if note.reserve > 0 && !word.grants.is_empty() {
            let block = Block {
                volume: fid.volume,
                vnode: node.next,
                uniquifier: node.next,
                count: note.reserve,
                quota: 1 << 20,
                number: 0,
            };
            if let Some(block) = engine.reserve(uuid(client, self.twins), block) {
                node.next += note.reserve;
                word.blocks = vec![block].try_into().unwrap();
            }
        }
        if self.bug == Bug::WordsWithoutRecalls {
            word.recalls = Vec::new().try_into().unwrap();
        }
        Reply::Is(value, version, word)
    }

    fn batch(
        &mut self,
        client: usize,
        number: u64,
        changes: &[(Change, Option<u64>)],
        heard: Heard,
    ) -> Reply {
        let mut results = None;
        if let Some((last, known)) = self.server.batches.get(&client)
            && *last == number
        {
            results = Some(known.clone());
        } else if self.server.engine.as_ref().unwrap().fits(heard) {
            let mut made = Vec::new();
            for (change, parent) in changes {
                made.push(self.change(client, heard, change, *parent));
            }
            self.server.batches.insert(client, (number, made.clone()));
            results = Some(made);
        }
        let engine = self.server.engine.as_ref().unwrap();
        let mut word = engine.word(heard);
        if self.bug == Bug::WordsWithoutRecalls {
            word.recalls = Vec::new().try_into().unwrap();
        }
        Reply::Batch(results, word)
    }

    /// Whether one change of a batch is made.
    fn change(
        &mut self,
        client: usize,
        heard: Heard,
        change: &Change,
        parent: Option<u64>,
    ) -> bool {
        let fid = change.fid;
        let now = self.server_now();
        let engine = self.server.engine.as_mut().unwrap();
        if let Some(directory) = change.parent {
            let parent = Lease {
                fid: directory,
                number: parent.unwrap_or_default(),
            };
            let born = engine.born(now, heard, parent, fid).is_ok();
            let new = !self.server.store.contains_key(&fid);
            if born && new {
                self.counts.born += 1;
                self.apply(client, change);
            }
            return born && new;
        }
        let lease = change.lease.map(|number| Lease { fid, number });
        let covered = lease.is_some_and(|lease| engine.covers(heard, lease));
        let stored = self.server.store.get(&fid);
        let fits = stored.is_some_and(|vnode| vnode.1 == change.expected);
        if covered {
            if !fits {
                let what = format!(
                    "{client} changes {fid} on {} but {stored:?}",
                    change.expected
                );
                self.fail(what);
            }
        } else {
            self.counts.late += 1;
            self.check_alone(Some(client), fid, "a late change");
            self.check_nothing_overlooked(Some(client), fid);
        }
        if fits {
            self.apply(client, change);
        }
        fits
    }

    fn apply(&mut self, client: usize, change: &Change) {
        self.counts.applied += 1;
        let version = change.expected + 1;
        self.server
            .store
            .insert(change.fid, (change.value, version));
        self.check.history.insert(change.value);
        self.check.done(client, change.fid, change.value);
    }

    pub(crate) fn persisted(&mut self, instance: u64, host: AfsUuid, volume: u32, session: u64) {
        if self.server.instance != instance || self.server.engine.is_none() {
            return;
        }
        let volume = VolumeId(volume);
        self.server.rows.insert((host, volume), session);
        self.server
            .engine
            .as_mut()
            .unwrap()
            .persisted(host, volume, session);
    }

    pub(crate) fn close(&mut self, volume: u32) {
        let other = volume % crate::world::VOLUMES + 1;
        self.after(80_000_000, Event::Close(other));
        let now = self.server_now();
        if let Some(engine) = &mut self.server.engine {
            engine.close_volume(VolumeId(volume));
            self.server.closing.insert(volume, now);
            self.after_server();
        }
    }

    pub(crate) fn open(&mut self, instance: u64, volume: u32) {
        if self.server.instance == instance
            && let Some(engine) = &mut self.server.engine
        {
            engine.open_volume(VolumeId(volume));
        }
    }

    fn try_volumes(&mut self) {
        let now = self.server_now();
        let closing: Vec<(u32, Time)> = self.server.closing.iter().map(|(&v, &t)| (v, t)).collect();
        for (volume, since) in closing {
            let Some(engine) = &mut self.server.engine else {
                return;
            };
            match engine.enter_volume(now, VolumeId(volume)) {
                VolumeEntry::Proceed => {
                    self.server.closing.remove(&volume);
                    self.counts.volumes += 1;
                    self.check_wait(since, now);
                    for fid in self.fids.clone() {
                        if fid.volume.0 == volume {
                            self.check_alone(None, fid, "a volume operation");
                            self.check_nothing_overlooked(None, fid);
                        }
                    }
                    self.after(1_000_000, Event::Open(self.server.instance, volume));
                }
                VolumeEntry::Wait(until) => {
                    let at = self.server.clock.global(until);
                    self.at(at, Event::ServerTimer);
                }
            }
        }
    }

    /// Does what the engine wants done. Whether something was freed.
    fn server_actions(&mut self) -> bool {
        let mut freed = false;
        while let Some(action) = self.server.engine.as_mut().and_then(Server::poll_action) {
            match action {
                Action::Recall(host) => self.call_back(host),
                Action::Persist {
                    host,
                    volume,
                    session,
                } => {
                    let written = self.random.u64(1000..40_000);
                    let instance = self.server.instance;
                    self.after(written, Event::Persisted(instance, host, volume.0, session));
                }
                Action::Forget {
                    host,
                    volume,
                    session,
                } => {
                    let rows = &mut self.server.rows;
                    if rows.get(&(host, volume)) == Some(&session) {
                        rows.remove(&(host, volume));
                    }
                    self.check.late_in(host, volume);
                }
                Action::Freed(_) | Action::FreedVolume(_) => freed = true,
                Action::Revoked { host, fid } => {
                    self.counts.revoked += 1;
                    self.check.late(host, |other| other == fid);
                }
                Action::Returned { .. } => {}
            }
        }
        freed
    }

    /// Does that, and lets those go on that can.
    fn after_server(&mut self) {
        loop {
            self.server_actions();
            self.try_volumes();
            let waiting = self.server.calls.iter();
            let waiting = waiting.filter(|(_, known)| matches!(known.call, Call::Waits { .. }));
            let waiting: Vec<_> = waiting.map(|(&key, _)| key).collect();
            for key in waiting {
                self.attempt(key);
            }
            if !self.server_actions() {
                break;
            }
        }
        let next = self.server.engine.as_ref().and_then(Server::poll_timeout);
        if let Some(next) = next {
            let at = self.server.clock.global(next);
            // One event for each moment is enough.
            if at != self.server.timer {
                self.server.timer = at;
                self.at(at, Event::ServerTimer);
            }
        }
    }

    fn call_back(&mut self, host: AfsUuid) {
        let Some(recall) = self
            .server
            .engine
            .as_ref()
            .and_then(|engine| engine.recall_of(host))
        else {
            return;
        };
        let mut client = host.time_low as usize;
        if self.twins && client == CLIENTS - 2 {
            // The server does not know which of the two is the one it means.
            client += self.random.usize(..2);
        }
        self.send(&Packet::Recall { client, recall });
    }
}
