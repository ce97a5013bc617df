//! Volumes out of band, byte by byte and between servers: the same as by Rx, or nothing.

use std::time::Duration;

use afar_cell::{VolumeDump, VolumeOob, VolumeRestore};
use afar_oob::frame::{
    self, CREDIT_LEAST, ClientFrame, Data, Dump, Fetch, FromServer, Restore, Store,
};
use afar_oob::secret::Side;
use afar_oob::{
    Agreement, Codec, Codecs, Offer, Question, Refusal, Secret, ServerFrame, Unpacker, offer,
};
use afar_rpc::{RpcError, afsvol};
use afar_store::Volume;
use afar_types::{
    AttachFlags, Destinations, Fid, ReplicaDest, RestoreCookie, StoreStatus, TransactionId,
    UnixTime, VolintName, VolintNameText, VolumeId, VolumeType,
};
use afar_xdr::Opaque;

use super::cell::*;
use super::oob::{AMPLE, Tcp, ask, mixed};
use super::oob_client::{Middle, Proxy};
use super::oob_store::record;

/// A volume that is filled.
const OTHER: VolumeId = VolumeId(536_870_990);
const NONE: VolumeId = VolumeId(0);
const RECORD: usize = CREDIT_LEAST as usize;
const RXGEN_OPCODE: i32 = -455;
const RX_CALL_DEAD: i32 = -1;
const BAD_ACCESS: i32 = 1_492_325_127;
const NO_TRANSACTION: i32 = 2;
const READ_DUMPERROR: i32 = 1_492_325_122;

fn name(name: &str) -> VolintNameText {
    VolintNameText::new(name).unwrap()
}

fn cookie() -> RestoreCookie {
    RestoreCookie {
        name: VolintName::new("other").unwrap(),
        kind: VolumeType::ReadWrite.number(),
        clone_id: NONE,
        parent_id: OTHER,
    }
}

/// An offer of the volume server.
async fn ask_for_volumes(volumes: &afsvol::Client) -> Result<(Offer, Secret), RpcError> {
    let own = Agreement::new().unwrap();
    let question = offer::encode(&Question::new(own.share()));
    let question = Opaque::new(&question[..]).unwrap();
    let reply = volumes.oob_offer(question).await?;
    let offer: Offer = offer::decode(&reply.offer).unwrap();
    let secret = own.agree(Side::Client, &offer.share.0).unwrap();
    Ok((offer, secret))
}

fn dump(id: u32, transaction: TransactionId, from: u32, flags: i32) -> ClientFrame {
    ClientFrame::Dump(Dump {
        id,
        transaction,
        from_date: UnixTime(from),
        flags,
        codecs: Codecs::ALL,
        credit: AMPLE,
    })
}

fn restore(id: u32, transaction: TransactionId) -> ClientFrame {
    ClientFrame::Restore(Restore {
        id,
        transaction,
        flags: 0,
        cookie: cookie(),
    })
}

impl Tcp {
    async fn of_volumes(cell: &Cell) -> Self {
        let (offer, secret) = ask_for_volumes(&cell.volumes()).await.unwrap();
        Self::welcomed(cell, &offer, &secret).await
    }

