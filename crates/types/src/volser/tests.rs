use std::net::Ipv4Addr;

use afar_xdr::{Decode, Encode, from_bytes, to_bytes};
use proptest::prelude::*;

use super::*;
use crate::{PtsId, TransactionId, Uniquifier, UnixTime, VolumeId, VolumeType};

fn words(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}

/// A name as `N` words.
fn letters<const N: usize>(name: &str) -> impl Iterator<Item = u32> {
    let bytes = name.bytes().chain(std::iter::repeat(0)).take(N);
    bytes.map(u32::from)
}

fn round_trip<T: Decode + Encode + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> T {
    assert_eq!((T::MIN_LEN, T::MAX_LEN), (bytes.len(), bytes.len()));
    let value: T = from_bytes(bytes).unwrap();
    assert_eq!(to_bytes(&value)[..], *bytes, "{value:?}");
    value
}

#[test]
fn a_listed_volume_has_55_words() {
    // Words 39 to 41 of the structure, counted from 0, are booleans.
    let mut rest: Vec<u32> = (32..55).collect();
    rest[7..10].copy_from_slice(&[1, 0, 1]);
    let info: VolintInfo = round_trip(&words(letters::<32>("root.cell").chain(rest)));
    assert_eq!(info.name.as_bytes(), b"root.cell");
    assert_eq!((info.volume, info.kind), (VolumeId(32), 33));
    assert_eq!(
        (info.backup_id, info.parent_id),
        (VolumeId(34), VolumeId(35))
    );
    assert_eq!((info.clone_id, info.status), (VolumeId(36), 37));
    assert_eq!(info.copy_date, UnixTime(38));
    assert_eq!(
        (info.in_use, info.needs_salvage, info.destroy_me),
        (true, false, true)
    );
    assert_eq!(
        (info.creation_date, info.access_date),
        (UnixTime(42), UnixTime(43))
    );
    assert_eq!(
        (info.update_date, info.backup_date),
        (UnixTime(44), UnixTime(45))
    );
    assert_eq!((info.day_use, info.file_count), (46, 47));
    assert_eq!((info.max_quota, info.size, info.flags), (48, 49, 50));
    assert_eq!((info.min_quota, info.week_use), (51, 52));
    assert_eq!((info.update_counter, info.spare), (53, 54));
}

#[test]
fn a_listed_volume_with_statistics_has_80_words() {
    let mut rest: Vec<u32> = (32..80).collect();
    rest[7] = 1;
    let info: VolintXInfo = round_trip(&words(letters::<32>("root.afs").chain(rest)));
    assert_eq!(info.name.as_bytes(), b"root.afs");
    assert_eq!(
        (info.volume, info.kind, info.status),
        (VolumeId(32), 33, 37)
    );
    assert_eq!((info.copy_date, info.in_use), (UnixTime(38), true));
    assert_eq!(
        (info.creation_date, info.access_date),
        (UnixTime(40), UnixTime(41))
    );
    assert_eq!(
        (info.update_date, info.backup_date),
        (UnixTime(42), UnixTime(43))
    );
    assert_eq!((info.day_use, info.file_count), (44, 45));
    assert_eq!((info.max_quota, info.size), (46, 47));
    assert_eq!(
        (info.reads, info.writes),
        ([48, 49, 50, 51], [52, 53, 54, 55])
    );
    assert_eq!(info.file_same_author, [56, 57, 58, 59, 60, 61]);
    assert_eq!(info.file_diff_author, [62, 63, 64, 65, 66, 67]);
    assert_eq!(info.dir_same_author, [68, 69, 70, 71, 72, 73]);
    assert_eq!(info.dir_diff_author, [74, 75, 76, 77, 78, 79]);
}

#[test]
fn what_is_not_changed_is_sent_as_minus_one() {
    let changes = VolumeChanges {
        max_quota: Some(5000),
        update_counter: Some(0),
        ..VolumeChanges::default()
    };
    let none = u32::MAX;
    let mut expected = [0; 55];
    // creationDate, updateDate, dayUse; maxquota; flags and the spare words.
    expected[42] = none;
    expected[44] = none;
    expected[46] = none;
    expected[48] = 5000;
    expected[50..55].copy_from_slice(&[none, none, none, 0, none]);
    assert_eq!(to_bytes(&changes)[..], words(expected));
    assert_eq!(from_bytes(&words(expected)), Ok(changes));
    assert_eq!(VolumeChanges::MAX_LEN, 220);
    let unchanged = VolumeChanges::default();
    assert_eq!(from_bytes(&to_bytes(&unchanged)), Ok(unchanged));
}

