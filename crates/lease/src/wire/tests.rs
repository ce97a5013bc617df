use afar_types::{Fid, VolumeId};
use afar_xdr::{Decode, Encode, List, to_bytes};
use proptest::prelude::*;

use super::*;

fn lease(number: u64) -> Lease {
    Lease {
        fid: Fid::new(1, 2, 3),
        number,
    }
}

#[test]
fn bytes_are_those_of_the_protocol() {
    let note = Note {
        version: VERSION,
        instance: 4,
        session: 5,
        heard: 6,
        wishes: List::new([Fid::new(1, 2, 3)]).unwrap(),
        reserve: 7,
        given: List::new([lease(8)]).unwrap(),
    };
    let words = [1, 0, 4, 0, 5, 0, 6, 1, 1, 2, 3, 7, 1, 1, 2, 3, 0, 8];
    let bytes: Vec<u8> = words
        .iter()
        .flat_map(|word: &u32| word.to_be_bytes())
        .collect();
    assert_eq!(to_bytes(&note), bytes);
    assert_eq!(decode::<Note>(&bytes), Ok(note));
    let answer = RecallAnswer {
        standings: List::new([Standing::Released, Standing::Flushing]).unwrap(),
    };
    assert_eq!(to_bytes(&answer)[..], [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn lists_have_bounds() {
    let too_many = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 65];
    assert!(decode::<Recall>(&[&too_many[..], &[0; 65 * 28]].concat()).is_err());
    let as_many = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 64];
    assert!(decode::<Recall>(&[&as_many[..], &[0; 64 * 28]].concat()).is_ok());
    assert!(
        decode::<RecallAnswer>(&[0, 0, 0, 1, 0, 0, 0, 3]).is_err(),
        "no such standing"
    );
}

#[test]
fn later_versions_may_add_bytes() {
    let word = Word {
        instance: 3,
        grants: List::new([lease(9)]).unwrap(),
        ..Word::default()
    };
    let bytes = [&to_bytes(&word)[..], b"more"].concat();
    assert_eq!(decode::<Word>(&bytes), Ok(word.clone()));
    for end in 0..to_bytes(&word).len() {
        assert!(decode::<Word>(&bytes[..end]).is_err(), "{end}");
    }
}

#[test]
fn blocks_know_their_fids() {
    let block = Block {
        volume: VolumeId(7),
        vnode: 10,
        uniquifier: 100,
        count: 4,
        quota: 0,
        number: 1,
    };
    assert!(block.is_sound());
    assert_eq!(block.fid(3), Some(Fid::new(7, 13, 103)));
    assert_eq!(block.fid(4), None);
    assert_eq!(block.place(Fid::new(7, 12, 102)), Some(2));
    for other in [
        Fid::new(7, 12, 103),
        Fid::new(8, 12, 102),
        Fid::new(7, 9, 99),
        Fid::new(7, 14, 104),
    ] {
        assert_eq!(block.place(other), None, "{other}");
    }
    for unsound in [
        Block { count: 0, ..block },
        Block {
            count: 257,
            ..block
        },
        Block { vnode: 0, ..block },
        Block {
            vnode: u32::MAX - 1,
            ..block
        },
        Block {
            uniquifier: u32::MAX,
            ..block
        },
    ] {
        assert!(!unsound.is_sound(), "{unsound:?}");
    }
}

fn reads_the_same<T: Decode + Encode + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(message) = decode::<T>(bytes) {
        assert_eq!(decode::<T>(&to_bytes(&message)), Ok(message));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(prop_oneof![3 => Just(0), 1 => any::<u8>()], 0..400)) {
        reads_the_same::<Note>(&bytes);
        reads_the_same::<Word>(&bytes);
        reads_the_same::<Recall>(&bytes);
        reads_the_same::<RecallAnswer>(&bytes);
        reads_the_same::<Claim>(&bytes);
        reads_the_same::<Claimed>(&bytes);
    }
}
