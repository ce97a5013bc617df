//! Renaming, new owners and ids, quotas, and what is left after a deletion.

use super::*;

#[tokio::test]
async fn a_new_owner_gives_a_group_its_name() {
    let cell = Cell::with_users().await;
    let alice = As::User("alice");
    cell.make(alice, "alice:f", GROUP, 0).await.unwrap();
    cell.change(alice, -206, ("", 2, 0)).await.unwrap();
    assert_eq!(cell.name_of(-206).await, "bob:f");
    assert_eq!(cell.id_of("alice:f").await, 32766);
    assert_eq!(cell.owned(As::Admin, 1, 0).await, Ok((vec![], 0)));
    assert_eq!(cell.owned(As::Admin, 2, 0).await, Ok((vec![-206], 0)));
    // It is bob's now.
    assert_eq!(cell.change(alice, -206, ("", 1, 0)).await, Err(PRPERM));
    let bob = As::User("bob");
    assert_eq!(cell.change(bob, -206, ("x:f", 0, 0)).await, Err(PRBADNAM));
    cell.change(bob, -206, ("bob:g", 0, 0)).await.unwrap();
    // A name that is taken keeps all as it was.
    cell.make(bob, "bob:h", GROUP, 0).await.unwrap();
    assert_eq!(cell.change(bob, -206, ("bob:h", 0, 0)).await, Err(PREXIST));
    cell.make(alice, "alice:g", GROUP, 0).await.unwrap();
    assert_eq!(cell.change(bob, -206, ("", 1, 0)).await, Err(PREXIST));
    assert_eq!(cell.owned(As::Admin, 2, 0).await.unwrap().0, [-207, -206]);
    assert_eq!(cell.change(bob, -206, ("", 99, 0)).await, Err(PRNOENT));
    // Administrators' groups are named system:.
    cell.change(As::Admin, -206, ("", -204, 0)).await.unwrap();
    assert_eq!(cell.name_of(-206).await, "system:g");
}

#[tokio::test]
async fn users_are_renamed_by_administrators() {
    let cell = Cell::with_users().await;
    let admin = As::Admin;
    let alice = As::User("alice");
    cell.make(alice, "alice:f", GROUP, 0).await.unwrap();
    assert_eq!(cell.change(alice, 1, ("alicia", 0, 0)).await, Err(PRPERM));
    cell.change(admin, 1, ("Alicia", 0, 0)).await.unwrap();
    assert_eq!(cell.name_of(1).await, "alicia");
    assert_eq!(cell.id_of("alice").await, 32766);
    // Groups keep the old name until they are renamed.
    assert_eq!(cell.name_of(-206).await, "alice:f");
    let alicia = As::User("alicia");
    cell.change(alicia, -206, ("alicia:f", 0, 0)).await.unwrap();
    assert_eq!(cell.change(admin, 1, ("bob", 0, 0)).await, Err(PREXIST));
    assert_eq!(cell.change(admin, 1, ("a:b", 0, 0)).await, Err(PRBADNAM));
    assert_eq!(cell.change(admin, 1, ("a@b.c", 0, 0)).await, Err(PRPERM));
    assert_eq!(cell.change(admin, 1, ("", 2, 0)).await, Err(PRPERM));
    assert_eq!(cell.change(admin, 99, ("x", 0, 0)).await, Err(PRNOENT));
    for fixed in [-101, -102, -204, 32766] {
        assert_eq!(cell.change(admin, fixed, ("x", 0, 0)).await, Err(PRPERM));
    }
}

#[tokio::test]
async fn a_new_id_takes_everything_along() {
    let cell = Cell::with_users().await;
    let admin = As::Admin;
    let alice = As::User("alice");
    cell.make(alice, "alice:f", GROUP, 0).await.unwrap();
    cell.make(alice, "alice:g", GROUP, 0).await.unwrap();
    cell.add(alice, 1, -206).await.unwrap();
    cell.add(alice, -206, -207).await.unwrap();
    assert_eq!(cell.change(alice, -206, ("", 0, -300)).await, Err(PRPERM));
    assert_eq!(cell.change(admin, 1, ("", 0, 2)).await, Err(PRIDEXIST));
    assert_eq!(cell.change(admin, 1, ("", 0, -500)).await, Err(PRPERM));
    cell.change(admin, 1, ("", 0, 50)).await.unwrap();
    assert_eq!(cell.id_of("alice").await, 50);
    assert_eq!(cell.name_of(1).await, "1");
    assert_eq!(cell.elements(admin, -206).await, Ok(vec![50]));
    assert_eq!(cell.elements(admin, 50).await, Ok(vec![-206]));
    assert_eq!(cell.owned(admin, 50, 0).await, Ok((vec![-207, -206], 0)));
    assert_eq!(cell.max().await.0, 50);
    cell.change(admin, -206, ("", 0, -300)).await.unwrap();
    assert_eq!(cell.elements(admin, 50).await, Ok(vec![-300]));
    assert_eq!(cell.elements(admin, -207).await, Ok(vec![-300]));
    assert_eq!(cell.is_member(admin, 50, -207).await, Ok(true));
    assert_eq!(cell.owned(admin, 50, 0).await, Ok((vec![-300, -207], 0)));
}

