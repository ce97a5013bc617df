use proptest::prelude::*;

use crate::*;

#[derive(Debug, Clone, PartialEq, Encode, Decode)]
struct Everything {
    unsigned: u32,
    signed: i32,
    long: u64,
    signed_long: i64,
    flag: bool,
    short: u16,
    tiny: i8,
    name: XdrString<20>,
    blob: Opaque<9>,
    fixed: FixedOpaque<5>,
    numbers: List<Pair, 6>,
    triple: [u32; 3],
    chars: CharArray<7>,
    maybe: Option<u32>,
    arm: Arm,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Encode, Decode)]
struct Pair(u32, i32);

#[derive(Debug, Clone, PartialEq, Encode, Decode)]
enum Arm {
    #[xdr(case = 0)]
    Nothing,
    #[xdr(case = 7)]
    Point { x: u32, y: u64 },
    #[xdr(default)]
    Other(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode)]
enum Kind {
    File = 1,
    Directory = 2,
}

#[derive(Debug, PartialEq, Encode, Decode)]
struct Wrapped<T> {
    inner: T,
}

fn everything() -> impl Strategy<Value = Everything> {
    let numbers = (
        any::<u32>(),
        any::<i32>(),
        any::<u64>(),
        any::<i64>(),
        any::<bool>(),
    );
    let narrow = (any::<u16>(), any::<i8>());
    let bytes = (
        prop::collection::vec(1u8.., 0..=20),
        prop::collection::vec(any::<u8>(), 0..=9),
        any::<[u8; 5]>(),
        prop::collection::vec((any::<u32>(), any::<i32>()), 0..=6),
        any::<[u32; 3]>(),
        prop::collection::vec(1u8.., 0..=6),
    );
    let arm = prop_oneof![
        Just(Arm::Nothing),
        (any::<u32>(), any::<u64>()).prop_map(|(x, y)| Arm::Point { x, y }),
        (8u32..).prop_map(Arm::Other),
    ];
    let kind = prop_oneof![Just(Kind::File), Just(Kind::Directory)];
    (numbers, narrow, bytes, any::<Option<u32>>(), arm, kind).prop_map(
        |((unsigned, signed, long, signed_long, flag), (short, tiny), b, maybe, arm, kind)| {
            let pairs: Vec<_> = b.3.into_iter().map(|(a, b)| Pair(a, b)).collect();
            Everything {
                unsigned,
                signed,
                long,
                signed_long,
                flag,
                short,
                tiny,
                name: XdrString::new(b.0).unwrap(),
                blob: Opaque::new(b.1).unwrap(),
                fixed: FixedOpaque(b.2),
                numbers: List::new(pairs).unwrap(),
                triple: b.4,
                chars: CharArray::new(b.5).unwrap(),
                maybe,
                arm,
                kind,
            }
        },
    )
}

proptest! {
    #[test]
    fn what_is_encoded_decodes_to_the_same(value in everything()) {
        let bytes = to_bytes(&value);
        prop_assert_eq!(bytes.len() % 4, 0);
        prop_assert!(bytes.len() >= Everything::MIN_LEN && bytes.len() <= Everything::MAX_LEN);
        prop_assert_eq!(from_bytes::<Everything>(&bytes).unwrap(), value);
    }

    #[test]
    fn every_truncation_is_reported_as_one(value in everything(), cut in any::<prop::sample::Index>()) {
        let bytes = to_bytes(&value);
        let error = from_bytes::<Everything>(&bytes[..cut.index(bytes.len())]).unwrap_err();
        prop_assert!(error.is_truncated(), "{}", error);
        prop_assert!(error.what.contains('.') || error.what.contains("Arm") || error.what.contains("Kind"));
    }

    #[test]
    fn arbitrary_bytes_decode_or_fail_but_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(value) = from_bytes::<Everything>(&bytes) {
            prop_assert_eq!(from_bytes::<Everything>(&to_bytes(&value)).unwrap(), value);
        }
    }

    #[test]
    fn small_words_reach_every_branch(words in prop::collection::vec(0u32..9, 0..90)) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        if let Ok(value) = Everything::decode(&mut Decoder::new(&bytes)) {
            prop_assert_eq!(from_bytes::<Everything>(&to_bytes(&value)).unwrap(), value);
        }
    }
}

