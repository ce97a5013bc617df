//! How transactions begin, keep volumes, and end.

use std::time::Duration;

use afar_fileserver::volser::VolserConfig;
use afar_fileserver::volumes::Intent;
use afar_rpc::Identity;
use afar_types::error::{VBUSY, VMOVED, VOFFLINE};
use afar_types::{TransactionFlags, TransactionId, UnixTime, VolumeType};

use crate::{
    A, AttachFlags, B, ENOENT, FINISHED, RO, RW, Site, TEMP, UNFINISHED, VNOVOL, VOLBUSY, VolumeId,
    code, cookie, noise, text,
};

const EROFS: i32 = 30;
const NO_MEMORY: i32 = 1_492_325_134;

/// The codes clients get who read and who change.
pub(crate) fn clients(site: &Site) -> [i32; 2] {
    [Intent::Read, Intent::Change].map(|intent| match site.volumes.enter(RW, intent) {
        Ok(_) => 0,
        Err(code) => code.0,
    })
}

#[tokio::test]
async fn one_a_volume_counted_from_1() {
    let site = Site::new().await;
    let made = site
        .vol
        .create_volume(A, text("one"), 0, VolumeId(0), RW)
        .await;
    assert_eq!(made.unwrap().transaction, TransactionId(1));
    let busy = site.vol.trans_create(RW, A, AttachFlags::BUSY).await;
    assert_eq!(code(busy), VOLBUSY);
    site.set_flags(TransactionId(1), FINISHED).await;
    site.end(TransactionId(1)).await;
    assert_eq!(code(site.vol.end_trans(TransactionId(1)).await), ENOENT);
    assert_eq!(site.begin(RW, AttachFlags::BUSY).await, TransactionId(2));
    assert_eq!(
        code(site.vol.trans_create(RW, A, AttachFlags::BUSY).await),
        VOLBUSY
    );
    // What was refused takes no number.
    site.create(A, TEMP, "other").await;
    assert_eq!(site.begin(TEMP, AttachFlags::BUSY).await, TransactionId(4));
}

#[tokio::test]
async fn clients_are_kept_away_as_the_flags_say() {
    let site = Site::new().await;
    site.create(A, RW, "one").await;
    assert_eq!(clients(&site), [0, 0]);
    for (flags, expected) in [
        (AttachFlags::BUSY, [0, VBUSY]),
        (AttachFlags::OFFLINE, [VOFFLINE, VOFFLINE]),
        (AttachFlags::CREATE, [VOFFLINE, VOFFLINE]),
        (AttachFlags::READ_ONLY, [0, 0]),
        (AttachFlags(3), [0, VBUSY]),
    ] {
        let transaction = site.begin(RW, flags).await;
        assert_eq!(clients(&site), expected, "{flags:?}");
        site.end(transaction).await;
        assert_eq!(clients(&site), [0, 0], "{flags:?}");
    }
}

#[tokio::test]
async fn who_only_reads_changes_nothing() {
    let site = Site::new().await;
    site.create(A, RW, "one").await;
    let transaction = site.begin(RW, AttachFlags::READ_ONLY).await;
    assert_eq!(
        code(site.vol.set_flags(transaction, UNFINISHED).await),
        EROFS
    );
    assert_eq!(code(site.vol.delete_volume(transaction).await), EROFS);
    let restored = site.restore(transaction, b"", cookie("a", VolumeType::ReadWrite, RO));
    assert_eq!(code(restored.await), EROFS);
    assert_eq!(
        code(site.vol.set_date(transaction, UnixTime(1)).await),
        EROFS
    );
    assert!(!site.dump(transaction, 0).await.is_empty());
}

