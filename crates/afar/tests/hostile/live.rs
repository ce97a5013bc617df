//! Changed captures to a live cell and a live client: none ends or grows, and others go on.
//!
//! `AFAR_TEST_FUZZ_PACKETS` says how many datagrams, which `cargo xtask fuzz-live` sets; without it they are few.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use afar_net::{ClientSecurity, RxNull};
use afar_rpc::{INTERFACES, Interface, rxafscb, rxstats};
use afar_security::{KeyRing, Level, rxkad, ticket};
use afar_types::Fid;
use bytes::Bytes;
use fastrand::Rng;

use crate::client::Client;
use crate::junk::{port, request};
use crate::mutation::mutate;
use crate::relay::{Capture, Relay};
use crate::server::Server;
use crate::{BOUND, run};

/// Datagrams of an ordinary run.
const IN_PASSING: u32 = 30_000;
/// Datagrams a second: more than a client sends that only looks around, less than a processor's work.
const RATE: f64 = 5_000.0;
/// Ports they come from.
const SOCKETS: usize = 16;
/// How long a call may take while it is captured.
const CALL: Duration = Duration::from_secs(10);
/// By how much memory may grow after the first part of the run, which fills tables and caches.
const GROWTH: u64 = 48 << 20;

/// What to send, and where.
struct Target {
    to: SocketAddr,
    datagrams: Vec<Vec<u8>>,
}

/// Makes requests for each operation of an interface through a relay, and keeps what was said.
async fn capture(
    server: &Server,
    interface: &'static Interface,
    port: u16,
    root: Fid,
    security: &Arc<dyn ClientSecurity>,
    rng: &mut Rng,
) -> Capture {
    let relay = Relay::new(server.at(port));
    let client = Client::new(relay.address()).await;
    if interface.name == "RXAFS" {
        // Data in both directions, and what the server asks a client.
        client.turn(root).await;
    }
    for row in interface.operations {
        let to = relay.address();
        let connection = client
            .endpoint
            .connect(to, interface.service, Arc::clone(security));
        let request = request(rng, interface, row, root);
        let exchange = async {
            let mut call = connection.call().await.ok()?;
            call.send(Bytes::from(request)).await.ok()?;
            call.finish().await.ok()?;
            call.read_to_end(1 << 20).await.ok()
        };
        // What is refused, or broken off, was said as well.
        let _ended = tokio::time::timeout(CALL, exchange).await;
    }
    client.endpoint.shutdown().await;
    relay.end()
}

/// What is said at all services, by somebody unknown and by an administrator.
async fn captures(server: &Server, root: Fid, rng: &mut Rng) -> (Vec<Target>, Vec<Vec<u8>>) {
    let keys = KeyRing::open([server.cell().join("data/KeyFileExt")]).unwrap();
    let token = Arc::new(ticket::print(&keys).unwrap());
    let anonymous: Arc<dyn ClientSecurity> = Arc::new(RxNull);
    let administrator: Arc<dyn ClientSecurity> = Arc::new(rxkad::Client::new(token, Level::Clear));
    let (mut targets, mut to_clients) = (Vec::new(), Vec::new());
    for interface in INTERFACES {
        let port = match interface.name {
            rxstats::NAME => Some(7003),
            _ => port(interface),
        };
        let Some(port) = port else {
            continue;
        };
        let mut datagrams = Vec::new();
        // An administrator would change the volumes that the good client works in.
        let whole: &[_] = match interface.name {
            "RXAFS" | "AFSVol" | "VL" => &[&anonymous],
            _ => &[&anonymous, &administrator],
        };
        for security in whole {
            let said = capture(server, interface, port, root, security, rng).await;
            datagrams.extend(said.to_server);
            to_clients.extend(said.to_client);
        }
        assert!(
            datagrams.len() >= interface.operations.len(),
            "{}",
            interface.name
        );
        targets.push(Target {
            to: server.at(port),
            datagrams,
        });
    }
    (targets, to_clients)
}

/// Requests to a client, as a server makes them, without a connection.
fn to_client(rng: &mut Rng, root: Fid) -> Vec<Vec<u8>> {
    use afar_rx::packet::{Flags, Header, PacketType};
    use afar_rx::{CallNumber, Cid, Epoch, SecurityIndex};
    let mut made = Vec::new();
    for row in rxafscb::OPERATIONS {
        for _ in 0..8 {
            let header = Header {
                epoch: Epoch(1),
                cid: Cid(4),
                call_number: CallNumber(1),
                sequence: 1,
                serial: 1,
                packet_type: PacketType::Data,
                flags: Flags::CLIENT_INITIATED.with(Flags::LAST_PACKET),
                user_status: 0,
                security_index: SecurityIndex(0),
                checksum: 0,
                service_id: rxafscb::SERVICE,
            };
            let mut datagram = header.encode().to_vec();
            datagram.extend(request(rng, rxafscb::INTERFACE, row, root));
            made.push(datagram);
        }
    }
    made
}

/// Sends changed datagrams to all targets alike, at a steady rate.
fn send(targets: &[Target], packets: u32, numbers: u32, rng: &mut Rng) {
    let sockets: Vec<UdpSocket> = (0..SOCKETS)
        .map(|_| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        })
        .collect();
    let begun = Instant::now();
    let mut buffer = vec![0; 1 << 16];
    for sent in 0..packets {
        let target = &targets[rng.usize(..targets.len())];
        let datagram = &target.datagrams[rng.usize(..target.datagrams.len())];
        let mutant = mutate(rng, datagram, numbers.wrapping_add(sent));
        // A full buffer loses it, as a network would.
        let _lost = sockets[rng.usize(..SOCKETS)].send_to(&mutant, target.to);
        if sent.is_multiple_of(50) {
            for socket in &sockets {
                while socket.recv(&mut buffer).is_ok() {}
            }
            let ahead = f64::from(sent) / RATE - begun.elapsed().as_secs_f64();
            if ahead > 0.0 {
                std::thread::sleep(Duration::from_secs_f64(ahead));
            }
        }
    }
}

