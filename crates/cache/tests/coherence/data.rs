//! Data written here and seen there.

use std::time::Duration;

use afar_cache::{Class, Errno, Lock, LockKind, OpenFlags, SetAttr};

use crate::world::{Machine, READ, REPLACE, WHO, WRITE, World};

fn pattern(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

async fn resize(machine: &Machine, path: &str, size: u64) -> u64 {
    let ino = machine.attr(path).await.unwrap().ino;
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    let attr = machine.cache.setattr(WHO, ino, set, None).await.unwrap();
    attr.size
}

#[tokio::test]
async fn what_one_closes_the_other_reads() {
    let world = World::new().await;
    let (one, other) = (world.cache().await, world.cache().await);
    for length in [0, 1, 5000, 3_000_000] {
        let data = pattern(length);
        one.put("file", &data).await.unwrap();
        assert!(other.get("file").await.unwrap() == data, "{length}");
        assert_eq!(other.attr("file").await.unwrap().size, length as u64);
        // And back, over data that the first has cached.
        let changed: Vec<u8> = data.iter().rev().copied().collect();
        other.put("file", &changed).await.unwrap();
        assert!(one.get("file").await.unwrap() == changed, "{length}");
    }
}

#[tokio::test]
async fn little_may_be_stored_after_it_is_closed() {
    let world = World::new().await;
    let one = world.cache_with(|config| config.store_behind = 4096).await;
    let other = world.cache().await;
    for (name, length, before) in [("small", 4096, 0), ("large", 4097, 4097)] {
        let data = pattern(length);
        let handle = one.create(name).await.unwrap();
        one.cache.write(handle, 0, &data).await.unwrap();
        one.cache.flush(handle, 1).await.unwrap();
        assert_eq!(other.get(name).await.unwrap().len(), before);
        // It does not wait for others here who have it open.
        let reader = one.open(name, READ).await.unwrap();
        one.cache.release(handle, None).await;
        assert!(other.get(name).await.unwrap() == data);
        one.close(reader).await.unwrap();
    }
    let handle = one.create("synced").await.unwrap();
    one.cache.write(handle, 0, b"data").await.unwrap();
    one.cache.fsync(handle).await.unwrap();
    assert_eq!(other.get("synced").await.unwrap(), b"data");
    one.close(handle).await.unwrap();
}

#[tokio::test]
async fn of_two_who_replace_an_empty_file_the_last_wins() {
    let world = World::new().await;
    let (one, other) = (world.cache().await, world.cache().await);
    one.put("file", b"").await.unwrap();
    let handle = one.open("file", REPLACE).await.unwrap();
    other.put("file", b"something longer").await.unwrap();
    one.cache.write(handle, 0, b"short").await.unwrap();
    one.cache.flush(handle, 1).await.unwrap();
    one.cache.release(handle, None).await;
    for machine in [&one, &other] {
        assert_eq!(machine.get("file").await.unwrap(), b"short");
    }
    // A program that opens it so and writes nothing hides nothing.
    one.put("file", b"").await.unwrap();
    let handle = one.open("file", REPLACE).await.unwrap();
    other.put("file", b"seen").await.unwrap();
    assert_eq!(one.get("file").await.unwrap(), b"seen");
    one.cache.flush(handle, 1).await.unwrap();
    one.cache.release(handle, None).await;
    assert_eq!(other.get("file").await.unwrap(), b"seen");
}

#[tokio::test]
async fn a_break_is_seen_through_an_open_handle() {
    let world = World::new().await;
    let (one, other) = (world.cache().await, world.cache().await);
    one.put("file", b"first").await.unwrap();
    let mut told = other.cache.invalidations();
    let handle = other.open("file", READ).await.unwrap();
    assert_eq!(other.cache.read(handle, 0, 100).await.unwrap(), "first");
    while told.try_recv().is_ok() {}
    one.put("file", b"second").await.unwrap();
    assert_eq!(other.cache.read(handle, 0, 100).await.unwrap(), "second");
    let ino = other.attr("file").await.unwrap().ino;
    let said = std::iter::from_fn(|| told.try_recv().ok());
    let about_it = said.filter(|what| match what {
        afar_cache::Invalidation::Inode { ino: which, data } => *which == ino && *data,
        _ => false,
    });
    assert!(about_it.count() > 0, "the kernel is told");
}

#[tokio::test]
async fn while_promised_no_server_is_asked() {
    let world = World::new().await;
    let machine = world.cache().await;
    machine.put("file", &pattern(100_000)).await.unwrap();
    machine.get("file").await.unwrap();
    machine.get("file").await.unwrap();
    let calls = || {
        let servers = machine.client.servers();
        servers.iter().map(|server| server.calls()).sum::<u64>()
    };
    let before = calls();
    for _ in 0..20 {
        machine.get("file").await.unwrap();
        machine.attr("file").await.unwrap();
        assert_eq!(machine.at("none").await.err(), Some(Errno::ENOENT));
    }
    assert_eq!(calls(), before);
}

#[tokio::test]
async fn parts_are_written_over_what_is_there() {
    let world = World::new().await;
    let (one, other) = (world.cache().await, world.cache().await);
    let mut expected = pattern(700_000);
    one.put("file", &expected).await.unwrap();
    // Neither knows the file when it begins to write.
    let fresh = world.cache().await;
    let handle = fresh.open("file", WRITE).await.unwrap();
    for (place, text) in [
        (10, &b"ten"[..]),
        (300_000, b"three"),
        (699_999, b"over the end"),
    ] {
        fresh.cache.write(handle, place as u64, text).await.unwrap();
        let end = expected.len().max(place + text.len());
        expected.resize(end, 0);
        expected[place..place + text.len()].copy_from_slice(text);
        assert!(fresh.read_all(handle).await.unwrap() == expected);
    }
    fresh.close(handle).await.unwrap();
    for machine in [&one, &other, &fresh] {
        assert!(machine.get("file").await.unwrap() == expected);
    }
}

#[tokio::test]
async fn files_are_cut_and_made_longer() {
    let world = World::new().await;
    let (one, other) = (world.cache().await, world.cache().await);
    one.put("file", &pattern(200_000)).await.unwrap();
    assert_eq!(resize(&one, "file", 100).await, 100);
    assert_eq!(other.get("file").await.unwrap(), pattern(100));
    assert_eq!(resize(&one, "file", 1000).await, 1000);
    let mut expected = pattern(100);
    expected.resize(1000, 0);
    assert_eq!(other.get("file").await.unwrap(), expected);
    // Cut and made longer before it is stored: what was cut off does not come back.
    let handle = one.open("file", WRITE).await.unwrap();
    resize(&one, "file", 50).await;
    resize(&one, "file", 300).await;
    one.cache.write(handle, 400, b"end").await.unwrap();
    let mut expected = pattern(50);
    expected.resize(400, 0);
    expected.extend_from_slice(b"end");
    assert_eq!(one.read_all(handle).await.unwrap(), expected);
    one.close(handle).await.unwrap();
    assert_eq!(other.get("file").await.unwrap(), expected);
    assert_eq!(one.get("file").await.unwrap(), expected);
    // Sparse: nothing but the end is written.
    let handle = one.create("sparse").await.unwrap();
    one.cache.write(handle, 5_000_000, b"!").await.unwrap();
    one.close(handle).await.unwrap();
    let data = other.get("sparse").await.unwrap();
    assert!(data.len() == 5_000_001 && data.iter().filter(|octet| **octet != 0).count() == 1);
}

#[tokio::test]
async fn appends_go_to_the_end() {
    let world = World::new().await;
    let (one, other) = (world.cache().await, world.cache().await);
    one.put("log", b"a\n").await.unwrap();
    let append = OpenFlags {
        append: true,
        ..WRITE
    };
    for (machine, text) in [(&one, b"b\n"), (&other, b"c\n"), (&one, b"d\n")] {
        let handle = machine.open("log", append).await.unwrap();
        machine.cache.append(handle, text).await.unwrap();
        machine.close(handle).await.unwrap();
    }
    assert_eq!(other.get("log").await.unwrap(), b"a\nb\nc\nd\n");
}

#[tokio::test]
async fn a_small_cache_serves_large_files() {
    let world = World::new().await;
    let (one, other) = (
        world.cache().await,
        world.cache_with(|config| config.bytes = 200_000).await,
    );
    let data = pattern(4_000_000);
    one.put("file", &data).await.unwrap();
    assert!(other.get("file").await.unwrap() == data);
}

#[tokio::test]
async fn idle_readers_get_all_and_nobody_waits_for_them() {
    let world = World::new().await;
    let (one, other) = (world.cache().await, world.cache().await);
    let data = pattern(4_000_000);
    one.put("file", &data).await.unwrap();
    let idle = OpenFlags {
        class: Class::Idle,
        ..READ
    };
    let waits = other.open("file", idle).await.unwrap();
    let does_not = other.open("file", READ).await.unwrap();
    let (read, also) = tokio::join!(other.read_all(waits), other.read_all(does_not));
    assert!(read.unwrap() == data && also.unwrap() == data);
    other.close(waits).await.unwrap();
    other.close(does_not).await.unwrap();
}

#[tokio::test]
async fn much_is_stored_before_it_is_closed() {
    let world = World::new().await;
    let one = world.cache_with(|config| config.dirty = 300_000).await;
    let other = world.cache().await;
    let data = pattern(1_000_000);
    let handle = one.create("file").await.unwrap();
    for (number, piece) in data.chunks(100_000).enumerate() {
        let place = number as u64 * 100_000;
        one.cache.write(handle, place, piece).await.unwrap();
    }
    assert!(other.attr("file").await.unwrap().size >= 400_000);
    one.close(handle).await.unwrap();
    assert!(other.get("file").await.unwrap() == data);
}

#[tokio::test]
async fn what_is_written_is_stored_while_more_is() {
    let world = World::new().await;
    // From 64 KiB on it is stored meanwhile, in parts of as much or more.
    let one = world.cache_with(|config| config.dirty = 1 << 20).await;
    let other = world.cache().await;
    let data = pattern(6_000_000);
    one.put("file", &data[..1000]).await.unwrap();
    let handle = one.open("file", REPLACE).await.unwrap();
    let (head, tail) = data.split_at(5_000_000);
    for (number, piece) in head.chunks(100_000).enumerate() {
        let place = number as u64 * 100_000;
        one.cache.write(handle, place, piece).await.unwrap();
        // What comes back is what was written, whether it is stored or not.
        let back = place.saturating_sub(150_000);
        let read = one.cache.read(handle, back, 200_000).await.unwrap();
        let end = (place + 100_000).min(back + 200_000);
        assert!(*read == data[usize::try_from(back).unwrap()..usize::try_from(end).unwrap()]);
    }
    // Out of order, and over what is on its way.
    one.cache
        .write(handle, 5_500_000, &tail[500_000..])
        .await
        .unwrap();
    one.cache
        .write(handle, 5_000_000, &tail[..500_000])
        .await
        .unwrap();
    one.cache.write(handle, 4_900_000, b"over").await.unwrap();
    assert!(other.attr("file").await.unwrap().size >= 4_000_000);
    one.close(handle).await.unwrap();
    let mut expected = data;
    expected[4_900_000..4_900_004].copy_from_slice(b"over");
    assert!(other.get("file").await.unwrap() == expected);
    assert!(one.get("file").await.unwrap() == expected);
}

#[tokio::test]
async fn a_mode_set_before_closing_comes_with_the_data() {
    let world = World::new().await;
    let (one, other) = (world.cache().await, world.cache().await);
    let handle = one.create("file").await.unwrap();
    one.cache.write(handle, 0, b"data").await.unwrap();
    let ino = one.attr("file").await.unwrap().ino;
    let mode = |mode| SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    };
    let set = one.cache.setattr(WHO, ino, mode(0o444), Some(handle));
    assert_eq!(set.await.unwrap().mode, 0o444);
    assert_eq!(one.attr("file").await.unwrap().mode, 0o444);
    one.close(handle).await.unwrap();
    assert_eq!(other.attr("file").await.unwrap().mode, 0o444);
    assert_eq!(one.attr("file").await.unwrap().mode, 0o444);
    assert_eq!(other.get("file").await.unwrap(), b"data");
    // Without data there is no call that it could come with.
    let set = one.cache.setattr(WHO, ino, mode(0o640), None);
    assert_eq!(set.await.unwrap().mode, 0o640);
    assert_eq!(other.attr("file").await.unwrap().mode, 0o640);
}

