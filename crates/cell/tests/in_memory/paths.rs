//! Following paths in a cell in memory.

use std::sync::atomic::Ordering;

use afar_cell::{Error, LastLink, Node, PathCause, Walked};
use afar_types::{Fid, FileType, VolumeType};

use crate::world::{Cell, World};

const ROOT: u32 = 10;
const ROOT_READ_ONLY: u32 = 11;
const PUB: u32 = 20;
const PUB_READ_ONLY: u32 = 21;
const ONLY_WRITE: u32 = 30;

/// root.cell with mount points and links, test.pub with files, both in two members.
fn world() -> World {
    let mut world = World::default();
    world.volume("root.cell", ROOT, Some(ROOT_READ_ONLY));
    world.volume("test.pub", PUB, Some(PUB_READ_ONLY));
    world.volume("test.rw", ONLY_WRITE, None);
    for root in [ROOT, ROOT_READ_ONLY] {
        let mounts = [
            (2, "#test.pub."),
            (4, "%test.pub."),
            (6, "#test.rw."),
            (8, "#test.missing."),
            (10, "#test.example:test.pub."),
            (12, "nonsense"),
            (14, "%test.pub.readonly."),
            (16, "#21."),
        ];
        for (vnode, text) in mounts {
            world.link(Fid::new(root, vnode, 1), 0o644, text);
        }
        let entries = [
            ("pub", 2),
            (".pub", 4),
            ("rw", 6),
            ("missing", 8),
            ("cell", 10),
            ("broken", 12),
            ("ro", 14),
            ("number", 16),
        ];
        world.directory(Fid::new(root, 1, 1), &entries);
    }
    for root in [PUB, PUB_READ_ONLY] {
        let fid = |vnode| Fid::new(root, vnode, 1);
        world.file(fid(2), "hello");
        world.directory(fid(3), &[("leaf", 4), ("up", 20)]);
        world.file(fid(4), "leaf");
        let links = [
            (6, "hello"),
            (8, "dir/leaf"),
            (10, "/afs/test.example/pub/hello"),
            (12, "self"),
            (14, "/etc/passwd"),
            (16, "nothing"),
            (18, "dir"),
            (20, "../hello"),
        ];
        for (vnode, target) in links {
            world.link(fid(vnode), 0o755, target);
        }
        world.directory(fid(5), &[("tool", 4)]);
        let entries = [
            ("hello", 2),
            ("dir", 3),
            ("link", 6),
            ("deeper", 8),
            ("absolute", 10),
            ("self", 12),
            ("outside", 14),
            ("dangling", 16),
            ("to-dir", 18),
            ("amd64_afar", 5),
        ];
        world.directory(fid(1), &entries);
    }
    world
}

async fn walk(cell: &Cell, path: &str, last: LastLink) -> Result<Walked, PathCause> {
    let path = format!("/afs/test.example/{path}");
    let walked = cell.client.walk(path.as_bytes(), last).await;
    walked.map_err(|error| {
        assert_eq!(error.path, path);
        error.cause
    })
}

async fn follow(cell: &Cell, path: &str) -> Result<Node, PathCause> {
    match walk(cell, path, LastLink::Follow).await? {
        Walked::Node(node) => Ok(node),
        Walked::Afs => panic!("{path} leads to /afs"),
    }
}

#[tokio::test]
async fn parts_links_and_dots_lead_to_the_same_file() {
    let cell = Cell::start(world(), |_| ());
    for path in [
        "pub/hello",
        "pub//./hello",
        "pub/link",
        "pub/absolute",
        "pub/dir/../hello",
        "pub/dir/up",
        "pub/to-dir/up",
        "pub/../pub/hello",
        "../test.example/pub/hello",
        "cell/hello",
        "ro/hello",
        "number/hello",
    ] {
        let node = follow(&cell, path).await.unwrap();
        assert_eq!(node.fid, Fid::new(PUB_READ_ONLY, 2, 1), "{path}");
        assert_eq!(node.status.length, 5);
    }
    let leaf = follow(&cell, "pub/deeper").await.unwrap();
    assert_eq!(leaf.fid, Fid::new(PUB_READ_ONLY, 4, 1));
}

#[tokio::test]
async fn read_only_is_preferred_unless_asked_otherwise() {
    let cell = Cell::start(world(), |_| ());
    let volume = async |path: &str| {
        let node = follow(&cell, path).await.unwrap();
        (node.volume.id().0, node.volume.kind(), node.fid.vnode.0)
    };
    assert_eq!(volume("").await, (ROOT_READ_ONLY, VolumeType::ReadOnly, 1));
    assert_eq!(volume("pub").await.0, PUB_READ_ONLY);
    assert_eq!(volume(".pub").await, (PUB, VolumeType::ReadWrite, 1));
    assert_eq!(volume("rw").await.0, ONLY_WRITE);
    // Below /afs/.CELL everything is read-write, but where a mount point says otherwise.
    assert_eq!(volume("../.test.example").await.0, ROOT);
    assert_eq!(volume("../.test.example/pub").await.0, PUB);
    assert_eq!(volume("../.test.example/ro").await.0, PUB_READ_ONLY);
    let node = follow(&cell, "pub").await.unwrap();
    assert_eq!(node.mount.unwrap().to_string(), "#test.pub.");
}

