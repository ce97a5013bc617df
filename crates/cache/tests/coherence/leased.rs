//! Changes that a machine makes itself, under leases.

use std::io;
use std::path::Path;
use std::time::Duration;

use afar_cache::{Errno, SetAttr};
use tempfile::TempDir;

use crate::relay::{Lost, Relay};
use crate::world::{Machine, READ, WHO, World, machine};

/// How long a machine waits for a lease.
const GRANTED: Duration = Duration::from_secs(10);
/// What a machine that was killed had leased is its own so long.
const TERM: Duration = Duration::from_secs(20);

/// Makes a file and has its directory leased: from then on a file that is made takes no call.
async fn leased(machine: &Machine, directory: &str) {
    let begun = tokio::time::Instant::now();
    for number in 0.. {
        let before = machine.calls();
        let name = format!("{directory}/first{number}");
        machine.put(&name, b"first").await.unwrap();
        if machine.calls() == before {
            return;
        }
        assert!(begun.elapsed() < GRANTED, "{directory} is not leased");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Has the server get all that was changed.
async fn sync(machine: &Machine, directory: &str) -> Result<(), Errno> {
    let ino = machine.at(directory).await?.attr.ino;
    let handle = machine.cache.opendir(WHO, ino).await?;
    let synced = machine.cache.fsyncdir(handle).await;
    machine.cache.releasedir(handle);
    synced
}

fn content(number: usize) -> Vec<u8> {
    (0..=250).cycle().take(number * 37 % 20_000).collect()
}

#[tokio::test]
async fn a_tree_is_made_without_waiting_for_each_change() {
    let world = World::new().await;
    let (machine, other) = (world.leasing().await, world.cache().await);
    machine.mkdir("tree").await.unwrap();
    leased(&machine, "tree").await;
    let before = machine.calls();
    for directory in 0..20 {
        let path = format!("tree/dir{directory}");
        machine.mkdir(&path).await.unwrap();
        for file in 0..20 {
            let path = format!("{path}/file{file}");
            machine
                .put(&path, &content(directory * file))
                .await
                .unwrap();
        }
    }
    sync(&machine, "tree").await.unwrap();
    let calls = machine.calls() - before;
    assert!(calls < 100, "820 changes took {calls} calls");
    for machine in [&other, &machine] {
        for directory in 0..20 {
            let path = format!("tree/dir{directory}");
            assert_eq!(machine.list(&path, true).await.unwrap().len(), 20);
            for file in 0..20 {
                let path = format!("{path}/file{file}");
                assert!(machine.get(&path).await.unwrap() == content(directory * file));
            }
        }
    }
}

#[tokio::test]
async fn names_are_moved_linked_and_removed_as_by_calls() {
    let world = World::new().await;
    let (machine, other) = (world.leasing().await, world.cache().await);
    machine.mkdir("tree").await.unwrap();
    leased(&machine, "tree").await;
    machine.mkdir("tree/sub").await.unwrap();
    for name in ["a", "b", "c", "sub/d"] {
        let path = format!("tree/{name}");
        machine.put(&path, name.as_bytes()).await.unwrap();
    }
    machine.rename("tree/a", "tree/moved").await.unwrap();
    machine.rename("tree/b", "tree/c").await.unwrap();
    machine.rename("tree/sub/d", "tree/up").await.unwrap();
    machine.unlink("tree/first0").await.unwrap();
    let (tree, moved) = (
        machine.attr("tree").await.unwrap().ino,
        machine.attr("tree/moved").await.unwrap().ino,
    );
    let linked = machine
        .cache
        .link(WHO, moved, tree, b"linked")
        .await
        .unwrap();
    assert_eq!(linked.attr.nlink, 2);
    let mode = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    machine.cache.setattr(WHO, moved, mode, None).await.unwrap();
    let target = b"moved";
    machine
        .cache
        .symlink(WHO, tree, b"link", target)
        .await
        .unwrap();
    let again = machine.cache.mkdir(WHO, tree, b"sub", 0o755).await;
    assert_eq!(again.err(), Some(Errno::EEXIST));
    let sub = machine.cache.rmdir(WHO, tree, b"sub").await;
    sub.unwrap();
    for machine in [&other, &machine] {
        let mut names = machine.list("tree", true).await.unwrap();
        names.retain(|name| !name.starts_with("first"));
        assert_eq!(names, ["c", "link", "linked", "moved", "up"]);
        assert_eq!(machine.get("tree/c").await.unwrap(), b"b");
        assert_eq!(machine.get("tree/up").await.unwrap(), b"sub/d");
        let linked = machine.attr("tree/linked").await.unwrap();
        assert_eq!((linked.nlink, linked.mode), (2, 0o600));
        assert_eq!(machine.get("tree/linked").await.unwrap(), b"a");
    }
    machine.unlink("tree/moved").await.unwrap();
    for machine in [&other, &machine] {
        assert_eq!(machine.attr("tree/linked").await.unwrap().nlink, 1);
    }
}

#[tokio::test]
async fn two_machines_change_one_directory_in_turn() {
    let world = World::new().await;
    let machines = [world.leasing().await, world.leasing().await];
    machines[0].mkdir("tree").await.unwrap();
    leased(&machines[0], "tree").await;
    for number in 0..40 {
        let (one, two) = (&machines[number % 2], &machines[(number + 1) % 2]);
        let path = format!("tree/file{number}");
        one.put(&path, &content(number)).await.unwrap();
        assert!(two.get(&path).await.unwrap() == content(number), "{path}");
        // What the other has made before is changed by this one.
        if number > 0 {
            let before = format!("tree/file{}", number - 1);
            one.put(&before, b"changed").await.unwrap();
            assert_eq!(two.get(&before).await.unwrap(), b"changed");
        }
    }
    let names = machines[0].list("tree", false).await.unwrap();
    assert_eq!(names, machines[1].list("tree", true).await.unwrap());
}

#[tokio::test]
async fn what_is_synced_is_at_the_server() {
    let world = World::new().await;
    let machine = world.leasing().await;
    machine.mkdir("tree").await.unwrap();
    leased(&machine, "tree").await;
    let handle = machine.create("tree/file").await.unwrap();
    machine.cache.write(handle, 0, b"synced").await.unwrap();
    machine.cache.fsync(handle).await.unwrap();
    // Nobody is there any more to ask for it.
    let servers = machine.client.clone();
    drop(machine);
    drop(servers);
    let other = world.cache().await;
    assert_eq!(other.get("tree/file").await.unwrap(), b"synced");
}

async fn in_dir(world: &World, dir: &Path) -> Machine {
    let adjust = |config: &mut afar_cache::CacheConfig| {
        config.dir = dir.to_owned();
        config.write_through = false;
    };
    world.cache_with(adjust).await
}

/// Copies a directory with all that is in it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            std::fs::create_dir(&to)?;
            copy(&from, &to)?;
        } else {
            std::fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// What is on the disk if the process is killed now.
fn left_behind(dir: &Path) -> TempDir {
    loop {
        let left = tempfile::tempdir().unwrap();
        match copy(dir, left.path()) {
            Ok(()) => break left,
            // The process goes on, and has removed a file under the copy.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn changes_of_a_killed_process_are_made_by_the_next() {
    let (world, dir) = (World::new().await, tempfile::tempdir().unwrap());
    let machine = in_dir(&world, dir.path()).await;
    machine.mkdir("tree").await.unwrap();
    leased(&machine, "tree").await;
    sync(&machine, "tree").await.unwrap();
    machine.client.endpoint().shutdown().await;
    // Nothing reaches the server from now on.
    machine.mkdir("tree/sub").await.unwrap();
    for number in 0..50 {
        let path = format!("tree/sub/file{number}");
        machine.put(&path, &content(number)).await.unwrap();
    }
    machine.rename("tree/first0", "tree/renamed").await.unwrap();
    let left = left_behind(dir.path());
    let next = in_dir(&world, left.path()).await;
    let other = world.cache().await;
    let all = async {
        while next.at("tree/renamed").await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    // Its leases are its own until they end.
    tokio::time::timeout(3 * TERM, all).await.unwrap();
    for machine in [&next, &other] {
        for number in 0..50 {
            let path = format!("tree/sub/file{number}");
            assert!(
                machine.get(&path).await.unwrap() == content(number),
                "{path}"
            );
        }
    }
    assert!(!left.path().join("lost+found").exists());
    let handle = next.open("tree/renamed", READ).await.unwrap();
    next.close(handle).await.unwrap();
}

#[tokio::test]
async fn a_batch_whose_answer_was_lost_is_sent_again_as_it_was() {
    let (world, dir) = (World::new().await, tempfile::tempdir().unwrap());
    let (locations, server) = world.servers();
    let relay = Relay::new(server).await;
    let adjust = |config: &mut afar_cache::CacheConfig| {
        config.dir = dir.path().to_owned();
        config.write_through = false;
    };
    let machine = machine(locations, relay.port, adjust).await;
    machine.mkdir("tree").await.unwrap();
    leased(&machine, "tree").await;
    sync(&machine, "tree").await.unwrap();
    relay.loses(Lost::None, Lost::All);
    machine.put("tree/file", &content(100)).await.unwrap();
    // The server has it soon, and the machine does not hear that.
    tokio::time::sleep(Duration::from_secs(1)).await;
    relay.loses(Lost::All, Lost::All);
    machine.put("tree/later", &content(200)).await.unwrap();
    // When its leases are over, another process of the server is there, which knows nothing of its calls.
    tokio::time::sleep(TERM + Duration::from_secs(2)).await;
    world.restart().await;
    relay.loses(Lost::None, Lost::None);
    sync(&machine, "tree").await.unwrap();
    let other = world.cache().await;
    for machine in [&machine, &other] {
        assert!(machine.get("tree/file").await.unwrap() == content(100));
        assert!(machine.get("tree/later").await.unwrap() == content(200));
    }
    assert!(machine.cache.conflicts().unwrap().is_empty());
}

/// Waits until something is so.
async fn until(mut is_so: impl FnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < GRANTED, "it is not so");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_was_told_of_a_tree_before_the_server_had_a_change_does_not_undo_it() {
    let world = World::new().await;
    let (locations, server) = world.servers();
    let relay = Relay::new(server).await;
    let other = world.cache().await;
    other.mkdir("top").await.unwrap();
    for name in ["a", "b", "c", "c/own"] {
        other.mkdir(&format!("top/{name}")).await.unwrap();
    }
    let machine = machine(locations, relay.port, |config| config.write_through = false).await;
    leased(&machine, "top/c/own").await;
    sync(&machine, "top/c/own").await.unwrap();
    for name in ["a", "b", "c"] {
        machine.list(&format!("top/{name}"), true).await.unwrap();
    }
    let handle = machine.create("top/c/own/file").await.unwrap();
    sync(&machine, "top/c/own").await.unwrap();
    // The next walk through the tree reads this directory again, and what is in it.
    other.put("top/c/new", b"new").await.unwrap();
    relay.loses(Lost::Long, Lost::Long);
    let data = vec![1; 200_000];
    machine.cache.write(handle, 0, &data).await.unwrap();
    machine.close(handle).await.unwrap();
    let before = machine.calls();
    for name in ["a", "b"] {
        machine.list(&format!("top/{name}"), true).await.unwrap();
    }
    // It asks before the server has the change, and hears the answer afterwards.
    until(|| machine.calls() > before + 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    relay.loses(Lost::None, Lost::Long);
    until(|| machine.cache.changes_here().waiting == 0).await;
    relay.loses(Lost::None, Lost::None);
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let attr = machine.attr("top/c/own/file").await.unwrap();
        assert_eq!(attr.size, 200_000);
    }
}

#[tokio::test]
async fn times_stay_as_they_were_when_the_server_has_a_change() {
    let world = World::new().await;
    let (locations, server) = world.servers();
    let relay = Relay::new(server).await;
    let machine = machine(locations, relay.port, |config| config.write_through = false).await;
    machine.mkdir("tree").await.unwrap();
    leased(&machine, "tree").await;
    sync(&machine, "tree").await.unwrap();
    relay.loses(Lost::All, Lost::All);
    machine.mkdir("tree/sub").await.unwrap();
    machine.put("tree/file", &content(100)).await.unwrap();
    machine.rename("tree/first0", "tree/moved").await.unwrap();
    let paths = ["tree", "tree/sub", "tree/file", "tree/moved"];
    let mut times = Vec::new();
    for path in paths {
        let attr = machine.attr(path).await.unwrap();
        times.push((attr.mtime, attr.ctime));
    }
    // So long that the server's clock shows other seconds, and no lease is over.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    relay.loses(Lost::None, Lost::None);
    sync(&machine, "tree").await.unwrap();
    let other = world.cache().await;
    for machine in [&machine, &other] {
        for (path, time) in paths.iter().zip(&times) {
            let attr = machine.attr(path).await.unwrap();
            assert_eq!((attr.mtime, attr.ctime), *time, "{path}");
        }
    }
}
