//! Entries one at a time.

use afar_net::AbortCode;
use afar_rpc::vl;
use afar_rpc::vl::Service as _;
use afar_types::{
    AfsUuid, PartitionId, SiteFlags, UvldbEntry, VldbFlags, VldbUpdateEntry, VolumeId,
};
use afar_xdr::CharArray;

use super::super::codes::*;
use super::{Fixture, address, entry, entry_o, name, uuid};

#[tokio::test]
async fn an_entry_is_found_by_each_of_its_ids_and_names() {
    let cell = Fixture::new();
    let root = entry("root.cell", 100, &[1, 2, 3]);
    cell.create(root.clone()).await.unwrap();
    for text in ["root.cell", "root.cell.readonly", "root.cell.backup", "101"] {
        assert_eq!(cell.by_name(text).await.as_ref(), Ok(&root), "{text}");
    }
    // 2^32 + 100, of which the last 32 bits count.
    assert_eq!(cell.by_name("4294967396").await.as_ref(), Ok(&root));
    for (id, kind) in [
        (100, -1),
        (101, -1),
        (102, -1),
        (100, 0),
        (101, 1),
        (102, 2),
    ] {
        assert_eq!(
            cell.by_id(id, kind).await.as_ref(),
            Ok(&root),
            "{id} {kind}"
        );
    }
    for (id, kind) in [(100, 1), (101, 0), (103, -1), (0, -1)] {
        assert_eq!(cell.by_id(id, kind).await, Err(VL_NOENT), "{id} {kind}");
    }
    assert_eq!(cell.by_id(100, 3).await, Err(VL_BADVOLTYPE));
    assert_eq!(cell.by_name("root.afs").await, Err(VL_NOENT));
    assert_eq!(cell.by_name(".readonly").await, Err(VL_NOENT));
    assert_eq!(cell.by_name("no/name").await, Err(VL_BADNAME));
    assert_eq!(cell.by_name(&"x".repeat(65)).await, Err(VL_BADNAME));
    assert_eq!(cell.by_name("").await, Err(VL_NOENT));
}

#[tokio::test]
async fn only_administrators_change_anything() {
    let cell = Fixture::new();
    cell.create(entry("a", 1, &[1])).await.unwrap();
    let (server, anyone) = (&cell.server, &cell.anyone);
    let volume = VolumeId(1);
    let new = entry("b", 11, &[1]);
    let perm = |result: Result<(), AbortCode>| assert_eq!(result, Err(VL_PERM));
    let create = vl::create_entry_n::Request { entry: new.clone() };
    perm(server.create_entry_n(anyone, create).await.map(|_| ()));
    let create = vl::create_entry::Request {
        entry: entry_o("b", 11, &[1]),
    };
    perm(server.create_entry(anyone, create).await.map(|_| ()));
    let delete = vl::delete_entry::Request { volume, kind: 9 };
    perm(server.delete_entry(anyone, delete).await.map(|_| ()));
    let ids = vl::get_new_volume_id::Request { count: u32::MAX };
    perm(server.get_new_volume_id(anyone, ids).await.map(|_| ()));
    let lock = vl::set_lock::Request {
        volume,
        kind: 9,
        operation: 0,
    };
    perm(server.set_lock(anyone, lock).await.map(|_| ()));
    let unlock = vl::release_lock::Request {
        volume,
        kind: 9,
        release: 8,
    };
    perm(server.release_lock(anyone, unlock).await.map(|_| ()));
    let update = VldbUpdateEntry::default();
    let update_id = vl::update_entry::Request {
        volume,
        kind: 9,
        update: update.clone(),
        release: 8,
    };
    perm(server.update_entry(anyone, update_id).await.map(|_| ()));
    let update_name = vl::update_entry_by_name::Request {
        name: name("a"),
        update,
        release: 8,
    };
    perm(
        server
            .update_entry_by_name(anyone, update_name)
            .await
            .map(|_| ()),
    );
    let addr = vl::change_addr::Request {
        old: 1,
        new: u32::MAX,
    };
    perm(server.change_addr(anyone, addr).await.map(|_| ()));
    let register = vl::register_addrs::Request {
        server: uuid(1),
        spare: 0,
        addresses: Default::default(),
    };
    perm(server.register_addrs(anyone, register).await.map(|_| ()));
    let replace = vl::replace_entry_n::Request {
        volume,
        kind: 9,
        entry: new,
        release: 8,
    };
    perm(server.replace_entry_n(anyone, replace).await.map(|_| ()));
}

