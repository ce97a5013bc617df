//! Names made, moved and removed here and seen there.

use std::time::Duration;

use afar_cache::{Errno, Ino, Kind, Root};

use crate::world::{READ, WHO, World};

#[tokio::test]
async fn what_one_makes_moves_and_removes_the_other_sees() {
    let world = World::new().await;
    let (one, other) = (world.cache().await, world.cache().await);
    assert_eq!(other.at("dir").await.err(), Some(Errno::ENOENT));
    one.mkdir("dir").await.unwrap();
    assert_eq!(other.attr("dir").await.unwrap().kind, Kind::Dir);
    for number in 0..30 {
        let machine = if number % 2 == 0 { &one } else { &other };
        machine.put(&format!("dir/{number}"), b"x").await.unwrap();
    }
    for machine in [&one, &other] {
        assert_eq!(machine.list("dir", true).await.unwrap().len(), 30);
    }
    one.rename("dir/3", "dir/moved").await.unwrap();
    other.rename("dir/4", "top").await.unwrap();
    one.rename("dir/5", "dir/6").await.unwrap();
    other.unlink("dir/7").await.unwrap();
    for machine in [&one, &other] {
        let names = machine.list("dir", false).await.unwrap();
        assert_eq!(names.len(), 27);
        assert!(names.contains(&"moved".to_owned()) && !names.contains(&"5".to_owned()));
        assert!(machine.at("top").await.is_ok());
        assert_eq!(machine.at("dir/7").await.err(), Some(Errno::ENOENT));
    }
    let dir = (Ino::ROOT, &b"dir"[..]);
    let refused = one.cache.rmdir(WHO, dir.0, dir.1).await;
    assert_eq!(refused, Err(Errno::ENOTEMPTY));
}

#[tokio::test]
async fn many_at_once_leave_the_copy_right() {
    let world = World::new().await;
    let (one, other) = (world.cache().await, world.cache().await);
    let mut tasks = tokio::task::JoinSet::new();
    let cache = one.cache.clone();
    cache.opendir(WHO, Ino::ROOT).await.unwrap();
    for number in 0..200 {
        let cache = cache.clone();
        tasks.spawn(async move {
            let name = format!("file{number}");
            cache.mkdir(WHO, Ino::ROOT, name.as_bytes(), 0o755).await
        });
    }
    for made in tasks.join_all().await {
        made.unwrap();
    }
    let expected = other.list("", false).await.unwrap();
    assert_eq!(expected.len(), 200);
    assert_eq!(one.list("", true).await.unwrap(), expected);
}

#[tokio::test]
async fn our_own_changes_cost_no_reading() {
    let world = World::new().await;
    let machine = world.cache().await;
    machine.mkdir("dir").await.unwrap();
    machine.put("dir/0", b"x").await.unwrap();
    machine.list("dir", false).await.unwrap();
    let calls = || {
        let servers = machine.client.servers();
        servers.iter().map(|server| server.calls()).sum::<u64>()
    };
    let before = calls();
    for number in 1..20 {
        machine.mkdir(&format!("dir/{number}")).await.unwrap();
    }
    assert_eq!(machine.list("dir", false).await.unwrap().len(), 20);
    assert_eq!(calls() - before, 19, "one call makes a directory");
    machine.mkdir("dir/1/below").await.unwrap();
    assert_eq!(machine.list("dir/1", false).await.unwrap(), ["below"]);
    assert_eq!(machine.list("dir/2", false).await.unwrap(), [""; 0]);
    assert_eq!(calls() - before, 20, "what is in a new one is known");
}

#[tokio::test]
async fn directories_that_do_not_fit_into_memory_stay_right() {
    let world = World::new().await;
    // One or two small directories at a time.
    let one = world.cache_with(|config| config.directories = 4096).await;
    let other = world.cache().await;
    let path = |directory: u32, file: u32| format!("dir{directory}/{file}");
    for directory in 0..8 {
        one.mkdir(&format!("dir{directory}")).await.unwrap();
        one.put(&path(directory, 0), b"x").await.unwrap();
    }
    for round in 1..4 {
        for directory in 0..8 {
            let maker = if directory % 2 == 0 { &one } else { &other };
            let (new, old) = (path(directory, round), path(directory, round - 1));
            maker.put(&new, b"y").await.unwrap();
            maker.unlink(&old).await.unwrap();
        }
        for directory in 0..8 {
            let names = one.list(&format!("dir{directory}"), round == 2).await;
            assert_eq!(names.unwrap(), [round.to_string()]);
            assert!(one.at(&path(directory, round)).await.is_ok());
            let gone = one.at(&path(directory, round - 1)).await;
            assert_eq!(gone.err(), Some(Errno::ENOENT));
        }
    }
}