#[test]
fn a_status_has_16_words() {
    let status: VolserStatus = round_trip(&words(1..=16));
    assert_eq!(
        (status.volume, status.next_uniquifier),
        (VolumeId(1), Uniquifier(2))
    );
    assert_eq!((status.kind, status.parent_id), (3, VolumeId(4)));
    assert_eq!(
        (status.clone_id, status.backup_id),
        (VolumeId(5), VolumeId(6))
    );
    assert_eq!(status.restored_from_id, VolumeId(7));
    assert_eq!((status.max_quota, status.min_quota), (8, 9));
    assert_eq!(
        (status.owner, status.creation_date),
        (PtsId(10), UnixTime(11))
    );
    assert_eq!(
        (status.access_date, status.update_date),
        (UnixTime(12), UnixTime(13))
    );
    assert_eq!(
        (status.expiration_date, status.backup_date),
        (UnixTime(14), UnixTime(15))
    );
    assert_eq!(status.copy_date, UnixTime(16));
}

#[test]
fn a_transaction_has_44_words() {
    let bytes = words(
        (1..=9)
            .chain(letters::<30>("Restore"))
            .chain([1, 41, 42, 43, 44]),
    );
    let info: TransDebugInfo = round_trip(&bytes);
    assert_eq!(
        (info.transaction, info.time),
        (TransactionId(1), UnixTime(2))
    );
    assert_eq!((info.creation_time, info.return_code), (UnixTime(3), 4));
    assert_eq!((info.volume, info.partition), (VolumeId(5), PartitionId(6)));
    assert!(info.attach_flags.contains(AttachFlags::OFFLINE));
    assert!(!info.attach_flags.contains(AttachFlags::READ_ONLY));
    assert!(!info.flags.contains(TransactionFlags::DELETE_ON_SALVAGE));
    assert_eq!((info.attach_flags.0, info.flags.0, info.deleted), (7, 8, 9));
    assert_eq!(info.last_procedure.as_bytes(), b"Restore");
    assert_eq!(
        (info.call_valid, info.read_next, info.transmit_next),
        (true, 41, 42)
    );
    assert_eq!(info.last_send_time, UnixTime(43));
    assert_eq!(info.last_receive_time, UnixTime(44));
}

#[test]
fn cookies_and_destinations() {
    let cookie: RestoreCookie = round_trip(&words(letters::<32>("u.alice").chain([1, 2, 3])));
    assert_eq!(
        (cookie.kind, cookie.clone_id, cookie.parent_id),
        (1, VolumeId(2), VolumeId(3))
    );
    let server = DestServer::new(Ipv4Addr::new(192, 0, 2, 9));
    let bytes = words([17, 0xc000_0209, 7005, 1]);
    let replica: ReplicaDest = round_trip(&bytes);
    assert_eq!(
        (replica.transaction, replica.server),
        (TransactionId(17), server)
    );
    assert_eq!(server.address().to_string(), "192.0.2.9");
    let most = Destinations::new(vec![replica; 13]).unwrap();
    assert_eq!(to_bytes(&most).len(), Destinations::MAX_LEN);
    assert!(Destinations::new(vec![replica; 14]).is_err());
    let error = from_bytes::<Destinations>(&words([14])).unwrap_err();
    assert!(!error.is_truncated(), "{error}");
}

#[test]
fn partitions_are_in_their_slots() {
    let ids: PartitionIds = [0, 2, 25, 26].map(PartitionId).into_iter().collect();
    let mut expected = [u32::MAX; 26];
    (expected[0], expected[2], expected[25]) = (0, 2, 25);
    assert_eq!(round_trip::<PartitionIds>(&words(expected)), ids);
    assert_eq!(ids.iter().collect::<Vec<_>>(), [0, 2, 25].map(PartitionId));
    assert_eq!(PartitionIds::default().iter().count(), 0);
    let all: Vec<_> = (0..PartitionId::COUNT).map(PartitionId).collect();
    assert_eq!(to_bytes(&Partitions::new(all).unwrap()).len(), 4 + 4 * 255);
}

