//! A client that has files out of band, through middle boxes that let it, cut it off, or swallow what passes.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use afar_cell::{Config, Memory, Volume, Wanted};
use afar_net::{AbortCode, Endpoint};
use afar_rpc::{Caller, vl};
use afar_types::{Fid, NvldbEntry, SiteFlags, VldbFlags, VolumeId};
use afar_xdr::CharArray;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::cell::*;
use super::oob::mixed;

const PATIENCE: Duration = Duration::from_secs(90);

/// Knows the one volume.
struct Locations;

impl vl::Service for Locations {
    async fn get_entry_by_name_n(
        &self,
        _: &Caller,
        _: vl::get_entry_by_name_n::Request,
    ) -> Result<vl::get_entry_by_name_n::Reply, AbortCode> {
        let mut entry = NvldbEntry {
            name: CharArray::new("user.ann").unwrap(),
            n_servers: 1,
            volume_id: [VOLUME, VolumeId(0), VolumeId(0)],
            flags: VldbFlags(0x1000),
            ..NvldbEntry::default()
        };
        entry.server_number[0] = u32::from_be_bytes(Ipv4Addr::LOCALHOST.octets());
        entry.server_flags[0] = SiteFlags(0x4);
        Ok(vl::get_entry_by_name_n::Reply { entry })
    }
}

/// What a middle box does with what comes from the server.
#[derive(Debug, Clone, Copy)]
enum Middle {
    Passes,
    /// Ends the connection after so many bytes.
    Cuts(usize),
    /// Lets nothing pass after so many bytes, and keeps the connection open.
    Swallows(usize),
}

/// A middle box at a port of its own.
struct Proxy {
    port: u16,
    connections: Arc<AtomicUsize>,
    /// Connections that were cut, or on which something was swallowed.
    broken: Arc<AtomicUsize>,
    listener: Option<TcpListener>,
    task: Option<JoinHandle<()>>,
}

