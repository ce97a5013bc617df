//! Broken promises: what was promised is forgotten, and so is what is on its way.
//!
//! A server may break a promise before the reply that carries it is here. So breaks are numbered, and the number of the last
//! one is known by fid and by volume, in tables of fixed size: a reply's promise counts only if the last break that concerns its
//! fid came before it was asked for. Fids that share a place cost a question more, never a stale answer.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use afar_cell::BreakHandler;
use afar_types::{Fid, VolumeId};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{broadcast, watch};

use crate::model::types::Invalidation;
use crate::model::vnode::Vnode;
use crate::table::vnodes::Vnodes;

/// Changes made here count as breaks. With fewer places one of the hundreds that are made in a round trip would share its place
/// with something in each answer that tells of a hundred things.
const FIDS: usize = 1 << 18;
const VOLUMES: usize = 256;

/// A moment between breaks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(u64);

/// Numbers breaks and carries them out.
#[derive(Debug)]
pub(crate) struct Breaks {
    /// The number of the last break of any kind.
    last: AtomicU64,
    /// Of the last one of each.
    fids: Box<[AtomicU64]>,
    volumes: Box<[AtomicU64]>,
    /// Of the last one of everything.
    all: AtomicU64,
    /// When the server last got a change of each that was made here, among the breaks.
    sent_to: Box<[AtomicU64]>,
    pub(crate) vnodes: Arc<Vnodes>,
    /// Servers that have promised something: promises say which by its place here.
    servers: Mutex<Vec<SocketAddr>>,
    invalidations: broadcast::Sender<Invalidation>,
    /// Invalidations sent.
    sent: AtomicU64,
    /// Marks sent.
    marks: AtomicU64,
    /// The last mark that is acknowledged, and more than any while nobody does that.
    acknowledged: watch::Sender<u64>,
}

fn place_of_fid(fid: Fid) -> usize {
    let mixed = [fid.volume.0, fid.vnode.0, fid.uniquifier.0]
        .iter()
        .fold(0_u32, |mixed, part| {
            (mixed ^ part).wrapping_mul(0x9e37_79b1).rotate_left(15)
        });
    mixed as usize % FIDS
}

fn place_of_volume(volume: VolumeId) -> usize {
    volume.0 as usize % VOLUMES
}

impl Breaks {
    pub(crate) fn new(vnodes: Arc<Vnodes>, invalidations: broadcast::Sender<Invalidation>) -> Self {
        let none = |number| (0..number).map(|_| AtomicU64::new(0)).collect();
        Self {
            last: AtomicU64::new(0),
            fids: none(FIDS),
            volumes: none(VOLUMES),
            all: AtomicU64::new(0),
            sent_to: none(FIDS),
            vnodes,
            servers: Mutex::default(),
            invalidations,
            sent: AtomicU64::new(0),
            marks: AtomicU64::new(0),
            acknowledged: watch::Sender::new(u64::MAX),
        }
    }

    /// The number of a server in promises. Those of more servers than there are numbers have the last one.
    pub(crate) fn number_of(&self, server: SocketAddr) -> u16 {
        let mut servers = self.lock_servers();
        let place = servers.iter().position(|known| *known == server);
        let place = place.unwrap_or_else(|| {
            if servers.len() < usize::from(u16::MAX) {
                servers.push(server);
                servers.len() - 1
            } else {
                servers.len()
            }
        });
        u16::try_from(place).unwrap_or(u16::MAX)
    }

    fn lock_servers(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.servers.lock()
    }

    /// Invalidations from now on; `acknowledges` says whether marks among them will be.
    pub(crate) fn listen(&self, acknowledges: bool) -> broadcast::Receiver<Invalidation> {
        let receiver = self.invalidations.subscribe();
        if acknowledges {
            self.acknowledged.send_replace(0);
        }
        receiver
    }

    pub(crate) fn acknowledge(&self, mark: u64) {
        self.acknowledged
            .send_if_modified(|last| std::mem::replace(last, mark.max(*last)) < mark);
    }

    /// Invalidations sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// Tells whoever listens. It is counted first: who finds the old count is told in time.
    pub(crate) fn tell(&self, what: Invalidation) {
        self.sent.fetch_add(1, Ordering::SeqCst);
        // Nobody may be listening.
        drop(self.invalidations.send(what));
    }

