//! One random operation.

use afar_store::{SetAttributes, StoreError, StoreOptions};
use afar_types::{Fid, PtsId, UnixTime, VolumeId, VolumeType};

use crate::choose::{self, acl, len, new_vnode, offset, pattern, spoil};
use crate::compare::{agree, agree_on_bytes};
use crate::data::Pattern;
use crate::driver::Driver;
use crate::failure::Failure;
use crate::volume::{Given, Made, Write};

impl Driver {
    pub(crate) fn step(&mut self) {
        if self.random.u32(..1_000) < self.profile.volumes || self.model.volumes.is_empty() {
            return self.volume_step();
        }
        let id = self.some_volume();
        self.vnode_step(id);
    }

    /// Something to one volume's vnodes.
    pub(crate) fn vnode_step(&mut self, id: u32) {
        let crowded = self
            .model
            .volumes
            .get(&id)
            .is_some_and(|volume| volume.tree.nodes.len() > self.profile.crowd);
        if self.random.u32(..100) < self.profile.writes {
            return match self.random.u32(..20) {
                0..15 => self.write(id),
                15..18 => self.truncate(id),
                18 => self.write_in_pieces(id),
                _ => self.interrupted_write(id),
            };
        }
        match self.random.u32(..100) {
            0..30 if crowded => self.remove(id, false),
            0..22 => self.create(id),
            22..30 => self.link(id),
            30..42 => self.remove(id, false),
            42..52 => self.remove(id, true),
            52..72 => self.rename(id),
            72..78 => self.set_attributes(id),
            78..81 => self.set_acl(id),
            81..86 => self.lookup(id),
            86..89 => self.status(id),
            89..99 => self.read(id),
            _ => self.stored_records(id),
        }
    }

    /// Mostly one that takes changes, seldom one that is not there.
    pub(crate) fn some_volume(&mut self) -> u32 {
        if self.alone && self.random.u8(..64) == 0 {
            return self.random.u32(..30);
        }
        let from = self.random.u32(..30);
        let all = &self.model.volumes;
        let mut volumes = all.range(from..).chain(all);
        let (first, _) = volumes.next().expect("there is one");
        if self.random.u8(..4) == 0 {
            return *first;
        }
        let mut volumes = all.range(from..).chain(all);
        let usable = volumes
            .find(|(_, volume)| volume.state.kind == VolumeType::ReadWrite && volume.state.online);
        usable.map_or(*first, |(id, _)| *id)
    }

    fn pick(&mut self, id: u32, directory: bool) -> Fid {
        let wanted = if self.random.u8(..50) == 0 {
            !directory
        } else {
            directory
        };
        let picked = match self.model.volumes.get(&id) {
            Some(volume) => choose::vnode(&mut self.random, id, &volume.tree, wanted),
            None => Fid::root(VolumeId(id)),
        };
        spoil(&mut self.random, picked, &self.old)
    }

    fn directory(&mut self, id: u32) -> Fid {
        self.pick(id, true)
    }

    fn file(&mut self, id: u32) -> Fid {
        self.pick(id, false)
    }

    fn name(&mut self) -> Vec<u8> {
        choose::name(&mut self.random, self.profile.names)
    }

    /// Mostly a name that is there.
    fn entry(&mut self, id: u32, directory: Fid) -> Vec<u8> {
        if self.random.u8(..5) > 0
            && let Some(volume) = self.model.volumes.get(&id)
            && let Some(name) = choose::entry(
                &mut self.random,
                &volume.tree,
                directory,
                self.profile.names,
            )
        {
            return name;
        }
        self.name()
    }

