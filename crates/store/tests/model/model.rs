//! The volumes of a partition, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use afar_store::segment::Compression;
use afar_store::{VolumeChange, VolumeState};
use afar_types::{AclRecord, AclRecordEntry, Fid, PtsId, Rights, UnixTime, VolumeId, VolumeType};

use crate::failure::{Failure, Outcome};
use crate::tree::{Content, Directory, Node, Tree};
use crate::volume::Volume;

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) volumes: BTreeMap<u32, Volume>,
    lines: u64,
}

/// A volume to be made.
#[derive(Debug, Clone)]
pub(crate) struct Fresh {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) kind: VolumeType,
    pub(crate) parent: u32,
    pub(crate) max_quota: u64,
    pub(crate) root: bool,
    pub(crate) finished: bool,
    pub(crate) compression: Compression,
}

/// Whether a name can be a volume's.
fn check_name(name: &str) -> Outcome<()> {
    let sound = (1..=31).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'/')
        && !name.bytes().all(|byte| byte.is_ascii_digit());
    if sound { Ok(()) } else { Err(Failure::BadName) }
}

fn check_id(id: u32) -> Outcome<()> {
    if id == 0 {
        Err(Failure::OutOfRange)
    } else {
        Ok(())
    }
}

impl Model {
    pub(crate) fn volume(&mut self, id: u32) -> Outcome<&mut Volume> {
        self.volumes.get_mut(&id).ok_or(Failure::NoVolume)
    }

    /// A volume of which only one empty directory is looked at. It stands for the root.
    pub(crate) fn of_directory(volume: &afar_store::Volume, home: Fid) -> Self {
        let status = volume.status(home).unwrap();
        let above = (status.parent.0, status.parent_uniquifier.0);
        let acl = volume.acl(home).unwrap();
        let node = Node {
            uniquifier: home.uniquifier.0,
            data_version: 0,
            link_count: 2,
            mode: status.mode,
            owner: status.owner.0,
            group: status.group.0,
            author: status.author.0,
            modify_time: status.modify_time.0,
            server_modify_time: status.server_modify_time.0,
            parent: status.parent.0,
            content: Content::Directory(Directory::new(
                (home.vnode.0, home.uniquifier.0),
                above,
                acl,
            )),
        };
        let mut tree = Tree {
            outside: Some(above),
            ..Tree::default()
        };
        tree.nodes.insert(home.vnode.0, Arc::new(node));
        let state = volume.state().unwrap();
        let id = state.id.0;
        let only = Volume {
            id,
            state,
            offline: false,
            tree,
            line: 0,
            age: 0,
        };
        Self {
            volumes: BTreeMap::from([(id, only)]),
            lines: 0,
        }
    }

    /// The vnodes of a volume.
    pub(crate) fn vnodes(&self, id: u32) -> impl Iterator<Item = &Node> {
        self.volumes[&id].tree.nodes.values().map(|node| &**node)
    }

    /// The beginning of a volume that shares nothing with others.
    pub(crate) fn new_line(&mut self) -> (u64, u64) {
        self.lines += 1;
        (self.lines, 0)
    }

    pub(crate) fn create(&mut self, new: &Fresh, now: u32) -> Outcome<()> {
        check_id(new.id)?;
        check_name(&new.name)?;
        if self.volumes.contains_key(&new.id) {
            return Err(Failure::VolumeExists);
        }
        let (line, age) = self.new_line();
        let mut tree = Tree::default();
        if new.root {
            tree.nodes.insert(1, Arc::new(root(now)));
        }
        let mut volume = Volume {
            id: new.id,
            state: state(new, &tree, now),
            offline: false,
            tree,
            line,
            age,
        };
        volume.flag();
        self.volumes.insert(new.id, volume);
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: u32) -> Outcome<()> {
        let gone = self.volumes.remove(&id).ok_or(Failure::NoVolume)?;
        if gone.state.parent.0 != id
            && let Some(parent) = self.volumes.get_mut(&gone.state.parent.0)
        {
            for member in [&mut parent.state.clone, &mut parent.state.backup] {
                if member.0 == id {
                    *member = VolumeId(0);
                }
            }
        }
        Ok(())
    }

