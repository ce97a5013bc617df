//! Rows and keys read back as what they were, and arbitrary bytes are read or refused.

use afar_types::VolumeType;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::segment::{Codec, Compression, Extent, MAX_RECORD};
use crate::vnode::{pack_page, unpack_page};

fn compression() -> impl Strategy<Value = Compression> {
    prop_oneof![
        Just(Compression::None),
        Just(Compression::Lz4),
        (1..=Compression::ZSTD_MAX).prop_map(Compression::Zstd),
        (Compression::ZSTD_MIN..=-1).prop_map(Compression::Zstd),
    ]
}

prop_compose! {
    fn volume()(
        kind in 0..3_u8,
        flags in any::<u8>(),
        compression in compression(),
        tree in any::<u64>(),
        sizes in any::<[u64; 2]>(),
        numbers in any::<[u32; 11]>(),
    ) -> VolumeRow {
        let [generation, parent, clone, backup, uniquifier, last_directory, last_file, file_count,
            creation_date, update_date, copy_date] = numbers;
        VolumeRow {
            tree,
            generation,
            kind: [VolumeType::ReadWrite, VolumeType::ReadOnly, VolumeType::Backup][usize::from(kind)],
            flags,
            compression,
            parent,
            clone,
            backup,
            uniquifier,
            last_directory,
            last_file,
            max_quota: sizes[0],
            disk_used: sizes[1],
            file_count,
            creation_date,
            update_date,
            copy_date,
        }
    }
}

prop_compose! {
    fn info()(
        texts in any::<[Vec<u8>; 3]>(),
        min_quota in any::<u64>(),
        owner in any::<i32>(),
        numbers in any::<[u32; 8]>(),
        week_use in any::<[u32; 7]>(),
    ) -> VolumeInfo {
        let [name, offline_message, motd] = texts;
        let [account, access_date, expiration_date, backup_date, restored_from, update_counter,
            day_use_date, day_use] = numbers;
        VolumeInfo {
            name,
            min_quota,
            owner,
            account,
            access_date,
            expiration_date,
            backup_date,
            restored_from,
            update_counter,
            day_use_date,
            day_use,
            week_use,
            offline_message,
            motd,
        }
    }
}

prop_compose! {
    fn vnode()(
        kind in 1..=3_u8,
        record_shift in 12..=20_u8,
        mode in any::<u16>(),
        data_version in any::<u64>(),
        length in 0..=i64::MAX as u64,
        numbers in any::<[u32; 5]>(),
        people in any::<[i32; 3]>(),
        acl in vec(any::<u8>(), 0..=192),
    ) -> VnodeRow {
        VnodeRow {
            kind,
            record_shift,
            mode,
            link_count: numbers[0],
            uniquifier: numbers[1],
            data_version,
            length,
            modify_time: numbers[2],
            server_modify_time: numbers[3],
            author: people[0],
            owner: people[1],
            group: people[2],
            parent: numbers[4],
            acl,
        }
    }
}

fn record() -> impl Strategy<Value = Record> {
    let codec = || prop::sample::select(vec![Codec::Raw, Codec::Zstd, Codec::Lz4]);
    let extent = (
        codec(),
        1..=u32::MAX,
        0..=1_u32 << 31,
        2..=MAX_RECORD,
        any::<u128>(),
    );
    prop_oneof![
        extent.prop_map(|(codec, segment, offset, plain, checksum)| {
            let stored = if codec == Codec::Raw {
                plain
            } else {
                plain / 2
            };
            Record::Extent(Extent {
                segment,
                offset,
                stored,
                plain,
                codec,
                checksum,
            })
        }),
        (codec(), any::<u32>(), vec(any::<u8>(), 0..2_000)).prop_map(|(codec, plain, stored)| {
            Record::Inline {
                codec,
                plain,
                stored,
            }
        }),
    ]
}

fn at() -> impl Strategy<Value = At> {
    (any::<u64>(), any::<u32>()).prop_map(|(tree, generation)| At { tree, generation })
}

fn item() -> impl Strategy<Value = Item> {
    let kind = prop::sample::select(Kind::ALL.to_vec());
    (kind, any::<u32>(), 0..1_u64 << 48).prop_map(|(kind, vnode, index)| Item {
        kind,
        vnode,
        index,
    })
}

