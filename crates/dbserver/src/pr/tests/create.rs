//! What is made, by whom, with which id.

use afar_types::PrAccess;

use super::*;

#[tokio::test]
async fn a_new_database_has_what_every_cell_has() {
    let cell = Cell::new().await;
    for (name, id) in [
        ("system:administrators", -204),
        ("system:backup", -205),
        ("system:anyuser", -101),
        ("system:authuser", -102),
        ("system:ptsviewers", -203),
        ("anonymous", 32766),
    ] {
        assert_eq!(cell.id_of(name).await, id);
        assert_eq!(cell.name_of(id).await, name);
        let entry = cell.entry(As::Nobody, id).await.unwrap();
        assert_eq!((entry.owner.0, entry.creator.0), (-204, -204));
        assert_eq!(entry.count, 0);
        let access = if id < 0 {
            PrAccess::GROUP_DEFAULT
        } else {
            PrAccess::USER_DEFAULT
        };
        assert_eq!(entry.access, access);
    }
    assert_eq!(cell.max().await, (0, -205));
    let header = cell.server.header().unwrap();
    assert_eq!((header.users, header.groups, header.foreign), (1, 5, 0));
}

#[tokio::test]
async fn a_database_is_as_it_was_when_it_is_opened_again() {
    let dir = TempDir::new().unwrap();
    for round in 0..2 {
        let database = Database::open(dir.path(), &Options::default()).unwrap();
        let server = ProtectionServer::open(database, ProtectionConfig::default())
            .await
            .unwrap();
        let header = server.header().unwrap();
        assert_eq!(header.users, 1 + round);
        let name = text("alice");
        let (flag, owner) = (0, PtsId(0));
        let request = pr::new_entry::Request { name, flag, owner };
        let made = server.new_entry(&As::Admin.caller(), request).await;
        assert_eq!(made.is_ok(), round == 0);
    }
}

#[tokio::test]
async fn ids_follow_the_greatest() {
    let cell = Cell::with_users().await;
    assert_eq!(cell.max().await, (3, -205));
    assert_eq!(cell.make(As::Admin, "alice:x", GROUP, 1).await, Ok(-206));
    cell.make_with_id(As::Admin, "dave", 100, 0).await.unwrap();
    assert_eq!(cell.make(As::Admin, "erin", 0, 0).await, Ok(101));
    cell.make_with_id(As::Admin, "alice:y", -300, 1)
        .await
        .unwrap();
    assert_eq!(cell.make(As::Admin, "alice:z", GROUP, 1).await, Ok(-301));
    assert_eq!(cell.max().await, (101, -301));
}

#[tokio::test]
async fn ids_in_use_are_skipped_but_not_for_ever() {
    let cell = Cell::new().await;
    for id in 11..=60 {
        let name = format!("u{id}");
        cell.make_with_id(As::Admin, &name, id, 0).await.unwrap();
    }
    let set_max = |id| pr::set_max::Request {
        id: PtsId(id),
        flag: 0,
    };
    let admin = As::Admin.caller();
    cell.server.set_max(&admin, set_max(10)).await.unwrap();
    assert_eq!(cell.make(As::Admin, "a", 0, 0).await, Err(PRNOIDS));
    cell.server.set_max(&admin, set_max(11)).await.unwrap();
    assert_eq!(cell.make(As::Admin, "a", 0, 0).await, Ok(61));
    cell.server
        .set_max(&admin, set_max(i32::MAX))
        .await
        .unwrap();
    assert_eq!(cell.make(As::Admin, "b", 0, 0).await, Err(PRNOIDS));
    let set = cell.server.set_max(&admin, set_max(-1)).await;
    assert_eq!(set.unwrap_err(), PRBADARG);
    let set = cell.server.set_max(&As::Nobody.caller(), set_max(1)).await;
    assert_eq!(set.unwrap_err(), PRPERM);
}

