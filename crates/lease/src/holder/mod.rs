//! The holder's end: what a client may do without asking, for one server.

mod floors;
mod reserve;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use afar_types::{Fid, Uniquifier, VnodeId, VolumeId};

use crate::wire::{
    self, Claim, Claimed, Item, Lease, Note, Recall, RecallAnswer, Standing, VERSION, Word,
};
use crate::{HOLDER_TERM, IDLE, RENEWAL, Time};

use floors::Floors;
use reserve::Reserves;

/// What the client's program has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stop using this lease, send what there is of it, and then call [`Holder::flushed`].
    Flush(Fid),
    /// Send a call with a note soon, one of its own if there is none to go with.
    Say,
    /// Send [`Holder::claim`], again and again until it is answered or there is none to send.
    Claim,
    /// A lease is over that was not given back. What was not sent is late: the server takes it only if the vnode has
    /// the version that it expects.
    Lost(Fid),
}

/// What was said with a call, to be kept until its reply.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When the call was sent the first time.
    at: Time,
    /// The life and the session that it named.
    said: (u64, u64),
    wishes: Vec<Fid>,
    given: Vec<Lease>,
}

/// A lease as its holder knows it.
#[derive(Clone, Copy, Debug)]
struct Mine {
    number: u64,
    /// It is to be given back as soon as all is sent.
    ending: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Holder {
    /// The life of the server, and the session in it.
    instance: u64,
    session: u64,
    /// Nothing more is done under the session: all of it is given back, and another one begins then.
    leaving: bool,
    until: Time,
    heard: u64,
    leases: BTreeMap<Fid, Mine>,
    floors: Floors,
    reserves: Reserves,
    /// What is given back, until the server has answered that.
    given: BTreeSet<Lease>,
    /// The life of the server that waits for a claim, and when that was sent first: one that is repeated renews nothing.
    claims: Option<(u64, Option<Time>)>,
    /// When the last note was made.
    said: Time,
    /// When a lease was used last.
    used: Time,
    actions: VecDeque<Action>,
}

impl Default for Holder {
    fn default() -> Self {
        Self::new()
    }
}

impl Holder {
    /// A client that has no leases.
    #[must_use]
    pub fn new() -> Self {
        Self {
            instance: 0,
            session: 0,
            leaving: false,
            until: Time::ZERO,
            heard: 0,
            leases: BTreeMap::new(),
            floors: Floors::new(),
            reserves: Reserves::default(),
            given: BTreeSet::new(),
            claims: None,
            said: Time::ZERO,
            used: Time::ZERO,
            actions: VecDeque::new(),
        }
    }

    /// A client that starts after an earlier process of it: with that one's life of the server and [session](Self::session),
    /// and the leases of changes that it did not send. They are sent at once: the leases may stand, but nothing more is
    /// done under them, and then all of the session is given back.
    // spec: leases#restart-of-the-holder
    #[must_use]
    pub fn resume(session: (u64, u64), leases: &[Lease]) -> Self {
        let mut holder = Self::new();
        (holder.instance, holder.session) = session;
        holder.leaving = holder.session != 0;
        for lease in leases.iter().take(wire::CLAIMED) {
            let number = lease.number;
            let mut mine = Mine {
                number,
                ending: false,
            };
            holder.floors.raise(lease.fid, number);
            end(&mut holder.actions, lease.fid, &mut mine);
            holder.leases.insert(lease.fid, mine);
        }
        holder.actions.push_back(Action::Say);
        holder
    }

    /// The life of the server and the session. A journal has it before it has a change that was made under one of its
    /// leases.
    #[must_use]
    pub fn session(&self) -> (u64, u64) {
        (self.instance, self.session)
    }

    /// What to say with a call that is about to be sent. `wishes` are of what the call touches; `reserve` is how many
    /// fids are wanted in addition, in the volume of the first wish.
    pub fn note(&mut self, now: Time, wishes: &[Fid], reserve: u32) -> (Note, Sent) {
        self.expire(now);
        self.said = now;
        // What is just given back is not asked for before the server knows.
        let wishes = wishes.iter().copied().filter(|&fid| {
            let ending = self.leases.get(&fid).is_some_and(|mine| mine.ending);
            let number = |number| Lease { fid, number };
            let given = self.given.range(number(0)..=number(u64::MAX)).next();
            !self.leaving && !ending && given.is_none()
        });
        let everything = self.leaving && self.leases.is_empty();
        let note = Note {
            version: VERSION,
            instance: self.instance,
            session: self.session,
            heard: self.heard,
            wishes: wire::some(wishes),
            reserve,
            given: if everything {
                wire::some([wire::EVERYTHING])
            } else {
                wire::some(self.given.iter().copied())
            },
        };
        let sent = Sent {
            at: now,
            said: self.session(),
            wishes: note.wishes.to_vec(),
            given: note.given.to_vec(),
        };
        (note, sent)
    }

