//! Streams of frames, of clients and of servers, cut where the first bytes say, and the records in them.

#![no_main]

use afar_oob::Unpacker;
use afar_oob::frame::{self, ClientFrame, Data, FromServer, Incoming, Read};
use afar_oob::record::RECORD_MAX;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&cut, stream)) = data.split_first() else {
        return;
    };
    let step = usize::from(cut) + 1;
    for frame in read::<ClientFrame>(stream, step) {
        assert_eq!(read::<ClientFrame>(&frame::encode(&frame), step), [frame]);
    }
    let mut unpacker = Unpacker::default();
    for frame in read::<FromServer>(stream, step) {
        match frame {
            FromServer::Frame(frame) => {
                let again = read::<FromServer>(&frame::encode(&frame), step);
                assert_eq!(again, [FromServer::Frame(frame)]);
            }
            FromServer::Data(Data { head, stored }) => {
                assert!(stored.len() <= head.plain as usize && head.plain <= RECORD_MAX);
                let sum = afar_oob::record::checksum(&stored);
                if let Ok(plain) = unpacker.unpack(head.codec, stored, head.plain, sum) {
                    assert_eq!(plain.len(), head.plain as usize);
                }
            }
        }
    }
});

fn read<T: Read>(stream: &[u8], step: usize) -> Vec<T> {
    let mut incoming = Incoming::default();
    let mut frames = Vec::new();
    for part in stream.chunks(step) {
        let room = incoming.room();
        room.extend_from_slice(part);
        loop {
            match incoming.frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return frames,
            }
        }
    }
    frames
}
