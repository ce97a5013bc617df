//! Every building block of the XDR codec: what decodes must encode to a form that decodes to the
//! same, within the lengths its type states.

#![no_main]

use std::fmt::Debug;

use afar_xdr::{
    CharArray, Decode, Decoder, Encode, FixedOpaque, List, Opaque, XdrString, from_bytes, to_bytes,
};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, PartialEq, Encode, Decode)]
struct Blocks {
    name: XdrString<40>,
    arms: List<Arm, 12>,
    blob: Opaque<33>,
    fixed: FixedOpaque<7>,
    chars: CharArray<9>,
    shorts: [u16; 3],
    bytes: [i8; 2],
    maybe: Option<Box40>,
    long: i64,
}

#[derive(Debug, PartialEq, Encode, Decode)]
struct Box40(List<XdrString<8>, 4>);

#[derive(Debug, PartialEq, Encode, Decode)]
enum Arm {
    #[xdr(case = 0)]
    Nothing,
    #[xdr(case = 1)]
    Named { name: XdrString<12>, flag: bool },
    #[xdr(case = 2)]
    Nested(List<u32, 5>),
    #[xdr(default)]
    Other(u32),
}

fn check<T: Decode + Encode + PartialEq + Debug>(data: &[u8]) {
    let mut input = Decoder::new(data);
    if let Ok(value) = T::decode(&mut input) {
        assert!((T::MIN_LEN..=T::MAX_LEN).contains(&input.offset()));
        assert_eq!(from_bytes::<T>(&to_bytes(&value)).as_ref(), Ok(&value));
    }
}

fuzz_target!(|data: &[u8]| {
    check::<Blocks>(data);
    check::<List<XdrString<1000>, 1000>>(data);
    check::<List<List<u64, 8>, { u32::MAX as usize }>>(data);
});
