//! Making, linking, removing, renaming: results, refusals, and who hears of it.

use afar_dir::Directory;
use afar_store::VolumeChange;
use afar_types::{Fid, FileType, PtsId, StoreStatus};
use afar_xdr::XdrString;

use super::cell::*;

#[tokio::test]
async fn a_new_file() {
    let cell = Cell::new().await;
    let (ann, other) = (cell.ann(), cell.client());
    other.files.fetch_status(cell.root()).await.unwrap();
    let made = ann
        .files
        .create_file(cell.root(), name("a"), mode(0o640))
        .await
        .unwrap();
    let status = made.status;
    assert_eq!(
        (status.file_type, status.length, status.data_version.0),
        (FileType::File, 0, 0)
    );
    assert_eq!(
        (status.owner, status.author, status.link_count),
        (ANN, ANN, 1)
    );
    assert_eq!(
        (status.unix_mode_bits, status.client_mod_time.0),
        (0o640, 1_000_000)
    );
    assert_eq!(
        status.caller_access.to_string(),
        "rlidwka",
        "whoever made it owns it"
    );
    assert_eq!(
        (status.parent_vnode.0, made.directory_status.data_version.0),
        (1, 2)
    );
    assert_eq!(
        (made.fid.vnode.0 % 2, made.callback.expires_in > 0),
        (0, true)
    );
    assert_eq!((other.callbacks.broken(), ann.callbacks.broken()), (1, 0));
    let plain = StoreStatus::default();
    let made = ann
        .files
        .create_file(cell.root(), name("b"), plain)
        .await
        .unwrap();
    assert_eq!(made.status.unix_mode_bits, 0o777);
    let again = ann.files.create_file(cell.root(), name("a"), plain).await;
    assert_eq!(code(again), EEXIST);
}

#[tokio::test]
async fn names_that_cannot_be() {
    let cell = Cell::new().await;
    let client = cell.client();
    let there = cell.root();
    for bad in ["", ".", "..", "a/b", "lib.@sys", "@sys"] {
        let made = client.files.create_file(there, name(bad), mode(0)).await;
        assert_eq!(code(made), EINVAL, "{bad}");
        client.create(there, "x").await;
        let moved = client
            .files
            .rename(there, name("x"), there, name(bad))
            .await;
        assert_eq!(code(moved), EINVAL, "{bad}");
        client.files.remove_file(there, name("x")).await.unwrap();
    }
    for bad in ["", ".", ".."] {
        assert_eq!(
            code(client.files.remove_file(there, name(bad)).await),
            EINVAL
        );
        assert_eq!(
            code(client.files.remove_dir(there, name(bad)).await),
            EINVAL
        );
        assert_eq!(
            code(
                client
                    .files
                    .rename(there, name(bad), there, name("y"))
                    .await
            ),
            EINVAL
        );
    }
    let long = "x".repeat(256);
    assert_eq!(
        code(client.files.create_file(there, name(&long), mode(0)).await),
        ENAMETOOLONG
    );
    client.create(there, &long[1..]).await;
}

#[tokio::test]
async fn only_directories_have_entries() {
    let cell = Cell::new().await;
    let client = cell.client();
    let fid = client.create(cell.root(), "a").await;
    let files = &client.files;
    assert_eq!(
        code(files.create_file(fid, name("b"), mode(0)).await),
        ENOTDIR
    );
    assert_eq!(code(files.remove_file(fid, name("b")).await), ENOTDIR);
    assert_eq!(
        code(files.rename(cell.root(), name("a"), fid, name("b")).await),
        ENOTDIR
    );
    assert_eq!(
        code(files.remove_file(cell.root(), name("b")).await),
        ENOENT
    );
    assert_eq!(
        code(files.remove_dir(cell.root(), name("a")).await),
        ENOTDIR
    );
    client.make_dir(cell.root(), "d").await;
    assert_eq!(
        code(files.remove_file(cell.root(), name("d")).await),
        EISDIR
    );
}

