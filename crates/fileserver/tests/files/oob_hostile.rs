//! What strangers and hostile clients do to the port for data out of band.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use afar_oob::frame::{self, ClientFrame, FromServer};
use afar_oob::{Codecs, Refusal, Secret, ServerFrame};
use afar_xdr::Opaque;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::cell::*;
use super::oob::{AMPLE, Tcp, ask, mixed};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_good_for_its_client_only() {
    let (cell, other) = (Cell::new().await, Cell::new().await);
    let (ann, anyone, elsewhere) = (cell.ann(), cell.client(), other.ann());
    let (offer, secret) = ask(&ann).await;
    // A first message that was read on its way, and is sent again in another session.
    let first = Tcp::connect(cell.tcp, &offer).await.unwrap();
    let replayed = first.hello(&offer, &secret);
    let mut again = Tcp::connect(cell.tcp, &offer).await.unwrap();
    again.send(&replayed).await;
    assert_eq!(again.refused().await, Some(Refusal::Grant));
    // A grant that was read in the answer, which does not tell the secret.
    let mut thief = Tcp::connect(cell.tcp, &offer).await.unwrap();
    thief
        .send(&thief.hello(&offer, &Secret::from_bytes([0; 32])))
        .await;
    assert_eq!(thief.refused().await, Some(Refusal::Grant));
    // Somebody else's secret.
    let (_, other_secret) = ask(&anyone).await;
    let mut mixed_up = Tcp::connect(cell.tcp, &offer).await.unwrap();
    mixed_up.send(&mixed_up.hello(&offer, &other_secret)).await;
    assert_eq!(mixed_up.refused().await, Some(Refusal::Grant));
    // Another server's grant, and what is no grant at all.
    let (foreign, foreign_secret) = ask(&elsewhere).await;
    let mut wrong = Tcp::connect(cell.tcp, &offer).await.unwrap();
    wrong.send(&wrong.hello(&foreign, &foreign_secret)).await;
    assert_eq!(wrong.refused().await, Some(Refusal::Grant));
    let mut nothing = offer.clone();
    nothing.grant = Opaque::new([7; 100]).unwrap();
    let mut wrong = Tcp::connect(cell.tcp, &offer).await.unwrap();
    wrong.send(&wrong.hello(&nothing, &secret)).await;
    assert_eq!(wrong.refused().await, Some(Refusal::Grant));
    // The client does not speak to a server with another key.
    let strange = Tcp::connect(other.tcp, &offer).await.map(drop);
    assert!(strange.is_err(), "another server's key");
    // The client itself is let in, more than once.
    for _ in 0..2 {
        let mut own = Tcp::connect(cell.tcp, &offer).await.unwrap();
        own.send(&own.hello(&offer, &secret)).await;
        let welcome = own.next().await;
        assert!(matches!(
            welcome,
            Some(FromServer::Frame(ServerFrame::Welcome(_)))
        ));
    }
    let text = afar_telemetry::render_prometheus(&cell.registry);
    assert!(
        text.contains("afar_oob_refused_total{reason=\"grant\"} 5\n"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_ends_the_connection() {
    let cell = Cell::new().await;
    let ann = cell.ann();
    let fid = ann.create(cell.root(), "a").await;
    let data = mixed();
    ann.store(fid, 0, &data, data.len() as u64).await.unwrap();
    let ping = frame::encode(&ClientFrame::Ping { number: 1 });
    let credit = |id, bytes| frame::encode(&ClientFrame::Credit { id, bytes });
    let wrong: Vec<(&str, Vec<u8>)> = vec![
        ("absurd length", u32::MAX.to_be_bytes().to_vec()),
        (
            "longer than any",
            [&1025_u32.to_be_bytes()[..], &[0; 1025]].concat(),
        ),
        ("empty", vec![0; 4]),
        ("unknown", b"\0\0\0\x08\0\0\0\x63\0\0\0\0".to_vec()),
        (
            "a server's",
            frame::encode(&ServerFrame::Decline { id: 1 }).to_vec(),
        ),
        ("left over", {
            let mut long = ping.to_vec();
            long[3] += 4;
            [&long[..], &[0; 4]].concat()
        }),
        ("too much credit", credit(1, u32::MAX).to_vec()),
    ];
    for (what, bytes) in wrong {
        let mut tcp = Tcp::of(&cell, &ann).await;
        // With a transfer under way, which waits for credit.
        tcp.fetch(1, fid, (0, 1 << 30), Codecs::RAW, 1 << 20).await;
        tcp.send_bytes(&bytes).await;
        assert_eq!(tcp.refused().await, Some(Refusal::Message), "{what}");
    }
    let mut tcp = Tcp::of(&cell, &ann).await;
    tcp.fetch(1, fid, (0, 1 << 30), Codecs::RAW, 1 << 20).await;
    tcp.fetch(1, fid, (0, 1 << 30), Codecs::RAW, 1 << 20).await;
    assert_eq!(
        tcp.refused().await,
        Some(Refusal::Message),
        "a number twice"
    );
    // Credit for others' transfers, and giving up what there is not, is nothing.
    let mut tcp = Tcp::of(&cell, &ann).await;
    tcp.send(&ClientFrame::Cancel { id: 77 }).await;
    tcp.send_bytes(&credit(77, 5)).await;
    tcp.fetch(1, fid, (0, 10), Codecs(u32::MAX), AMPLE).await;
    assert_eq!(tcp.take(1).await.unwrap().0, data[..10]);
    // Nothing but a first message comes first.
    let (offer, _) = ask(&ann).await;
    for first in [&ping[..], b"\0\0\x10\0", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut tcp = Tcp::connect(cell.tcp, &offer).await.unwrap();
        tcp.send_bytes(first).await;
        assert_eq!(tcp.refused().await, Some(Refusal::Message));
    }
}

/// Connects and says nothing until the server closes that. Both ends are sockets of this process, which may have a
/// thousand: so many are open at a time as there are permits.
async fn half_open(tcp: SocketAddr, at_once: Arc<Semaphore>) {
    let _permit = at_once.acquire_owned().await.unwrap();
    let mut stream = TcpStream::connect(tcp).await.unwrap();
    let closed = tokio::time::timeout(PATIENCE, stream.read_u8()).await;
    assert!(closed.expect("it is closed").is_err(), "nothing comes");
}

/// How many connections were refused because there were too many.
fn refused(cell: &Cell) -> u64 {
    let text = afar_telemetry::render_prometheus(&cell.registry);
    let mark = "afar_oob_refused_total{reason=\"full\"} ";
    let line = text.lines().find_map(|line| line.strip_prefix(mark));
    line.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_half_open_connections_keep_nobody_from_reading() {
    let cell = Cell::new().await;
    let ann = cell.ann();
    let fid = ann.create(cell.root(), "a").await;
    ann.store(fid, 0, b"data", 4).await.unwrap();
    let mut before = Tcp::of(&cell, &ann).await;
    let at_once = Arc::new(Semaphore::new(300));
    let open = |_| half_open(cell.tcp, Arc::clone(&at_once));
    let mut strangers: JoinSet<()> = (0..1000).map(open).collect();
    // Calls and connections that there are do not notice.
    assert_eq!(ann.fetch(fid, 0, 4).await.unwrap().0, b"data");
    before.ask_for(1, fid, 0, 4).await;
    assert_eq!(before.take(1).await.unwrap().0, b"data");
    while let Some(done) = strangers.join_next().await {
        done.unwrap();
    }
    // An address has 32 at a time, each of which is closed in the end.
    assert!(refused(&cell) > 800, "{}", refused(&cell));
    // They are gone now, and there is room again.
    let (offer, secret) = ask(&ann).await;
    let entered = async {
        loop {
            if let Ok(mut tcp) = Tcp::connect(cell.tcp, &offer).await {
                tcp.send(&tcp.hello(&offer, &secret)).await;
                break tcp.next().await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let welcome = tokio::time::timeout(PATIENCE, entered).await.unwrap();
    assert!(welcome.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_gives_no_credit_loses_its_transfer_and_delays_nobody() {
    let cell = Cell::new().await;
    let ann = cell.ann();
    let fid = ann.create(cell.root(), "a").await;
    let data = mixed();
    let length = data.len() as u64;
    ann.store(fid, 0, &data, length).await.unwrap();
    let mut slow = Tcp::of(&cell, &ann).await;
    // As many as an address may have at a time, and one more.
    for id in 1..=5 {
        slow.fetch(id, fid, (0, length), Codecs::RAW, 1 << 20).await;
    }
    let (mut declined, mut aborted, mut bytes) = (Vec::new(), 0, 0);
    while declined.len() + aborted < 5 {
        match slow.next().await.unwrap() {
            FromServer::Frame(ServerFrame::Decline { id }) => {
                declined.push(id);
                // The others' turn has not come yet, and calls go on.
                assert!(ann.fetch(fid, 0, 1 << 40).await.unwrap().0 == data);
            }
            FromServer::Frame(ServerFrame::Abort { code, .. }) => {
                assert_eq!(code, -3, "RX_CALL_TIMEOUT");
                aborted += 1;
            }
            FromServer::Data(data) => bytes += data.stored.len(),
            FromServer::Frame(ServerFrame::Reply { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((&declined[..], aborted), (&[5][..], 4));
    assert!(
        bytes <= 4 << 20,
        "{bytes}: no more than there was credit for"
    );
    // The same connection is good for more.
    slow.ask_for(6, fid, 0, length).await;
    assert!(slow.take(6).await.unwrap().0 == data);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_loses_its_connection() {
    let cell = Cell::new().await;
    let ann = cell.ann();
    let fid = ann.create(cell.root(), "a").await;
    let far = 64 << 20;
    ann.store(fid, far, b"end", far).await.unwrap();
    let mut stuck = Tcp::of(&cell, &ann).await;
    stuck.fetch(1, fid, (0, 1 << 40), Codecs::RAW, AMPLE).await;
    let gone = async {
        loop {
            let text = afar_telemetry::render_prometheus(&cell.registry);
            if text.contains("afar_oob_connections 0\n") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
    // Others are served.
    let mut other = Tcp::of(&cell, &ann).await;
    other.ask_for(1, fid, far, 10).await;
    assert_eq!(other.take(1).await.unwrap().0, b"end");
}
