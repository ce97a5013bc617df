//! Memberships, and groups in groups.

use super::*;

#[tokio::test]
async fn members_come_and_go() {
    let cell = Cell::with_users().await;
    let alice = As::User("alice");
    cell.make(alice, "alice:f", GROUP, 0).await.unwrap();
    cell.add(alice, 3, -206).await.unwrap();
    cell.add(alice, 2, -206).await.unwrap();
    assert_eq!(cell.add(alice, 2, -206).await, Err(PRIDEXIST));
    assert_eq!(cell.elements(alice, -206).await, Ok(vec![2, 3]));
    assert_eq!(cell.elements(As::User("bob"), 2).await, Ok(vec![-206]));
    assert_eq!(cell.entry(alice, -206).await.unwrap().count, 2);
    assert_eq!(cell.entry(alice, 2).await.unwrap().count, 1);
    cell.remove(alice, 2, -206).await.unwrap();
    assert_eq!(cell.remove(alice, 2, -206).await, Err(PRNOENT));
    assert_eq!(cell.elements(alice, -206).await, Ok(vec![3]));
    assert_eq!(cell.entry(alice, 2).await.unwrap().count, 0);
}

#[tokio::test]
async fn what_cannot_be_a_membership() {
    let cell = Cell::with_users().await;
    let admin = As::Admin;
    cell.make(admin, "alice:f", GROUP, 1).await.unwrap();
    assert_eq!(cell.add(admin, 1, -101).await, Err(PRPERM));
    assert_eq!(cell.add(admin, 1, -102).await, Err(PRPERM));
    assert_eq!(cell.add(admin, 32766, -206).await, Err(PRPERM));
    assert_eq!(cell.add(admin, 99, -206).await, Err(PRNOENT));
    assert_eq!(cell.add(admin, 1, -999).await, Err(PRNOENT));
    assert_eq!(cell.add(admin, 1, 2).await, Err(PRNOTGROUP));
    assert_eq!(cell.add(admin, -206, -206).await, Err(PRINCONSISTENT));
    assert_eq!(cell.remove(admin, -206, -206).await, Err(PRINCONSISTENT));
    assert_eq!(cell.remove(admin, 1, 2).await, Err(PRNOTGROUP));
    assert_eq!(cell.remove(admin, 99, -206).await, Err(PRNOENT));
}

#[tokio::test]
async fn groups_in_groups_count_five_deep() {
    let cell = Cell::with_users().await;
    let admin = As::Admin;
    // alice is in -206, that in -207, and so on.
    for n in 0..8 {
        let name = format!("g{n}");
        assert_eq!(cell.make(admin, &name, GROUP, 0).await, Ok(-206 - n));
    }
    cell.add(admin, 1, -206).await.unwrap();
    for n in 0..7 {
        cell.add(admin, -206 - n, -207 - n).await.unwrap();
    }
    // IsAMemberOf looks through five groups, GetCPS through five above the first (OpenAFS).
    for (group, member) in [(-206, true), (-210, true), (-211, false)] {
        assert_eq!(cell.is_member(admin, 1, group).await, Ok(member));
    }
    let cps = cell.cps(admin, 1).await.unwrap();
    assert_eq!(cps, [-211, -210, -209, -208, -207, -206, -102, -101, 1]);
    // The count of a group is of its members only.
    assert_eq!(cell.entry(admin, -207).await.unwrap().count, 1);
    assert_eq!(cell.elements(admin, -207).await, Ok(vec![-206]));
    let id = PtsId(-207);
    let request = pr::list_super_groups::Request { id };
    let caller = admin.caller();
    let above = cell.server.list_super_groups(&caller, request).await;
    assert_eq!(ids(&above.unwrap().groups), [-208]);
    // A circle ends.
    cell.add(admin, -213, -206).await.unwrap();
    assert_eq!(cell.is_member(admin, 2, -206).await, Ok(false));
    cell.delete(admin, -207).await.unwrap();
    assert_eq!(cell.cps(admin, 1).await.unwrap(), [-206, -102, -101, 1]);
}

#[tokio::test]
async fn everyone_in_a_group_makes_it_everyones() {
    let cell = Cell::with_users().await;
    cell.make(As::Admin, "all", GROUP, 0).await.unwrap();
    cell.make(As::Admin, "known", GROUP, 0).await.unwrap();
    cell.add(As::Admin, -101, -206).await.unwrap();
    cell.add(As::Admin, -102, -207).await.unwrap();
    for (user, group, member) in [
        (1, -206, true),
        (32766, -206, true),
        (1, -207, true),
        (32766, -207, false),
        (32766, -101, true),
        (32766, -102, false),
        (1, -102, true),
    ] {
        assert_eq!(cell.is_member(As::Admin, user, group).await, Ok(member));
    }
    assert_eq!(cell.is_member(As::Admin, 1, 2).await, Err(PRBADARG));
    assert_eq!(cell.is_member(As::Admin, 9, -206).await, Err(PRNOENT));
}

#[tokio::test]
async fn a_large_group_grows_by_a_few_rows_and_goes_in_pieces() {
    let cell = Cell::new().await;
    cell.make(As::Admin, "large", GROUP, 0).await.unwrap();
    let users = 2500;
    for id in 1..=users {
        let name = format!("u{id}");
        cell.make(As::Admin, &name, 0, 0).await.unwrap();
        cell.add(As::Admin, id, -206).await.unwrap();
    }
    assert_eq!(cell.entry(As::Admin, -206).await.unwrap().count, users);
    let members = cell.elements(As::Admin, -206).await.unwrap();
    assert_eq!(members, Vec::from_iter(1..=users));
    cell.delete(As::Admin, -206).await.unwrap();
    assert_eq!(cell.id_of("large").await, 32766);
    assert_eq!(cell.entry(As::Admin, users).await.unwrap().count, 0);
    assert_eq!(cell.elements(As::Admin, 1).await, Ok(vec![]));
}
