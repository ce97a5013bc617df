//! A server that knows hosts, and cache managers that can be made to fail.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use afar_fileserver::hosts::{Host, Hosts, HostsConfig};
use afar_net::{AbortCode, Config, Endpoint};
use afar_rpc::{Caller, rxafscb};
use afar_types::{AfsUuid, Capabilities, Fid, InterfaceAddr};
use parking_lot::Mutex;
use tokio::sync::watch;

/// What a cache manager was told or asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    TellMe,
    WhoAreYou,
    Probe,
    ProbeUuid,
    Reset,
    Reset3(AfsUuid),
    Break(Vec<Fid>),
}

/// How old a cache manager is: which questions it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    Current,
    KnowsWhoAreYou,
    HasNoUuid,
}

#[derive(Clone)]
pub(crate) struct Service(Arc<Shared>);

struct Shared {
    age: Age,
    uuid: Mutex<AfsUuid>,
    /// The addresses it tells of.
    interfaces: Vec<Ipv4Addr>,
    heard: Mutex<Vec<Heard>>,
    /// While this is true no call is answered.
    deaf: watch::Sender<bool>,
    /// Calls, answered or not.
    calls: watch::Sender<usize>,
    /// So many breaks are aborted after they were carried out.
    aborts: AtomicU32,
}

impl Service {
    async fn hear(&self, heard: Heard) {
        self.0.calls.send_modify(|calls| *calls += 1);
        let mut deaf = self.0.deaf.subscribe();
        deaf.wait_for(|deaf| !deaf).await.unwrap();
        self.0.heard.lock().push(heard);
    }

    fn interfaces(&self) -> InterfaceAddr {
        InterfaceAddr::new(*self.0.uuid.lock(), &self.0.interfaces)
    }
}

const UNKNOWN: AbortCode = AbortCode::RXGEN_OPCODE;

impl rxafscb::Service for Service {
    async fn call_back(
        &self,
        _: &Caller,
        request: rxafscb::call_back::Request,
    ) -> Result<rxafscb::call_back::Reply, AbortCode> {
        assert_eq!(request.callbacks.len(), 0, "as OpenAFS sends it");
        self.hear(Heard::Break(request.fids.into_vec())).await;
        let aborts = &self.0.aborts;
        if aborts.load(Ordering::SeqCst) > 0 {
            aborts.fetch_sub(1, Ordering::SeqCst);
            return Err(AbortCode::RX_PROTOCOL_ERROR);
        }
        Ok(rxafscb::call_back::Reply {})
    }

    async fn init_call_back_state(
        &self,
        _: &Caller,
        _: rxafscb::init_call_back_state::Request,
    ) -> Result<rxafscb::init_call_back_state::Reply, AbortCode> {
        self.hear(Heard::Reset).await;
        Ok(rxafscb::init_call_back_state::Reply {})
    }

    async fn probe(
        &self,
        _: &Caller,
        _: rxafscb::probe::Request,
    ) -> Result<rxafscb::probe::Reply, AbortCode> {
        self.hear(Heard::Probe).await;
        Ok(rxafscb::probe::Reply {})
    }

    async fn who_are_you(
        &self,
        _: &Caller,
        _: rxafscb::who_are_you::Request,
    ) -> Result<rxafscb::who_are_you::Reply, AbortCode> {
        if self.0.age == Age::HasNoUuid {
            return Err(UNKNOWN);
        }
        self.hear(Heard::WhoAreYou).await;
        let host = self.interfaces();
        Ok(rxafscb::who_are_you::Reply { host })
    }

    async fn init_call_back_state3(
        &self,
        _: &Caller,
        request: rxafscb::init_call_back_state3::Request,
    ) -> Result<rxafscb::init_call_back_state3::Reply, AbortCode> {
        if self.0.age == Age::HasNoUuid {
            return Err(UNKNOWN);
        }
        self.hear(Heard::Reset3(request.server)).await;
        Ok(rxafscb::init_call_back_state3::Reply {})
    }

    async fn probe_uuid(
        &self,
        _: &Caller,
        request: rxafscb::probe_uuid::Request,
    ) -> Result<rxafscb::probe_uuid::Reply, AbortCode> {
        self.hear(Heard::ProbeUuid).await;
        if request.client == *self.0.uuid.lock() {
            Ok(rxafscb::probe_uuid::Reply {})
        } else {
            Err(AbortCode(1))
        }
    }

    async fn tell_me_about_yourself(
        &self,
        _: &Caller,
        _: rxafscb::tell_me_about_yourself::Request,
    ) -> Result<rxafscb::tell_me_about_yourself::Reply, AbortCode> {
        if self.0.age != Age::Current {
            return Err(UNKNOWN);
        }
        self.hear(Heard::TellMe).await;
        Ok(rxafscb::tell_me_about_yourself::Reply {
            host: self.interfaces(),
            capabilities: Capabilities::new(vec![1]).unwrap(),
        })
    }
}

/// A cache manager at one address.
pub(crate) struct Client {
    pub(crate) endpoint: Endpoint,
    service: Service,
}

impl Client {
    pub(crate) fn new(uuid: u8) -> Self {
        Self::of_age(uuid, Age::Current)
    }

    pub(crate) fn of_age(uuid: u8, age: Age) -> Self {
        Self::at(endpoint(), uuid, age, &["192.0.2.77".parse().unwrap()])
    }

