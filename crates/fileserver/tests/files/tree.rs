//! Whole trees in one answer.

use afar_rpc::{Download, RpcError, rxafs};
use afar_types::{CallBackType, Fid, FileType, PtsId, TREE_DATA_MAX, TreeItem, VolumeId};

use super::cell::*;

/// What is asked for.
#[derive(Clone, Copy)]
struct Asked {
    depth: u32,
    entries: u32,
    bytes: u32,
    largest: u32,
}

const ALL: Asked = Asked {
    depth: 9,
    entries: u32::MAX,
    bytes: u32::MAX,
    largest: u32::MAX,
};

async fn ask(files: &rxafs::Client, fid: Fid, asked: Asked) -> Result<Vec<u8>, RpcError> {
    let Asked {
        depth,
        entries,
        bytes,
        largest,
    } = asked;
    let coming = files
        .fetch_tree(fid, depth, entries, bytes, largest)
        .await?;
    all_of(coming).await
}

/// All of an answer.
pub(crate) async fn all_of(mut coming: Download) -> Result<Vec<u8>, RpcError> {
    let mut data = Vec::new();
    while let Some(chunk) = coming.chunk().await? {
        data.extend_from_slice(&chunk);
    }
    Ok(data)
}

/// What an answer has in it.
pub(crate) fn items(data: &[u8]) -> Vec<TreeItem> {
    let (items, vol_sync) = TreeItem::all(data).unwrap();
    assert_ne!(vol_sync.creation_date.0, 0);
    items
}

async fn tree(files: &rxafs::Client, fid: Fid, asked: Asked) -> Vec<TreeItem> {
    items(&ask(files, fid, asked).await.unwrap())
}

/// Kind and vnode of each item, in order.
pub(crate) fn shown(items: &[TreeItem]) -> Vec<(char, u32)> {
    let one = |item: &TreeItem| match item {
        TreeItem::Directory(node) => ('d', node.fid.vnode.0),
        TreeItem::File(node) => ('f', node.fid.vnode.0),
        TreeItem::Status { fid, .. } => ('s', fid.vnode.0),
        TreeItem::Left { fid } => ('l', fid.vnode.0),
        TreeItem::End { .. } => unreachable!("not among them"),
    };
    items.iter().map(one).collect()
}

async fn put(client: &Client, fid: Fid, data: &[u8]) {
    let length = data.len() as u64;
    client.store(fid, 0, data, length).await.unwrap();
}

/// `a` with data, `b` of which there is none, `sub` with `c`, and `sub/deep` with `d`.
struct Sample {
    a: Fid,
    b: Fid,
    sub: Fid,
    c: Fid,
    deep: Fid,
    d: Fid,
}

async fn sample(cell: &Cell) -> Sample {
    let client = cell.client();
    let a = client.create(cell.root(), "a").await;
    put(&client, a, b"some data").await;
    let b = client.create(cell.root(), "b").await;
    let sub = client.make_dir(cell.root(), "sub").await;
    let c = client.create(sub, "c").await;
    put(&client, c, &[7; 70_000]).await;
    let deep = client.make_dir(sub, "deep").await;
    let d = client.create(deep, "d").await;
    put(&client, d, b"d").await;
    Sample {
        a,
        b,
        sub,
        c,
        deep,
        d,
    }
}

#[tokio::test]
async fn a_tree_is_what_single_calls_tell() {
    let cell = Cell::new().await;
    let own = sample(&cell).await;
    let client = cell.client();
    let files = &client.files;
    let items = tree(files, cell.root(), ALL).await;
    let expected = [
        ('d', cell.root()),
        ('f', own.a),
        ('s', own.b),
        ('d', own.sub),
        ('s', own.c),
        ('d', own.deep),
        ('f', own.d),
    ];
    assert_eq!(
        shown(&items),
        expected.map(|(kind, fid)| (kind, fid.vnode.0))
    );
    for item in &items {
        let (fid, status, callback, data) = match item {
            TreeItem::Directory(node) | TreeItem::File(node) => {
                (node.fid, node.status, node.callback, Some(&node.data))
            }
            TreeItem::Status {
                fid,
                status,
                callback,
            } => (*fid, *status, *callback, None),
            other => panic!("{other:?}"),
        };
        let alone = files.fetch_status(fid).await.unwrap();
        assert_eq!(
            (status, callback.kind),
            (alone.status, CallBackType::Shared)
        );
        if let Some(data) = data {
            let (alone, _) = client.fetch(fid, 0, 1 << 20).await.unwrap();
            assert_eq!(data.clone().into_bytes(), alone, "{fid}");
        }
    }
}

