//! Random operations against a map.

use std::collections::BTreeMap;

use afar_net::AbortCode;
use afar_types::{NvldbEntry, VldbFlags, VolumeId};
use proptest::prelude::*;

use super::super::codes::*;
use super::{Fixture, entry};

#[derive(Debug, Clone)]
enum Operation {
    Create(u32, u32, u8),
    Delete(u32, i32),
    Replace(u32, u32, u32, u8, i32),
    Lock(u32, i32),
    Unlock(u32, i32),
}

fn operation() -> impl Strategy<Value = Operation> {
    let (volume, name, server) = (0..6u32, 0..6u32, 1..4u8);
    prop_oneof![
        (volume.clone(), name.clone(), server.clone())
            .prop_map(|(v, n, s)| Operation::Create(v, n, s)),
        (volume.clone(), -1..3).prop_map(|(v, kind)| Operation::Delete(v, kind)),
        (volume.clone(), name, 0..4u32, server, 0..4)
            .prop_map(|(v, n, ids, s, release)| Operation::Replace(v, n, ids, s, release)),
        (volume.clone(), 4..7).prop_map(|(v, bit)| Operation::Lock(v, 1 << bit)),
        (volume, 1..8).prop_map(|(v, release)| Operation::Unlock(v, release)),
    ]
}

fn wanted(volume: u32, name: u32, server: u8) -> NvldbEntry {
    let mut entry = entry(&format!("n{name}"), 10 * (volume + 1), &[server]);
    // Volumes next to each other share an id.
    entry.volume_id[2] = VolumeId(10 * (volume + 2) + 1);
    entry
}

/// What the server should know: entries, and whether they are held.
#[derive(Default)]
struct Model(BTreeMap<u32, (NvldbEntry, bool)>);

impl Model {
    fn find(&self, id: u32, kind: i32) -> Result<u32, AbortCode> {
        let kinds = usize::try_from(kind).map_or(0..3, |kind| kind..kind + 1);
        for kind in kinds {
            let has = |(entry, _): &(NvldbEntry, bool)| entry.volume_id[kind].0 == id;
            if let Some((key, _)) = self.0.iter().find(|(_, value)| has(value)) {
                return Ok(*key);
            }
        }
        Err(VL_NOENT)
    }

    fn taken(&self, name: &NvldbEntry) -> bool {
        self.0.values().any(|(entry, _)| entry.name == name.name)
    }

    fn apply(&mut self, operation: &Operation) -> Result<(), AbortCode> {
        match *operation {
            Operation::Create(volume, name, server) => {
                let new = wanted(volume, name, server);
                if new.volume_id.iter().any(|id| self.find(id.0, -1).is_ok()) {
                    return Err(VL_IDEXIST);
                }
                if self.taken(&new) {
                    return Err(VL_NAMEEXIST);
                }
                self.0.insert(volume, (new, false));
            }
            Operation::Delete(volume, kind) => {
                let key = self.find(10 * (volume + 1), kind)?;
                self.0.remove(&key);
            }
            Operation::Replace(volume, name, ids, server, release) => {
                let new = replacement(volume, name, ids, server);
                let key = self.find(10 * (volume + 1), -1)?;
                let old = self.0[&key].clone();
                if new.name != old.0.name && self.taken(&new) {
                    return Err(VL_NAMEEXIST);
                }
                for kind in 1..3 {
                    let id = new.volume_id[kind];
                    let same = id == old.0.volume_id[kind] || id.0 == 0;
                    if !same && self.find(id.0, i32::try_from(kind).unwrap()).is_ok() {
                        return Err(VL_IDALREADYHASHED);
                    }
                }
                self.0.insert(key, (new, old.1 && release & 1 == 0));
            }
            Operation::Lock(volume, bit) => {
                let key = self.find(10 * (volume + 1), 0)?;
                let (entry, held) = self.0.get_mut(&key).unwrap();
                if *held {
                    return Err(VL_ENTRYLOCKED);
                }
                if entry.flags.0 & 0x20 != 0 {
                    return Err(VL_RERELEASE);
                }
                *held = true;
                entry.flags = VldbFlags(entry.flags.0 & !0x1f0 | u32::try_from(bit).unwrap());
            }
            Operation::Unlock(volume, release) => {
                let key = self.find(10 * (volume + 1), 0)?;
                let (entry, held) = self.0.get_mut(&key).unwrap();
                if release & 1 != 0 {
                    *held = false;
                }
                if release & 2 != 0 {
                    entry.flags = VldbFlags(entry.flags.0 & !0x1f0);
                }
            }
        }
        Ok(())
    }
}

fn replacement(volume: u32, name: u32, ids: u32, server: u8) -> NvldbEntry {
    let mut new = wanted(volume, name, server);
    if ids & 1 != 0 {
        new.volume_id[1] = VolumeId(0);
    }
    if ids & 2 != 0 {
        new.volume_id[2] = VolumeId(10 * (volume + 3) + 1);
    }
    new
}

async fn run(operations: Vec<Operation>) {
    let cell = Fixture::new();
    let mut model = Model::default();
    for operation in operations {
        let done = match operation {
            Operation::Create(volume, name, server) => {
                cell.create(wanted(volume, name, server)).await
            }
            Operation::Delete(volume, kind) => cell.delete(10 * (volume + 1), kind).await,
            Operation::Replace(volume, name, ids, server, release) => {
                let new = replacement(volume, name, ids, server);
                cell.replace(10 * (volume + 1), new, release).await
            }
            Operation::Lock(volume, bit) => cell.lock(10 * (volume + 1), bit).await,
            Operation::Unlock(volume, release) => cell.unlock(10 * (volume + 1), release).await,
        };
        assert_eq!(done, model.apply(&operation), "{operation:?}");
        for id in 10..100 {
            for kind in -1..3 {
                let expected = model.find(id, kind).map(|key| model.0[&key].0.clone());
                assert_eq!(
                    cell.by_id(id, kind).await,
                    expected,
                    "{operation:?}: {id} {kind}"
                );
            }
        }
        for name in 0..6 {
            let name = format!("n{name}");
            let known = model
                .0
                .values()
                .find(|(entry, _)| entry.name.to_string() == name);
            let expected = known.map(|(entry, _)| entry.clone()).ok_or(VL_NOENT);
            assert_eq!(cell.by_name(&name).await, expected, "{operation:?}: {name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_server_does_what_a_map_does(
        operations in proptest::collection::vec(operation(), 1..24)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(run(operations));
    }
}
