//! Rights of callers.

use afar_types::PrAccess;

use super::*;

/// Everyone there is: in `alice:f`, which alice owns, is bob; carol is nothing to it, dora views
/// all, erin administers.
const EVERYONE: [As<'_>; 7] = [
    As::Nobody,
    As::User("alice"),
    As::User("bob"),
    As::User("carol"),
    As::User("dora"),
    As::User("erin"),
    As::Admin,
];

async fn cell() -> Cell {
    let cell = Cell::with_users().await;
    for name in ["dora", "erin"] {
        cell.make(As::Admin, name, 0, 0).await.unwrap();
    }
    let alice = As::User("alice");
    cell.make(alice, "alice:f", GROUP, 0).await.unwrap();
    cell.add(alice, 2, -206).await.unwrap();
    cell.add(As::Admin, 4, -203).await.unwrap();
    cell.add(As::Admin, 5, -204).await.unwrap();
    cell
}

/// The letters of the callers that may, in that order.
fn letters(may: [bool; 7]) -> String {
    let letters = "nabcdes".chars().zip(may);
    letters
        .map(|(letter, may)| if may { letter } else { '-' })
        .collect()
}

/// Does something as everyone, and tells who may; others must be refused with PRPERM.
macro_rules! who_may {
    ($who:ident => $call:expr) => {{
        let mut may = [false; 7];
        for ($who, may) in EVERYONE.into_iter().zip(&mut may) {
            *may = match $call.await {
                Ok(_) => true,
                Err(code) => {
                    assert_eq!(code, PRPERM);
                    false
                }
            };
        }
        letters(may)
    }};
}

#[tokio::test]
async fn access_bits_of_a_group_decide_who_sees_what() {
    let cell = cell().await;
    // Access, who sees the entry, the members, what it owns.
    for (access, status, members, owned) in [
        (PrAccess::GROUP_DEFAULT.0, "nabcdes", "nabcdes", "-ab-des"),
        (0x80, "nabcdes", "-a--des", "-ab-des"),
        (0x48, "-ab-des", "-ab-des", "-ab-des"),
        (0x10, "-a--des", "nabcdes", "-ab-des"),
        (0x20, "-a--des", "-a--des", "nabcdes"),
    ] {
        cell.set_access(As::Admin, -206, access).await.unwrap();
        assert_eq!(who_may!(who => cell.entry(who, -206)), status);
        assert_eq!(who_may!(who => cell.elements(who, -206)), members);
        assert_eq!(who_may!(who => cell.cps(who, -206)), members);
        assert_eq!(who_may!(who => cell.owned(who, -206, 0)), owned);
        // One may always ask about oneself.
        let asks = who_may!(who => cell.is_member(who, 3, -206));
        assert_eq!(asks.replace('c', "-"), members.replace('c', "-"));
        assert!(asks.contains('c'));
    }
}

#[tokio::test]
async fn access_bits_of_a_group_decide_who_changes_members() {
    let cell = cell().await;
    cell.make(As::Admin, "frank", 0, 0).await.unwrap();
    for (access, add, remove) in [
        (PrAccess::GROUP_DEFAULT.0, "-a---es", "-a---es"),
        (PrAccess::ADD_MEMBERS.0, "-ab--es", "-a---es"),
        (PrAccess::ADD_ANYONE.0, "nabcdes", "-a---es"),
        (PrAccess::REMOVE_MEMBERS.0, "-a---es", "-ab--es"),
        (0xff, "nabcdes", "-ab--es"),
    ] {
        cell.set_access(As::Admin, -206, access).await.unwrap();
        let added = who_may!(who => async {
            cell.add(who, 6, -206).await?;
            cell.remove(As::Admin, 6, -206).await
        });
        assert_eq!(added, add, "access {access:#x}");
        let removed = who_may!(who => async {
            cell.add(As::Admin, 6, -206).await?;
            let removed = cell.remove(who, 6, -206).await;
            if removed.is_err() {
                cell.remove(As::Admin, 6, -206).await?;
            }
            removed
        });
        assert_eq!(removed, remove, "access {access:#x}");
    }
}

