//! ACLs as text, and the protection service behind them.

use afar_types::{Acl, AclEntry, AclText, PtsId, Rights};

use super::cell::*;

fn text(positive: &[(&str, &str)], negative: &[(&str, &str)]) -> AclText {
    let entries = |list: &[(&str, &str)]| {
        let entry = |(name, rights): &(&str, &str)| AclEntry {
            name: (*name).to_owned(),
            rights: rights.parse().unwrap(),
        };
        list.iter().map(entry).collect()
    };
    let acl = Acl {
        positive: entries(positive),
        negative: entries(negative),
    };
    AclText::new(acl.to_text().unwrap()).unwrap()
}

#[tokio::test]
async fn acls_by_name() {
    let cell = Cell::new().await;
    let (admin, other) = (cell.admin(), cell.client());
    let directory = admin.make_dir(cell.root(), "d").await;
    let file = admin.create(directory, "a").await;
    other.files.fetch_status(directory).await.unwrap();
    let wanted = text(
        &[("ann", "rlidwka"), ("system:anyuser", "rl"), ("staff", "k")],
        &[("system:authuser", "w")],
    );
    let stored = admin.files.store_acl(directory, wanted).await.unwrap();
    assert_eq!(
        (stored.status.data_version.0, other.callbacks.broken()),
        (1, 1)
    );
    // In the order of the ids.
    let expected = text(
        &[("staff", "k"), ("system:anyuser", "rl"), ("ann", "rlidwka")],
        &[("system:authuser", "w")],
    );
    assert_eq!(
        other.files.fetch_acl(directory).await.unwrap().acl,
        expected
    );
    // Of a file: that of the directory it is in.
    assert_eq!(other.files.fetch_acl(file).await.unwrap().acl, expected);
    let rights = cell
        .ann()
        .files
        .fetch_status(directory)
        .await
        .unwrap()
        .status
        .caller_access;
    assert_eq!(rights.to_string(), "rlidka");
    let old = text(&[("system:administrators", "rlidwka"), ("ann", "l")], &[]);
    cell.ann()
        .files
        .old_store_acl(directory, old.clone())
        .await
        .unwrap();
    assert_eq!(admin.files.fetch_acl(directory).await.unwrap().acl, old);
    cell.allow(directory, &[(PtsId(4711), "r")]);
    let numbered = admin.files.fetch_acl(directory).await.unwrap().acl;
    assert_eq!(numbered, text(&[("4711", "r")], &[]));
}

#[tokio::test]
async fn acls_as_clients_of_openafs_write_them() {
    let cell = Cell::new().await;
    let admin = cell.admin();
    // AclToString of src/venus/fs.c; the client sends its NUL, too.
    let sent = AclText::new(b"2\n1\nsystem:anyuser 9\nann 127\nstaff 2\n\0").unwrap();
    let stored = admin.files.store_acl(cell.root(), sent).await;
    stored.unwrap();
    let expected = text(
        &[("system:anyuser", "rl"), ("ann", "rlidwka")],
        &[("staff", "w")],
    );
    let fetched = admin.files.fetch_acl(cell.root()).await.unwrap();
    assert_eq!(fetched.acl, expected);
}

