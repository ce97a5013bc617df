//! Fail-over between database servers.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use afar_admin::{Security, Servers};
use afar_net::{AbortCode, Config, Endpoint};
use afar_rpc::{Caller, vl};

/// Answers every probe with this code.
#[derive(Clone, Default)]
struct Location {
    code: Arc<AtomicI32>,
    asked: Arc<AtomicU32>,
}

impl vl::Service for Location {
    async fn probe_server(
        &self,
        _: &Caller,
        _: vl::probe_server::Request,
    ) -> Result<vl::probe_server::Reply, AbortCode> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.code.load(Ordering::Relaxed) {
            0 => Ok(vl::probe_server::Reply {}),
            code => Err(AbortCode(code)),
        }
    }
}

fn bind() -> Endpoint {
    Endpoint::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap()
}

async fn cell(codes: &[i32]) -> (Servers, Vec<Location>, Vec<Endpoint>) {
    let (mut locations, mut endpoints) = (Vec::new(), Vec::new());
    for &code in codes {
        let (location, endpoint) = (Location::default(), bind());
        location.code.store(code, Ordering::Relaxed);
        endpoint.serve(vl::SERVICE, "vl", vl::Server::new(location.clone()));
        endpoint.stats().await;
        locations.push(location);
        endpoints.push(endpoint);
    }
    let addresses: Vec<SocketAddr> = endpoints.iter().map(Endpoint::local_addr).collect();
    let servers = Servers::with_addresses(bind(), &addresses, &addresses, 7005, Security::none());
    (servers, locations, endpoints)
}

async fn probe(servers: &Servers) -> Result<(), i32> {
    let asked = servers.vl(|vl| async move { vl.probe_server().await });
    asked.await.map(|_| ()).map_err(|error| error.code().0)
}

fn asked(locations: &[Location]) -> Vec<u32> {
    let counts = locations.iter();
    counts.map(|l| l.asked.load(Ordering::Relaxed)).collect()
}

#[tokio::test]
async fn the_server_that_takes_changes_is_found_and_remembered() {
    const UNOQUORUM: i32 = 5376;
    const UNOTSYNC: i32 = 5377;
    let (servers, locations, _endpoints) = cell(&[UNOTSYNC, UNOQUORUM, 0]).await;
    assert_eq!(probe(&servers).await, Ok(()));
    assert_eq!(asked(&locations), [1, 1, 1]);
    assert_eq!(probe(&servers).await, Ok(()));
    assert_eq!(asked(&locations), [1, 1, 2]);
}

#[tokio::test]
async fn an_answer_is_an_answer_even_if_it_is_no() {
    const VL_NOENT: i32 = 363_524;
    let (servers, locations, _endpoints) = cell(&[VL_NOENT, 0]).await;
    assert_eq!(probe(&servers).await, Err(VL_NOENT));
    assert_eq!(asked(&locations), [1, 0]);
    // Nor is an operation asked of others that the first does not know.
    locations[0].code.store(-455, Ordering::Relaxed);
    assert_eq!(probe(&servers).await, Err(-455));
    assert_eq!(asked(&locations), [2, 0]);
}

#[tokio::test]
async fn with_no_quorum_anywhere_all_are_asked_twice() {
    let (servers, locations, _endpoints) = cell(&[5376, 5377]).await;
    assert_eq!(probe(&servers).await, Err(5377));
    assert_eq!(asked(&locations), [2, 2]);
}
