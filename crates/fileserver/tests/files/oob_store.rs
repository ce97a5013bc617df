//! Data to a server out of band, byte by byte: the same as by Rx, or nothing.

use std::collections::BTreeMap;

use afar_oob::frame::{
    self, CREDIT_LEAST, ClientFrame, DataHead, FromServer, STORE_CREDIT, Store, Stored,
};
use afar_oob::record::checksum;
use afar_oob::{Codec, Refusal, ServerFrame};
use afar_types::{Fid, PtsId, StoreStatus};

use super::cell::*;
use super::oob::{Tcp, mixed};

const RECORD: usize = CREDIT_LEAST as usize;

/// A store of so much data at a place, which makes the file so long.
fn store(id: u32, fid: Fid, (offset, length): (u64, usize), file_length: u64) -> Store {
    Store {
        id,
        fid,
        attributes: StoreStatus::default(),
        offset,
        length: length as u64,
        file_length,
    }
}

/// The bytes of a record.
pub(crate) fn record(id: u32, offset: u64, codec: Codec, plain: usize, stored: &[u8]) -> Vec<u8> {
    let length = u32::try_from(stored.len()).unwrap();
    let head = DataHead {
        id,
        offset,
        plain: u32::try_from(plain).unwrap(),
        codec,
        checksum: checksum(stored),
    };
    [&head.encode(length)[..], stored].concat()
}

impl Tcp {
    async fn begin(&mut self, store: Store) {
        self.send(&ClientFrame::Store(store)).await;
    }

    /// Stores data, packed by this codec, a record at a time, when the server lets it.
    async fn put(&mut self, store: Store, data: &[u8], codec: Codec) -> Result<Stored, i32> {
        self.begin(store).await;
        let mut credit = u64::from(STORE_CREDIT);
        let mut at = store.offset;
        for part in data.chunks(RECORD) {
            let packed = match codec {
                Codec::Raw => part.to_vec(),
                Codec::Zstd => zstd::bulk::compress(part, 1).unwrap(),
                Codec::Lz4 => lz4_flex::block::compress(part),
            };
            let (codec, packed) = if packed.len() < part.len() {
                (codec, packed)
            } else {
                (Codec::Raw, part.to_vec())
            };
            let cost = u64::from(frame::cost(u32::try_from(packed.len()).unwrap()));
            while credit < cost {
                match self.next().await.unwrap() {
                    FromServer::Frame(ServerFrame::Credit { id, bytes }) => {
                        assert_eq!(id, store.id);
                        credit += u64::from(bytes);
                    }
                    FromServer::Frame(ServerFrame::Abort { id, code }) if id == store.id => {
                        return Err(code);
                    }
                    other => panic!("{other:?}"),
                }
            }
            credit -= cost;
            self.send_bytes(&record(store.id, at, codec, part.len(), &packed))
                .await;
            at += part.len() as u64;
        }
        self.stored(store.id).await
    }

