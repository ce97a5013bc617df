//! A cache beside a file server that lies, fails, and is badly timed.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod server;
mod sites;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use afar_cache::{Cache, Errno, Handle, Ino, Lock, LockKind, OpenFlags, Who};
use afar_net::AbortCode;
use afar_types::FileType;

use server::{Delay, Phase, ROOT, Server, fid, start};

const WHO: Who = Who {
    uid: 0,
    gid: 0,
    pid: 1,
};
const ENOSPC: i32 = 28;

async fn open(cache: &Cache, name: &str) -> Result<Handle, Errno> {
    let entry = cache.lookup(WHO, Ino::ROOT, name.as_bytes()).await?;
    let flags = OpenFlags {
        read: true,
        write: true,
        ..OpenFlags::default()
    };
    let opened = cache.open_file(WHO, entry.attr.ino, flags).await;
    opened.map(|(handle, _)| handle)
}

#[tokio::test]
async fn a_promise_broken_on_its_way_counts_for_nothing() {
    let (server, cache) = start(|state| {
        state.directory(ROOT, &[("file".into(), 2)]);
        state.file(fid(2), "data");
    })
    .await;
    let ino = cache
        .lookup(WHO, Ino::ROOT, b"file")
        .await
        .unwrap()
        .attr
        .ino;
    let asked = || server.statuses.load(Ordering::SeqCst);
    // Whole, it holds.
    cache.getattr(WHO, ino).await.unwrap();
    let before = asked();
    assert!(!cache.getattr(WHO, ino).await.unwrap().valid.is_zero());
    assert_eq!(asked(), before);
    // Broken each time before the answer is here.
    server.state.lock().unwrap().break_first = Some(fid(2));
    let fresh = server::beside(&server).await;
    let found = fresh.lookup(WHO, Ino::ROOT, b"file").await;
    let ino = found.unwrap().attr.ino;
    for _ in 0..3 {
        let before = asked();
        let attr = fresh.getattr(WHO, ino).await.unwrap();
        assert!(attr.valid.is_zero(), "nothing is promised");
        assert_eq!(asked(), before + 1, "it is asked for each time");
    }
    server.state.lock().unwrap().break_first = None;
    fresh.getattr(WHO, ino).await.unwrap();
    let before = asked();
    fresh.getattr(WHO, ino).await.unwrap();
    assert_eq!(asked(), before);
}

#[tokio::test]
async fn a_promise_broken_while_it_is_prefetched_counts_for_nothing() {
    let names: Vec<_> = (0..8).map(|n| (format!("file{n}"), 2 * n + 2)).collect();
    let (server, cache) = start(|state| {
        state.directory(ROOT, &names);
        for (_, vnode) in &names {
            state.file(fid(*vnode), "old");
        }
    })
    .await;
    let look = async |number: usize| {
        let name = names[number].0.as_bytes();
        let entry = cache.lookup(WHO, Ino::ROOT, name).await.unwrap();
        let statuses = server.statuses.load(Ordering::SeqCst);
        (entry.attr.size, statuses)
    };
    let (_, before) = look(0).await;
    // The answer is made, and one of the files changed, before it leaves.
    server.state.lock().unwrap().break_first = Some(fid(names[5].1));
    assert_eq!(
        look(1).await,
        (3, before + 1),
        "the others come by one call"
    );
    {
        let mut state = server.state.lock().unwrap();
        state.break_first = None;
        state.file(fid(names[5].1), "newer");
        let (status, _) = state.vnodes.get_mut(&fid(names[5].1)).unwrap();
        status.data_version = 2.into();
    }
    for number in [2, 3, 4, 6, 7] {
        assert_eq!(look(number).await, (3, before + 1));
    }
    assert_eq!(look(5).await, (5, before + 2), "it is asked for");
    assert_eq!(look(5).await, (5, before + 2), "it is promised now");
}

