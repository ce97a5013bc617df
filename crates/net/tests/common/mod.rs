//! Services and endpoints that several tests use.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use afar_net::{AbortCode, Call, Config, Connection, Endpoint, Handler, RxNull, ServiceId};
use bytes::Bytes;

/// Sends back what it receives, as it comes.
pub(crate) const ECHO: ServiceId = ServiceId(1);
/// Receives everything, then replies with the number of bytes and their checksum.
pub(crate) const SINK: ServiceId = ServiceId(2);
/// Replies with as many bytes of [`pattern`] as the request's number says.
pub(crate) const SOURCE: ServiceId = ServiceId(3);
/// Aborts with the code in the request.
pub(crate) const ABORT: ServiceId = ServiceId(4);

/// A test that hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Echo;
pub(crate) struct Sink;
pub(crate) struct Source;
pub(crate) struct Abort;

impl Handler for Echo {
    async fn handle(&self, call: &mut Call) -> Result<(), AbortCode> {
        while let Some(chunk) = call.recv().await.map_err(|error| error.code())? {
            call.send(chunk).await.map_err(|error| error.code())?;
        }
        Ok(())
    }
}

impl Handler for Sink {
    async fn handle(&self, call: &mut Call) -> Result<(), AbortCode> {
        let mut sum = Checksum::default();
        while let Some(chunk) = call.recv().await.map_err(|error| error.code())? {
            sum.add(&chunk);
        }
        call.send(sum.finish()).await.map_err(|error| error.code())
    }
}

impl Handler for Source {
    async fn handle(&self, call: &mut Call) -> Result<(), AbortCode> {
        let length = call.read_exact(8).await.map_err(|error| error.code())?;
        let mut left = u64::from_be_bytes(length[..].try_into().unwrap());
        let block = pattern();
        while left > 0 {
            let part = block.len().min(usize::try_from(left).unwrap());
            call.send(block.slice(..part))
                .await
                .map_err(|error| error.code())?;
            left -= part as u64;
        }
        Ok(())
    }
}

impl Handler for Abort {
    async fn handle(&self, call: &mut Call) -> Result<(), AbortCode> {
        let code = call.read_exact(4).await.map_err(|error| error.code())?;
        Err(AbortCode(i32::from_be_bytes(code[..].try_into().unwrap())))
    }
}

/// A server with all services, at a port of its own.
pub(crate) fn server() -> Endpoint {
    let endpoint = endpoint();
    endpoint.serve(ECHO, "echo", Echo);
    endpoint.serve(SINK, "sink", Sink);
    endpoint.serve(SOURCE, "source", Source);
    endpoint.serve(ABORT, "abort", Abort);
    endpoint
}

pub(crate) fn endpoint() -> Endpoint {
    Endpoint::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap()
}

pub(crate) fn connect(client: &Endpoint, peer: SocketAddr, service: ServiceId) -> Connection {
    client.connect(peer, service, Arc::new(RxNull))
}

/// One call that sends `request` and gives the reply.
pub(crate) async fn ask(connection: &Connection, request: Bytes) -> Bytes {
    let mut call = connection.call().await.unwrap();
    call.send(request).await.unwrap();
    call.finish().await.unwrap();
    call.read_to_end(1 << 20).await.unwrap()
}

/// 1 MiB in which no two places look alike for long.
pub(crate) fn pattern() -> Bytes {
    let mut x = 1_u64;
    let words = (0..1 << 17).flat_map(|_| {
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        x.to_le_bytes()
    });
    words.collect()
}

/// Bytes counted and summed with regard to their order.
#[derive(Default)]
pub(crate) struct Checksum {
    octets: u64,
    a: u64,
    b: u64,
}

impl Checksum {
    pub(crate) fn add(&mut self, data: &[u8]) {
        self.octets += data.len() as u64;
        for &octet in data {
            self.a = (self.a + u64::from(octet)) % 65_521;
            self.b = (self.b + self.a) % 65_521;
        }
    }

    pub(crate) fn finish(&self) -> Bytes {
        let sum = [
            self.octets.to_be_bytes(),
            (self.b << 16 | self.a).to_be_bytes(),
        ]
        .concat();
        sum.into()
    }
}
