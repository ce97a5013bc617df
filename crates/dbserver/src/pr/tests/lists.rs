//! Lists, and the CPS of users and hosts.

use super::*;

async fn host_cps(cell: &Cell, host: [u8; 4]) -> Vec<i32> {
    let host = u32::from_be_bytes(host);
    let request = pr::get_host_cps::Request { host };
    let reply = cell
        .server
        .get_host_cps(&As::Nobody.caller(), request)
        .await
        .unwrap();
    assert_eq!(reply.over, 0);
    ids(&reply.cps)
}

#[tokio::test]
async fn a_cps_is_sorted_and_has_who_everyone_is() {
    let cell = Cell::with_users().await;
    cell.make(As::Admin, "alice:f", GROUP, 1).await.unwrap();
    cell.make(As::Admin, "alice:g", GROUP, 1).await.unwrap();
    cell.add(As::Admin, 2, -206).await.unwrap();
    cell.add(As::Admin, 2, -207).await.unwrap();
    let cps = cell.cps(As::User("bob"), 2).await.unwrap();
    assert_eq!(cps, [-207, -206, -102, -101, 2]);
    let nobody = cell.cps(As::Admin, 32766).await.unwrap();
    assert_eq!(nobody, [-101, 32766]);
    assert_eq!(cell.cps(As::Admin, -101).await.unwrap(), [-101]);
    assert_eq!(cell.cps(As::Admin, -102).await.unwrap(), [-102, -101]);
    // Of a group: its members, and what those are in.
    cell.add(As::Admin, -207, -206).await.unwrap();
    let group = cell.cps(As::Admin, -206).await.unwrap();
    assert_eq!(group, [-207, -206, -102, -101, 2]);
    assert_eq!(cell.cps(As::Admin, 77).await, Err(PRNOENT));
}

#[tokio::test]
async fn hosts_are_users_named_by_their_addresses() {
    let cell = Cell::new().await;
    let admin = As::Admin;
    for (n, name) in ["10.1.2.3", "10.1.2.0", "10.1.0.0", "10.0.0.0"]
        .into_iter()
        .enumerate()
    {
        let id = cell.make(admin, name, 0, 0).await.unwrap();
        let group = cell.make(admin, &format!("g{n}"), GROUP, 0).await.unwrap();
        cell.add(admin, id, group).await.unwrap();
    }
    // One group of the host and of its network is there once.
    cell.add(admin, 1, -207).await.unwrap();
    assert_eq!(
        host_cps(&cell, [10, 1, 2, 3]).await,
        [-209, -208, -207, -206]
    );
    assert_eq!(host_cps(&cell, [10, 1, 2, 4]).await, [-209, -208, -207]);
    assert_eq!(host_cps(&cell, [10, 1, 2, 0]).await, [-209, -208, -207]);
    assert_eq!(host_cps(&cell, [10, 2, 2, 3]).await, [-209]);
    assert_eq!(host_cps(&cell, [11, 1, 2, 3]).await, []);
    assert_eq!(host_cps(&cell, [0, 0, 0, 0]).await, []);

    let at = |id, host| pr::get_cps2::Request {
        id: PtsId(id),
        host: u32::from_be_bytes(host),
    };
    cell.make(admin, "alice", 0, 0).await.unwrap();
    let caller = admin.caller();
    let both = cell.server.get_cps2(&caller, at(5, [10, 9, 9, 9])).await;
    assert_eq!(ids(&both.unwrap().cps), [-209, -102, -101, 5]);
    let host = cell
        .server
        .get_cps2(&caller, at(i32::MIN, [10, 9, 9, 9]))
        .await;
    assert_eq!(ids(&host.unwrap().cps), [-209]);
    let none = cell.server.get_cps2(&caller, at(99, [10, 9, 9, 9])).await;
    assert_eq!(none.unwrap_err(), PRNOENT);
}

