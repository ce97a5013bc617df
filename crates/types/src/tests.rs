//! Byte-exact encodings of the structures that RPCs carry.

use afar_xdr::{CharArray, Decode, from_bytes, to_bytes};
use proptest::prelude::*;

use crate::*;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn fetch_status_is_21_words_with_halves_joined() {
    let bytes = words(&[
        1,
        2,
        3,
        0x1000,
        5,
        6,
        7,
        9,
        8,
        0o755,
        11,
        12,
        1,
        14,
        15,
        16,
        0,
        0x18,
        0xffff_ffff,
        0x20,
        0,
    ]);
    let status: FetchStatus = from_bytes(&bytes).unwrap();
    assert_eq!(status.file_type, FileType::Directory);
    assert_eq!(status.length, 0x20_0000_1000);
    assert_eq!(status.data_version, DataVersion(0x18_0000_0005));
    assert_eq!(
        (status.author, status.owner, status.group),
        (PtsId(6), PtsId(7), PtsId(16))
    );
    assert_eq!(status.caller_access.to_string(), "rl");
    assert_eq!(
        (status.parent_vnode, status.parent_uniquifier),
        (VnodeId(11), Uniquifier(12))
    );
    assert_eq!(
        (status.client_mod_time, status.server_mod_time),
        (UnixTime(14), UnixTime(15))
    );
    assert_eq!(status.lock_count, -1);
    assert_eq!(to_bytes(&status)[..], bytes);
}

#[test]
fn structures_have_their_sizes() {
    assert_eq!(Fid::MIN_LEN, 12);
    assert_eq!(CallBack::MIN_LEN, 12);
    assert_eq!(VolSync::MIN_LEN, 24);
    assert_eq!(StoreStatus::MIN_LEN, 24);
    assert_eq!(FetchStatus::MIN_LEN, 84);
    assert_eq!(FetchVolumeStatus::MIN_LEN, 48);
    assert_eq!(StoreVolumeStatus::MIN_LEN, 12);
    assert_eq!(AfsUuid::MIN_LEN, 44);
    assert_eq!(InterfaceAddr::MIN_LEN, 432);
}

#[test]
fn a_callback_break() {
    let fids = Fids::new(vec![Fid::new(1, 2, 3)]).unwrap();
    let dropped = CallBack {
        version: 1,
        expires_in: 0,
        kind: CallBackType::Dropped,
    };
    let callbacks = CallBacks::new(vec![dropped]).unwrap();
    assert_eq!(to_bytes(&fids)[..], words(&[1, 1, 2, 3]));
    assert_eq!(to_bytes(&callbacks)[..], words(&[1, 1, 0, 3]));
    assert!(from_bytes::<Fids>(&words(&[51])).is_err());
}

#[test]
fn capabilities_of_a_full_server() {
    let capabilities: Capabilities = from_bytes(&words(&[1, 7])).unwrap();
    let errors = capabilities.first().unwrap() & CAPABILITY_ERROR_TRANSLATION;
    assert_eq!(errors, CAPABILITY_ERROR_TRANSLATION);
}

#[test]
fn mount_points_are_symlinks_without_execute_bits() {
    let mut status = FetchStatus {
        file_type: FileType::Symlink,
        ..FetchStatus::default()
    };
    status.unix_mode_bits = 0o644;
    assert!(status.is_mount_point());
    status.unix_mode_bits = 0o755;
    assert!(!status.is_mount_point());
    status = FetchStatus {
        unix_mode_bits: 0o644,
        file_type: FileType::File,
        ..status
    };
    assert!(!status.is_mount_point());
}

#[test]
fn names_of_volumes_fill_65_words() {
    assert_eq!(
        to_bytes(&CharArray::<65>::new("root.cell").unwrap()).len(),
        260
    );
    assert_eq!(Fid::new(536_870_915, 1, 1).to_string(), "536870915.1.1");
}

#[test]
fn times_outside_the_range_are_clamped() {
    use std::time::{Duration, UNIX_EPOCH};
    assert_eq!(
        UnixTime::from(UNIX_EPOCH - Duration::from_secs(1)),
        UnixTime(0)
    );
    assert_eq!(
        UnixTime::from(UNIX_EPOCH + Duration::from_secs(1 << 40)),
        UnixTime(u32::MAX)
    );
    assert_eq!(UnixTime::from(UnixTime(77).to_system_time()), UnixTime(77));
}

/// Decodes as `T`; whatever decodes must encode to a form that decodes to the same.
fn decode_encode<T: Decode + afar_xdr::Encode + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(value) = T::decode(&mut afar_xdr::Decoder::new(bytes)) {
        assert_eq!(from_bytes::<T>(&to_bytes(&value)).unwrap(), value);
    }
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(
        start in prop::collection::vec(0u32..60, 0..3),
        rest in prop::collection::vec(any::<u8>(), 0..1400),
    ) {
        let mut bytes = words(&start);
        bytes.extend(rest);
        decode_encode::<FetchStatus>(&bytes);
        decode_encode::<Statuses>(&bytes);
        decode_encode::<Fids>(&bytes);
        decode_encode::<CallBacks>(&bytes);
        decode_encode::<InterfaceAddr>(&bytes);
        decode_encode::<Capabilities>(&bytes);
        decode_encode::<FetchVolumeStatus>(&bytes);
        decode_encode::<AddrsU>(&bytes);
        decode_encode::<UvldbEntry>(&bytes);
        decode_encode::<NvldbEntry>(&bytes);
        decode_encode::<VldbEntryO>(&bytes);
        decode_encode::<VldbEntriesO>(&bytes);
        decode_encode::<NvldbEntries>(&bytes);
        decode_encode::<Chain<VolumeId, 60>>(&bytes);
        decode_encode::<VldbUpdateEntry>(&bytes);
        decode_encode::<PrIds>(&bytes);
        decode_encode::<PrNames>(&bytes);
        decode_encode::<PrEntries>(&bytes);
        decode_encode::<VolintInfos>(&bytes);
        decode_encode::<VolintXInfos>(&bytes);
        decode_encode::<TransDebugInfos>(&bytes);
        decode_encode::<Partitions>(&bytes);
        decode_encode::<Destinations>(&bytes);
        decode_encode::<DiskPartition>(&bytes);
        decode_encode::<BozoStatus>(&bytes);
        decode_encode::<RpcStatWords>(&bytes);
        decode_encode::<ViceStatistics>(&bytes);
        decode_encode::<DbCacheEntry64>(&bytes);
    }

    #[test]
    fn statuses_round_trip(length: u64, version: u64, lock_count: i32, mode: u32) {
        let status = FetchStatus {
            length,
            data_version: DataVersion(version),
            lock_count,
            unix_mode_bits: mode,
            ..FetchStatus::default()
        };
        prop_assert_eq!(from_bytes::<FetchStatus>(&to_bytes(&status)).unwrap(), status);
    }
}