#[tokio::test]
async fn who_gets_a_lock_reads_nothing_from_before_it() {
    let world = World::new().await;
    let (one, other) = (world.cache().await, world.cache().await);
    one.put("file", b"first").await.unwrap();
    let handle = other.open("file", WRITE).await.unwrap();
    assert_eq!(other.get("file").await.unwrap(), b"first");
    // A kernel that takes its time to drop what it has.
    let (mut said, acknowledger) = other.cache.acknowledged_invalidations();
    one.put("file", b"second").await.unwrap();
    let lock = Lock {
        kind: LockKind::Write,
        start: 5,
        end: 5,
        pid: 1,
    };
    let cache = other.cache.clone();
    let locked = tokio::spawn(async move { cache.setlk(handle, 1, lock, true).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!locked.is_finished());
    let told = std::iter::from_fn(|| said.try_recv().ok());
    let marks = told.filter_map(|what| match what {
        afar_cache::Invalidation::Mark(mark) => Some(mark),
        _ => None,
    });
    acknowledger.acknowledge(marks.max().unwrap());
    locked.await.unwrap().unwrap();
    other.close(handle).await.unwrap();
}

#[tokio::test]
async fn who_reads_to_write_keeps_others_from_doing_so_too() {
    let world = World::new().await;
    let (one, other) = (world.cache().await, world.cache().await);
    one.put("file", b"data").await.unwrap();
    let (mine, theirs) = (
        one.open("file", WRITE).await.unwrap(),
        other.open("file", WRITE).await.unwrap(),
    );
    let (start, end, pid) = (5, 9, 1);
    let lock = |kind| Lock {
        kind,
        start,
        end,
        pid,
    };
    let [read, write, none] = [LockKind::Read, LockKind::Write, LockKind::Unlock].map(lock);
    for kind in [read, write, none] {
        one.cache.setlk(mine, 1, kind, false).await.unwrap();
    }
    one.cache.setlk(mine, 1, read, false).await.unwrap();
    let refused = other.cache.setlk(theirs, 1, read, false).await;
    assert_eq!(refused, Err(Errno::EAGAIN));
    one.cache.setlk(mine, 1, write, false).await.unwrap();
    one.cache.setlk(mine, 1, none, false).await.unwrap();
    // It reads with those who only read.
    other.cache.setlk(theirs, 1, read, false).await.unwrap();
    one.cache.setlk(mine, 1, read, false).await.unwrap();
    let refused = one.cache.setlk(mine, 1, write, false).await;
    assert_eq!(refused, Err(Errno::EAGAIN));
    other.cache.setlk(theirs, 1, none, false).await.unwrap();
    one.cache.setlk(mine, 1, write, false).await.unwrap();
    one.close(mine).await.unwrap();
    other.close(theirs).await.unwrap();
}

#[tokio::test]
async fn locks_are_between_owners_and_between_machines() {
    let world = World::new().await;
    let (one, other) = (world.cache().await, world.cache().await);
    one.put("file", b"data").await.unwrap();
    let lock = |kind| Lock {
        kind,
        start: 0,
        end: u64::MAX,
        pid: 1,
    };
    let (mine, theirs) = (
        one.open("file", WRITE).await.unwrap(),
        other.open("file", WRITE).await.unwrap(),
    );
    let write = lock(LockKind::Write);
    one.cache.setlk(mine, 1, write, false).await.unwrap();
    let refused = one.cache.setlk(mine, 2, write, false).await;
    assert_eq!(refused, Err(Errno::EAGAIN));
    let refused = other.cache.setlk(theirs, 1, write, false).await;
    assert_eq!(refused, Err(Errno::EAGAIN));
    one.cache.write(mine, 0, b"DATA").await.unwrap();
    let unlock = lock(LockKind::Unlock);
    one.cache.setlk(mine, 1, unlock, false).await.unwrap();
    other.cache.setlk(theirs, 1, write, true).await.unwrap();
    assert_eq!(other.read_all(theirs).await.unwrap(), b"DATA");
    // Closing gives it up.
    other.close(theirs).await.unwrap();
    one.cache
        .setlk(mine, 1, lock(LockKind::Read), false)
        .await
        .unwrap();
}
