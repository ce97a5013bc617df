//! Random operations, compared with sets of names and memberships.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    User(u8),
    Group(u8, u8),
    Delete(u8),
    Add(u8, u8),
    Remove(u8, u8),
    Rename(u8, u8),
    Chown(u8, u8),
    NewId(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0..12_u8;
    prop_oneof![
        n.clone().prop_map(Step::User),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::Group(a, b)),
        n.clone().prop_map(Step::Delete),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::Add(a, b)),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::Add(a, b)),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::Remove(a, b)),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::Rename(a, b)),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::Chown(a, b)),
        (n.clone(), n).prop_map(|(a, b)| Step::NewId(a, b)),
    ]
}

/// What there should be.
#[derive(Default)]
struct Model {
    /// Names and owners.
    entries: BTreeMap<i32, (String, i32)>,
    /// Members and groups.
    memberships: BTreeSet<(i32, i32)>,
}

impl Model {
    fn nth(&self, n: u8) -> Option<i32> {
        let ids: Vec<_> = self.entries.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[usize::from(n) % ids.len()])
    }

    fn has_name(&self, name: &str) -> bool {
        self.entries.values().any(|(known, _)| known == name)
    }

    fn delete(&mut self, id: i32) {
        self.entries.remove(&id);
        self.memberships.retain(|&(a, b)| a != id && b != id);
        for (_, owner) in self.entries.values_mut() {
            if *owner == id {
                *owner = 0;
            }
        }
    }

    fn new_id(&mut self, old: i32, new: i32) {
        let entry = self.entries.remove(&old).unwrap();
        self.entries.insert(new, entry);
        let id = |id| if id == old { new } else { id };
        for (_, owner) in self.entries.values_mut() {
            *owner = id(*owner);
        }
        let moved = self.memberships.iter().map(|&(a, b)| (id(a), id(b)));
        self.memberships = moved.collect();
    }
}

/// Does a step on both, the server as an administrator.
async fn run(cell: &Cell, model: &mut Model, step: &Step) {
    let admin = As::Admin;
    match *step {
        Step::User(n) => {
            let name = format!("user{n}");
            let made = cell.make(admin, &name, 0, 0).await;
            assert_eq!(made.is_err(), model.has_name(&name));
            if let Ok(id) = made {
                model.entries.insert(id, (name, -204));
            }
        }
        Step::Group(n, owner) => {
            let Some(owner) = model.nth(owner) else {
                return;
            };
            let (owner_name, _) = &model.entries[&owner];
            let prefix = owner_name.split(':').next().unwrap();
            let name = format!("{prefix}:{n}");
            let made = cell.make(admin, &name, GROUP, owner).await;
            assert_eq!(made.is_err(), model.has_name(&name));
            if let Ok(id) = made {
                model.entries.insert(id, (name, owner));
            }
        }
        Step::Delete(n) => {
            let Some(id) = model.nth(n) else { return };
            cell.delete(admin, id).await.unwrap();
            model.delete(id);
        }
        Step::Add(a, b) => {
            let (Some(a), Some(b)) = (model.nth(a), model.nth(b)) else {
                return;
            };
            let added = cell.add(admin, a, b).await;
            let expected = match (b < 0, a == b, model.memberships.contains(&(a, b))) {
                (false, ..) => Err(PRNOTGROUP),
                (_, true, _) => Err(PRINCONSISTENT),
                (_, _, true) => Err(PRIDEXIST),
                _ => Ok(()),
            };
            assert_eq!(added, expected);
            if added.is_ok() {
                model.memberships.insert((a, b));
            }
        }
        Step::Remove(a, b) => {
            let (Some(a), Some(b)) = (model.nth(a), model.nth(b)) else {
                return;
            };
            let removed = cell.remove(admin, a, b).await;
            assert_eq!(removed.is_ok(), model.memberships.remove(&(a, b)));
        }
        Step::Rename(a, n) => {
            let Some(a) = model.nth(a) else { return };
            let name = if a < 0 {
                let owner = model.entries[&a].1;
                let Some((owner_name, _)) = model.entries.get(&owner) else {
                    return;
                };
                format!("{}:{n}", owner_name.split(':').next().unwrap())
            } else {
                format!("user{n}")
            };
            let unchanged = model.entries[&a].0 == name;
            let renamed = cell.change(admin, a, (&name, 0, 0)).await;
            assert_eq!(renamed.is_err(), !unchanged && model.has_name(&name));
            if renamed.is_ok() {
                model.entries.get_mut(&a).unwrap().0 = name;
            }
        }
        Step::Chown(a, b) => {
            let (Some(a), Some(b)) = (model.nth(a), model.nth(b)) else {
                return;
            };
            let (name, owner) = model.entries[&a].clone();
            let changed = cell.change(admin, a, ("", b, 0)).await;
            if a > 0 || owner == b {
                assert_eq!(changed.is_ok(), owner == b);
                return;
            }
            let prefix = model.entries[&b].0.split(':').next().unwrap();
            let suffix = name.split(':').next_back().unwrap();
            let new = format!("{prefix}:{suffix}");
            assert_eq!(changed.is_err(), new != name && model.has_name(&new));
            if changed.is_ok() {
                model.entries.insert(a, (new, b));
            }
        }
        Step::NewId(a, n) => {
            let Some(a) = model.nth(a) else { return };
            let id = a.signum() * (1000 + i32::from(n));
            let changed = cell.change(admin, a, ("", 0, id)).await;
            let taken = id != a && model.entries.contains_key(&id);
            assert_eq!(changed.is_err(), taken);
            if !taken && id != a {
                model.new_id(a, id);
            }
        }
    }
}

