//! Statuses, volumes, and what a server tells everyone.

use afar_fileserver::volumes::Hold;
use afar_net::AbortCode;
use afar_store::{NewClone, VolumeChange};
use afar_types::{
    CallBackType, Fid, Fids, FileType, PtsId, Rights, StoreStatus, StoreVolumeStatus, VolumeId,
    VolumeType,
};
use afar_xdr::XdrString;

use super::cell::*;

#[tokio::test]
async fn a_root_s_status() {
    let cell = Cell::new().await;
    let reply = cell.client().files.fetch_status(cell.root()).await.unwrap();
    let status = reply.status;
    assert_eq!(
        (status.interface_version, status.file_type),
        (1, FileType::Directory)
    );
    assert_eq!(
        (status.length, status.link_count, status.data_version.0),
        (2048, 2, 1)
    );
    assert_eq!((status.parent_vnode.0, status.parent_uniquifier.0), (1, 1));
    assert_eq!(status.caller_access.to_string(), "rlidwk");
    assert_eq!(status.anonymous_access.to_string(), "rlidwk");
    assert_eq!((status.unix_mode_bits, status.residency_mask), (0o777, 1));
    assert_eq!(reply.callback.kind, CallBackType::Shared);
    assert!(reply.callback.expires_in > 3600);
    assert_eq!(
        reply.vol_sync.creation_date,
        cell.volume.state().unwrap().creation_date
    );
}

#[tokio::test]
async fn what_is_not_there() {
    let cell = Cell::new().await;
    let files = cell.client().files;
    let status = |fid| files.fetch_status(fid);
    assert_eq!(code(status(Fid::new(1, 1, 1)).await), VNOVOL);
    assert_eq!(code(status(Fid::new(0, 1, 1)).await), EINVAL);
    assert_eq!(code(status(Fid::new(VOLUME.0, 0, 0)).await), EINVAL);
    assert_eq!(code(status(Fid::new(VOLUME.0, 1, 2)).await), VNOVNODE);
    assert_eq!(code(status(Fid::new(VOLUME.0, 4, 1)).await), VNOVNODE);
}

#[tokio::test]
async fn volumes_that_are_held_or_away() {
    let cell = Cell::new().await;
    let client = cell.client();
    let volumes = cell.server.volumes();
    let held = volumes.hold(VOLUME, Hold::Busy).await.unwrap();
    client.files.fetch_status(cell.root()).await.unwrap();
    let made = client
        .files
        .create_file(cell.root(), name("a"), mode(0o644))
        .await;
    assert_eq!(code(made), VBUSY);
    drop(held);
    let held = volumes.hold(VOLUME, Hold::Offline).await.unwrap();
    assert_eq!(code(client.files.fetch_status(cell.root()).await), VOFFLINE);
    drop(held);
    volumes.set_moved(VOLUME, true);
    assert_eq!(
        code(client.files.fetch_status(cell.root()).await),
        AbortCode(111)
    );
    volumes.set_moved(VOLUME, false);
    let offline = VolumeChange {
        offline: Some(true),
        ..VolumeChange::default()
    };
    cell.volume.change(offline).unwrap();
    assert_eq!(code(client.files.fetch_status(cell.root()).await), VOFFLINE);
}

#[tokio::test]
async fn bulk_statuses() {
    let cell = Cell::new().await;
    let client = cell.client();
    let mut fids = vec![cell.root()];
    for number in 0..48 {
        fids.push(client.create(cell.root(), &format!("f{number}")).await);
    }
    let all = Fids::new(fids.clone()).unwrap();
    let reply = client.files.bulk_status(all).await.unwrap();
    assert_eq!((reply.statuses.len(), reply.callbacks.len()), (49, 49));
    fids.push(Fid::new(VOLUME.0, 1000, 1));
    let some = Fids::new(fids.clone()).unwrap();
    assert_eq!(code(client.files.bulk_status(some.clone()).await), VNOVNODE);
    let reply = client.files.inline_bulk_status(some).await.unwrap();
    for (fid, status) in fids.iter().zip(&reply.statuses).take(49) {
        let alone = client.files.fetch_status(*fid).await.unwrap().status;
        assert_eq!((status, status.error_code), (&alone, 0));
    }
    let (last, callback) = (reply.statuses[49], reply.callbacks[49]);
    assert_eq!((last.interface_version, last.error_code), (1, 102));
    assert_eq!(
        (last.file_type, callback.kind),
        (FileType::Invalid, CallBackType::None)
    );
    assert_eq!(reply.callbacks[1].kind, CallBackType::Shared);
    assert_ne!(reply.vol_sync.creation_date.0, 0);
    let none = client.files.inline_bulk_status(Fids::default()).await;
    assert_eq!(code(none), EINVAL);
}