    /// One that is called by its usual port at these addresses of its machine.
    pub(crate) fn multihomed(uuid: u8, addresses: [Ipv4Addr; 2]) -> [Self; 2] {
        let first = bind(addresses[0], 0);
        let second = bind(addresses[1], first.local_addr().port());
        [first, second].map(|endpoint| Self::at(endpoint, uuid, Age::Current, &addresses))
    }

    /// One at an address, where no other test's is.
    pub(crate) fn of_machine(uuid: u8, address: Ipv4Addr) -> Self {
        Self::at(bind(address, 0), uuid, Age::Current, &[address])
    }

    fn at(endpoint: Endpoint, uuid: u8, age: Age, interfaces: &[Ipv4Addr]) -> Self {
        let service = Service(Arc::new(Shared {
            age,
            uuid: Mutex::new(AfsUuid::from_random([uuid; 16])),
            interfaces: interfaces.to_vec(),
            heard: Mutex::default(),
            deaf: watch::Sender::new(false),
            calls: watch::Sender::new(0),
            aborts: AtomicU32::new(0),
        }));
        let server = rxafscb::Server::new(service.clone());
        endpoint.serve(rxafscb::SERVICE, rxafscb::NAME, server);
        Self { endpoint, service }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    pub(crate) fn uuid(&self) -> AfsUuid {
        *self.service.0.uuid.lock()
    }

    pub(crate) fn set_uuid(&self, uuid: u8) {
        *self.service.0.uuid.lock() = AfsUuid::from_random([uuid; 16]);
    }

    /// From now on it answers nothing, or again everything.
    pub(crate) fn set_deaf(&self, deaf: bool) {
        self.service.0.deaf.send_replace(deaf);
    }

    /// It aborts so many breaks, although it carries them out.
    pub(crate) fn abort_breaks(&self, number: u32) {
        self.service.0.aborts.store(number, Ordering::SeqCst);
    }

    /// What it has heard since this was asked last.
    pub(crate) fn heard(&self) -> Vec<Heard> {
        std::mem::take(&mut *self.service.0.heard.lock())
    }

    /// Waits until so many calls have come in, answered or not.
    pub(crate) async fn called(&self, times: usize) {
        let mut calls = self.service.0.calls.subscribe();
        let enough = calls.wait_for(|calls| *calls >= times);
        let _calls = tokio::time::timeout(Duration::from_secs(10), enough)
            .await
            .expect("the calls come")
            .unwrap();
    }

    /// Calls so far, answered or not.
    pub(crate) fn calls(&self) -> usize {
        *self.service.0.calls.borrow()
    }
}

pub(crate) fn endpoint() -> Endpoint {
    bind(Ipv4Addr::LOCALHOST, 0)
}

fn bind(address: Ipv4Addr, port: u16) -> Endpoint {
    Endpoint::bind((address, port).into(), Config::default()).unwrap()
}

/// A socket that nothing ever comes from.
pub(crate) fn hole() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

pub(crate) struct Server {
    pub(crate) endpoint: Endpoint,
    pub(crate) hosts: Arc<Hosts>,
}

/// Short times, so that tests of the impatient are short too.
pub(crate) fn config() -> HostsConfig {
    HostsConfig {
        break_wait: Duration::from_millis(200),
        change_wait: Duration::from_millis(800),
        break_limit: Duration::from_millis(1500),
        introduction_wait: Duration::from_millis(400),
        introduction_limit: Duration::from_millis(1500),
        told_limit: Duration::from_secs(2),
        remind_after: Duration::from_secs(60),
        ..HostsConfig::new(AfsUuid::from_random([9; 16]))
    }
}

/// Long times, where nothing is about them.
pub(crate) fn patient() -> HostsConfig {
    HostsConfig {
        break_wait: Duration::from_secs(10),
        change_wait: Duration::from_secs(20),
        introduction_wait: Duration::from_secs(10),
        introduction_limit: Duration::from_secs(20),
        ..config()
    }
}

impl Server {
    pub(crate) fn new(config: HostsConfig) -> Self {
        let (endpoint, hosts) = (endpoint(), Hosts::new(config));
        hosts.attach(&endpoint);
        Self { endpoint, hosts }
    }

    /// Waits until a host is down, for four seconds.
    pub(crate) async fn until_one_is_down(&self) {
        for _ in 0..200 {
            if self.hosts.stats().hosts_down == 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn identify(&self, client: &Client) -> Arc<Host> {
        self.identify_at(client.address()).await
    }

    /// The host of an address, which is served.
    pub(crate) async fn identify_at(&self, address: SocketAddr) -> Arc<Host> {
        let identified = self.hosts.identify(&self.endpoint, address);
        identified.await.unwrap()
    }

    /// A host in good standing that is promised these files and has heard nothing since.
    pub(crate) async fn holder(&self, client: &Client, fids: &[Fid]) -> Arc<Host> {
        let host = self.identify(client).await;
        for fid in fids {
            assert!(self.give(&host, *fid) > 0);
        }
        client.heard();
        host
    }

    /// Promises as a call does that succeeds. Returns for how many seconds.
    pub(crate) fn give(&self, host: &Arc<Host>, fid: Fid) -> u32 {
        let promise = self.hosts.promise(host, fid, false);
        self.hosts.callback(&promise).expires_in
    }
}

/// A file of volume 7.
pub(crate) fn file(number: u32) -> Fid {
    Fid::new(7, number * 2, 1)
}