#[test]
fn lengths_over_the_limit_are_refused_before_the_bytes_are_looked_for() {
    let error = from_bytes::<XdrString<8>>(&[0, 0, 0, 9]).unwrap_err();
    assert_eq!(
        error.kind,
        DecodeErrorKind::TooLong {
            announced: 9,
            limit: 8
        }
    );
    assert_eq!(
        error.to_string(),
        "string at byte 0: length 9 is over the limit of 8"
    );
}

#[test]
fn counts_that_cannot_be_present_are_refused_before_allocating() {
    // 2^31 elements of 8 bytes are announced and allowed, and none is there.
    let error = from_bytes::<List<Pair, { u32::MAX as usize }>>(&[0x80, 0, 0, 0]).unwrap_err();
    assert_eq!(
        error.kind,
        DecodeErrorKind::Truncated {
            needed: 1 << 34,
            present: 0
        }
    );
}

#[test]
fn elements_without_bytes_are_not_conjured_from_a_count() {
    let error = from_bytes::<List<[u32; 0], 1000>>(&[0, 0, 3, 0xe8]).unwrap_err();
    assert!(error.is_truncated());
}

#[test]
fn strings_with_a_nul_are_refused_where_it_stands() {
    let error = from_bytes::<XdrString<8>>(b"\0\0\0\x03a\0b\0").unwrap_err();
    assert_eq!(
        (error.offset, error.kind),
        (5, DecodeErrorKind::EmbeddedNul)
    );
    assert_eq!(XdrString::<8>::new("a\0"), Err(LengthError::EmbeddedNul));
}

#[test]
fn char_arrays_take_a_word_for_each_byte() {
    let name = CharArray::<4>::new([b'a', 0xe4]).unwrap();
    let bytes = to_bytes(&name);
    assert_eq!(
        &bytes[..],
        [
            0, 0, 0, b'a', 0xff, 0xff, 0xff, 0xe4, 0, 0, 0, 0, 0, 0, 0, 0
        ]
    );
    // A peer that does not sign-extend, and leaves rubbish behind the NUL, means the same name.
    let other = [0, 0, 0, b'a', 0, 0, 0, 0xe4, 0, 0, 0, 0, 1, 2, 3, 4];
    assert_eq!(from_bytes::<CharArray<4>>(&other).unwrap(), name);
    assert_eq!(
        CharArray::<4>::new("abcd"),
        Err(LengthError::TooLong {
            length: 4,
            limit: 3
        })
    );
}

#[test]
fn padding_is_written_as_zero_and_read_as_anything() {
    assert_eq!(&to_bytes(&FixedOpaque(*b"hello"))[..], b"hello\0\0\0");
    assert_eq!(
        from_bytes::<Opaque<4>>(b"\0\0\0\x01xyzw").unwrap()[..],
        *b"x"
    );
}

#[test]
fn unknown_enum_words_name_the_type() {
    let error = from_bytes::<Wrapped<Kind>>(&[0, 0, 0, 3]).unwrap_err();
    assert_eq!(
        (error.offset, error.kind),
        (0, DecodeErrorKind::InvalidWord(3))
    );
    assert_eq!(from_bytes::<Arm>(&[0, 0, 0, 3]).unwrap(), Arm::Other(3));
}

#[test]
fn lengths_of_types_are_known_in_advance() {
    assert_eq!((Pair::MIN_LEN, Pair::MAX_LEN), (8, 8));
    assert_eq!((Arm::MIN_LEN, Arm::MAX_LEN), (4, 16));
    assert_eq!(<Wrapped<XdrString<65>>>::MAX_LEN, 72);
}

#[test]
fn bytes_left_over_are_an_error_only_when_the_caller_says_so() {
    assert_eq!(
        from_bytes::<u32>(&[0; 6]).unwrap_err().kind,
        DecodeErrorKind::Trailing(2)
    );
    let mut input = Decoder::new(&[0, 0, 0, 1, 9]);
    assert_eq!(input.read::<u32>().unwrap(), 1);
    assert_eq!(input.rest(), [9]);
}
