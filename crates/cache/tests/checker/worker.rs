//! One who works on a machine, checking everything he is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use afar_cache::{Attr, Cache, Class, Errno, Ino, OpenFlags, Who};
use fastrand::Rng;
use tokio::sync::{Mutex, RwLock};

use crate::cell::{Cell, Machine};
use crate::history::{Register, Tick};
use crate::kept::AllKept;
use crate::names::{DIRECTORIES, NAMES, Name};
use crate::own::Own;

pub(crate) const WHO: Who = Who {
    uid: 0,
    gid: 0,
    pid: 1,
};
pub(crate) const READ: OpenFlags = OpenFlags {
    read: true,
    write: false,
    append: false,
    truncate: false,
    exclusive: false,
    direct: false,
    class: Class::BestEffort,
};

/// Files that everybody replaces.
const FILES: usize = 12;
/// Things that are changed under a lock.
pub(crate) const LOCKED: usize = 4;

/// The cell, what was done in it, and what follows from that.
pub(crate) struct World {
    pub(crate) cell: Cell,
    pub(crate) files: Vec<Register<u64>>,
    /// For each machine and file: who replaces it, and those who read it, without each other.
    pub(crate) sessions: Vec<Vec<RwLock<()>>>,
    /// By directory, worker and number.
    pub(crate) names: Vec<Vec<Vec<Register<Name>>>>,
    /// By worker: hashes of contents.
    pub(crate) own: Vec<Register<u64>>,
    pub(crate) counters: Vec<Mutex<u64>>,
    pub(crate) logs: Vec<Mutex<Vec<u8>>>,
    /// What is in files that are kept open and changed under locks.
    pub(crate) kept: Vec<RwLock<Vec<u8>>>,
    /// Held by those whose locks a server that starts again would forget.
    pub(crate) quiet: RwLock<()>,
    numbers: AtomicU64,
    /// Operations checked so far.
    pub(crate) done: AtomicU64,
    /// Of these, those that failed because of a trouble.
    pub(crate) failed: AtomicU64,
}

impl World {
    /// A cell with so many machines and workers on each; the machines may have leases.
    pub(crate) async fn new(machines: usize, workers: usize, leases: bool) -> Arc<Self> {
        let cell = Cell::new(machines, leases).await;
        let all = machines * workers;
        let names = |_| {
            (0..NAMES)
                .map(|_| Register::new(Name::Absent, machines))
                .collect()
        };
        let world = Arc::new(Self {
            cell,
            files: (0..FILES).map(|_| Register::new(0, machines)).collect(),
            sessions: (0..machines)
                .map(|_| (0..FILES).map(|_| RwLock::new(())).collect())
                .collect(),
            names: (0..DIRECTORIES)
                .map(|_| (0..all).map(names).collect())
                .collect(),
            own: (0..all)
                .map(|_| Register::new(crate::own::hash(b""), machines))
                .collect(),
            counters: (0..LOCKED).map(|_| Mutex::new(0)).collect(),
            logs: (0..LOCKED).map(|_| Mutex::default()).collect(),
            kept: (0..LOCKED).map(|_| RwLock::new(b"0".to_vec())).collect(),
            quiet: RwLock::new(()),
            numbers: AtomicU64::new(1),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        world.furnish(all).await;
        world
    }

    /// Makes what is there from the beginning.
    async fn furnish(&self, workers: usize) {
        let cache = &self.cell.machines[0].cache;
        for place in 0..DIRECTORIES {
            let name = format!("dir{place}");
            let made = cache.mkdir(WHO, Ino::ROOT, name.as_bytes(), 0o755).await;
            made.unwrap();
        }
        let mut names: Vec<String> = (0..FILES).map(|place| format!("file{place}")).collect();
        names.extend((0..workers).map(|worker| format!("own{worker}")));
        for place in 0..LOCKED {
            names.extend(["counter", "log", "kept"].map(|name| format!("{name}{place}")));
        }
        let flags = OpenFlags {
            write: true,
            ..READ
        };
        for name in names {
            let made = cache.create(WHO, Ino::ROOT, name.as_bytes(), 0o644, flags);
            let (_, handle) = made.await.unwrap();
            if name.starts_with("counter") {
                cache.write(handle, 0, &0_u64.to_le_bytes()).await.unwrap();
            }
            if name.starts_with("kept") {
                cache.write(handle, 0, b"0").await.unwrap();
            }
            cache.flush(handle, 1).await.unwrap();
            cache.release(handle, None).await;
        }
    }

    /// A number nobody else gets.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::SeqCst)
    }
}

/// Something the cache has told a number of.
pub(crate) struct Known {
    cache: Cache,
    pub(crate) attr: Attr,
}

impl Drop for Known {
    fn drop(&mut self) {
        self.cache.forget(self.attr.ino, 1);
    }
}

/// One who works.
pub(crate) struct Worker {
    pub(crate) world: Arc<World>,
    pub(crate) machine: usize,
    /// His number among all.
    pub(crate) number: usize,
    pub(crate) rng: Rng,
    /// What he believes his names to be; `None` if that is in doubt.
    pub(crate) beliefs: Vec<Vec<Option<Name>>>,
    pub(crate) own: Own,
    pub(crate) kept: AllKept,
}

impl Worker {
    pub(crate) fn new(world: &Arc<World>, machine: usize, number: usize, seed: u64) -> Self {
        Self {
            world: Arc::clone(world),
            machine,
            number,
            rng: Rng::with_seed(seed ^ (number as u64 + 1) << 32),
            beliefs: vec![vec![Some(Name::Absent); NAMES]; DIRECTORIES],
            own: Own::default(),
            kept: AllKept::default(),
        }
    }