/// Compares all there is.
async fn compare(cell: &Cell, model: &Model) {
    for (&id, (name, owner)) in &model.entries {
        assert_eq!(&cell.name_of(id).await, name);
        assert_eq!(cell.id_of(name).await, id);
        let entry = cell.entry(As::Admin, id).await.unwrap();
        assert_eq!(entry.owner.0, *owner);
        let pairs = model.memberships.iter();
        let expected: Vec<_> = if id < 0 {
            pairs
                .filter(|pair| pair.1 == id)
                .map(|pair| pair.0)
                .collect()
        } else {
            pairs
                .filter(|pair| pair.0 == id)
                .map(|pair| pair.1)
                .collect()
        };
        assert_eq!(cell.elements(As::Admin, id).await.unwrap(), expected);
        assert_eq!(usize::try_from(entry.count).unwrap(), expected.len());
        let owned = model.entries.iter().filter(|(_, entry)| entry.1 == id);
        let owned: Vec<_> = owned.map(|(&group, _)| group).collect();
        assert_eq!(cell.owned(As::Admin, id, 0).await.unwrap().0, owned);
    }
    let orphans = model.entries.iter().filter(|(_, entry)| entry.1 == 0);
    let orphans: Vec<_> = orphans.map(|(&group, _)| group).collect();
    assert_eq!(cell.owned(As::Admin, 0, 0).await.unwrap().0, orphans);
    let header = cell.server.header().unwrap();
    let groups = model.entries.keys().filter(|&&id| id < 0).count();
    assert_eq!(usize::try_from(header.groups).unwrap(), groups + 5);
    let users = model.entries.len() - groups;
    assert_eq!(usize::try_from(header.users).unwrap(), users + 1);
    // Nothing is lost on the way to OpenAFS's file and back.
    let exported = cell.server.export().unwrap();
    let file = exported.encode(1, 1).unwrap();
    let read = super::super::prdb::Prdb::decode(&file).unwrap();
    assert_eq!(read.entries.len(), model.entries.len() + 6);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_server_does_as_the_model(steps in proptest::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let cell = Cell::new().await;
            let mut model = Model::default();
            for step in &steps {
                run(&cell, &mut model, step).await;
            }
            compare(&cell, &model).await;
        });
    }
}