#[tokio::test]
async fn a_new_directory_has_the_acl_of_the_one_it_is_in() {
    let cell = Cell::new().await;
    let client = cell.client();
    let made = client
        .files
        .make_dir(cell.root(), name("d"), mode(0o755))
        .await
        .unwrap();
    assert_eq!((made.status.length, made.status.link_count), (2048, 2));
    assert_eq!(made.status.caller_access.to_string(), "rlidwk");
    assert_eq!(
        (
            made.directory_status.link_count,
            made.directory_status.data_version.0
        ),
        (3, 2)
    );
    assert_eq!(
        cell.volume.acl(made.fid).unwrap(),
        cell.volume.acl(cell.root()).unwrap()
    );
    assert_eq!(made.status.parent_vnode, made.fid.vnode);
    client.create(made.fid, "a").await;
    assert_eq!(
        code(client.files.remove_dir(cell.root(), name("d")).await),
        EEXIST
    );
    client.files.remove_file(made.fid, name("a")).await.unwrap();
    let gone = client
        .files
        .remove_dir(cell.root(), name("d"))
        .await
        .unwrap();
    assert_eq!(gone.directory_status.link_count, 2);
    assert_eq!(code(client.files.fetch_status(made.fid).await), VNOVNODE);
}

#[tokio::test]
async fn directories_are_fetched_as_pages() {
    let cell = Cell::new().await;
    let client = cell.client();
    for number in 0..100 {
        client.create(cell.root(), &format!("file-{number}")).await;
    }
    let status = client.files.fetch_status(cell.root()).await.unwrap().status;
    let (pages, reply) = client.fetch(cell.root(), 0, 1 << 20).await.unwrap();
    assert_eq!((pages.len() as u64, reply.status), (status.length, status));
    let directory = Directory::new(&pages).unwrap();
    let found = directory.lookup(b"file-77").unwrap().unwrap();
    let fid = cell.volume.lookup(cell.root(), b"file-77").unwrap();
    assert_eq!(
        (found.id.vnode, found.id.uniquifier),
        (fid.vnode, fid.uniquifier)
    );
}

#[tokio::test]
async fn symlinks_and_mount_points() {
    let cell = Cell::new().await;
    let (client, admin) = (cell.client(), cell.admin());
    let target = |text: &str| XdrString::new(text).unwrap();
    let made = client
        .files
        .symlink(cell.root(), name("l"), target("a/b"), mode(0o755))
        .await;
    let made = made.unwrap();
    assert_eq!(
        (made.status.file_type, made.status.length),
        (FileType::Symlink, 3)
    );
    let (data, _) = client.fetch(made.fid, 0, 1024).await.unwrap();
    assert_eq!(data, b"a/b");
    assert_eq!(code(client.store(made.fid, 0, b"x", 1).await), EISDIR);
    let mount = |client: Client| {
        let (there, target) = (cell.root(), target("#root.cell."));
        async move {
            client
                .files
                .symlink(there, name("m"), target, mode(0o644))
                .await
        }
    };
    assert_eq!(code(mount(cell.client()).await), EACCES);
    assert!(mount(admin).await.unwrap().status.is_mount_point());
    cell.allow(cell.root(), &[(PtsId::ANYUSER, "rlida")]);
    client
        .files
        .remove_file(cell.root(), name("m"))
        .await
        .unwrap();
    mount(cell.client()).await.unwrap();
}

#[tokio::test]
async fn links_stay_in_their_directory() {
    let cell = Cell::new().await;
    let (client, other) = (cell.client(), cell.client());
    let files = &client.files;
    let fid = client.create(cell.root(), "a").await;
    let directory = client.make_dir(cell.root(), "d").await;
    other.files.fetch_status(fid).await.unwrap();
    let linked = files.link(cell.root(), name("b"), fid).await.unwrap();
    assert_eq!(
        (
            linked.status.link_count,
            linked.directory_status.data_version.0
        ),
        (2, 4)
    );
    assert_eq!(other.callbacks.broken(), 1);
    assert_eq!(code(files.link(directory, name("b"), fid).await), EXDEV);
    assert_eq!(
        code(files.link(cell.root(), name("c"), directory).await),
        EISDIR
    );
    assert_eq!(code(files.link(cell.root(), name("b"), fid).await), EEXIST);
    let far = Fid::new(99, fid.vnode.0, fid.uniquifier.0);
    assert_eq!(code(files.link(cell.root(), name("c"), far).await), EXDEV);
    // A file with several names stays where it is, and a name less is told to everyone.
    assert_eq!(
        code(
            files
                .rename(cell.root(), name("a"), directory, name("a"))
                .await
        ),
        EXDEV
    );
    client.files.fetch_status(fid).await.unwrap();
    files.remove_file(cell.root(), name("b")).await.unwrap();
    assert_eq!(client.callbacks.broken(), 1);
    let status = files.fetch_status(fid).await.unwrap().status;
    assert_eq!(status.link_count, 1);
    files.remove_file(cell.root(), name("a")).await.unwrap();
    assert_eq!(code(files.fetch_status(fid).await), VNOVNODE);
    // Nobody is told of what is gone.
    assert_eq!(client.callbacks.broken(), 1);
}

