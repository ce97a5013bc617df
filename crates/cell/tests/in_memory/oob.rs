//! Data out of band from a server that does as a script says.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use afar_cell::{OobOffer, OobServer};
use afar_net::AbortCode;
use afar_oob::frame::{self, ClientFrame, DataHead, End, Fetch, Incoming};
use afar_oob::record::checksum;
use afar_oob::secret::Side;
use afar_oob::{
    Agreement, Codec, Codecs, Offer, PROTOCOL, Question, ServerFrame, VERSION, Welcome, offer,
};
use afar_rpc::rxafs;
use afar_tls::Ephemeral;
use afar_types::{CallBack, FetchStatus, Fid, VolSync, VolumeId};
use afar_xdr::{FixedOpaque, Opaque};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::fetches::{LENGTH, contents, fetch, world};
use crate::world::Cell;

const RECORD: usize = 1 << 20;

/// What the server sends after it has been asked for a file; then it closes the connection.
type Script = Box<dyn Fn(&Fetch) -> Vec<u8> + Send + Sync>;

/// The server's part of it.
pub(crate) struct Scripted {
    tls: Mutex<Ephemeral>,
    port: u16,
    script: Script,
    asked: AtomicUsize,
    greeted: AtomicUsize,
    connections: AtomicUsize,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}

