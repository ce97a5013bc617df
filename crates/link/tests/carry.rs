//! Real packets through real namespaces. Needs root and /dev/net/tun; says so where it is skipped.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use afar_link::{
    LinkConfig,
    config::{Options, Side},
    control::{Control, Request},
    emulator::Emulator,
    links, netns,
    stats::Report,
    units::PerDirection,
};
use nix::sys::socket::{setsockopt, sockopt};

/// A link whose emulator runs in a thread of the test, removed in the end whatever happens.
struct TestLink {
    config: LinkConfig,
    control: Arc<Control>,
    emulator: Option<thread::JoinHandle<()>>,
}

impl TestLink {
    /// `None`, and a line that says why, where links cannot be made.
    fn start(purpose: &str, options: &Options) -> Option<Self> {
        if let Err(error) = links::require_root() {
            skipped(&format!("{purpose}: {error}"));
            return None;
        }
        if !std::path::Path::new("/dev/net/tun").exists() {
            skipped(&format!("{purpose}: no /dev/net/tun"));
            return None;
        }
        let name = format!("t{}-{purpose}", std::process::id());
        let config = LinkConfig::new(&name, 200, options).unwrap();
        let control = Arc::new(Control::new().unwrap());
        let mut link = Self {
            config: config.clone(),
            control: control.clone(),
            emulator: None,
        };
        for side in Side::BOTH {
            netns::create(&config.namespace(side), &links::SETTINGS).unwrap();
        }
        link.emulator = Some(thread::spawn(move || {
            Emulator::open(config).unwrap().run(&control).unwrap();
        }));
        link.report();
        Some(link)
    }

    fn report(&self) -> Report {
        self.control.ask(Request::Report).unwrap()
    }

    fn at(&self, side: Side, port: u16) -> SocketAddr {
        (self.config.address(side), port).into()
    }

    fn udp(&self, side: Side, port: u16) -> UdpSocket {
        let address = self.at(side, port);
        let socket = netns::within(&self.config.namespace(side), || UdpSocket::bind(address));
        let socket = socket.unwrap().unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        socket
    }
}

impl Drop for TestLink {
    fn drop(&mut self) {
        if let Some(emulator) = self.emulator.take() {
            self.control.ask(Request::Stop).ok();
            emulator.join().ok();
        }
        for side in Side::BOTH {
            netns::delete(&self.config.namespace(side)).ok();
        }
    }
}

/// Says so on the terminal: what the macros print is kept back while a test passes.
fn skipped(what: &str) {
    std::io::stderr()
        .write_all(format!("skipped: {what}\n").as_bytes())
        .unwrap();
}

fn both<T: Clone>(value: T) -> Option<PerDirection<T>> {
    Some(PerDirection::both(value))
}

/// Everything that is there within a moment.
fn receive_all(socket: &UdpSocket, wait: Duration) -> Vec<Vec<u8>> {
    socket.set_read_timeout(Some(wait)).unwrap();
    let mut buffer = vec![0; 65_536];
    std::iter::from_fn(|| {
        socket
            .recv(&mut buffer)
            .ok()
            .map(|len| buffer[..len].to_vec())
    })
    .collect()
}

#[test]
fn a_ping_takes_the_round_trip_time() {
    let rtt = Duration::from_millis(20);
    let options = Options {
        rtt: Some(rtt),
        ..Options::default()
    };
    let Some(link) = TestLink::start("ping", &options) else {
        return;
    };
    let (server, client) = (link.udp(Side::Srv, 7), link.udp(Side::Cli, 9));
    let target = link.at(Side::Srv, 7);
    let echo = thread::spawn(move || {
        for _ in 0..20 {
            let mut buffer = [0; 100];
            let (len, from) = server.recv_from(&mut buffer).unwrap();
            server.send_to(&buffer[..len], from).unwrap();
        }
    });
    let mut best = Duration::MAX;
    for i in 0..20_u8 {
        let sent = Instant::now();
        client.send_to(&[i; 64], target).unwrap();
        let mut buffer = [0; 100];
        assert_eq!(client.recv(&mut buffer).unwrap(), 64);
        assert_eq!(buffer[0], i);
        let took = sent.elapsed();
        assert!(took >= rtt, "{took:?} is too soon");
        best = best.min(took);
    }
    echo.join().unwrap();
    // Generous, since the machine may be busy: on an idle one it is 0.1 ms.
    assert!(
        best < rtt + Duration::from_millis(2),
        "{best:?} is too late"
    );
    for direction in link.report().directions {
        assert_eq!((direction.in_packets, direction.out_packets), (20, 20));
        assert_eq!(direction.in_bytes, 20 * 92);
    }
}

