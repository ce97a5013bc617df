//! What `vos` does, against servers in memory: that it comes to its end, and to a good one when
//! any call on the way fails.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod world;

use std::time::Duration;

use afar_admin::vos::{
    CreateOptions, DumpOptions, Failure, MoveFailure, ReleaseOptions, Released, RestoreDate,
    RestoreOptions,
};
use afar_types::{SiteFlags, VldbFlags, VolumeId};
use world::{Cell, place, server};

async fn with_volume(servers: u8) -> (Cell, VolumeId) {
    let cell = Cell::new(servers).await;
    let options = CreateOptions::default();
    let id = cell
        .vos
        .create(place(1), "user.pat", &options)
        .await
        .unwrap();
    cell.write(place(1), id, b"first");
    cell.assert_tidy("create");
    (cell, id)
}

#[tokio::test]
async fn a_volume_comes_and_goes() {
    let (cell, id) = with_volume(1).await;
    let entry = cell.entry(id);
    assert_eq!(
        entry.volume_id,
        [id, VolumeId(id.0 + 1), VolumeId(id.0 + 2)]
    );
    assert_eq!(entry.flags, VldbFlags::READ_WRITE_EXISTS);
    cell.vos.backup(place(1), id).await.unwrap();
    cell.assert_tidy("backup");
    assert_eq!(
        cell.volume(place(1), VolumeId(id.0 + 2)).unwrap().name,
        "user.pat.backup"
    );
    cell.vos.remove(place(1), id).await.unwrap();
    cell.assert_tidy("remove");
    let world = cell.world.lock().unwrap();
    assert!(world.volumes.is_empty() && world.entries.is_empty());
}

#[tokio::test]
async fn a_creation_that_fails_leaves_nothing() {
    for broken in 0.. {
        let cell = Cell::new(1).await;
        cell.world.lock().unwrap().broken = Some(broken);
        let options = CreateOptions::default();
        let made = cell.vos.create(place(1), "user.pat", &options).await;
        let world = cell.world.lock().unwrap();
        assert_eq!(world.open(), 0, "call {broken}");
        if world.calls.len() <= broken {
            assert!(made.is_ok());
            break;
        }
        // Without the quota, or the last answer, there is a volume.
        let (name, _) = world.calls[broken];
        let exists = world.volumes.values().any(|volume| volume.flags == 0);
        assert_eq!(exists, matches!(name, "set_info" | "end_trans"), "{name}");
    }
}

#[tokio::test]
async fn a_move_comes_to_its_end() {
    let (cell, id) = with_volume(2).await;
    cell.vos.backup(place(1), id).await.unwrap();
    cell.vos
        .move_volume(id, place(1), place(2), false)
        .await
        .unwrap();
    cell.assert_tidy("move");
    assert_eq!(cell.volume(place(2), id).unwrap().data, b"first");
    assert_eq!(cell.world.lock().unwrap().volumes.len(), 1);
    assert_eq!(cell.entry(id).server_number[0], u32::from(server(2)));
    assert_eq!(cell.entry(id).flags, VldbFlags::READ_WRITE_EXISTS);
    // The old place is not where it is any more.
    let again = cell.vos.move_volume(id, place(1), place(1), false).await;
    assert!(matches!(again, Err(MoveFailure::Refused(_))), "{again:?}");
    cell.assert_tidy("refused");
}

#[tokio::test]
async fn a_move_that_fails_anywhere_leaves_one_volume() {
    for live in [false, true] {
        for broken in 0.. {
            let (cell, id) = with_volume(2).await;
            let before = {
                let mut world = cell.world.lock().unwrap();
                world.broken = Some(world.calls.len() + broken);
                world.calls.len()
            };
            let moved = cell.vos.move_volume(id, place(1), place(2), live).await;
            let calls = cell.world.lock().unwrap().calls.clone();
            let Some(failed) = calls.get(before + broken) else {
                assert_eq!(moved, Ok(()));
                assert!(broken > 10, "only {broken} calls");
                break;
            };
            let context = format!("live {live}, call {broken}: {failed:?}");
            cell.assert_tidy(&context);
            let there = [1, 2].map(|number| cell.volume(place(number), id));
            let count = there.iter().flatten().count();
            assert_eq!(count, 1, "{context}: {there:?}");
            let volume = there.iter().flatten().next().unwrap();
            assert_eq!(volume.data, b"first", "{context}");
            let site = if there[0].is_some() {
                server(1)
            } else {
                server(2)
            };
            assert_eq!(
                cell.entry(id).server_number[0],
                u32::from(site),
                "{context}"
            );
        }
    }
}

#[tokio::test]
async fn an_interrupted_move_goes_back() {
    let (cell, id) = with_volume(2).await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let vos = cell.vos.clone().with_interrupt(stopped);
    stop.send(true).unwrap();
    let moved = vos.move_volume(id, place(1), place(2), false).await;
    assert_eq!(
        moved,
        Err(MoveFailure::Recovered(Failure(
            afar_admin::vos::INTERRUPTED
        )))
    );
    cell.assert_tidy("interrupted");
    assert_eq!(cell.volume(place(1), id).unwrap().data, b"first");
}

async fn with_sites() -> (Cell, VolumeId, VolumeId) {
    let (cell, id) = with_volume(4).await;
    for number in 1..=4 {
        cell.vos
            .add_site(place(number), id, None, false)
            .await
            .unwrap();
    }
    cell.assert_tidy("addsite");
    (cell, id, VolumeId(id.0 + 1))
}

