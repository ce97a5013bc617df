//! Which sizes of packets reach the server, by VERSION packets with zeros behind them that no router may cut.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use afar_rx::packet::{HEADER_SIZE, PacketType};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, ip_mtu, ipv6_mtu, set_ip_mtu_discover,
    set_ipv6_mtu_discover,
};
use tokio::time::Instant;

use super::wire::{Heard, Wire, is_too_large};
use crate::measured::Mtu;

/// IP packets tried first: the least of IPv4 and IPv6, tunnels, PPPoE, Rx's largest classic packet, Ethernet, jumbo
/// frames.
const SIZES: [u32; 11] = [
    576, 1000, 1280, 1400, 1420, 1452, 1472, 1480, 1492, 1500, 9000,
];
/// Between the largest that passes and the least that does not, as many more are tried.
const BETWEEN: u32 = 8;
/// So near to each other these two need not be.
const NEAR: u32 = 4;
/// How often each is sent until it is answered.
const TRIES: u32 = 4;
const EVERY: Duration = Duration::from_millis(120);
/// How long the answers to the last ones are awaited.
const LAST: Duration = Duration::from_millis(700);

/// Tries sizes; `None` if not even the least is answered.
///
/// # Errors
/// Those of opening a socket.
pub(crate) async fn mtu(peer: SocketAddr) -> io::Result<Option<Mtu>> {
    let mut wire = Wire::open(peer).await?;
    let is_v4 = peer.is_ipv4();
    forbid_fragments(&wire, is_v4)?;
    let route = route_mtu(&wire, is_v4)?;
    let headers = if is_v4 { 28 } else { 48 };
    let first: BTreeSet<u32> = SIZES.into_iter().filter(|size| *size <= route).collect();
    let passed = round(&mut wire, 1, &first, headers).await;
    let Some(largest) = passed.last().copied() else {
        return Ok(None);
    };
    // What a router has told of meanwhile is no hole.
    let told = route_mtu(&wire, is_v4)?;
    let lost = |passed: &BTreeSet<u32>, tried: &BTreeSet<u32>, largest| {
        let silent = tried.difference(passed).copied();
        silent.filter(|size| *size > largest && *size <= told).min()
    };
    let mut found = Mtu {
        route,
        passed: largest,
        lost: lost(&passed, &first, largest),
    };
    if let Some(least) = found.lost
        && least - largest > NEAR
    {
        let step = (least - largest)
            .div_ceil(BETWEEN + 1)
            .next_multiple_of(NEAR);
        let between: BTreeSet<u32> = (1..=BETWEEN)
            .map(|n| largest + n * step)
            .filter(|size| *size < least)
            .collect();
        let passed = round(&mut wire, 1000, &between, headers).await;
        found.passed = passed.last().copied().unwrap_or(largest);
        found.lost = lost(&passed, &between, found.passed).or(found.lost);
    }
    Ok(Some(found))
}

/// Sends a packet of each size, several times if it is not answered; those that were.
async fn round(wire: &mut Wire, base: u32, sizes: &BTreeSet<u32>, headers: u32) -> BTreeSet<u32> {
    let mut passed = BTreeSet::new();
    let mut too_large = BTreeSet::new();
    for turn in 1..=TRIES {
        for (number, size) in (base..).zip(sizes) {
            if passed.contains(size) || too_large.contains(size) {
                continue;
            }
            let zeros = (size - headers) as usize - HEADER_SIZE;
            if let Err(error) = wire.ask(PacketType::Version, number, &vec![0; zeros]).await
                && is_too_large(&error)
            {
                too_large.insert(*size);
            }
        }
        let wait = if turn == TRIES { LAST } else { EVERY };
        let until = Instant::now() + wait;
        while passed.len() + too_large.len() < sizes.len() && Instant::now() < until {
            match wire.hear(until).await {
                Heard::Nothing => break,
                Heard::Packet(header, _) if header.packet_type == PacketType::Version => {
                    let number = header.call_number.0.checked_sub(base);
                    let size = number.and_then(|number| sizes.iter().nth(number as usize));
                    passed.extend(size);
                }
                Heard::Packet(..) | Heard::Refused | Heard::TooLarge => {}
            }
        }
    }
    passed
}

fn forbid_fragments(wire: &Wire, is_v4: bool) -> io::Result<()> {
    let socket = wire.socket();
    match is_v4 {
        true => set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO)?,
        false => set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DO)?,
    }
    Ok(())
}

/// What the system knows of the path.
fn route_mtu(wire: &Wire, is_v4: bool) -> io::Result<u32> {
    Ok(match is_v4 {
        true => ip_mtu(wire.socket())?,
        false => ipv6_mtu(wire.socket())?,
    })
}

#[cfg(test)]
mod tests {
    use afar_rx::packet::{Flags, Header};
    use tokio::net::UdpSocket;

    use super::*;

    /// A server behind a tunnel that swallows what is larger than this.
    async fn behind(most: usize) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = vec![0; 1 << 16];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                if length + 28 > most {
                    continue;
                }
                let header = Header::decode(&buffer[..length]).unwrap();
                let flags = header.flags.without(Flags::CLIENT_INITIATED);
                let answer = Header { flags, ..header }.encode();
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn a_hole_is_found_and_where_it_begins() {
        let found = mtu(behind(1431).await).await.unwrap().unwrap();
        assert_eq!((found.passed, found.lost), (1428, Some(1432)));
    }

    #[tokio::test]
    async fn a_path_without_a_hole_has_none() {
        let found = mtu(behind(usize::MAX).await).await.unwrap().unwrap();
        assert_eq!((found.passed, found.lost), (9000, None));
        assert!(found.route > 9000);
    }

    #[tokio::test]
    async fn of_a_silent_server_nothing_is_said() {
        assert_eq!(mtu(behind(0).await).await.unwrap(), None);
    }
}