#[tokio::test]
async fn flags_decide_what_becomes_of_a_volume() {
    let site = Site::new().await;
    site.create(A, RW, "one").await;
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    assert_eq!(
        site.vol.get_flags(transaction).await.unwrap().flags,
        FINISHED
    );
    site.set_flags(transaction, TransactionFlags::OUT_OF_SERVICE)
        .await;
    let flags = site.vol.get_flags(transaction).await.unwrap().flags;
    assert_eq!(flags, TransactionFlags::OUT_OF_SERVICE);
    site.end(transaction).await;
    let state = site.volume(A, RW).state().unwrap();
    assert!(!state.in_service && !state.online && !state.destroy_me);
    let transaction = site.begin(RW, AttachFlags::OFFLINE).await;
    site.set_flags(transaction, UNFINISHED).await;
    assert!(site.volume(A, RW).state().unwrap().destroy_me);
    // That it is deleted, no caller can say.
    site.set_flags(transaction, TransactionFlags::DELETED).await;
    assert_eq!(
        site.vol.get_flags(transaction).await.unwrap().flags,
        FINISHED
    );
    site.end(transaction).await;
    assert!(site.volume(A, RW).state().unwrap().online);
}

#[tokio::test]
async fn clients_wait_for_a_volume_that_is_taken_out_of_service_to_move() {
    let site = Site::new().await;
    site.create(A, RW, "one").await;
    let out = TransactionFlags::OUT_OF_SERVICE;
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    for flags in [out, UNFINISHED] {
        site.set_flags(transaction, flags).await;
        assert_eq!(clients(&site), [VBUSY, VBUSY], "{flags:?}");
        site.set_flags(transaction, FINISHED).await;
        assert_eq!(clients(&site), [0, VBUSY], "{flags:?}");
    }
    site.set_flags(transaction, out).await;
    site.end(transaction).await;
    assert!(!site.volume(A, RW).state().unwrap().online);
    // What was out of service before is not about to come back: its header answers for it.
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    site.set_flags(transaction, out).await;
    assert_eq!(clients(&site), [0, VBUSY]);
    site.end(transaction).await;
    // It has moved: no reason to wait.
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    site.set_flags(transaction, FINISHED).await;
    site.set_flags(transaction, out).await;
    site.vol
        .set_forwarding(transaction, 0x0100_007f)
        .await
        .unwrap();
    assert_eq!(clients(&site), [VMOVED, VMOVED]);
}

#[tokio::test]
async fn a_deleted_volume_leaves_only_the_end() {
    let site = Site::new().await;
    site.create(A, RW, "one").await;
    let transaction = site.begin(RW, AttachFlags::OFFLINE).await;
    site.broken.take();
    site.vol.delete_volume(transaction).await.unwrap();
    assert_eq!(site.broken.take(), [RW]);
    assert_eq!(code(site.vol.delete_volume(transaction).await), ENOENT);
    assert_eq!(code(site.vol.get_status(transaction).await), ENOENT);
    let shown = site.vol.monitor().await.unwrap().transactions;
    assert!(shown[0].flags.contains(TransactionFlags::DELETED));
    site.end(transaction).await;
    assert_eq!(
        code(site.vol.trans_create(RW, A, AttachFlags::BUSY).await),
        VNOVOL
    );
}

#[tokio::test]
async fn what_moved_is_found_elsewhere() {
    let site = Site::new().await;
    site.create(A, RW, "one").await;
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    site.vol
        .set_forwarding(transaction, 0x0100_007f)
        .await
        .unwrap();
    assert_eq!(clients(&site), [VMOVED, VBUSY]);
    site.vol.delete_volume(transaction).await.unwrap();
    site.end(transaction).await;
    assert_eq!(clients(&site), [VMOVED, VMOVED]);
    // It comes back.
    site.create(B, RW, "one").await;
    assert_eq!(clients(&site), [0, 0]);
    // A client that says so and stays is not believed.
    let transaction = site.begin_on(B, RW, AttachFlags::BUSY).await;
    site.vol
        .set_forwarding(transaction, 0x0100_007f)
        .await
        .unwrap();
    site.end(transaction).await;
    assert_eq!(clients(&site), [0, 0]);
}

fn short() -> VolserConfig {
    VolserConfig::default()
        .idle_limit(Duration::from_millis(400))
        .sweep_interval(Duration::from_millis(50))
}

async fn forgotten(site: &Site) {
    let gone = async {
        while !site.vol.monitor().await.unwrap().transactions.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone)
        .await
        .unwrap();
}

