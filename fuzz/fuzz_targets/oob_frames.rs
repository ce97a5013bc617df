//! Streams of frames, of clients and of servers, cut where the first bytes say, and the records in them.

#![no_main]

use afar_oob::Unpacker;
use afar_oob::frame::{self, ClientFrame, Data, FromClient, FromServer, Incoming, Passing, Read};
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
    for next in read::<FromClient>(stream, step) {
        match next {
            FromClient::Frame(frame) => {
                let again = read::<FromClient>(&frame::encode(&frame), step);
                assert_eq!(again, [FromClient::Frame(frame)]);
            }
            FromClient::Data(data) => unpack(data),
        }
    }
    for next in read::<FromServer>(stream, step) {
        match next {
            Passing::Frame(frame) => {
                let again = read::<FromServer>(&frame::encode(&frame), step);
                assert_eq!(again, [FromServer::Frame(frame)]);
            }
            Passing::Data(data) => unpack(data),
        }
    }
});

fn unpack(Data { head, stored }: Data) {
    assert!(stored.len() <= head.plain as usize && head.plain <= RECORD_MAX);
    let sum = afar_oob::record::checksum(&stored);
    let unpacked = Unpacker::default().unpack(head.codec, stored, head.plain, sum);
    if let Ok(plain) = unpacked {
        assert_eq!(plain.len(), head.plain as usize);
    }
}

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