#[tokio::test]
async fn users_see_themselves() {
    let cell = cell().await;
    // bob's entry; its owner are the administrators.
    assert_eq!(who_may!(who => cell.entry(who, 2)), "nabcdes");
    assert_eq!(who_may!(who => cell.elements(who, 2)), "--b-des");
    assert_eq!(who_may!(who => cell.cps(who, 2)), "--b-des");
    assert_eq!(who_may!(who => cell.owned(who, 2, 0)), "--b-des");
    cell.set_access(As::User("bob"), 2, 0x10).await.unwrap();
    assert_eq!(who_may!(who => cell.entry(who, 2)), "--b-des");
    assert_eq!(who_may!(who => cell.elements(who, 2)), "nabcdes");
}

#[tokio::test]
async fn owners_and_administrators_change() {
    let cell = cell().await;
    let rename = who_may!(who => async {
        cell.change(who, -206, ("alice:g", 0, 0)).await?;
        cell.change(As::Admin, -206, ("alice:f", 0, 0)).await
    });
    assert_eq!(rename, "-a---es");
    assert_eq!(who_may!(who => cell.set_access(who, -206, 0x90)), "-a---es");
    let quota = PrEntry::SET_N_GROUPS;
    assert_eq!(
        who_may!(who => cell.set(who, -206, quota, (0, 5, 0))),
        "-----es"
    );
    let list = pr::list_entries::Request {
        flags: 3,
        start_index: 0,
    };
    let listed = who_may!(who => async {
        cell.server.list_entries(&who.caller(), list.clone()).await
    });
    assert_eq!(listed, "-----es");
    let max = pr::set_max::Request {
        id: PtsId(9),
        flag: 0,
    };
    let set = who_may!(who => async { cell.server.set_max(&who.caller(), max.clone()).await });
    assert_eq!(set, "-----es");
    // A group's members own what it owns.
    cell.change(As::Admin, -206, ("", 1, 0)).await.unwrap();
    cell.make(As::Admin, "alice:h", GROUP, -206).await.unwrap();
    assert_eq!(who_may!(who => cell.set_access(who, -207, 0x90)), "--b--es");
    let gone = who_may!(who => async {
        cell.delete(who, -207).await?;
        cell.make_with_id(As::Admin, "alice:h", -207, -206).await
    });
    assert_eq!(gone, "--b--es");
}

#[tokio::test]
async fn a_restricted_cell_is_changed_by_administrators_only() {
    let config = ProtectionConfig {
        restricted: true,
        restrict_anonymous: true,
        ..ProtectionConfig::default()
    };
    let cell = Cell::with(config).await;
    for name in ["alice", "bob"] {
        cell.make(As::Admin, name, 0, 0).await.unwrap();
    }
    let alice = As::User("alice");
    assert_eq!(cell.make(alice, "alice:f", GROUP, 0).await, Err(PRPERM));
    cell.make(As::Admin, "alice:f", GROUP, 1).await.unwrap();
    assert_eq!(cell.add(alice, 2, -206).await, Err(PRPERM));
    assert_eq!(cell.set_access(alice, -206, 0x90).await, Err(PRPERM));
    assert_eq!(
        cell.change(alice, -206, ("alice:g", 0, 0)).await,
        Err(PRPERM)
    );
    assert_eq!(cell.delete(alice, -206).await, Err(PRPERM));
    assert!(cell.elements(alice, -206).await.is_ok());
    cell.add(As::Admin, 2, -206).await.unwrap();
    // An anonymous caller looks up ids, no more.
    assert_eq!(cell.id_of("bob").await, 2);
    assert_eq!(cell.entry(As::Nobody, 2).await.unwrap_err(), PRPERM);
    let ids = PrIds::new([PtsId(2)]).unwrap();
    let request = pr::id_to_name::Request { ids };
    let nobody = As::Nobody.caller();
    let refused = cell.server.id_to_name(&nobody, request).await;
    assert_eq!(refused.unwrap_err(), PRPERM);
}

#[tokio::test]
async fn who_has_no_entry_is_refused_but_names() {
    let cell = cell().await;
    let ghost = As::User("ghost");
    assert_eq!(cell.entry(ghost, 1).await.unwrap_err(), PRPERM);
    assert_eq!(cell.cps(ghost, 1).await, Err(PRPERM));
    assert_eq!(cell.make(ghost, "ghost:x", GROUP, 0).await, Err(PRPERM));
    assert_eq!(cell.cps(As::User("eve@other.org"), 1).await, Err(PRPERM));
    let names = PrNamesAsked::new([PrName::new("alice").unwrap()]).unwrap();
    let request = pr::name_to_id::Request { names };
    let reply = cell.server.name_to_id(&ghost.caller(), request).await;
    assert_eq!(ids(&reply.unwrap().ids), [1]);
}