#[tokio::test]
async fn entries_that_cannot_be_are_refused_in_order() {
    let cell = Fixture::new();
    cell.create(entry("taken", 100, &[1, 2])).await.unwrap();
    let good = entry("new", 200, &[1]);
    let mut bad = good.clone();
    bad.name = CharArray::new("no/name").unwrap();
    bad.n_servers = 0;
    assert_eq!(cell.create(bad.clone()).await, Err(VL_BADNAME));
    bad.name = good.name;
    assert_eq!(cell.create(bad.clone()).await, Err(VL_BADSERVER));
    bad.n_servers = 14;
    assert_eq!(cell.create(bad.clone()).await, Err(VL_BADSERVER));
    bad.n_servers = 1;
    bad.server_partition[0] = PartitionId(256);
    bad.server_flags[0] = SiteFlags(0x81);
    assert_eq!(cell.create(bad.clone()).await, Err(VL_BADPARTITION));
    bad.server_partition[0] = PartitionId(255);
    assert_eq!(cell.create(bad.clone()).await, Err(VL_BADSERVERFLAG));
    bad.server_flags[0] = SiteFlags(0x80);
    bad.volume_id[0] = VolumeId(102);
    bad.name = CharArray::new("taken.readonly").unwrap();
    assert_eq!(cell.create(bad.clone()).await, Err(VL_IDEXIST));
    bad.volume_id = [VolumeId(200), VolumeId(0), VolumeId(0)];
    assert_eq!(cell.create(bad.clone()).await, Err(VL_NAMEEXIST));
    bad.name = good.name;
    for refused in [0, 0xff00_0001, u32::MAX] {
        bad.server_number[0] = refused;
        assert_eq!(
            cell.create(bad.clone()).await,
            Err(VL_BADSERVER),
            "{refused:x}"
        );
    }
    assert_eq!(cell.by_name("new").await, Err(VL_NOENT));
    bad.server_number[0] = address(1);
    cell.create(bad).await.unwrap();
}

#[tokio::test]
async fn a_deleted_entry_leaves_nothing() {
    let cell = Fixture::new();
    cell.create(entry("a", 100, &[1])).await.unwrap();
    assert_eq!(cell.delete(100, 3).await, Err(VL_BADVOLTYPE));
    assert_eq!(cell.delete(100, 1).await, Err(VL_NOENT));
    cell.delete(101, 1).await.unwrap();
    assert_eq!(cell.delete(100, -1).await, Err(VL_NOENT));
    assert_eq!(cell.by_name("a").await, Err(VL_NOENT));
    assert_eq!(cell.by_id(102, -1).await, Err(VL_NOENT));
    let rows = cell.server.database.read(|view| {
        let rows = view
            .range(b"V", b"V")
            .map(|row| row.map(|(key, _)| key.to_vec()));
        rows.collect::<Result<Vec<_>, crate::kv::DbError>>()
    });
    assert_eq!(rows.unwrap(), [b"Vh".to_vec(), b"Vs\0".to_vec()]);
    cell.create(entry("a", 100, &[1])).await.unwrap();
}

#[tokio::test]
async fn an_entry_is_replaced() {
    let cell = Fixture::new();
    cell.create(entry("a", 100, &[1])).await.unwrap();
    cell.create(entry("b", 200, &[1])).await.unwrap();
    let mut new = entry("a2", 100, &[2, 3]);
    new.volume_id[1] = VolumeId(150);
    new.volume_id[2] = VolumeId(0);
    assert_eq!(
        cell.replace(100, new.clone(), 8).await,
        Err(VL_BADRELLOCKTYPE)
    );
    assert_eq!(cell.replace(300, new.clone(), 0).await, Err(VL_NOENT));
    assert_eq!(cell.replace(200, new.clone(), 0).await, Err(VL_BADENTRY));
    cell.replace(101, new.clone(), 0).await.unwrap();
    assert_eq!(cell.by_name("a").await, Err(VL_NOENT));
    assert_eq!(cell.by_name("a2").await, Ok(new.clone()));
    assert_eq!(cell.by_id(150, 1).await, Ok(new.clone()));
    for gone in [101, 102] {
        assert_eq!(cell.by_id(gone, -1).await, Err(VL_NOENT));
    }
    let mut clash = new.clone();
    clash.volume_id[1] = VolumeId(201);
    assert_eq!(
        cell.replace(100, clash.clone(), 0).await,
        Err(VL_IDALREADYHASHED)
    );
    clash.volume_id[1] = new.volume_id[1];
    clash.name = CharArray::new("b").unwrap();
    assert_eq!(cell.replace(100, clash, 0).await, Err(VL_NAMEEXIST));
    let mut old = entry_o("a2", 100, &[1]);
    old.volume_id[1] = VolumeId(202);
    let replace = |entry| vl::replace_entry::Request {
        volume: VolumeId(100),
        kind: 0,
        entry,
        release: 0,
    };
    let refused = cell
        .server
        .replace_entry(&cell.admin, replace(old.clone()))
        .await;
    assert_eq!(refused, Err(VL_IDEXIST));
    old.volume_id[1] = VolumeId(101);
    cell.server
        .replace_entry(&cell.admin, replace(old))
        .await
        .unwrap();
    assert_eq!(cell.by_id(101, 1).await.unwrap().n_servers, 1);
}

