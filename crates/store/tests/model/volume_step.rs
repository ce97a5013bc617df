//! One random operation on whole volumes.

use afar_store::{NewClone, NewVolume, Result, VolumeChange, VolumeState};
use afar_types::{PtsId, VolumeId, VolumeType};

use crate::compare::agree;
use crate::driver::{Driver, clock, compression};
use crate::failure::{Failure, Outcome};
use crate::model::{Fresh, Model};

/// Volume numbers in use are below; few, so that they are used again.
const NUMBERS: u32 = 24;

impl Driver {
    pub(crate) fn volume_step(&mut self) {
        if self.model.volumes.is_empty() {
            return self.create_volume();
        }
        let full = self.model.volumes.len() > 10;
        match self.random.u32(..100) {
            0..8 if full => self.remove_volume(),
            0..8 => self.create_volume(),
            8..26 => self.make_clone(),
            26..44 => self.reclone(),
            44..54 => self.remove_volume(),
            54..58 => self.renumber(),
            58..65 => self.convert(),
            65..73 => self.change(),
            73..78 => self.transfer_step(),
            78..82 => {
                self.doing("open again");
                self.reopen();
                if self.random.u8(..4) == 0 {
                    let on = self.random.bool();
                    self.partition().set_dedup(on).unwrap();
                }
                self.count_volumes();
            }
            82..88 => {
                self.doing("wait_reaped");
                self.partition().wait_reaped().unwrap();
            }
            88..97 => {
                self.doing("compare a volume");
                let id = self.some_volume();
                self.compare_volume(id);
            }
            97 => {
                self.doing("compare all");
                self.compare_all();
            }
            98 => self.check(),
            _ => self.put_back(),
        }
    }

    pub(crate) fn number(&mut self) -> u32 {
        match self.random.u8(..60) {
            0 => 0,
            1 => u32::MAX,
            _ => self.random.u32(1..NUMBERS),
        }
    }

    fn volume_name(&mut self, id: u32) -> String {
        match self.random.u8(..80) {
            0 => String::new(),
            1 => "n".repeat(32),
            2 => "12345".to_owned(),
            3 => "a b".to_owned(),
            4 => "n".repeat(31),
            _ => format!("volume.{id}"),
        }
    }

    fn quota(&mut self) -> u64 {
        match self.random.u8(..8) {
            0 => self.random.u64(1..40),
            1 => self.random.u64(..5_000),
            2 => 1 << 62,
            _ => 0,
        }
    }

    /// Any volume, seldom one that is not there.
    fn any_volume(&mut self) -> u32 {
        let from = self.random.u32(..NUMBERS);
        if self.random.u8(..32) == 0 {
            return from;
        }
        let all = &self.model.volumes;
        all.range(from..)
            .chain(all)
            .next()
            .map_or(from, |(id, _)| *id)
    }

    /// Does something to the volumes here and there. `id` is the one that has the time.
    fn volumes(
        &mut self,
        id: u32,
        store: impl FnOnce(&mut Self) -> Result<()>,
        model: impl FnOnce(&mut Model, u32) -> Outcome<()>,
    ) {
        self.volumes_at(id, |made| made.creation_date.0, store, model);
    }

    /// The same, where something else tells when it was done.
    fn volumes_at(
        &mut self,
        id: u32,
        when: impl FnOnce(&VolumeState) -> u32,
        store: impl FnOnce(&mut Self) -> Result<()>,
        model: impl FnOnce(&mut Model, u32) -> Outcome<()>,
    ) {
        let before = clock();
        let ours = store(self);
        let after = clock();
        let made = self
            .partition()
            .volume(VolumeId(id))
            .and_then(|volume| volume.state());
        let told = made.ok().map(|state| when(&state));
        let now = told
            .filter(|now| (before..=after).contains(now))
            .unwrap_or(before);
        let expected = model(&mut self.model, now);
        let done = agree(ours, expected);
        self.changes += u64::from(done.is_some());
        self.compare_state(id, None);
    }

    fn create_volume(&mut self) {
        let id = self.number();
        let new = Fresh {
            id,
            name: self.volume_name(id),
            kind: match self.random.u8(..20) {
                0 => VolumeType::ReadOnly,
                1 => VolumeType::Backup,
                _ => VolumeType::ReadWrite,
            },
            parent: if self.random.u8(..20) == 0 {
                self.number()
            } else {
                id
            },
            max_quota: self.quota(),
            root: self.random.u8(..40) > 0,
            finished: self.random.u8(..20) > 0,
            compression: if self.random.bool() {
                compression(&mut self.random)
            } else {
                self.compression
            },
        };
        self.doing("create_volume");
        self.volumes(
            id,
            |driver| {
                let mut wanted = NewVolume::new(VolumeId(id), new.name.clone())
                    .kind(new.kind, VolumeId(new.parent))
                    .max_quota(new.max_quota);
                if new.compression != driver.compression {
                    wanted = wanted.compression(new.compression);
                }
                if !new.root {
                    wanted = wanted.without_root();
                }
                if !new.finished {
                    wanted = wanted.unfinished();
                }
                driver.partition().create_volume(&wanted).map(drop)
            },
            |model, now| model.create(&new, now),
        );
    }