    /// What is half made goes when the partition is opened.
    pub(crate) fn reopen(&mut self) {
        let unfinished: Vec<u32> = self
            .volumes
            .values()
            .filter(|volume| volume.state.destroy_me)
            .map(|volume| volume.id)
            .collect();
        for id in unfinished {
            self.remove(id).expect("it is there");
        }
    }

    /// The present state of a volume, for a clone. A read-write volume goes on from it.
    fn freeze(&mut self, source: u32) -> Outcome<Volume> {
        let volume = self.volume(source)?;
        let frozen = volume.clone();
        if volume.state.kind == VolumeType::ReadWrite {
            volume.age += 1;
        }
        Ok(frozen)
    }

    pub(crate) fn make_clone(
        &mut self,
        source: u32,
        id: u32,
        name: &str,
        kind: VolumeType,
        finished: bool,
        now: u32,
    ) -> Outcome<()> {
        check_id(id)?;
        check_name(name)?;
        if kind == VolumeType::ReadWrite {
            return Err(Failure::OutOfRange);
        }
        if self.volumes.contains_key(&id) {
            return Err(Failure::VolumeExists);
        }
        let mut clone = self.freeze(source)?;
        let from = &mut self.volume(source)?.state;
        match kind {
            VolumeType::ReadOnly => from.clone = VolumeId(id),
            _ => {
                from.backup = VolumeId(id);
                from.backup_date = UnixTime(now);
            }
        }
        clone.id = id;
        clone.state = VolumeState {
            id: VolumeId(id),
            name: name.to_owned(),
            kind,
            in_service: finished,
            blessed: true,
            destroy_me: !finished,
            creation_date: UnixTime(now),
            copy_date: UnixTime(now),
            ..from.clone()
        };
        clone.offline = false;
        clone.flag();
        self.volumes.insert(id, clone);
        Ok(())
    }

    pub(crate) fn reclone(&mut self, source: u32, id: u32, now: u32) -> Outcome<()> {
        let parent = self.volume(source)?.state.parent;
        let old = self.volume(id)?.clone();
        if id == source || old.state.kind == VolumeType::ReadWrite || old.state.parent != parent {
            return Err(Failure::NoVolume);
        }
        let mut clone = self.freeze(source)?;
        let from = &mut self.volume(source)?.state;
        if old.state.kind == VolumeType::Backup {
            from.backup = VolumeId(id);
            from.backup_date = UnixTime(now);
        } else {
            from.clone = VolumeId(id);
        }
        clone.id = id;
        clone.state = VolumeState {
            kind: old.state.kind,
            in_service: true,
            blessed: true,
            destroy_me: false,
            parent: from.parent,
            clone: from.clone,
            backup: from.backup,
            uniquifier: from.uniquifier,
            max_quota: from.max_quota,
            disk_used: from.disk_used,
            file_count: from.file_count,
            update_date: from.update_date,
            compression: from.compression,
            backup_date: from.backup_date,
            owner: from.owner,
            creation_date: UnixTime(now.max(old.state.creation_date.0 + 1)),
            ..old.state
        };
        clone.offline = false;
        clone.flag();
        self.volumes.insert(id, clone);
        Ok(())
    }

    pub(crate) fn convert(&mut self, from: u32, id: u32, name: &str, now: u32) -> Outcome<()> {
        check_id(id)?;
        check_name(name)?;
        let mut volume = self.volume(from)?.clone();
        if id != from && self.volumes.contains_key(&id) {
            return Err(Failure::VolumeExists);
        }
        let newer = |other: &Volume| other.line == volume.line && other.age > volume.age;
        if self.volumes.values().any(newer) {
            return Err(Failure::NewerClone);
        }
        self.volumes.remove(&from);
        volume.id = id;
        volume.age += 1;
        volume.state = VolumeState {
            id: VolumeId(id),
            name: name.to_owned(),
            kind: VolumeType::ReadWrite,
            parent: VolumeId(id),
            clone: VolumeId(0),
            creation_date: UnixTime(now),
            copy_date: UnixTime(now),
            ..volume.state
        };
        self.volumes.insert(id, volume);
        Ok(())
    }

