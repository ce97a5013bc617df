//! A cache beside a file server that lies, fails, and is badly timed.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod server;

use std::sync::atomic::Ordering;

use afar_cache::{Cache, Errno, Handle, Ino, OpenFlags, Who};
use afar_net::AbortCode;
use afar_types::FileType;

use server::{ROOT, fid, start};

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
        server.state.lock().unwrap().store_fails = Some(code);
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
