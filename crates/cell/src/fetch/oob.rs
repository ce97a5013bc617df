//! One piece of a file out of band.

use std::net::SocketAddr;
use std::sync::Arc;

use afar_net::{AbortCode, CallError};
use afar_oob::Unpacker;
use afar_oob::frame::{Data, cost};
use afar_rpc::rxafs::fetch_data64;
use afar_rpc::{RpcCause, RpcError};
use tokio::time::Instant;

use super::Sink;
use super::piece::{Filling, Outcome, Piece, WRITE};
use crate::oob::{Counted, Ended, Event, Transfer};
use crate::window::Permit;

/// How it went.
#[derive(Debug)]
pub(super) enum Went {
    /// As by Rx.
    Ended(Outcome),
    /// The server refused it, as it would by Rx.
    Refused(RpcError),
    /// The connection ended, or the server has no room. What is left from here on is to be asked for by Rx.
    Left(u64),
}

/// Fetches a piece into a sink, tells the window how it goes, and counts it. What came is in the sink, whatever happens.
///
/// The version told at the end is that of what came before, too, as it is the one known before, and versions only
/// grow. That holds as well if the end is told by Rx.
// spec: oob#transfers
pub(super) async fn fetch<S: Sink>(
    mut transfer: Transfer,
    counted: Counted,
    server: SocketAddr,
    piece: Piece,
    sink: &Arc<S>,
    permit: &mut Permit,
) -> Went {
    let begun = Instant::now();
    let mut filling = Filling::new(sink, piece.offset);
    let mut unpacker = Unpacker::default();
    let mut end = piece.offset;
    let mut unused = 0;
    let went = loop {
        match transfer.next().await {
            Some(Event::Reply(length)) if length <= piece.length => {
                permit.answered(begun.elapsed());
                end = piece.offset + length;
            }
            Some(Event::Data(Data { head, stored })) => {
                let length = stored.len();
                let is_next = head.offset == filling.place()
                    && end.saturating_sub(head.offset) >= u64::from(head.plain);
                let data = unpacker.unpack(head.codec, stored, head.plain, head.checksum);
                let data = match data {
                    Ok(data) if is_next => data,
                    Ok(_) => {
                        tracing::warn!(%server, "data came out of band that was not asked for");
                        transfer.distrust();
                        break None;
                    }
                    Err(error) => {
                        tracing::warn!(%server, %error, "data that came out of band is damaged");
                        transfer.distrust();
                        break None;
                    }
                };
                unused += cost(u32::try_from(length).unwrap_or(u32::MAX));
                permit.received(data.len());
                let is_slow = counted.moved(data.len());
                filling.take(data);
                if is_slow {
                    transfer.too_slow();
                    break None;
                }
                if filling.held >= WRITE {
                    if let Err(error) = filling.write().await {
                        return Went::Ended(Outcome::Sink(error));
                    }
                    transfer.used(std::mem::take(&mut unused));
                }
            }
            Some(Event::End(ended)) if filling.place() == end => {
                let status = ended.status;
                let is_all = end == piece.offset + piece.length;
                break Some(if is_all && status.data_version == piece.version {
                    Went::Ended(Outcome::Done(piece.length))
                } else {
                    Went::Ended(Outcome::Changed(status))
                });
            }
            Some(Event::Abort(code)) => {
                break Some(Went::Refused(RpcError {
                    operation: fetch_data64::OPERATION,
                    peer: server,
                    cause: RpcCause::Call(CallError::Aborted(AbortCode(code))),
                }));
            }
            Some(Event::Reply(_) | Event::End(_) | Event::Dumped(_)) => {
                tracing::warn!(%server, "the length of data out of band is wrong");
                transfer.distrust();
                break None;
            }
            Some(Event::Decline) | None => break None,
        }
    };
    let is_void = matches!(went, Some(Went::Ended(Outcome::Changed(_))));
    if !is_void && let Err(error) = filling.write().await {
        return Went::Ended(Outcome::Sink(error));
    }
    counted.ended(match went {
        Some(Went::Ended(_)) => Ended::Done,
        Some(Went::Refused(_)) => Ended::Aborted,
        Some(Went::Left(_)) | None => Ended::ByRx,
    });
    went.unwrap_or_else(|| Went::Left(filling.place()))
}
