//! What is saved is what is restored; what was changed is refused.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::hosts::gate::Underway;
use crate::hosts::registry::Registry;
use crate::hosts::table::Table;

fn state() -> State {
    State {
        table: Table::new(),
        registry: Registry::default(),
        underway: Underway::default(),
        tidied: Instant::now(),
        saved: false,
    }
}

fn config() -> HostsConfig {
    HostsConfig::new(AfsUuid::from_random([3; 16]))
}

/// Two hosts in good standing and one that is down.
fn filled() -> State {
    let mut state = state();
    let hosts = [
        (1u8, false, vec!["192.0.2.1:7001", "[2001:db8::1]:7001"]),
        (2, false, vec!["192.0.2.2:40000"]),
        (3, true, vec!["192.0.2.3:7001"]),
    ];
    for (number, down, peers) in hosts {
        let peers = peers.iter().map(|peer| peer.parse().unwrap()).collect();
        let promises = (0..10)
            .map(|vnode| (Fid::new(9, vnode * 2 + 2, number.into()), vnode + 1))
            .collect();
        enter(
            &mut state,
            Saved {
                uuid: Some(AfsUuid::from_random([number; 16])),
                translates_errors: number == 1,
                down,
                peers,
                interfaces: vec!["192.0.2.9".parse().unwrap()],
                promises,
            },
        );
    }
    state
}

#[test]
fn what_is_saved_is_restored() {
    let contents = write(&filled(), &config(), 0);
    let mut restored = state();
    let number = restore(&mut restored, &config(), Path::new("x"), &contents).unwrap();
    assert_eq!(number, 3);
    assert_eq!(restored.table.len(), 20);
    assert_eq!(saved_hosts(&restored, 0), saved_hosts(&filled(), 0));
    assert_eq!(write(&restored, &config(), 0), contents);
    let peer = "[2001:db8::1]:7001".parse().unwrap();
    let host = restored.registry.at(peer).unwrap();
    assert_eq!(host.uuid(), Some(AfsUuid::from_random([1; 16])));
    assert!(host.translates_errors());
    assert_eq!(host.addresses().len(), 3);
}

#[test]
fn what_has_ended_is_not_saved() {
    let contents = write(&filled(), &config(), 5 * TICK);
    let mut restored = state();
    restore(&mut restored, &config(), Path::new("x"), &contents).unwrap();
    assert_eq!(restored.table.len(), 10);
}

#[test]
fn another_servers_file_is_refused() {
    let contents = write(&filled(), &config(), 0);
    let other = HostsConfig::new(AfsUuid::from_random([4; 16]));
    let mut restored = state();
    let refused = restore(&mut restored, &other, Path::new("x"), &contents);
    assert!(matches!(refused, Err(RestoreError::Foreign { .. })));
    assert_eq!(restored.registry.len(), 0);
}

#[test]
fn a_file_is_read_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("callbacks");
    assert!(load(&path, &config()).unwrap().is_none());
    store(&path, b"contents").unwrap();
    assert_eq!(load(&path, &config()).unwrap().unwrap(), b"contents");
    assert_eq!(
        load(&path, &config()).unwrap().unwrap(),
        b"",
        "as after a crash"
    );
    let small = HostsConfig {
        hosts_max: 0,
        promises_max: 0,
        ..config()
    };
    store(&path, &[0; 65]).unwrap();
    assert!(load(&path, &small).is_err());
    let length = fs::metadata(&path).unwrap().len();
    assert_eq!(length, 0, "what is of no use now is of none later");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn the_layout_is_as_documented() {
    let mut state = state();
    enter(
        &mut state,
        Saved {
            uuid: Some(AfsUuid::from_random([1; 16])),
            translates_errors: true,
            down: false,
            peers: vec!["192.0.2.1:7001".parse().unwrap()],
            interfaces: Vec::new(),
            promises: vec![(Fid::new(9, 2, 1), 115)],
        },
    );
    let contents = write(&state, &config(), 0);
    assert_eq!(&contents[..12], b"AFARCBS\n\0\0\0\x01");
    assert_eq!(contents[12..28], config().server.to_bytes());
    assert_eq!(contents[28..36], [0, 0, 0, 1, 3, 1, 0, 0]);
    assert_eq!(contents[36..52], AfsUuid::from_random([1; 16]).to_bytes());
    assert_eq!(contents[52..59], [0x1b, 0x59, 4, 192, 0, 2, 1]);
    assert_eq!(contents[59..67], [0, 0, 0, 1, 0, 0, 0, 9]);
    assert_eq!(contents[67..79], [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 115]);
    assert_eq!(contents.len(), 79 + CHECKSUM);
}

#[test]
fn no_promise_is_for_longer_than_the_wheel_turns() {
    let longest = Duration::from_secs(4 * 3600 + u64::from(crate::hosts::REMEMBERED));
    let ticks = longest.as_secs().div_ceil(u64::from(TICK)) + 1;
    assert!(ticks <= u64::from(TICKS_MAX));
}

/// With a checksum that fits, so that what is inside is looked at.
fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    body.extend_from_slice(&xxh3_64(&body).to_be_bytes());
    body
}

proptest! {
    #[test]
    fn a_changed_file_is_refused(place: prop::sample::Index, bit in 0..8u32) {
        let mut contents = write(&filled(), &config(), 0);
        let place = place.index(contents.len());
        contents[place] ^= 1 << bit;
        prop_assert!(read(&contents).is_err());
    }

    #[test]
    fn a_file_made_by_somebody_else_does_no_harm(
        cut: prop::sample::Index,
        place: prop::sample::Index,
        byte: u8,
    ) {
        let contents = write(&filled(), &config(), 0);
        let mut body = contents[..contents.len() - CHECKSUM].to_vec();
        let place = place.index(body.len());
        body[place] = byte;
        body.truncate(cut.index(body.len()) + 1);
        let mut restored = state();
        // Whatever is read of it can be entered.
        let _outcome = restore(&mut restored, &config(), Path::new("x"), &sealed(body));
        prop_assert!(restored.table.len() <= 40);
    }

    #[test]
    fn random_bytes_are_refused(body: Vec<u8>) {
        prop_assert!(read(&body).is_err());
        prop_assert!(read(&sealed(body)).is_err());
    }
}
