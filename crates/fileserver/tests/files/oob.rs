//! Data out of band, byte by byte: the same as by Rx.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use afar_oob::frame::{self, ClientFrame, Data, End, Fetch, FromServer, Incoming};
use afar_oob::secret::Side;
use afar_oob::{
    Agreement, Codec, Codecs, EXPORTER, Hello, Offer, PROTOCOL, Question, Refusal, Secret,
    ServerFrame, Unpacker, VERSION, offer,
};
use afar_types::{Fid, PtsId};
use afar_xdr::{FixedOpaque, Opaque};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::cell::*;

/// What the tests wait for comes long before.
const PATIENCE: Duration = Duration::from_secs(60);
/// Credit for all that a test fetches.
pub(crate) const AMPLE: u32 = 1 << 29;

/// A client's connection, without any care.
pub(crate) struct Tcp {
    stream: TlsStream<TcpStream>,
    incoming: Incoming<FromServer>,
}

/// Asks over Rx.
pub(crate) async fn ask(client: &Client) -> (Offer, Secret) {
    let own = Agreement::new().unwrap();
    let question = offer::encode(&Question::new(own.share()));
    let question = Opaque::new(&question[..]).unwrap();
    let reply = client.files.oob_offer(question).await.unwrap();
    let offer: Offer = offer::decode(&reply.offer).unwrap();
    let secret = own.agree(Side::Client, &offer.share.0).unwrap();
    (offer, secret)
}