#[tokio::test]
async fn entries_are_listed_in_the_order_in_which_they_were_made() {
    let cell = Cell::new().await;
    for n in 0..700 {
        let name = format!("u{n}");
        cell.make(As::Admin, &name, 0, 0).await.unwrap();
    }
    cell.delete(As::Admin, 10).await.unwrap();
    let list = |flags, start_index| {
        let request = pr::list_entries::Request { flags, start_index };
        let caller = As::Admin.caller();
        let server = cell.server.clone();
        async move { server.list_entries(&caller, request).await }
    };
    let first = list(1, 0).await.unwrap();
    assert_eq!(first.entries.len(), 500);
    assert_eq!(first.entries[0].id.0, 32766);
    let second = list(1, first.next_start_index).await.unwrap();
    assert_eq!(second.next_start_index, -1);
    let listed = first.entries.iter().chain(&second.entries);
    let listed: Vec<_> = listed.map(|entry| entry.id.0).skip(1).collect();
    let expected: Vec<_> = (1..=700).filter(|&id| id != 10).collect();
    assert_eq!(listed, expected);
    let groups = list(2, 0).await.unwrap();
    assert_eq!(groups.next_start_index, -1);
    let groups: Vec<_> = groups.entries.iter().map(|group| group.id.0).collect();
    assert_eq!(groups, [-204, -205, -101, -102, -203]);
    let both = list(3, 0).await.unwrap();
    assert_eq!(both.entries.len(), 500);
    assert_eq!(list(0, 0).await.unwrap().entries.len(), 0);
    assert_eq!(list(3, -5).await.unwrap_err(), PRBADARG);
    assert_eq!(list(3, 9999).await.unwrap().next_start_index, -1);
}

#[tokio::test]
async fn owned_groups_are_listed_a_page_at_a_time() {
    let cell = Cell::new().await;
    let count = 5003;
    for n in 0..count {
        let name = format!("system:{n}");
        cell.make(As::Admin, &name, GROUP, 0).await.unwrap();
    }
    let (first, next) = cell.owned(As::Admin, -204, 0).await.unwrap();
    assert_eq!(first.len(), 5000);
    assert!(next < 0);
    let (rest, end) = cell.owned(As::Admin, -204, next).await.unwrap();
    assert_eq!(end, 0);
    let all: Vec<_> = first.into_iter().chain(rest).collect();
    let made = (206..206 + count).rev().map(|id| -id);
    let expected: Vec<_> = made.chain([-205, -204, -203, -102, -101]).collect();
    assert_eq!(all, expected);
    assert_eq!(cell.owned(As::Admin, 99, 0).await, Err(PRNOENT));
}

#[tokio::test]
async fn an_entry_is_shown_at_its_place() {
    let cell = Cell::with_users().await;
    cell.make(As::Admin, "alice:f", GROUP, 1).await.unwrap();
    cell.add(As::Admin, 2, -206).await.unwrap();
    let admin = As::Admin.caller();
    let server = &cell.server;
    let find = |id| pr::where_is_it::Request { id: PtsId(id) };
    let position = server
        .where_is_it(&admin, find(-206))
        .await
        .unwrap()
        .position;
    assert_eq!(position, 65_600 + 9 * 192);
    let dump = |position| pr::dump_entry::Request { position };
    let entry = server
        .dump_entry(&admin, dump(position))
        .await
        .unwrap()
        .entry;
    assert_eq!((entry.id.0, entry.flags & 2, entry.count), (-206, 2, 1));
    assert_eq!((entry.entries[0].0, entry.entries[1].0), (2, 0));
    assert_eq!(entry.name.as_bytes(), b"alice:f");
    let alice = server.where_is_it(&admin, find(1)).await.unwrap().position;
    let alice = server.dump_entry(&admin, dump(alice)).await.unwrap().entry;
    assert_eq!(alice.owned, position);
    for nowhere in [0, -1, position + 1, position + 192, i32::MAX] {
        assert!(server.dump_entry(&admin, dump(nowhere)).await.is_err());
    }
    let bob = As::User("bob").caller();
    let refused = server.dump_entry(&bob, dump(position)).await;
    assert_eq!(refused.unwrap_err(), PRPERM);
}