    fn create(&mut self, id: u32) {
        let (directory, name) = (self.directory(id), self.name());
        let new = new_vnode(&mut self.random);
        let made = match self.random.u8(..10) {
            0..6 => Made::File,
            6..8 => Made::Directory,
            _ => {
                let len = [0, 1, 7, 100, 1_023, 1_024, 1_025][self.random.usize(..7)];
                Made::Symlink(len, pattern(&mut self.random))
            }
        };
        let alone = self.alone;
        let told = |(_, directory): &(_, afar_store::VnodeStatus)| directory.server_modify_time.0;
        if let Made::Symlink(len, _) = made
            && !(1..=1_024).contains(&len)
        {
            self.doing("symlink of a wrong length");
            let target = vec![b'x'; usize::try_from(len).unwrap()];
            let volume = self.partition().volume(VolumeId(id));
            let ours = volume.and_then(|volume| volume.symlink(directory, &name, &target, &new));
            let expected = self.model.volume(id).and(Err(Failure::OutOfRange));
            agree(ours.map(drop), expected);
            return;
        }
        self.doing("create");
        self.both(
            &[directory],
            id,
            |volume| {
                let created = match made {
                    Made::File => volume.create_file(directory, &name, &new),
                    Made::Directory => volume.make_directory(directory, &name, &new),
                    Made::Symlink(len, pattern) => {
                        let mut target = vec![0; usize::try_from(len).unwrap()];
                        pattern.fill(0, &mut target);
                        volume.symlink(directory, &name, &target, &new)
                    }
                }?;
                Ok((created.vnode, created.directory))
            },
            told,
            |volume, now, ours| {
                let is_directory = matches!(made, Made::Directory);
                let vnode = match ours {
                    // Any number that is free will do for what fails.
                    None => (u32::MAX - u32::from(!is_directory), u32::MAX),
                    Some((status, _)) => {
                        let fid = status.fid;
                        assert_eq!(fid.vnode.0 % 2 == 1, is_directory, "parity of {fid}");
                        let taken = volume.tree.nodes.contains_key(&fid.vnode.0);
                        assert!(!taken, "the number of {fid} is in use");
                        let last = volume.state.uniquifier;
                        let fresh = fid.uniquifier.0;
                        assert!(
                            fresh == last + 1 || (!alone && fresh > last),
                            "{fid} after {last}"
                        );
                        (fid.vnode.0, fid.uniquifier.0)
                    }
                };
                volume.make(directory, &name, &new, &made, Given { id: vnode, now })
            },
        );
    }

    fn link(&mut self, id: u32) {
        let file = self.file(id);
        let parent = self.model.volumes.get(&id).and_then(|volume| {
            let node = volume.tree.node(file).ok()?;
            let parent = volume.tree.nodes.get(&node.parent)?;
            Some(crate::tree::fid(id, (node.parent, parent.uniquifier)))
        });
        let directory = match parent {
            Some(parent) if self.random.u8(..6) > 0 => parent,
            _ => self.directory(id),
        };
        let name = self.name();
        self.doing("link");
        self.both(
            &[directory, file],
            id,
            |volume| {
                let linked = volume.link(directory, &name, file)?;
                Ok((linked.vnode, linked.directory))
            },
            |(_, directory)| directory.server_modify_time.0,
            |volume, now, _| volume.link(directory, &name, file, now),
        );
    }

    fn remove(&mut self, id: u32, is_directory: bool) {
        let directory = self.directory(id);
        let name = self.entry(id, directory);
        self.doing(if is_directory {
            "remove_directory"
        } else {
            "remove_file"
        });
        let done = self.both(
            &[directory],
            id,
            |volume| {
                let removed = if is_directory {
                    volume.remove_directory(directory, &name)?
                } else {
                    volume.remove_file(directory, &name)?
                };
                Ok((removed.fid, removed.vnode, removed.directory))
            },
            |(_, _, directory)| directory.server_modify_time.0,
            |volume, now, _| volume.unlink(directory, &name, is_directory, now),
        );
        if let Some((fid, None, _)) = done {
            self.bury(fid);
        }
    }

    fn rename(&mut self, id: u32) {
        let from = self.directory(id);
        let to = if self.random.u8(..3) == 0 {
            from
        } else {
            self.directory(id)
        };
        let name = self.entry(id, from);
        let new_name = match self.random.u8(..8) {
            0 => name.clone(),
            1..4 => self.entry(id, to),
            _ => self.name(),
        };
        self.doing("rename");
        let done = self.both(
            &[from, to],
            id,
            |volume| {
                let renamed = volume.rename(from, &name, to, &new_name)?;
                Ok((renamed.vnode, renamed.from, renamed.to, renamed.replaced))
            },
            |(_, _, to, _)| to.server_modify_time.0,
            |volume, now, _| volume.rename(from, &name, to, &new_name, now),
        );
        if let Some((_, _, _, Some((fid, None)))) = done {
            self.bury(fid);
        }
    }

