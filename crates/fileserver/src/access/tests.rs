//! The matrix of who may do what.

use afar_net::AbortCode;
use afar_types::{
    AclRecordEntry, DataVersion, Fid, StoreStatus, Uniquifier, UnixTime, VnodeId, VolumeId,
};
use proptest::prelude::*;

use super::decide::Denied;
use super::*;

const ANN: PtsId = PtsId(7);
const BOB: PtsId = PtsId(8);
const STAFF: PtsId = PtsId(-300);

fn person(id: PtsId, groups: &[PtsId]) -> Person {
    let all = [PtsId::ANYUSER, id]
        .into_iter()
        .chain(groups.iter().copied());
    Person {
        id,
        cps: Arc::new(Cps::new(all)),
        host: Arc::default(),
        superuser: false,
    }
}

fn acl(positive: &[(PtsId, &str)], negative: &[(PtsId, &str)]) -> AclRecord {
    let entries = |list: &[(PtsId, &str)]| {
        let entry = |(id, rights): &(PtsId, &str)| AclRecordEntry {
            id: *id,
            rights: rights.parse().unwrap(),
        };
        list.iter().map(entry).collect()
    };
    AclRecord::new(entries(positive), entries(negative)).unwrap()
}

fn vnode(file_type: FileType, owner: PtsId, mode: u16) -> VnodeStatus {
    VnodeStatus {
        fid: Fid::root(VolumeId(1)),
        file_type,
        link_count: 1,
        length: 0,
        data_version: DataVersion(0),
        author: owner,
        owner,
        group: PtsId(0),
        mode,
        parent: VnodeId(1),
        parent_uniquifier: Uniquifier(1),
        modify_time: UnixTime(0),
        server_modify_time: UnixTime(0),
    }
}

fn file(owner: PtsId, mode: u16) -> VnodeStatus {
    vnode(FileType::File, owner, mode)
}

fn grant(rights: &str) -> Grant {
    Grant {
        own: rights.parse().unwrap(),
        anyone: Rights::NONE,
    }
}

#[test]
fn rights_are_what_positive_entries_give_without_what_negative_take() {
    let list = acl(
        &[(PtsId::ANYUSER, "l"), (STAFF, "rliw"), (ANN, "k")],
        &[(ANN, "w"), (BOB, "rl")],
    );
    let of = |who: &Person| Grant::of(&list, who).own.to_string();
    assert_eq!(of(&person(PtsId::ANONYMOUS, &[])), "l");
    assert_eq!(of(&person(ANN, &[STAFF])), "rlik");
    assert_eq!(of(&person(BOB, &[STAFF])), "iw");
    assert_eq!(of(&person(PtsId(9), &[STAFF])), "rliw");
    assert_eq!(of(&Person::superuser()), "rlidwka");
    // What anyone may do is told to everyone alike.
    assert_eq!(
        Grant::of(&list, &person(ANN, &[STAFF])).anyone,
        Rights::LOOKUP
    );
}

#[test]
fn a_host_s_groups_count_for_everyone_on_it() {
    let list = acl(&[(STAFF, "rl")], &[]);
    let mut who = person(BOB, &[]);
    assert_eq!(Grant::of(&list, &who).own, Rights::NONE);
    who.host = Arc::new(Cps::new([STAFF]));
    let grant = Grant::of(&list, &who);
    assert_eq!(
        (grant.own.to_string().as_str(), grant.anyone),
        ("rl", grant.own)
    );
}

#[test]
fn administrators_look_up_everywhere_and_read_nowhere() {
    let root = person(ANN, &[PtsId::ADMINISTRATORS]);
    let none = Grant::of(&acl(&[], &[]), &root);
    assert_eq!(none.own, Rights::LOOKUP);
    let theirs = file(BOB, 0o644);
    assert_eq!(may_fetch_status(&root, &theirs, none, BOB), Ok(()));
    assert_eq!(
        may_fetch_data(&root, &theirs, none, BOB),
        Err(Denied::Access)
    );
    let give = StoreStatus {
        mask: StoreStatus::SET_OWNER | StoreStatus::SET_MODE,
        owner: ANN,
        unix_mode_bits: 0o4755,
        ..StoreStatus::default()
    };
    assert_eq!(may_store_status(&root, &theirs, none, &give), Ok(()));
    assert_eq!(
        may_store_data(&root, &theirs, none, &give),
        Err(Denied::Access)
    );
    assert_eq!(may_store_acl(&root, none, BOB), Ok(()));
    assert_eq!(
        may_fetch_data(&Person::superuser(), &theirs, none, BOB),
        Ok(())
    );
    assert_eq!(
        may_store_data(&Person::superuser(), &theirs, none, &give),
        Ok(())
    );
}

#[test]
fn files_are_read_with_r_by_mode_or_by_who_put_them_there() {
    let ann = person(ANN, &[]);
    let read = |vnode: &VnodeStatus, rights: &str| {
        may_fetch_data(&ann, vnode, grant(rights), PtsId(0)).is_ok()
    };
    assert!(read(&file(BOB, 0o644), "r"));
    assert!(!read(&file(BOB, 0o644), "l"));
    assert!(
        !read(&file(BOB, 0o200), "rl"),
        "no permission bit for anyone to read"
    );
    assert!(read(&file(BOB, 0o100), "r"), "programs are read to be run");
    assert!(
        read(&file(ANN, 0), "r"),
        "the owner reads whatever the bits say"
    );
    assert!(read(&file(ANN, 0), "i"));
    let nobody = person(PtsId::ANONYMOUS, &[]);
    let dropped = file(PtsId::ANONYMOUS, 0o644);
    assert!(may_fetch_data(&nobody, &dropped, grant("i"), PtsId(0)).is_err());
}