    /// This moment, for what is asked for now.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.last.load(Ordering::SeqCst))
    }

    /// Whether no break since concerns a fid, so that an answer which was asked for then still holds.
    pub(crate) fn is_unbroken(&self, fid: Fid, since: Mark) -> bool {
        let last = [self.of_fid(fid), self.of_volume(fid.volume), &self.all];
        last.iter()
            .all(|last| last.load(Ordering::SeqCst) <= since.0)
    }

    /// Whether an answer about a fid that was asked for then still holds: no break since concerns it, and the server had
    /// all that had been changed here.
    pub(crate) fn is_current(&self, fid: Fid, since: Mark) -> bool {
        let sent = self.sent_to[place_of_fid(fid)].load(Ordering::SeqCst);
        sent <= since.0 && self.is_unbroken(fid, since)
    }

    /// A server has got what was changed here of a fid. What is still on its way may be from before that, though it was
    /// asked for after the change.
    pub(crate) fn note_sent(&self, fid: Fid) {
        self.note(&self.sent_to[place_of_fid(fid)]);
    }

    /// What is on its way about a fid is not to be promised: it has been changed.
    pub(crate) fn count(&self, fid: Fid) {
        self.note(self.of_fid(fid));
    }

    /// Notes a break at its place.
    fn note(&self, place: &AtomicU64) {
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        // Of two at the same time the later one stays.
        place.fetch_max(number, Ordering::SeqCst);
    }

    fn of_fid(&self, fid: Fid) -> &AtomicU64 {
        &self.fids[place_of_fid(fid)]
    }

    fn of_volume(&self, volume: VolumeId) -> &AtomicU64 {
        &self.volumes[place_of_volume(volume)]
    }

    /// A volume is another one now: nothing promised of it holds.
    pub(crate) fn break_volume(&self, volume: VolumeId) {
        // Noted first: a reply that does not find it is forgotten just below.
        self.note(self.of_volume(volume));
        for vnode in self.vnodes.of_volume(volume) {
            self.break_one(&vnode);
        }
    }

    /// Promises are given back: none holds, nor one that is on its way.
    pub(crate) fn break_all(&self) {
        self.note(&self.all);
        for vnode in self.vnodes.all() {
            self.break_one(&vnode);
        }
    }

    fn break_one(&self, vnode: &Arc<Vnode>) {
        let promised = {
            let mut state = vnode.lock();
            let promised = state.promise.take().is_some();
            vnode.dropped.fetch_or(promised, Ordering::Relaxed);
            promised
        };
        // Without a promise the kernel was told that nothing holds, or has heard of the break already.
        if promised {
            self.invalidate(vnode);
        }
    }

    /// Tells the kernel that what it knows of something may be wrong.
    pub(crate) fn invalidate(&self, vnode: &Arc<Vnode>) {
        let (numbers, names) = {
            let mut state = vnode.lock();
            (state.numbers().collect::<Vec<_>>(), state.take_names())
        };
        for ino in numbers {
            for name in names.iter().map(<[u8]>::to_vec) {
                self.tell(Invalidation::Entry { parent: ino, name });
            }
            self.tell(Invalidation::Inode { ino, data: true });
        }
    }
}

impl BreakHandler for Breaks {
    fn broken(&self, server: SocketAddr, fids: &[Fid]) {
        for &fid in fids {
            tracing::debug!(%server, %fid, "promise broken");
            // spec: afs-rpc#breaks
            if fid.is_whole_volume() {
                self.break_volume(fid.volume);
                continue;
            }
            // Noted first: a reply that does not find it is forgotten just below.
            self.count(fid);
            for vnode in self.vnodes.of_fid(fid) {
                self.break_one(&vnode);
            }
        }
    }

    fn carried_out(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let mut acknowledged = self.acknowledged.subscribe();
            let mark = self.marks.fetch_add(1, Ordering::SeqCst) + 1;
            if *acknowledged.borrow() >= mark {
                return;
            }
            drop(self.invalidations.send(Invalidation::Mark(mark)));
            // The sender is not dropped before this.
            let _told = acknowledged.wait_for(|last| *last >= mark).await;
        })
    }

    fn all_broken(&self, server: SocketAddr) {
        tracing::debug!(%server, "all promises broken");
        self.note(&self.all);
        let all = self.vnodes.all();
        let known = self
            .lock_servers()
            .iter()
            .position(|known| *known == server);
        let by_it = |vnode: &&Arc<Vnode>| {
            let promise = vnode.lock().promise;
            let number = promise.map(|promise| usize::from(promise.server()));
            number.is_some_and(|number| Some(number) == known || number == usize::from(u16::MAX))
        };
        let of_server: Vec<_> = all.iter().filter(by_it).collect();
        // One with several addresses may call from one that no promise came from.
        if of_server.is_empty() {
            all.iter().for_each(|vnode| self.break_one(vnode));
        } else {
            of_server
                .into_iter()
                .for_each(|vnode| self.break_one(vnode));
        }
    }
}