    /// Works until so many operations are done by all.
    pub(crate) async fn work(mut self, operations: u64) -> Self {
        while self.world.done.fetch_add(1, Ordering::SeqCst) < operations {
            match self.rng.u32(0..1000) {
                0..60 => self.replace().await,
                60..360 => self.read().await,
                360..500 => self.look().await,
                500..510 => self.change_names().await,
                510..600 => self.change_name().await,
                600..750 => self.look_up().await,
                750..830 => self.list().await,
                830..860 => self.count().await,
                860..890 => self.log().await,
                890..920 => self.edit_own().await,
                920..945 => self.work_under_lock().await,
                945..960 => self.glance().await,
                _ => self.read_own().await,
            }
            if self.rng.u32(0..64) == 0 {
                self.forget();
            }
        }
        self
    }

    /// Clears away what nobody can see any more, looking since the longest-blind machine does.
    fn forget(&self) {
        let now = crate::history::tick();
        let machines = self.world.cell.machines.iter();
        let since = machines.map(|machine| machine.knows_since(now)).min();
        // Every look that began earlier than this has ended.
        let before = since.unwrap_or(now).saturating_sub(100_000);
        self.world
            .files
            .iter()
            .for_each(|one| one.forget_before(before));
        self.world
            .own
            .iter()
            .for_each(|one| one.forget_before(before));
        for name in self.world.names.iter().flatten().flatten() {
            name.forget_before(before);
        }
    }

    pub(crate) fn here(&self) -> &Machine {
        &self.world.cell.machines[self.machine]
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.here().cache
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::now()
    }

    pub(crate) fn knows_since(&self, from: Tick) -> Tick {
        self.here().knows_since(from)
    }

    /// What a name stands for.
    pub(crate) async fn lookup(&self, directory: Ino, name: &str) -> Result<Known, Errno> {
        let found = self.cache().lookup(WHO, directory, name.as_bytes()).await;
        Ok(self.known(found?.attr))
    }

    /// Something that was told, which is forgotten when it is used no longer.
    pub(crate) fn known(&self, attr: Attr) -> Known {
        Known {
            cache: self.cache().clone(),
            attr,
        }
    }

    /// A request failed, for which there must be a reason.
    pub(crate) fn excuse(&self, what: &str, begun: Instant, error: Errno) {
        let odd = matches!(error, Errno::ENOENT | Errno::EEXIST | Errno::EBADF);
        assert!(!odd, "machine {}: {what} failed: {error}", self.machine);
        self.excuse_change(what, begun, error);
    }

    /// The same for a change of something of which it may not be known how it is: a server may do
    /// what it was asked for when who asked no longer waits.
    pub(crate) fn excuse_change(&self, what: &str, begun: Instant, error: Errno) {
        self.world.failed.fetch_add(1, Ordering::SeqCst);
        let excused = self.world.cell.may_fail(begun) && error != Errno::EBADF;
        assert!(
            excused,
            "machine {}, worker {}: {what} failed without a trouble: {error} after {:?}",
            self.machine,
            self.number,
            begun.elapsed()
        );
    }
}