    /// The server has answered a call that a note went with.
    // spec: leases#grant
    pub fn answered(&mut self, now: Time, sent: &Sent, word: &Word) {
        self.expire(now);
        for item in &word.recalls {
            self.hear(item);
        }
        let current = sent.said == self.session();
        if self.claims.is_some() {
            return;
        }
        if word.claim && current && self.session != 0 {
            self.claims = Some((word.instance, None));
            self.actions.push_back(Action::Claim);
            return;
        }
        let same = (word.instance, word.session) == self.session();
        if same && self.session != 0 {
            if word.renews && !self.leaving {
                self.until = self.until.max(sent.at + HOLDER_TERM);
            }
            self.heard = self.heard.max(word.told);
            if current {
                for lease in &sent.given {
                    self.given.remove(lease);
                }
            }
        } else if !current {
            // It is of a session that is over, or was under way while one began.
            return;
        } else if self.session != 0 {
            // The server knows nothing of the session any longer.
            self.lose_all();
            return;
        } else if word.session != 0 && word.renews {
            (self.instance, self.session) = (word.instance, word.session);
            self.until = sent.at + HOLDER_TERM;
            self.heard = word.told;
        } else {
            return;
        }
        if !self.leaving {
            self.take(now, sent, word);
        }
    }

    /// Takes what is granted.
    fn take(&mut self, now: Time, sent: &Sent, word: &Word) {
        for lease in &word.grants {
            let wished = sent.wishes.contains(&lease.fid);
            if wished && self.floors.lets(lease.fid, lease.number) && self.room() {
                let mine = self.leases.entry(lease.fid);
                mine.or_insert(Mine {
                    number: lease.number,
                    ending: false,
                });
                self.used = self.used.max(now);
            }
        }
        for block in &word.blocks {
            let whole = wire::whole(block.volume);
            if self.floors.lets(whole, block.number) && !self.reserves.add(*block) {
                self.given.insert(block.name());
            }
        }
    }

    fn room(&self) -> bool {
        self.leases.len() < wire::CLAIMED
    }

    /// The server recalls leases. The answer says what is left of each; the flushing begins by actions.
    // spec: leases#recall
    pub fn recalled(&mut self, recall: &Recall) -> RecallAnswer {
        // A session of which the first word is still under way is a stranger's, too: its recall comes again.
        let own = recall.session == self.session && self.session != 0;
        let standings = recall.items.iter().map(|item| {
            if !own {
                Standing::Stranger
            } else if self.hear(item) {
                Standing::Flushing
            } else {
                Standing::Released
            }
        });
        RecallAnswer {
            standings: wire::some(standings.collect::<Vec<_>>()),
        }
    }

    /// Whether something of what is recalled is still here.
    fn hear(&mut self, item: &Item) -> bool {
        self.floors.raise(item.fid, item.number);
        let (mut first, mut last) = (item.fid, item.fid);
        if item.fid.vnode.0 == 0 {
            first.uniquifier = Uniquifier(0);
            last.vnode = VnodeId(u32::MAX);
            last.uniquifier = Uniquifier(u32::MAX);
            let recalled = |block: &wire::Block| {
                block.volume == item.fid.volume && block.number <= item.number
            };
            self.reserves.close(recalled);
        }
        let mut some = false;
        for (&fid, mine) in self.leases.range_mut(first..=last) {
            if mine.number <= item.number {
                some = true;
                end(&mut self.actions, fid, mine);
            }
        }
        some
    }

    fn has(leases: &BTreeMap<Fid, Mine>, volume: VolumeId) -> bool {
        let whole = wire::whole(volume);
        let first = leases.range(whole..).next();
        first.is_some_and(|(fid, _)| fid.volume == volume)
    }

