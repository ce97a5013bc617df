//! Which server is asked first: ranks that a user gives, and how far servers are and how fast.
//!
//! A server's rank is a number from 0 to 65,535, the less the better, as users of `fs setserverprefs`
//! know it. OpenAFS guesses one from the network a server is in: 20,000 for its own, 40,000 for others.
//! Here a server has 20,000 and one for each tenth of a millisecond that a file of 256 KiB takes from it: a
//! round trip, and the time to bring the data at the highest rate of late. One that has not yet been asked for
//! much is taken to be as fast as the fastest is, which is what the way from here allows. While the round trip is
//! not known the rank is 40,000. A rank that is given counts instead.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// The rank of a server at no distance.
const NEAREST: u16 = 20_000;
/// The rank of a server whose distance is not known. All measured ones are below.
const UNKNOWN: u16 = 40_000;
/// The bytes of the file.
const FILE: f64 = 262_144.0;
/// What a rank is made of.
const UNIT: Duration = Duration::from_micros(100);
/// By so much at least another server is to be better than the one in use.
const BETTER: u16 = 10;
/// As a part of the distance.
const BETTER_PART: u16 = 8;

/// What a server is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerKind {
    /// Files.
    File,
    /// Where volumes are.
    Location,
}

/// How far a server is, as far as that was measured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Distance {
    /// The least round trip time.
    pub(crate) rtt: Option<Duration>,
    /// Bytes that come from it in a second.
    pub(crate) rate: Option<f64>,
}

/// Ranks that were given to servers.
#[derive(Debug, Default)]
pub(crate) struct Preferences {
    ranks: Mutex<BTreeMap<(ServerKind, IpAddr), u16>>,
    changes: AtomicU64,
}

impl Preferences {
    /// Ranks to begin with.
    pub(crate) fn new(ranks: impl IntoIterator<Item = (ServerKind, IpAddr, u16)>) -> Self {
        let preferences = Self::default();
        for (kind, host, rank) in ranks {
            preferences.set(kind, host, rank);
        }
        preferences
    }

    /// Gives a server a rank.
    pub(crate) fn set(&self, kind: ServerKind, host: IpAddr, rank: u16) {
        self.lock().insert((kind, host), rank);
        // After the rank: one that sees the count finds the rank.
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// The rank that a server was given.
    pub(crate) fn get(&self, kind: ServerKind, host: IpAddr) -> Option<u16> {
        self.lock().get(&(kind, host)).copied()
    }

    /// The ranks that were given to servers of a kind.
    pub(crate) fn given(&self, kind: ServerKind) -> BTreeMap<IpAddr, u16> {
        let ranks = self.lock();
        let of_kind = ranks.iter().filter(|((of, _), _)| *of == kind);
        of_kind.map(|((_, host), rank)| (*host, *rank)).collect()
    }

    /// The rank of a server, by how far it is if none was given.
    pub(crate) fn rank(&self, kind: ServerKind, host: IpAddr, distance: Distance) -> u16 {
        self.get(kind, host).unwrap_or_else(|| measured(distance))
    }

    /// How often a rank was given.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(ServerKind, IpAddr), u16>> {
        self.ranks.lock()
    }
}

/// A server's address and its rank, as a line of text has them.
#[must_use]
pub fn parse_rank(line: &str) -> Option<(IpAddr, u16)> {
    let (host, rank) = line.split_once(' ')?;
    Some((host.parse().ok()?, rank.parse().ok()?))
}

/// The rank of a server at a distance.
fn measured(Distance { rtt, rate }: Distance) -> u16 {
    let Some(rtt) = rtt else {
        return UNKNOWN;
    };
    let bringing = rate.map_or(Duration::ZERO, |rate| {
        Duration::from_secs_f64(FILE / rate.max(1.0))
    });
    let units = (rtt + bringing).as_micros() / UNIT.as_micros();
    let units = u16::try_from(units).unwrap_or(u16::MAX);
    NEAREST.saturating_add(units).min(UNKNOWN - 1)
}

/// Puts servers in order by their ranks. The one in front stays there unless another is clearly
/// better: round trips vary.
pub(crate) fn in_order<T>(mut ranked: Vec<(u16, T)>) -> Vec<T> {
    if let Some((rank, _)) = ranked.first_mut()
        // Of others nothing was measured, or a user meant just that order.
        && (NEAREST..UNKNOWN).contains(rank)
    {
        *rank -= BETTER.max((*rank - NEAREST) / BETTER_PART);
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, server)| server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_is_given_counts_and_else_the_distance() {
        let host = IpAddr::from([192, 0, 2, 1]);
        let preferences = Preferences::default();
        let rank = |rtt, rate| preferences.rank(ServerKind::File, host, Distance { rtt, rate });
        let (near, far) = (Duration::from_micros(12_530), Duration::from_secs(60));
        assert_eq!(rank(None, None), 40_000);
        assert_eq!(rank(Some(near), None), 20_125);
        assert_eq!(rank(Some(near), Some(262_144.0 * 100.0)), 20_225);
        assert_eq!(rank(Some(near), Some(0.0)), 39_999);
        assert_eq!(rank(Some(far), None), 39_999);
        preferences.set(ServerKind::File, host, 7);
        assert_eq!(rank(Some(far), None), 7);
        assert_eq!(preferences.get(ServerKind::Location, host), None);
        assert_eq!(preferences.changes(), 1);
    }

    #[test]
    fn the_first_gives_way_to_what_is_clearly_better_only() {
        assert_eq!(in_order(vec![(20_025, 1), (20_020, 2)]), [1, 2]);
        assert_eq!(in_order(vec![(20_125, 1), (20_020, 2)]), [2, 1]);
        assert_eq!(
            in_order(vec![(22_000, 1), (21_900, 2), (40_000, 3)]),
            [1, 2, 3]
        );
        assert_eq!(
            in_order(vec![(22_000, 1), (40_000, 3), (21_700, 2)]),
            [2, 1, 3]
        );
        assert_eq!(in_order(vec![(20_000, 1), (19_999, 2)]), [1, 2]);
        assert_eq!(in_order(vec![(40_000, 1), (39_000, 2)]), [2, 1]);
        assert_eq!(in_order(vec![(3, 1), (2, 2), (3, 3)]), [2, 1, 3]);
    }
}
