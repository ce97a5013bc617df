//! One part of a file out of band.

use std::net::SocketAddr;

use afar_net::{AbortCode, CallError};
use afar_rpc::rxafs::store_data64;
use afar_rpc::{RpcCause, RpcError};
use tokio::sync::Notify;

use super::Source;
use super::part::{Outcome, Part};
use crate::oob::{Counted, Ended, StoreEnd, Storing};

/// Stores a part, and counts it; tells `all_sent` when it only waits for the server. `None` if the part has to go by
/// Rx, all of it.
pub(super) async fn store<S: Source>(
    mut storing: Storing,
    counted: Counted,
    server: SocketAddr,
    part: Part,
    source: &S,
    all_sent: &Notify,
) -> Option<Result<Outcome, RpcError>> {
    let mut sent = 0;
    let ended = loop {
        if sent == part.length {
            all_sent.notify_one();
            break storing.end().await;
        }
        let data = match part.read(source, sent).await {
            Ok(data) => data,
            Err(error) => return Some(Ok(Outcome::Source(error))),
        };
        let length = data.len();
        if let Err(ended) = storing.send(data).await {
            break ended;
        }
        sent += length as u64;
        if counted.moved(length) && sent < part.length {
            storing.too_slow();
            break StoreEnd::Left;
        }
    };
    counted.ended(match ended {
        StoreEnd::Stored(_) => Ended::Done,
        StoreEnd::Refused(_) => Ended::Aborted,
        StoreEnd::Restored | StoreEnd::Declined | StoreEnd::Left => Ended::ByRx,
    });
    match ended {
        StoreEnd::Stored(status) => Some(Ok(Outcome::Done(*status))),
        StoreEnd::Refused(code) => Some(Err(RpcError {
            operation: store_data64::OPERATION,
            peer: server,
            cause: RpcCause::Call(CallError::Aborted(AbortCode(code))),
        })),
        StoreEnd::Restored | StoreEnd::Declined | StoreEnd::Left => None,
    }
}
