//! Any bytes to every operation of every service of a whole cell, from callers who may do
//! everything: each is answered, and nothing is left behind.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use afar_net::{CallError, RxNull};
use afar_rpc::{INTERFACES, Interface, Kind, Operation, rxafscb, rxstats};
use afar_types::Fid;
use bytes::Bytes;
use fastrand::Rng;

use crate::client::Client;
use crate::run;
use crate::server::Server;

/// Calls that ask other servers may wait for those.
const LIMIT: Duration = Duration::from_secs(50);

/// Operations that end the server, as they are to: RestartAll, ReBozo, Restart.
const ENDS: [(&str, u32); 3] = [("BOZO", 100), ("BOZO", 103), ("BOZO", 104)];

/// The port of a service in a cell.
pub(crate) fn port(interface: &Interface) -> Option<u16> {
    match interface.name {
        "RXAFS" => Some(7000),
        "PR" | "USERS" => Some(7002),
        "VL" | "VOTE" => Some(7003),
        "AFSVol" => Some(7005),
        "BOZO" | "EYES" => Some(7007),
        name => {
            assert!([rxafscb::NAME, rxstats::NAME].contains(&name), "{name}");
            None
        }
    }
}

/// Numbers that are likely to mean something, and others.
fn words(rng: &mut Rng, root: Fid, count: usize) -> Vec<u8> {
    let word = |rng: &mut Rng| match rng.u8(..7) {
        0 => 0,
        1 => rng.u32(..50),
        2 => u32::MAX - rng.u32(..3),
        3 => root.volume.0 + rng.u32(..8),
        4 => 1 << rng.u32(..32),
        5 => u32::from_be_bytes([127, 0, 0, 1]),
        _ => rng.u32(..),
    };
    (0..count).flat_map(|_| word(rng).to_be_bytes()).collect()
}

/// A request for an operation: bytes as they come, or made well-formed, whole or cut short.
pub(crate) fn request(rng: &mut Rng, interface: &Interface, row: &Operation, root: Fid) -> Vec<u8> {
    let mut request = row.opcode.to_be_bytes().to_vec();
    if rng.bool() {
        for word in [root.volume.0, root.vnode.0, root.uniquifier.0] {
            request.extend(word.to_be_bytes());
        }
    }
    let count = rng.usize(..60);
    request.extend(words(rng, root, count));
    if rng.bool() {
        let mut whole = request.clone();
        whole.resize(whole.len() + row.request_max_len.min(20_000), 0);
        if let Ok(Some(formed)) = (interface.canonical_request)(&whole) {
            request = formed.to_vec();
        }
    }
    if rng.u8(..8) == 0 {
        request.truncate(rng.usize(4..=request.len()));
    }
    if matches!(row.kind, Kind::Store | Kind::Upload) {
        let count = rng.usize(..2000);
        request.extend(words(rng, root, count));
    }
    request
}

/// Sends a request and takes what comes, which must come.
async fn send(
    client: &Client,
    to: SocketAddr,
    interface: &Interface,
    row: &Operation,
    octets: Vec<u8>,
) {
    let connection = client
        .endpoint
        .connect(to, interface.service, Arc::new(RxNull));
    let shown = format!("{}.{}: {octets:02x?}", row.interface, row.name);
    let exchange = async {
        let mut call = connection.call().await?;
        call.send(Bytes::from(octets)).await?;
        call.finish().await?;
        call.read_to_end(64 << 20).await
    };
    match tokio::time::timeout(LIMIT, exchange).await {
        Ok(Ok(_) | Err(CallError::Aborted(_) | CallError::TooLong)) => {}
        Ok(Err(error)) => panic!("{error}: {shown}"),
        Err(_) => panic!("hangs: {shown}"),
    }
}

#[test]
fn any_octets_to_every_operation_of_a_cell() {
    run(async {
        let mut server = Server::new(&["--insecure-noauth"]);
        server.start();
        let root = server.open_to_all().await;
        let seed = std::env::var("AFAR_TEST_SEED")
            .map_or_else(|_| fastrand::u64(..), |text| text.parse().unwrap());
        eprintln!("again: AFAR_TEST_SEED={seed}");
        let client = Client::new(server.files()).await;
        let before = server.memory();
        let mut tasks = Vec::new();
        for (number, interface) in INTERFACES.into_iter().enumerate() {
            let Some(port) = port(interface) else {
                continue;
            };
            let to = server.at(port);
            let mut rng = Rng::with_seed(seed.wrapping_add(number as u64));
            tasks.push(tokio::spawn(async move {
                let client = Client::new(to).await;
                for _ in 0..8 {
                    for row in interface.operations {
                        if ENDS.contains(&(interface.name, row.opcode)) {
                            continue;
                        }
                        let octets = request(&mut rng, interface, row, root);
                        send(&client, to, interface, row, octets).await;
                    }
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        // All of them may have done what they liked to volumes and users; the server is there.
        client.files.get_time().await.unwrap();
        let after = server.memory();
        assert!(
            after < before + (256 << 20),
            "{before} bytes became {after}"
        );
        server.stop();
        server.check_store();
    });
}