impl Scripted {
    /// The answer to a client; the grant is not looked at later.
    pub(crate) fn offer(&self, question: &[u8]) -> Result<rxafs::oob_offer::Reply, AbortCode> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let question: Question = offer::decode(question).unwrap();
        let own = Agreement::new().unwrap();
        let share = FixedOpaque(own.share());
        own.agree(Side::Server, &question.share.0).unwrap();
        let offer = Offer {
            version: VERSION,
            port: self.port.into(),
            operations: offer::FETCH,
            lifetime: 600,
            fingerprint: FixedOpaque(self.tls.lock().unwrap().fingerprint().into()),
            share,
            codecs: Codecs::ALL,
            grant: Opaque::new([1; 40]).unwrap(),
            parts: afar_oob::no_parts(),
        };
        let offer = Opaque::new(&offer::encode(&offer)[..]).unwrap();
        Ok(rxafs::oob_offer::Reply { offer })
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            self.connections.fetch_add(1, Ordering::SeqCst);
            let acceptor = TlsAcceptor::from(self.tls.lock().unwrap().config());
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut incoming = Incoming::<ClientFrame>::default();
            loop {
                match incoming.frame().unwrap() {
                    None => {
                        if stream.read_buf(incoming.room()).await.unwrap_or(0) == 0 {
                            break;
                        }
                    }
                    Some(ClientFrame::Hello(_)) => {
                        self.greeted.fetch_add(1, Ordering::SeqCst);
                        let welcome = ServerFrame::Welcome(Welcome {
                            transfers: 4,
                            parts: afar_oob::no_parts(),
                        });
                        stream.write_all(&frame::encode(&welcome)).await.unwrap();
                        stream.flush().await.unwrap();
                    }
                    Some(ClientFrame::Fetch(fetch)) => {
                        let bytes = (self.script)(&fetch);
                        // The client may have had enough before the end.
                        if stream.write_all(&bytes).await.is_ok() {
                            let _gone = stream.flush().await;
                        }
                        break;
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

/// A cell whose file server does as the script says.
async fn start(
    script: impl Fn(&Fetch) -> Vec<u8> + Send + Sync + 'static,
) -> (Cell, Arc<Scripted>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scripted = Arc::new(Scripted {
        tls: Mutex::new(Ephemeral::new(PROTOCOL).unwrap()),
        port: listener.local_addr().unwrap().port(),
        script: Box::new(script),
        asked: AtomicUsize::new(0),
        greeted: AtomicUsize::new(0),
        connections: AtomicUsize::new(0),
    });
    let mut world = world();
    world.oob = Some(Arc::clone(&scripted));
    tokio::spawn(Arc::clone(&scripted).serve(listener));
    (Cell::start(world, |_| ()), scripted)
}

/// Fetches until the script was played, and some more. What comes is always right.
async fn play(cell: &Cell, scripted: &Scripted) {
    let playing = async {
        while scripted.connections.load(Ordering::SeqCst) == 0 {
            right(cell).await;
        }
        for _ in 0..6 {
            right(cell).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), playing)
        .await
        .expect("fetches end");
}

/// What the client tells of the one server.
fn told(cell: &Cell) -> OobServer {
    let [server] = cell.client.oob_servers().try_into().unwrap();
    server
}

/// Fetches until that is so of the server.
async fn fetch_until(cell: &Cell, what: &str, is_so: impl Fn(&OobServer) -> bool) {
    let fetching = async {
        right(cell).await;
        while !is_so(&told(cell)) {
            right(cell).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let so = tokio::time::timeout(Duration::from_secs(60), fetching);
    so.await.expect(what);
}

async fn right(cell: &Cell) {
    let (fetched, data) = fetch(cell, "file").await.unwrap();
    assert_eq!(fetched.bytes, data.len() as u64);
    assert!(data == contents());
}

/// The frames of a transfer.
struct Frames {
    id: u32,
    all: Vec<Vec<u8>>,
}

impl Frames {
    fn new(fetch: &Fetch) -> Self {
        Self {
            id: fetch.id,
            all: Vec::new(),
        }
    }

    /// All of a right answer.
    fn right(fetch: &Fetch) -> Self {
        let data = contents();
        let from = usize::try_from(fetch.offset).unwrap();
        let to = data
            .len()
            .min(from + usize::try_from(fetch.length).unwrap());
        let mut frames = Self::new(fetch);
        frames.reply((to - from) as u64);
        let mut at = from;
        for part in data[from..to].chunks(RECORD) {
            frames.data(at as u64, part, |_| ());
            at += part.len();
        }
        frames.end();
        frames
    }

    fn reply(&mut self, length: u64) {
        let reply = ServerFrame::Reply {
            id: self.id,
            length,
        };
        self.all.push(frame::encode(&reply).to_vec());
    }

    fn data(&mut self, offset: u64, part: &[u8], change: impl FnOnce(&mut DataHead)) {
        let length = u32::try_from(part.len()).unwrap();
        let mut head = DataHead {
            id: self.id,
            offset,
            plain: length,
            codec: Codec::Raw,
            checksum: checksum(part),
        };
        change(&mut head);
        self.all.push([&head.encode(length)[..], part].concat());
    }

    fn end(&mut self) {
        let status = FetchStatus {
            interface_version: FetchStatus::INTERFACE_VERSION,
            length: contents().len() as u64,
            data_version: 1.into(),
            link_count: 1,
            ..FetchStatus::default()
        };
        let end = ServerFrame::End(End {
            id: self.id,
            status,
            callback: CallBack::default(),
            vol_sync: VolSync::default(),
        });
        self.all.push(frame::encode(&end).to_vec());
    }

    fn bytes(self) -> Vec<u8> {
        self.all.concat()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_at_any_frame_and_inside_costs_nothing() {
    let fetch = Fetch {
        id: 1,
        fid: Fid::root(VolumeId(1)),
        offset: 0,
        length: contents().len() as u64,
        codecs: Codecs::ALL,
        credit: 0,
    };
    let mut cuts = vec![0, 3, 9];
    let mut at = 0;
    for frame in Frames::right(&fetch).all {
        cuts.extend([at + frame.len() / 2, at + frame.len() - 1, at + frame.len()]);
        at += frame.len();
        cuts.push(at + 5);
    }
    for cut in cuts {
        let (cell, scripted) = start(move |fetch| {
            let mut bytes = Frames::right(fetch).bytes();
            bytes.truncate(cut);
            bytes
        })
        .await;
        play(&cell, &scripted).await;
        if cut < at {
            let connections = scripted.connections.load(Ordering::SeqCst);
            assert_eq!(connections, 1, "{cut}: it is found out once");
            let OobServer { offer, fetches, .. } = told(&cell);
            assert!(matches!(offer, OobOffer::Blocked(_)), "{cut}: {offer:?}");
            assert_eq!((fetches.under_way, fetches.by_rx), (0, 1), "{cut}");
            assert!(fetches.bytes <= LENGTH as u64, "{cut}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_never_taken_for_data() {
    let part = || contents()[..RECORD].to_vec();
    let whole = || contents().len() as u64;
    type Wrong = (&'static str, fn(&mut Frames, Vec<u8>, u64));
    let scripts: &[Wrong] = &[
        ("data before the reply", |frames, part, _| {
            frames.data(0, &part, |_| ());
        }),
        ("more than was asked for", |frames, _, whole| {
            frames.reply(whole + 1);
        }),
        ("a wrong checksum", |frames, part, whole| {
            frames.reply(whole);
            frames.data(0, &part, |head| head.checksum ^= 1);
        }),
        ("wrong bytes", |frames, mut part, whole| {
            frames.reply(whole);
            let right = checksum(&part);
            part[77] ^= 1;
            frames.data(0, &part, |head| head.checksum = right);
        }),
        ("a gap", |frames, part, whole| {
            frames.reply(whole);
            frames.data(1, &part, |_| ());
        }),
        ("the same again", |frames, part, whole| {
            frames.reply(whole);
            frames.data(0, &part, |_| ());
            frames.data(0, &part, |_| ());
        }),
        ("more than announced", |frames, part, _| {
            frames.reply(5);
            frames.data(0, &part, |_| ());
        }),
        ("an end before the end", |frames, part, whole| {
            frames.reply(whole);
            frames.data(0, &part, |_| ());
            frames.end();
        }),
        ("a reply twice", |frames, _, whole| {
            frames.reply(whole);
            frames.reply(whole);
        }),
        ("another codec than it is", |frames, part, whole| {
            frames.reply(whole);
            frames.data(0, &part[..9000], |head| {
                head.codec = Codec::Zstd;
                head.plain = 1 << 20;
            });
        }),
        ("an unknown codec", |frames, part, whole| {
            frames.reply(whole);
            frames.data(0, &part, |_| ());
            let last = frames.all.last_mut().unwrap();
            last[27] = 9;
        }),
        ("an absurd length", |frames, _, whole| {
            frames.reply(whole);
            frames.all.push(vec![0xff; 64]);
        }),
        ("an unknown frame", |frames, _, whole| {
            frames.reply(whole);
            frames.all.push(b"\0\0\0\x04\0\0\0\x63".to_vec());
        }),
        ("another's number", |frames, part, whole| {
            frames.reply(whole);
            frames.data(0, &part, |head| head.id += 1);
            frames.end();
        }),
    ];
    for &(what, script) in scripts {
        let (cell, scripted) = start(move |fetch| {
            let mut frames = Frames::new(fetch);
            script(&mut frames, part(), whole());
            frames.bytes()
        })
        .await;
        play(&cell, &scripted).await;
        let connections = scripted.connections.load(Ordering::SeqCst);
        assert_eq!(connections, 1, "{what}: it is found out once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_those_of_rx_and_a_server_without_room_is_asked_by_rx() {
    let (cell, scripted) = start(|fetch| {
        let decline = ServerFrame::Decline { id: fetch.id };
        frame::encode(&decline).to_vec()
    })
    .await;
    play(&cell, &scripted).await;
    let declined = told(&cell);
    assert_eq!(declined.offer, OobOffer::Offered);
    assert!(declined.fetches.by_rx > 0 && declined.fetches.done == 0);
    // VBUSY out of band is asked again by Rx.
    let (cell, scripted) = start(|fetch| {
        let abort = ServerFrame::Abort {
            id: fetch.id,
            code: 110,
        };
        frame::encode(&abort).to_vec()
    })
    .await;
    play(&cell, &scripted).await;
    assert!(told(&cell).fetches.aborted > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_started_again_is_asked_again() {
    // The connection ends with no transfer on it, and the offer is kept.
    let (cell, scripted) = start(|fetch| {
        let decline = ServerFrame::Decline { id: fetch.id };
        frame::encode(&decline).to_vec()
    })
    .await;
    play(&cell, &scripted).await;
    *scripted.tls.lock().unwrap() = Ephemeral::new(PROTOCOL).unwrap();
    let greeted = scripted.greeted.load(Ordering::SeqCst);
    let again = async {
        while scripted.greeted.load(Ordering::SeqCst) < greeted + 2 {
            right(&cell).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), again)
        .await
        .expect("the new key is learnt");
    assert!(scripted.asked.load(Ordering::SeqCst) > 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_knows_nothing_of_it_is_asked_once() {
    let cell = Cell::start(world(), |_| ());
    for _ in 0..5 {
        right(&cell).await;
    }
    let asked = &cell.servers.counts.offers;
    let once = async {
        while asked.load(Ordering::SeqCst) == 0 {
            right(&cell).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), once)
        .await
        .expect("it is asked");
    for _ in 0..5 {
        right(&cell).await;
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(told(&cell).offer, OobOffer::NotOffered);
    // Unless somebody knows better.
    cell.client.retry_oob();
    assert_eq!(told(&cell).offer, OobOffer::NotAsked);
    fetch_until(&cell, "it is asked again", |server| {
        server.offer == OobOffer::NotOffered
    })
    .await;
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_blocked_is_tried_again_when_somebody_says_so() {
    let (cell, scripted) = start(|_| Vec::new()).await;
    let blocked = |server: &OobServer| matches!(server.offer, OobOffer::Blocked(_));
    fetch_until(&cell, "it breaks", blocked).await;
    assert_eq!(scripted.greeted.load(Ordering::SeqCst), 1);
    cell.client.retry_oob();
    assert_eq!(told(&cell).offer, OobOffer::Offered);
    fetch_until(&cell, "it breaks again", blocked).await;
    assert_eq!(scripted.greeted.load(Ordering::SeqCst), 2);
    assert_eq!(told(&cell).fetches.by_rx, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_threshold_counts_from_the_next_piece_on() {
    let (cell, scripted) = start(|fetch| Frames::right(fetch).bytes()).await;
    let client = &cell.client;
    assert_eq!(client.oob_threshold(), Some(1 << 20));
    client.set_oob_threshold(None);
    for _ in 0..5 {
        right(&cell).await;
    }
    assert_eq!(client.oob_threshold(), None);
    assert_eq!(scripted.asked.load(Ordering::SeqCst), 0);
    assert_eq!(told(&cell).offer, OobOffer::NotAsked);

    client.set_oob_threshold(Some(LENGTH as u64));
    let done = |server: &OobServer| server.fetches.done > 0;
    fetch_until(&cell, "it comes out of band", done).await;
    let before = told(&cell).fetches;
    assert!(before.bytes >= LENGTH as u64 * before.done);

    client.set_oob_threshold(Some(LENGTH as u64 + 1));
    for _ in 0..5 {
        right(&cell).await;
    }
    assert_eq!(told(&cell).fetches, before);
    client.set_oob_threshold(Some(0));
    assert_eq!(client.oob_threshold(), None);
    assert_eq!(told(&cell).connections, 0);
}
