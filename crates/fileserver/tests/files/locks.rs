//! Advisory locks.

use afar_types::{PtsId, VolSync};

use super::cell::*;

const READ: i32 = 0;
const WRITE: i32 = 1;

#[tokio::test]
async fn locks_are_seen_and_released() {
    let cell = Cell::new().await;
    let (one, two) = (cell.client(), cell.client());
    let fid = one.create(cell.root(), "a").await;
    one.files.set_lock(fid, READ).await.unwrap();
    two.files.set_lock(fid, READ).await.unwrap();
    assert_eq!(
        two.files.fetch_status(fid).await.unwrap().status.lock_count,
        2
    );
    assert_eq!(code(two.files.set_lock(fid, WRITE).await), EAGAIN);
    one.files.release_lock(fid).await.unwrap();
    assert_eq!(one.callbacks.broken(), 0);
    assert_eq!(
        code(one.files.extend_lock(fid).await),
        EINVAL,
        "it is not its own"
    );
    two.files.extend_lock(fid).await.unwrap();
    // What one has no more it cannot give up.
    one.files.release_lock(fid).await.unwrap();
    // When the last one goes, those who wait hear of it.
    two.files.release_lock(fid).await.unwrap();
    assert_eq!(one.callbacks.broken(), 1);
    assert_eq!(code(two.files.extend_lock(fid).await), EINVAL);
    two.files.set_lock(fid, WRITE).await.unwrap();
    assert_eq!(
        one.files.fetch_status(fid).await.unwrap().status.lock_count,
        -1
    );
    assert_eq!(code(one.files.set_lock(fid, READ).await), EAGAIN);
    assert_eq!(code(one.files.set_lock(fid, 2).await), EINVAL);
}

#[tokio::test]
async fn the_forms_of_old_clients() {
    let cell = Cell::new().await;
    let client = cell.client();
    let fid = client.create(cell.root(), "a").await;
    let sync = VolSync::default;
    client.files.old_set_lock(fid, WRITE, sync()).await.unwrap();
    client.files.old_extend_lock(fid, sync()).await.unwrap();
    client.files.old_release_lock(fid, sync()).await.unwrap();
    assert_eq!(
        client
            .files
            .fetch_status(fid)
            .await
            .unwrap()
            .status
            .lock_count,
        0
    );
}

#[tokio::test]
async fn locks_are_given_up_by_nobody_else() {
    let cell = Cell::new().await;
    let (ann, stranger) = (cell.ann(), cell.client());
    let fid = ann.create(cell.root(), "a").await;
    cell.allow(cell.root(), &[(STAFF, "rlidwk")]);
    ann.files.set_lock(fid, WRITE).await.unwrap();
    let sync = VolSync::default;
    assert_eq!(code(stranger.files.release_lock(fid).await), EACCES);
    assert_eq!(
        code(stranger.files.old_release_lock(fid, sync()).await),
        EACCES
    );
    assert_eq!(code(stranger.files.extend_lock(fid).await), EINVAL);
    assert_eq!(
        code(stranger.files.old_extend_lock(fid, sync()).await),
        EINVAL
    );
    // The same user at another host, and the administration.
    for other in [cell.ann(), cell.admin()] {
        other.files.release_lock(fid).await.unwrap();
        assert_eq!(code(other.files.extend_lock(fid).await), EINVAL);
        let status = other.files.fetch_status(fid).await.unwrap().status;
        assert_eq!(status.lock_count, -1);
    }
    assert_eq!(
        ann.callbacks.broken(),
        0,
        "nobody made the server tell of it"
    );
    ann.files.extend_lock(fid).await.unwrap();
    ann.files.release_lock(fid).await.unwrap();
    assert_eq!(code(ann.files.extend_lock(fid).await), EINVAL);
}

#[tokio::test]
async fn rights_to_lock() {
    let cell = Cell::new().await;
    let (ann, client) = (cell.ann(), cell.client());
    let fid = ann.create(cell.root(), "a").await;
    cell.allow(cell.root(), &[(PtsId::ANYUSER, "lk"), (STAFF, "i")]);
    client.files.set_lock(fid, READ).await.unwrap();
    client.files.release_lock(fid).await.unwrap();
    assert_eq!(code(client.files.set_lock(fid, WRITE).await), EACCES);
    ann.files.set_lock(fid, WRITE).await.unwrap();
    // Gone with the file.
    let admin = cell.admin();
    admin
        .files
        .remove_file(cell.root(), name("a"))
        .await
        .unwrap();
    assert_eq!(code(ann.files.extend_lock(fid).await), VNOVNODE);
}