impl Tcp {
    /// Connects, and says nothing yet.
    pub(crate) async fn connect(tcp: SocketAddr, offer: &Offer) -> std::io::Result<Self> {
        let stream = TcpStream::connect(tcp).await?;
        let config = afar_tls::client(PROTOCOL, Some(offer.fingerprint.0.into())).unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Self {
            stream: connector.connect(tcp.ip().into(), stream).await?,
            incoming: Incoming::default(),
        })
    }

    /// Shows a grant.
    pub(crate) fn hello(&self, offer: &Offer, secret: &Secret) -> ClientFrame {
        let session = self.stream.get_ref().1;
        let exported = session
            .export_keying_material([0; 32], EXPORTER, None)
            .unwrap();
        ClientFrame::Hello(Hello {
            version: VERSION,
            grant: offer.grant.clone(),
            proof: FixedOpaque(secret.proof(&exported)),
            parts: afar_oob::no_parts(),
        })
    }

    /// A connection of a client that was welcomed.
    pub(crate) async fn of(cell: &Cell, client: &Client) -> Self {
        let (offer, secret) = ask(client).await;
        Self::welcomed(cell, &offer, &secret).await
    }

    /// The same by this offer.
    pub(crate) async fn welcomed(cell: &Cell, offer: &Offer, secret: &Secret) -> Self {
        let mut tcp = Self::connect(cell.tcp, offer).await.unwrap();
        tcp.send(&tcp.hello(offer, secret)).await;
        let welcome = tcp.next().await;
        assert!(
            matches!(welcome, Some(FromServer::Frame(ServerFrame::Welcome(_)))),
            "{welcome:?}"
        );
        tcp
    }

    pub(crate) async fn send(&mut self, frame: &ClientFrame) {
        self.send_bytes(&frame::encode(frame)).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// What comes next; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<FromServer> {
        loop {
            if let Some(frame) = self.incoming.frame().unwrap() {
                return Some(frame);
            }
            let read = self.stream.read_buf(self.incoming.room());
            let read = tokio::time::timeout(PATIENCE, read).await;
            if read.expect("something comes").unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Why the server ends the connection, which it does next.
    pub(crate) async fn refused(mut self) -> Option<Refusal> {
        let mut why = None;
        while let Some(frame) = self.next().await {
            if let FromServer::Frame(ServerFrame::Close(refusal)) = frame {
                why = Some(refusal);
            }
        }
        why
    }

    pub(crate) async fn ask_for(&mut self, id: u32, fid: Fid, offset: u64, length: u64) {
        self.fetch(id, fid, (offset, length), Codecs::ALL, AMPLE)
            .await;
    }

    pub(crate) async fn fetch(
        &mut self,
        id: u32,
        fid: Fid,
        (offset, length): (u64, u64),
        codecs: Codecs,
        credit: u32,
    ) {
        let fetch = Fetch {
            id,
            fid,
            offset,
            length,
            codecs,
            credit,
        };
        self.send(&ClientFrame::Fetch(fetch)).await;
    }

    /// All of the one transfer under way, with what it ended with and bytes as they were packed.
    pub(crate) async fn take(&mut self, id: u32) -> Result<(Vec<u8>, End, usize), i32> {
        let (mut data, mut packed, mut announced) = (Vec::new(), 0, None);
        let mut unpacker = Unpacker::default();
        let mut at = None;
        loop {
            match self.next().await.expect("the connection goes on") {
                FromServer::Data(Data { head, stored }) => {
                    assert_eq!(head.id, id);
                    assert_eq!(*at.get_or_insert(head.offset), head.offset);
                    packed += stored.len();
                    let plain = unpacker.unpack(head.codec, stored, head.plain, head.checksum);
                    data.extend_from_slice(&plain.unwrap());
                    at = Some(head.offset + u64::from(head.plain));
                }
                FromServer::Frame(ServerFrame::Reply { id: of, length }) => {
                    assert!(of == id && announced.is_none());
                    announced = Some(length);
                }
                FromServer::Frame(ServerFrame::End(end)) => {
                    assert_eq!((end.id, announced), (id, Some(data.len() as u64)));
                    return Ok((data, end, packed));
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

/// Bytes of which some records are packed and some are not, with a hole in them.
pub(crate) fn mixed() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(37);
    let mut data: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
        .take(6 << 20)
        .collect();
    data[1 << 20..3 << 20].fill(b'x');
    data[4 << 20..5 << 20].fill(0);
    data
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_out_of_band_is_what_comes_by_rx() {
    let cell = Cell::new().await;
    let ann = cell.ann();
    let fid = ann.create(cell.root(), "a").await;
    let data = mixed();
    let length = data.len() as u64;
    ann.store(fid, 0, &data, length).await.unwrap();
    let (_, by_rx) = ann.fetch(fid, 0, 1 << 40).await.unwrap();
    let mut tcp = Tcp::of(&cell, &ann).await;
    tcp.ask_for(1, fid, 0, 1 << 40).await;
    let (all, end, packed) = tcp.take(1).await.unwrap();
    assert!(all == data);
    assert_eq!((end.status, end.vol_sync), (by_rx.status, by_rx.vol_sync));
    assert!(end.callback.expires_in > 0, "a promise comes with it");
    assert!(packed < data.len() - (1 << 20), "{packed}: as it is stored");
    tcp.fetch(2, fid, (0, 1 << 40), Codecs::RAW, AMPLE).await;
    let (all, _, packed) = tcp.take(2).await.unwrap();
    assert!(all == data && packed == data.len(), "nothing is packed");
    for (id, (position, asked)) in (3..).zip([
        (0, 1),
        (1_000_001, 3_000_000),
        (5 << 20, 1 << 30),
        (length, 5),
        (1 << 50, 5),
    ]) {
        tcp.ask_for(id, fid, position, asked).await;
        let (part, ..) = tcp.take(id).await.unwrap();
        let from = usize::try_from(position.min(length)).unwrap();
        let to = usize::try_from((position + asked).min(length)).unwrap();
        assert!(part == data[from..to.max(from)], "{position} {asked}");
    }
    let text = afar_telemetry::render_prometheus(&cell.registry);
    assert!(text.contains("afar_oob_transfers_total{result=\"done\"} 7\n"));
    // One function serves both, so they are counted together.
    assert!(text.contains("operation=\"RXAFS.fetch_data64\"") || text.contains("fetch_data64"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promise_that_came_out_of_band_is_broken_at_the_host() {
    let cell = Cell::new().await;
    let (ann, writer) = (cell.ann(), cell.client());
    let fid = ann.create(cell.root(), "a").await;
    ann.store(fid, 0, b"before", 6).await.unwrap();
    let mut tcp = Tcp::of(&cell, &ann).await;
    tcp.ask_for(1, fid, 0, 6).await;
    let (data, end, _) = tcp.take(1).await.unwrap();
    assert!(data == b"before" && end.callback.expires_in > 0);
    let broken = ann.callbacks.broken();
    writer.store(fid, 0, b"behind", 6).await.unwrap();
    assert_eq!(
        ann.callbacks.broken(),
        broken + 1,
        "before the writer has its answer"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_and_codes_are_those_of_calls() {
    let cell = Cell::new().await;
    let (ann, anyone) = (cell.ann(), cell.client());
    let fid = ann.create(cell.root(), "a").await;
    ann.store(fid, 0, b"secret", 6).await.unwrap();
    let (mut of_ann, mut of_anyone) = (Tcp::of(&cell, &ann).await, Tcp::of(&cell, &anyone).await);
    for (id, tcp) in [(1, &mut of_ann), (1, &mut of_anyone)] {
        tcp.ask_for(id, fid, 0, 6).await;
        assert_eq!(tcp.take(id).await.unwrap().0, b"secret");
    }
    // A right that is gone is gone on connections that there are.
    cell.allow(cell.root(), &[(PtsId::ANYUSER, "l"), (STAFF, "rl")]);
    of_ann.ask_for(2, fid, 0, 6).await;
    assert_eq!(of_ann.take(2).await.unwrap().0, b"secret");
    of_anyone.ask_for(2, fid, 0, 6).await;
    assert_eq!(of_anyone.take(2).await.unwrap_err(), EACCES.0);
    for (id, fid, offset, length, code) in [
        (3, Fid::new(VOLUME.0, 2, 77), 0, 1, VNOVNODE),
        (4, Fid::new(5, 2, 1), 0, 1, VNOVOL),
        (5, fid, u64::MAX, 1, EFBIG),
        (6, fid, 1 << 62, 1 << 62, EFBIG),
    ] {
        of_ann.ask_for(id, fid, offset, length).await;
        assert_eq!(of_ann.take(id).await.unwrap_err(), code.0, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_transfers_share_a_connection() {
    let cell = Cell::new().await;
    let ann = cell.ann();
    let data = mixed();
    let length = data.len() as u64;
    let mut fids = Vec::new();
    for name in ["a", "b", "c"] {
        let fid = ann.create(cell.root(), name).await;
        ann.store(fid, 0, &data, length).await.unwrap();
        fids.push(fid);
    }
    let mut tcp = Tcp::of(&cell, &ann).await;
    for (id, fid) in (0..).zip(&fids) {
        tcp.fetch(id, *fid, (0, length), Codecs::RAW, 1 << 20).await;
    }
    let mut got = vec![Vec::new(); fids.len()];
    let (mut ended, mut order) = (0, Vec::new());
    while ended < fids.len() {
        match tcp.next().await.unwrap() {
            FromServer::Data(Data { head, stored }) => {
                assert_eq!(head.codec, Codec::Raw);
                let bytes = u32::try_from(stored.len()).unwrap();
                got[head.id as usize].extend_from_slice(&stored);
                order.push(head.id);
                let credit = ClientFrame::Credit {
                    id: head.id,
                    bytes: frame::cost(bytes),
                };
                tcp.send(&credit).await;
            }
            FromServer::Frame(ServerFrame::End(_)) => ended += 1,
            FromServer::Frame(ServerFrame::Reply { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(got.iter().all(|all| *all == data));
    let turns = order.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(turns > 2, "{order:?}: they take turns");
    // A transfer that is given up leaves the connection to others.
    tcp.fetch(9, fids[0], (0, length), Codecs::RAW, 1 << 20)
        .await;
    tcp.send(&ClientFrame::Cancel { id: 9 }).await;
    tcp.ask_for(10, fids[1], 0, length).await;
    loop {
        match tcp.next().await.unwrap() {
            FromServer::Frame(ServerFrame::End(end)) => {
                assert_eq!(end.id, 10, "there was no credit for all of the other");
                break;
            }
            FromServer::Frame(ServerFrame::Reply { .. }) | FromServer::Data(_) => {}
            other => panic!("{other:?}"),
        }
    }
    tcp.send(&ClientFrame::Ping { number: 5 }).await;
    let pong = ServerFrame::Pong { number: 5 };
    assert_eq!(tcp.next().await, Some(FromServer::Frame(pong)));
}
