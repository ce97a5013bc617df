//! Volumes and partitions as tools show them.

use afar_store::NewVolume;
use afar_types::{UnixTime, VolintInfo, VolumeType};
use afar_xdr::XdrString;

use crate::{A, AttachFlags, B, FINISHED, PartitionId, RO, RW, Site, TEMP, VolumeId, code, text};

const ENODEV: i32 = 19;
const ILLEGAL_PARTITION: i32 = 1_492_325_125;

#[tokio::test]
async fn a_volume_shows_all_there_is_of_it() {
    let site = Site::new().await;
    let volume = site.filled().await;
    site.clone_of(RW, RO, VolumeType::ReadOnly, "user.ann.readonly")
        .await;
    volume.count_use();
    volume.count_use();
    let state = volume.state().unwrap();
    let listed = site.vol.list_one_volume(A, RW).await.unwrap().volumes;
    let info = &listed[0];
    assert_eq!(info.name.as_bytes(), b"user.ann");
    assert_eq!(
        (info.volume, info.kind, info.status),
        (RW, 0, VolintInfo::OK)
    );
    assert_eq!((info.parent_id, info.clone_id), (RW, RO));
    assert!(info.in_use && !info.needs_salvage && !info.destroy_me);
    assert_eq!(info.file_count, 44);
    assert_eq!(u64::try_from(info.size).unwrap(), state.disk_used);
    assert!(info.size > 9 << 10);
    assert_eq!((info.max_quota, info.day_use, info.week_use), (0, 2, 0));
    assert_eq!(info.creation_date, state.creation_date);
    assert_eq!(info.update_date, state.update_date);
    assert!(info.update_date >= info.creation_date && info.copy_date > UnixTime(0));

    let all = site.vol.list_volumes(A, 1).await.unwrap().volumes;
    assert_eq!(all.len(), 2);
    assert_eq!(&all[0], info);
    assert_eq!((all[1].kind, all[1].parent_id), (1, RW));
    let extended = site.vol.x_list_volumes(A, 1).await.unwrap().volumes;
    assert_eq!(extended[0].size, info.size);
    assert_eq!(extended[1].name.as_bytes(), b"user.ann.readonly");
    let one = site.vol.x_list_one_volume(A, RW).await.unwrap().volumes;
    assert_eq!(one[0], extended[0]);
}

#[tokio::test]
async fn numbers_alone() {
    let site = Site::new().await;
    site.create(A, RW, "user.ann").await;
    let listed = site.vol.list_volumes(A, 0).await.unwrap().volumes;
    let bare = VolintInfo {
        volume: RW,
        ..VolintInfo::default()
    };
    assert_eq!(listed[..], [bare]);
    assert_eq!(
        site.vol.x_list_volumes(A, 0).await.unwrap().volumes[0].volume,
        RW
    );
}

#[tokio::test]
async fn volumes_that_are_worked_on_or_half_made() {
    let site = Site::new().await;
    site.create(A, RW, "user.ann").await;
    let half = site
        .vol
        .create_volume(A, text("half"), 0, VolumeId(0), TEMP)
        .await
        .unwrap();
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    let statuses = |infos: &[VolintInfo]| {
        let shown = infos.iter().map(|info| (info.volume, info.status));
        shown.collect::<Vec<_>>()
    };
    let (busy, ok) = (VolintInfo::BUSY, VolintInfo::OK);
    let listed = site.vol.list_volumes(A, 1).await.unwrap().volumes;
    assert_eq!(statuses(&listed), [(RW, busy), (TEMP, busy)]);
    assert!(listed[0].name.as_bytes().is_empty());
    let one = site.vol.list_one_volume(A, RW).await.unwrap().volumes;
    assert_eq!(statuses(&one), [(RW, busy)]);
    site.end(transaction).await;
    site.end(half.transaction).await;
    let listed = site.vol.list_volumes(A, 1).await.unwrap().volumes;
    assert_eq!(statuses(&listed), [(RW, ok)]);
    let one = site.vol.list_one_volume(A, TEMP).await.unwrap().volumes;
    assert_eq!(statuses(&one), [(TEMP, 0)]);
    assert_eq!(one[0].name.as_bytes(), b"V0536870999.vol");
    assert_eq!(site.vol.list_volumes(A, 0).await.unwrap().volumes.len(), 2);
    let transaction = site.begin(TEMP, AttachFlags::OFFLINE).await;
    site.set_flags(transaction, afar_types::TransactionFlags::OUT_OF_SERVICE)
        .await;
    site.end(transaction).await;
    let one = site.vol.list_one_volume(A, TEMP).await.unwrap().volumes;
    assert_eq!((one[0].status, one[0].in_use), (ok, false));
    let transaction = site.begin(TEMP, AttachFlags::OFFLINE).await;
    site.set_flags(transaction, FINISHED).await;
    site.end(transaction).await;
    assert!(site.vol.list_one_volume(A, TEMP).await.unwrap().volumes[0].in_use);
}

#[tokio::test]
async fn what_is_not_there() {
    let site = Site::new().await;
    assert_eq!(code(site.vol.list_one_volume(A, RW).await), ENODEV);
    assert_eq!(code(site.vol.x_list_one_volume(B, RW).await), ENODEV);
    for id in [2, 254, 255, u32::MAX].map(PartitionId) {
        assert_eq!(
            code(site.vol.list_one_volume(id, RW).await),
            ILLEGAL_PARTITION
        );
        assert_eq!(code(site.vol.list_volumes(id, 1).await), ILLEGAL_PARTITION);
        assert_eq!(
            code(site.vol.x_list_volumes(id, 0).await),
            ILLEGAL_PARTITION
        );
    }
    for name in ["", "/vicepc", "vicepa", "a", "/vicepa/", "0"] {
        let name = XdrString::new(name).unwrap();
        assert_eq!(
            code(site.vol.partition_info64(name).await),
            ILLEGAL_PARTITION
        );
    }
}

#[tokio::test]
async fn many_volumes() {
    let site = Site::new().await;
    let new: Vec<_> = (1..=4321)
        .map(|id| NewVolume::new(VolumeId(id), format!("vol.{id}")))
        .collect();
    site.partition(A).create_volumes(&new).unwrap();
    for flags in [0, 1] {
        let listed = site.vol.list_volumes(A, flags).await.unwrap().volumes;
        let ids: Vec<_> = listed.iter().map(|info| info.volume.0).collect();
        assert_eq!(ids, (1..=4321).collect::<Vec<_>>());
        let listed = site.vol.x_list_volumes(A, flags).await.unwrap().volumes;
        assert_eq!(listed.len(), 4321);
    }
}

#[tokio::test]
async fn partitions_and_their_space() {
    let site = Site::new().await;
    let partitions = site.vol.x_list_partitions().await.unwrap().partitions;
    assert_eq!(partitions[..], [A, B]);
    let slots = site.vol.list_partitions().await.unwrap().partitions.slots;
    assert_eq!((slots[0], slots[1], slots[2]), (0, 1, -1));
    let name = || XdrString::new("/vicepb").unwrap();
    let large = site.vol.partition_info64(name()).await.unwrap().partition;
    assert_eq!(large.name.as_bytes(), b"/vicepb");
    assert_eq!(large.total_usable, 0);
    assert!(large.total() > 0 && (0..=large.total()).contains(&large.free));
    let small = site.vol.partition_info(name()).await.unwrap().partition;
    assert_eq!(small.total_usable, 0);
    let most = i64::from(i32::MAX);
    assert_eq!(i64::from(small.total()), large.total().min(most));
}