#[tokio::test]
async fn renames() {
    let cell = Cell::new().await;
    let (client, other) = (cell.client(), cell.client());
    let files = &client.files;
    let root = cell.root();
    let (one, two) = (
        client.make_dir(root, "one").await,
        client.make_dir(root, "two").await,
    );
    let file = client.create(one, "a").await;
    let replaced = client.create(one, "b").await;
    // Within a directory, over something.
    let moved = files.rename(one, name("a"), one, name("b")).await.unwrap();
    assert_eq!(moved.old_directory_status, moved.new_directory_status);
    assert_eq!(moved.new_directory_status.data_version.0, 3);
    assert_eq!(code(files.fetch_status(replaced).await), VNOVNODE);
    // To another directory.
    other.files.fetch_status(one).await.unwrap();
    other.files.fetch_status(two).await.unwrap();
    files.rename(one, name("b"), two, name("c")).await.unwrap();
    assert_eq!(
        files.fetch_status(file).await.unwrap().status.parent_vnode,
        two.vnode
    );
    assert_eq!(other.callbacks.broken(), 2);
    // A directory: what is in it about its place is told to all.
    let sub = client.make_dir(one, "sub").await;
    let before = client.callbacks.broken();
    let moved = files
        .rename(one, name("sub"), two, name("sub"))
        .await
        .unwrap();
    assert_eq!(moved.old_directory_status.link_count, 2);
    assert_eq!(moved.new_directory_status.link_count, 3);
    assert_eq!(client.callbacks.broken(), before + 1);
    assert_eq!(
        code(files.rename(root, name("two"), sub, name("x")).await),
        EINVAL
    );
    assert_eq!(
        code(files.rename(two, name("sub"), two, name("c")).await),
        ENOTDIR
    );
    assert_eq!(
        code(files.rename(two, name("c"), two, name("sub")).await),
        EISDIR
    );
    assert_eq!(
        code(files.rename(two, name("c"), two, name("c")).await),
        EINVAL
    );
    assert_eq!(
        code(files.rename(two, name("no"), two, name("c")).await),
        ENOENT
    );
    let far = Fid::root(99.into());
    assert_eq!(
        code(files.rename(two, name("c"), far, name("c")).await),
        EXDEV
    );
}

#[tokio::test]
async fn rights_to_entries() {
    let cell = Cell::new().await;
    let client = cell.client();
    let (root, files) = (cell.root(), &client.files);
    let into = client.make_dir(root, "into").await;
    client.create(root, "a").await;
    client.create(into, "b").await;
    cell.allow(root, &[(PtsId::ANYUSER, "rlwka")]);
    assert_eq!(
        code(files.create_file(root, name("c"), mode(0)).await),
        EACCES
    );
    assert_eq!(code(files.make_dir(root, name("c"), mode(0)).await), EACCES);
    assert_eq!(code(files.remove_file(root, name("a")).await), EACCES);
    assert_eq!(code(files.remove_dir(root, name("into")).await), EACCES);
    assert_eq!(
        code(files.rename(root, name("a"), into, name("a")).await),
        EACCES
    );
    // To replace something takes the right to remove it.
    cell.allow(root, &[(PtsId::ANYUSER, "ld")]);
    cell.allow(into, &[(PtsId::ANYUSER, "li")]);
    assert_eq!(
        code(files.rename(root, name("a"), into, name("b")).await),
        EACCES
    );
    files
        .rename(root, name("a"), into, name("a"))
        .await
        .unwrap();
    // The administration does as it likes.
    cell.allow(root, &[]);
    cell.admin().create(root, "c").await;
}

#[tokio::test]
async fn quotas() {
    let cell = Cell::new().await;
    let client = cell.client();
    let fid = client.create(cell.root(), "a").await;
    let used = cell.volume.state().unwrap().disk_used;
    let quota = VolumeChange {
        max_quota: Some(used + 10),
        ..VolumeChange::default()
    };
    cell.volume.change(quota).unwrap();
    let much = vec![1; 20 << 10];
    assert_eq!(
        code(client.store(fid, 0, &much, much.len() as u64).await),
        VOVERQUOTA
    );
    client
        .store(fid, 0, &much[..10 << 10], 10 << 10)
        .await
        .unwrap();
    let refused = loop {
        let file = format!("f{}", fastrand::u32(..));
        if let Err(refused) = client
            .files
            .create_file(cell.root(), name(&file), mode(0))
            .await
        {
            break refused;
        }
    };
    assert_eq!(refused.aborted(), Some(VOVERQUOTA));
}