    fn some_write(&mut self, id: u32) -> Write {
        let fid = self.file(id);
        let length = self.model.volumes.get(&id).map_or(0, |volume| {
            volume.tree.node(fid).map_or(0, |node| node.length())
        });
        let random = &mut self.random;
        Write {
            fid,
            offset: offset(random, length),
            len: len(random, self.profile.heavy),
            pattern: pattern(random),
            file_length: match random.u8(..10) {
                0..7 => None,
                7 => Some(length),
                8 => Some(random.u64(..=length)),
                _ => Some(offset(random, length)),
            },
            author: random.i32(..),
            modify_time: random.bool().then(|| random.u32(..)),
        }
    }

    fn write(&mut self, id: u32) {
        let wanted = self.some_write(id);
        self.doing("write");
        self.both(
            &[wanted.fid],
            id,
            |volume| {
                let mut data = vec![0; usize::try_from(wanted.len).unwrap()];
                wanted.pattern.fill(0, &mut data);
                volume.write(wanted.fid, wanted.offset, &data, &options(&wanted))
            },
            |status| status.server_modify_time.0,
            |volume, now, _| volume.store(&wanted, now),
        );
    }

    fn truncate(&mut self, id: u32) {
        let mut wanted = self.some_write(id);
        wanted.len = 0;
        let length = wanted.offset;
        wanted.file_length = Some(length);
        self.doing("truncate");
        self.both(
            &[wanted.fid],
            id,
            |volume| volume.truncate(wanted.fid, length, &options(&wanted)),
            |status| status.server_modify_time.0,
            |volume, now, _| volume.store(&wanted, now),
        );
    }

    /// Stores data through a writer that is told another length, or none.
    fn write_in_pieces(&mut self, id: u32) {
        let mut wanted = self.some_write(id);
        wanted.len = wanted.len.min(400_000);
        wanted.offset = wanted.offset.min(1 << 40);
        let expected = match self.random.u8(..4) {
            0 => 16 << 20,
            1 => self.random.u64(..40 << 20),
            _ => wanted.len,
        };
        let piece = self.random.usize(1..200_000);
        self.doing("write in pieces");
        self.both(
            &[wanted.fid],
            id,
            |volume| {
                let mut data = vec![0; usize::try_from(wanted.len).unwrap()];
                wanted.pattern.fill(0, &mut data);
                let mut writer = volume.writer(wanted.fid, wanted.offset, expected)?;
                for piece in data.chunks(piece) {
                    writer.write(piece)?;
                }
                writer.finish(&options(&wanted))
            },
            |status| status.server_modify_time.0,
            |volume, now, _| volume.store(&wanted, now),
        );
    }

    /// Begins to store data, and gives up or comes too late.
    fn interrupted_write(&mut self, id: u32) {
        let mut wanted = self.some_write(id);
        wanted.len = wanted.len.min(400_000);
        wanted.offset = wanted.offset.min(1 << 40);
        let late = self.random.bool();
        self.doing("interrupted write");
        self.both(
            &[wanted.fid],
            id,
            |volume| {
                let mut writer = volume.writer(wanted.fid, wanted.offset, wanted.len)?;
                let mut data = vec![0; usize::try_from(wanted.len).unwrap()];
                wanted.pattern.fill(9, &mut data);
                writer.write(&data)?;
                let status = volume.write(wanted.fid, 0, b"fffff", &options(&wanted))?;
                if late {
                    let result = writer.finish(&StoreOptions::default());
                    let error = result.expect_err("another writer came first");
                    assert!(matches!(
                        error,
                        StoreError::Conflict(_) | StoreError::OutOfRange { .. }
                    ));
                }
                Ok(status)
            },
            |status| status.server_modify_time.0,
            |volume, now, _| {
                let first = Write {
                    offset: 0,
                    len: 5,
                    pattern: Pattern::Byte(b'f'),
                    ..wanted
                };
                volume.store(&first, now)
            },
        );
    }