#[test]
fn directories_and_symlinks_are_read_with_l_or_by_the_volume_s_owner() {
    for kind in [FileType::Directory, FileType::Symlink] {
        let node = vnode(kind, BOB, 0o755);
        let who = person(ANN, &[STAFF]);
        let data = |rights, owner| may_fetch_data(&who, &node, grant(rights), owner).is_ok();
        assert!(data("l", PtsId(0)) && !data("r", PtsId(0)));
        assert!(data("none", ANN) && data("none", STAFF) && !data("none", BOB));
    }
    let ann = person(ANN, &[]);
    let status = |kind| may_fetch_status(&ann, &vnode(kind, BOB, 0), grant("none"), PtsId(0));
    assert_eq!(status(FileType::Directory), Ok(()));
    assert_eq!(status(FileType::Symlink), Err(Denied::Access));
    assert_eq!(status(FileType::File), Err(Denied::Access));
}

#[test]
fn data_is_stored_with_w_or_by_the_owner_who_may_insert() {
    let ann = person(ANN, &[]);
    let plain = StoreStatus::default();
    let store = |vnode: &VnodeStatus, rights: &str| {
        may_store_data(&ann, vnode, grant(rights), &plain).is_ok()
    };
    assert!(store(&file(BOB, 0o644), "w") && !store(&file(BOB, 0o644), "rlidk"));
    assert!(
        !store(&file(BOB, 0o444), "w"),
        "the file is not to be written"
    );
    assert!(store(&file(ANN, 0o444), "i") && !store(&file(ANN, 0o444), "w"));
    let nobody = person(PtsId::ANONYMOUS, &[]);
    let dropped = file(PtsId::ANONYMOUS, 0o644);
    assert_eq!(
        may_store_data(&nobody, &dropped, grant("i"), &plain),
        Ok(())
    );
}

#[test]
fn owners_and_set_id_bits_are_for_administrators() {
    let ann = person(ANN, &[]);
    let change = |mask, owner, mode| StoreStatus {
        mask,
        owner,
        unix_mode_bits: mode,
        ..StoreStatus::default()
    };
    let give = change(StoreStatus::SET_OWNER, BOB, 0);
    let keep = change(StoreStatus::SET_OWNER, ANN, 0);
    let set_id = change(StoreStatus::SET_MODE, ANN, 0o4755);
    let mine = file(ANN, 0o644);
    assert_eq!(
        may_store_status(&ann, &mine, grant("w"), &give),
        Err(Denied::Permission)
    );
    assert_eq!(
        may_store_status(&ann, &mine, grant("i"), &give),
        Err(Denied::Permission)
    );
    assert_eq!(may_store_status(&ann, &mine, grant("w"), &keep), Ok(()));
    assert_eq!(
        may_store_status(&ann, &mine, grant("w"), &set_id),
        Err(Denied::Access)
    );
    let there = vnode(FileType::Directory, BOB, 0o755);
    let plain = StoreStatus::default();
    for (rights, allowed) in [("w", false), ("i", true), ("d", true), ("rlka", false)] {
        let result = may_store_status(&ann, &there, grant(rights), &plain);
        assert_eq!(result.is_ok(), allowed, "{rights}");
    }
}

#[test]
fn locks_and_acls() {
    let ann = person(ANN, &[]);
    let theirs = file(BOB, 0o644);
    for (rights, read, write) in [("k", true, false), ("w", true, true), ("rl", false, false)] {
        assert_eq!(
            may_lock(&ann, &theirs, grant(rights), false).is_ok(),
            read,
            "{rights}"
        );
        assert_eq!(
            may_lock(&ann, &theirs, grant(rights), true).is_ok(),
            write,
            "{rights}"
        );
    }
    assert!(may_lock(&ann, &file(ANN, 0), grant("i"), true).is_ok());
    assert!(may_store_acl(&ann, grant("a"), BOB).is_ok());
    assert!(may_store_acl(&ann, grant("rlidwk"), BOB).is_err());
    assert!(may_store_acl(&ann, grant("none"), ANN).is_ok());
    assert_eq!(AbortCode::from(Denied::Access), AbortCode(13));
    assert_eq!(AbortCode::from(Denied::Permission), AbortCode(1));
}

#[test]
fn a_on_a_file_says_who_owns_it() {
    let ann = person(ANN, &[]);
    let all = grant("all");
    assert_eq!(all.on(&file(BOB, 0), &ann).own.to_string(), "rlidwk");
    assert_eq!(grant("rl").on(&file(ANN, 0), &ann).own.to_string(), "rla");
    assert_eq!(all.on(&vnode(FileType::Directory, BOB, 0), &ann), all);
}

proptest! {
    /// Against the plainest way to say it.
    #[test]
    fn rights_by_definition(
        positive in proptest::collection::vec((-3i32..3, 0u32..128), 0..10),
        negative in proptest::collection::vec((-3i32..3, 0u32..128), 0..10),
        ids in proptest::collection::vec(-3i32..3, 0..6),
    ) {
        let entries = |list: &[(i32, u32)]| {
            let entry = |&(id, rights): &(i32, u32)| AclRecordEntry {
                id: PtsId(id),
                rights: Rights(rights),
            };
            list.iter().map(entry).collect::<Vec<_>>()
        };
        let list = AclRecord::new(entries(&positive), entries(&negative)).unwrap();
        let rights = Cps::new(ids.iter().copied().map(PtsId)).rights(&list);
        for bit in (0..7).map(|shift| 1 << shift) {
            let has = |list: &[(i32, u32)]| {
                list.iter().any(|(id, rights)| ids.contains(id) && rights & bit != 0)
            };
            prop_assert_eq!(rights.0 & bit != 0, has(&positive) && !has(&negative));
        }
    }
}
