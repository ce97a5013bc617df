//! Files that are named one by one, in one answer.

use afar_rpc::rxafs;
use afar_types::{Fid, PtsId, Reads, TreeItem};

use super::cell::*;
use super::following::sample;
use super::tree::{all_of, items, shown};

async fn listed(
    files: &rxafs::Client,
    fids: &[Fid],
    (bytes, largest): (u32, u32),
) -> Vec<TreeItem> {
    let asked = files.fetch_files(Reads::new(fids).unwrap(), bytes, largest);
    items(&all_of(asked.await.unwrap()).await.unwrap())
}

const ALL: (u32, u32) = (u32::MAX, u32::MAX);

#[tokio::test]
async fn what_is_named_comes_in_its_order() {
    let cell = Cell::new().await;
    let fids = sample(&cell).await;
    let client = cell.client();
    let named = |order: &[usize]| -> Vec<_> { order.iter().map(|one| fids[*one]).collect() };
    let is = |kinds: &[(char, usize)]| -> Vec<_> {
        let one = |(kind, number): &(char, usize)| (*kind, fids[*number].vnode.0);
        kinds.iter().map(one).collect()
    };
    let order = named(&[5, 2, 7, 6, 4, 3]);
    let all = [('f', 5), ('f', 2), ('d', 7), ('f', 6), ('s', 4), ('s', 3)];
    let answer = listed(&client.files, &order, ALL).await;
    assert_eq!(shown(&answer), is(&all));
    for item in &answer {
        if let TreeItem::Directory(node) | TreeItem::File(node) = item {
            let (alone, _) = client.fetch(node.fid, 0, 1 << 20).await.unwrap();
            assert_eq!(node.data.clone().into_bytes(), alone);
        }
    }
    let short = listed(&client.files, &order, (80, u32::MAX)).await;
    assert_eq!(shown(&short), is(&all[..2]));
    let small = listed(&client.files, &order[..2], (u32::MAX, 30)).await;
    assert_eq!(shown(&small), is(&[('s', 5), ('f', 2)]));
}

#[tokio::test]
async fn what_may_not_be_read_or_is_not_there_is_left_out() {
    let cell = Cell::new().await;
    let fids = sample(&cell).await;
    let client = cell.client();
    let [mut gone, mut elsewhere] = [fids[2]; 2];
    gone.uniquifier.0 += 100;
    elsewhere.volume.0 += 1;
    cell.allow(fids[7], &[(PtsId::ANYUSER, "l")]);
    let asked = [fids[0], gone, elsewhere, Fid::default(), fids[6], fids[1]];
    let answer = listed(&client.files, &asked, ALL).await;
    let seen = [('f', fids[0].vnode.0), ('f', fids[1].vnode.0)];
    assert_eq!(shown(&answer), seen);
    for (asked, expected) in [(vec![], EINVAL), (vec![elsewhere, fids[0]], VNOVOL)] {
        let asked = Reads::new(asked).unwrap();
        let mut coming = client.files.fetch_files(asked, 9, 9).await.unwrap();
        assert_eq!(code(coming.chunk().await), expected);
    }
}

#[tokio::test]
async fn the_promises_of_what_is_named_are_broken_as_others_are() {
    let cell = Cell::new().await;
    let fids = sample(&cell).await;
    let (first, second) = (cell.client(), cell.client());
    listed(&second.files, &[fids[2], fids[5]], ALL).await;
    assert_eq!(second.callbacks.broken(), 0);
    for (number, fid) in (1..).zip([fids[2], fids[5]]) {
        first.store(fid, 0, b"other data", 10).await.unwrap();
        assert_eq!(second.callbacks.broken(), number, "{fid}");
    }
}
