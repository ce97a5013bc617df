//! Read-only volumes at several sites.

use std::sync::atomic::Ordering;

use afar_cache::{Class, Ino, OpenFlags};
use afar_types::UnixTime;

use crate::WHO;
use crate::server::{ROOT, fid, start};

const LENGTH: usize = 6_000_000;
const READ: OpenFlags = OpenFlags {
    read: true,
    write: false,
    append: false,
    truncate: false,
    exclusive: false,
    direct: false,
    class: Class::BestEffort,
};

#[tokio::test]
async fn a_read_goes_on_when_its_server_ends() {
    let content: Vec<u8> = (0..=250).cycle().take(LENGTH).collect();
    let (server, cache) = start(|state| {
        state.directory(ROOT, &[("file".into(), 2)]);
        state.file(fid(2), content.clone());
        state.read_only = true;
    })
    .await;
    let other = server.elsewhere("127.0.0.2").await;
    let file = cache.lookup(WHO, Ino::ROOT, b"file").await.unwrap();
    let opened = cache.open_file(WHO, file.attr.ino, READ).await;
    let (handle, _) = opened.unwrap();
    let (mut read, mut ended) = (Vec::new(), 0);
    while read.len() < LENGTH {
        let at = read.len() as u64;
        let piece = cache.read(handle, at, 65_536).await.unwrap();
        assert!(!piece.is_empty(), "it ends at {at}");
        read.extend_from_slice(&piece);
        if ended == 0 && read.len() > LENGTH / 6 {
            ended = 1;
            let busy =
                server.fetches.load(Ordering::SeqCst) >= other.fetches.load(Ordering::SeqCst);
            if busy { &server } else { &other }.end().await;
        }
    }
    assert!(read == content);
    let (one, two) = (&server.fetches, &other.fetches);
    assert!(one.load(Ordering::SeqCst) > 0 && two.load(Ordering::SeqCst) > 0);
}

#[tokio::test]
async fn a_release_is_noticed_by_any_answer() {
    let (server, cache) = start(|state| {
        let names = ["file", "other"].iter().zip([2, 4]);
        let names: Vec<_> = names
            .map(|(name, vnode)| ((*name).to_owned(), vnode))
            .collect();
        state.directory(ROOT, &names);
        state.file(fid(2), "released first");
        state.file(fid(4), "");
        state.read_only = true;
        state.made = UnixTime(1000);
    })
    .await;
    let file = cache.lookup(WHO, Ino::ROOT, b"file").await.unwrap();
    let opened = cache.open_file(WHO, file.attr.ino, READ).await;
    let (handle, _) = opened.unwrap();
    assert_eq!(cache.read(handle, 0, 100).await.unwrap(), "released first");
    {
        let mut state = server.state.lock().unwrap();
        state.made = UnixTime(2000);
        state.file(fid(2), "released later");
        state.vnodes.get_mut(&fid(2)).unwrap().0.data_version = 2.into();
    }
    // Its promise holds as far as anybody here knows.
    assert_eq!(cache.read(handle, 0, 100).await.unwrap(), "released first");
    cache.lookup(WHO, Ino::ROOT, b"other").await.unwrap();
    assert_eq!(cache.read(handle, 0, 100).await.unwrap(), "released later");
}