#[test]
fn partitions_tell_their_size_in_the_wrong_place() {
    let name = letters::<256>("/vicepa").chain(letters::<256>("/dev/sdb1"));
    // 5 TiB in all, of which 3 are free, in KiB.
    let numbers = [0, 0, 0, 0, 0xc000_0000, 1, 0x4000_0000];
    let large: DiskPartition64 = round_trip(&words(name.chain(numbers)));
    assert_eq!(
        (large.name.as_bytes(), large.device.as_bytes()),
        (&b"/vicepa"[..], &b"/dev/sdb1"[..])
    );
    assert_eq!(
        (large.total(), large.free, large.total_usable),
        (5 << 30, 3 << 30, 0)
    );
    assert_eq!(
        large,
        DiskPartition64::new(large.name, large.device, 5 << 30, 3 << 30)
    );

    let small = DiskPartition::from(&large);
    assert_eq!((small.total(), small.free), (i32::MAX, i32::MAX));
    let name = letters::<32>("/vicepa").chain(letters::<32>("/dev/sdb1"));
    let bytes = words(name.chain([0, 0, 0x7fff_ffff, 0x7fff_ffff]));
    assert_eq!(round_trip::<DiskPartition>(&bytes), small);
    let fits = DiskPartition64::new(large.name, large.device, 1000, -5);
    assert_eq!(DiskPartition64::from(&DiskPartition::from(&fits)), fits);
    // A name that does not fit is cut.
    let long = CharArray::new([b'd'; 255]).unwrap();
    let cut = DiskPartition::from(&DiskPartition64::new(long, long, 0, 0));
    assert_eq!(cut.device.as_bytes(), [b'd'; 31]);
}

#[test]
fn types_are_numbered() {
    for kind in VolumeType::ALL {
        assert_eq!(VolumeType::from_number(kind.number()), Some(kind));
    }
    assert_eq!([-1, 3].map(VolumeType::from_number), [None, None]);
}

#[test]
fn lists_have_their_limits() {
    let over = |limit: usize| words([u32::try_from(limit).unwrap() + 1]);
    let refused = [
        from_bytes::<VolintInfos>(&over(VolintInfos::MAX)).unwrap_err(),
        from_bytes::<VolintXInfos>(&over(VolintXInfos::MAX)).unwrap_err(),
        from_bytes::<TransDebugInfos>(&over(TransDebugInfos::MAX)).unwrap_err(),
        from_bytes::<Partitions>(&over(Partitions::MAX)).unwrap_err(),
        from_bytes::<ForwardResults>(&over(ForwardResults::MAX)).unwrap_err(),
    ];
    assert!(refused.iter().all(|error| !error.is_truncated()));
    // A count within it needs its bytes before anything is allocated.
    let error = from_bytes::<VolintInfos>(&words([1_000_000])).unwrap_err();
    assert!(error.is_truncated(), "{error}");
}

proptest! {
    #[test]
    fn what_decodes_encodes_to_the_same(noise in prop::collection::vec(any::<u8>(), 2076)) {
        fn check<T: Decode + Encode + PartialEq + std::fmt::Debug>(noise: &[u8]) {
            let value: T = from_bytes(&noise[..T::MIN_LEN]).unwrap();
            assert_eq!(from_bytes::<T>(&to_bytes(&value)).unwrap(), value);
        }
        check::<VolintInfo>(&noise);
        check::<VolintXInfo>(&noise);
        check::<VolumeChanges>(&noise);
        check::<VolserStatus>(&noise);
        check::<TransDebugInfo>(&noise);
        check::<RestoreCookie>(&noise);
        check::<ReplicaDest>(&noise);
        check::<PartitionIds>(&noise);
        check::<DiskPartition>(&noise);
        check::<DiskPartition64>(&noise);
    }

    #[test]
    fn changes_come_back(
        max_quota in prop::option::of(0..i32::MAX),
        day_use in prop::option::of(0..i32::MAX),
        creation_date in prop::option::of(0..u32::MAX),
        update_date in prop::option::of(0..u32::MAX),
        update_counter in prop::option::of(0..u32::MAX),
    ) {
        let changes = VolumeChanges {
            max_quota,
            day_use,
            creation_date: creation_date.map(UnixTime),
            update_date: update_date.map(UnixTime),
            update_counter,
        };
        prop_assert_eq!(VolumeChanges::from(&VolintInfo::from(&changes)), changes);
    }
}
