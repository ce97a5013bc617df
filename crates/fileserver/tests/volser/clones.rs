//! Making volumes, clones, and volumes of clones.

use afar_types::{FileType, UnixTime, VolumeChanges, VolumeId, VolumeType};

use crate::{
    A, AttachFlags, B, BK, FINISHED, RO, RW, Site, TEMP, assert_same, code, new_file, next_second,
    noise, text, write,
};

const EXDEV: i32 = 18;
const ENODEV: i32 = 19;
const NONE: VolumeId = VolumeId(0);

#[tokio::test]
async fn a_new_volume_is_out_of_service_until_told() {
    let site = Site::new().await;
    let made = site
        .vol
        .create_volume(A, text("user.ann"), 0, NONE, RW)
        .await
        .unwrap();
    let state = site.volume(A, RW).state().unwrap();
    assert!(state.destroy_me && !state.in_service && !state.online);
    assert_eq!((state.parent, state.max_quota), (RW, 5000));
    let status = site.vol.get_status(made.transaction).await.unwrap().status;
    assert_eq!((status.volume, status.parent_id, status.kind), (RW, RW, 0));
    assert_eq!(status.max_quota, 5000);
    assert_eq!(status.creation_date, status.copy_date);
    site.set_flags(made.transaction, FINISHED).await;
    site.end(made.transaction).await;
    let volume = site.volume(A, RW);
    assert!(volume.state().unwrap().online);
    let root = volume.status(volume.root()).unwrap();
    assert_eq!(
        (root.file_type, root.mode, root.link_count),
        (FileType::Directory, 0o777, 2)
    );
    assert_eq!((root.data_version.0, root.owner.0), (1, 0));
}

#[tokio::test]
async fn a_volume_that_is_its_own_parent_awaits_a_dump() {
    let site = Site::new().await;
    site.vol
        .create_volume(A, text("user.ann"), 0, RW, RW)
        .await
        .unwrap();
    let volume = site.volume(A, RW);
    assert_eq!(volume.state().unwrap().file_count, 0);
}

#[tokio::test]
async fn what_is_not_finished_goes_with_a_restart() {
    let site = Site::new().await;
    site.filled().await;
    site.vol
        .create_volume(A, text("half"), 0, NONE, TEMP)
        .await
        .unwrap();
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    let clone = site
        .vol
        .clone(transaction, NONE, 1, text("user.ann.readonly"), RO);
    clone.await.unwrap();
    let backup = site
        .vol
        .clone(transaction, NONE, 2, text("user.ann.backup"), BK);
    backup.await.unwrap();
    site.end(transaction).await;
    let transaction = site.begin(BK, AttachFlags::OFFLINE).await;
    site.set_flags(transaction, FINISHED).await;
    let partition = site.stop().await.open("a");
    let left = [RW, RO, BK, TEMP].map(|id| partition.has_volume(id).unwrap());
    assert_eq!(left, [true, false, true, false]);
}

#[tokio::test]
async fn a_clone_is_of_one_moment() {
    let site = Site::new().await;
    let volume = site.filled().await;
    site.broken.take();
    site.clone_of(RW, RO, VolumeType::ReadOnly, "user.ann.readonly")
        .await;
    assert_eq!(site.broken.take(), [RO]);
    let clone = site.volume(A, RO);
    assert_same(&volume, &clone);
    let state = clone.state().unwrap();
    assert_eq!((state.kind, state.parent), (VolumeType::ReadOnly, RW));
    assert_eq!(volume.state().unwrap().clone, RO);
    let first = state.creation_date;

    next_second().await;
    let root = volume.root();
    new_file(&volume, root, "later", b"later");
    assert!(clone.lookup(clone.root(), b"later").is_err());

    // A name given meanwhile is followed.
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    let renamed = site
        .vol
        .set_ids_types(transaction, text("user.eve"), 0, RW, RO, BK);
    renamed.await.unwrap();
    site.broken.take();
    site.vol.re_clone(transaction, RO).await.unwrap();
    assert_eq!(site.broken.take(), [RO]);
    site.end(transaction).await;
    assert_same(&volume, &clone);
    let again = clone.state().unwrap();
    assert_eq!(again.name, "user.eve.readonly");
    assert!(again.online && again.creation_date > first);
    assert_eq!(again.copy_date, state.copy_date);
}

#[tokio::test]
async fn backups_are_made_and_renewed() {
    let site = Site::new().await;
    let volume = site.filled().await;
    site.clone_of(RW, BK, VolumeType::Backup, "user.ann.backup")
        .await;
    let state = volume.state().unwrap();
    let backup = site.volume(A, BK);
    assert_eq!(
        (state.backup, state.backup_date),
        (BK, backup.state().unwrap().backup_date)
    );
    assert!(state.backup_date > UnixTime(0));
    new_file(&volume, volume.root(), "later", &noise(100_000, 9));
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    site.vol.re_clone(transaction, BK).await.unwrap();
    site.end(transaction).await;
    assert_same(&volume, &backup);
}

