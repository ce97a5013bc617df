//! What a server will not take is refused when a file is opened: what `close` says, many programs do not look at.

use std::time::{Duration, UNIX_EPOCH};

use afar_cache::{Errno, OpenFlags, SetAttr, Who};
use afar_types::PtsId;

use crate::world::{Machine, READ, REPLACE, WHO, WRITE, World};

const ONLY_WRITE: OpenFlags = OpenFlags {
    read: false,
    ..WRITE
};

/// A file can be opened for reading alone, and is not changed by whatever is tried.
async fn is_refused(machine: &Machine, name: &str, why: &str) {
    let ino = machine.attr(name).await.unwrap().ino;
    for flags in [WRITE, REPLACE, ONLY_WRITE] {
        let opened = machine.open(name, flags).await;
        assert_eq!(opened, Err(Errno::EACCES), "{why}: {flags:?}");
    }
    let sets = [
        SetAttr {
            size: Some(0),
            ..SetAttr::default()
        },
        SetAttr {
            mtime: Some(UNIX_EPOCH + Duration::from_secs(1)),
            ..SetAttr::default()
        },
    ];
    for set in sets {
        let refused = machine.cache.setattr(WHO, ino, set, None).await;
        assert_eq!(refused, Err(Errno::EACCES), "{why}: {set:?}");
    }
    let writes = machine.cache.access(WHO, ino, 2).await;
    assert_eq!(writes, Err(Errno::EACCES), "{why}");
    assert_eq!(machine.get(name).await.unwrap(), b"old", "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_opened_for_writing_only_if_it_can_be_stored() {
    let world = World::new().await;
    let maker = world.cache().await;
    maker.put("theirs", b"old").await.unwrap();
    maker.put("protected", b"old").await.unwrap();
    for name in ["theirs", "protected"] {
        world.give(&maker.fid(name).await, PtsId(7), name == "protected");
    }
    for rights in ["rl", "rlk", "rld", "rli", "rlik", "rlidk", "rlidka"] {
        world.set_rights(rights);
        is_refused(&world.cache().await, "theirs", rights).await;
    }
    world.set_rights("rlidwka");
    let machine = world.cache().await;
    let ino = machine.attr("protected").await.unwrap().ino;
    let opened = machine.cache.open_file(WHO, ino, WRITE).await;
    assert_eq!(opened.unwrap_err(), Errno::EACCES, "its mode");
    machine.put("theirs", b"new").await.unwrap();
    assert_eq!(world.cache().await.get("theirs").await.unwrap(), b"new");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_is_kept_from_what_he_protected_and_root_is_not() {
    // The server would let its owner write to it.
    let world = World::new().await;
    world.set_rights("rlidwka");
    let machine = world.cache().await;
    let handle = machine.create("protected").await.unwrap();
    let ino = machine.attr("protected").await.unwrap().ino;
    let cache = &machine.cache;
    let cut = |size| SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    let mode = |mode| SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    };
    let protect = cache.setattr(WHO, ino, mode(0o444), Some(handle));
    assert_eq!(protect.await.unwrap().mode, 0o444);
    let user = Who { uid: 1000, ..WHO };
    // What is open stays so.
    cache.write(handle, 0, b"text").await.unwrap();
    machine.close(handle).await.unwrap();
    for flags in [WRITE, ONLY_WRITE] {
        let opened = cache.open_file(user, ino, flags).await;
        assert_eq!(opened.unwrap_err(), Errno::EACCES);
    }
    let refused = cache.setattr(user, ino, cut(0), None).await;
    assert_eq!(refused.unwrap_err(), Errno::EACCES);
    assert_eq!(cache.access(user, ino, 2).await, Err(Errno::EACCES));
    let (handle, _) = cache.open_file(user, ino, READ).await.unwrap();
    machine.close(handle).await.unwrap();
    cache.access(WHO, ino, 2).await.unwrap();
    let (handle, _) = cache.open_file(WHO, ino, WRITE).await.unwrap();
    cache.write(handle, 0, b"root").await.unwrap();
    machine.close(handle).await.unwrap();
    assert_eq!(machine.get("protected").await.unwrap(), b"root");
    // Nothing may be read where no bit allows it; what may only be executed may be opened for that.
    for (bits, may) in [(0o000, false), (0o111, true)] {
        cache.setattr(user, ino, mode(bits), None).await.unwrap();
        let opened = cache.open_file(user, ino, READ).await;
        assert_eq!(opened.is_ok(), may, "{bits:o}");
        if let Ok((handle, _)) = opened {
            machine.close(handle).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_may_only_insert_fills_what_he_makes() {
    let world = World::new().await;
    world.set_rights("li");
    let machine = world.cache().await;
    machine.put("dropped", b"text").await.unwrap();
    let again = machine.open("dropped", ONLY_WRITE).await.unwrap();
    machine.cache.write(again, 4, b"s").await.unwrap();
    machine.close(again).await.unwrap();
    world.set_rights("rl");
    let fresh = world.cache().await;
    assert_eq!(fresh.get("dropped").await.unwrap(), b"texts");
    let handle = fresh.open("dropped", READ).await.unwrap();
    fresh.close(handle).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_nobody_tells_of_are_there_upon_the_next_try() {
    // The access list changes in the store, and no promise is broken, as when a user is added to a group.
    let world = World::new().await;
    let maker = world.cache().await;
    maker.put("file", b"text").await.unwrap();
    world.set_rights("rl");
    let machine = world.cache().await;
    let (cache, root) = (&machine.cache, afar_cache::Ino::ROOT);
    let ino = machine.attr("file").await.unwrap().ino;
    cache.access(WHO, root, 1).await.unwrap();
    cache.access(WHO, ino, 4).await.unwrap();
    world.set_rights("rlidwk");
    cache.access(WHO, root, 2).await.unwrap();
    cache.access(WHO, ino, 2).await.unwrap();
    machine.put("file", b"more").await.unwrap();
}