/// A kernel takes no attributes that it asked for before it was told to drop some. So if it were told once
/// more, a program that has just got a lock would be shown the length from before.
#[tokio::test]
async fn an_answer_that_was_overtaken_is_no_change() {
    let (server, cache) = start(|state| {
        state.directory(ROOT, &[("file".into(), 2)]);
        state.file(fid(2), "old");
    })
    .await;
    let handle = open(&cache, "file").await.unwrap();
    let found = cache.lookup(WHO, Ino::ROOT, b"file").await.unwrap();
    let peer = server.peer.lock().unwrap().unwrap();
    server.tell(peer, Some(vec![fid(2)])).await;
    let delay = Arc::new(Delay::default());
    server.state.lock().unwrap().delayed = Some((fid(2), Arc::clone(&delay)));
    let asking = {
        let cache = cache.clone();
        tokio::spawn(async move { cache.getattr(WHO, found.attr.ino).await })
    };
    delay.made.notified().await;
    {
        let mut state = server.state.lock().unwrap();
        state.file(fid(2), "and newer");
        state.vnodes.get_mut(&fid(2)).unwrap().0.data_version = 2.into();
    }
    server.tell(peer, Some(vec![fid(2)])).await;
    let lock = Lock {
        kind: LockKind::Write,
        start: 0,
        end: u64::MAX,
        pid: 1,
    };
    cache.setlk(handle, 1, lock, false).await.unwrap();
    let mut told = cache.invalidations();
    delay.ended.notify_one();
    let attr = asking.await.unwrap().unwrap();
    assert_eq!(attr.size, 9, "what is known by now is the answer");
    assert!(told.try_recv().is_err(), "the kernel was told before");
}

/// The same if what overtook it was broken on its way, so that it is not promised.
#[tokio::test]
async fn an_answer_that_was_overtaken_by_one_without_a_promise_is_no_change() {
    let (server, cache) = start(|state| {
        state.directory(ROOT, &[("file".into(), 2)]);
        state.file(fid(2), "old");
    })
    .await;
    let handle = open(&cache, "file").await.unwrap();
    let found = cache.lookup(WHO, Ino::ROOT, b"file").await.unwrap();
    let peer = server.peer.lock().unwrap().unwrap();
    server.tell(peer, Some(vec![fid(2)])).await;
    let delay = Arc::new(Delay::default());
    server.state.lock().unwrap().delayed = Some((fid(2), Arc::clone(&delay)));
    let asking = {
        let cache = cache.clone();
        tokio::spawn(async move { cache.getattr(WHO, found.attr.ino).await })
    };
    delay.made.notified().await;
    {
        let mut state = server.state.lock().unwrap();
        state.file(fid(2), "and newer");
        state.vnodes.get_mut(&fid(2)).unwrap().0.data_version = 2.into();
        state.break_first = Some(fid(2));
    }
    let lock = Lock {
        kind: LockKind::Write,
        start: 0,
        end: u64::MAX,
        pid: 1,
    };
    cache.setlk(handle, 1, lock, false).await.unwrap();
    server.state.lock().unwrap().break_first = None;
    let mut told = cache.invalidations();
    delay.ended.notify_one();
    asking.await.unwrap().unwrap();
    assert!(told.try_recv().is_err(), "the kernel was told before");
}

#[tokio::test]
async fn ten_thousand_entries_come_with_few_calls() {
    let names: Vec<_> = (0..10_000)
        .map(|n| (format!("file{n}"), 2 * n + 2))
        .collect();
    let (server, cache) = start(|state| {
        state.directory(ROOT, &names);
        for (_, vnode) in &names {
            state.file(fid(*vnode), "");
        }
    })
    .await;
    let handle = cache.opendir(WHO, Ino::ROOT).await.unwrap();
    let (mut offset, mut count) = (0, 0);
    loop {
        let entries = cache.readdir(handle, offset, true).await.unwrap();
        let Some(last) = entries.last() else {
            break;
        };
        offset = last.offset;
        for entry in entries.iter().filter(|entry| !entry.name.starts_with(b".")) {
            assert!(entry.entry.is_some(), "{entry:?}");
            count += 1;
        }
    }
    assert_eq!(count, 10_000);
    let asked = server.statuses.load(Ordering::SeqCst);
    assert!(asked < 400, "{asked} calls");
}

#[tokio::test]
async fn lies_are_errors_and_never_data() {
    let (server, cache) = start(|state| {
        let names = ["short", "liar", "type", "pages"].iter().zip([2, 4, 6, 7]);
        let names: Vec<_> = names
            .map(|(name, vnode)| ((*name).to_owned(), vnode))
            .collect();
        state.directory(ROOT, &names);
        state.file(fid(2), vec![7; 100_000]);
        state.file(fid(4), vec![7; 1000]);
        state.vnodes.get_mut(&fid(4)).unwrap().0.length = 1 << 40;
        state.add(fid(6), FileType::Directory, vec![0; 2048]);
        state.add(fid(7), FileType::Directory, vec![0xff; 2048]);
    })
    .await;
    server.state.lock().unwrap().short = 10;
    let handle = open(&cache, "short").await.unwrap();
    assert_eq!(cache.read(handle, 0, 100_000).await, Err(Errno::EIO));
    server.state.lock().unwrap().short = 0;
    assert_eq!(cache.read(handle, 0, 100_000).await.unwrap().len(), 100_000);
    let handle = open(&cache, "liar").await.unwrap();
    assert_eq!(cache.read(handle, 1 << 30, 4096).await, Err(Errno::EIO));
    // An even number is no directory's.
    let found = cache.lookup(WHO, Ino::ROOT, b"type").await;
    assert_eq!(found.err(), Some(Errno::EIO));
    let pages = cache.lookup(WHO, Ino::ROOT, b"pages").await.unwrap();
    let found = cache.lookup(WHO, pages.attr.ino, b"name").await;
    assert_eq!(found.err(), Some(Errno::EIO));
    let opened = cache.opendir(WHO, pages.attr.ino).await;
    assert_eq!(opened.err(), Some(Errno::EIO));
}