#[tokio::test]
async fn locks_hold_until_they_are_let_go_of() {
    let cell = Fixture::new();
    cell.create(entry("a", 100, &[1])).await.unwrap();
    for wrong in [0, 1, 0x30, 0x1000, -1] {
        assert_eq!(cell.lock(100, wrong).await, Err(VL_BADVOLOPER), "{wrong}");
    }
    assert_eq!(cell.lock(7, 0x10).await, Err(VL_NOENT));
    cell.lock(100, 0x20).await.unwrap();
    assert_eq!(cell.by_name("a").await.unwrap().flags, VldbFlags(0x1020));
    assert_eq!(cell.lock(100, 0x10).await, Err(VL_ENTRYLOCKED));
    assert_eq!(cell.unlock(100, 8).await, Err(VL_BADRELLOCKTYPE));
    // The time alone: a release that did not finish is seen by the next one.
    cell.unlock(100, 1).await.unwrap();
    assert_eq!(cell.lock(100, 0x10).await, Err(VL_RERELEASE));
    cell.unlock(100, 2).await.unwrap();
    assert_eq!(cell.by_name("a").await.unwrap().flags, VldbFlags(0x1000));
    cell.lock(100, 0x10).await.unwrap();
    // A replacement keeps the lock, unless it says otherwise.
    let mut new = entry("a", 100, &[2]);
    cell.replace(100, new.clone(), 0).await.unwrap();
    assert_eq!(cell.lock(100, 0x10).await, Err(VL_ENTRYLOCKED));
    new.flags = VldbFlags(0x1110);
    cell.replace(100, new, 7).await.unwrap();
    assert_eq!(cell.by_name("a").await.unwrap().flags, VldbFlags(0x1000));
    cell.lock(100, 0x100).await.unwrap();
}

#[tokio::test]
async fn new_volume_ids_are_free_ones_in_a_row() {
    let cell = Fixture::new();
    let take = |count| {
        let request = vl::get_new_volume_id::Request { count };
        let (server, admin) = (cell.server.clone(), cell.admin.clone());
        async move {
            let reply = server.get_new_volume_id(&admin, request).await;
            reply.map(|reply| reply.first.0)
        }
    };
    assert_eq!(take(1).await, Ok(0x2000_0000));
    assert_eq!(take(3).await, Ok(0x2000_0001));
    assert_eq!(take(0).await, Ok(0x2000_0004));
    // Ids 6, 7 and 8 are taken.
    cell.create(entry("a", 0x2000_0006, &[1])).await.unwrap();
    assert_eq!(take(2).await, Ok(0x2000_0004));
    assert_eq!(take(2).await, Ok(0x2000_0009));
    assert_eq!(take(0x8000_0000).await, Err(VL_BADVOLIDBUMP));
    assert_eq!(take(0x7fff_ffff).await, Ok(0x2000_000b));
    assert_eq!(take(0x7fff_ffff).await, Err(VL_BADVOLIDBUMP));
}

