//! How fast a file comes: by one call at a time, and by several.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use afar_net::{ClientSecurity, Endpoint};
use afar_rpc::{RpcError, rxafs};
use afar_types::Fid;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::measured::Rate;

/// Calls of a connection.
const CHANNELS: u32 = 4;
/// For how long data comes: longer on long paths, where calls begin slowly.
const TIME_LEAST: Duration = Duration::from_secs(3);
const TIME_MOST: Duration = Duration::from_secs(5);
const ROUND_TRIPS: f64 = 20.0;
/// How much comes at the most.
const BYTES_MOST: u64 = 256 << 20;
/// The interval between two samples of the bytes received.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// A file to fetch, and as whom.
#[derive(Clone)]
pub struct File {
    /// Which.
    pub fid: Fid,
    /// Its length in bytes.
    pub length: u64,
    /// How connections to the server are secured.
    pub security: Arc<dyn ClientSecurity>,
    /// Whether that seals the packets.
    pub sealed: bool,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("fid", &self.fid)
            .field("length", &self.length)
            .field("sealed", &self.sealed)
            .finish_non_exhaustive()
    }
}

/// Fetches a file again and again for a while, each call its part of it.
///
/// # Errors
/// Why nothing came.
pub(crate) async fn fetch(
    endpoint: &Endpoint,
    server: SocketAddr,
    file: &File,
    calls: u32,
    rtt_s: f64,
) -> Result<Rate, RpcError> {
    let long = Duration::from_secs_f64((rtt_s * ROUND_TRIPS).clamp(0.0, 60.0));
    let begin = Instant::now();
    let end = begin + long.clamp(TIME_LEAST, TIME_MOST);
    let come = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    let mut client = None;
    for call in 0..calls {
        if call % CHANNELS == 0 {
            let security = Arc::clone(&file.security);
            let connection = endpoint.connect(server, rxafs::SERVICE, security);
            client = Some(rxafs::Client::new(connection));
        }
        let part = |n: u32| u64::from(n) * (file.length / u64::from(calls));
        let (from, to) = (
            part(call),
            if call + 1 == calls {
                file.length
            } else {
                part(call + 1)
            },
        );
        if let Some(client) = client.clone().filter(|_| from < to) {
            let (come, fid) = (Arc::clone(&come), file.fid);
            running.spawn(async move { again(&client, fid, from, to, &come).await });
        }
    }
    let mut looks = vec![(begin, 0)];
    let mut failure = None;
    loop {
        let next = Instant::now() + LOOK_EVERY;
        tokio::select! {
            Some(ended) = running.join_next() => {
                // A call ends by itself only if it fails.
                failure = ended.ok().or(failure);
            }
            () = sleep_until(next) => {}
        }
        let (now, bytes) = (Instant::now(), come.load(Ordering::Relaxed));
        looks.push((now, bytes));
        if now >= end || bytes >= BYTES_MOST || running.is_empty() {
            break;
        }
    }
    // What is still under way is given up, and the server told so.
    running.shutdown().await;
    match (looks.last(), failure) {
        (Some((_, 0)), Some(error)) => Err(error),
        _ => Ok(rate(&looks, calls)),
    }
}

/// Fetches a range of a file until that fails.
async fn again(client: &rxafs::Client, fid: Fid, from: u64, to: u64, come: &AtomicU64) -> RpcError {
    let place = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    loop {
        let one = async {
            let mut reply = client
                .fetch_data64(fid, place(from), place(to - from))
                .await?;
            let mut bytes = 0;
            while let Some(chunk) = reply.chunk().await? {
                bytes += chunk.len() as u64;
                come.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            }
            reply.finish().await?;
            Ok::<u64, RpcError>(bytes)
        };
        match one.await {
            Err(error) => return error,
            // The file has become shorter: nothing keeps this from going round and round.
            Ok(0) => tokio::time::sleep(LOOK_EVERY).await,
            Ok(_) => {}
        }
    }
}

/// The rate in the second half of the time, when calls have begun.
fn rate(looks: &[(Instant, u64)], calls: u32) -> Rate {
    let (Some(&(begin, _)), Some(&(end, bytes))) = (looks.first(), looks.last()) else {
        return Rate::default();
    };
    let half = begin + (end - begin) / 2;
    let middle = looks.iter().rev().find(|(at, _)| *at <= half);
    let (at, before) = middle.copied().unwrap_or((begin, 0));
    let time = (end - at).as_secs_f64().max(1e-6);
    let bytes_per_s = bytes.saturating_sub(before) as f64 / time;
    Rate {
        calls,
        bytes,
        bytes_per_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_does_not_count() {
        let begin = Instant::now();
        let at = |ms, bytes| (begin + Duration::from_millis(ms), bytes);
        let looks = [
            at(0, 0),
            at(500, 10),
            at(1000, 1000),
            at(1500, 501_000),
            at(2000, 1_001_000),
        ];
        let rate = rate(&looks, 6);
        assert_eq!((rate.calls, rate.bytes), (6, 1_001_000));
        assert!((rate.bytes_per_s - 1e6).abs() < 1.0, "{rate:?}");
        assert!(super::rate(&[], 1).bytes_per_s.abs() < f64::EPSILON);
    }
}