#[tokio::test]
async fn a_link_at_the_end_is_kept_if_asked() {
    let cell = Cell::start(world(), |_| ());
    let kind = async |path: &str| match walk(&cell, path, LastLink::Keep).await.unwrap() {
        Walked::Node(node) => (node.status.file_type, node.fid.vnode.0),
        Walked::Afs => panic!("{path}"),
    };
    assert_eq!(kind("pub/link").await, (FileType::Symlink, 6));
    assert_eq!(kind("pub/dangling").await, (FileType::Symlink, 16));
    assert_eq!(kind("pub/to-dir/").await, (FileType::Directory, 3));
    // Mount points are crossed.
    assert_eq!(kind("pub").await, (FileType::Directory, 1));
    let top = cell.client.walk(b"/afs/", LastLink::Keep).await.unwrap();
    assert!(matches!(top, Walked::Afs));
}

#[tokio::test]
async fn sysnames_are_tried_in_order() {
    let cell = Cell::start(world(), |config| {
        config.sysnames = vec!["none".into(), "amd64_afar".into()];
    });
    let node = follow(&cell, "pub/@sys/tool").await.unwrap();
    assert_eq!(node.fid.vnode.0, 4);
    let error = follow(&cell, "pub/dir/@sys").await.unwrap_err();
    assert!(matches!(error, PathCause::NoSysname(tried) if tried == "none amd64_afar"));
}

#[tokio::test]
async fn paths_that_lead_nowhere_say_why() {
    let cell = Cell::start(world(), |_| ());
    let cause = async |path: &str| follow(&cell, path).await.unwrap_err();
    for path in ["pub/none", "none", "pub/dangling", "pub/dir/none/x"] {
        assert!(matches!(cause(path).await, PathCause::NotFound), "{path}");
    }
    for path in ["pub/hello/x", "pub/hello/", "pub/link/x"] {
        let cause = cause(path).await;
        assert!(matches!(cause, PathCause::NotDirectory), "{path}: {cause}");
    }
    assert!(matches!(cause("pub/self").await, PathCause::Loop));
    assert!(matches!(
        cause("pub/outside").await,
        PathCause::OutsideAfs(target) if target == "/etc/passwd"
    ));
    assert!(matches!(cause("broken").await, PathCause::MountPoint(_)));
    assert!(matches!(
        cause("missing").await,
        PathCause::Cell(Error::NoSuchVolume { volume, .. }) if volume == "test.missing"
    ));
    let elsewhere = cell.client.walk(b"/srv/x", LastLink::Keep).await;
    assert!(matches!(elsewhere.unwrap_err().cause, PathCause::NotAfs));
}

#[tokio::test]
async fn unknown_cells_are_named() {
    let cell = Cell::start(world(), |config| config.vl_servers.clear());
    let error = cell.client.walk(b"/afs/no.where", LastLink::Keep).await;
    let text = error.unwrap_err().to_string();
    assert!(
        text.starts_with("/afs/no.where: cell no.where is not known"),
        "{text}"
    );
    assert!(text.contains("DNS was not asked"), "{text}");
}

#[tokio::test]
async fn promises_are_given_back_at_the_end() {
    let cell = Cell::start(world(), |_| ());
    follow(&cell, "pub/hello").await.unwrap();
    cell.client.close().await;
    assert_eq!(cell.servers.counts.given_up.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn entries_have_their_status_or_error() {
    let mut world = world();
    let names: Vec<String> = (0..230).map(|n| format!("file-{n:03}")).collect();
    let entries: Vec<(&str, u32)> = names
        .iter()
        .map(String::as_str)
        .zip((100..).step_by(2))
        .collect();
    for (_, vnode) in &entries {
        world.file(Fid::new(ONLY_WRITE, *vnode, 1), vec![0; *vnode as usize]);
    }
    world
        .vnodes
        .get_mut(&Fid::new(ONLY_WRITE, 104, 1))
        .unwrap()
        .refusal = Some(13);
    world.directory(Fid::new(ONLY_WRITE, 1, 1), &entries);
    for old_server in [false, true] {
        let mut world = World {
            volumes: world.volumes.clone(),
            vnodes: world.vnodes.clone(),
            ..World::default()
        };
        world.old_server = old_server;
        let cell = Cell::start(world, |_| ());
        let node = follow(&cell, "rw").await.unwrap();
        let list = cell.client.list(&node.volume, node.fid).await.unwrap();
        assert_eq!(list.len(), 230);
        let fids: Vec<_> = list.iter().map(|entry| entry.fid).collect();
        let statuses = cell.client.statuses(&node.volume, &fids).await;
        assert_eq!(statuses.len(), 230);
        for (fid, status) in fids.iter().zip(statuses) {
            match status {
                Ok(status) => assert_eq!(status.length, u64::from(fid.vnode.0)),
                Err(error) => {
                    assert!(error.is_denied(), "{error}");
                    assert_eq!(fid.vnode.0, 104);
                }
            }
        }
    }
}