    /// All of the one dump under way.
    async fn take_dump(&mut self, id: u32) -> Result<Vec<u8>, i32> {
        let mut dump = Vec::new();
        let mut unpacker = Unpacker::default();
        loop {
            match self.next().await.expect("the connection goes on") {
                FromServer::Data(Data { head, stored }) => {
                    assert_eq!((head.id, head.offset), (id, dump.len() as u64));
                    let plain = unpacker.unpack(head.codec, stored, head.plain, head.checksum);
                    dump.extend_from_slice(&plain.unwrap());
                }
                FromServer::Frame(ServerFrame::Dumped { id: of, length }) => {
                    assert_eq!((of, length), (id, dump.len() as u64));
                    return Ok(dump);
                }
                FromServer::Frame(ServerFrame::Abort { id: of, code }) => {
                    assert_eq!(of, id);
                    return Err(code);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends a dump from its beginning, a record at a time, when the server lets it.
    async fn put_dump(&mut self, id: u32, dump: &[u8], codec: Codec) -> Result<(), i32> {
        let mut credit = u64::from(frame::STORE_CREDIT);
        let mut at = 0;
        for part in dump.chunks(RECORD) {
            let packed = match codec {
                Codec::Raw => part.to_vec(),
                Codec::Zstd => zstd::bulk::compress(part, 1).unwrap(),
                Codec::Lz4 => lz4_flex::block::compress(part),
            };
            let (codec, packed) = match packed.len() < part.len() {
                true => (codec, packed),
                false => (Codec::Raw, part.to_vec()),
            };
            let cost = u64::from(frame::cost(u32::try_from(packed.len()).unwrap()));
            while credit < cost {
                match self.next().await.unwrap() {
                    FromServer::Frame(ServerFrame::Credit { id: of, bytes }) => {
                        assert_eq!(of, id);
                        credit += u64::from(bytes);
                    }
                    FromServer::Frame(ServerFrame::Abort { id: of, code }) if of == id => {
                        return Err(code);
                    }
                    other => panic!("{other:?}"),
                }
            }
            credit -= cost;
            let bytes = record(id, at, codec, part.len(), &packed);
            self.send_bytes(&bytes).await;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// How a restore ends.
    async fn restored(&mut self, id: u32) -> Result<(), i32> {
        loop {
            match self.next().await.unwrap() {
                FromServer::Frame(ServerFrame::Credit { id: of, .. }) => assert_eq!(of, id),
                FromServer::Frame(ServerFrame::Restored { id: of }) => {
                    assert_eq!(of, id);
                    return Ok(());
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

impl Cell {
    /// Puts a large file into the volume.
    async fn fill(&self) -> Vec<u8> {
        let ann = self.ann();
        let fid = ann.create(self.root(), "a").await;
        let data = mixed();
        ann.store(fid, 0, &data, data.len() as u64).await.unwrap();
        data
    }

    async fn begin(&self, volumes: &afsvol::Client) -> TransactionId {
        let begun = volumes.trans_create(VOLUME, self.partition, AttachFlags::BUSY);
        begun.await.unwrap().transaction
    }

    /// Makes a volume that is to be filled.
    async fn make(&self, volumes: &afsvol::Client) -> TransactionId {
        let made = volumes.create_volume(self.partition, name("other"), 0, OTHER, OTHER);
        made.await.unwrap().transaction
    }

    /// A dump of the volume, as it comes by Rx.
    async fn dump(&self, volumes: &afsvol::Client) -> Vec<u8> {
        let transaction = self.begin(volumes).await;
        let dump = volumes.dump(transaction, UnixTime(0)).await.unwrap();
        let dump = all_of(dump).await;
        volumes.end_trans(transaction).await.unwrap();
        dump
    }

    fn other(&self) -> Volume {
        self.volume.partition().volume(OTHER).unwrap()
    }

    fn is_filled(&self) -> bool {
        let other = self.other();
        other.lookup(other.root(), b"a").is_ok()
    }

    /// The large file of the volume that was filled.
    fn found(&self) -> Vec<u8> {
        let other = self.other();
        let fid = other.lookup(other.root(), b"a").unwrap();
        other.read_all(fid, 64 << 20).unwrap()
    }

    fn ended(&self, how: &str) -> u64 {
        let text = afar_telemetry::render_prometheus(&self.registry);
        let line = format!("afar_oob_transfers_total{{result=\"{how}\"}} ");
        let number = text.lines().find_map(|found| found.strip_prefix(&line));
        number.unwrap().parse().unwrap()
    }
}

impl Cell {
    /// Waits until so many transfers have failed.
    async fn has_aborted(&self, number: u64) {
        let ended = async {
            while self.ended("aborted") < number {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        assert!(ended.is_ok(), "{} of {number}", self.ended("aborted"));
    }
}

async fn all_of(mut dump: afar_rpc::Download) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(chunk) = dump.chunk().await.unwrap() {
        all.extend_from_slice(&chunk);
    }
    all
}

/// Forwards the volume into one of another server.
async fn forward(from: &Cell, to: &Cell) -> i32 {
    let (source, target) = (from.volumes(), to.volumes());
    let transaction = from.begin(&source).await;
    let made = to.make(&target).await;
    let sent = source.forward(transaction, UnixTime(0), to.destination(), made, cookie());
    let sent = sent.await;
    source.end_trans(transaction).await.unwrap();
    sent.err().map_or(0, |error| error.aborted().unwrap().0)
}

/// Removes what was filled.
async fn remove(cell: &Cell) {
    let volumes = cell.volumes();
    let flags = AttachFlags::OFFLINE;
    if let Ok(begun) = volumes.trans_create(OTHER, cell.partition, flags).await {
        volumes.delete_volume(begun.transaction).await.unwrap();
        volumes.end_trans(begun.transaction).await.unwrap();
        return;
    }
    // The transaction that made it is still there.
    let left = volumes.monitor().await.unwrap().transactions;
    let left = left.iter().find(|left| left.volume == OTHER).unwrap();
    volumes.delete_volume(left.transaction).await.unwrap();
    volumes.end_trans(left.transaction).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_out_of_band_is_that_of_rx() {
    let cell = Cell::new().await;
    cell.fill().await;
    let volumes = cell.volumes();
    let transaction = cell.begin(&volumes).await;
    let mut tcp = Tcp::of_volumes(&cell).await;
    let out_of_band = VolumeOob::default();
    let now = cell.volume.state().unwrap().update_date.0;
    for (id, (from, flags)) in (1..).zip([(0, 0), (0, 1), (now, 0), (now, 1), (u32::MAX, 0)]) {
        let by_rx = volumes.dump_v2(transaction, UnixTime(from), flags);
        let by_rx = all_of(by_rx.await.unwrap()).await;
        tcp.send(&dump(id, transaction, from, flags)).await;
        let found = tcp.take_dump(id).await.unwrap();
        assert!(found == by_rx, "{from} {flags}");
        let begun = VolumeDump::begin(
            Some(&out_of_band),
            &volumes,
            transaction,
            UnixTime(from),
            flags,
        );
        let (mut begun, mut found) = (begun.await.unwrap(), Vec::new());
        while let Some(chunk) = begun.chunk().await.unwrap() {
            found.extend_from_slice(&chunk);
        }
        assert!(found == by_rx, "{from} {flags}");
        assert!(begun.chunk().await.unwrap().is_none());
    }
    assert_eq!(cell.ended("dumped"), 10, "none of these came by Rx");
    // Codes are those of calls.
    tcp.send(&dump(9, TransactionId(77), 0, 0)).await;
    assert_eq!(tcp.take_dump(9).await.unwrap_err(), NO_TRANSACTION);
    let none = VolumeDump::begin(
        Some(&out_of_band),
        &volumes,
        TransactionId(77),
        UnixTime(0),
        0,
    );
    let refused = none.await.unwrap().chunk().await;
    assert_eq!(code(refused).0, NO_TRANSACTION);
    volumes.end_trans(transaction).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_filled_when_its_dump_is_whole() {
    let cell = Cell::new().await;
    let data = cell.fill().await;
    let volumes = cell.volumes();
    let whole = cell.dump(&volumes).await;
    let mut tcp = Tcp::of_volumes(&cell).await;
    for (id, codec) in (1..).zip([Codec::Raw, Codec::Zstd, Codec::Lz4]) {
        let made = cell.make(&volumes).await;
        tcp.send(&restore(id, made)).await;
        tcp.put_dump(id, &whole, codec).await.unwrap();
        assert!(!cell.is_filled(), "there may be more");
        tcp.send(&ClientFrame::Finish { id }).await;
        tcp.restored(id).await.unwrap();
        assert!(cell.found() == data, "{codec:?}");
        remove(&cell).await;
    }
    assert_eq!(cell.ended("restored"), 3);
    // A dump that ends too soon is none, as by Rx, and neither is nothing.
    let made = cell.make(&volumes).await;
    for (id, length) in [(4, whole.len() - 1), (5, 0)] {
        tcp.send(&restore(id, made)).await;
        tcp.put_dump(id, &whole[..length], Codec::Raw)
            .await
            .unwrap();
        tcp.send(&ClientFrame::Finish { id }).await;
        let refused = tcp.restored(id).await.unwrap_err();
        assert_eq!(refused, READ_DUMPERROR, "{length}");
        assert!(!cell.is_filled(), "{length}");
    }
    tcp.send(&restore(6, TransactionId(77))).await;
    assert_eq!(tcp.restored(6).await.unwrap_err(), NO_TRANSACTION);
    // The connection and the transaction are as good as before.
    tcp.send(&restore(7, made)).await;
    tcp.put_dump(7, &whole, Codec::Raw).await.unwrap();
    tcp.send(&ClientFrame::Finish { id: 7 }).await;
    tcp.restored(7).await.unwrap();
    assert!(cell.found() == data);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_is_cut_off_changes_nothing() {
    let cell = Cell::new().await;
    let data = cell.fill().await;
    let volumes = cell.volumes();
    let whole = cell.dump(&volumes).await;
    let made = cell.make(&volumes).await;
    let part = record(1, 0, Codec::Raw, RECORD, &whole[..RECORD]);
    let mut cut = 0;
    // Nothing of it, the beginning of a frame, of a record, and one record.
    for sent in [0, 3, 30, 70_000, part.len()] {
        let mut tcp = Tcp::of_volumes(&cell).await;
        tcp.send(&restore(1, made)).await;
        tcp.send_bytes(&part[..sent]).await;
        drop(tcp);
        cut += 1;
    }
    // All but that these were all, or half of that.
    let finish = frame::encode(&ClientFrame::Finish { id: 1 });
    for sent in [0, finish.len() / 2, finish.len() - 1] {
        let mut tcp = Tcp::of_volumes(&cell).await;
        tcp.send(&restore(1, made)).await;
        tcp.put_dump(1, &whole, Codec::Raw).await.unwrap();
        tcp.send_bytes(&finish[..sent]).await;
        drop(tcp);
        cut += 1;
    }
    let mut tcp = Tcp::of_volumes(&cell).await;
    tcp.send(&restore(1, made)).await;
    tcp.put_dump(1, &whole, Codec::Raw).await.unwrap();
    tcp.send(&ClientFrame::Cancel { id: 1 }).await;
    tcp.send(&ClientFrame::Finish { id: 1 }).await;
    cut += 1;
    cell.has_aborted(cut).await;
    assert!(!cell.is_filled() && cell.ended("restored") == 0);
    let mut tcp = Tcp::of_volumes(&cell).await;
    tcp.send(&restore(2, made)).await;
    tcp.put_dump(2, &whole, Codec::Raw).await.unwrap();
    tcp.send(&ClientFrame::Finish { id: 2 }).await;
    tcp.restored(2).await.unwrap();
    assert!(cell.found() == data);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_of_one_service_is_none_of_the_other() {
    let cell = Cell::new().await;
    cell.fill().await;
    let volumes = cell.volumes();
    let transaction = cell.begin(&volumes).await;
    let made = cell.make(&volumes).await;
    // The administration's, for files.
    let (offer, secret) = ask(&cell.admin()).await;
    assert_eq!(offer.operations, offer::FETCH | offer::STORE);
    let mut of_files = Tcp::welcomed(&cell, &offer, &secret).await;
    of_files.send(&dump(1, transaction, 0, 0)).await;
    assert_eq!(of_files.take_dump(1).await.unwrap_err(), RXGEN_OPCODE);
    of_files.send(&restore(2, made)).await;
    of_files
        .send_bytes(&record(2, 0, Codec::Raw, 4, b"data"))
        .await;
    of_files.send(&ClientFrame::Finish { id: 2 }).await;
    assert_eq!(of_files.restored(2).await.unwrap_err(), RXGEN_OPCODE);
    // That for volumes.
    let (offer, secret) = ask_for_volumes(&volumes).await.unwrap();
    assert_eq!(offer.operations, offer::DUMP | offer::RESTORE);
    let mut of_volumes = Tcp::welcomed(&cell, &offer, &secret).await;
    let fid = Fid::root(VOLUME);
    let fetch = Fetch {
        id: 1,
        fid,
        offset: 0,
        length: 1,
        codecs: Codecs::ALL,
        credit: AMPLE,
    };
    of_volumes.send(&ClientFrame::Fetch(fetch)).await;
    assert_eq!(of_volumes.take(1).await.unwrap_err(), RXGEN_OPCODE);
    let store = Store {
        id: 2,
        fid,
        attributes: StoreStatus::default(),
        offset: 0,
        length: 4,
        file_length: 4,
    };
    of_volumes.send(&ClientFrame::Store(store)).await;
    of_volumes
        .send_bytes(&record(2, 0, Codec::Raw, 4, b"data"))
        .await;
    assert_eq!(of_volumes.restored(2).await.unwrap_err(), RXGEN_OPCODE);
    // Each connection is good for what its grant is for.
    of_volumes.send(&dump(3, transaction, 0, 0)).await;
    of_volumes.take_dump(3).await.unwrap();
    of_files.ask_for(3, fid, 0, 5).await;
    assert_eq!(of_files.take(3).await.unwrap().0.len(), 5);
    assert_eq!(cell.ended("aborted"), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_are_for_the_administration() {
    let cell = Cell::new().await;
    cell.fill().await;
    let volumes = cell.volumes();
    let transaction = cell.begin(&volumes).await;
    let made = cell.make(&volumes).await;
    let out_of_band = VolumeOob::default();
    for other in cell.volumes_of_others() {
        let refused = ask_for_volumes(&other).await.map(|_| ());
        assert_eq!(code(refused).0, BAD_ACCESS);
        let (oob, from) = (Some(&out_of_band), UnixTime(0));
        let dump = VolumeDump::begin(oob, &other, transaction, from, 0);
        assert_eq!(code(dump.await.unwrap().chunk().await).0, BAD_ACCESS);
        let restore = VolumeRestore::begin(oob, &other, made, 0, cookie());
        let refused = async { restore.await?.finish().await };
        assert_eq!(code(refused.await).0, BAD_ACCESS);
    }
    // What is no question is not answered, and the lowest version is the one there is.
    let nothing = volumes.oob_offer(Opaque::new([0; 3]).unwrap()).await;
    assert_eq!(code(nothing).0, -453);
    assert_eq!(cell.ended("dumped") + cell.ended("aborted"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_fills_nothing_and_ends_the_connection() {
    let cell = Cell::new().await;
    cell.fill().await;
    let ann = cell.ann();
    let fid = ann.create(cell.root(), "b").await;
    let volumes = cell.volumes();
    let whole = cell.dump(&volumes).await;
    let made = cell.make(&volumes).await;
    let good = record(1, 0, Codec::Raw, RECORD, &whole[..RECORD]);
    let damaged = |place: usize| {
        let mut bytes = good.clone();
        bytes[place] ^= 1;
        bytes
    };
    let finish = frame::encode(&ClientFrame::Finish { id: 1 }).to_vec();
    let credit = frame::encode(&ClientFrame::Credit { id: 1, bytes: 1 });
    let short = record(1, 0, Codec::Raw, 1, b"x");
    let wrong: Vec<(&str, Vec<u8>)> = vec![
        ("data", damaged(good.len() - 1)),
        ("another place", record(1, 1, Codec::Raw, 1, b"x")),
        ("no zstd", record(1, 0, Codec::Zstd, 1000, b"no zstd")),
        ("the same place twice", good.repeat(2)),
        ("credit", credit.to_vec()),
        ("a number twice", frame::encode(&restore(1, made)).to_vec()),
        // Short, so that they come before it has failed.
        ("behind its end", [&finish[..], &short].concat()),
        ("two ends", finish.repeat(2)),
    ];
    for (number, (what, bytes)) in (1..).zip(wrong) {
        let mut tcp = Tcp::of_volumes(&cell).await;
        tcp.send(&restore(1, made)).await;
        tcp.send_bytes(&bytes).await;
        assert_eq!(tcp.refused().await, Some(Refusal::Message), "{what}");
        // An address has room for few.
        cell.has_aborted(number).await;
    }
    // A store has no end of this kind.
    let (offer, secret) = ask(&ann).await;
    let mut tcp = Tcp::welcomed(&cell, &offer, &secret).await;
    let store = Store {
        id: 1,
        fid,
        attributes: StoreStatus::default(),
        offset: 0,
        length: 4,
        file_length: 4,
    };
    tcp.send(&ClientFrame::Store(store)).await;
    tcp.send_bytes(&finish).await;
    assert_eq!(tcp.refused().await, Some(Refusal::Message));
    // Nor has a dump any but the server's.
    let transaction = cell.begin(&volumes).await;
    let mut tcp = Tcp::of_volumes(&cell).await;
    let mut waiting = Dump {
        id: 1,
        transaction,
        from_date: UnixTime(0),
        flags: 0,
        codecs: Codecs::RAW,
        credit: 0,
    };
    tcp.send(&ClientFrame::Dump(waiting)).await;
    tcp.send_bytes(&finish).await;
    assert_eq!(tcp.refused().await, Some(Refusal::Message));
    // The end of what there is not is nothing, and a dump for which there is no credit ends.
    let mut tcp = Tcp::of_volumes(&cell).await;
    tcp.send_bytes(&finish).await;
    waiting.id = 2;
    tcp.send(&ClientFrame::Dump(waiting)).await;
    let timed_out = tcp.take_dump(2).await.unwrap_err();
    assert_eq!(timed_out, afar_net::AbortCode::RX_CALL_TIMEOUT.0);
    assert!(!cell.is_filled());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dumps_are_forwarded_out_of_band() {
    let (one, mut proxy) = (Cell::new().await, Proxy::new().await);
    let two = Cell::told(Some(proxy.port)).await;
    proxy.run(two.tcp, Middle::Passes);
    let data = one.fill().await;
    for time in 1..=2 {
        assert_eq!(forward(&one, &two).await, 0);
        assert!(two.found() == data);
        assert_eq!(two.ended("restored"), time, "the first goes so, too");
        remove(&two).await;
    }
    assert_eq!(proxy.connections(), 1, "one connection is for all");
    // A code of the other server is the caller's.
    let source = one.volumes();
    let transaction = one.begin(&source).await;
    let nowhere = TransactionId(77);
    let sent = source.forward(
        transaction,
        UnixTime(0),
        two.destination(),
        nowhere,
        cookie(),
    );
    assert_eq!(code(sent.await).0, NO_TRANSACTION);
    assert_eq!((two.ended("aborted"), proxy.connections()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dumps_are_forwarded_by_rx_where_tcp_is_blocked() {
    let (one, blocked) = (Cell::new().await, Proxy::new().await);
    let (port, open) = (blocked.port, Cell::new().await);
    // Nobody listens there any more.
    drop(blocked);
    let two = Cell::told(Some(port)).await;
    let data = one.fill().await;
    assert_eq!(forward(&one, &two).await, 0);
    assert!(two.found() == data);
    assert_eq!(two.ended("restored") + two.ended("aborted"), 0);
    remove(&two).await;
    // One of several goes by Rx, and the other does not.
    let source = one.volumes();
    let transaction = one.begin(&source).await;
    let mut destinations = Vec::new();
    for to in [&two, &open] {
        destinations.push(ReplicaDest {
            transaction: to.make(&to.volumes()).await,
            server: to.destination(),
        });
    }
    let destinations = Destinations::new(destinations).unwrap();
    let sent = source.forward_multiple(transaction, UnixTime(0), destinations, 0, cookie());
    assert_eq!(sent.await.unwrap().results.to_vec(), [0, 0]);
    assert!(two.found() == data && open.found() == data);
    assert_eq!((two.ended("restored"), open.ended("restored")), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_that_breaks_on_its_way_fails_and_the_next_goes_by_rx() {
    let one = Cell::new().await;
    let data = one.fill().await;
    // Behind the handshake, and in the middle of the dump.
    for bytes in [20_000, 1 << 20, 3 << 20] {
        let mut proxy = Proxy::new().await;
        let two = Cell::told(Some(proxy.port)).await;
        proxy.run(two.tcp, Middle::CutsUp(bytes));
        assert_eq!(forward(&one, &two).await, RX_CALL_DEAD, "{bytes}");
        assert_eq!(proxy.broken(), 1);
        two.has_aborted(1).await;
        assert!(!two.is_filled());
        remove(&two).await;
        assert_eq!(forward(&one, &two).await, 0);
        assert!(two.found() == data);
        assert_eq!((two.ended("restored"), proxy.connections()), (0, 1));
    }
    // What came of a dump may be in use: it fails, too, but before anything came.
    for bytes in [3_000, 2 << 20] {
        let mut proxy = Proxy::new().await;
        let two = Cell::told(Some(proxy.port)).await;
        proxy.run(two.tcp, Middle::Cuts(bytes));
        two.fill().await;
        let (volumes, out_of_band) = (two.volumes(), VolumeOob::default());
        let expected = two.dump(&volumes).await;
        let transaction = two.begin(&volumes).await;
        let mut found = Vec::new();
        let begun = VolumeDump::begin(Some(&out_of_band), &volumes, transaction, UnixTime(0), 0);
        let mut begun = begun.await.unwrap();
        let ended = loop {
            match begun.chunk().await {
                Ok(Some(chunk)) => found.extend_from_slice(&chunk),
                Ok(None) => break 0,
                Err(error) => break error.code().0,
            }
        };
        assert_eq!(proxy.broken(), 1);
        if ended == 0 {
            assert!(bytes == 3_000 && found == expected);
        } else {
            assert_eq!((bytes, ended), (2 << 20, RX_CALL_DEAD));
            assert!(found.len() < expected.len() && expected.starts_with(&found));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_has_no_room_for_goes_by_rx() {
    let cell = Cell::new().await;
    let data = cell.fill().await;
    let volumes = cell.volumes();
    let whole = cell.dump(&volumes).await;
    let out_of_band = VolumeOob::default();
    let transaction = cell.begin(&volumes).await;
    let begin_dump =
        || VolumeDump::begin(Some(&out_of_band), &volumes, transaction, UnixTime(0), 0);
    let mut first = begin_dump().await.unwrap();
    while first.chunk().await.unwrap().is_some() {}
    assert_eq!(cell.ended("dumped"), 1);
    // An address has room for four.
    let made = cell.make(&volumes).await;
    let mut others = Tcp::of_volumes(&cell).await;
    for id in 1..=4 {
        others.send(&restore(id, made)).await;
    }
    others.send(&ClientFrame::Ping { number: 1 }).await;
    let pong = FromServer::Frame(ServerFrame::Pong { number: 1 });
    while others.next().await.unwrap() != pong {}
    let keeping = tokio::spawn(async move {
        loop {
            others.send(&ClientFrame::Ping { number: 2 }).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    for length in [whole.len(), 100_000] {
        let declined = cell.ended("declined");
        let restore = VolumeRestore::begin(Some(&out_of_band), &volumes, made, 0, cookie());
        let mut restore = restore.await.unwrap();
        for piece in whole[..length].chunks(50_000) {
            restore.send(piece.to_vec().into()).await.unwrap();
        }
        let restored = restore.finish().await;
        assert_eq!(restored.is_ok(), length == whole.len());
        assert_eq!(cell.ended("declined"), declined + 1);
    }
    assert!(cell.found() == data);
    let (mut by_rx, mut found) = (begin_dump().await.unwrap(), Vec::new());
    while let Some(chunk) = by_rx.chunk().await.unwrap() {
        found.extend_from_slice(&chunk);
    }
    assert!(found == whole);
    assert_eq!((cell.ended("dumped"), cell.ended("restored")), (1, 0));
    keeping.abort();
}