/// A server with the file "file", and an open handle of it.
async fn with_file(data: &'static str) -> (Server, Cache, Handle) {
    let (server, cache) = start(|state| {
        state.directory(ROOT, &[("file".into(), 2)]);
        state.file(fid(2), data);
    })
    .await;
    let handle = open(&cache, "file").await.unwrap();
    (server, cache, handle)
}

#[tokio::test]
async fn what_cannot_be_stored_is_told_and_kept_whenever_the_server_fails() {
    let (server, cache, handle) = with_file("old data").await;
    let length = 300_000;
    let mut expected = vec![7_u8; length];
    cache.write(handle, 0, &expected).await.unwrap();
    for phase in [Phase::Begin, Phase::Middle, Phase::End, Phase::Answer] {
        // A call is dead, makes no sense to the server, or its disk fails.
        for code in [-1, -451, 5] {
            let place = expected.len() as u64;
            expected.extend_from_slice(b"more");
            cache.write(handle, place, b"more").await.unwrap();
            server.state.lock().unwrap().store_fails = Some((phase, AbortCode(code)));
            let told = cache.flush(handle, 1).await;
            let expected = [Err(Errno::EIO), Err(Errno::ETIMEDOUT)];
            assert!(expected.contains(&told), "{phase:?} {code}: {told:?}");
            let end = cache.read(handle, place, 100).await.unwrap();
            assert_eq!(end, "more", "{phase:?} {code}");
        }
    }
    server.state.lock().unwrap().store_fails = None;
    assert_eq!(cache.fsync(handle).await, Ok(()));
    assert_eq!(cache.flush(handle, 1).await, Ok(()));
    assert!(server.state.lock().unwrap().vnodes[&fid(2)].1 == expected);
}

#[tokio::test]
async fn what_is_refused_for_good_is_dropped_when_it_is_closed() {
    let (server, cache, handle) = with_file("old data").await;
    // The quota is used up; the disk is full.
    for (code, errno) in [(109, Errno::EDQUOT), (108, Errno::ENOSPC)] {
        let handle = open(&cache, "file").await.unwrap();
        cache.write(handle, 0, b"NEW").await.unwrap();
        server.state.lock().unwrap().store_fails = Some((Phase::End, AbortCode(code)));
        for _ in 0..2 {
            assert_eq!(cache.flush(handle, 1).await, Err(errno));
        }
        let read = cache.read(handle, 0, 100).await.unwrap();
        assert_eq!(
            read, "NEW data",
            "as long as it is open it may be tried again"
        );
        cache.release(handle, None).await;
        server.state.lock().unwrap().store_fails = None;
    }
    cache.release(handle, None).await;
    let handle = open(&cache, "file").await.unwrap();
    assert_eq!(cache.read(handle, 0, 100).await.unwrap(), "old data");
    assert_eq!(cache.fsync(handle).await, Ok(()), "that is over");
    assert!(server.state.lock().unwrap().stored.is_empty());
}

/// What is in `lost+found` of the only cache.
fn lost(server: &Server) -> Vec<Vec<u8>> {
    let state = server.state.lock().unwrap();
    let place = state.directories[0].path().join("lost+found");
    let Ok(entries) = std::fs::read_dir(place) else {
        return Vec::new();
    };
    let mut all: Vec<_> = entries
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    all.sort_unstable();
    all
}