#[tokio::test]
async fn a_clone_can_take_the_place_of_another() {
    let site = Site::new().await;
    let volume = site.filled().await;
    site.clone_of(RW, RO, VolumeType::ReadOnly, "user.ann.readonly")
        .await;
    new_file(&volume, volume.root(), "later", b"later");
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    // The same number: the clone is renewed, and not in service before it is said to be.
    site.vol
        .clone(transaction, RO, 1, text("renewed"), RO)
        .await
        .unwrap();
    let state = site.volume(A, RO).state().unwrap();
    assert_eq!(
        (&*state.name, state.in_service, state.destroy_me),
        ("renewed", false, true)
    );
    let renewed = site.begin(RO, AttachFlags::OFFLINE).await;
    site.set_flags(renewed, FINISHED).await;
    site.end(renewed).await;
    assert_same(&volume, &site.volume(A, RO));
    // Another: the old one goes.
    site.vol
        .clone(transaction, RO, 1, text("other"), TEMP)
        .await
        .unwrap();
    assert!(!site.partition(A).has_volume(RO).unwrap());
    assert_eq!(volume.state().unwrap().clone, TEMP);
}

#[tokio::test]
async fn a_read_write_clone_goes_its_own_way() {
    let site = Site::new().await;
    let volume = site.filled().await;
    site.clone_of(RW, TEMP, VolumeType::ReadWrite, "user.eve")
        .await;
    let copy = site.volume(A, TEMP);
    assert_same(&volume, &copy);
    new_file(&copy, copy.root(), "of the copy", b"1");
    assert!(volume.lookup(volume.root(), b"of the copy").is_err());
    assert_eq!(copy.state().unwrap().parent, TEMP);
}

#[tokio::test]
async fn a_read_only_volume_becomes_the_read_write_one() {
    let site = Site::new().await;
    let volume = site.filled().await;
    site.clone_of(RW, RO, VolumeType::ReadOnly, "user.ann.readonly")
        .await;
    let convert = |partition, id| site.vol.convert_ro_to_rw_volume(partition, id);
    assert_eq!(code(convert(A, RO).await), EXDEV);
    assert_eq!(code(convert(A, TEMP).await), ENODEV);
    assert_eq!(code(convert(B, RO).await), ENODEV);
    let stream = tree_of(&site).await;
    let transaction = site.begin(RW, AttachFlags::OFFLINE).await;
    site.vol.delete_volume(transaction).await.unwrap();
    site.end(transaction).await;
    drop(volume);
    site.broken.take();
    convert(A, RO).await.unwrap();
    assert_eq!(site.broken.take(), [RO, RW]);
    let made = site.volume(A, RW);
    let state = made.state().unwrap();
    assert_eq!(
        (&*state.name, state.kind, state.parent),
        ("user.ann", VolumeType::ReadWrite, RW)
    );
    assert_eq!(state.clone, RO);
    assert!(state.online && !site.partition(A).has_volume(RO).unwrap());
    assert_eq!(tree_of(&site).await.len(), stream.len());
    let file = made.lookup(made.root(), b"large").unwrap();
    write(&made, file, b"changed");
}

/// All of the read-write volume, as a dump.
async fn tree_of(site: &Site) -> Vec<u8> {
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    let stream = site.dump(transaction, 0).await;
    let size = site
        .vol
        .get_size(transaction, UnixTime(0))
        .await
        .unwrap()
        .size;
    assert_eq!(size, stream.len() as u64);
    site.end(transaction).await;
    stream
}

#[tokio::test]
async fn quota_and_dates_are_set() {
    let site = Site::new().await;
    site.create(A, RW, "user.ann").await;
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    let changes = VolumeChanges {
        max_quota: Some(77),
        day_use: Some(5),
        creation_date: Some(UnixTime(1_000_000_000)),
        update_date: Some(UnixTime(1_100_000_000)),
        update_counter: Some(9),
    };
    site.vol.set_info(transaction, changes).await.unwrap();
    let state = site.volume(A, RW).state().unwrap();
    assert_eq!(
        (state.max_quota, state.day_use, state.update_counter),
        (77, 5, 9)
    );
    assert_eq!(state.creation_date, UnixTime(1_000_000_000));
    assert_eq!(state.update_date, UnixTime(1_100_000_000));
    // Nothing given, nothing changed.
    let nothing = VolumeChanges::default();
    site.vol.set_info(transaction, nothing).await.unwrap();
    assert_eq!(site.volume(A, RW).state().unwrap(), state);
    site.vol
        .set_date(transaction, UnixTime(1_200_000_000))
        .await
        .unwrap();
    let status = site.vol.get_status(transaction).await.unwrap().status;
    assert_eq!(status.creation_date, UnixTime(1_200_000_000));
    let named = site
        .vol
        .set_ids_types(transaction, text("user.eve"), 0, RW, RO, BK);
    named.await.unwrap();
    let status = site.vol.get_status(transaction).await.unwrap().status;
    assert_eq!((status.clone_id, status.backup_id), (RO, BK));
}

#[tokio::test]
async fn force_needs_no_transaction() {
    let site = Site::new().await;
    site.create(A, RW, "user.ann").await;
    let transaction = site.begin(RW, AttachFlags::OFFLINE).await;
    site.broken.take();
    site.vol.nuke_volume(A, RW).await.unwrap();
    assert_eq!(site.broken.take(), [RW]);
    assert!(!site.partition(A).has_volume(RW).unwrap());
    assert_eq!(code(site.vol.get_name(transaction).await), 103);
    site.end(transaction).await;
}
