//! Requests that make no sense.

use std::time::Duration;

use afar_rpc::afsvol;
use afar_types::{TransactionId, UnixTime, VolumeType};
use bytes::{BufMut, Bytes, BytesMut};

use crate::{
    A, AttachFlags, B, BK, ENOENT, FINISHED, PartitionId, RO, RW, Site, TEMP, VNOVOL, VOLBUSY,
    VolumeId, assert_same, code, cookie, text,
};

const EIO: i32 = 5;
const E2BIG: i32 = 7;
const EXDEV: i32 = 18;
const EINVAL: i32 = 22;
const VVOLEXISTS: i32 = 104;
const VOFFLINE: i32 = 106;
const READ_DUMPERROR: i32 = 1_492_325_122;
const BADNAME: i32 = 1_492_325_129;
const BADOP: i32 = 1_492_325_131;
const NOVOL: i32 = 1_492_325_135;
const NONE: VolumeId = VolumeId(0);
const ELSEWHERE: PartitionId = PartitionId(9);

#[tokio::test(flavor = "multi_thread")]
async fn any_bytes_get_an_answer() {
    let site = Site::new().await;
    site.filled().await;
    let mut random = fastrand::Rng::with_seed(4);
    for round in 0..600 {
        let transaction = site.vol.trans_create(RW, A, AttachFlags::BUSY).await;
        let operation = afsvol::OPERATIONS[round % afsvol::OPERATIONS.len()];
        let mut request = BytesMut::new();
        request.put_u32(operation.opcode);
        if random.bool()
            && let Ok(begun) = &transaction
        {
            request.put_i32(begun.transaction.0);
        }
        let limit = [0, 16, 64, 600][random.usize(..4)];
        for _ in 0..random.usize(..=limit) {
            // Small numbers now and then, which reach further than large ones.
            request.put_u8(if random.u8(..4) == 0 {
                random.u8(..)
            } else {
                0
            });
        }
        let mut call = site.vol.connection().call().await.unwrap();
        call.send(request.freeze()).await.unwrap();
        call.finish().await.unwrap();
        let answer = call.read_to_end(64 << 20);
        let answered = tokio::time::timeout(Duration::from_secs(20), answer).await;
        assert!(answered.is_ok(), "{} hangs", operation.name);
        if let Ok(begun) = transaction {
            let _ended = site.vol.end_trans(begun.transaction).await;
        }
    }
    let left = site.vol.monitor().await.unwrap().transactions;
    for transaction in left.iter() {
        site.end(transaction.transaction).await;
    }
    assert!(site.vol.monitor().await.unwrap().transactions.is_empty());
}

#[tokio::test]
async fn volumes_that_cannot_be_made() {
    let site = Site::new().await;
    site.create(A, RW, "user.ann").await;
    let create = |partition, name: &str, kind, parent, id| {
        site.vol
            .create_volume(partition, text(name), kind, parent, id)
    };
    let long = "a".repeat(32);
    assert_eq!(code(create(A, &long, 0, NONE, TEMP).await), BADNAME);
    assert_eq!(code(create(A, "a b", 0, NONE, TEMP).await), BADNAME);
    assert_eq!(
        code(create(PartitionId(u32::MAX), "a", 0, NONE, TEMP).await),
        EINVAL
    );
    assert_eq!(code(create(A, "a", 3, NONE, TEMP).await), EINVAL);
    assert_eq!(code(create(A, "a", 0, NONE, NONE).await), E2BIG);
    assert_eq!(code(create(ELSEWHERE, "a", 0, NONE, TEMP).await), EIO);
    assert_eq!(code(create(A, "a", 0, NONE, RW).await), EIO);
    // Only a read-write volume can be in two places: it moves.
    assert_eq!(code(create(B, "a", 1, RO, RW).await), EIO);
    // None of them left a transaction.
    assert!(site.vol.monitor().await.unwrap().transactions.is_empty());
    create(A, "a", 0, NONE, TEMP).await.unwrap();
    assert_eq!(code(create(A, "a", 0, NONE, TEMP).await), VOLBUSY);
}

#[tokio::test]
async fn transactions_that_cannot_begin() {
    let site = Site::new().await;
    site.create(A, RW, "user.ann").await;
    let begin = |id, partition, flags| site.vol.trans_create(id, partition, AttachFlags(flags));
    assert_eq!(code(begin(RW, A, 0).await), EINVAL);
    assert_eq!(code(begin(RW, A, 4).await), EINVAL);
    assert_eq!(code(begin(RW, B, 2).await), VNOVOL);
    assert_eq!(code(begin(RW, ELSEWHERE, 2).await), VNOVOL);
    assert_eq!(code(begin(RW, PartitionId(u32::MAX), 2).await), EINVAL);
    assert_eq!(code(begin(TEMP, A, 1).await), VNOVOL);
    assert_eq!(code(begin(NONE, A, 1).await), VNOVOL);
    assert!(site.vol.monitor().await.unwrap().transactions.is_empty());
}

