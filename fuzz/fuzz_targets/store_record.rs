//! Extents and records as they lie on a disk: what is read as an extent is
//! written the same, and no bytes make a decoder do more than announced.

#![no_main]

use afar_store::segment::{Codec, Compression, Extent, pack, unpack};
use libfuzzer_sys::fuzz_target;

const LIMIT: u32 = 1 << 16;

fuzz_target!(|data: &[u8]| {
    let Some((head, stored)) = data.split_at_checked(Extent::SIZE) else {
        assert!(Extent::from_bytes(data).is_err());
        return;
    };
    if let Ok(extent) = Extent::from_bytes(head) {
        assert_eq!(extent.to_bytes(), head);
    }
    // Whatever the extent says, its lengths and the bytes reach the decoders.
    let plain_len = u32::from_be_bytes([0, head[12], head[13], head[14]]) % LIMIT;
    let mut out = Vec::new();
    for codec in [Codec::Raw, Codec::Zstd, Codec::Lz4] {
        if unpack(codec, stored, plain_len, &mut out).is_ok() {
            assert_eq!(out.len(), plain_len as usize);
        }
        assert!(out.len() <= plain_len as usize);
    }
    let stored = &stored[..stored.len().min(LIMIT as usize)];
    let setting = match head[15] % 3 {
        0 => Compression::None,
        1 => Compression::Lz4,
        _ => Compression::Zstd(1),
    };
    let packed = pack(stored, setting);
    unpack(packed.codec(), packed.bytes(), packed.plain_len(), &mut out)
        .expect("what was packed unpacks");
    assert_eq!(out, stored);
});
