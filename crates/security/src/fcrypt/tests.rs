use proptest::prelude::*;

use super::*;

const KEY: SessionKey = SessionKey::new([0x11, 0x44, 0x77, 0xaa, 0xdd, 0x00, 0x33, 0x66]);

/// PCBC as its definition says it, a block at a time.
fn chained(schedule: &Schedule, body: &mut [u8]) {
    let mut mixed = schedule.iv;
    for block in body.as_chunks_mut().0 {
        let plain = u64::from_be_bytes(*block);
        let sealed = schedule.encrypt_block(plain ^ mixed);
        mixed = plain ^ sealed;
        *block = sealed.to_be_bytes();
    }
}

// spec: rxkad#fcrypt
#[test]
fn blocks_come_out_as_with_others() {
    let zero = Schedule::new(&SessionKey::new([0; 8]));
    assert_eq!(zero.encrypt_block(0), 0x0e09_00c7_3ef7_ed41);
    let schedule = Schedule::new(&KEY);
    assert_eq!(
        schedule.encrypt_block(0x1234_5678_9abc_def0),
        0xd8ed_7874_77ec_0680
    );
    assert_eq!(
        schedule.decrypt_block(0xd8ed_7874_77ec_0680),
        0x1234_5678_9abc_def0
    );
}

#[test]
fn the_parity_of_a_key_does_not_matter() {
    let other = SessionKey::new(KEY.octets().map(|octet| octet ^ 1));
    let block = 0x0123_4567_89ab_cdef;
    assert_eq!(
        Schedule::new(&KEY).encrypt_block(block),
        Schedule::new(&other).encrypt_block(block)
    );
    let changed = SessionKey::new(KEY.octets().map(|octet| octet ^ 2));
    assert_ne!(
        Schedule::new(&KEY).encrypt_block(block),
        Schedule::new(&changed).encrypt_block(block)
    );
}

#[test]
fn round_keys_are_not_printed() {
    assert_eq!(format!("{:?}", Schedule::new(&KEY)), "Schedule(..)");
}

/// With tables, and with what this machine has.
fn ways() -> [Option<Wide>; 2] {
    [None, Wide::detect()]
}

proptest! {
    #[test]
    fn opening_takes_sealing_back(
        key: [u8; 8],
        body in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let schedule = Schedule::new(&SessionKey::new(key));
        let mut sealed = body.clone();
        schedule.seal(&mut sealed);
        let whole = body.len() / BLOCK * BLOCK;
        prop_assert_eq!(&sealed[whole..], &body[whole..]);
        prop_assert!(whole == 0 || sealed[..whole] != body[..whole]);
        for wide in ways() {
            let mut opened = sealed.clone();
            schedule.open_with(wide, &mut opened);
            prop_assert_eq!(&opened, &body);
        }
    }

    /// Sizes are mixed, so that lanes end and begin in the middle of others.
    #[test]
    fn many_bodies_are_sealed_as_each_alone(
        key: [u8; 8],
        bodies in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..200), 0..70),
    ) {
        let schedule = Schedule::new(&SessionKey::new(key));
        let mut expected = bodies.clone();
        for body in &mut expected {
            chained(&schedule, body);
        }
        for wide in ways() {
            let mut sealed = bodies.clone();
            schedule.seal_with(wide, sealed.iter_mut().map(Vec::as_mut_slice));
            prop_assert_eq!(&sealed, &expected);
        }
    }
}