#[tokio::test]
async fn idle_transactions_are_given_up() {
    let site = Site::with(short(), Identity::Superuser).await;
    site.create(A, RW, "stays").await;
    let transaction = site.begin(RW, AttachFlags::OFFLINE).await;
    let made = site
        .vol
        .create_volume(A, text("goes"), 0, VolumeId(0), TEMP)
        .await;
    site.broken.take();
    forgotten(&site).await;
    assert_eq!(code(site.vol.end_trans(transaction).await), ENOENT);
    assert_eq!(
        code(site.vol.end_trans(made.unwrap().transaction).await),
        ENOENT
    );
    assert_eq!(clients(&site), [0, 0]);
    assert!(!site.partition(A).has_volume(TEMP).unwrap());
    assert_eq!(site.broken.take(), [TEMP]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_progress_is_not_idle() {
    let site = Site::with(short(), Identity::Superuser).await;
    site.filled().await;
    let transaction = site.begin(RW, AttachFlags::OFFLINE).await;
    let stream = site.dump(transaction, 0).await;
    let cookie = cookie("user.ann", VolumeType::ReadWrite, VolumeId(0));
    let mut upload = site.vol.restore(transaction, 0, cookie).await.unwrap();
    for piece in stream.chunks(stream.len() / 3 + 1) {
        upload.send(piece.to_vec().into()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    upload.finish().await.unwrap();
    site.end(transaction).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_waits_for_the_call_that_uses_it() {
    let site = Site::new().await;
    let volume = site.filled().await;
    let root = volume.root();
    crate::new_file(&volume, root, "larger", &noise(30 << 20, 3));
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    let mut dump = site.vol.dump(transaction, UnixTime(0)).await.unwrap();
    let first = dump.chunk().await.unwrap().unwrap();
    site.end(transaction).await;
    let shown = site.vol.monitor().await.unwrap().transactions;
    assert_eq!((shown[0].deleted, shown[0].call_valid), (1, true));
    assert_eq!(clients(&site), [0, VBUSY]);
    assert_eq!(
        code(site.vol.trans_create(RW, A, AttachFlags::BUSY).await),
        VOLBUSY
    );
    let mut octets = first.len();
    while let Some(piece) = dump.chunk().await.unwrap() {
        octets += piece.len();
    }
    assert!(octets > 30 << 20);
    forgotten(&site).await;
    assert_eq!(clients(&site), [0, 0]);
}

#[tokio::test]
async fn there_is_a_limit() {
    let config = VolserConfig::default().max_transactions(2);
    let site = Site::with(config, Identity::Superuser).await;
    for id in [RW, RO, TEMP] {
        site.create(A, id, "one").await;
    }
    let first = site.begin(RW, AttachFlags::BUSY).await;
    site.begin(RO, AttachFlags::BUSY).await;
    let third = site.vol.trans_create(TEMP, A, AttachFlags::BUSY).await;
    assert_eq!(code(third), NO_MEMORY);
    site.end(first).await;
    site.begin(TEMP, AttachFlags::BUSY).await;
}

#[tokio::test]
async fn monitor_shows_them() {
    let site = Site::new().await;
    site.create(A, RW, "one").await;
    site.create(B, TEMP, "two").await;
    let before = UnixTime::from(std::time::SystemTime::now());
    let first = site.begin(RW, AttachFlags::BUSY).await;
    let second = site.begin_on(B, TEMP, AttachFlags::OFFLINE).await;
    site.vol.get_status(first).await.unwrap();
    let shown = site.vol.monitor().await.unwrap().transactions;
    let ids: Vec<_> = shown.iter().map(|shown| shown.transaction).collect();
    assert_eq!(ids, [second, first]);
    let shown = &shown[1];
    assert_eq!((shown.volume, shown.partition), (RW, A));
    assert_eq!(shown.attach_flags, AttachFlags::BUSY);
    assert_eq!(shown.last_procedure.as_bytes(), b"GetStatus");
    assert!(shown.creation_time >= before && shown.time >= shown.creation_time);
    assert_eq!(
        (shown.return_code, shown.deleted, shown.call_valid),
        (0, 0, false)
    );
}
