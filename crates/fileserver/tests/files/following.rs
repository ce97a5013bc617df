//! What hosts read next, in one answer.

use afar_rpc::rxafs;
use afar_types::{Fid, PtsId, Reads, TreeItem};

use super::cell::*;
use super::tree::{all_of, items, shown};

const ALL: (u32, u32, u32) = (u32::MAX, u32::MAX, u32::MAX);

async fn following(
    files: &rxafs::Client,
    (before, now): (Fid, Fid),
    (entries, bytes, largest): (u32, u32, u32),
) -> Vec<TreeItem> {
    let nothing = Reads::default();
    let asked = files.fetch_following(before, now, nothing, entries, bytes, largest);
    items(&all_of(asked.await.unwrap()).await.unwrap())
}

/// Files `0` to `5` of the root and `6` in `sub`, of these lengths; the directory is the last of the fids.
pub(super) async fn sample(cell: &Cell) -> Vec<Fid> {
    let client = cell.client();
    let sub = client.make_dir(cell.root(), "sub").await;
    let mut fids = Vec::new();
    for (number, length) in [10_usize, 20, 30, 0, 70_000, 50, 60]
        .into_iter()
        .enumerate()
    {
        let directory = if number == 6 { sub } else { cell.root() };
        let fid = client.create(directory, &number.to_string()).await;
        let data = vec![7; length];
        client.store(fid, 0, &data, length as u64).await.unwrap();
        fids.push(fid);
    }
    fids.push(sub);
    fids
}

/// A host has read these, and tells so.
async fn read(client: &Client, fids: &[Fid], order: &[usize]) {
    let read: Vec<Fid> = order.iter().map(|number| fids[*number]).collect();
    let &[.., before, now] = &read[..] else {
        panic!("one alone says nothing");
    };
    let read = Reads::new(read).unwrap();
    let asked = client.files.fetch_following(before, now, read, 0, 0, 0);
    let answer = all_of(asked.await.unwrap()).await.unwrap();
    assert!(items(&answer).is_empty());
}

#[tokio::test]
async fn what_one_host_read_another_is_told() {
    let cell = Cell::new().await;
    let fids = sample(&cell).await;
    let (first, second) = (cell.client(), cell.client());
    read(&first, &fids, &[5, 2, 7, 6, 4, 3, 0, 1]).await;
    let is = |kinds: &[(char, usize)]| -> Vec<_> {
        let one = |(kind, number): &(char, usize)| (*kind, fids[*number].vnode.0);
        kinds.iter().map(one).collect()
    };
    let from = (fids[5], fids[2]);
    let items = following(&second.files, from, ALL).await;
    let all = [('d', 7), ('f', 6), ('s', 4), ('s', 3), ('f', 0), ('f', 1)];
    assert_eq!(shown(&items), is(&all));
    for item in &items {
        if let TreeItem::Directory(node) | TreeItem::File(node) = item {
            let (alone, _) = second.fetch(node.fid, 0, 1 << 20).await.unwrap();
            assert_eq!(node.data.clone().into_bytes(), alone);
        }
    }
    let few = following(&second.files, from, (2, u32::MAX, u32::MAX)).await;
    assert_eq!(shown(&few), is(&all[..2]));
    // What does not fit is asked for again, from there on.
    let short = following(&second.files, from, (u32::MAX, 2048 + 65, u32::MAX)).await;
    assert_eq!(shown(&short), is(&all[..4]));
    // A file that is too large for an item is fetched then, and has room if there is any for it at all.
    for (bytes, known) in [(69_999, 2), (70_000, 4), (70_010, 5)] {
        let wanted = (u32::MAX, 2048 + 60 + bytes, u32::MAX);
        let some = following(&second.files, from, wanted).await;
        assert_eq!(shown(&some), is(&all[..known]), "{bytes}");
    }
    let small = following(&second.files, from, (u32::MAX, u32::MAX, 15)).await;
    let all = [('d', 7), ('s', 6), ('s', 4), ('s', 3), ('f', 0), ('s', 1)];
    assert_eq!(shown(&small), is(&all));
    let unknown = following(&second.files, (fids[0], fids[1]), ALL).await;
    assert!(unknown.is_empty());
    let begun = following(&second.files, (Fid::default(), fids[5]), ALL).await;
    assert_eq!(begun.len(), 7);
}

#[tokio::test]
async fn what_follows_is_told_to_those_who_may_read_it() {
    let cell = Cell::new().await;
    let fids = sample(&cell).await;
    let (first, second) = (cell.client(), cell.client());
    read(&first, &fids, &[0, 1, 7, 6, 2]).await;
    cell.allow(fids[7], &[(PtsId::ANYUSER, "l")]);
    let from = (fids[0], fids[1]);
    let seen = shown(&following(&second.files, from, ALL).await);
    assert_eq!(seen, [('d', fids[7].vnode.0), ('f', fids[2].vnode.0)]);
    cell.allow(fids[7], &[(ANN, "rlidwk")]);
    let seen = shown(&following(&second.files, from, ALL).await);
    assert_eq!(seen, [('f', fids[2].vnode.0)]);
    let elsewhere = Fid::new(99, 1, 1);
    let asked = second
        .files
        .fetch_following(elsewhere, elsewhere, Reads::default(), 9, 9, 9);
    let mut coming = asked.await.unwrap();
    assert_eq!(code(coming.chunk().await), VNOVOL);
}

#[tokio::test]
async fn the_promises_of_what_follows_are_broken_as_others_are() {
    let cell = Cell::new().await;
    let fids = sample(&cell).await;
    let (first, second) = (cell.client(), cell.client());
    read(&first, &fids, &[0, 1, 2, 5]).await;
    following(&second.files, (fids[0], fids[1]), ALL).await;
    assert_eq!(second.callbacks.broken(), 0);
    for (number, fid) in (1..).zip([fids[2], fids[5]]) {
        first.store(fid, 0, b"other data", 10).await.unwrap();
        assert_eq!(second.callbacks.broken(), number, "{fid}");
    }
}

#[tokio::test]
async fn nobody_teaches_of_what_it_may_not_read_or_is_not_there() {
    let cell = Cell::new().await;
    let fids = sample(&cell).await;
    let (first, second) = (cell.client(), cell.client());
    let from = (fids[0], fids[1]);
    let [mut gone, mut elsewhere] = [fids[2]; 2];
    gone.uniquifier.0 += 100;
    elsewhere.volume.0 += 1;
    for other in [gone, elsewhere, Fid::default()] {
        let told = [fids[0], fids[1], other, fids[3], fids[2], fids[5]];
        read(&first, &told, &[0, 1, 2, 3, 4, 5]).await;
        assert!(following(&second.files, from, ALL).await.is_empty());
    }
    // What is on either side of it is known.
    let seen = following(&second.files, (fids[3], fids[2]), ALL).await;
    assert_eq!(shown(&seen), [('f', fids[5].vnode.0)]);
    cell.allow(fids[7], &[(PtsId::ANYUSER, "l")]);
    read(&first, &fids, &[0, 1, 6, 5]).await;
    assert!(following(&second.files, from, ALL).await.is_empty());
}