#[test]
fn tcp_comes_through_an_unkind_link_unchanged() {
    let options = Options {
        rtt: Some(Duration::from_millis(4)),
        rate: both(Some(500_000_000)),
        loss: both(0.002),
        reorder: both(0.005),
        duplicate: both(0.005),
        corrupt: both(0.002),
        ..Options::default()
    };
    let Some(link) = TestLink::start("tcp", &options) else {
        return;
    };
    const LEN: usize = 16 << 20;
    let data: Vec<u8> = {
        let mut rng = fastrand::Rng::with_seed(1);
        std::iter::repeat_with(|| rng.u8(..)).take(LEN).collect()
    };
    let address = link.at(Side::Srv, 5001);
    let listener = netns::within(&link.config.namespace(Side::Srv), || {
        TcpListener::bind(address)
    })
    .unwrap()
    .unwrap();
    let expected = data.clone();
    let sender = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&data).unwrap();
    });
    let mut stream = netns::within(&link.config.namespace(Side::Cli), || {
        TcpStream::connect(address)
    })
    .unwrap()
    .unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut received = Vec::with_capacity(LEN);
    stream.read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    assert!(received == expected, "the bytes differ");
    let report = link.report();
    let data = &report.directions[0];
    assert!(data.super_reads > 0, "no super-packet was read");
    assert!(data.writes < data.out_packets, "nothing was joined");
    for count in [
        data.dropped_loss,
        data.reordered,
        data.duplicated,
        data.corrupted,
        data.out_of_order,
    ] {
        assert!(count > 0, "{data:?}");
    }
}

#[test]
fn udp_super_packets_arrive_as_the_datagrams_they_were() {
    for (purpose, udp_gro) in [("uso", false), ("usogro", true)] {
        let options = Options {
            rtt: Some(Duration::from_millis(2)),
            udp_gro,
            ..Options::default()
        };
        let Some(link) = TestLink::start(purpose, &options) else {
            return;
        };
        let (server, client) = (link.udp(Side::Srv, 7), link.udp(Side::Cli, 9));
        setsockopt(&server, sockopt::UdpGsoSegment, &1_000).unwrap();
        let data: Vec<u8> = (0..9_500_u32).map(|i| (i % 253) as u8).collect();
        server.send_to(&data, link.at(Side::Cli, 9)).unwrap();
        let datagrams = receive_all(&client, Duration::from_millis(300));
        let expected: Vec<Vec<u8>> = data.chunks(1_000).map(<[u8]>::to_vec).collect();
        assert_eq!(datagrams, expected, "udp_gro {udp_gro}");
        let direction = &link.report().directions[0];
        assert_eq!((direction.in_packets, direction.out_packets), (10, 10));
        assert_eq!(direction.in_bytes, 9_500 + 10 * 28);
        if direction.super_reads == 0 {
            skipped("joining of datagrams: this kernel has no UDP segmentation offload");
        } else {
            assert_eq!(direction.writes, if udp_gro { 1 } else { 10 });
        }
    }
}

#[test]
fn damage_is_caught_by_the_receiving_kernel() {
    let options = Options {
        rtt: Some(Duration::ZERO),
        corrupt: both(1.0),
        ..Options::default()
    };
    let Some(link) = TestLink::start("corrupt", &options) else {
        return;
    };
    let (server, client) = (link.udp(Side::Srv, 7), link.udp(Side::Cli, 9));
    for _ in 0..50 {
        client.send_to(&[7; 500], link.at(Side::Srv, 7)).unwrap();
    }
    assert_eq!(receive_all(&server, Duration::from_millis(300)).len(), 0);
    let direction = &link.report().directions[1];
    assert_eq!(
        (
            direction.corrupted,
            direction.out_packets,
            direction.write_errors
        ),
        (50, 50, 0)
    );
}

#[test]
fn duplicates_arrive_and_large_packets_fall_into_the_hole() {
    let options = Options {
        rtt: Some(Duration::ZERO),
        duplicate: both(1.0),
        path_mtu: Some(1_000),
        ..Options::default()
    };
    let Some(link) = TestLink::start("hole", &options) else {
        return;
    };
    let (server, client) = (link.udp(Side::Srv, 7), link.udp(Side::Cli, 9));
    let target = link.at(Side::Srv, 7);
    client.send_to(&[1; 972], target).unwrap();
    client.send_to(&[2; 973], target).unwrap();
    let received = receive_all(&server, Duration::from_millis(300));
    assert_eq!(received, [vec![1; 972], vec![1; 972]]);
    assert_eq!(link.report().directions[1].dropped_path_mtu, 1);
}

#[test]
fn congestion_marks_are_put_on_capable_packets_only() {
    let options = Options {
        rtt: Some(Duration::ZERO),
        rate: both(Some(1_000_000)),
        ecn_mark: both(2_000),
        ..Options::default()
    };
    let Some(link) = TestLink::start("ecn", &options) else {
        return;
    };
    let (server, client) = (link.udp(Side::Srv, 7), link.udp(Side::Cli, 9));
    let target = link.at(Side::Srv, 7);
    let burst = || (0..5).for_each(|_| assert_eq!(client.send_to(&[1; 972], target).unwrap(), 972));
    burst();
    assert_eq!(receive_all(&server, Duration::from_millis(300)).len(), 5);
    assert_eq!(link.report().directions[1].marked, 0);
    rustix::net::sockopt::set_ip_tos(&client, 2).unwrap();
    burst();
    // The kernel checks the IP header's checksum, so a bad one would show here.
    assert_eq!(receive_all(&server, Duration::from_millis(300)).len(), 5);
    assert_eq!(link.report().directions[1].marked, 3);
}