#[tokio::test]
async fn attributes_are_set_and_others_hear_of_it() {
    let cell = Cell::new().await;
    let (client, other) = (cell.client(), cell.client());
    let fid = client.create(cell.root(), "a").await;
    other.files.fetch_status(fid).await.unwrap();
    let set = client
        .files
        .store_status(fid, mode(0o600))
        .await
        .unwrap()
        .status;
    assert_eq!(
        (set.unix_mode_bits, set.client_mod_time.0),
        (0o600, 1_000_000)
    );
    assert_eq!(set.data_version.0, 0, "the data is as it was");
    assert_eq!(other.callbacks.broken(), 1);
    assert_eq!(client.callbacks.broken(), 0);
    let give = StoreStatus {
        mask: StoreStatus::SET_OWNER,
        owner: ANN,
        ..StoreStatus::default()
    };
    assert_eq!(code(client.files.store_status(fid, give).await), EPERM);
    let given = cell
        .admin()
        .files
        .store_status(fid, give)
        .await
        .unwrap()
        .status;
    assert_eq!(given.owner, ANN);
    // The root's owner is the volume's.
    cell.admin()
        .files
        .store_status(cell.root(), give)
        .await
        .unwrap();
    assert_eq!(cell.volume.state().unwrap().owner, ANN);
    let target = XdrString::new("b").unwrap();
    let link = client
        .files
        .symlink(cell.root(), name("l"), target, mode(0o755))
        .await
        .unwrap();
    let mounts = client.files.store_status(link.fid, mode(0o644)).await;
    assert_eq!(
        code(mounts),
        EINVAL,
        "a symlink cannot be made a mount point"
    );
}

#[tokio::test]
async fn clones_are_read_and_not_changed() {
    let cell = Cell::new().await;
    let client = cell.client();
    let fid = client.create(cell.root(), "a").await;
    client.store(fid, 0, b"old", 3).await.unwrap();
    let backup = VolumeId(VOLUME.0 + 2);
    cell.volume
        .make_clone(&NewClone::new(
            backup,
            "user.ann.backup",
            VolumeType::Backup,
        ))
        .unwrap();
    client.store(fid, 0, b"new", 3).await.unwrap();
    let there = Fid {
        volume: backup,
        ..fid
    };
    let (data, reply) = client.fetch(there, 0, 10).await.unwrap();
    assert_eq!(
        (&data[..], reply.callback.kind),
        (&b"old"[..], CallBackType::Shared)
    );
    assert_eq!(code(client.store(there, 0, b"x", 1).await), EROFS);
    let made = client
        .files
        .create_file(Fid::root(backup), name("b"), mode(0))
        .await;
    assert_eq!(code(made), EROFS);
    client.files.set_lock(there, 0).await.unwrap();
    client.files.extend_lock(there).await.unwrap();
    client.files.release_lock(there).await.unwrap();
    assert_eq!(code(client.files.set_lock(there, 1).await), EROFS);
    assert_eq!(
        client
            .files
            .fetch_status(there)
            .await
            .unwrap()
            .status
            .lock_count,
        0
    );
}

#[tokio::test]
async fn volume_statuses() {
    let cell = Cell::new().await;
    let client = cell.client();
    let reply = client.files.get_volume_status(VOLUME).await.unwrap();
    let status = reply.status;
    assert_eq!(
        (status.volume, status.parent, status.kind),
        (VOLUME, VOLUME, 1)
    );
    assert!(status.online && status.in_service && status.blessed && !status.needs_salvage);
    assert!(status.partition_max_blocks >= status.partition_blocks_available);
    assert!(status.partition_max_blocks > 0);
    assert_eq!(reply.name.as_bytes(), b"user.ann");
    let wanted = StoreVolumeStatus {
        mask: StoreVolumeStatus::SET_MAX_QUOTA,
        min_quota: 5,
        max_quota: 4711,
    };
    let none = || XdrString::new("").unwrap();
    let set = |client: Client, motd: &'static str| async move {
        let motd = XdrString::new(motd).unwrap();
        client
            .files
            .set_volume_status(VOLUME, wanted, XdrString::new("").unwrap(), none(), motd)
            .await
    };
    assert_eq!(code(set(cell.client(), "").await), EACCES);
    set(cell.admin(), "Hello.").await.unwrap();
    set(cell.admin(), "").await.unwrap();
    let reply = client.files.get_volume_status(VOLUME).await.unwrap();
    assert_eq!((reply.status.max_quota, reply.status.min_quota), (4711, 0));
    assert_eq!(reply.message_of_the_day.as_bytes(), b"Hello.");
    assert_eq!(
        code(client.files.get_volume_status(VolumeId(0)).await),
        EINVAL
    );
    assert_eq!(
        code(client.files.get_volume_status(VolumeId(9)).await),
        VNOVOL
    );
}