#[tokio::test]
async fn what_is_refused_for_good_is_put_aside_if_nobody_is_told() {
    let (server, cache, handle) = with_file("old data").await;
    server.state.lock().unwrap().store_fails = Some((Phase::End, AbortCode(109)));
    cache.write(handle, 0, b"TOLD").await.unwrap();
    assert_eq!(cache.flush(handle, 1).await, Err(Errno::EDQUOT));
    cache.release(handle, None).await;
    assert!(lost(&server).is_empty());
    // A mapping is written to after the last close; and a process ends.
    let handle = open(&cache, "file").await.unwrap();
    assert_eq!(cache.flush(handle, 1).await, Ok(()));
    cache.write(handle, 4, b"MAPS").await.unwrap();
    cache.release(handle, None).await;
    assert_eq!(lost(&server), [b"\0\0\0\0MAPS"]);
    let handle = open(&cache, "file").await.unwrap();
    cache.write(handle, 0, b"ENDS").await.unwrap();
    assert_eq!(cache.flush(handle, 1).await, Err(Errno::EDQUOT));
    cache.nobody_heard(handle, Errno::EDQUOT);
    cache.release(handle, None).await;
    assert_eq!(lost(&server), [b"\0\0\0\0MAPS", b"ENDS\0\0\0\0"]);
    // What somebody was told of is no conflict.
    let conflicts = cache.conflicts().unwrap();
    assert_eq!(conflicts.len(), 2, "{conflicts:?}");
    assert!(conflicts.iter().all(|conflict| conflict.kept.is_some()));
    // Neither is seen any more.
    let handle = open(&cache, "file").await.unwrap();
    assert_eq!(cache.read(handle, 0, 100).await.unwrap(), "old data");
    assert_eq!(cache.flush(handle, 1).await, Ok(()));
}

#[tokio::test]
async fn what_could_not_be_stored_does_not_replace_what_is_newer() {
    let (server, cache, handle) = with_file("old data").await;
    cache.write(handle, 0, b"MINE").await.unwrap();
    server.state.lock().unwrap().store_fails = Some((Phase::Begin, AbortCode(-1)));
    assert_eq!(cache.flush(handle, 1).await, Err(Errno::ETIMEDOUT));
    cache.release(handle, None).await;
    let handle = open(&cache, "file").await.unwrap();
    let read = cache.read(handle, 0, 100).await.unwrap();
    assert_eq!(read, "MINEdata", "it is tried again");
    cache.release(handle, None).await;
    {
        let mut state = server.state.lock().unwrap();
        state.store_fails = None;
        state.file(fid(2), "theirs");
        state.vnodes.get_mut(&fid(2)).unwrap().0.data_version = 2.into();
    }
    let peer = server.peer.lock().unwrap().unwrap();
    server.tell(peer, Some(vec![fid(2)])).await;
    let handle = open(&cache, "file").await.unwrap();
    assert_eq!(cache.read(handle, 0, 100).await.unwrap(), "theirs");
    assert_eq!(
        cache.fsync(handle).await,
        Err(Errno::ETIMEDOUT),
        "who closed it was told"
    );
    assert_eq!(cache.fsync(handle).await, Ok(()));
    assert!(server.state.lock().unwrap().stored.is_empty());
}

#[tokio::test]
async fn without_a_server_what_is_cached_may_be_read_if_that_is_wanted() {
    let (server, cache) = start(|state| {
        state.directory(
            ROOT,
            &[("file".into(), 2), ("other".into(), 4), ("told".into(), 6)],
        );
        state.file(fid(2), "cached");
        state.file(fid(4), "not cached");
        state.file(fid(6), "changed");
        state.promises_for = Some(2);
    })
    .await;
    let offline = server::beside_with(&server, |config| config.disconnected = true).await;
    let read = async |cache: &Cache, name: &str| {
        let handle = open(cache, name).await?;
        cache.read(handle, 0, 100).await
    };
    for cache in [&cache, &offline] {
        for name in ["file", "told"] {
            read(cache, name).await.unwrap();
        }
        cache.lookup(WHO, Ino::ROOT, b"other").await.unwrap();
        let peer = server.peer.lock().unwrap().unwrap();
        server.tell(peer, Some(vec![fid(6)])).await;
    }
    server.end().await;
    // Their promises end.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(read(&cache, "file").await, Err(Errno::ETIMEDOUT));
    assert_eq!(read(&offline, "file").await.unwrap(), "cached");
    assert_eq!(read(&offline, "other").await, Err(Errno::ETIMEDOUT));
    assert_eq!(
        read(&offline, "told").await,
        Err(Errno::ETIMEDOUT),
        "it is known to be old"
    );
    let none = offline.lookup(WHO, Ino::ROOT, b"none").await;
    assert_eq!(none.err(), Some(Errno::ENOENT));
}

