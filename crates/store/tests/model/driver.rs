//! Does the same to the store and to the model, and compares.

use std::fmt::Debug;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use afar_store::segment::Compression;
use afar_store::{Durability, Partition, PartitionOptions, StoreError, Volume};
use afar_types::{Fid, UnixTime, VolumeId};
use fastrand::Rng;
use tempfile::TempDir;

use crate::choose::Profile;
use crate::compare::agree;
use crate::failure::{Failure, Outcome};
use crate::model::Model;
use crate::volume;

/// Fids and volumes that are gone and may still be asked for.
const OLD: usize = 64;

/// One partition, its model, and the random operations both go through.
pub(crate) struct Driver {
    pub(crate) random: Rng,
    pub(crate) model: Model,
    pub(crate) profile: Profile,
    pub(crate) old: Vec<Fid>,
    pub(crate) old_volumes: Vec<Volume>,
    pub(crate) options: PartitionOptions,
    pub(crate) compression: Compression,
    /// `None` only while it is opened again.
    partition: Option<Arc<Partition>>,
    path: PathBuf,
    /// Only this thread changes the partition, so its counts are known after each step.
    pub(crate) alone: bool,
    /// Operations that changed something.
    pub(crate) changes: u64,
    replay: Replay,
    _dir: Option<TempDir>,
}

/// Tells how to repeat what failed.
struct Replay {
    seed: u64,
    step: u64,
    doing: &'static str,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, step, doing } = self;
            let told = writeln!(
                std::io::stderr(),
                "disagreed at step {step} ({doing}); to repeat: AFAR_TEST_SEED={seed} \
                 AFAR_TEST_MODEL_OPS={step} cargo test -p afar-store --test model",
            );
            drop(told);
        }
    }
}

/// A directory in memory if there is one: the runs are about what is stored, not how fast.
pub(crate) fn temp_dir() -> TempDir {
    TempDir::new_in("/dev/shm")
        .or_else(|_| TempDir::new())
        .unwrap()
}

/// Seconds since 1970, as the store counts them.
pub(crate) fn clock() -> u32 {
    UnixTime::from(SystemTime::now()).0
}

fn options(random: &mut Rng, compression: Compression) -> PartitionOptions {
    let durability = match random.u8(..10) {
        0 => Durability::Full,
        1 => Durability::Metadata,
        _ => Durability::Async,
    };
    PartitionOptions::default()
        .durability(durability)
        .compression(compression)
        .map_size(4 << 30)
        .and_then(|options| options.segment_size([1 << 20, 4 << 20, 64 << 20][random.usize(..3)]))
        .unwrap()
}

pub(crate) fn compression(random: &mut Rng) -> Compression {
    match random.u8(..4) {
        0 => Compression::None,
        1 | 2 => Compression::Lz4,
        _ => Compression::Zstd([1, 1, 3, -3][random.usize(..4)]),
    }
}

impl Driver {
    /// An empty partition.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let dir = temp_dir();
        let compression = compression(&mut random);
        let options = options(&mut random, compression);
        let path = dir.path().join("partition");
        let partition = Arc::new(Partition::init(&path, &options).unwrap());
        partition.set_dedup(random.bool()).unwrap();
        Self {
            profile: Profile::of(&mut random),
            _dir: Some(dir),
            path,
            alone: true,
            ..Self::beside(
                random,
                seed,
                partition,
                Model::default(),
                compression,
                options,
            )
        }
    }

    /// One of several that use a partition.
    pub(crate) fn beside(
        random: Rng,
        seed: u64,
        partition: Arc<Partition>,
        model: Model,
        compression: Compression,
        options: PartitionOptions,
    ) -> Self {
        Self {
            random,
            model,
            profile: Profile {
                names: 40,
                crowd: 60,
                writes: 20,
                volumes: 0,
                heavy: false,
            },
            old: Vec::new(),
            old_volumes: Vec::new(),
            options,
            compression,
            partition: Some(partition),
            path: PathBuf::new(),
            alone: false,
            changes: 0,
            replay: Replay {
                seed,
                step: 0,
                doing: "",
            },
            _dir: None,
        }
    }

    pub(crate) fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.replay.step += 1;
            self.step();
        }
    }

    /// Does something to the vnodes of a volume.
    pub(crate) fn run_in(&mut self, id: u32) {
        self.replay.step += 1;
        self.vnode_step(id);
    }

    /// Compares everything, and once more when all is reaped and opened again.
    pub(crate) fn finish(&mut self) {
        self.doing("compare all at the end");
        self.compare_all();
        self.partition().wait_reaped().unwrap();
        self.compare_all();
        self.check();
        self.reopen();
        self.compare_all();
    }

    pub(crate) fn partition(&self) -> &Arc<Partition> {
        self.partition.as_ref().expect("it is open")
    }

    pub(crate) fn doing(&mut self, what: &'static str) {
        self.replay.doing = what;
    }

    /// Closes the partition and opens it again.
    pub(crate) fn reopen(&mut self) {
        self.old_volumes.clear();
        let partition = self.partition.take().expect("it is open");
        let only = Arc::into_inner(partition);
        drop(only.expect("nobody else holds the partition"));
        let partition = Partition::open(&self.path, &self.options).unwrap();
        self.partition = Some(Arc::new(partition));
        self.model.reopen();
    }

    /// Remembers a fid that is gone.
    pub(crate) fn bury(&mut self, fid: Fid) {
        if self.old.len() < OLD {
            self.old.push(fid);
        } else {
            let place = self.random.usize(..OLD);
            self.old[place] = fid;
        }
    }

    /// A volume in use by its number, or sometimes one that was had earlier.
    pub(crate) fn handle(&mut self, id: u32) -> Result<Volume, StoreError> {
        let wanted = VolumeId(id);
        if let Some(old) = self.old_volumes.iter().find(|volume| volume.id() == wanted)
            && self.random.bool()
        {
            return Ok(old.clone());
        }
        let volume = self.partition().volume(wanted);
        if let Ok(volume) = &volume
            && self.random.u8(..32) == 0
        {
            let place = self.random.usize(..=self.old_volumes.len().min(7));
            self.old_volumes.truncate(7);
            self.old_volumes
                .insert(place.min(self.old_volumes.len()), volume.clone());
        }
        volume
    }

    /// Does something to a volume here and there, and compares what both say of it.
    ///
    /// `told` finds in the store's answer at what time it happened.
    pub(crate) fn both<T: PartialEq + Debug>(
        &mut self,
        fids: &[Fid],
        id: u32,
        store: impl FnOnce(&Volume) -> Result<T, StoreError>,
        told: impl FnOnce(&T) -> u32,
        model: impl FnOnce(&mut volume::Volume, u32, Option<&T>) -> Outcome<T>,
    ) -> Option<T> {
        let before = clock();
        let ours = self.handle(id).and_then(|volume| store(&volume));
        let after = clock();
        // What changed nothing tells of an older time.
        let told = ours.as_ref().ok().map(told);
        let now = told
            .filter(|now| (before..=after).contains(now))
            .unwrap_or(before);
        let own = fids.iter().all(|fid| fid.volume.0 == id);
        let expected = self.model.volume(id).and_then(|volume| {
            if own {
                model(volume, now, ours.as_ref().ok())
            } else {
                Err(Failure::NoVolume)
            }
        });
        let done = agree(ours, expected);
        self.changes += u64::from(told.is_some_and(|told| told > 0));
        if self.alone {
            self.compare_state(id, done.is_some().then_some((before, after)));
        }
        done
    }
}