#[tokio::test]
async fn what_everyone_is_told() {
    let cell = Cell::new().await;
    let files = cell.client().files;
    assert_eq!(
        files.get_capabilities().await.unwrap().capabilities[..],
        [7]
    );
    assert!(files.get_time().await.unwrap().seconds > 1_700_000_000);
    assert_eq!(
        files.get_root_volume().await.unwrap().name.as_bytes(),
        b"root.afs"
    );
    let named = |text| XdrString::new(text).unwrap();
    assert_eq!(code(files.get_volume_info(named("x")).await), VNOVOL);
    assert_eq!(code(files.n_get_volume_info(named("x")).await), VNOVOL);
    assert_eq!(
        code(files.lookup(cell.root(), named("x")).await),
        AbortCode(22)
    );
    assert_eq!(code(files.call_back_rx_conn_addr(1).await), AbortCode(1));
    let statistics = files.get_statistics().await.unwrap().statistics;
    assert_eq!(statistics.disks[0].name.0[..8], *b"/vicepa\0");
    assert!(statistics.total_vice_calls >= 5);
    assert_eq!(
        files.get_statistics64(16).await.unwrap().statistics.len(),
        16
    );
    assert_eq!(code(files.get_statistics64(15).await), AbortCode(22));
    assert_eq!(files.x_stats_version().await.unwrap().version, 2);
    for (collection, words) in [(0, 0), (1, 98), (2, 424), (3, 16)] {
        assert_eq!(
            files.get_x_stats(0, collection).await.unwrap().data.len(),
            words
        );
    }
    assert_eq!(code(files.get_x_stats(0, 4).await), AbortCode(1));
    let counted = |wanted: &str| {
        let stats = cell.server.stats();
        let row = stats
            .operations()
            .find(|(name, ..)| *name == wanted)
            .unwrap();
        (row.1, row.2)
    };
    assert_eq!(
        (counted("get_capabilities"), counted("get_x_stats")),
        ((1, 0), (4, 1))
    );
}

#[tokio::test]
async fn promises_are_given_up() {
    let cell = Cell::new().await;
    let (client, other) = (cell.client(), cell.client());
    let fid = client.create(cell.root(), "a").await;
    let standing = || cell.server.hosts().stats().promises;
    other.files.fetch_status(fid).await.unwrap();
    other.files.fetch_status(cell.root()).await.unwrap();
    let before = standing();
    let one = Fids::new(vec![fid]).unwrap();
    other
        .files
        .give_up_call_backs(one, afar_types::CallBacks::default())
        .await
        .unwrap();
    assert_eq!(standing(), before - 1);
    client.store(fid, 0, b"x", 1).await.unwrap();
    assert_eq!(other.callbacks.broken(), 0);
    other.files.give_up_all_call_backs().await.unwrap();
    assert_eq!(standing(), before - 2);
}

#[tokio::test]
async fn rights_in_statuses() {
    let cell = Cell::new().await;
    let client = cell.client();
    let fid = client.create(cell.root(), "a").await;
    let access = |client: Client| async move {
        client
            .files
            .fetch_status(fid)
            .await
            .unwrap()
            .status
            .caller_access
    };
    // The maker is anonymous, and so is everybody else here.
    assert_eq!(access(cell.client()).await.to_string(), "rlidwka");
    assert_eq!(access(cell.ann()).await.to_string(), "rlidwk");
    assert_eq!(access(cell.admin()).await, Rights::ALL);
    cell.allow(cell.root(), &[(STAFF, "rl"), (PtsId::AUTHUSER, "k")]);
    assert_eq!(access(cell.ann()).await.to_string(), "rlk");
    assert_eq!(code(cell.client().files.fetch_status(fid).await), EACCES);
    cell.client().files.fetch_status(cell.root()).await.unwrap();
}