#[tokio::test]
async fn no_more_comes_than_was_asked_for() {
    let cell = Cell::new().await;
    let own = sample(&cell).await;
    let files = cell.client().files;
    let vnodes = |list: &[(char, Fid)]| -> Vec<_> {
        list.iter()
            .map(|(kind, fid)| (*kind, fid.vnode.0))
            .collect()
    };
    let root = cell.root();
    let flat = Asked { depth: 0, ..ALL };
    let all = [('d', root), ('f', own.a), ('s', own.b), ('s', own.sub)];
    assert_eq!(shown(&tree(&files, root, flat).await), vnodes(&all));
    let statuses = Asked { largest: 8, ..flat };
    let all = [('d', root), ('s', own.a), ('s', own.b), ('s', own.sub)];
    assert_eq!(shown(&tree(&files, root, statuses).await), vnodes(&all));
    let few = Asked { entries: 3, ..ALL };
    let all = [('d', root), ('f', own.a), ('s', own.b), ('l', own.sub)];
    assert_eq!(shown(&tree(&files, root, few).await), vnodes(&all));
    let short = Asked { bytes: 2050, ..ALL };
    let all = [('d', root), ('s', own.a), ('s', own.b), ('l', own.sub)];
    assert_eq!(shown(&tree(&files, root, short).await), vnodes(&all));
    let nothing = Asked { bytes: 0, ..ALL };
    assert_eq!(
        shown(&tree(&files, root, nothing).await),
        vnodes(&[('l', root)])
    );
}

#[tokio::test]
async fn what_may_not_be_read_is_left_out() {
    let cell = Cell::new().await;
    let own = sample(&cell).await;
    let files = cell.client().files;
    cell.allow(own.deep, &[(ANN, "rlidwk")]);
    cell.allow(own.sub, &[(PtsId::ANYUSER, "l")]);
    let seen = shown(&tree(&files, cell.root(), ALL).await);
    let all = [
        ('d', cell.root()),
        ('f', own.a),
        ('s', own.b),
        ('d', own.sub),
        ('s', own.deep),
    ];
    assert_eq!(seen, all.map(|(kind, fid)| (kind, fid.vnode.0)));
    let denied = ask(&files, own.deep, ALL).await;
    assert_eq!(code(denied), EACCES);
}

#[tokio::test]
async fn what_is_no_directory_has_no_tree() {
    let cell = Cell::new().await;
    let own = sample(&cell).await;
    let files = cell.client().files;
    assert_eq!(code(ask(&files, own.a, ALL).await), ENOTDIR);
    let gone = Fid::new(VOLUME.0, 1001, 1);
    assert_eq!(code(ask(&files, gone, ALL).await), VNOVNODE);
    let elsewhere = Fid::root(VolumeId(1));
    assert_eq!(code(ask(&files, elsewhere, ALL).await), VNOVOL);
}

#[tokio::test]
async fn the_promises_of_a_tree_are_broken_as_others_are() {
    let cell = Cell::new().await;
    let own = sample(&cell).await;
    let (reader, writer) = (cell.client(), cell.client());
    tree(&reader.files, cell.root(), ALL).await;
    assert_eq!(reader.callbacks.broken(), 0);
    for (number, fid) in (1..).zip([own.a, own.b, own.d]) {
        put(&writer, fid, b"other data").await;
        assert_eq!(reader.callbacks.broken(), number, "{fid}");
    }
    let client = cell.client();
    client.create(own.deep, "new").await;
    assert_eq!(reader.callbacks.broken(), 4, "the directory");
}

#[tokio::test]
async fn a_large_directory_comes_by_itself() {
    let cell = Cell::new().await;
    let client = cell.client();
    let large = client.make_dir(cell.root(), "large").await;
    // A name of 200 bytes takes seven slots of 64 in a page.
    let long = "n".repeat(200);
    for number in 0..300 {
        client.create(large, &format!("{long}{number}")).await;
    }
    let length = client
        .files
        .fetch_status(large)
        .await
        .unwrap()
        .status
        .length;
    assert!(length > TREE_DATA_MAX as u64);
    let items = tree(&client.files, cell.root(), ALL).await;
    assert_eq!(items.last(), Some(&TreeItem::Left { fid: large }));
}

#[tokio::test]
async fn a_long_answer_comes_in_parts_and_whole() {
    let cell = Cell::new().await;
    let client = cell.client();
    for number in 0..200 {
        let fid = client.create(cell.root(), &format!("f{number}")).await;
        put(&client, fid, &[7; 2000]).await;
    }
    let items = tree(&client.files, cell.root(), ALL).await;
    let files = items
        .iter()
        .filter(|item| matches!(item, TreeItem::File(_)));
    assert_eq!((items.len(), files.count()), (201, 200));
    let TreeItem::Directory(first) = &items[0] else {
        panic!("{:?}", items[0]);
    };
    assert_eq!(first.status.file_type, FileType::Directory);
}