    /// The number of a lease under which something may be read or changed here and now, without asking the server.
    // spec: leases#what-a-lease-means
    pub fn may(&mut self, now: Time, fid: Fid) -> Option<u64> {
        let number = self.lease(now, fid)?;
        self.used = now;
        Some(number)
    }

    /// The same, without counting as use.
    #[must_use]
    pub fn lease(&self, now: Time, fid: Fid) -> Option<u64> {
        let mine = self.leases.get(&fid)?;
        (now < self.until && !mine.ending).then_some(mine.number)
    }

    /// The number under which what was changed here is sent, also while the lease is ending. None: it is late.
    #[must_use]
    pub fn number(&self, fid: Fid) -> Option<u64> {
        Some(self.leases.get(&fid)?.number)
    }

    /// A fid for something new in a leased directory: it is leased by birth.
    // spec: leases#birth
    pub fn born(&mut self, now: Time, directory: Fid, is_directory: bool) -> Option<Fid> {
        let number = self.may(now, directory)?;
        if !self.room() {
            return None;
        }
        let fid = self.reserves.take(directory.volume, is_directory)?;
        let ending = false;
        self.leases.insert(fid, Mine { number, ending });
        Some(fid)
    }

    /// Whether something of this kind can be [born](Self::born) in a volume.
    #[must_use]
    pub fn has_reserve(&self, volume: VolumeId, is_directory: bool) -> bool {
        self.reserves.has(volume, is_directory)
    }

    /// Fids in reserve in a volume, of the kind (directories or others) of which there are fewer.
    #[must_use]
    pub fn reserved(&self, volume: VolumeId) -> u32 {
        self.reserves.left(volume)
    }

    /// The server has said what came of something that was [born](Self::born). A block that is used up is given back
    /// with the last of it.
    // spec: leases#reserves
    pub fn settled(&mut self, fid: Fid) {
        if let Some(block) = self.reserves.settle(fid) {
            self.given.insert(block.name());
        }
    }

    /// Takes so many bytes of a volume's quota out of what is in reserve; false if less is left.
    // spec: leases#reserves
    pub fn spend(&mut self, volume: VolumeId, bytes: u64) -> bool {
        self.reserves.spend(volume, bytes)
    }

    /// All leases, with their numbers: those that are being given back as well.
    pub fn leases(&self) -> impl Iterator<Item = Lease> + '_ {
        self.leases.iter().map(|(&fid, mine)| Lease {
            fid,
            number: mine.number,
        })
    }

    /// One of a volume's leases that may be used, to wish for again when fids are wanted.
    #[must_use]
    pub fn some_lease(&self, now: Time, volume: VolumeId) -> Option<Fid> {
        let whole = wire::whole(volume);
        let mut its = self.leases.range(whole..);
        let (&fid, _) = its.find(|(fid, mine)| {
            // Symbolic links are not granted, only born.
            fid.volume != volume || !mine.ending && fid.vnode.is_directory()
        })?;
        (fid.volume == volume && now < self.until).then_some(fid)
    }

    /// Begins to give a lease back.
    // spec: leases#giving-back
    pub fn give_back(&mut self, fid: Fid) {
        if let Some(mine) = self.leases.get_mut(&fid) {
            self.floors.raise(fid, mine.number);
            end(&mut self.actions, fid, mine);
        }
    }

    /// The server has all that was changed here under a lease that is ending.
    pub fn flushed(&mut self, fid: Fid) {
        let Some(mine) = self.leases.get(&fid).copied().filter(|mine| mine.ending) else {
            return;
        };
        self.leases.remove(&fid);
        let number = mine.number;
        self.given.insert(Lease { fid, number });
        if !Self::has(&self.leases, fid.volume) {
            let blocks = self.reserves.remove(|block| block.volume == fid.volume);
            self.given.extend(blocks.iter().map(wire::Block::name));
        }
        self.actions.push_back(Action::Say);
    }

    /// The server did not make this, or it is removed there: nothing is left to lease.
    pub fn forget(&mut self, fid: Fid) {
        if let Some(mine) = self.leases.remove(&fid) {
            let number = mine.number;
            self.given.insert(Lease { fid, number });
        }
    }