/// The first thing that `afar login` says.
fn hello() -> Vec<u8> {
    let [a, b] = std::process::id().to_be_bytes()[2..] else {
        unreachable!("two bytes are left");
    };
    let address = format!("127.63.{a}.{}", b.max(1));
    let listener = TcpListener::bind((address.as_str(), 7002)).unwrap();
    let mut client = Command::new(env!("CARGO_BIN_EXE_afar"))
        .args(["login", "ann", "--cell", "killed.example"])
        .args(["--server", &address, "--password-stdin"])
        .env("KRB5_CONFIG", "/proc/nonexistent")
        .env("KRB5CCNAME", "FILE:/proc/nonexistent")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    client.stdin.take().unwrap().write_all(b"secret\n").unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut said = vec![0; 4096];
    let len = stream.read(&mut said).unwrap();
    said.truncate(len);
    client.kill().unwrap();
    client.wait().unwrap();
    said
}

/// Says changed greetings to the login service, one connection after the other.
fn greet(to: SocketAddr, hello: &[u8], connections: u32, rng: &mut Rng) {
    for number in 0..connections {
        let Ok(mut stream) = TcpStream::connect(to) else {
            panic!("the login service does not listen any more");
        };
        stream
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        // A few go through whole, so that what follows them is junk instead of a proof.
        let said = match number % 4 {
            0 => [hello, &mutate(rng, hello, number)].concat(),
            _ => mutate(rng, hello, number),
        };
        let _refused = stream.write_all(&said);
        let mut answer = [0; 4096];
        if let Err(error) = stream.read(&mut answer) {
            let expected = [
                ErrorKind::WouldBlock,
                ErrorKind::TimedOut,
                ErrorKind::ConnectionReset,
            ];
            assert!(expected.contains(&error.kind()), "{error}");
        }
    }
}

/// The median of turns made until told to end, and the slowest.
async fn turns(client: &Client, root: Fid, ended: &AtomicBool) -> (Duration, Duration) {
    let mut took = Vec::new();
    while took.len() < 20 || !ended.load(Ordering::Relaxed) {
        took.push(client.turn(root).await);
    }
    took.sort_unstable();
    (took[took.len() / 2], took[took.len() - 1])
}

#[test]
fn changed_captures_of_all_services_harm_nobody() {
    run(async {
        let asked = std::env::var("AFAR_TEST_FUZZ_PACKETS").ok();
        let packets: u32 = asked.as_ref().map_or(IN_PASSING, |n| n.parse().unwrap());
        let seed = std::env::var("AFAR_TEST_SEED")
            .map_or_else(|_| fastrand::u64(..), |text| text.parse().unwrap());
        eprintln!("again: AFAR_TEST_SEED={seed}");
        let mut rng = Rng::with_seed(seed);
        let mut server = Server::new(&[]);
        server.start();
        let root = server.open_to_all().await;
        let good = Client::new(server.files()).await;
        // What was captured names files in the root, which all may remove.
        let place = good.directory(root, "place").await;
        let (mut targets, to_clients) = captures(&server, root, &mut rng).await;
        // One who is a client only: whatever comes to it, it goes on.
        let victim = Client::new(server.files()).await;
        victim.turn(place).await;
        let mut datagrams = to_client(&mut rng, root);
        datagrams.extend(to_clients);
        targets.push(Target {
            to: loopback(victim.endpoint.local_addr()),
            datagrams,
        });
        let targets = Arc::new(targets);
        let hello = hello();
        let (alone, _) = turns(&good, place, &AtomicBool::new(true)).await;

        let mut memory = Vec::new();
        let mut slowest = Duration::ZERO;
        let mut median = Duration::ZERO;
        for part in 0..3 {
            let ended = Arc::new(AtomicBool::new(false));
            let sender = {
                let (ended, targets, hello) =
                    (Arc::clone(&ended), Arc::clone(&targets), hello.clone());
                let (mut rng, login) = (rng.fork(), server.at(7002));
                std::thread::spawn(move || {
                    send(&targets, packets / 3, part * (packets / 3), &mut rng);
                    greet(login, &hello, (packets / 3000).min(1000), &mut rng);
                    ended.store(true, Ordering::Relaxed);
                })
            };
            let (usual, worst) = turns(&good, place, &ended).await;
            sender.join().expect("all was sent");
            (median, slowest) = (median.max(usual), slowest.max(worst));
            memory.push(server.memory());
        }
        eprintln!(
            "{packets} datagrams; a turn took {alone:.1?} alone, {median:.1?} beside, {slowest:.1?} \
             at most; memory {:?} MiB",
            memory.iter().map(|bytes| bytes >> 20).collect::<Vec<_>>()
        );
        assert!(slowest < BOUND, "{slowest:?}, alone {alone:?}");
        assert!(memory[2] < memory[0] + GROWTH, "{memory:?}");
        // Beside other tests, times tell nothing.
        assert!(
            asked.is_none() || median <= 2 * alone,
            "{median:?}, alone {alone:?}"
        );
        victim.turn(place).await;
        let log = server.log();
        assert!(!log.contains("panicked at"), "{log}");
        server.stop();
        server.check_store();
    });
}

fn loopback(bound: SocketAddr) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], bound.port()))
}
