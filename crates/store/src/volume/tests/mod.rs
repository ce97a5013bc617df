//! The versions of a tree's rows against copies of what each member should see.

mod page_changes;
mod roll_back;
mod versions;

use std::collections::BTreeMap;
use std::sync::Arc;

use afar_types::VolumeId;
use fastrand::Rng;

use crate::config::{Durability, PartitionOptions};
use crate::meta::{Item, Kind, Record, Rows};
use crate::partition::Partition;
use crate::segment::Codec;

/// What a member of a tree sees.
type Seen = BTreeMap<Item, Vec<u8>>;

fn options() -> PartitionOptions {
    PartitionOptions::default()
        .durability(Durability::Async)
        .map_size(1 << 28)
        .unwrap()
}

/// An item of a tree that has few of them.
fn item(random: &mut Rng) -> Item {
    let vnode = random.u32(1..6);
    if random.bool() {
        Item::page(vnode, random.u64(..3))
    } else {
        Item::record(vnode, random.u64(..3))
    }
}

/// A value that tells itself from others.
fn value(random: &mut Rng, kind: Kind) -> Vec<u8> {
    let mark = random.u64(..).to_be_bytes().to_vec();
    match kind {
        Kind::Record => Record::Inline {
            codec: Codec::Raw,
            plain: 8,
            stored: mark,
        }
        .to_bytes(),
        _ => mark,
    }
}

/// All a volume shows, read in both ways there are.
fn seen(partition: &Arc<Partition>, id: VolumeId) -> Seen {
    let reader = partition.reader().unwrap();
    let at = reader.volume(id.0).unwrap().unwrap().at();
    let mut seen = Seen::new();
    for kind in [Kind::Page, Kind::Record] {
        let first = Item {
            kind,
            vnode: 0,
            index: 0,
        };
        for found in reader.items(at, first).unwrap() {
            let (item, value) = found.unwrap();
            seen.insert(item, value.to_vec());
        }
        for vnode in 1..6 {
            for index in 0..3 {
                let item = Item { kind, vnode, index };
                let row = reader.row(at, item).unwrap();
                assert_eq!(
                    row,
                    seen.get(&item).map(Vec::as_slice),
                    "{item:?} at {at:?}"
                );
            }
        }
    }
    seen
}