    /// What to claim from a server that has restarted. None: nothing is to be claimed any longer.
    // spec: leases#restart-of-the-server
    pub fn claim(&mut self, now: Time) -> Option<(Claim, Sent)> {
        let (instance, first) = self.claims.as_mut()?;
        let (instance, at) = (*instance, *first.get_or_insert(now));
        self.expire(now);
        // Under what an earlier process had, nobody knows until when.
        let mine = self.leases.iter().filter(|_| !self.leaving);
        let leases = mine.map(|(&fid, mine)| Lease {
            fid,
            number: mine.number,
        });
        let claim = Claim {
            version: VERSION,
            instance,
            session: self.session,
            leases: wire::some(leases),
            blocks: wire::some(self.reserves.blocks()),
        };
        let sent = Sent {
            at,
            said: self.session(),
            wishes: Vec::new(),
            given: Vec::new(),
        };
        Some((claim, sent))
    }

    /// The server has answered a claim.
    pub fn claimed(&mut self, now: Time, sent: &Sent, claim: &Claim, answer: &Claimed) {
        self.expire(now);
        if self.claims.map(|(instance, _)| instance) != Some(claim.instance) {
            return;
        }
        self.claims = None;
        if answer.session == 0 || answer.session != self.session {
            self.lose_all();
            return;
        }
        self.instance = claim.instance;
        self.heard = 0;
        self.given.clear();
        self.actions.push_back(Action::Say);
        if self.leaving {
            // The leases were over before the answer came.
            return;
        }
        self.until = sent.at + HOLDER_TERM;
        self.reserves.renumber(answer.number);
        for lease in &claim.leases {
            if !self.leases.contains_key(&lease.fid) {
                // It was given back on the way.
                let number = answer.number;
                self.given.insert(Lease { number, ..*lease });
            }
        }
        for place in &answer.refused {
            let refused = claim.leases.get(*place as usize);
            if let Some(fid) = refused.map(|lease| lease.fid)
                && self.leases.remove(&fid).is_some()
            {
                self.actions.push_back(Action::Lost(fid));
            }
        }
        for (&fid, mine) in &mut self.leases {
            mine.number = answer.number;
            if mine.ending {
                // It was recalled, or begun to be given back, on the way.
                self.floors.raise(fid, answer.number);
            }
        }
    }

    /// The session is over for both ends.
    fn lose_all(&mut self) {
        self.lose_leases();
        self.session = 0;
        self.leaving = false;
    }

    fn lose_leases(&mut self) {
        for fid in std::mem::take(&mut self.leases).into_keys() {
            self.actions.push_back(Action::Lost(fid));
        }
        self.reserves = Reserves::default();
        self.given.clear();
    }

    /// The session is over for the holder's clock. The server hears that, lest it takes it for going on.
    fn expire(&mut self, now: Time) {
        if self.session != 0 && !self.leaving && now >= self.until {
            if self.leases.is_empty() && self.given.is_empty() {
                self.lose_all();
                return;
            }
            self.lose_leases();
            self.leaving = true;
            self.actions.push_back(Action::Say);
        }
    }

    /// Gives everything back, because the client ends: when all is sent, and a note is answered, nothing is left.
    // spec: leases#giving-back
    pub fn leave(&mut self) {
        for (&fid, mine) in &mut self.leases {
            end(&mut self.actions, fid, mine);
        }
        self.leaving = self.session != 0;
        self.actions.push_back(Action::Say);
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let idle = self.leases.is_empty() && self.given.is_empty();
        (self.session != 0 && !self.leaving).then(|| {
            if idle {
                self.until
            } else {
                self.until.min(self.said + RENEWAL)
            }
        })
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.expire(now);
        let idle = self.leases.is_empty() && self.given.is_empty();
        if self.session == 0 || self.leaving || idle {
            return;
        }
        if now >= self.used + IDLE {
            for (&fid, mine) in &mut self.leases {
                self.floors.raise(fid, mine.number);
                end(&mut self.actions, fid, mine);
            }
        }
        if now >= self.said + RENEWAL {
            self.said = now;
            self.actions.push_back(Action::Say);
        }
    }
}

/// A lease is no longer used from now on.
fn end(actions: &mut VecDeque<Action>, fid: Fid, mine: &mut Mine) {
    if !std::mem::replace(&mut mine.ending, true) {
        actions.push_back(Action::Flush(fid));
    }
}
