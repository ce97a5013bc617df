//! A client that has files out of band, through middle boxes that let it, cut it off, or swallow what passes.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use afar_cell::{Config, Memory, OobOffer, Source, Volume, Wanted};
use afar_net::{AbortCode, Endpoint};
use afar_rpc::{Caller, vl};
use afar_types::{Fid, NvldbEntry, SiteFlags, StoreStatus, VldbFlags, VolumeId};
use afar_xdr::CharArray;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
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

/// What a middle box does with what comes from the server, or the client.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Middle {
    Passes,
    /// Ends the connection after so many bytes.
    Cuts(usize),
    /// Lets nothing pass after so many bytes, and keeps the connection open.
    Swallows(usize),
    /// Ends the connection after so many bytes of the client.
    CutsUp(usize),
    /// Lets nothing of the client pass after so many bytes.
    SwallowsUp(usize),
}

/// A middle box at a port of its own.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    connections: Arc<AtomicUsize>,
    /// Connections that were cut, or on which something was swallowed.
    broken: Arc<AtomicUsize>,
    listener: Option<TcpListener>,
    task: Option<JoinHandle<()>>,
}

impl Proxy {
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            port: listener.local_addr().unwrap().port(),
            connections: Arc::default(),
            broken: Arc::default(),
            listener: Some(listener),
            task: None,
        }
    }

    pub(crate) fn run(&mut self, server: SocketAddr, does: Middle) {
        let listener = self.listener.take().unwrap();
        let (connections, broken) = (Arc::clone(&self.connections), Arc::clone(&self.broken));
        self.task = Some(tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(pass(client, server, does, Arc::clone(&broken)));
            }
        }));
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn broken(&self) -> usize {
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
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let all = (usize::MAX, false);
    let (up, down) = match does {
        Middle::Passes => (all, all),
        Middle::Cuts(bytes) => (all, (bytes, false)),
        Middle::Swallows(bytes) => (all, (bytes, true)),
        Middle::CutsUp(bytes) => ((bytes, false), all),
        Middle::SwallowsUp(bytes) => ((bytes, true), all),
    };
    tokio::select! {
        () = copy(from_client, to_server, up, &broken) => {}
        () = copy(from_server, to_client, down, &broken) => {}
    }
}

/// Lets so many bytes pass, and then swallows them, or nothing any more.
async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (mut left, swallows): (usize, bool),
    broken: &AtomicUsize,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let room = buffer.len().min(left);
        if room == 0 {
            broken.fetch_add(1, Ordering::SeqCst);
            if swallows {
                while from.read(&mut buffer).await.unwrap_or(0) > 0 {}
                std::future::pending::<()>().await;
            }
            return;
        }
        let read = from.read(&mut buffer[..room]).await.unwrap_or(0);
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
        left -= read;
    }
}

/// Data in memory.
struct Bytes(Vec<u8>);

impl Source for Bytes {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    async fn read_at(&self, offset: u64, most: usize) -> std::io::Result<bytes::Bytes> {
        let rest = &self.0[usize::try_from(offset).unwrap()..];
        Ok(bytes::Bytes::copy_from_slice(&rest[..most.min(rest.len())]))
    }
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

    /// Stores other data into the file, which is always right: after it, and a change by somebody else before it.
    async fn store(&mut self) {
        let storing = async {
            self.data.rotate_left(1);
            let length = self.data.len() as u64;
            let source = Arc::new(Bytes(self.data.clone()));
            let attributes = StoreStatus::default();
            let store = self
                .client
                .store(&self.volume, self.fid, &source, attributes);
            let stored = store.await.unwrap();
            assert_eq!((stored.bytes, stored.status.length), (length, length));
            let (found, reply) = self.cell.ann().fetch(self.fid, 0, 1 << 40).await.unwrap();
            assert!(found == self.data);
            assert_eq!(reply.status, stored.status);
        };
        let stored = tokio::time::timeout(PATIENCE, storing).await;
        stored.expect("a store ends");
    }

    /// Stores until this is so.
    async fn store_until(&mut self, done: impl Fn(&Self) -> bool) {
        let storing = async {
            while !done(self) {
                self.store().await;
            }
        };
        let stored = tokio::time::timeout(PATIENCE, storing).await;
        stored.expect("it comes to that");
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

    /// Fetches that ended well out of band.
    fn done(&self) -> u64 {
        self.ended("done")
    }

    /// Stores that did.
    fn stored(&self) -> u64 {
        self.ended("stored")
    }

    fn ended(&self, how: &str) -> u64 {
        self.metric(&format!("afar_oob_transfers_total{{result=\"{how}\"}} "))
    }

    fn metric(&self, mark: &str) -> u64 {
        let text = afar_telemetry::render_prometheus(&self.cell.registry);
        let line = text.lines().find_map(|line| line.strip_prefix(mark));
        line.map_or(0, |number| number.parse().unwrap())
    }

    /// Connections that the server has.
    fn connected(&self) -> u64 {
        self.metric("afar_oob_connections ")
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
    let [told] = test.client.oob_servers().try_into().unwrap();
    assert_eq!((told.offer, told.connections), (OobOffer::Offered, 1));
    assert_eq!(told.fetches.done, test.done());
    assert_eq!(
        told.fetches.bytes,
        told.fetches.done * test.data.len() as u64
    );
    // Without a threshold the connection ends.
    test.client.set_oob_threshold(None);
    let ended = async {
        while test.connected() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended = tokio::time::timeout(PATIENCE, ended).await;
    ended.expect("the connection ends");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_stores_go_out_of_band() {
    let mut test = Test::start(Middle::Passes).await;
    test.store().await;
    assert_eq!(test.stored(), 0, "the first goes by Rx");
    test.store_until(|test| test.stored() > 2).await;
    test.fetch_until(|test| test.done() > 0).await;
    assert_eq!(test.proxy.connections(), 1, "one connection is for all");
    test.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_cut_off_goes_by_rx() {
    // In TLS's handshake, in the first frames, in records, and in the answer.
    for middle in [
        Middle::CutsUp(0),
        Middle::CutsUp(400),
        Middle::CutsUp(1000),
        Middle::CutsUp(1400),
        Middle::CutsUp(70_000),
        Middle::CutsUp(1_048_700),
        Middle::CutsUp(4_000_000),
        Middle::Cuts(1000),
        Middle::Cuts(1400),
        Middle::Cuts(1450),
        Middle::Cuts(1500),
    ] {
        let mut test = Test::start(middle).await;
        test.store_until(|test| test.proxy.broken() > 0).await;
        for _ in 0..2 {
            test.store().await;
        }
        let connections = test.proxy.connections();
        assert_eq!(connections, 1, "{middle:?}: it is found out once");
        test.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_swallowed_goes_by_rx() {
    for bytes in [3000, 1_500_000] {
        let mut test = Test::start(Middle::SwallowsUp(bytes)).await;
        test.store_until(|test| test.proxy.broken() > 0).await;
        test.store().await;
        assert_eq!(test.proxy.connections(), 1, "{bytes}: it is found out once");
        test.end().await;
    }
}
