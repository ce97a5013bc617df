//! Nothing is wrong with a partition, whatever was done to it.

use super::*;
use crate::StoreError;

struct Work {
    partition: Arc<Partition>,
    random: fastrand::Rng,
    /// Volumes with the fids in them, some of which are gone.
    volumes: Vec<(Volume, Vec<Fid>)>,
    clones: Vec<(VolumeId, VolumeId)>,
    next: u32,
}

impl Work {
    fn step(&mut self) {
        let what = self.random.u8(..100);
        if self.volumes.is_empty() || what < 2 {
            self.next += 1;
            let new = volume(&self.partition, self.next);
            let root = new.root();
            return self.volumes.push((new, vec![root]));
        }
        let chosen = self.random.usize(..self.volumes.len());
        let (volume, fids) = &mut self.volumes[chosen];
        let mut pick = || fids[self.random.usize(..fids.len())];
        let (a, b, c) = (pick(), pick(), pick());
        let mut name = || {
            format!(
                "{}{}",
                self.random.u8(..60),
                "x".repeat(30 * self.random.usize(..3))
            )
        };
        let (name, other) = (name().into_bytes(), name().into_bytes());
        let made = match what {
            2..30 => volume
                .create_file(a, &name, &vnode())
                .map(|made| Some(made.vnode.fid)),
            30..36 => volume
                .make_directory(a, &name, &vnode())
                .map(|made| Some(made.vnode.fid)),
            36..40 => volume
                .symlink(a, &name, b"target", &vnode())
                .map(|made| Some(made.vnode.fid)),
            40..44 => volume.link(a, &name, b).map(|_| None),
            44..50 => volume.rename(a, &name, b, &other).map(|_| None),
            50..60 => volume.remove_file(a, &name).map(|_| None),
            60..63 => volume.remove_directory(a, &name).map(|_| None),
            63..80 => {
                let offset = self.random.u64(..400_000);
                let data = noise(self.random.usize(..200_000), offset % 3);
                volume
                    .write(c, offset, &data, &StoreOptions::default())
                    .map(|_| None)
            }
            80..86 => {
                let length = self.random.u64(..500_000);
                volume
                    .truncate(c, length, &StoreOptions::default())
                    .map(|_| None)
            }
            _ => return self.of_volumes(chosen, what),
        };
        match made {
            Ok(fid) => fids.extend(fid),
            Err(error) => assert!(expected(&error), "{error}"),
        }
    }

    fn of_volumes(&mut self, chosen: usize, what: u8) {
        let (volume, fids) = &self.volumes[chosen];
        let id = volume.id();
        let result = match what {
            86..90 => {
                self.next += 1;
                let clone = VolumeId(self.next);
                let kind = if what == 86 {
                    VolumeType::Backup
                } else {
                    VolumeType::ReadOnly
                };
                let new = NewClone::new(clone, format!("vol.{clone}"), kind);
                volume
                    .make_clone(&new)
                    .map(|_| self.clones.push((id, clone)))
            }
            90..95 => match self.clones.iter().find(|(of, _)| *of == id) {
                Some((_, clone)) => volume.reclone(*clone),
                None => Ok(()),
            },
            95..97 if !self.clones.is_empty() => {
                let (_, clone) = self
                    .clones
                    .swap_remove(self.random.usize(..self.clones.len()));
                self.partition.remove_volume(clone)
            }
            97 => {
                let left = fids
                    .iter()
                    .copied()
                    .map(|fid| (fid.vnode, fid.uniquifier))
                    .collect();
                self.replace(chosen, left)
            }
            _ => Ok(()),
        };
        if let Err(error) = result {
            assert!(expected(&error), "{error}");
        }
    }

    /// Removes a read-write volume, and makes one of its clones take its place, if it has any.
    fn replace(
        &mut self,
        chosen: usize,
        fids: Vec<(afar_types::VnodeId, afar_types::Uniquifier)>,
    ) -> Result<(), StoreError> {
        let (volume, _) = self.volumes.swap_remove(chosen);
        self.partition.remove_volume(volume.id())?;
        let newest = self.clones.iter().rposition(|(of, _)| *of == volume.id());
        let Some(newest) = newest else { return Ok(()) };
        let (_, clone) = self.clones[newest];
        let clone = self.partition.volume(clone)?;
        let back = clone.convert_to_read_write(volume.id(), "back")?;
        self.clones.remove(newest);
        let fids = fids
            .into_iter()
            .map(|(vnode, uniquifier)| back.fid(vnode, uniquifier));
        self.volumes.push((back.clone(), fids.collect()));
        Ok(())
    }
}

fn expected(error: &StoreError) -> bool {
    !matches!(
        error,
        StoreError::Corrupt { .. }
            | StoreError::Database { .. }
            | StoreError::Directory { .. }
            | StoreError::Stopped { .. }
            | StoreError::Io { .. }
            | StoreError::Read(_)
            | StoreError::Segment(_)
    )
}

#[test]
fn nothing_is_wrong_after_random_operations() {
    for seed in 0..6 {
        let dir = TempDir::new().unwrap();
        let mut work = Work {
            partition: init(dir.path()),
            random: fastrand::Rng::with_seed(seed),
            volumes: Vec::new(),
            clones: Vec::new(),
            next: 100,
        };
        work.partition.set_dedup(seed % 2 == 0).unwrap();
        for step in 0..600 {
            work.step();
            if step % 100 == 0 {
                let report = check(&work.partition);
                assert!(
                    report.is_clean(),
                    "seed {seed}, step {step}: {:#?}",
                    report.problems
                );
            }
        }
        assert_clean(&work.partition);
        work.partition.wait_reaped().unwrap();
        let report = assert_clean(&work.partition);
        assert!(report.volumes > 0 && report.vnodes > report.volumes && report.records > 0);
    }
}