#[tokio::test]
async fn transactions_that_are_not_there() {
    let site = Site::new().await;
    let vol = &site.vol;
    for id in [0, -1, 1, i32::MAX].map(TransactionId) {
        assert_eq!(code(vol.end_trans(id).await), ENOENT);
        assert_eq!(code(vol.delete_volume(id).await), ENOENT);
        assert_eq!(code(vol.set_flags(id, FINISHED).await), ENOENT);
        assert_eq!(code(vol.get_flags(id).await), ENOENT);
        assert_eq!(code(vol.get_name(id).await), ENOENT);
        assert_eq!(code(vol.get_status(id).await), ENOENT);
        assert_eq!(code(vol.set_forwarding(id, 0).await), ENOENT);
        assert_eq!(code(vol.set_date(id, UnixTime(1)).await), ENOENT);
        assert_eq!(code(vol.get_size(id, UnixTime(0)).await), ENOENT);
        assert_eq!(code(vol.re_clone(id, RO).await), ENOENT);
        assert_eq!(code(vol.clone(id, NONE, 1, text("a"), RO).await), ENOENT);
        let group = vol.set_ids_types(id, text("a"), 0, RW, RO, BK).await;
        assert_eq!(code(group), ENOENT);
        let mut dump = vol.dump(id, UnixTime(0)).await.unwrap();
        assert_eq!(code(dump.chunk().await), ENOENT);
        let restored = site
            .restore(id, b"", cookie("a", VolumeType::ReadWrite, RO))
            .await;
        assert_eq!(code(restored), ENOENT);
    }
}

#[tokio::test]
async fn clones_that_cannot_be_made() {
    let site = Site::new().await;
    site.create(A, RW, "user.ann").await;
    site.create(A, TEMP, "other").await;
    site.clone_of(RW, RO, VolumeType::ReadOnly, "user.ann.readonly")
        .await;
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    let clone =
        |kind, name: &str, purge, id| site.vol.clone(transaction, purge, kind, text(name), id);
    assert_eq!(code(clone(1, &"a".repeat(32), NONE, BK).await), BADNAME);
    assert_eq!(code(clone(5, "a", NONE, BK).await), EINVAL);
    assert_eq!(code(clone(1, "a", NONE, NONE).await), EINVAL);
    assert_eq!(code(clone(1, "a", NONE, RW).await), VOLBUSY);
    assert_eq!(code(clone(1, "a", NONE, RO).await), VVOLEXISTS);
    assert_eq!(code(clone(1, "a", TEMP, BK).await), EINVAL);
    assert_eq!(code(clone(1, "a", VolumeId(77), BK).await), VNOVOL);
    assert_eq!(code(site.vol.re_clone(transaction, TEMP).await), EXDEV);
    assert_eq!(code(site.vol.re_clone(transaction, BK).await), VNOVOL);
    let other = site.begin(RO, AttachFlags::BUSY).await;
    assert_eq!(code(site.vol.re_clone(transaction, RO).await), VOLBUSY);
    site.end(other).await;
    site.create(B, BK, "elsewhere").await;
    assert_eq!(code(clone(2, "a", NONE, BK).await), EXDEV);
    assert_eq!(code(site.vol.re_clone(transaction, BK).await), EXDEV);
    // What is out of service is not cloned.
    site.set_flags(transaction, afar_types::TransactionFlags::OUT_OF_SERVICE)
        .await;
    assert_eq!(code(clone(1, "a", NONE, VolumeId(78)).await), VOFFLINE);
    assert_eq!(code(site.vol.re_clone(transaction, RO).await), VOFFLINE);
}

#[tokio::test]
async fn changes_that_cannot_be() {
    let site = Site::new().await;
    site.create(A, RW, "user.ann").await;
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    let set = |name: &str, kind| {
        site.vol
            .set_ids_types(transaction, text(name), kind, RW, RO, BK)
    };
    assert_eq!(code(set(&"a".repeat(32), 0).await), BADNAME);
    assert_eq!(code(set("1234", 0).await), BADNAME);
    assert_eq!(code(set("a", 9).await), EINVAL);
    assert_eq!(code(set("a", 1).await), BADOP);
    let changes = afar_types::VolumeChanges {
        max_quota: Some(-2),
        ..afar_types::VolumeChanges::default()
    };
    assert_eq!(code(site.vol.set_info(transaction, changes).await), EINVAL);
    assert_eq!(
        code(site.vol.nuke_volume(PartitionId(255), RW).await),
        NOVOL
    );
    assert_eq!(code(site.vol.nuke_volume(ELSEWHERE, RW).await), EINVAL);
    assert_eq!(code(site.vol.nuke_volume(A, NONE).await), EINVAL);
    assert_eq!(code(site.vol.nuke_volume(A, TEMP).await), ENOENT);
    let name = site.vol.get_name(transaction).await.unwrap().name;
    assert_eq!(name.as_bytes(), b"user.ann");
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_dump_changes_nothing() {
    let site = Site::new().await;
    let volume = site.filled().await;
    site.create(A, TEMP, "copy").await;
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    let whole = site.dump(transaction, 0).await;
    site.end(transaction).await;

    let transaction = site.begin(TEMP, AttachFlags::OFFLINE).await;
    let cookie = || cookie("copy", VolumeType::ReadWrite, NONE);
    site.restore(transaction, &whole, cookie()).await.unwrap();
    let copy = site.volume(A, TEMP);
    assert_same(&volume, &copy);

    let mut damaged = whole.clone();
    damaged[0] = 9;
    let mut behind = whole.clone();
    behind.push(0);
    let third = whole.len() / 3;
    for bad in [
        &whole[..third],
        &whole[..20],
        b"",
        &damaged,
        &behind,
        &whole[..whole.len() - 1],
    ] {
        let restored = site.restore(transaction, bad, cookie()).await;
        assert_eq!(code(restored), READ_DUMPERROR, "{} bytes", bad.len());
        assert_same(&volume, &copy);
    }
    // A client that goes away amidst its dump.
    let mut upload = site.vol.restore(transaction, 0, cookie()).await.unwrap();
    upload
        .send(Bytes::copy_from_slice(&whole[..third]))
        .await
        .unwrap();
    drop(upload);
    let gone = async {
        while site.vol.monitor().await.unwrap().transactions[0].call_valid {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone)
        .await
        .unwrap();
    assert_same(&volume, &copy);
    site.end(transaction).await;
    let report = site.volume(A, TEMP).state().unwrap();
    assert!(report.online);
}
