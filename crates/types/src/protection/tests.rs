use afar_xdr::{Decode, from_bytes, to_bytes};
use proptest::prelude::*;

use super::*;

fn words(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}

/// A name as 64 words.
fn letters(name: &str) -> impl Iterator<Item = u32> {
    let bytes = name.bytes().chain(std::iter::repeat(0)).take(64);
    bytes.map(u32::from)
}

#[test]
fn entries_have_76_words() {
    let bytes = words((1..=12).chain(letters("system:administrators")));
    assert_eq!(
        (bytes.len(), PrEntry::MIN_LEN, PrEntry::MAX_LEN),
        (304, 304, 304)
    );
    let entry: PrEntry = from_bytes(&bytes).unwrap();
    assert_eq!((entry.access, entry.id), (PrAccess(1), PtsId(2)));
    assert_eq!((entry.owner, entry.creator), (PtsId(3), PtsId(4)));
    assert_eq!((entry.n_groups, entry.n_users, entry.count), (5, 6, 7));
    assert_eq!(entry.reserved, [8, 9, 10, 11, 12]);
    assert_eq!(entry.name.as_bytes(), b"system:administrators");
    assert_eq!(to_bytes(&entry)[..], bytes);
    // An update is the same after its mask.
    let bytes = words((1..=13).chain(letters("alice")));
    let update: PrUpdateEntry = from_bytes(&bytes).unwrap();
    assert_eq!((update.mask, update.flags, update.id), (1, 2, PtsId(3)));
    assert_eq!((update.owner, update.creator), (PtsId(4), PtsId(5)));
    assert_eq!((update.n_groups, update.n_users, update.count), (6, 7, 8));
    assert_eq!(update.name.as_bytes(), b"alice");
    assert_eq!(to_bytes(&update)[..], bytes);
    assert_eq!(PrUpdateEntry::MAX_LEN, 4 * 77);
}

#[test]
fn entries_to_debug_have_96_words() {
    let bytes = words((1..=32).chain(letters("bob")));
    assert_eq!((bytes.len(), PrDebugEntry::MAX_LEN), (384, 384));
    let entry: PrDebugEntry = from_bytes(&bytes).unwrap();
    assert_eq!(
        (entry.flags, entry.id, entry.cell_id, entry.next),
        (1, PtsId(2), 3, 4)
    );
    assert_eq!(
        (entry.reserved[0], entry.entries[0], entry.entries[9]),
        (5, PtsId(10), PtsId(19))
    );
    assert_eq!((entry.next_id, entry.next_name), (20, 21));
    assert_eq!((entry.owner, entry.creator), (PtsId(22), PtsId(23)));
    assert_eq!((entry.n_groups, entry.n_users, entry.count), (24, 25, 26));
    assert_eq!(
        (entry.instance, entry.owned, entry.next_owned),
        (27, 28, 29)
    );
    assert_eq!((entry.parent, entry.sibling, entry.child), (30, 31, 32));
    assert_eq!(entry.name.as_bytes(), b"bob");
    assert_eq!(to_bytes(&entry)[..], bytes);
}

#[test]
fn access_is_shown_as_pts_shows_it() {
    for (bits, text) in [
        (0x00, "-----"),
        (0x80, "S----"),
        (0x90, "S-M--"),
        (0xb4, "SOMA-"),
        (0x4b, "s-mar"),
        (0xc0, "X----"),
        (0xff, "XOXXr"),
    ] {
        assert_eq!(PrAccess(bits).to_string(), text, "{bits:#x}");
    }
    assert!(PrAccess::GROUP_DEFAULT.contains(PrAccess::USER_DEFAULT));
    assert_eq!(PrAccess::GROUP_DEFAULT.to_string(), "S-M--");
}

#[test]
fn lists_have_their_limits() {
    let ids = PrIds::new(vec![PtsId::ANONYMOUS, PtsId::ANYUSER]).unwrap();
    assert_eq!(to_bytes(&ids)[..], words([2, 32766, 0xffff_ff9b]));
    assert!(PtsId::ANYUSER.is_group() && !PtsId::ANONYMOUS.is_group());
    let name = PrName::new("alice").unwrap();
    let names = PrNamesAsked::new(vec![name]).unwrap();
    assert_eq!(
        to_bytes(&names)[..],
        words([1].into_iter().chain(letters("alice")))
    );
    // A count over the limit is refused for what it is, not for the bytes that are missing.
    let over = |limit: u32| words([limit + 1]);
    assert!(
        !from_bytes::<PrIds>(&over(500_000))
            .unwrap_err()
            .is_truncated()
    );
    assert!(
        !from_bytes::<PrNamesAsked>(&over(5000))
            .unwrap_err()
            .is_truncated()
    );
    assert!(
        from_bytes::<PrNames>(&over(5000))
            .unwrap_err()
            .is_truncated()
    );
    assert_eq!(PrNamesAsked::MAX_LEN, 4 + 5000 * 256);
}

proptest! {
    #[test]
    fn what_decodes_encodes_to_the_same(noise in prop::collection::vec(any::<u8>(), 384)) {
        fn check<T: Decode + afar_xdr::Encode + PartialEq + std::fmt::Debug>(noise: &[u8]) {
            let value: T = from_bytes(&noise[..T::MIN_LEN]).unwrap();
            assert_eq!(from_bytes::<T>(&to_bytes(&value)).unwrap(), value);
        }
        check::<PrEntry>(&noise);
        check::<PrUpdateEntry>(&noise);
        check::<PrDebugEntry>(&noise);
    }
}

#[test]
fn access_is_read_as_it_is_shown() {
    for bits in [0, 0x80, 0x90, 0x40, 0x48, 0x20, 0xb3, 0xab, 0xb5, 0x01] {
        let access = PrAccess(bits);
        assert_eq!(PrAccess::parse(&access.to_string()), Ok(access));
        assert_eq!(PrAccess::parse(&format!("{bits:o}")), Ok(access));
    }
}

#[test]
fn what_is_not_access_is_refused() {
    for text in ["", "SOMA", "SOMarr", "rSOMA", "xOMAr", "400", "19", "So-ar"] {
        assert!(PrAccess::parse(text).is_err(), "{text}");
    }
}
