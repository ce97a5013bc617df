//! Many volumes at once: made in one step, listed by pages, counted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use afar_store::{NewVolume, Partition, PartitionOptions, StoreError};
use afar_types::VolumeId;
use tempfile::TempDir;

fn init(dir: &TempDir) -> Arc<Partition> {
    let options = PartitionOptions::default().map_size(1 << 30).unwrap();
    Arc::new(Partition::init(dir.path(), &options).unwrap())
}

fn volumes(numbers: std::ops::Range<u32>) -> Vec<NewVolume> {
    numbers
        .map(|number| NewVolume::new(VolumeId(number), format!("vol.{number}")))
        .collect()
}

#[test]
fn all_are_made_or_none() {
    let dir = TempDir::new().unwrap();
    let partition = init(&dir);
    partition.create_volumes(&volumes(1..1_001)).unwrap();
    assert_eq!(partition.volume_count().unwrap(), 1_000);
    // The last of these is there already.
    let mut more = volumes(2_000..2_100);
    more.extend(volumes(500..501));
    let refused = partition.create_volumes(&more);
    assert!(matches!(
        refused,
        Err(StoreError::VolumeExists(VolumeId(500)))
    ));
    assert_eq!(partition.volume_count().unwrap(), 1_000);
    let root = partition.volume(VolumeId(500)).unwrap();
    assert_eq!(root.status(root.root()).unwrap().link_count, 2);
    let bad = [NewVolume::new(VolumeId(3_000), "no good")];
    let refused = partition.create_volumes(&bad);
    assert!(matches!(refused, Err(StoreError::BadName { .. })));
}

#[test]
fn pages_of_a_list_join_up() {
    let dir = TempDir::new().unwrap();
    let partition = init(&dir);
    partition.create_volumes(&volumes(1..251)).unwrap();
    partition.remove_volume(VolumeId(100)).unwrap();
    let mut after = VolumeId(0);
    let mut seen = Vec::new();
    loop {
        let page = partition.states(after, 60).unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 60);
        after = last.id;
        seen.extend(page);
    }
    let expected: Vec<u32> = (1..251).filter(|number| *number != 100).collect();
    assert_eq!(
        seen.iter().map(|state| state.id.0).collect::<Vec<_>>(),
        expected
    );
    for state in &seen {
        assert_eq!(*state, partition.volume(state.id).unwrap().state().unwrap());
    }
    assert!(partition.states(VolumeId(u32::MAX), 10).unwrap().is_empty());

    let space = partition.space().unwrap();
    assert_eq!(
        (space.read_write, space.volumes(), space.vnodes),
        (249, 249, 249)
    );
    partition.wait_reaped().unwrap();
    let survey = partition.survey(|_| {}).unwrap();
    assert_eq!(
        (survey.directories, survey.pages, survey.files),
        (249, 249, 0)
    );
    assert_eq!(survey.rows, partition.row_count().unwrap());
}