#[tokio::test]
async fn groups_outlive_their_owner() {
    let cell = Cell::with_users().await;
    let alice = As::User("alice");
    cell.make(alice, "alice:f", GROUP, 0).await.unwrap();
    cell.add(alice, 2, -206).await.unwrap();
    cell.delete(As::Admin, 1).await.unwrap();
    assert_eq!(cell.owned(As::Admin, 0, 0).await, Ok((vec![-206], 0)));
    assert_eq!(cell.owned(As::User("bob"), 0, 0).await, Err(PRPERM));
    assert_eq!(cell.entry(As::Admin, -206).await.unwrap().owner.0, 0);
    assert_eq!(cell.elements(As::Admin, -206).await, Ok(vec![2]));
    cell.change(As::Admin, -206, ("", 2, 0)).await.unwrap();
    assert_eq!(cell.name_of(-206).await, "bob:f");
    assert_eq!(cell.owned(As::Admin, 0, 0).await, Ok((vec![], 0)));
    let header = cell.server.header().unwrap();
    assert_eq!((header.users, header.groups), (3, 6));
}

#[tokio::test]
async fn only_owners_and_administrators_delete() {
    let cell = Cell::with_users().await;
    cell.make(As::User("alice"), "alice:f", GROUP, 0)
        .await
        .unwrap();
    assert_eq!(cell.delete(As::User("bob"), -206).await, Err(PRPERM));
    assert_eq!(cell.delete(As::User("alice"), 1).await, Err(PRPERM));
    for fixed in [-101, -102, -204, 32766] {
        assert_eq!(cell.delete(As::Admin, fixed).await, Err(PRPERM));
    }
    assert_eq!(cell.delete(As::Admin, 99).await, Err(PRNOENT));
    cell.delete(As::User("alice"), -206).await.unwrap();
    cell.delete(As::Admin, 1).await.unwrap();
    assert_eq!(cell.entry(As::Admin, 1).await.unwrap_err(), PRNOENT);
}

#[tokio::test]
async fn fields_are_set_by_mask() {
    let cell = Cell::with_users().await;
    let (groups, users) = (PrEntry::SET_N_GROUPS, PrEntry::SET_N_USERS);
    let alice = As::User("alice");
    // The owner of oneself is oneself, but quotas are the administrators'.
    cell.set_access(alice, 1, 0xf0).await.unwrap();
    assert_eq!(cell.entry(alice, 1).await.unwrap().access.0, 0xf0);
    cell.set(alice, 1, 0x40, (0, 0, 0)).await.unwrap();
    assert_eq!(cell.entry(alice, 1).await.unwrap().access.0, 0xb0);
    assert_eq!(cell.set(alice, 1, groups, (0, 9, 9)).await, Err(PRPERM));
    assert_eq!(cell.set_access(alice, 2, 0).await, Err(PRPERM));
    cell.set(As::Admin, 1, groups, (0, 9, 8)).await.unwrap();
    let entry = cell.entry(alice, 1).await.unwrap();
    assert_eq!((entry.n_groups, entry.n_users), (9, 20));
    let negative = cell.set(As::Admin, 1, users, (0, 0, -1)).await;
    assert_eq!(negative, Err(PRBADARG));
    cell.set(As::Nobody, 1, 0, (1, 1, 1)).await.unwrap();
    for fixed in [-101, -102, 32766] {
        assert_eq!(cell.set_access(As::Admin, fixed, 0).await, Err(PRPERM));
    }
    // One quota of a group brings the other.
    cell.make(As::Admin, "staff", GROUP, 0).await.unwrap();
    cell.set(As::Admin, -206, users, (0, 0, 5)).await.unwrap();
    let entry = cell.entry(alice, -206).await.unwrap();
    assert_eq!((entry.n_groups, entry.n_users), (20, 5));
}

#[tokio::test]
async fn an_entry_can_be_put_where_it_is_found() {
    let cell = Cell::with_users().await;
    let update = |id, name, mask| pr::update_entry::Request {
        id: PtsId(id),
        name: text(name),
        update: afar_types::PrUpdateEntry {
            mask,
            ..Default::default()
        },
    };
    let admin = As::Admin.caller();
    let server = &cell.server;
    server
        .update_entry(&admin, update(1, "", 0x18))
        .await
        .unwrap();
    server
        .update_entry(&admin, update(0, "bob", 0x18))
        .await
        .unwrap();
    assert_eq!(cell.id_of("bob").await, 2);
    let refused = |reply: Result<_, _>| Result::<pr::update_entry::Reply, _>::unwrap_err(reply);
    let reply = server.update_entry(&admin, update(0, "dave", 8)).await;
    assert_eq!(refused(reply), PRNOENT);
    let reply = server.update_entry(&admin, update(-204, "", 8)).await;
    assert_eq!(refused(reply), PRPERM);
    let alice = As::User("alice").caller();
    let reply = server.update_entry(&alice, update(1, "", 8)).await;
    assert_eq!(refused(reply), PRPERM);
}
