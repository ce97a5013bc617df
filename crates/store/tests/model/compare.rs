//! Whether the store shows what the model has.

use std::collections::BTreeMap;
use std::fmt::Debug;

use afar_store::{Result, Volume, VolumeState, VolumeSummary};
use afar_types::VolumeId;

use crate::driver::Driver;
use crate::failure::{Failure, Outcome};
use crate::tree::{Content, Node, fid};

/// Bytes read at once.
const CHUNK: u64 = 300_000;

/// Compares how an operation went. Returns what it gave, if it went well.
pub(crate) fn agree<T: PartialEq + Debug>(ours: Result<T>, expected: Outcome<T>) -> Option<T> {
    match (ours, expected) {
        (Ok(ours), Ok(expected)) => {
            assert!(
                ours == expected,
                "the store says\n{ours:#?}\nand the model\n{expected:#?}"
            );
            Some(ours)
        }
        (Err(error), Err(expected)) => {
            assert_eq!(Failure::of(&error), expected, "the store says {error}");
            None
        }
        (Ok(ours), Err(expected)) => {
            panic!("the model fails with {expected:?}, the store does not: {ours:#?}")
        }
        (Err(error), Ok(expected)) => {
            panic!("the store fails with {error:?} ({error}), the model does not: {expected:#?}")
        }
    }
}

/// Like [`agree`], for bytes: too many to print.
pub(crate) fn agree_on_bytes(ours: Result<Vec<u8>>, expected: Outcome<Vec<u8>>) {
    if let (Ok(ours), Ok(expected)) = (&ours, &expected) {
        same_bytes(ours, expected, "what was read");
    } else {
        agree(ours.map(|_| ()), expected.map(|_| ()));
    }
}

fn same_bytes(ours: &[u8], expected: &[u8], what: &str) {
    assert_eq!(ours.len(), expected.len(), "length of {what}");
    if ours != expected {
        let at = ours
            .iter()
            .zip(expected)
            .position(|(ours, expected)| ours != expected);
        panic!("byte {at:?} of {what} is wrong");
    }
}

/// Statistics of use are counted by the day, not by the operation.
fn without_use(state: VolumeState) -> VolumeState {
    VolumeState {
        access_date: afar_types::UnixTime(0),
        day_use_date: afar_types::UnixTime(0),
        day_use: 0,
        week_use: [0; 7],
        ..state
    }
}

fn summary_of(state: &VolumeState) -> VolumeSummary {
    VolumeSummary {
        kind: state.kind,
        online: state.online,
        max_quota: state.max_quota,
        disk_used: state.disk_used,
        owner: state.owner,
        creation_date: state.creation_date,
    }
}

impl Driver {
    /// Compares a volume's header. `changed` is when its vnodes were changed last, if just now.
    pub(crate) fn compare_state(&mut self, id: u32, changed: Option<(u32, u32)>) {
        let volume = self.partition().volume(VolumeId(id));
        let ours = volume.and_then(|volume| {
            let state = volume.state()?;
            assert_eq!(volume.summary()?, summary_of(&state));
            Ok(state)
        });
        let expected = self.model.volume(id).map(|volume| {
            if let (Some((before, after)), Ok(ours)) = (changed, &ours)
                && (before..=after).contains(&ours.update_date.0)
            {
                volume.state.update_date = ours.update_date;
            }
            without_use(volume.state.clone())
        });
        agree(ours.map(without_use), expected);
    }

    /// Compares all of a volume.
    pub(crate) fn compare_volume(&mut self, id: u32) {
        self.compare_state(id, None);
        let Some(volume) = self.model.volumes.get(&id) else {
            return;
        };
        if volume.online().is_err() {
            return;
        }
        assert_eq!(
            volume.state.disk_used,
            volume.tree.blocks(),
            "the model miscounts"
        );
        assert_eq!(volume.state.file_count as usize, volume.tree.nodes.len());
        self.compare_vnodes(id);
    }

    /// Compares all vnodes the model has of a volume.
    pub(crate) fn compare_vnodes(&self, id: u32) {
        let volume = &self.model.volumes[&id];
        let store = self.partition().volume(VolumeId(id)).unwrap();
        for (vnode, node) in &volume.tree.nodes {
            let ours = store.status(fid(id, (*vnode, node.uniquifier))).unwrap();
            let expected = volume.tree.status(id, *vnode);
            assert!(
                ours == expected,
                "the store says\n{ours:#?}\nand the model\n{expected:#?}"
            );
            compare_content(&store, id, *vnode, node);
        }
    }

    /// Compares everything.
    pub(crate) fn compare_all(&mut self) {
        let ours: Vec<u32> = self
            .partition()
            .volume_ids(VolumeId(0), usize::MAX)
            .unwrap()
            .into_iter()
            .map(|id| id.0)
            .collect();
        let expected: Vec<u32> = self.model.volumes.keys().copied().collect();
        assert_eq!(ours, expected, "the volumes there are");
        for id in ours {
            self.compare_volume(id);
        }
    }
}

/// Compares what a vnode holds.
fn compare_content(store: &Volume, volume: u32, vnode: u32, node: &Node) {
    let named = fid(volume, (vnode, node.uniquifier));
    match &node.content {
        Content::Directory(directory) => {
            let pages = store.read_all(named, 4 << 20).unwrap();
            same_bytes(&pages, &directory.pages, &format!("directory {named}"));
            let read = afar_dir::Directory::new(&pages).unwrap();
            let mut entries = BTreeMap::new();
            for entry in read.entries() {
                let entry = entry.unwrap();
                if !matches!(entry.name, b"." | b"..") {
                    let id = (entry.id.vnode.0, entry.id.uniquifier.0);
                    entries.insert(entry.name.to_vec(), id);
                }
            }
            assert_eq!(entries, directory.entries, "entries of {named}");
            assert_eq!(store.acl(named).unwrap(), directory.acl, "ACL of {named}");
        }
        Content::File(data) | Content::Symlink(data) => {
            for (from, len) in data.stretches(CHUNK) {
                let mut ours = vec![1; len];
                assert_eq!(store.read(named, from, &mut ours).unwrap(), len);
                same_bytes(
                    &ours,
                    &data.read(from, len),
                    &format!("{named} from {from} on"),
                );
            }
        }
    }
}
