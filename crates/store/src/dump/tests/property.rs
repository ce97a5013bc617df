//! What holds for every dump, and for every stream of bytes.

use proptest::prelude::*;

use super::*;

fn text(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1u8.., 0..=max)
}

fn header() -> impl Strategy<Value = DumpHeader> {
    (1u32.., text(31), any::<u32>(), any::<u32>()).prop_map(|(volume, name, from, to)| DumpHeader {
        volume: VolumeId(volume),
        name,
        from: UnixTime(from),
        to: UnixTime(to),
    })
}

fn volume() -> impl Strategy<Value = VolumeHeader> {
    let texts = (text(31), text(127), text(127));
    (any::<[u32; 26]>(), any::<(bool, bool)>(), 0usize..3, texts).prop_map(
        |(n, (in_service, blessed), kind, (name, offline_message, motd))| VolumeHeader {
            id: VolumeId(n[0]),
            stamp_version: n[1],
            name,
            in_service,
            blessed,
            uniquifier: Uniquifier(n[2]),
            kind: VolumeType::ALL[kind],
            parent: VolumeId(n[3]),
            clone_id: VolumeId(n[4]),
            max_quota: n[5],
            min_quota: n[6],
            disk_used: n[7],
            file_count: n[8],
            account: n[9],
            owner: PtsId(n[10].cast_signed()),
            creation: UnixTime(n[11]),
            access: UnixTime(n[12]),
            update: UnixTime(n[13]),
            expiration: UnixTime(n[14]),
            backup: UnixTime(n[15]),
            offline_message,
            motd,
            week_use: [n[16], n[17], n[18], n[19], n[20], n[21], n[22]],
            day_use_date: UnixTime(n[23]),
            day_use: n[24],
        },
    )
}

fn data(kind: VnodeKind) -> BoxedStrategy<Vec<u8>> {
    match kind {
        VnodeKind::Directory => (1usize..=2, any::<u8>())
            .prop_map(|(pages, byte)| vec![byte; pages * 2048])
            .boxed(),
        VnodeKind::File => prop::collection::vec(any::<u8>(), 0..3000).boxed(),
        VnodeKind::Symlink => prop::collection::vec(any::<u8>(), 0..=1024).boxed(),
    }
}

fn vnode() -> impl Strategy<Value = (VnodeRecord, Vec<u8>)> {
    let kind = prop::sample::select(&[VnodeKind::File, VnodeKind::Directory, VnodeKind::Symlink]);
    kind.prop_flat_map(|kind| {
        let acl = prop::option::of(any::<[u8; 32]>());
        let data = prop::option::of(data(kind));
        (
            any::<[u32; 10]>(),
            any::<(u16, u16)>(),
            any::<bool>(),
            acl,
            data,
        )
            .prop_map(move |(n, (link_count, mode), listed, acl, data)| {
                let directory = kind == VnodeKind::Directory;
                let vnode = (n[0] | 2) & !1 | u32::from(directory);
                let fields = VnodeFields {
                    kind,
                    link_count,
                    data_version: n[2],
                    modify_time: UnixTime(n[3]),
                    author: PtsId(n[4].cast_signed()),
                    owner: PtsId(n[5].cast_signed()),
                    group: PtsId(n[6].cast_signed()),
                    mode,
                    parent: VnodeId(n[7]),
                    server_modify_time: UnixTime(n[8]),
                    acl: acl.filter(|_| directory).map(|part| [part[0]; ACL_SIZE]),
                    length: data.as_ref().map(|data| data.len() as u64),
                };
                let record = VnodeRecord {
                    vnode: VnodeId(vnode),
                    uniquifier: Uniquifier(n[1]),
                    body: (!listed).then_some(fields),
                };
                (record, data.filter(|_| !listed).unwrap_or_default())
            })
    })
}

fn dump() -> impl Strategy<Value = Dump> {
    let vnodes = prop::collection::vec(vnode(), 0..5);
    (header(), volume(), vnodes).prop_map(|(header, volume, vnodes)| Dump {
        header,
        volume,
        vnodes,
    })
}

proptest! {
    #[test]
    fn round_trip(dump in dump(), piece in 1usize..5000, buffer in 1usize..5000) {
        let stream = write(&dump, piece).unwrap();
        prop_assert_eq!(read(&stream, buffer).unwrap(), dump);
    }

    #[test]
    fn a_changed_byte_is_an_error_or_another_dump(
        dump in dump(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut stream = write(&dump, 1000).unwrap();
        for (place, byte) in changes {
            let place = place.index(stream.len());
            stream[place] = byte;
        }
        match read(&stream, 64) {
            Ok(dump) => {
                skim(&stream).unwrap();
                if let Ok(stream) = write(&dump, 1000) {
                    prop_assert_eq!(read(&stream, 64).unwrap(), dump);
                }
            }
            Err(error) => {
                prop_assert!(error.offset <= stream.len() as u64);
                prop_assert!(skim(&stream).is_err());
            }
        }
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        let begin = [1, 0xb3, 0xa1, 0x13, 0x22, 0, 0, 0, 1];
        prop_assert!(read(&bytes, 16).is_err());
        prop_assert!(read(&[&begin, &bytes[..]].concat(), 16).is_err());
    }
}

#[test]
fn every_truncation_is_an_error() {
    let stream = write(&sample(), 1000).unwrap();
    for end in 0..stream.len() {
        for error in [
            read(&stream[..end], 64).unwrap_err(),
            skim(&stream[..end]).unwrap_err(),
        ] {
            assert!(
                matches!(error.problem, DumpProblem::Truncated { .. }),
                "cut at {end}: {error}"
            );
            assert_eq!(error.offset, end as u64);
        }
    }
}
