//! Calls that fetch a file and read none of it, so that each keeps a thread of the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use afar_cell::Client;
use afar_link::netns;
use afar_net::{Config, Endpoint, RxNull};
use afar_rpc::rxafs;
use afar_types::Fid;

/// Calls, until it is dropped.
pub(crate) struct Hog {
    /// It answers a server that asks who calls; calls end with it.
    _client: Client,
    _runtime: tokio::runtime::Runtime,
}

impl Hog {
    /// So many calls from a namespace.
    pub(crate) fn start(namespace: &str, server: SocketAddr, fid: Fid, calls: usize) -> Self {
        let endpoint = netns::within(namespace, || {
            let mut config = Config::default();
            // So little that the server cannot be done before anything is read.
            config.rx.receive_window_max = 64 << 10;
            Endpoint::bind(([0, 0, 0, 0], 0).into(), config).unwrap()
        });
        let endpoint = endpoint.unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let client = runtime.block_on(async {
            let config = afar_cell::Config {
                only_cells: true,
                ..afar_cell::Config::default()
            };
            Client::new(endpoint, config).unwrap()
        });
        client.callbacks().expect(server);
        for _ in 0..calls.div_ceil(4) {
            let security = Arc::new(RxNull);
            let connection = client.endpoint().connect(server, rxafs::SERVICE, security);
            let files = rxafs::Client::new(connection);
            for _ in 0..4 {
                let files = files.clone();
                runtime.spawn(async move {
                    loop {
                        let reply = files.fetch_data64(fid, 0, 32 << 20).await;
                        tokio::time::sleep(Duration::from_secs(40)).await;
                        drop(reply);
                    }
                });
            }
        }
        // Until all are under way.
        std::thread::sleep(Duration::from_secs(4));
        Self {
            _client: client,
            _runtime: runtime,
        }
    }
}
