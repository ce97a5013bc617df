//! The server's side of a call: arguments in, results out, data as a stream, in the call or beside it.

mod beside;
mod sink;
mod source;
mod stream;

use std::ffi::CStr;
use std::net::SocketAddr;
use std::time::Duration;

use afar_net::{AbortCode, Call, CallError, Identity, ServiceId};
use afar_xdr::{Decode, Decoder, Encode, to_bytes};
use bytes::{Bytes, BytesMut};

use crate::Operation;

pub(crate) use beside::Beside;
pub use sink::{FetchSink, Outlet, Outletting, Packed};
pub use source::{Inlet, StoreSource};
pub use stream::{DownloadSink, UploadSource};

/// Bytes a request may have beyond its arguments; they are ignored, as OpenAFS ignores them.
// spec: afs-rpc#encoding
const SLACK: usize = 1024;

/// The caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The address the call comes from.
    pub peer: SocketAddr,
    /// The service it was made to.
    pub service: ServiceId,
    /// The authenticated identity of the caller.
    pub identity: Identity,
}

impl Caller {
    /// The caller at an endpoint whose clients are known by having reached it. An administrator's
    /// endpoint makes every client one; otherwise what the client has proved counts more.
    pub(crate) fn of(call: &Call, endpoint: &Identity) -> Self {
        let identity = match (call.identity(), endpoint) {
            (Identity::Anonymous, _) | (_, Identity::Superuser) => endpoint,
            (proved, _) => proved,
        };
        Self {
            peer: call.peer(),
            service: call.service(),
            identity: identity.clone(),
        }
    }
}

/// A call that was served, all but the end of its reply.
#[derive(Debug)]
#[non_exhaustive]
pub struct Served<'a> {
    /// The row of the operation in its interface's table; `None` if its opcode is in no row.
    pub row: Option<usize>,
    /// The caller.
    pub caller: &'a Caller,
    /// How long it took.
    pub took: Duration,
    /// Bytes from the client, with the opcode.
    pub received_bytes: u64,
    /// Bytes to the client.
    pub sent_bytes: u64,
    /// The code it is aborted with, if it failed.
    pub result: Result<(), AbortCode>,
}

impl<'a> Served<'a> {
    /// Without any bytes.
    #[must_use]
    pub fn new(
        row: Option<usize>,
        caller: &'a Caller,
        took: Duration,
        result: Result<(), AbortCode>,
    ) -> Self {
        Self {
            row,
            caller,
            took,
            received_bytes: 0,
            sent_bytes: 0,
            result,
        }
    }

    /// With the bytes of a call.
    pub(crate) fn by(mut self, call: &Call) -> Self {
        self.received_bytes = call.received_bytes();
        self.sent_bytes = call.sent_bytes();
        self
    }

    /// Tells of it by a probe. Its row is one of these.
    pub(crate) fn probe(&self, operations: &[&Operation]) {
        afar_probes::rpc_done(&afar_probes::Rpc {
            operation: label(operations, self.row),
            client: self.caller.peer,
            took: self.took,
            code: self.result.err().map_or(0, |code| code.0),
            received: self.received_bytes,
            sent: self.sent_bytes,
        });
    }
}

/// Tells by a probe that a call begins to be served, of the operation in this row.
pub(crate) fn start_probe(operations: &[&Operation], row: Option<usize>, caller: &Caller) {
    afar_probes::rpc_start(label(operations, row), caller.peer);
}

fn label(operations: &[&Operation], row: Option<usize>) -> &'static CStr {
    let operation = row.and_then(|row| operations.get(row));
    operation.map_or(c"(unknown)", |operation| operation.label)
}

/// The code to abort with when a request could not be read.
fn unreadable(error: CallError) -> AbortCode {
    match error {
        CallError::UnexpectedEnd | CallError::TooLong => AbortCode::RXGEN_SS_UNMARSHAL,
        other => other.code(),
    }
}

pub(crate) async fn read_opcode(call: &mut Call) -> Result<u32, AbortCode> {
    let word = call.read_exact(4).await.map_err(unreadable)?;
    u32::decode(&mut Decoder::new(&word)).map_err(|_| AbortCode::RXGEN_SS_UNMARSHAL)
}

/// Reads the arguments of an operation after which the client sends nothing; also returns them as
/// they came.
pub(crate) async fn read_request<Q: Decode>(call: &mut Call) -> Result<(Q, Bytes), AbortCode> {
    let limit = Q::MAX_LEN.saturating_add(SLACK);
    let body = call.read_to_end(limit).await.map_err(unreadable)?;
    match Q::decode(&mut Decoder::new(&body)) {
        Ok(request) => Ok((request, body)),
        Err(_) => Err(AbortCode::RXGEN_SS_UNMARSHAL),
    }
}

/// Reads arguments that data follows; also returns them as they came, and the data that came with
/// the last of them.
pub(crate) async fn read_arguments<Q: Decode>(
    call: &mut Call,
) -> Result<(Q, Bytes, Bytes), AbortCode> {
    let mut body = BytesMut::new();
    loop {
        let mut input = Decoder::new(&body);
        match Q::decode(&mut input) {
            Ok(request) => {
                let data = body.split_off(input.offset());
                return Ok((request, body.freeze(), data.freeze()));
            }
            Err(error) if error.is_truncated() && body.len() < Q::MAX_LEN => {}
            Err(_) => return Err(AbortCode::RXGEN_SS_UNMARSHAL),
        }
        match call.recv().await.map_err(unreadable)? {
            Some(chunk) => body.extend_from_slice(&chunk),
            None => return Err(AbortCode::RXGEN_SS_UNMARSHAL),
        }
    }
}

/// Queues the results. The endpoint sends the end of the reply when the handler returns, after the call
/// was counted: a client that has its answer finds its call in the counters.
pub(crate) async fn send_reply(call: &mut Call, reply: &impl Encode) -> Result<(), AbortCode> {
    call.send(to_bytes(reply))
        .await
        .map_err(|error| error.code())
}