#[tokio::test]
async fn who_goes_through_all_directories_finds_the_next_ones_read() {
    let world = World::new().await;
    let (maker, walker) = (world.cache().await, world.cache().await);
    let names: Vec<String> = (0..6).map(|number| format!("dir{number}")).collect();
    for name in &names {
        maker.mkdir(name).await.unwrap();
        maker.put(&format!("{name}/file"), b"x").await.unwrap();
    }
    let calls = || {
        let servers = walker.client.servers();
        servers.iter().map(|server| server.calls()).sum::<u64>()
    };
    assert_eq!(walker.list("", true).await.unwrap().len(), 6);
    let before = calls();
    for name in &names[..2] {
        walker.list(name, true).await.unwrap();
    }
    // One answer each, and the others are read meanwhile.
    let all = async {
        while calls() < before + 6 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all)
        .await
        .unwrap();
    // So is what others read next, of which nothing is known.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let quiet = calls();
    for name in &names[2..] {
        assert_eq!(walker.list(name, true).await.unwrap(), ["file"]);
    }
    // The last call may not have been answered when that was needed.
    assert!(calls() <= quiet + 1, "{} calls more", calls() - quiet);
    // What is changed after it was read is seen all the same.
    maker.unlink("dir5/file").await.unwrap();
    assert!(walker.list("dir5", true).await.unwrap().is_empty());
}

#[tokio::test]
async fn removed_while_open_a_file_can_be_read_and_written() {
    let world = World::new().await;
    let (one, other) = (world.cache().await, world.cache().await);
    one.put("file", b"data").await.unwrap();
    one.put("new", b"replacement").await.unwrap();
    let handle = one.open("file", crate::world::WRITE).await.unwrap();
    one.unlink("file").await.unwrap();
    assert_eq!(other.at("file").await.err(), Some(Errno::ENOENT));
    one.cache.write(handle, 4, b"more").await.unwrap();
    assert_eq!(one.read_all(handle).await.unwrap(), b"datamore");
    one.close(handle).await.unwrap();
    // The same for one that another is moved over.
    let handle = one.open("new", READ).await.unwrap();
    one.put("other", b"other").await.unwrap();
    one.rename("other", "new").await.unwrap();
    assert_eq!(one.read_all(handle).await.unwrap(), b"replacement");
    assert_eq!(one.get("new").await.unwrap(), b"other");
    one.close(handle).await.unwrap();
    for machine in [&one, &other] {
        assert_eq!(machine.list("", false).await.unwrap(), ["new"]);
    }
}

#[tokio::test]
async fn an_open_file_may_be_moved() {
    let world = World::new().await;
    let machine = world.cache().await;
    machine.mkdir("dir").await.unwrap();
    let handle = machine.create("file").await.unwrap();
    machine.cache.write(handle, 0, b"before ").await.unwrap();
    machine.rename("file", "dir/moved").await.unwrap();
    machine.cache.write(handle, 7, b"after").await.unwrap();
    machine.close(handle).await.unwrap();
    assert_eq!(machine.get("dir/moved").await.unwrap(), b"before after");
}

#[tokio::test]
async fn links_and_symlinks() {
    let world = World::new().await;
    let (one, other) = (world.cache().await, world.cache().await);
    one.put("file", b"data").await.unwrap();
    let file = one.attr("file").await.unwrap().ino;
    let linked = one
        .cache
        .link(WHO, file, Ino::ROOT, b"second")
        .await
        .unwrap();
    assert_eq!((linked.attr.ino, linked.attr.nlink), (file, 2));
    assert_eq!(other.attr("second").await.unwrap().nlink, 2);
    one.unlink("file").await.unwrap();
    assert_eq!(one.attr("second").await.unwrap().nlink, 1);
    assert_eq!(other.get("second").await.unwrap(), b"data");
    one.cache
        .symlink(WHO, Ino::ROOT, b"link", b"second")
        .await
        .unwrap();
    let link = other.attr("link").await.unwrap();
    assert_eq!((link.kind, link.size), (Kind::Symlink, 6));
    let target = other.cache.readlink(WHO, link.ino).await.unwrap();
    assert_eq!(target, "second");
}