proptest! {
    #[test]
    fn values_read_back_the_same(
        volume in volume(),
        info in info(),
        vnode in vnode(),
        record in record(),
        end in any::<u32>(),
        live in any::<u64>(),
    ) {
        prop_assert_eq!(VolumeRow::from_bytes(&volume.to_bytes()), Some(volume));
        prop_assert_eq!(VolumeInfo::owner_of(&info.to_bytes()), Some(info.owner));
        prop_assert_eq!(VolumeInfo::from_bytes(&info.to_bytes()), Some(info));
        prop_assert_eq!(VnodeRow::from_bytes(&vnode.to_bytes()), Some(vnode));
        prop_assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record));
        let segment = SegmentRow { end, live };
        prop_assert_eq!(SegmentRow::from_bytes(&segment.to_bytes()), Some(segment));
        for state in [MemberState::Live, MemberState::Shade, MemberState::Filling] {
            prop_assert_eq!(MemberState::from_bytes(&state.to_bytes()), Some(state));
        }
    }

    #[test]
    fn rows_cut_off_or_too_long_are_refused(volume in volume(), info in info(), more in 1..9_usize) {
        for bytes in [volume.to_bytes(), info.to_bytes()] {
            let short = &bytes[..bytes.len() - more];
            let long = [bytes.as_slice(), &vec![0; more]].concat();
            for wrong in [short, &long] {
                prop_assert_eq!(VolumeRow::from_bytes(wrong), None);
                prop_assert_eq!(VolumeInfo::from_bytes(wrong), None);
            }
        }
    }

    #[test]
    fn keys_read_back_and_sort_as_their_numbers(
        a in (at(), item()),
        b in (at(), item()),
        volume in any::<u32>(),
        place in any::<(u32, u32)>(),
    ) {
        let (at, item) = a;
        prop_assert_eq!(split_row_key(&row_key(at, item)), Some(a));
        prop_assert_eq!(split_change_key(&change_key(at, item)), Some(a));
        prop_assert_eq!(split_member_key(&member_key(at, volume)), Some((at, volume)));
        prop_assert_eq!(split_dead_key(&dead_key(place.0, place.1)), Some(place));
        let shade = DoomedKey::from_bytes(&DoomedKey::shade(at).to_bytes());
        let same = if at.generation == u32::MAX { DoomedKey::tree(at.tree) } else { DoomedKey::shade(at) };
        prop_assert_eq!(shade, Some(same));
        let order = |(at, item): (At, Item)| (at.tree, item.kind, item.vnode, item.index, at.generation);
        prop_assert_eq!(row_key(a.0, a.1).cmp(&row_key(b.0, b.1)), order(a).cmp(&order(b)));
        let order = |(at, item): (At, Item)| (at.tree, at.generation, item);
        prop_assert_eq!(change_key(a.0, a.1).cmp(&change_key(b.0, b.1)), order(a).cmp(&order(b)));
        let (from, to) = tree_range(at.tree);
        let key = row_key(at, item);
        prop_assert!(from.as_slice() <= key.as_slice() && key.as_slice() <= to.as_slice());
    }

    #[test]
    fn pages_read_back_the_same(
        used in vec(any::<u8>(), 0..=afar_dir::PAGE_SIZE),
        dull in any::<bool>(),
    ) {
        let mut page = [0; afar_dir::PAGE_SIZE];
        page[..used.len()].copy_from_slice(&used);
        if dull {
            page[..used.len()].fill(7);
        }
        let mut again = [9; afar_dir::PAGE_SIZE];
        prop_assert!(unpack_page(&pack_page(&page), &mut again).is_some());
        prop_assert!(again == page);
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(data in vec(any::<u8>(), 0..300)) {
        crate::fuzzing::row(&data);
    }

    #[test]
    fn rows_with_an_octet_changed_are_read_or_refused(
        rows in (volume(), info(), vnode(), record()),
        place in any::<prop::sample::Index>(),
        octet in any::<u8>(),
    ) {
        let rows = [rows.0.to_bytes(), rows.1.to_bytes(), rows.2.to_bytes(), rows.3.to_bytes()];
        for (sort, row) in (0..).zip(rows) {
            let mut data = vec![sort];
            data.extend_from_slice(&row);
            let at = 1 + place.index(row.len());
            data[at] = octet;
            crate::fuzzing::row(&data);
        }
    }
}
