//! Lists of entries, and the counters.

use afar_net::AbortCode;
use afar_rpc::vl::Service as _;
use afar_rpc::{Caller, vl};
use afar_types::{ListByAttributes, PartitionId, VldbFlags, VolumeId};

use super::super::LocationServer;
use super::super::codes::*;
use super::{Fixture, address, entry, name};

/// Names and match indexes of a part of a list, and where it goes on.
type Part = (Vec<(String, u32)>, i32);

async fn part(
    cell: &Fixture,
    caller: &Caller,
    attributes: ListByAttributes,
    pattern: &str,
    start_index: i32,
) -> Result<Part, AbortCode> {
    let request = vl::list_attributes_n2::Request {
        attributes,
        name: name(pattern),
        start_index,
    };
    let reply = cell.server.list_attributes_n2(caller, request).await?;
    let entries = reply.entries.iter();
    let list = entries.map(|entry| (entry.name.to_string(), entry.match_index));
    Ok((list.collect(), reply.next_index))
}

fn at(mask: u32, server: u8, partition: u32) -> ListByAttributes {
    ListByAttributes {
        mask,
        server: address(server),
        partition: PartitionId(partition),
        ..ListByAttributes::default()
    }
}

async fn names(cell: &Fixture, attributes: ListByAttributes) -> Vec<String> {
    let request = vl::list_attributes_n::Request { attributes };
    let reply = cell
        .server
        .list_attributes_n(&cell.anyone, request)
        .await
        .unwrap();
    let chain = vl::linked_list_n::Request { attributes };
    let chain = cell
        .server
        .linked_list_n(&cell.anyone, chain)
        .await
        .unwrap();
    assert_eq!(reply.entries[..], chain.entries[..]);
    assert_eq!(usize::try_from(reply.count).unwrap(), reply.entries.len());
    reply
        .entries
        .iter()
        .map(|entry| entry.name.to_string())
        .collect()
}

async fn three() -> Fixture {
    let cell = Fixture::new();
    cell.create(entry("one", 100, &[1, 2])).await.unwrap();
    cell.create(entry("two", 200, &[2])).await.unwrap();
    let mut three = entry("three", 300, &[3, 1]);
    three.flags = VldbFlags(0x4010);
    cell.create(three).await.unwrap();
    cell
}

#[tokio::test]
async fn entries_are_listed_by_attributes() {
    let cell = three().await;
    assert_eq!(names(&cell, at(0, 0, 0)).await, ["one", "two", "three"]);
    assert_eq!(names(&cell, at(1, 2, 0)).await, ["one", "two"]);
    assert_eq!(names(&cell, at(1, 9, 0)).await, [""; 0]);
    assert_eq!(names(&cell, at(2, 0, 1)).await, ["one", "three"]);
    assert_eq!(names(&cell, at(3, 1, 1)).await, ["three"]);
    let flag = ListByAttributes {
        mask: 0x10,
        flag: 0x10,
        ..ListByAttributes::default()
    };
    assert_eq!(names(&cell, flag).await, ["three"]);
    let volume = ListByAttributes {
        mask: 9,
        volume: VolumeId(201),
        ..ListByAttributes::default()
    };
    assert_eq!(names(&cell, volume).await, ["two"]);
    let gone = ListByAttributes {
        volume: VolumeId(999),
        ..volume
    };
    let request = vl::list_attributes::Request { attributes: gone };
    let refused = cell.server.list_attributes(&cell.anyone, request).await;
    assert_eq!(refused.map(|_| ()), Err(VL_NOENT));
    let request = vl::linked_list::Request {
        attributes: at(1, 1, 0),
    };
    let chain = cell
        .server
        .linked_list(&cell.anyone, request)
        .await
        .unwrap();
    assert_eq!(
        (chain.count, chain.entries[1].name.as_bytes()),
        (2, &b"three"[..])
    );
}

#[tokio::test]
async fn the_best_site_of_an_entry_is_told() {
    let cell = three().await;
    let listed = |attributes| {
        let (cell, anyone) = (&cell, &cell.anyone);
        async move { part(cell, anyone, attributes, "", 0).await.unwrap() }
    };
    // The read-write site at place 0; of `three` only the backup there.
    let all = [("one", 4 << 16), ("two", 4 << 16), ("three", 8 << 16)];
    let all = all.map(|(name, index)| (name.to_owned(), index)).to_vec();
    assert_eq!(listed(at(0, 0, 0)).await, (all, -1));
    let second = vec![("one".to_owned(), 2 << 16 | 1), ("two".to_owned(), 4 << 16)];
    assert_eq!(listed(at(1, 2, 0)).await, (second, -1));
    assert_eq!(listed(at(1, 9, 0)).await, (Vec::new(), -1));
    assert_eq!(listed(at(3, 1, 0)).await.0.len(), 1);
    let flag = ListByAttributes {
        mask: 0x10,
        flag: 0x4000,
        ..ListByAttributes::default()
    };
    assert_eq!(listed(flag).await.0, [("three".to_owned(), 8 << 16)]);
}