#[tokio::test]
async fn mount_points_may_lead_in_a_circle() {
    let world = World::new().await;
    world.volume("user", 20);
    let machine = world.cache().await;
    // Mount points are symlinks that nobody may execute.
    let home = machine.mkdir("home").await.unwrap();
    let name = crate::world::CELL.parse().unwrap();
    let cell = machine.client.cell(&name).await.unwrap();
    let wanted = afar_cell::Wanted::PreferReadWrite;
    for (volume, name, text) in [
        ("root.cell", &b"user"[..], "#user."),
        ("user", b"back", "%root.cell."),
        ("user", b"lost", "#nothing."),
    ] {
        let volume = machine.client.volume(&cell, volume, wanted).await.unwrap();
        let mount = afar_cell::MountPoint::parse(text.as_bytes()).unwrap();
        let root = afar_types::Fid::root(volume.id());
        let made = machine.client.make_mount(&volume, root, name, &mount);
        made.await.unwrap();
    }
    let machine = world.cache().await;
    machine
        .put("user/file", b"in the user's volume")
        .await
        .unwrap();
    let user = machine.attr("user").await.unwrap();
    assert_eq!(user.kind, Kind::Dir);
    assert_eq!(machine.at("user/lost").await.err(), Some(Errno::ENODEV));
    let deep = machine.attr("user/back/user").await.unwrap();
    assert_ne!(deep.ino, user.ino, "no directory is below itself");
    // Programs see that they are where they were.
    assert_eq!(deep.file, user.file);
    let top = machine.cache.getattr(WHO, Ino::ROOT).await.unwrap();
    assert_eq!(machine.attr("user/back").await.unwrap().file, top.file);
    let file = machine.attr("user/back/user/file").await.unwrap();
    assert_eq!(file.file, file.ino);
    let data = machine.get("user/back/user/back/user/file").await.unwrap();
    assert_eq!(data, b"in the user's volume");
    let point = machine
        .cache
        .getxattr(WHO, deep.ino, b"afs.mountpoint")
        .await;
    assert_eq!(point.unwrap(), "#user.");
    let mut path = "user".to_owned();
    let error = loop {
        path.push_str("/back/user");
        if let Err(error) = machine.at(&path).await {
            break error;
        }
    };
    assert_eq!(error, Errno::ELOOP);
    assert!(path.len() < 100, "trees with several loops end: {path}");
    let _ = home;
}

#[tokio::test]
async fn a_backup_volume_is_in_no_backup_volume() {
    let world = World::new().await;
    let home = world.volume("user", 20);
    let machine = world.cache().await;
    let name = crate::world::CELL.parse().unwrap();
    let cell = machine.client.cell(&name).await.unwrap();
    let wanted = afar_cell::Wanted::PreferReadWrite;
    for (volume, name, text) in [
        ("root.cell", &b"user"[..], "#user."),
        ("user", b"OldFiles", "#user.backup."),
    ] {
        let volume = machine.client.volume(&cell, volume, wanted).await.unwrap();
        let mount = afar_cell::MountPoint::parse(text.as_bytes()).unwrap();
        let root = afar_types::Fid::root(volume.id());
        let made = machine.client.make_mount(&volume, root, name, &mount);
        made.await.unwrap();
    }
    machine.put("user/file", b"of yesterday").await.unwrap();
    world.back_up(&home, "user", 22);
    let machine = world.cache().await;
    let old = machine.get("user/OldFiles/file").await.unwrap();
    assert_eq!(old, b"of yesterday");
    let again = machine.at("user/OldFiles/OldFiles").await;
    assert_eq!(again.err(), Some(Errno::ENODEV));
}

#[tokio::test]
async fn the_top_can_be_the_list_of_cells() {
    let world = World::new().await;
    let machine = world.cache_with(|config| config.root = Root::Dynamic).await;
    machine.put("test.example/file", b"data").await.unwrap();
    assert_eq!(machine.get(".test.example/file").await.unwrap(), b"data");
    assert_eq!(machine.list("", true).await.unwrap(), Vec::<String>::new());
    let top = machine.cache.getattr(WHO, Ino::ROOT).await.unwrap();
    assert_eq!(top.kind, Kind::Dir);
    let made = machine.cache.mkdir(WHO, Ino::ROOT, b"new", 0o755).await;
    assert_eq!(made.err(), Some(Errno::EROFS));
}

#[tokio::test]
async fn everything_has_the_same_number_on_every_machine() {
    let world = World::new().await;
    let (maker, other, lister) = (
        world.cache().await,
        world.cache().await,
        world.cache().await,
    );
    maker.mkdir("dir").await.unwrap();
    for name in ["dir/a", "dir/b", "dir/c"] {
        maker.put(name, b"x").await.unwrap();
    }
    // They are looked up in another order.
    let c = other.attr("dir/c").await.unwrap().ino;
    let dir = other.attr("dir").await.unwrap().ino;
    assert_eq!(maker.attr("dir/c").await.unwrap().ino, c);
    assert_eq!(maker.attr("dir").await.unwrap().ino, dir);
    // A listing shows the number that a look-up gives.
    let at = lister.at("dir").await.unwrap().attr.ino;
    let handle = lister.cache.opendir(WHO, at).await.unwrap();
    let listed = lister.cache.readdir(handle, 0, false).await.unwrap();
    lister.cache.releasedir(handle);
    let found = listed.iter().find(|entry| entry.name == b"c").unwrap();
    assert_eq!(found.ino, c);
    // Nothing else has it.
    maker.unlink("dir/c").await.unwrap();
    maker.put("dir/c", b"another").await.unwrap();
    let again = other.attr("dir/c").await.unwrap().ino;
    let b = other.attr("dir/b").await.unwrap().ino;
    assert!(again != c && again != b && b != c);
}