    fn make_clone(&mut self) {
        let (source, id) = (self.any_volume(), self.number());
        let name = self.volume_name(id);
        let kind = match self.random.u8(..40) {
            0 => VolumeType::ReadWrite,
            1..20 => VolumeType::ReadOnly,
            _ => VolumeType::Backup,
        };
        let finished = self.random.u8(..20) > 0;
        self.doing("make_clone");
        self.volumes(
            id,
            |driver| {
                let mut new = NewClone::new(VolumeId(id), name.clone(), kind);
                if !finished {
                    new = new.unfinished();
                }
                driver
                    .partition()
                    .volume(VolumeId(source))?
                    .make_clone(&new)
                    .map(drop)
            },
            |model, now| {
                model.volume(source)?;
                model.make_clone(source, id, &name, kind, finished, now)
            },
        );
        self.compare_state(source, None);
    }

    fn reclone(&mut self) {
        let source = self.any_volume();
        let group = self
            .model
            .volumes
            .get(&source)
            .map(|volume| volume.state.parent);
        let mut clones = self.model.volumes.values().filter(|volume| {
            volume.state.kind != VolumeType::ReadWrite && Some(volume.state.parent) == group
        });
        let id = match clones.next_back() {
            Some(clone) if self.random.u8(..8) > 0 => clone.id,
            _ => self.any_volume(),
        };
        self.doing("reclone");
        self.volumes_at(
            id,
            // A clone that is brought up to date twice within a second is made in the next one.
            |made| match made.kind {
                VolumeType::Backup => made.backup_date.0,
                _ => made.creation_date.0,
            },
            |driver| {
                driver
                    .partition()
                    .volume(VolumeId(source))?
                    .reclone(VolumeId(id))
            },
            |model, now| model.reclone(source, id, now),
        );
        self.compare_state(source, None);
    }

    fn remove_volume(&mut self) {
        let id = self.any_volume();
        self.doing("remove_volume");
        // A handle is kept now and then, to ask it for what is gone.
        drop(self.handle(id));
        self.volumes(
            id,
            |driver| driver.partition().remove_volume(VolumeId(id)),
            |model, _| model.remove(id),
        );
    }

    fn renumber(&mut self) {
        let (from, to) = (self.any_volume(), self.number());
        self.doing("renumber");
        self.volumes(
            to,
            |driver| {
                driver
                    .partition()
                    .volume(VolumeId(from))?
                    .renumber(VolumeId(to))
                    .map(drop)
            },
            |model, _| {
                model.volume(from)?;
                model.renumber(from, to)
            },
        );
        self.compare_state(from, None);
    }

    fn convert(&mut self) {
        let from = self.any_volume();
        let clone = self
            .model
            .volumes
            .get(&from)
            .filter(|volume| volume.state.kind != VolumeType::ReadWrite);
        let Some(clone) = clone else {
            return;
        };
        let parent = clone.state.parent.0;
        if self.random.u8(..3) == 0 && parent != from && self.model.volumes.contains_key(&parent) {
            self.doing("remove_volume before converting");
            self.volumes(
                parent,
                |driver| driver.partition().remove_volume(VolumeId(parent)),
                |model, _| model.remove(parent),
            );
        }
        let id = match self.random.u8(..4) {
            0 => self.number(),
            1 => from,
            _ => parent,
        };
        let name = self.volume_name(id);
        self.doing("convert_to_read_write");
        self.volumes(
            id,
            |driver| {
                driver
                    .partition()
                    .volume(VolumeId(from))?
                    .convert_to_read_write(VolumeId(id), &name)
                    .map(drop)
            },
            |model, now| {
                model.volume(from)?;
                model.convert(from, id, &name, now)
            },
        );
        self.compare_state(from, None);
        self.compare_volume(id);
    }

    fn change(&mut self) {
        let id = self.any_volume();
        let mut wanted = VolumeChange::default();
        match self.random.u8(..12) {
            0 => wanted.name = Some(self.volume_name(id)),
            1 => wanted.in_service = Some(self.random.bool()),
            2 => wanted.blessed = Some(self.random.bool()),
            3 | 4 => wanted.offline = Some(self.random.bool()),
            5 | 6 => wanted.max_quota = Some(self.quota()),
            7 | 8 => wanted.compression = Some(compression(&mut self.random)),
            9 => wanted.kind = Some(VolumeType::ALL[self.random.usize(..3)]),
            10 => wanted.owner = Some(PtsId(self.random.i32(..))),
            _ => wanted.motd = Some(vec![b'm'; self.random.usize(..300)]),
        }
        self.change_to(id, &wanted);
    }

    fn change_to(&mut self, id: u32, wanted: &VolumeChange) {
        self.doing("change");
        self.volumes(
            id,
            |driver| {
                driver
                    .partition()
                    .volume(VolumeId(id))?
                    .change(wanted.clone())
            },
            |model, _| {
                model.volume(id)?;
                model.change(id, wanted)
            },
        );
    }

    /// Puts a volume in service that was taken out, lest they all end up there.
    fn put_back(&mut self) {
        let out = self
            .model
            .volumes
            .values()
            .find(|volume| volume.online() == Err(Failure::Offline));
        let Some(id) = out.map(|volume| volume.id) else {
            return;
        };
        let wanted = VolumeChange {
            in_service: Some(true),
            blessed: Some(true),
            offline: Some(false),
            destroy_me: Some(false),
            ..VolumeChange::default()
        };
        self.change_to(id, &wanted);
    }

    fn count_volumes(&mut self) {
        let count = self.partition().volume_count().unwrap();
        assert_eq!(
            count,
            self.model.volumes.len() as u64,
            "volumes after opening again"
        );
    }
}
