//! Registering and finding file servers.

use afar_net::AbortCode;
use afar_rpc::vl;
use afar_rpc::vl::Service as _;
use afar_types::{AddrsU, ListAddrByAttributes};

use super::super::codes::*;
use super::{Fixture, address, entry, uuid};

async fn find(cell: &Fixture, attributes: ListAddrByAttributes) -> Result<AddrsU, AbortCode> {
    let request = vl::get_addrs_u::Request { attributes };
    let reply = cell.server.get_addrs_u(&cell.anyone, request).await;
    reply.map(|reply| reply.addresses)
}

async fn by_uuid(cell: &Fixture, n: u8) -> Result<(u32, Vec<u32>), AbortCode> {
    let found = find(cell, ListAddrByAttributes::by_uuid(uuid(n))).await?;
    assert_eq!(found.uuid, uuid(n));
    Ok((found.uniquifier, found.addresses.to_vec()))
}

async fn all(cell: &Fixture) -> Vec<u32> {
    let request = vl::get_addrs::Request {
        handle: 0,
        spare: 0,
    };
    let reply = cell.server.get_addrs(&cell.anyone, request).await.unwrap();
    assert_eq!(usize::try_from(reply.count).unwrap(), reply.addresses.len());
    reply.addresses.to_vec()
}

async fn change(cell: &Fixture, old: u32, new: u32) -> Result<(), AbortCode> {
    let request = vl::change_addr::Request { old, new };
    cell.server
        .change_addr(&cell.admin, request)
        .await
        .map(|_| ())
}

#[tokio::test]
async fn a_server_is_registered_and_found() {
    let cell = Fixture::new();
    assert_eq!(cell.register(1, &[0, 0]).await, Err(VL_INDEXERANGE));
    let many: Vec<u32> = (1..=20).map(address).collect();
    cell.register(1, &[&[0, address(1)][..], &many].concat())
        .await
        .unwrap();
    assert_eq!(by_uuid(&cell, 1).await, Ok((1, many[..15].to_vec())));
    cell.register(1, &many[..15]).await.unwrap();
    assert_eq!(by_uuid(&cell, 1).await.unwrap().0, 1, "nothing changed");
    cell.register(1, &[address(1), address(30)]).await.unwrap();
    let changed = (2, vec![address(1), address(30)]);
    assert_eq!(by_uuid(&cell, 1).await, Ok(changed.clone()));
    let found = find(&cell, ListAddrByAttributes::by_address(address(30).into()))
        .await
        .unwrap();
    assert_eq!((found.uniquifier, found.n_entries), (2, 2));
    let found = find(&cell, ListAddrByAttributes::by_index(1))
        .await
        .unwrap();
    assert_eq!(found.addresses.to_vec(), changed.1);
    assert_eq!(all(&cell).await, [0xff00_0001]);
}

#[tokio::test]
async fn exactly_one_attribute_finds_a_server() {
    let cell = Fixture::new();
    cell.create(entry("a", 100, &[1])).await.unwrap();
    for mask in [0, 3, 5, 6, 7, 8] {
        let wanted = ListAddrByAttributes {
            mask,
            ..ListAddrByAttributes::default()
        };
        assert_eq!(find(&cell, wanted).await, Err(VL_BADMASK), "{mask}");
    }
    for index in [0, 255, u32::MAX] {
        let found = find(&cell, ListAddrByAttributes::by_index(index)).await;
        assert_eq!(found, Err(VL_INDEXERANGE), "{index}");
    }
    // The first server has no UUID, the second is not there.
    for index in [1, 2, 254] {
        assert_eq!(
            find(&cell, ListAddrByAttributes::by_index(index)).await,
            Err(VL_NOENT)
        );
    }
    let by_address = ListAddrByAttributes::by_address(address(1).into());
    assert_eq!(find(&cell, by_address).await, Err(VL_NOENT));
    assert_eq!(by_uuid(&cell, 1).await, Err(VL_NOENT));
    assert_eq!(all(&cell).await, [address(1)]);
}

#[tokio::test]
async fn a_server_known_by_address_gets_its_uuid() {
    let cell = Fixture::new();
    cell.create(entry("a", 100, &[1, 2])).await.unwrap();
    cell.register(2, &[address(2), address(22)]).await.unwrap();
    assert_eq!(all(&cell).await, [address(1), 0xff00_0001]);
    // An entry may name it by any of its addresses.
    cell.create(entry("b", 200, &[22])).await.unwrap();
    assert_eq!(
        cell.by_name("b").await.unwrap().server_number[0],
        address(2)
    );
    assert_eq!(all(&cell).await.len(), 2);
}

#[tokio::test]
async fn a_new_uuid_takes_over_the_one_server_with_its_addresses() {
    let cell = Fixture::new();
    cell.register(1, &[address(1), address(2)]).await.unwrap();
    cell.register(2, &[address(2), address(3)]).await.unwrap();
    assert_eq!(by_uuid(&cell, 1).await, Err(VL_NOENT));
    assert_eq!(
        by_uuid(&cell, 2).await,
        Ok((2, vec![address(2), address(3)]))
    );
    cell.register(4, &[address(4)]).await.unwrap();
    let both = [address(3), address(4)];
    assert_eq!(cell.register(5, &both).await, Err(VL_MULTIPADDR));
    assert_eq!(by_uuid(&cell, 5).await, Err(VL_NOENT));
}

