//! The line of a volume sent to its server, a batch at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use afar_cell::{Batched, Batches, Error};
use afar_lease::wire::{Note, Word};
use afar_lease::{Holder, Sent as SentNote};
use afar_types::{BATCH_BYTES, BATCH_OPERATIONS, BatchChange, BatchChanges, Fid, VolumeId};
use afar_xdr::{FixedOpaque, List, XdrString};
use tokio::time::Instant;

use super::count;
use super::late::Reborn;
use crate::model::boot;
use crate::model::error::Errno;
use crate::model::pending::SentBefore;
use crate::model::user::UserId;
use crate::model::vnode::Vnode;
use crate::ops::cache::{Cache, Inner};
use crate::storage::journal::SentBatch;
use crate::table::breaks::Mark;
use crate::table::leases::Site;
use crate::table::unsent::{Line, Queue};

/// The first pause before changes are sent again that a server did not take; it doubles.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const PAUSE_MOST: Duration = Duration::from_secs(20);
/// Batches in a row that a server does not run because of their session, before that counts as a failure: a claim is
/// under way meanwhile.
const UNFIT: u32 = 6;
/// How long the task that sends a line waits for more: the series that it has begun would cost a round trip again.
const IDLE: Duration = Duration::from_secs(10);
/// The number of the first batch of a series that changes something.
// spec: batches#once
const FIRST: u64 = 1;
/// Bytes of the first batch; those of the next ones depend on how long they take.
const BYTES_FIRST: usize = 1 << 20;
/// Bytes of batches over the slowest links.
const BYTES_LEAST: usize = 64 << 10;
/// About how long a batch is to take: in much less, much of it would be spent waiting for the answer; and a server that recalls a lease
/// waits 5 s for a sign of its holder.
// spec: leases#recall
const TAKES: Duration = Duration::from_secs(1);
/// Bytes that a change takes at most beside its names and data.
const FRAME: usize = 512;

/// What came of an attempt to send.
enum Sent {
    /// The server has run a batch.
    Done,
    /// Nothing waits.
    Nothing,
    /// The server has another session now; a claim tells it of this one.
    Unfit,
}

/// What the task that sends a line knows.
pub(super) struct Sender {
    series: BTreeMap<UserId, Batches>,
    /// A batch that was begun under a number of its series: the server may have run it. It is sent again as it was, as
    /// under that number the server takes no other.
    begun: Option<Batch>,
    pub(super) reborn: Reborn,
    /// Bytes that a batch may have.
    most: usize,
}

/// A batch as it is sent.
pub(super) struct Batch {
    user: u32,
    pub(super) numbers: Vec<u64>,
    /// Which of them are sent as late ones: a lease may be lost while this is under way.
    pub(super) late: Vec<bool>,
    changes: BatchChanges,
    /// Bytes it has, about.
    bytes: usize,
    /// The vnodes in it, and the breaks of them so far.
    pub(super) vnodes: BTreeMap<Fid, (Arc<Vnode>, Mark)>,
}

impl Sender {
    fn new() -> Self {
        Self {
            series: BTreeMap::new(),
            begun: None,
            reborn: Reborn::default(),
            most: BYTES_FIRST,
        }
    }

    /// A batch was run in this time: the next one may have more bytes, or fewer, so that it takes as long as it should.
    fn took(&mut self, bytes: usize, time: Duration) {
        // A short one takes a round trip over any link, and says nothing of a long one.
        if 2 * bytes < self.most {
            return;
        }
        // Twice as many bytes take no more than twice the time, so that it does not go up and down.
        if time < TAKES / 2 {
            self.most = (2 * self.most).min(BATCH_BYTES);
        } else if time > 2 * TAKES {
            self.most = (self.most / 2).max(BYTES_LEAST);
        }
    }
}

impl Batch {
    /// Gives the leases the numbers that they have now.
    fn number_leases(&mut self, volume: VolumeId, site: Option<&Site>) {
        let holder = site.map(Site::lock);
        let mut changes = std::mem::take(&mut self.changes).into_vec();
        for change in &mut changes {
            number_leases(change, volume, holder.as_deref());
        }
        // As many as there were.
        self.changes = List::new(changes).unwrap_or_default();
    }
}