#[tokio::test]
async fn a_volume_that_is_always_elsewhere_is_an_error_soon() {
    let (server, cache, handle) = with_file("data").await;
    let ino = cache
        .lookup(WHO, Ino::ROOT, b"file")
        .await
        .unwrap()
        .attr
        .ino;
    // It has moved, is not there, is off line, or cannot be used: for ever, wherever one looks.
    for code in [111, 103, 106, 101] {
        server.state.lock().unwrap().refuses = Some(AbortCode(code));
        let peer = server.peer.lock().unwrap().unwrap();
        server.tell(peer, None).await;
        let before = server.statuses.load(Ordering::SeqCst);
        let failed = cache.getattr(WHO, ino).await.unwrap_err();
        assert!(failed != Errno::ENOENT, "it is not gone: {code}");
        assert!(cache.read(handle, 0, 10).await.is_err());
        let asked = server.statuses.load(Ordering::SeqCst) - before;
        assert!(asked <= 8, "{code}: asked {asked} times");
        server.state.lock().unwrap().refuses = None;
        assert_eq!(cache.read(handle, 0, 10).await.unwrap(), "data", "{code}");
    }
}

#[tokio::test]
async fn a_version_that_goes_back_is_read_anew() {
    let (server, cache, handle) = with_file("new data").await;
    server
        .state
        .lock()
        .unwrap()
        .vnodes
        .get_mut(&fid(2))
        .unwrap()
        .0
        .data_version = 9.into();
    let peer = server.peer.lock().unwrap().unwrap();
    server.tell(peer, Some(vec![fid(2)])).await;
    assert_eq!(cache.read(handle, 0, 100).await.unwrap(), "new data");
    // As a volume does that is restored from a backup.
    server.state.lock().unwrap().file(fid(2), "old");
    server.tell(peer, Some(vec![fid(2)])).await;
    assert_eq!(cache.read(handle, 0, 100).await.unwrap(), "old");
    assert_eq!(cache.read(handle, 0, 100).await.unwrap(), "old");
}

#[tokio::test]
async fn breaks_of_what_nobody_knows_do_no_harm() {
    let (server, cache, handle) = with_file("data").await;
    let ino = cache
        .lookup(WHO, Ino::ROOT, b"file")
        .await
        .unwrap()
        .attr
        .ino;
    cache.getattr(WHO, ino).await.unwrap();
    let peer = server.peer.lock().unwrap().unwrap();
    let before = server.statuses.load(Ordering::SeqCst);
    for volume in [0, 11, u32::MAX] {
        let foreign = (0..50).map(|vnode| afar_types::Fid::new(volume, vnode, vnode));
        server.tell(peer, Some(foreign.collect())).await;
    }
    assert!(!cache.getattr(WHO, ino).await.unwrap().valid.is_zero());
    assert_eq!(server.statuses.load(Ordering::SeqCst), before);
    // Told to forget everything while it reads, it asks again, and goes on.
    for _ in 0..5 {
        let (told, read) = tokio::join!(server.tell(peer, None), cache.read(handle, 0, 10));
        let () = told;
        assert_eq!(read.unwrap(), "data");
    }
    cache.getattr(WHO, ino).await.unwrap();
    assert!(server.statuses.load(Ordering::SeqCst) > before);
}

#[tokio::test]
async fn what_cannot_be_stored_is_told_and_kept() {
    let (server, cache) = start(|state| {
        state.directory(ROOT, &[("file".into(), 2)]);
        state.file(fid(2), "old data");
    })
    .await;
    let handle = open(&cache, "file").await.unwrap();
    cache.write(handle, 0, b"NEW").await.unwrap();
    // Once the server refuses, once it dies with the data in its hands.
    for (code, errno) in [
        (AbortCode(108), Errno(ENOSPC)),
        (AbortCode(-1), Errno::ETIMEDOUT),
    ] {
        server.state.lock().unwrap().store_fails = Some((Phase::End, code));
        assert_eq!(cache.flush(handle, 1).await, Err(errno), "{code}");
        assert_eq!(cache.read(handle, 0, 100).await.unwrap(), "NEW data");
    }
    server.state.lock().unwrap().store_fails = None;
    cache.write(handle, 8, b"!").await.unwrap();
    assert_eq!(cache.fsync(handle).await, Ok(()));
    assert_eq!(
        cache.flush(handle, 1).await,
        Ok(()),
        "an error is told once"
    );
    let state = server.state.lock().unwrap();
    assert_eq!(state.vnodes[&fid(2)].1, "NEW data!");
    assert!(!state.stored.is_empty());
}
