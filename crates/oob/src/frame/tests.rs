use afar_types::{VolintName, VolumeId};
use afar_xdr::Opaque;
use proptest::prelude::*;

use super::*;
use crate::Parts;
use crate::record::checksum;

fn fetch() -> ClientFrame {
    ClientFrame::Fetch(Fetch {
        id: 3,
        fid: Fid::root(VolumeId(536_870_915)),
        offset: 1 << 33,
        length: 5,
        codecs: Codecs::ALL,
        credit: CREDIT_LEAST,
    })
}

fn hello() -> ClientFrame {
    ClientFrame::Hello(Hello {
        version: 1,
        grant: Opaque::new([7; 512]).unwrap(),
        proof: FixedOpaque([8; 32]),
        parts: Parts::default(),
    })
}

fn data(stored: &[u8]) -> (DataHead, Bytes) {
    let length = u32::try_from(stored.len()).unwrap();
    let head = DataHead {
        id: 3,
        offset: 9,
        plain: length,
        codec: Codec::Raw,
        checksum: checksum(stored),
    };
    (head, [&head.encode(length)[..], stored].concat().into())
}

/// What comes of these bytes, a few at a time.
fn read<T: Read>(bytes: &[u8], step: usize) -> (Vec<T>, Result<(), FrameError>) {
    let mut incoming = Incoming::default();
    let mut frames = Vec::new();
    for part in bytes.chunks(step) {
        incoming.room().extend_from_slice(part);
        loop {
            match incoming.frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, Ok(()))
}

#[test]
fn bytes_are_those_of_the_protocol() {
    let bytes = encode(&fetch());
    assert_eq!(
        bytes[..],
        *b"\0\0\0\x2c\0\0\0\x03\0\0\0\x03\x20\0\0\x03\0\0\0\x01\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0\x07\0\x10\0\0"
    );
    let (head, bytes) = data(b"Hello");
    assert_eq!(bytes.len(), DataHead::LEN + 5);
    assert_eq!(
        bytes[..28],
        *b"\0\0\0\x2d\0\0\0\x06\0\0\0\x03\0\0\0\0\0\0\0\x09\0\0\0\x05\0\0\0\0"
    );
    assert_eq!(bytes[28..44], head.checksum.to_be_bytes());
    assert_eq!(bytes[44..], *b"Hello");
}

#[test]
fn stores_are_those_of_the_protocol() {
    let store = ClientFrame::Store(Store {
        id: 3,
        fid: Fid::root(VolumeId(536_870_915)),
        attributes: StoreStatus::default(),
        offset: 1 << 33,
        length: 5,
        file_length: 7,
    });
    let bytes = encode(&store);
    assert_eq!(bytes[..8], *b"\0\0\0\x44\0\0\0\x0e");
    assert_eq!(bytes[24..48], [0; 24], "the attributes");
    assert_eq!(
        bytes[48..],
        *b"\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x07"
    );
    // Until its grant is checked, a client has no room for records.
    let (_, bytes) = data(&[7; 2000]);
    let (frames, ended) = read::<ClientFrame>(&bytes, 4096);
    assert!(frames.is_empty() && matches!(ended, Err(FrameError::TooLong { .. })));
    let mut incoming = Incoming::<ClientFrame>::default();
    incoming.room().extend_from_slice(&bytes);
    let mut incoming = incoming.change::<FromClient>();
    assert!(matches!(incoming.frame(), Ok(Some(FromClient::Data(_)))));
}

#[test]
fn dumps_and_restores_are_those_of_the_protocol() {
    let dump = ClientFrame::Dump(Dump {
        id: 3,
        transaction: TransactionId(4),
        from_date: UnixTime(5),
        flags: 1,
        codecs: Codecs::RAW,
        credit: CREDIT_LEAST,
    });
    assert_eq!(
        encode(&dump)[..],
        *b"\0\0\0\x1c\0\0\0\x11\0\0\0\x03\0\0\0\x04\0\0\0\x05\0\0\0\x01\0\0\0\x01\0\x10\0\0"
    );
    let restore = ClientFrame::Restore(Restore {
        id: 3,
        transaction: TransactionId(4),
        flags: 1,
        cookie: RestoreCookie {
            name: VolintName::new("user.ann").unwrap(),
            kind: 0,
            clone_id: VolumeId(6),
            parent_id: VolumeId(7),
        },
    });
    let bytes = encode(&restore);
    assert_eq!(
        bytes[..20],
        *b"\0\0\0\x9c\0\0\0\x12\0\0\0\x03\0\0\0\x04\0\0\0\x01"
    );
    assert_eq!(bytes[148..], *b"\0\0\0\0\0\0\0\x06\0\0\0\x07");
    let finish = encode(&ClientFrame::Finish { id: 3 });
    assert_eq!(finish[..], *b"\0\0\0\x08\0\0\0\x13\0\0\0\x03");
    let dumped = encode(&ServerFrame::Dumped { id: 3, length: 9 });
    assert_eq!(
        dumped[..],
        *b"\0\0\0\x10\0\0\0\x14\0\0\0\x03\0\0\0\0\0\0\0\x09"
    );
    let restored = encode(&ServerFrame::Restored { id: 3 });
    assert_eq!(restored[..], *b"\0\0\0\x08\0\0\0\x15\0\0\0\x03");
    let sent = [dump, restore, ClientFrame::Finish { id: 3 }];
    let bytes: Vec<u8> = sent
        .iter()
        .flat_map(|frame| encode(frame).to_vec())
        .collect();
    for step in 1..60 {
        let (frames, ended) = read::<ClientFrame>(&bytes, step);
        assert_eq!(frames, sent);
        ended.unwrap();
    }
}

#[test]
fn frames_are_found_in_a_stream_cut_anywhere() {
    let ping = ClientFrame::Ping { number: 4 };
    let sent = [hello(), fetch(), ping];
    let bytes: Vec<u8> = sent
        .iter()
        .flat_map(|frame| encode(frame).to_vec())
        .collect();
    let (head, record) = data(b"some data");
    let pong = ServerFrame::Pong { number: 4 };
    let reply = [&record[..], &encode(&pong)].concat();
    for step in 1..60 {
        let (frames, ended) = read::<ClientFrame>(&bytes, step);
        assert_eq!(frames, sent);
        ended.unwrap();
        let (frames, ended) = read::<FromServer>(&reply, step);
        ended.unwrap();
        let stored = Bytes::from_static(b"some data");
        let record = FromServer::Data(Data { head, stored });
        assert_eq!(frames, [record, FromServer::Frame(pong.clone())]);
    }
}

#[test]
fn absurd_lengths_are_refused_before_there_is_room_for_them() {
    for length in [u32::MAX, 1 << 30, 1025] {
        let mut incoming = Incoming::<ClientFrame>::default();
        incoming.room().put_u32(length);
        assert!(matches!(incoming.frame(), Err(FrameError::TooLong { .. })));
        assert!(incoming.room().capacity() < 3 * READ);
    }
    let most = u32::try_from(FromServer::MOST).unwrap();
    let (_, ended) = read::<FromServer>(&(most + 1).to_be_bytes(), 4);
    assert!(matches!(ended, Err(FrameError::TooLong { .. })));
    // Longer than any frame but one with a record, which it is not.
    let mut long = encode(&ServerFrame::Pong { number: 0 }).to_vec();
    long.resize(FRAME_MAX + 8, 0);
    let length = u32::try_from(long.len() - LENGTH).unwrap();
    long[..4].copy_from_slice(&length.to_be_bytes());
    let (_, ended) = read::<FromServer>(&long, 4096);
    assert!(matches!(ended, Err(FrameError::TooLong { .. })));
}

#[test]
fn a_stream_on_which_nothing_comes_keeps_no_memory() {
    let (_, bytes) = data(&vec![7; RECORD_MAX as usize]);
    let mut incoming = Incoming::<FromServer>::default();
    incoming.room().extend_from_slice(&bytes);
    assert!(incoming.frame().unwrap().is_some());
    let room = incoming.room();
    assert!(room.is_empty() && room.capacity() < 3 * READ);
    room.extend_from_slice(&bytes[..100]);
    assert_eq!(incoming.room()[..], bytes[..100]);
}

#[test]
fn unknown_codecs_and_wrong_lengths_of_records_are_refused() {
    let (_, bytes) = data(b"Hello");
    for (place, value) in [(27, 3), (27, 1), (23, 4), (23, 6), (3, 0x2c)] {
        let mut wrong = bytes.to_vec();
        wrong[place] = value;
        let (frames, ended) = read::<FromServer>(&wrong, 4096);
        assert!(frames.is_empty(), "{place}");
        assert!(matches!(ended, Err(FrameError::Record(_))), "{place}");
    }
}

#[test]
fn the_longest_frames_fit() {
    const { assert!(<ClientFrame as Decode>::MAX_LEN <= 3 * FRAME_MAX + 1024) };
    let bytes = encode(&hello());
    assert!(bytes.len() < FRAME_MAX);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        kind in 0_u32..18,
    ) {
        let length = u32::try_from(bytes.len() + 4).unwrap();
        let framed = [&length.to_be_bytes()[..], &kind.to_be_bytes(), &bytes].concat();
        for frame in read::<ClientFrame>(&framed, 4096).0 {
            let again = read::<ClientFrame>(&encode(&frame), 4096).0;
            prop_assert_eq!(again, [frame]);
        }
        // A client's records are a server's.
        let records = read::<FromClient>(&framed, 4096).0;
        let records = records.iter().filter(|next| matches!(next, Passing::Data(_)));
        let of_server = read::<FromServer>(&framed, 4096).0;
        prop_assert_eq!(records.count(), usize::from(matches!(of_server[..], [Passing::Data(_)])));
        for frame in of_server {
            match frame {
                FromServer::Frame(frame) => {
                    let again = read::<FromServer>(&encode(&frame), 4096).0;
                    prop_assert_eq!(again, [FromServer::Frame(frame)]);
                }
                FromServer::Data(data) => {
                    let stored = u32::try_from(data.stored.len()).unwrap();
                    let again = [&data.head.encode(stored)[..], &data.stored].concat();
                    prop_assert_eq!(again, framed.clone());
                }
            }
        }
    }
}