fn assert_released(cell: &Cell, id: VolumeId, read_only: VolumeId, data: &[u8]) {
    cell.assert_tidy("release");
    for number in 1..=4 {
        let volume = cell.volume(place(number), read_only).unwrap();
        assert_eq!(
            (volume.name.as_str(), volume.kind),
            ("user.pat.readonly", 1)
        );
        assert_eq!(volume.data, data, "site {number}");
    }
    let entry = cell.entry(id);
    let unsettled = SiteFlags::NEW_REPLICA.0 | SiteFlags::DONT_USE.0;
    assert!(
        entry.server_flags[..5]
            .iter()
            .all(|flags| flags.0 & unsettled == 0)
    );
    assert_eq!(entry.clone_id, VolumeId(0));
    assert!(entry.flags.contains(VldbFlags::READ_ONLY_EXISTS));
}

fn count(cell: &Cell, wanted: &str) -> usize {
    let world = cell.world.lock().unwrap();
    world
        .calls
        .iter()
        .filter(|(name, _)| *name == wanted)
        .count()
}

#[tokio::test]
async fn a_release_reaches_all_sites_at_once() {
    let (cell, id, read_only) = with_sites().await;
    let options = ReleaseOptions::default();
    let released = cell.vos.release(id, place(1), options).await.unwrap();
    assert_eq!(released, Released::Sites(vec![1, 2, 3, 4]));
    assert_released(&cell, id, read_only, b"first");
    // Nobody has an older version: all sites are sent one dump.
    assert_eq!(count(&cell, "forward_multiple"), 1);
}

#[tokio::test]
async fn an_unchanged_volume_is_not_released_again() {
    let (cell, id, read_only) = with_sites().await;
    let options = ReleaseOptions::default();
    cell.vos.release(id, place(1), options).await.unwrap();
    let before = cell.world.lock().unwrap().calls.len();
    let released = cell.vos.release(id, place(1), options).await.unwrap();
    assert_eq!(released, Released::Unchanged);
    let calls = cell.world.lock().unwrap().calls[before..].to_vec();
    assert!(
        calls.iter().all(|(name, _)| *name == "list_one_volume"),
        "{calls:?}"
    );
    cell.assert_tidy("unchanged");
    cell.write(place(1), id, b"second");
    cell.vos.release(id, place(1), options).await.unwrap();
    assert_released(&cell, id, read_only, b"second");
}

#[tokio::test]
async fn a_release_goes_on_where_it_stopped() {
    let (cell, id, read_only) = with_sites().await;
    cell.world.lock().unwrap().full = vec![server(3)];
    let options = ReleaseOptions::default();
    let released = cell.vos.release(id, place(1), options).await;
    assert!(released.is_err());
    let said = cell.heard.take();
    assert!(
        said.contains("could not be released to the following 1 sites"),
        "{said}"
    );
    assert_eq!(cell.entry(id).clone_id, read_only);
    cell.world.lock().unwrap().full.clear();
    let released = cell.vos.release(id, place(1), options).await.unwrap();
    assert_eq!(released, Released::Sites(vec![3]));
    let said = cell.heard.take();
    assert!(
        said.contains("recovery of previously failed release"),
        "{said}"
    );
    assert_released(&cell, id, read_only, b"first");
}

#[tokio::test]
async fn a_release_that_fails_anywhere_can_be_done_again() {
    for broken in 0.. {
        let (cell, id, read_only) = with_sites().await;
        let before = {
            let mut world = cell.world.lock().unwrap();
            world.broken = Some(world.calls.len() + broken);
            world.calls.len()
        };
        let options = ReleaseOptions::default();
        let first = cell.vos.release(id, place(1), options).await;
        let calls = cell.world.lock().unwrap().calls.len();
        if calls <= before + broken {
            first.unwrap();
            assert!(broken > 20, "only {broken} calls");
            break;
        }
        let open = cell.world.lock().unwrap().open();
        assert_eq!(open, 0, "call {broken}: {}", cell.heard.take());
        let second = cell.vos.release(id, place(1), options).await;
        assert!(second.is_ok(), "call {broken}: {}", cell.heard.take());
        assert_released(&cell, id, read_only, b"first");
    }
}

#[tokio::test]
async fn a_dump_is_restored_as_it_was() {
    let (cell, id) = with_volume(2).await;
    let data: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    cell.write(place(1), id, &data);
    let mut dump = Vec::new();
    let options = DumpOptions::default();
    cell.vos
        .dump(id, place(1), options, &mut dump)
        .await
        .unwrap();
    cell.assert_tidy("dump");
    assert_eq!(dump, data);
    let mut again = Vec::new();
    cell.vos
        .dump_clone(id, place(1), options, &mut again)
        .await
        .unwrap();
    cell.assert_tidy("dump of a clone");
    assert_eq!(again, data);
    let options = RestoreOptions {
        id: None,
        parent: None,
        full: true,
        offline: false,
        read_only: false,
        keep_old_site: false,
        creation: RestoreDate::Keep,
        last_update: RestoreDate::Dump,
    };
    let mut source = dump.as_slice();
    let restored = cell
        .vos
        .restore("user.terry", place(2), &options, &mut source);
    let restored = tokio::time::timeout(Duration::from_mins(1), restored).await;
    let new = restored.unwrap().unwrap();
    cell.assert_tidy("restore");
    assert_eq!(cell.volume(place(2), new).unwrap().data, data);
    assert_eq!(cell.entry(new).server_number[0], u32::from(server(2)));
}