#[tokio::test]
async fn who_is_gone_is_a_number_in_acls_and_who_is_renamed_has_the_new_name() {
    let cell = Cell::new().await;
    let admin = cell.admin();
    let acl = async || admin.files.fetch_acl(cell.root()).await.unwrap().acl;
    cell.allow(cell.root(), &[(ANN, "rl")]);
    assert_eq!(acl().await, text(&[("ann", "rl")], &[]));
    cell.rename(ANN, Some("anna"));
    assert_eq!(acl().await, text(&[("anna", "rl")], &[]));
    cell.rename(ANN, None);
    assert_eq!(acl().await, text(&[("7", "rl")], &[]));
    // The list as it was told, and somebody else.
    let changed = text(&[("staff", "rl"), ("7", "rl")], &[]);
    let stored = admin.files.store_acl(cell.root(), changed.clone()).await;
    stored.unwrap();
    assert_eq!(acl().await, changed);
    let old = text(&[("ann", "rl")], &[]);
    assert_eq!(code(admin.files.store_acl(cell.root(), old).await), EINVAL);
    let nobody = text(&[("32766", "rl")], &[]);
    assert_eq!(
        code(admin.files.store_acl(cell.root(), nobody).await),
        EINVAL
    );
    // A name that the text cannot carry.
    cell.rename(ANN, Some("ann b"));
    assert_eq!(acl().await, changed);
    // Without a server the last names known are told.
    cell.rename(ANN, Some("anna"));
    let named = text(&[("staff", "rl"), ("anna", "rl")], &[]);
    assert_eq!(acl().await, named);
    cell.protection.shutdown().await;
    assert_eq!(acl().await, named);
}

#[tokio::test]
async fn acls_that_are_refused() {
    let cell = Cell::new().await;
    let (client, admin) = (cell.client(), cell.admin());
    let root = cell.root();
    let file = client.create(root, "a").await;
    let good = text(&[("ann", "rl")], &[]);
    assert_eq!(
        code(client.files.store_acl(root, good.clone()).await),
        EACCES
    );
    assert_eq!(code(admin.files.store_acl(file, good).await), ENOTDIR);
    for bad in [
        text(&[("mallory", "rl")], &[]),
        text(&[], &[("anonymous", "rl")]),
    ] {
        assert_eq!(code(admin.files.store_acl(root, bad).await), EINVAL);
    }
    let unended = &b"1\n0\nann\t1\n"[..];
    for bad in [
        &b"rubbish\0"[..],
        b"",
        b"3\n0\nann\t1\n\0",
        b"\xff\xff\0",
        unended,
    ] {
        let bad = AclText::new(bad).unwrap();
        assert_eq!(code(admin.files.store_acl(root, bad).await), EINVAL);
    }
    cell.allow(root, &[]);
    assert_eq!(code(client.files.fetch_acl(root).await), EACCES);
    admin.files.fetch_acl(root).await.unwrap();
}

#[tokio::test]
async fn groups_are_asked_for_once_and_hold_when_nobody_answers() {
    let cell = Cell::new().await;
    cell.allow(cell.root(), &[(STAFF, "rlidwk")]);
    let ann = cell.ann();
    let fid = ann.create(cell.root(), "a").await;
    let answered = cell.protection.stats().await.engine.calls_received;
    for _ in 0..10 {
        ann.files.fetch_status(fid).await.unwrap();
    }
    assert_eq!(
        cell.protection.stats().await.engine.calls_received,
        answered
    );
    // Flushed while the server is up: asked again.
    let flush = |client: Client| async move {
        let users = afar_xdr::List::new(vec![ANN]).unwrap();
        client
            .files
            .flush_cps(users, afar_xdr::List::default(), 0)
            .await
    };
    assert_eq!(code(flush(cell.client()).await), afar_net::AbortCode(1));
    flush(cell.admin()).await.unwrap();
    ann.files.fetch_status(fid).await.unwrap();
    assert!(cell.protection.stats().await.engine.calls_received > answered);
    cell.protection.shutdown().await;
    ann.files.fetch_status(fid).await.unwrap();
    // Of whom nothing is known, and nobody can be asked.
    flush(cell.admin()).await.unwrap();
    assert_eq!(code(ann.files.fetch_status(fid).await), EACCES);
    let status = ann.files.fetch_status(cell.root()).await.unwrap().status;
    assert_eq!(status.caller_access, Rights::NONE);
    // Names cannot be told either, but for those every cell has.
    assert_eq!(
        code(cell.admin().files.fetch_acl(cell.root()).await),
        uae(4)
    );
    cell.allow(cell.root(), &[(PtsId::ANYUSER, "l")]);
    cell.admin().files.fetch_acl(cell.root()).await.unwrap();
}
