use std::net::Ipv4Addr;

use afar_xdr::{CharArray, Decode, from_bytes, to_bytes};
use proptest::prelude::*;

use super::*;
use crate::{AfsUuid, PartitionId, UnixTime, VolumeId, VolumeType};

fn words(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}

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

#[test]
fn an_update_has_120_words() {
    let name = b"u.alice".iter().chain(&[0; 58]).map(|&byte| byte.into());
    let bytes = words([0x3d].into_iter().chain(name).chain(66..120));
    assert_eq!(VldbUpdateEntry::MAX_LEN, 480);
    let update: VldbUpdateEntry = from_bytes(&bytes).unwrap();
    assert_eq!(
        (update.mask, update.name.as_bytes()),
        (0x3d, &b"u.alice"[..])
    );
    assert_eq!((update.spare, update.flags), (66, VldbFlags(67)));
    assert_eq!(
        (update.read_only_id, update.backup_id),
        (VolumeId(68), VolumeId(69))
    );
    assert_eq!(
        (update.clone_id, update.n_modified_sites),
        (VolumeId(70), 71)
    );
    assert_eq!(
        (update.site_mask[0], update.site_target_server[0]),
        (72, 80)
    );
    assert_eq!(update.site_target_partition[0], PartitionId(88));
    assert_eq!(
        (update.site_new_server[0], update.site_new_partition[0].0),
        (96, 104)
    );
    assert_eq!(
        (update.site_new_flags[0], update.site_new_flags[7]),
        (SiteFlags(112), SiteFlags(119))
    );
    assert_eq!(to_bytes(&update)[..], bytes);
}

#[test]
fn what_a_server_tells_of_itself() {
    let bytes = words(1..=106);
    let stats: VldStats = from_bytes(&bytes).unwrap();
    assert_eq!((stats.start_time, stats.requests[0]), (UnixTime(1), 2));
    assert_eq!((stats.aborts[0], stats.aborts[49]), (52, 101));
    assert_eq!(stats.reserved, [102, 103, 104, 105, 106]);
    assert_eq!(to_bytes(&stats)[..], bytes);
    let header: VitalVlHeader = from_bytes(&words(1..=10)).unwrap();
    assert_eq!((header.version, header.header_size), (1, 2));
    assert_eq!((header.free_pointer, header.end_pointer), (3, 4));
    assert_eq!((header.allocs, header.frees), (5, 6));
    assert_eq!(
        (header.max_volume_id, header.total_entries),
        (VolumeId(7), [8, 9, 10])
    );
    let unused: VlCallBack = from_bytes(&words(1..=4)).unwrap();
    assert_eq!((unused.version, unused.handle), (1, 4));
}

#[test]
fn chains_end_with_a_zero() {
    type Ids = Chain<VolumeId, 3>;
    let ids = Ids::new([1, 2, 3].map(VolumeId)).unwrap();
    assert_eq!(to_bytes(&ids)[..], words([1, 1, 1, 2, 1, 3, 0]));
    assert_eq!(from_bytes(&words([1, 1, 1, 2, 1, 3, 0])), Ok(ids));
    assert_eq!(from_bytes(&words([0])), Ok(Ids::default()));
    assert_eq!((Ids::MIN_LEN, Ids::MAX_LEN), (4, 28));
    assert!(Ids::new([0; 4].map(VolumeId)).is_err());
    let more = from_bytes::<Ids>(&words([1, 1, 1, 2, 1, 3, 1, 4, 0])).unwrap_err();
    assert_eq!((more.offset, more.is_truncated()), (24, false), "{more}");
    assert!(
        from_bytes::<Ids>(&words([1, 1]))
            .unwrap_err()
            .is_truncated()
    );
}

proptest! {
    #[test]
    fn chains_round_trip(ids in prop::collection::vec(any::<u32>(), 0..20)) {
        let ids: Vec<_> = ids.into_iter().map(VolumeId).collect();
        let chain = Chain::<VolumeId, 20>::new(ids.clone()).unwrap();
        let again: Chain<VolumeId, 20> = from_bytes(&to_bytes(&chain)).unwrap();
        prop_assert_eq!(again.into_vec(), ids);
    }
}

#[test]
fn entries_come_back_from_the_form_by_uuid() {
    let wire = entry();
    let known = VldbEntry::try_from(&wire).unwrap();
    assert_eq!(UvldbEntry::try_from(&known), Ok(wire));
    // Which of the two it is follows from the server, not from the flags it came with.
    let mut flagged = known.clone();
    flagged.sites[0].flags = SiteFlags::READ_WRITE;
    flagged.sites[1].flags = SiteFlags(0x10 | 0x02);
    let wire = UvldbEntry::try_from(&flagged).unwrap();
    assert_eq!(wire.server_flags[..2], [SiteFlags(0x14), SiteFlags(0x02)]);
    flagged.sites = vec![flagged.sites[0]; 14];
    let too_many = EntryError {
        claimed: 14,
        room: 13,
    };
    assert_eq!(UvldbEntry::try_from(&flagged), Err(too_many));
    let form = flagged.to_nvldb(|_| Some(Ipv4Addr::LOCALHOST));
    assert_eq!(form, Err(FormError::Sites(too_many)));
}

#[test]
fn forms_by_address_ask_for_addresses() {
    let mut known = VldbEntry::try_from(&entry()).unwrap();
    let uuid = AfsUuid::from_bytes([7; 16]);
    let address = |asked: &AfsUuid| (*asked == uuid).then_some(Ipv4Addr::new(192, 0, 2, 1));
    let wire = known.to_nvldb(address).unwrap();
    assert_eq!(wire.n_servers, 3);
    let numbers = [0xc000_0201, 0xc000_0202, 0xc000_0203, 0];
    assert_eq!(wire.server_number[..4], numbers);
    assert_eq!(wire.server_flags[0], SiteFlags::READ_WRITE);
    assert_eq!(wire.server_partition[1], PartitionId(1));
    assert_eq!(wire.volume_id, known.volume_ids);
    let nobody = known.to_nvldb(|_| None).unwrap_err();
    let text = format!("no address is known of server {uuid}");
    assert_eq!(nobody.to_string(), text);

    let again = VldbEntry::try_from(&wire).unwrap();
    assert_eq!(again.to_nvldb(|_| None), Ok(wire));
    let wire = known.to_vldb_o(address).unwrap();
    assert_eq!(VldbEntry::try_from(&wire), Ok(again));
    // The oldest form has room for 8.
    known.sites = vec![known.sites[1]; 13];
    assert_eq!(known.to_vldb_o(|_| None).unwrap().n_servers, 8);
}