impl Cache {
    /// Has a line sent.
    pub(super) fn begin_sending(&self, line: &Arc<Line>, queue: &mut Queue) {
        if !std::mem::replace(&mut queue.has_sender, true) {
            tokio::spawn(send_line(Arc::downgrade(&self.0), Arc::clone(line)));
        }
        line.added.notify_one();
    }

    /// Sends what is first in a line.
    async fn send_next(&self, line: &Arc<Line>, sender: &mut Sender) -> Result<Sent, Errno> {
        let site = self.0.leases.known(&line.volume);
        let (batch, again) = match sender.begun.take() {
            Some(mut batch) => {
                batch.number_leases(line.volume.id(), site.as_deref());
                (batch, None)
            }
            None => {
                let mut queue = line.lock();
                let again = queue.again.take();
                let Some(batch) = self.build(&mut queue, site.as_deref(), sender, again.as_ref())
                else {
                    queue.failing = None;
                    return Ok(Sent::Nothing);
                };
                (batch, again)
            }
        };
        let user = self.user(batch.user).await;
        let known = match again {
            Some(again) => {
                let SentBefore { series, number, .. } = again;
                Some(user.client.batches_from(&line.volume, series, number))
            }
            None => sender.series.remove(&user.id),
        };
        let known = match known {
            Some(known) => Some(known),
            None => user.client.batches(&line.volume).await,
        };
        let Some(mut batches) = known else {
            // Nothing of it was sent, so that it may be another one next time.
            return Err(Errno::ETIMEDOUT);
        };
        let sent = SentBatch {
            cell: XdrString::new(line.volume.cell_name().as_str()).unwrap_or_default(),
            volume: line.volume.id(),
            user: batch.user,
            series: FixedOpaque(batches.series()),
            batch: batches.number(),
            numbers: List::new(batch.numbers.clone()).unwrap_or_default(),
        };
        if let Err(error) = self.0.journal.sent(&sent) {
            sender.series.insert(user.id, batches);
            sender.begun = Some(batch);
            return Err(Errno::of_storage(&error));
        }
        let note = site.as_ref().and_then(|site| self.note(line, site));
        let began = Instant::now();
        let ran = {
            let note = note.as_ref().map(|(note, _)| note);
            batches.run(&batch.changes, note).await
        };
        let hear = |word: Option<&Word>| {
            if let (Some(site), Some((_, sent)), Some(word)) = (&site, &note, word) {
                site.lock().answered(boot::now(), sent, word);
                self.act(site);
            }
        };
        match ran {
            Ok(Batched::Done(ran)) => {
                sender.took(batch.bytes, began.elapsed());
                hear(ran.word.as_ref());
                sender.series.insert(user.id, batches);
                self.answered(line, sender, &user, site.as_deref(), &batch, ran);
                Ok(Sent::Done)
            }
            Ok(Batched::Unfit(word)) => {
                // Now the holder knows what it has, and the next batch says that.
                hear(Some(&word));
                sender.series.insert(user.id, batches);
                sender.begun = Some(batch);
                Ok(Sent::Unfit)
            }
            Ok(Batched::NotDone(error)) => {
                let batch = (&batch, batches.number());
                self.not_done(line, site.as_deref(), batch, &error)
            }
            Err(error) => {
                tracing::debug!(volume = %line.volume.id(), %error, "a server may have changes or not");
                sender.series.insert(user.id, batches);
                sender.begun = Some(batch);
                Err(Errno::of(&error))
            }
        }
    }

    /// What goes with a batch; nothing if this machine has no leases there.
    fn note(&self, line: &Line, site: &Site) -> Option<(Note, SentNote)> {
        let missing = self.missing(site, &line.volume);
        let (mut holder, now) = (site.lock(), boot::now());
        if holder.session().1 == 0 {
            return None;
        }
        let wish = holder.some_lease(now, line.volume.id());
        let wish = wish.filter(|_| missing > 0);
        let reserve = if wish.is_some() { missing } else { 0 };
        Some(holder.note(now, wish.as_slice(), reserve))
    }

    /// A server has not run a batch, and does not run another of its series.
    fn not_done(
        &self,
        line: &Arc<Line>,
        site: Option<&Site>,
        (batch, batch_number): (&Batch, u64),
        error: &Error,
    ) -> Result<Sent, Errno> {
        let number = Errno::of(error);
        tracing::debug!(volume = %line.volume.id(), %error, "changes are not sent yet");
        // EINVAL says that another batch was run under this number: a new series has none.
        let hopeless = match number {
            Errno::EINVAL => batch_number <= FIRST,
            number => number.is_for_good() || number == Errno::ENODEV,
        };
        if !hopeless {
            return Err(number);
        }
        // None of them can ever be made.
        for number_of in &batch.numbers {
            self.was_refused(line, site, *number_of, error);
        }
        self.are_sent(line, &batch.numbers);
        self.done(line, &batch.numbers);
        Ok(Sent::Done)
    }