    /// How a store ends of which all is sent.
    async fn stored(&mut self, id: u32) -> Result<Stored, i32> {
        loop {
            match self.next().await.unwrap() {
                FromServer::Frame(ServerFrame::Credit { id: of, .. }) => assert_eq!(of, id),
                FromServer::Frame(ServerFrame::Stored(stored)) => {
                    assert_eq!(stored.id, id);
                    return Ok(stored);
                }
                FromServer::Frame(ServerFrame::Abort { id: of, code }) => {
                    assert_eq!(of, id);
                    return Err(code);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_stored_out_of_band_is_there_for_all() {
    let cell = Cell::new().await;
    let ann = cell.ann();
    let fid = ann.create(cell.root(), "a").await;
    let data = mixed();
    let length = data.len() as u64;
    let mut tcp = Tcp::of(&cell, &ann).await;
    for (id, codec) in (1..).zip([Codec::Raw, Codec::Zstd, Codec::Lz4]) {
        let all = store(id, fid, (0, data.len()), length);
        let stored = tcp.put(all, &data, codec).await.unwrap();
        let (found, by_rx) = ann.fetch(fid, 0, 1 << 40).await.unwrap();
        assert!(found == data, "{codec:?}");
        assert_eq!(
            (stored.status, stored.vol_sync),
            (by_rx.status, by_rx.vol_sync)
        );
        assert_eq!(stored.status.data_version.0, u64::from(id));
    }
    // A part in the middle, one behind the end, and a file that gets shorter.
    let part = store(4, fid, (1_000_001, 3), length);
    tcp.put(part, b"abc", Codec::Raw).await.unwrap();
    let part = store(5, fid, (length + 10, 2), length + 12);
    tcp.put(part, b"de", Codec::Raw).await.unwrap();
    let (found, _) = ann.fetch(fid, 0, 1 << 40).await.unwrap();
    let mut expected = data.clone();
    expected[1_000_001..1_000_004].copy_from_slice(b"abc");
    expected.resize(data.len() + 10, 0);
    expected.extend_from_slice(b"de");
    assert!(found == expected);
    let part = store(6, fid, (2, 1), 5);
    tcp.put(part, b"!", Codec::Raw).await.unwrap();
    let (found, _) = ann.fetch(fid, 0, 1 << 40).await.unwrap();
    assert_eq!(
        found,
        [expected[0], expected[1], b'!', expected[3], expected[4]]
    );
    // A store of nothing sets the length.
    let stored = tcp.put(store(7, fid, (0, 0), 3), b"", Codec::Raw).await;
    assert_eq!(stored.unwrap().status.length, 3);
    let text = afar_telemetry::render_prometheus(&cell.registry);
    assert!(text.contains("afar_oob_transfers_total{result=\"stored\"} 7\n"));
    let bytes = 3 * length + 6;
    assert!(text.contains(&format!("afar_oob_received_data_bytes_total {bytes}\n")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_hear_of_a_store_before_its_writer() {
    let cell = Cell::new().await;
    let (ann, reader) = (cell.ann(), cell.client());
    let fid = ann.create(cell.root(), "a").await;
    let mut tcp = Tcp::of(&cell, &ann).await;
    ann.store(fid, 0, b"before", 6).await.unwrap();
    reader.fetch(fid, 0, 6).await.unwrap();
    let broken = reader.callbacks.broken();
    let part = store(1, fid, (0, 6), 6);
    tcp.put(part, b"behind", Codec::Raw).await.unwrap();
    assert_eq!(reader.callbacks.broken(), broken + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_and_codes_of_stores_are_those_of_calls() {
    let cell = Cell::new().await;
    let (ann, anyone) = (cell.ann(), cell.client());
    let fid = ann.create(cell.root(), "a").await;
    cell.allow(cell.root(), &[(PtsId::ANYUSER, "rl"), (STAFF, "rlidwk")]);
    let data = mixed();
    let length = data.len() as u64;
    let mut of_anyone = Tcp::of(&cell, &anyone).await;
    let refused = of_anyone.put(store(1, fid, (0, data.len()), length), &data, Codec::Raw);
    assert_eq!(refused.await.unwrap_err(), EACCES.0);
    let mut tcp = Tcp::of(&cell, &ann).await;
    for (id, fid, place, code) in [
        (3, Fid::new(VOLUME.0, 2, 77), (0, 1), VNOVNODE),
        (4, Fid::new(5, 2, 1), (0, 1), VNOVOL),
        (5, fid, (u64::MAX, 1), EFBIG),
        (6, fid, (1 << 62, 1 << 62), EFBIG),
    ] {
        tcp.begin(store(id, fid, place, 1)).await;
        // What was on its way when it was refused is nothing.
        tcp.send_bytes(&record(id, place.0, Codec::Raw, 1, b"x"))
            .await;
        assert_eq!(tcp.stored(id).await.unwrap_err(), code.0, "{id}");
        tcp.send_bytes(&record(id, place.0, Codec::Raw, 1, b"x"))
            .await;
    }
    let (found, _) = ann.fetch(fid, 0, 1 << 40).await.unwrap();
    assert!(found.is_empty());
    let part = store(7, fid, (0, 2), 2);
    tcp.put(part, b"ok", Codec::Raw).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_cut_off_changes_nothing() {
    let cell = Cell::new().await;
    let ann = cell.ann();
    let fid = ann.create(cell.root(), "a").await;
    ann.store(fid, 0, b"before", 6).await.unwrap();
    let data = vec![7; 3 << 20];
    let part = record(1, 0, Codec::Raw, RECORD, &data[..RECORD]);
    // Nothing of it, the beginning of a frame, of a record, and one record.
    for sent in [0, 3, 30, 70_000, part.len()] {
        let mut tcp = Tcp::of(&cell, &ann).await;
        tcp.begin(store(1, fid, (0, data.len()), 3 << 20)).await;
        tcp.send_bytes(&part[..sent]).await;
        drop(tcp);
    }
    let mut tcp = Tcp::of(&cell, &ann).await;
    tcp.begin(store(1, fid, (0, data.len()), 3 << 20)).await;
    tcp.send_bytes(&part).await;
    tcp.send(&ClientFrame::Cancel { id: 1 }).await;
    // It waits until the others have left the file alone.
    let after = store(2, fid, (0, 5), 5);
    tcp.begin(after).await;
    tcp.send_bytes(&record(2, 0, Codec::Raw, 5, b"after")).await;
    let stored = loop {
        match tcp.next().await.unwrap() {
            FromServer::Frame(ServerFrame::Credit { .. }) => {}
            FromServer::Frame(ServerFrame::Stored(stored)) => break stored,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((stored.id, stored.status.data_version.0), (2, 2));
    let (found, _) = ann.fetch(fid, 0, 100).await.unwrap();
    assert_eq!(found, b"after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_make_no_sense_store_nothing_and_end_the_connection() {
    let cell = Cell::new().await;
    let ann = cell.ann();
    let fid = ann.create(cell.root(), "a").await;
    ann.store(fid, 0, b"before", 6).await.unwrap();
    let data = vec![7; 2 * RECORD];
    let good = record(1, 0, Codec::Raw, RECORD, &data[..RECORD]);
    let damaged = |place: usize| {
        let mut bytes = good.clone();
        bytes[place] ^= 1;
        bytes
    };
    let wrong: Vec<(&str, Vec<u8>)> = vec![
        ("data", damaged(good.len() - 1)),
        ("checksum", damaged(30)),
        ("another place", record(1, 1, Codec::Raw, 1, b"x")),
        ("no zstd", record(1, 0, Codec::Zstd, 1000, b"no zstd")),
        ("no LZ4", record(1, 0, Codec::Lz4, 1000, &[0xff; 20])),
        ("without credit", [&good[..], &good[..], &good[..]].concat()),
    ];
    for (what, bytes) in wrong {
        let mut tcp = Tcp::of(&cell, &ann).await;
        tcp.begin(store(1, fid, (0, data.len()), 2 << 20)).await;
        tcp.send_bytes(&bytes).await;
        assert_eq!(tcp.refused().await, Some(Refusal::Message), "{what}");
    }
    // More than was announced.
    let mut tcp = Tcp::of(&cell, &ann).await;
    tcp.begin(store(1, fid, (0, 3), 3)).await;
    tcp.send_bytes(&record(1, 0, Codec::Raw, 4, b"long")).await;
    assert_eq!(tcp.refused().await, Some(Refusal::Message));
    // Credit is a fetch's, and records are a store's.
    let mut tcp = Tcp::of(&cell, &ann).await;
    tcp.begin(store(1, fid, (0, 3), 3)).await;
    tcp.send(&ClientFrame::Credit { id: 1, bytes: 1 }).await;
    assert_eq!(tcp.refused().await, Some(Refusal::Message));
    // Records of what there is not are nothing.
    let mut tcp = Tcp::of(&cell, &ann).await;
    tcp.send_bytes(&record(9, 0, Codec::Raw, RECORD, &data[..RECORD]))
        .await;
    let last = store(2, fid, (0, 4), 4);
    let stored = tcp.put(last, b"last", Codec::Raw).await.unwrap();
    assert_eq!(
        stored.status.data_version.0, 2,
        "all others changed nothing"
    );
    assert_eq!(ann.fetch(fid, 0, 100).await.unwrap().0, b"last");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_of_one_file_take_turns_on_one_connection() {
    let cell = Cell::new().await;
    let ann = cell.ann();
    let fid = ann.create(cell.root(), "a").await;
    let mut tcp = Tcp::of(&cell, &ann).await;
    // The second is all there before the first has its data.
    tcp.begin(store(1, fid, (0, 5), 5)).await;
    while !matches!(
        tcp.next().await.unwrap(),
        FromServer::Frame(ServerFrame::Credit { id: 1, .. })
    ) {}
    tcp.begin(store(2, fid, (0, 6), 6)).await;
    tcp.send_bytes(&record(2, 0, Codec::Raw, 6, b"second"))
        .await;
    tcp.send(&ClientFrame::Ping { number: 5 }).await;
    let pong = ServerFrame::Pong { number: 5 };
    assert_eq!(tcp.next().await, Some(FromServer::Frame(pong)));
    tcp.send_bytes(&record(1, 0, Codec::Raw, 5, b"first")).await;
    // The second goes on as soon as the first is on the disk, which may be before that one is answered.
    let mut versions = BTreeMap::new();
    while versions.len() < 2 {
        match tcp.next().await.unwrap() {
            FromServer::Frame(ServerFrame::Credit { .. }) => {}
            FromServer::Frame(ServerFrame::Stored(stored)) => {
                versions.insert(stored.id, stored.status.data_version.0);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(versions, BTreeMap::from([(1, 1), (2, 2)]));
    assert_eq!(ann.fetch(fid, 0, 100).await.unwrap().0, b"second");
}
