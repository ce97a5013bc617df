//! Caches that are opened again in the same directory.

use std::path::Path;

use afar_cache::{Errno, SetAttr};

use crate::world::{Machine, READ, WHO, WRITE, World};

fn pattern(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

async fn in_dir(world: &World, dir: &Path) -> Machine {
    world.cache_with(|config| config.dir = dir.to_owned()).await
}

fn calls(machine: &Machine) -> u64 {
    let servers = machine.client.servers();
    servers.iter().map(|server| server.calls()).sum()
}

#[tokio::test]
async fn what_was_read_is_not_fetched_again() {
    let (world, dir) = (World::new().await, tempfile::tempdir().unwrap());
    let writer = world.cache().await;
    let (data, small) = (pattern(3_000_000), pattern(500));
    writer.put("large", &data).await.unwrap();
    writer.put("small", &small).await.unwrap();
    let machine = in_dir(&world, dir.path()).await;
    assert!(machine.get("large").await.unwrap() == data);
    assert!(machine.get("small").await.unwrap() == small);
    // What is written here stays as well.
    machine.put("own", &data).await.unwrap();
    machine.cache.close().await;
    drop(machine);
    // Not in order: nothing is lost either.
    for _ in 0..2 {
        let machine = in_dir(&world, dir.path()).await;
        for (name, data) in [("large", &data), ("small", &small), ("own", &data)] {
            let handle = machine.open(name, READ).await.unwrap();
            let before = calls(&machine);
            assert!(machine.read_all(handle).await.unwrap() == *data, "{name}");
            assert_eq!(calls(&machine), before, "{name} is fetched again");
            machine.close(handle).await.unwrap();
        }
    }
    let changed = pattern(2_500_001);
    writer.put("large", &changed).await.unwrap();
    let machine = in_dir(&world, dir.path()).await;
    assert!(machine.get("large").await.unwrap() == changed);
}

#[tokio::test]
async fn what_could_not_be_stored_is_stored_later() {
    let (world, dir) = (World::new().await, tempfile::tempdir().unwrap());
    let machine = in_dir(&world, dir.path()).await;
    machine.put("file", &pattern(300_000)).await.unwrap();
    machine.put("cut", &pattern(300_000)).await.unwrap();
    let file = machine.open("file", WRITE).await.unwrap();
    machine
        .cache
        .write(file, 100_000, b"changed")
        .await
        .unwrap();
    let cut = machine.open("cut", WRITE).await.unwrap();
    machine.cache.write(cut, 10, b"changed").await.unwrap();
    let shorter = SetAttr {
        size: Some(1000),
        ..SetAttr::default()
    };
    let ino = machine.attr("cut").await.unwrap().ino;
    machine
        .cache
        .setattr(WHO, ino, shorter, None)
        .await
        .unwrap();
    world.set_rights("rl");
    machine.cache.fsync(file).await.unwrap_err();
    machine.cache.flush(cut, 1).await.unwrap_err();
    // As if it were killed.
    drop(machine);
    world.set_rights("rlidwka");
    let mut expected = pattern(300_000);
    expected[100_000..100_007].copy_from_slice(b"changed");
    let mut short = pattern(1000);
    short[10..17].copy_from_slice(b"changed");
    let machine = in_dir(&world, dir.path()).await;
    let other = world.cache().await;
    for machine in [&machine, &other] {
        assert!(machine.get("file").await.unwrap() == expected);
        assert!(machine.get("cut").await.unwrap() == short);
    }
    assert!(!dir.path().join("lost+found").exists());
    machine.cache.close().await;
    drop(machine);
    let files = std::fs::read_dir(dir.path().join("dirty")).unwrap();
    assert_eq!(files.count(), 0);
}

#[tokio::test]
async fn nothing_is_stored_over_changes_of_others() {
    let (world, dir) = (World::new().await, tempfile::tempdir().unwrap());
    let machine = in_dir(&world, dir.path()).await;
    let other = world.cache().await;
    for name in ["changed", "removed"] {
        machine.put(name, b"first").await.unwrap();
    }
    let changed = machine.open("changed", WRITE).await.unwrap();
    machine.cache.write(changed, 2, b"mine").await.unwrap();
    let removed = machine.open("removed", WRITE).await.unwrap();
    machine.cache.write(removed, 0, b"my own").await.unwrap();
    let fid = machine.fid("changed").await;
    world.set_rights("rl");
    machine.cache.fsync(changed).await.unwrap_err();
    machine.cache.fsync(removed).await.unwrap_err();
    drop(machine);
    world.set_rights("rlidwka");
    // The times of files are whole seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    other.put("changed", b"theirs").await.unwrap();
    other.unlink("removed").await.unwrap();
    let machine = in_dir(&world, dir.path()).await;
    assert_eq!(machine.get("changed").await.unwrap(), b"theirs");
    assert_eq!(machine.at("removed").await.err(), Some(Errno::ENOENT));
    let lost = dir.path().join("lost+found");
    assert_eq!(std::fs::read_dir(&lost).unwrap().count(), 2);
    let aside = lost.join(format!("test.example.{fid}"));
    assert_eq!(std::fs::read(&aside).unwrap(), b"\0\0mine");
    let conflicts = machine.cache.conflicts().unwrap();
    assert_eq!(conflicts.len(), 2, "{conflicts:?}");
    let mut conflicts = conflicts.iter();
    let told = conflicts.find(|conflict| conflict.fid.to_string() == fid);
    let told = told.unwrap();
    assert_eq!((told.verb.as_str(), &told.kept), ("store", &Some(aside)));
    assert!(told.why.contains("others changed the file"), "{told:?}");
}

#[tokio::test]
async fn what_was_promised_is_given_back_on_both_sides() {
    let (world, dir) = (World::new().await, tempfile::tempdir().unwrap());
    let (machine, other) = (in_dir(&world, dir.path()).await, world.cache().await);
    machine.put("file", b"before").await.unwrap();
    assert_eq!(machine.get("file").await.unwrap(), b"before");
    machine.cache.close().await;
    // The server has nobody to tell this.
    other.put("file", b"after").await.unwrap();
    assert_eq!(machine.get("file").await.unwrap(), b"after");
}