#[tokio::test]
async fn users_are_made_by_administrators_only() {
    let cell = Cell::with_users().await;
    for who in [As::Nobody, As::User("alice"), As::User("unheard-of")] {
        assert_eq!(cell.make(who, "dave", 0, 0).await, Err(PRPERM));
    }
    cell.add(As::Admin, 1, -204).await.unwrap();
    assert_eq!(cell.make(As::User("alice"), "dave", 0, 0).await, Ok(4));
    let dave = cell.entry(As::Admin, 4).await.unwrap();
    assert_eq!((dave.owner.0, dave.creator.0), (-204, 1));
    assert_eq!((dave.n_groups, dave.n_users), (20, 20));
    // The code is checked last of all.
    assert_eq!(cell.make(As::Admin, "erin", 1, 0).await, Err(PRBADARG));
    assert_eq!(cell.make(As::Admin, "dave", 1, 0).await, Err(PREXIST));
    assert_eq!(cell.make(As::Admin, "erin", 16, 0).await, Err(PRPERM));
}

#[tokio::test]
async fn names_are_in_lower_case_and_once_there() {
    let cell = Cell::with_users().await;
    assert_eq!(cell.make(As::Admin, "Alice", 0, 0).await, Err(PREXIST));
    assert_eq!(cell.make(As::Admin, "DAVE", 0, 0).await, Ok(4));
    assert_eq!(cell.name_of(4).await, "dave");
    assert_eq!(cell.id_of("dave").await, 4);
    assert_eq!(cell.make(As::Admin, "a:b", 0, 0).await, Err(PRBADNAM));
    assert_eq!(cell.make(As::Admin, "", 0, 0).await, Err(PRBADNAM));
    let long = "x".repeat(64);
    assert_eq!(cell.make(As::Admin, &long, 0, 0).await, Err(PRBADNAM));
    let long = "x".repeat(63);
    assert_eq!(cell.make(As::Admin, &long, 0, 0).await, Ok(5));
    assert_eq!(cell.name_of(5).await, long);
    assert_eq!(
        cell.make_with_id(As::Admin, "erin", 5, 0).await,
        Err(PRIDEXIST)
    );
    assert_eq!(
        cell.make_with_id(As::Admin, "erin", 0, 0).await,
        Err(PRPERM)
    );
    assert_eq!(cell.name_of(77).await, "77");
    assert_eq!(cell.id_of("nobody-here").await, 32766);
}

#[tokio::test]
async fn groups_have_their_owners_name() {
    let cell = Cell::with_users().await;
    let alice = As::User("alice");
    assert_eq!(cell.make(alice, "alice:friends", GROUP, 0).await, Ok(-206));
    assert_eq!(cell.make(alice, "bob:x", GROUP, 0).await, Err(PRBADNAM));
    assert_eq!(cell.make(alice, "friends", GROUP, 0).await, Err(PRBADNAM));
    assert_eq!(cell.make(alice, "bob:x", GROUP, 2).await, Ok(-207));
    assert_eq!(cell.make(alice, "system:x", GROUP, -204).await, Err(PRPERM));
    assert_eq!(cell.make(alice, "x:y", GROUP, 99).await, Err(PRNOENT));
    assert_eq!(
        cell.make(alice, "alice:f", GROUP, -206).await,
        Err(PRGROUPEMPTY)
    );
    cell.add(alice, 2, -206).await.unwrap();
    assert_eq!(cell.make(alice, "alice:f", GROUP, -206).await, Ok(-208));
    assert_eq!(cell.make(As::Admin, "staff", GROUP, 0).await, Ok(-209));
    assert_eq!(cell.make(As::Admin, "system:x", GROUP, 0).await, Ok(-210));
    assert_eq!(
        cell.make(As::Nobody, "anonymous:x", GROUP, 0).await,
        Err(PRPERM)
    );
    // A group that owns itself.
    cell.make_with_id(As::Admin, "club", -400, -400)
        .await
        .unwrap();
    assert_eq!(cell.owned(As::Admin, -400, 0).await, Ok((vec![-400], 0)));
    assert_eq!(
        cell.make_with_id(As::Admin, "pub", -401, -999).await,
        Err(PRNOENT)
    );
}

#[tokio::test]
async fn only_administrators_choose_the_ids_of_groups() {
    let cell = Cell::with_users().await;
    let alice = As::User("alice");
    let refused = cell.make_with_id(alice, "alice:x", -500, 0).await;
    assert_eq!(refused, Err(PRPERM));
    cell.make_with_id(alice, "alice:x", -206, 0).await.unwrap();
    assert_eq!(cell.make_with_id(alice, "dave", 50, 0).await, Err(PRPERM));
}

