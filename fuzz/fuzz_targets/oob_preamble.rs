//! The first message of a client to a server, with a right length before any bytes, as strangers can send it.

#![no_main]

use afar_oob::frame::{self, ClientFrame, FRAME_MAX, Incoming};
use libfuzzer_sys::fuzz_target;

const HELLO: u32 = 1;

fuzz_target!(|data: &[u8]| {
    let Ok(length) = u32::try_from(data.len() + 4) else {
        return;
    };
    let framed = [&length.to_be_bytes()[..], &HELLO.to_be_bytes(), data].concat();
    let mut incoming = Incoming::<ClientFrame>::default();
    incoming.room().extend_from_slice(&framed);
    if let Ok(Some(hello)) = incoming.frame() {
        assert!(matches!(hello, ClientFrame::Hello(_)));
        assert!(framed.len() <= FRAME_MAX + 4);
        assert!(incoming.is_empty());
        incoming.room().extend_from_slice(&frame::encode(&hello));
        assert_eq!(incoming.frame().expect("it was read before"), Some(hello));
    }
});
