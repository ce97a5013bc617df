use std::net::Ipv4Addr;

use afar_xdr::{CharArray, Decode, from_bytes, to_bytes};

use super::*;
use crate::{AfsUuid, PartitionId, VolumeId, VolumeType};

fn entry() -> UvldbEntry {
    let mut entry = UvldbEntry {
        name: CharArray::new("root.cell").unwrap(),
        n_servers: 3,
        volume_id: [
            VolumeId(536_870_912),
            VolumeId(536_870_913),
            VolumeId(536_870_914),
        ],
        flags: VldbFlags(0x3000),
        ..UvldbEntry::default()
    };
    entry.server_number[0] = AfsUuid::from_bytes([7; 16]);
    entry.server_unique[0] = 5;
    entry.server_flags[0] = SiteFlags(0x10 | 0x04);
    entry.server_number[1].time_low = 0xc000_0202;
    entry.server_partition[1] = PartitionId(1);
    entry.server_flags[1] = SiteFlags::READ_ONLY;
    entry.server_number[2].time_low = 0xc000_0203;
    entry.server_flags[2] = SiteFlags(0x02 | 0x20);
    entry
}

#[test]
fn wire_forms_have_their_sizes() {
    assert_eq!((VldbEntryO::MIN_LEN, VldbEntryO::MAX_LEN), (384, 384));
    assert_eq!((NvldbEntry::MIN_LEN, NvldbEntry::MAX_LEN), (476, 476));
    assert_eq!((UvldbEntry::MIN_LEN, UvldbEntry::MAX_LEN), (1048, 1048));
    assert_eq!(ListAddrByAttributes::MIN_LEN, 60);
    let bytes = to_bytes(&entry());
    assert_eq!(bytes.len(), 1048);
    assert_eq!(bytes[260..264], [0, 0, 0, 3]);
    assert_eq!(from_bytes::<UvldbEntry>(&bytes), Ok(entry()));
}

#[test]
fn servers_are_uuids_or_addresses_as_flagged() {
    let entry = VldbEntry::try_from(&entry()).unwrap();
    assert_eq!(entry.sites.len(), 3);
    let uuid = AfsUuid::from_bytes([7; 16]);
    assert_eq!(entry.sites[0].server, SiteServer::Uuid { uuid, unique: 5 });
    assert_eq!(
        entry.sites[1].server,
        SiteServer::Address(Ipv4Addr::new(192, 0, 2, 2))
    );
    assert_eq!(entry.sites[1].partition.to_string(), "/vicepb");
}

#[test]
fn sites_for_each_member_of_the_group() {
    let mut entry = VldbEntry::try_from(&entry()).unwrap();
    let places = |entry: &VldbEntry, kind| -> Vec<usize> {
        let usable: Vec<_> = entry.sites_of(kind).copied().collect();
        (0..entry.sites.len())
            .filter(|&i| usable.contains(&entry.sites[i]))
            .collect()
    };
    assert_eq!(places(&entry, VolumeType::ReadWrite), [0]);
    assert_eq!(places(&entry, VolumeType::Backup), [0]);
    assert_eq!(places(&entry, VolumeType::ReadOnly), [1]);
    // During a release only the renewed sites count, and one marked DONT_USE never does.
    entry.sites[2].flags = SiteFlags(0x02 | 0x01);
    assert_eq!(places(&entry, VolumeType::ReadOnly), [2]);
    entry.sites[2].flags = SiteFlags(0x02 | 0x01 | 0x20);
    assert_eq!(places(&entry, VolumeType::ReadOnly), [1]);
}

#[test]
fn ids_count_if_the_volume_exists() {
    let entry = VldbEntry::try_from(&entry()).unwrap();
    assert_eq!(
        entry.id_of(VolumeType::ReadOnly),
        Some(VolumeId(536_870_913))
    );
    assert_eq!(entry.id_of(VolumeType::Backup), None);
    assert_eq!(
        entry.kind_of(VolumeId(536_870_914)),
        Some(VolumeType::Backup)
    );
    assert_eq!(entry.kind_of(VolumeId(0)), None);
}

#[test]
fn more_sites_than_there_is_room_for_are_an_error() {
    let mut old = VldbEntryO {
        n_servers: 8,
        ..VldbEntryO::default()
    };
    assert_eq!(VldbEntry::try_from(&old).unwrap().sites.len(), 8);
    old.n_servers = 9;
    assert_eq!(
        VldbEntry::try_from(&old),
        Err(EntryError {
            claimed: 9,
            room: 8
        })
    );
    let new = NvldbEntry {
        n_servers: u32::MAX,
        ..NvldbEntry::default()
    };
    assert!(VldbEntry::try_from(&new).is_err());
}