#[tokio::test]
async fn names_match_patterns_of_administrators() {
    let cell = three().await;
    let all = at(0, 0, 0);
    let refused = part(&cell, &cell.anyone, all, "t.*", 0).await;
    assert_eq!(refused, Err(VL_PERM));
    assert_eq!(
        part(&cell, &cell.anyone, all, ".*", 0)
            .await
            .unwrap()
            .0
            .len(),
        3
    );
    let listed = |pattern: &'static str| {
        let (cell, admin) = (&cell, &cell.admin);
        async move { part(cell, admin, all, pattern, 0).await.map(|part| part.0) }
    };
    assert_eq!(listed("t.*").await.unwrap().len(), 2);
    assert_eq!(listed("one").await.unwrap(), [("one".to_owned(), 4 << 16)]);
    let read_only = listed(r".*\.readonly").await.unwrap();
    let expected = [("one", 2 << 16 | 1), ("three", 2 << 16 | 1)];
    assert_eq!(
        read_only,
        expected.map(|(name, index)| (name.to_owned(), index))
    );
    let backup = listed(r"three\.backup").await.unwrap();
    assert_eq!(backup, [("three".to_owned(), 8 << 16)]);
    assert_eq!(listed("three").await.unwrap(), []);
    assert_eq!(listed("[").await, Err(VL_BADNAME));
}

#[tokio::test]
async fn long_lists_come_in_parts() {
    let cell = Fixture::new();
    for n in 0..1001 {
        cell.create(entry(&format!("v{n}"), 10 * (n + 1), &[1]))
            .await
            .unwrap();
    }
    let (mut seen, mut place, mut parts) = (Vec::new(), 0, 0);
    while place != -1 {
        let (list, next) = part(&cell, &cell.anyone, at(0, 0, 0), "", place)
            .await
            .unwrap();
        assert!(list.len() <= 500);
        seen.extend(list.into_iter().map(|(name, _)| name));
        (place, parts) = (next, parts + 1);
    }
    assert_eq!((seen.len(), parts, seen[1000].as_str()), (1001, 3, "v1000"));
    for wrong in [-7, 1002, i32::MAX] {
        let empty = part(&cell, &cell.anyone, at(0, 0, 0), "", wrong)
            .await
            .unwrap();
        assert_eq!(empty, (Vec::new(), -1));
    }
}

#[tokio::test]
async fn entries_are_walked_one_by_one() {
    let cell = three().await;
    cell.delete(200, 0).await.unwrap();
    let step = |previous_index| {
        let request = vl::list_entry_n::Request { previous_index };
        let old = vl::list_entry::Request { previous_index };
        let cell = &cell;
        async move {
            let old = cell.server.list_entry(&cell.anyone, old).await.unwrap();
            let reply = cell
                .server
                .list_entry_n(&cell.anyone, request)
                .await
                .unwrap();
            assert_eq!((old.count, old.next_index), (reply.count, reply.next_index));
            assert_eq!(old.entry.name, reply.entry.name);
            (reply.count, reply.next_index, reply.entry.name.to_string())
        }
    };
    assert_eq!(step(0).await, (2, 1, "one".to_owned()));
    assert_eq!(step(1).await, (0, 3, "three".to_owned()));
    assert_eq!(step(3).await, (0, 0, String::new()));
    assert_eq!(step(4).await, (-1, 0, String::new()));
    assert_eq!(step(-1).await, (-1, 0, String::new()));
}

#[tokio::test]
async fn operations_are_counted() {
    let cell = three().await;
    cell.create(entry("one", 900, &[1])).await.unwrap_err();
    cell.delete(100, 0).await.unwrap();
    let reply = cell
        .server
        .get_stats(&cell.anyone, vl::get_stats::Request {})
        .await
        .unwrap();
    assert_eq!((reply.stats.requests[16], reply.stats.aborts[16]), (4, 1));
    assert_eq!((reply.stats.requests[12], reply.stats.aborts[12]), (1, 0));
    assert_eq!((reply.header.allocs, reply.header.frees), (3, 1));
    assert_eq!(reply.header.max_volume_id, VolumeId(0x2000_0000));
}

#[tokio::test]
async fn lists_can_be_for_administrators_only() {
    let mut cell = three().await;
    let mut config = cell.server.config.clone();
    config.restricted_query = true;
    cell.server = LocationServer::open(cell.server.database.clone(), config).unwrap();
    assert_eq!(
        part(&cell, &cell.anyone, at(0, 0, 0), "", 0).await,
        Err(VL_PERM)
    );
    assert!(part(&cell, &cell.admin, at(0, 0, 0), "", 0).await.is_ok());
    cell.by_name("one").await.unwrap();
}