#[tokio::test]
async fn a_known_uuid_takes_addresses_but_never_all() {
    let cell = Fixture::new();
    cell.register(1, &[address(1)]).await.unwrap();
    cell.register(2, &[address(2), address(3)]).await.unwrap();
    cell.register(1, &[address(1), address(3)]).await.unwrap();
    assert_eq!(
        by_uuid(&cell, 1).await,
        Ok((2, vec![address(1), address(3)]))
    );
    assert_eq!(by_uuid(&cell, 2).await, Ok((2, vec![address(2)])));
    assert_eq!(
        cell.register(1, &[address(1), address(2)]).await,
        Err(VL_MULTIPADDR)
    );
    assert_eq!(by_uuid(&cell, 2).await, Ok((2, vec![address(2)])));
}

#[tokio::test]
async fn addresses_change_and_servers_go() {
    let cell = Fixture::new();
    cell.create(entry("a", 100, &[1, 2])).await.unwrap();
    cell.register(3, &[address(3), address(4)]).await.unwrap();
    assert_eq!(
        change(&cell, address(1), 0xff00_0000).await,
        Err(VL_BADSERVER)
    );
    assert_eq!(change(&cell, address(9), address(10)).await, Err(VL_NOENT));
    assert_eq!(
        change(&cell, address(1), address(2)).await,
        Err(VL_MULTIPADDR)
    );
    assert_eq!(
        change(&cell, address(1), address(4)).await,
        Err(VL_MULTIPADDR)
    );
    assert_eq!(change(&cell, address(3), address(9)).await, Err(VL_NOENT));
    change(&cell, address(1), address(9)).await.unwrap();
    assert_eq!(
        cell.by_name("a").await.unwrap().server_number[0],
        address(9)
    );
    assert_eq!(change(&cell, u32::MAX, address(9)).await, Err(VL_IDEXIST));
    assert_eq!(change(&cell, u32::MAX, address(1)).await, Err(VL_NOENT));
    change(&cell, u32::MAX, address(4)).await.unwrap();
    assert_eq!(by_uuid(&cell, 3).await, Err(VL_NOENT));
    // It comes back, and does not look like before.
    cell.register(3, &[address(5)]).await.unwrap();
    assert_eq!(by_uuid(&cell, 3).await, Ok((2, vec![address(5)])));
    cell.delete(100, 0).await.unwrap();
    change(&cell, u32::MAX, address(9)).await.unwrap();
    assert_eq!(all(&cell).await.len(), 2);
}

#[tokio::test]
async fn there_is_room_for_255_servers() {
    let cell = Fixture::new();
    for n in 0..255u32 {
        let mut new = entry(&format!("v{n}"), 1000 + 10 * n, &[1]);
        new.server_number[0] = 0x0a01_0000 + n;
        cell.create(new).await.unwrap();
    }
    assert_eq!(all(&cell).await.len(), 255);
    assert_eq!(cell.create(entry("more", 1, &[1])).await, Err(VL_BADSERVER));
    assert_eq!(cell.register(1, &[address(1)]).await, Err(VL_REPSFULL));
    for n in 1..=252u32 {
        // Four blocks of 63 servers.
        let uuid_of = afar_types::AfsUuid {
            time_low: n,
            ..uuid(1)
        };
        let request = vl::register_addrs::Request {
            server: uuid_of,
            spare: 0,
            addresses: afar_xdr::List::new([0x0a01_0000 + n]).unwrap(),
        };
        cell.server
            .register_addrs(&cell.admin, request)
            .await
            .unwrap();
    }
    assert_eq!(
        cell.register(9, &[0x0a01_0000 + 253]).await,
        Err(VL_REPSFULL)
    );
    assert_eq!(all(&cell).await[252], 0xff03_003f);
}

#[tokio::test]
async fn a_loopback_address_is_for_a_cell_of_one_machine() {
    let home = u32::from(std::net::Ipv4Addr::LOCALHOST);
    let at = |text: &str, volume, server| {
        let mut entry = entry(text, volume, &[1]);
        entry.server_number[0] = server;
        entry
    };
    // Where there is nothing else it is as good as another.
    let alone = Fixture::new();
    alone.register(1, &[home]).await.unwrap();
    alone.create(at("a", 100, home)).await.unwrap();

    let cell = Fixture::new();
    cell.register(1, &[home, address(1)]).await.unwrap();
    assert_eq!(by_uuid(&cell, 1).await.unwrap().1, [address(1)]);
    assert_eq!(cell.register(1, &[home]).await, Err(VL_BADSERVER));
    assert_eq!(cell.register(2, &[home + 1]).await, Err(VL_BADSERVER));
    assert_eq!(by_uuid(&cell, 1).await.unwrap().1, [address(1)]);
    let refused = cell.create(at("a", 100, home)).await;
    assert_eq!(refused, Err(VL_BADSERVER));
    cell.create(at("a", 100, address(1))).await.unwrap();
    let refused = cell.replace(100, at("a", 100, home), 0).await;
    assert_eq!(refused, Err(VL_BADSERVER));
    cell.create(at("b", 200, address(2))).await.unwrap();
    assert_eq!(change(&cell, address(2), home).await, Err(VL_BADSERVER));
    assert_eq!(all(&cell).await, [0xff00_0001, address(2)]);
}
