//! Dumps and restores of whole volumes, and checks of the partition, between other operations.

use afar_store::{CheckOptions, DumpOptions, RestoreMode, RestoreOptions, StoreError, VolumeState};
use afar_types::{UnixTime, VolumeId, VolumeType};

use crate::compare::agree;
use crate::driver::{Driver, clock};
use crate::failure::{Failure, Outcome};

/// KiB of a volume that is not dumped any more: a dump has every zero of a sparse file.
const LARGE: u64 = 6_000;

impl Driver {
    /// A dump of one volume is restored as another; then what was changed since is brought over.
    pub(crate) fn transfer_step(&mut self) {
        let source = self.some_volume();
        if !self.model.volumes.get(&source).is_some_and(|volume| {
            (2..LARGE).contains(&volume.state.disk_used) && volume.tree.nodes.contains_key(&1)
        }) {
            return;
        }
        let from = clock();
        let dump = self.dump(source, None, false);
        let id = self.number();
        let overwrite = self.random.bool();
        let mode = RestoreMode::Full { overwrite };
        if self.random.u8(..4) == 0 {
            self.torn(&dump, id, mode);
        }
        let there = self.model.volumes.contains_key(&id);
        let refused = if id == 0 {
            Err(Failure::OutOfRange)
        } else if there && !overwrite {
            Err(Failure::VolumeExists)
        } else {
            Ok(())
        };
        self.doing("restore");
        self.restore(&dump, source, id, mode, refused);
        if refused.is_err() || id == source {
            return;
        }
        for _ in 0..self.random.u8(..30) {
            self.vnode_step(source);
        }
        let small = |volume: &crate::volume::Volume| volume.state.disk_used < LARGE;
        let writable = self
            .model
            .volumes
            .get(&id)
            .is_some_and(|volume| volume.state.kind == VolumeType::ReadWrite);
        if self.model.volumes.get(&source).is_some_and(small) && writable {
            let omit = self.random.bool();
            let dump = self.dump(source, Some(from), omit);
            if self.random.u8(..4) == 0 {
                self.torn(&dump, id, RestoreMode::Incremental);
            }
            self.doing("incremental restore");
            self.restore(&dump, source, id, RestoreMode::Incremental, Ok(()));
        }
    }

    fn dump(
        &mut self,
        source: u32,
        from: Option<u32>,
        omit_unchanged_directories: bool,
    ) -> Vec<u8> {
        self.doing("dump");
        let mut dump = Vec::new();
        let options = DumpOptions {
            from: from.map(UnixTime),
            omit_unchanged_directories,
        };
        let volume = self.partition().volume(VolumeId(source)).unwrap();
        let summary = volume.dump(&mut dump, &options).unwrap();
        assert_eq!(summary.bytes, dump.len() as u64);
        assert_eq!(
            summary.vnodes,
            self.model.volumes[&source].tree.nodes.len() as u64
        );
        dump
    }

    /// Of a stream that ends early, nothing is seen.
    fn torn(&mut self, dump: &[u8], id: u32, mode: RestoreMode) {
        self.doing("restore a torn dump");
        let options = RestoreOptions::new(VolumeId(id)).name("torn").mode(mode);
        let end = self.random.usize(..dump.len());
        let result = self.partition().restore(&dump[..end], &options);
        let error = result.expect_err("the dump is not all there");
        assert!(
            matches!(
                error,
                StoreError::Dump(_)
                    | StoreError::BadDump { .. }
                    | StoreError::OutOfRange { .. }
                    | StoreError::VolumeExists(_)
            ),
            "{error}"
        );
        self.compare_state(id, None);
    }

    fn restore(
        &mut self,
        dump: &[u8],
        source: u32,
        id: u32,
        mode: RestoreMode,
        expected: Outcome<()>,
    ) {
        let options = RestoreOptions::new(VolumeId(id))
            .name(format!("volume.{id}"))
            .mode(mode);
        let ours = self.partition().restore(dump, &options).map(|summary| {
            assert_eq!((summary.orphans, summary.link_counts), (0, 0));
        });
        if agree(ours, expected).is_none() {
            return;
        }
        let state = self
            .partition()
            .volume(VolumeId(id))
            .unwrap()
            .state()
            .unwrap();
        self.model
            .restore(source, id, mode == RestoreMode::Incremental, state);
        self.compare_volume(id);
    }

    /// Everything the store itself can check.
    pub(crate) fn check(&mut self) {
        self.doing("check");
        let options = CheckOptions {
            data: self.random.u8(..4) == 0,
            reclaim: self.random.u8(..4) == 0,
            ..CheckOptions::default()
        };
        let report = self.partition().check(&options, &mut |_| {}).unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
    }
}

impl crate::model::Model {
    /// Makes a volume of what another holds. `told` is the store's view of it: what a dump carries
    /// of the header is for the tests of dumps.
    fn restore(&mut self, source: u32, id: u32, on_top: bool, told: VolumeState) {
        let from = self.volumes[&source].clone();
        let old = self.volumes.get(&id);
        assert_eq!(
            told.kind,
            old.map_or(VolumeType::ReadWrite, |old| old.state.kind)
        );
        assert_eq!(
            told.parent,
            old.map_or(VolumeId(id), |old| old.state.parent)
        );
        assert_eq!(told.clone, old.map_or(VolumeId(0), |old| old.state.clone));
        assert_eq!(told.backup, old.map_or(VolumeId(0), |old| old.state.backup));
        assert_eq!(told.disk_used, from.state.disk_used);
        assert_eq!(told.file_count, from.state.file_count);
        let given = from.tree.nodes.values().map(|node| node.uniquifier).max();
        assert!(given.is_some_and(|given| told.uniquifier >= given));
        assert!(!told.destroy_me);
        let offline = old.is_some_and(|old| old.offline);
        let place = old.filter(|_| on_top).map(|old| (old.line, old.age + 1));
        let (line, age) = place.unwrap_or_else(|| self.new_line());
        let expected = told.in_service && told.blessed && !offline;
        assert_eq!(told.online, expected);
        let restored = crate::volume::Volume {
            id,
            state: told,
            offline,
            tree: from.tree,
            line,
            age,
        };
        self.volumes.insert(id, restored);
    }
}