#[tokio::test]
async fn users_have_a_quota_of_groups() {
    let cell = Cell::with_users().await;
    let alice = As::User("alice");
    for n in 0..20 {
        let name = format!("alice:{n}");
        cell.make(alice, &name, GROUP, 0).await.unwrap();
    }
    assert_eq!(cell.entry(alice, 1).await.unwrap().n_groups, 0);
    assert_eq!(cell.make(alice, "alice:x", GROUP, 0).await, Err(PRNOMORE));
    cell.delete(alice, -206).await.unwrap();
    assert_eq!(cell.entry(alice, 1).await.unwrap().n_groups, 1);
    assert_eq!(cell.make(alice, "alice:x", GROUP, 0).await, Ok(-226));
    // Administrators have none, and get nothing back.
    cell.add(As::Admin, 1, -204).await.unwrap();
    assert_eq!(cell.make(alice, "alice:y", GROUP, 0).await, Ok(-227));
    assert_eq!(cell.entry(alice, 1).await.unwrap().n_groups, 0);
}

#[tokio::test]
async fn users_of_other_cells_register_themselves() {
    let config = ProtectionConfig {
        local_realms: vec!["EXAMPLE.ORG".into()],
        ..ProtectionConfig::default()
    };
    let cell = Cell::with(config).await;
    let eve = As::User("eve@other.org");
    assert_eq!(cell.make(eve, "eve@other.org", 0, 0).await, Err(PRBADNAM));
    let group = "system:authuser@other.org";
    cell.make_with_id(As::Admin, group, -300, 0).await.unwrap();
    assert_eq!(
        cell.make(As::Admin, "system:x@other.org", GROUP, 0).await,
        Err(PRBADNAM)
    );
    assert_eq!(cell.make(eve, "mal@other.org", 0, 0).await, Err(PRPERM));
    assert_eq!(cell.make(eve, "eve@other.org", 0, 7).await, Err(PRPERM));
    let low = -300 & 0xffff;
    let id = 1 << 16 | low;
    assert_eq!(cell.make(eve, "eve@other.org", 0, 0).await, Ok(id));
    assert_eq!(cell.make(eve, "eve@other.org", 0, 0).await, Err(PREXIST));
    assert_eq!(cell.cps(As::Admin, id).await.unwrap(), [-300, -101, id]);
    let made = cell.entry(As::Admin, -300).await.unwrap();
    assert_eq!((made.count, made.n_groups, made.n_users), (1, 29, 1));
    assert_eq!(cell.server.header().unwrap().foreign, 1);
    // The cell's group goes last.
    assert_eq!(cell.delete(As::Admin, -300).await, Err(PRBADARG));
    cell.make_with_id(As::Admin, "fay@other.org", 5 << 16 | low, 0)
        .await
        .unwrap();
    assert_eq!(
        cell.make_with_id(As::Admin, "gus@other.org", 5, 0).await,
        Err(PRBADARG)
    );
    assert_eq!(
        cell.make(As::Admin, "gus@other.org", 0, 0).await,
        Ok(6 << 16 | low)
    );
    for user in [id, 5 << 16 | low, 6 << 16 | low] {
        cell.delete(As::Admin, user).await.unwrap();
    }
    let left = cell.entry(As::Admin, -300).await.unwrap();
    assert_eq!((left.count, left.n_groups), (0, 30));
    cell.delete(As::Admin, -300).await.unwrap();
    // At a realm of this cell, users are this cell's.
    assert_eq!(cell.make(As::Admin, "alice", 0, 0).await, Ok(1));
    assert_eq!(cell.id_of("alice@Example.org").await, 1);
    assert!(cell.entry(As::User("alice@example.org"), 1).await.is_ok());
}

#[tokio::test]
async fn users_of_a_new_database_are_numbered_from_where_it_is_told() {
    let cell = Cell::with(ProtectionConfig {
        first_user: PtsId(1000),
        ..ProtectionConfig::default()
    })
    .await;
    assert_eq!(cell.max().await, (999, -205));
    assert_eq!(cell.make(As::Admin, "alice", 0, 0).await, Ok(1000));
    assert_eq!(cell.make(As::Admin, "bob", 0, 0).await, Ok(1001));
    // Groups are not, nor are users with a given id.
    assert_eq!(cell.make(As::Admin, "alice:x", GROUP, 1000).await, Ok(-206));
    cell.make_with_id(As::Admin, "carol", 7, 0).await.unwrap();
    assert_eq!(cell.make(As::Admin, "dave", 0, 0).await, Ok(1002));
}
