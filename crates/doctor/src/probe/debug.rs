//! What `rxdebug` asks: threads, and what the server knows of the path to us.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use afar_rx::packet::PacketType;
use afar_rx::packet::debug::{PeerAnswer, Question, Row, StatsAnswer};
use tokio::time::{Instant, sleep};

use super::wire::{Heard, Wire};
use crate::measured::{PeerView, Threads};

/// How long an answer may take, and how often the question is sent.
const ANSWER: Duration = Duration::from_millis(600);
const TRIES: u32 = 3;
/// Rows of the table of peers that are asked for, and how many at a time.
const PEERS_MAX: u32 = 64;
const PEERS_AT_A_TIME: u32 = 16;

/// Looks several times whether calls wait for a thread. Fewer looks came about if answers were lost; none if the
/// server tells nothing.
///
/// # Errors
/// Those of opening a socket.
pub async fn threads(peer: SocketAddr, looks: u32, every: Duration) -> io::Result<Vec<Threads>> {
    let mut wire = Wire::open(peer).await?;
    let mut found = Vec::new();
    for look in 0..looks {
        let Some(stats) = stats(&mut wire, look * TRIES).await else {
            if found.is_empty() {
                break;
            }
            continue;
        };
        let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        found.push(Threads {
            waiting: small(stats.waiting),
            idle: small(stats.idle),
        });
        sleep(every).await;
    }
    Ok(found)
}

async fn stats(wire: &mut Wire, base: u32) -> Option<StatsAnswer> {
    for number in base..base + TRIES {
        // Another try is made in any case.
        wire.ask(PacketType::Debug, number, &Question::Stats.encode())
            .await
            .ok();
        let until = Instant::now() + ANSWER;
        loop {
            match wire.hear(until).await {
                Heard::Packet(header, body) if header.packet_type == PacketType::Debug => {
                    // A late answer to an earlier try is as good.
                    if let Some(stats) = StatsAnswer::decode(body) {
                        return Some(stats);
                    }
                }
                Heard::Nothing => break,
                _ if Instant::now() >= until => break,
                _ => {}
            }
        }
    }
    None
}

/// The server's row for a client of this machine: the one of this address, or, where a NAT has changed that, the only
/// one with this port.
///
/// # Errors
/// Those of opening a socket.
pub(crate) async fn peer_view(peer: SocketAddr, client_port: u16) -> io::Result<Option<PeerView>> {
    let mut wire = Wire::open(peer).await?;
    let own = wire.socket().local_addr()?.ip();
    let mut same_port = Vec::new();
    for begin in (0..PEERS_MAX).step_by(PEERS_AT_A_TIME as usize) {
        for index in begin..begin + PEERS_AT_A_TIME {
            let question = Question::Peer { index };
            wire.ask(PacketType::Debug, index, &question.encode())
                .await
                .ok();
        }
        let (mut answers, mut has_ended) = (0, false);
        let until = Instant::now() + ANSWER;
        while answers < PEERS_AT_A_TIME && Instant::now() < until {
            let row = match wire.hear(until).await {
                Heard::Nothing => break,
                Heard::Packet(header, body) if header.packet_type == PacketType::Debug => {
                    PeerAnswer::decode(body)
                }
                _ => None,
            };
            answers += 1;
            match row {
                Some(Row::End) => has_ended = true,
                Some(Row::Entry(row)) if row.address.port() == client_port => {
                    if row.address.ip() == own {
                        return Ok(Some(view(&row)));
                    }
                    same_port.push(row);
                }
                Some(Row::Entry(_)) | None => {}
            }
        }
        if has_ended || answers == 0 {
            break;
        }
    }
    Ok(match same_port.as_slice() {
        [row] => Some(view(row)),
        _ => None,
    })
}

fn view(row: &PeerAnswer) -> PeerView {
    let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    PeerView {
        rtt_s: row.rtt.as_secs_f64(),
        sent: count(row.sent),
        resent: count(row.resent),
        window_packets: u16::try_from(row.window_packets).unwrap_or(u16::MAX),
    }
}