    fn set_attributes(&mut self, id: u32) {
        let directory = self.random.bool();
        let fid = self.pick(id, directory);
        let random = &mut self.random;
        let wanted = SetAttributes {
            mode: random.bool().then(|| random.u16(..)),
            owner: random.bool().then(|| PtsId(random.i32(..))),
            group: random.bool().then(|| PtsId(random.i32(..))),
            modify_time: random.bool().then(|| UnixTime(random.u32(..))),
        };
        self.doing("set_attributes");
        self.both(
            &[fid],
            id,
            |volume| volume.set_attributes(fid, &wanted),
            |status| status.server_modify_time.0,
            |volume, now, _| volume.set_attributes(fid, &wanted, now),
        );
    }

    fn set_acl(&mut self, id: u32) {
        let fid = self.directory(id);
        let acl = acl(&mut self.random);
        self.doing("set_acl");
        self.both(
            &[fid],
            id,
            |volume| volume.set_acl(fid, &acl),
            |status| status.server_modify_time.0,
            |volume, now, _| volume.set_acl(fid, &acl, now),
        );
    }

    fn lookup(&mut self, id: u32) {
        let directory = self.directory(id);
        let name = self.entry(id, directory);
        self.doing("lookup");
        self.both(
            &[directory],
            id,
            |volume| volume.lookup(directory, &name),
            |_| 0,
            |volume, _, _| volume.lookup(directory, &name),
        );
    }

    fn status(&mut self, id: u32) {
        let directory = self.random.bool();
        let fid = self.pick(id, directory);
        self.doing("status");
        self.both(
            &[fid],
            id,
            |volume| volume.status(fid),
            |_| 0,
            |volume, _, _| {
                volume.online()?;
                volume.tree.node(fid)?;
                Ok(volume.tree.status(id, fid.vnode.0))
            },
        );
        self.doing("acl");
        self.both(
            &[fid],
            id,
            |volume| volume.acl(fid),
            |_| 0,
            |volume, _, _| {
                volume.online()?;
                Ok(volume.tree.directory(fid)?.acl.clone())
            },
        );
    }

    fn read(&mut self, id: u32) {
        let directory = self.random.u8(..8) == 0;
        let fid = self.pick(id, directory);
        let length = self.model.volumes.get(&id).map_or(0, |volume| {
            volume.tree.node(fid).map_or(0, |node| node.length())
        });
        let from = offset(&mut self.random, length);
        let len = usize::try_from(len(&mut self.random, false)).unwrap();
        self.doing("read");
        let ours = self.handle(id).and_then(|volume| {
            let mut out = vec![1; len];
            let filled = volume.read(fid, from, &mut out)?;
            out.truncate(filled);
            Ok(out)
        });
        let expected = self.model.volume(id).and_then(|volume| {
            if fid.volume.0 != id {
                return Err(Failure::NoVolume);
            }
            volume.online()?;
            Ok(volume.tree.node(fid)?.read(from, len))
        });
        agree_on_bytes(ours, expected);
    }

    /// Records handed out stay as they are while the file changes.
    fn stored_records(&mut self, id: u32) {
        let fid = self.file(id);
        self.doing("stored_records");
        let records = self
            .handle(id)
            .and_then(|volume| volume.stored_records(fid, 0, 20));
        let Ok(records) = records else {
            return;
        };
        let before: Vec<_> = records
            .iter()
            .map(|record| record.stored().unwrap())
            .collect();
        for _ in 0..self.random.u8(..5) {
            match self.random.u8(..3) {
                0 => self.remove(id, false),
                1 => self.write(id),
                _ => self.truncate(id),
            }
        }
        for (record, before) in records.iter().zip(before) {
            assert!(
                record.stored().unwrap() == before,
                "a record at {} changed",
                record.offset()
            );
        }
    }
}

fn options(wanted: &Write) -> StoreOptions {
    StoreOptions {
        author: PtsId(wanted.author),
        modify_time: wanted.modify_time.map(UnixTime),
        file_length: wanted.file_length,
    }
}