impl Proxy {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            port: listener.local_addr().unwrap().port(),
            connections: Arc::default(),
            broken: Arc::default(),
            listener: Some(listener),
            task: None,
        }
    }

    fn run(&mut self, server: SocketAddr, does: Middle) {
        let listener = self.listener.take().unwrap();
        let (connections, broken) = (Arc::clone(&self.connections), Arc::clone(&self.broken));
        self.task = Some(tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(pass(client, server, does, Arc::clone(&broken)));
            }
        }));
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn broken(&self) -> usize {
        self.broken.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn pass(client: TcpStream, server: SocketAddr, does: Middle, broken: Arc<AtomicUsize>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    let mut left = match does {
        Middle::Passes => usize::MAX,
        Middle::Cuts(bytes) | Middle::Swallows(bytes) => bytes,
    };
    let mut buffer = vec![0; 64 << 10];
    loop {
        let room = buffer.len().min(left);
        if room == 0 {
            broken.fetch_add(1, Ordering::SeqCst);
            if matches!(does, Middle::Swallows(_)) {
                while from_server.read(&mut buffer).await.unwrap_or(0) > 0 {}
                std::future::pending::<()>().await;
            }
            break;
        }
        let read = from_server.read(&mut buffer[..room]).await.unwrap_or(0);
        if read == 0 || to_client.write_all(&buffer[..read]).await.is_err() {
            break;
        }
        left -= read;
    }
    up.abort();
}

/// A server with a file, a middle box before its TCP port, and a client.
struct Test {
    cell: Cell,
    proxy: Proxy,
    client: afar_cell::Client,
    volume: Arc<Volume>,
    fid: Fid,
    data: Vec<u8>,
    _locations: Endpoint,
}

impl Test {
    async fn start(does: Middle) -> Self {
        let mut proxy = Proxy::new().await;
        let cell = Cell::told(Some(proxy.port)).await;
        proxy.run(cell.tcp, does);
        let ann = cell.ann();
        let fid = ann.create(cell.root(), "a").await;
        let data = mixed();
        ann.store(fid, 0, &data, data.len() as u64).await.unwrap();
        let locations = bind();
        locations.serve(vl::SERVICE, vl::NAME, vl::Server::new(Locations));
        let config = Config {
            cellservdb: Some("/dev/null".into()),
            vl_servers: vec![locations.local_addr()],
            dns: false,
            file_port: cell.address_of_ann().port(),
            ..Config::default()
        };
        let client = afar_cell::Client::new(bind(), config).unwrap();
        let known = client.cell(&"test.example".parse().unwrap()).await.unwrap();
        let volume = client.volume(&known, "user.ann", Wanted::PreferReadWrite);
        let volume = volume.await.unwrap();
        Self {
            cell,
            proxy,
            client,
            volume,
            fid,
            data,
            _locations: locations,
        }
    }

    /// Fetches the file, which is always right.
    async fn fetch(&self) {
        let fetching = async {
            let status = self.client.status(&self.volume, self.fid).await.unwrap();
            let sink = Arc::new(Memory::default());
            let fetch = self.client.fetch(&self.volume, self.fid, status, &sink);
            let fetched = fetch.await.unwrap();
            assert_eq!(fetched.bytes, self.data.len() as u64);
            assert!(sink.take() == self.data);
        };
        let fetched = tokio::time::timeout(PATIENCE, fetching).await;
        fetched.expect("a fetch ends");
    }

    /// Fetches until this is so.
    async fn fetch_until(&self, done: impl Fn(&Self) -> bool) {
        let fetching = async {
            while !done(self) {
                self.fetch().await;
            }
        };
        let fetched = tokio::time::timeout(PATIENCE, fetching).await;
        fetched.expect("it comes to that");
    }

    /// Transfers that ended well out of band.
    fn done(&self) -> u64 {
        let text = afar_telemetry::render_prometheus(&self.cell.registry);
        let mark = "afar_oob_transfers_total{result=\"done\"} ";
        let line = text.lines().find_map(|line| line.strip_prefix(mark));
        line.map_or(0, |number| number.parse().unwrap())
    }

    async fn end(self) {
        self.client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_transfers_go_out_of_band() {
    let test = Test::start(Middle::Passes).await;
    test.fetch().await;
    assert_eq!(test.done(), 0, "the first begins by Rx");
    test.fetch_until(|test| test.done() > 2).await;
    assert_eq!(test.proxy.connections(), 1, "one connection is for all");
    test.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cut_off_goes_on_by_rx() {
    // In TLS's handshake, in the first frames, in records and between them.
    for bytes in [
        0, 1, 300, 900, 1200, 1500, 2000, 3000, 20_000, 1_048_000, 1_060_000, 2_000_000, 4_000_000,
    ] {
        let test = Test::start(Middle::Cuts(bytes)).await;
        test.fetch_until(|test| test.proxy.broken() > 0).await;
        for _ in 0..3 {
            test.fetch().await;
        }
        let connections = test.proxy.connections();
        assert_eq!(connections, 1, "{bytes}: it is found out once");
        test.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_swallowed_is_missed_and_fetched_by_rx() {
    for bytes in [0, 3000, 1_500_000] {
        let test = Test::start(Middle::Swallows(bytes)).await;
        test.fetch_until(|test| test.proxy.broken() > 0).await;
        for _ in 0..3 {
            test.fetch().await;
        }
        assert_eq!(test.proxy.connections(), 1, "{bytes}: it is found out once");
        test.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_seen_out_of_band_as_well() {
    let test = Test::start(Middle::Passes).await;
    test.fetch_until(|test| test.done() > 0).await;
    let writer = test.cell.client();
    let changed: Vec<u8> = test.data.iter().rev().copied().collect();
    // The status was told before.
    let status = test.client.status(&test.volume, test.fid).await.unwrap();
    let length = changed.len() as u64;
    writer.store(test.fid, 0, &changed, length).await.unwrap();
    let sink = Arc::new(Memory::default());
    let fetch = test.client.fetch(&test.volume, test.fid, status, &sink);
    let fetched = fetch.await.unwrap();
    assert_eq!((fetched.restarts, fetched.status.data_version.0), (1, 2));
    assert!(sink.take() == changed);
    test.end().await;
}