    pub(crate) fn renumber(&mut self, from: u32, to: u32) -> Outcome<()> {
        check_id(to)?;
        if self.volumes.contains_key(&to) {
            return Err(Failure::VolumeExists);
        }
        let mut volume = self.volumes.remove(&from).ok_or(Failure::NoVolume)?;
        volume.id = to;
        volume.state.id = VolumeId(to);
        if volume.state.parent.0 == from {
            volume.state.parent = VolumeId(to);
        }
        self.volumes.insert(to, volume);
        Ok(())
    }

    pub(crate) fn change(&mut self, id: u32, wanted: &VolumeChange) -> Outcome<()> {
        if let Some(name) = &wanted.name {
            check_name(name)?;
        }
        let wanted = wanted.clone();
        let volume = self.volume(id)?;
        volume.offline = wanted.offline.unwrap_or(volume.offline);
        volume.state.destroy_me = wanted.destroy_me.unwrap_or(volume.state.destroy_me);
        let state = &mut volume.state;
        state.name = wanted.name.unwrap_or_else(|| state.name.clone());
        state.in_service = wanted.in_service.unwrap_or(state.in_service);
        state.blessed = wanted.blessed.unwrap_or(state.blessed);
        state.max_quota = wanted.max_quota.unwrap_or(state.max_quota);
        state.owner = wanted.owner.unwrap_or(state.owner);
        state.motd = wanted.motd.unwrap_or_else(|| state.motd.clone());
        state.compression = wanted.compression.unwrap_or(state.compression);
        if let Some(kind) = wanted.kind
            && kind != VolumeType::ReadWrite
            && state.kind != VolumeType::ReadWrite
        {
            state.kind = kind;
        }
        volume.flag();
        Ok(())
    }
}

/// What is told of a new volume.
fn state(new: &Fresh, tree: &Tree, now: u32) -> VolumeState {
    VolumeState {
        id: VolumeId(new.id),
        name: new.name.clone(),
        kind: new.kind,
        parent: VolumeId(new.parent),
        clone: VolumeId(0),
        backup: VolumeId(0),
        restored_from: VolumeId(0),
        online: false,
        in_service: new.finished,
        blessed: true,
        destroy_me: !new.finished,
        uniquifier: 1,
        max_quota: new.max_quota,
        min_quota: 0,
        disk_used: tree.blocks(),
        file_count: u32::try_from(tree.nodes.len()).unwrap(),
        owner: PtsId(0),
        account: 0,
        creation_date: UnixTime(now),
        access_date: UnixTime(0),
        update_date: UnixTime(now),
        expiration_date: UnixTime(0),
        backup_date: UnixTime(0),
        copy_date: UnixTime(now),
        update_counter: 0,
        day_use_date: UnixTime(now - now % 86_400),
        day_use: 0,
        week_use: [0; 7],
        offline_message: Vec::new(),
        motd: Vec::new(),
        compression: new.compression,
    }
}

/// A new volume's root directory.
fn root(now: u32) -> Node {
    let all = AclRecordEntry {
        id: PtsId(-204),
        rights: Rights::ALL,
    };
    let acl = AclRecord::new(vec![all], Vec::new()).unwrap();
    Node {
        uniquifier: 1,
        data_version: 1,
        link_count: 2,
        mode: 0o777,
        owner: 0,
        group: 0,
        author: 0,
        modify_time: now,
        server_modify_time: now,
        parent: 0,
        content: Content::Directory(Directory::new((1, 1), (1, 1), acl)),
    }
}