#[tokio::test]
async fn parts_of_an_entry_are_updated() {
    let cell = Fixture::new();
    cell.create(entry("a", 100, &[1, 2])).await.unwrap();
    cell.create(entry("b", 200, &[1])).await.unwrap();
    let update = |update: VldbUpdateEntry| {
        let request = vl::update_entry::Request {
            volume: VolumeId(100),
            kind: -1,
            update,
            release: 0,
        };
        let (server, admin) = (cell.server.clone(), cell.admin.clone());
        async move { server.update_entry(&admin, request).await.map(|_| ()) }
    };
    let mut wanted = VldbUpdateEntry {
        mask: VldbUpdateEntry::NAME | VldbUpdateEntry::READ_ONLY_ID | VldbUpdateEntry::FLAGS,
        name: CharArray::new("b").unwrap(),
        read_only_id: VolumeId(200),
        flags: VldbFlags(0x3000),
        ..VldbUpdateEntry::default()
    };
    assert_eq!(update(wanted.clone()).await, Err(VL_IDEXIST));
    wanted.read_only_id = VolumeId(111);
    assert_eq!(update(wanted.clone()).await, Err(VL_NAMEEXIST));
    wanted.name = CharArray::new("c").unwrap();
    update(wanted).await.unwrap();
    assert_eq!(cell.by_id(111, 1).await.unwrap().name.as_bytes(), b"c");
    assert_eq!(cell.by_id(101, 1).await, Err(VL_NOENT));

    let mut sites = VldbUpdateEntry {
        mask: VldbUpdateEntry::SITES,
        ..VldbUpdateEntry::default()
    };
    assert_eq!(update(sites.clone()).await, Err(VL_BADSERVER));
    sites.n_modified_sites = 2;
    sites.site_mask[0] = VldbUpdateEntry::SITE_DELETE;
    sites.site_target_server[0] = address(2);
    assert_eq!(update(sites.clone()).await, Err(VL_NOREPSERVER));
    sites.site_target_partition[0] = PartitionId(1);
    sites.site_mask[1] = VldbUpdateEntry::SITE_ADD;
    sites.site_new_server[1] = address(1);
    assert_eq!(update(sites.clone()).await, Err(VL_DUPREPSERVER));
    sites.site_new_server[1] = address(9);
    sites.site_new_flags[1] = SiteFlags(2);
    update(sites).await.unwrap();
    let found = cell.by_name("c").await.unwrap();
    assert_eq!(found.server_number[..3], [address(1), address(9), 0]);
    let by_name = vl::update_entry_by_name::Request {
        name: name("c"),
        update: VldbUpdateEntry {
            mask: VldbUpdateEntry::CLONE_ID,
            clone_id: VolumeId(5),
            ..VldbUpdateEntry::default()
        },
        release: 0,
    };
    cell.server
        .update_entry_by_name(&cell.admin, by_name)
        .await
        .unwrap();
    assert_eq!(cell.by_name("c").await.unwrap().clone_id, VolumeId(5));
}

#[tokio::test]
async fn servers_come_in_the_form_that_is_asked_for() {
    let cell = Fixture::new();
    cell.create(entry("a", 100, &[1, 2, 3, 4, 5, 6, 7, 8, 9]))
        .await
        .unwrap();
    cell.register(2, &[address(2), address(22)]).await.unwrap();
    let request = vl::get_entry_by_name_u::Request { name: name("a") };
    let reply = cell
        .server
        .get_entry_by_name_u(&cell.anyone, request)
        .await
        .unwrap();
    let UvldbEntry {
        server_number,
        server_flags,
        server_unique,
        ..
    } = reply.entry;
    assert_eq!(
        server_number[0],
        AfsUuid {
            time_low: address(1),
            ..AfsUuid::default()
        }
    );
    assert_eq!((server_number[1], server_unique[1]), (uuid(2), 1));
    assert_eq!(
        server_flags[..3],
        [SiteFlags(4), SiteFlags(0x12), SiteFlags(2)]
    );
    let old = vl::get_entry_by_name_o::Request { name: name("a") };
    let reply = cell
        .server
        .get_entry_by_name_o(&cell.anyone, old)
        .await
        .unwrap();
    // Eight sites are as many as this form has.
    assert_eq!(
        (reply.entry.n_servers, reply.entry.server_number[7]),
        (8, address(8))
    );
    cell.register(2, &[address(22), address(2)]).await.unwrap();
    let found = cell.by_name("a").await.unwrap();
    assert_eq!((found.n_servers, found.server_number[1]), (9, address(22)));
    assert_eq!(found.server_flags[1], SiteFlags(2));
}