    /// The changes that go into the next batch: those of one user. None if nothing waits.
    fn build(
        &self,
        queue: &mut Queue,
        site: Option<&Site>,
        sender: &mut Sender,
        again: Option<&SentBefore>,
    ) -> Option<Batch> {
        let first = queue.waiting.front()?;
        let (user, volume) = (first.user, first.touched.first()?.fid.volume);
        let most = again.map_or(BATCH_OPERATIONS, |again| again.changes);
        // What is sent again is as long as it was.
        let most_bytes = again.map_or(sender.most, |_| BATCH_BYTES);
        let holder = site.map(Site::lock);
        let holder = holder.as_deref();
        let (mut numbers, mut late, mut changes, mut bytes) = (vec![], vec![], vec![], 0);
        let mut vnodes = BTreeMap::new();
        sender.reborn.begin();
        for pending in queue.waiting.iter_mut().take(most) {
            let size = pending.bytes + FRAME;
            if pending.user != user || !changes.is_empty() && bytes + size > most_bytes {
                break;
            }
            bytes += size;
            let mut change = pending.change.clone();
            let stands = number_leases(&mut change, volume, holder);
            // What is sent again must be what was sent.
            pending.late |= again.is_none() && !stands;
            let is_late = again.is_none() && pending.late;
            if is_late {
                count(&self.0.unsent.counts.late);
                change = sender.reborn.late(pending);
            }
            changes.push(change);
            late.push(is_late);
            sender.reborn.count();
            numbers.push(pending.number);
            for vnode in pending.touched.iter().chain(&pending.makes) {
                let mark = self.0.breaks.mark();
                vnodes.insert(vnode.fid, (Arc::clone(vnode), mark));
            }
        }
        Some(Batch {
            user,
            numbers,
            late,
            changes: List::new(changes).ok()?,
            bytes,
            vnodes,
        })
    }
}

/// Gives the leases of a change the numbers that they have now; what is lost gets 0, which is nobody's, and keeps it. Whether
/// none is lost.
fn number_leases(change: &mut BatchChange, volume: VolumeId, holder: Option<&Holder>) -> bool {
    let mut under = std::mem::take(&mut change.under).into_vec();
    for condition in under.iter_mut().filter(|under| under.lease != 0) {
        let number = holder.and_then(|holder| holder.number(condition.vnode.fid(volume)));
        condition.lease = number.unwrap_or(0);
    }
    let stands = holder.is_some() && under.iter().all(|under| under.lease != 0);
    // As many as there were.
    change.under = List::new(under).unwrap_or_default();
    stands
}

/// Sends a line until nothing was left for a while.
async fn send_line(cache: Weak<Inner>, line: Arc<Line>) {
    let mut sender = Sender::new();
    let (mut pause, mut unfit) = (PAUSE, 0);
    loop {
        let Some(inner) = cache.upgrade() else {
            return;
        };
        let cache = Cache(inner);
        match cache.send_next(&line, &mut sender).await {
            Ok(Sent::Done) => {
                line.lock().failing = None;
                (pause, unfit) = (PAUSE, 0);
                line.moved.notify_waiters();
            }
            Ok(Sent::Nothing) => {
                line.moved.notify_waiters();
                // What nothing names any more that waits.
                sender.reborn = Reborn::default();
                drop(cache);
                let added = tokio::time::timeout(IDLE, line.added.notified()).await;
                let mut queue = line.lock();
                if added.is_err() && queue.waiting.is_empty() {
                    queue.has_sender = false;
                    return;
                }
            }
            Ok(Sent::Unfit) if unfit < UNFIT => {
                unfit += 1;
                drop(cache);
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(PAUSE_MOST);
            }
            sent => {
                let error = sent.err().unwrap_or(Errno::ETIMEDOUT);
                line.lock().failing = Some(error);
                line.moved.notify_waiters();
                drop(cache);
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(PAUSE_MOST);
            }
        }
    }
}
