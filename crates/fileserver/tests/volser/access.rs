//! Rights of callers.

use afar_fileserver::volser::VolserConfig;
use afar_net::{CallError, Connection};
use afar_rpc::{Identity, Kind, Operation, afsvol};
use bytes::{BufMut, BytesMut};

use crate::{A, AttachFlags, BAD_ACCESS, ENOENT, RW, Site, VNOVOL, code};

const NO_OP: i32 = 1_492_325_121;
const ILLEGAL_PARTITION: i32 = 1_492_325_125;
const ENODEV: i32 = 19;
const RXGEN_OPCODE: i32 = -455;

/// Calls an operation with arguments that are all 0; the code it fails with, or 0.
async fn call(connection: &Connection, operation: &Operation) -> i32 {
    let mut request = BytesMut::new();
    request.put_u32(operation.opcode);
    // Strings and lists are empty then, and what is too much is not looked at.
    request.put_bytes(0, operation.request_max_len.min(500));
    let mut call = connection.call().await.unwrap();
    call.send(request.freeze()).await.unwrap();
    call.finish().await.unwrap();
    match call.read_to_end(1 << 20).await {
        Ok(_) => 0,
        Err(CallError::Aborted(code)) => code.0,
        Err(other) => panic!("{}: {other}", operation.name),
    }
}

/// What the anonymous get of operations that only tell something.
fn open_to_all(name: &str) -> Option<i32> {
    Some(match name {
        "get_nth_volume" => NO_OP,
        "get_flags" | "get_name" | "get_status" => ENOENT,
        "list_partitions" | "x_list_partitions" | "list_volumes" | "x_list_volumes" | "monitor" => {
            0
        }
        "partition_info" | "partition_info64" => ILLEGAL_PARTITION,
        "list_one_volume" | "x_list_one_volume" => ENODEV,
        _ => return None,
    })
}

/// Operations that do nothing, whoever asks.
fn harmless(name: &str) -> Option<i32> {
    match name {
        "signal_restore" => Some(0),
        // No server has the first; the other takes data out of band.
        "split_volume" | "oob_offer" => Some(RXGEN_OPCODE),
        _ => None,
    }
}

#[tokio::test]
async fn the_anonymous_change_nothing() {
    let site = Site::with(VolserConfig::default(), Identity::Anonymous).await;
    for operation in afsvol::OPERATIONS {
        let expected = open_to_all(operation.name).or_else(|| harmless(operation.name));
        let found = call(site.vol.connection(), operation).await;
        assert_eq!(found, expected.unwrap_or(BAD_ACCESS), "{}", operation.name);
    }
}

#[tokio::test]
async fn users_are_no_administration() {
    let user = Identity::User("ann".into());
    let site = Site::with(VolserConfig::default(), user).await;
    assert_eq!(
        code(site.vol.trans_create(RW, A, AttachFlags::BUSY).await),
        BAD_ACCESS
    );
    assert!(site.vol.monitor().await.unwrap().transactions.is_empty());
}

#[tokio::test]
async fn lists_can_be_closed_too() {
    let config = VolserConfig::default().restricted_query(true);
    let site = Site::with(config.clone(), Identity::Anonymous).await;
    for operation in afsvol::OPERATIONS {
        let expected = harmless(operation.name).unwrap_or(BAD_ACCESS);
        let found = call(site.vol.connection(), operation).await;
        assert_eq!(found, expected, "{}", operation.name);
    }
    let site = Site::with(config, Identity::Superuser).await;
    assert!(
        site.vol
            .list_volumes(A, 1)
            .await
            .unwrap()
            .volumes
            .is_empty()
    );
}

#[tokio::test]
async fn every_operation_is_served_to_the_superuser() {
    let site = Site::new().await;
    for operation in afsvol::OPERATIONS {
        let found = call(site.vol.connection(), operation).await;
        let missing = found == RXGEN_OPCODE;
        assert_eq!(
            missing,
            matches!(operation.name, "split_volume" | "oob_offer"),
            "{}",
            operation.name
        );
        assert_ne!(found, BAD_ACCESS, "{}", operation.name);
    }
    // A transaction that no server counts.
    let none = site.vol.trans_create(RW, A, AttachFlags::BUSY).await;
    assert_eq!(code(none), VNOVOL);
    let splits = afsvol::OPERATIONS
        .iter()
        .filter(|row| row.kind != Kind::Call);
    assert_eq!(splits.count(), 4);
}
