//! What is known of addresses, without ports: which have proved that they receive what is sent there, and how often
//! each is answered.
//!
//! Anybody can put any address on a packet. So what is sent to one that has not answered is at most three times
//! what came from there (as in QUIC, RFC 9000 §8.1; a [path](crate::peer) counts it), and an address is believed only
//! when it repeats something that it cannot know unless it has got it. Tables are bounded: an address that is
//! forgotten proves itself once more.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Bytes that an address may be sent for each that came from it, before it has answered.
pub(crate) const AMPLIFICATION: usize = 3;
/// How long an address is believed after its last proof. OpenAFS's file server believes for a minute.
// spec: rx#reach-check, rx-strangers#proofs
pub(crate) const BELIEVED: Duration = Duration::from_secs(600);
/// How often a proof is noted for the address, besides for its path.
pub(crate) const NOTE_EVERY: Duration = Duration::from_secs(30);
/// Addresses of a kind that are remembered: this many at least, twice as many at most.
const REMEMBERED: usize = 32_768;

/// What is known of addresses.
#[derive(Debug)]
pub(crate) struct Addresses {
    /// When each last proved that it receives.
    reached: Recent<Instant>,
    /// Answers to each.
    answered: Recent<TokenBucket>,
    /// Answers to all together.
    answers: TokenBucket,
    challenges: TokenBucket,
}

impl Addresses {
    /// Answers a second, and at once, to one address.
    const EACH: (f64, f64) = (100.0, 200.0);
    /// The same to all.
    const ALL: (f64, f64) = (1000.0, 500.0);
    /// Challenges to all that have not answered: more, as clients that are to prove who they are wait for them.
    const CHALLENGES: (f64, f64) = (20_000.0, 5_000.0);

    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            reached: Recent::new(),
            answered: Recent::new(),
            answers: TokenBucket::full(Self::ALL, now),
            challenges: TokenBucket::full(Self::CHALLENGES, now),
        }
    }

    /// When this address last proved that it receives, if that still counts.
    pub(crate) fn reached_at(&mut self, ip: IpAddr, now: Instant) -> Option<Instant> {
        let at = *self.reached.get(ip)?;
        is_believed(Some(at), now).then_some(at)
    }

    /// It has proved it.
    pub(crate) fn on_reached(&mut self, ip: IpAddr, now: Instant) {
        *self.reached.entry(ip, || now) = now;
    }

    /// Whether one more packet is answered that belongs to no call: with an ABORT, a VERSION, a DEBUG.
    pub(crate) fn may_answer(&mut self, now: Instant, ip: IpAddr) -> bool {
        // Its own first: an address that asks too often takes nothing of what is for all.
        self.bucket(now, ip).take(now) && self.answers.take(now)
    }

    /// Whether one more client at an address that has not answered is asked who it is.
    pub(crate) fn may_challenge(&mut self, now: Instant, ip: IpAddr) -> bool {
        self.bucket(now, ip).take(now) && self.challenges.take(now)
    }

    fn bucket(&mut self, now: Instant, ip: IpAddr) -> &mut TokenBucket {
        (self.answered).entry(ip, || TokenBucket::full(Self::EACH, now))
    }
}

/// Whether an address that proved at this time that it receives is still believed.
pub(crate) fn is_believed(reached_at: Option<Instant>, now: Instant) -> bool {
    reached_at.is_some_and(|at| now.saturating_duration_since(at) < BELIEVED)
}

/// A map that forgets what was not used for longest, in two halves.
#[derive(Debug)]
struct Recent<V> {
    young: BTreeMap<IpAddr, V>,
    old: BTreeMap<IpAddr, V>,
}

impl<V: Copy> Recent<V> {
    const fn new() -> Self {
        Self {
            young: BTreeMap::new(),
            old: BTreeMap::new(),
        }
    }

    fn get(&mut self, ip: IpAddr) -> Option<&mut V> {
        let value = *self.young.get(&ip).or_else(|| self.old.get(&ip))?;
        Some(self.entry(ip, || value))
    }

    fn entry(&mut self, ip: IpAddr, make: impl FnOnce() -> V) -> &mut V {
        let mut kept = None;
        if !self.young.contains_key(&ip) {
            kept = self.old.remove(&ip);
            if self.young.len() >= REMEMBERED {
                // Those not seen since the last time go all at once, so that no search for the oldest is needed.
                self.old = std::mem::take(&mut self.young);
            }
        }
        (self.young.entry(ip)).or_insert_with(|| kept.unwrap_or_else(make))
    }
}

/// Limits a rate, with a depth for bursts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    rate: f64,
    depth: f64,
    tokens: f64,
    filled: Instant,
}

impl TokenBucket {
    pub(crate) const fn full((rate, depth): (f64, f64), now: Instant) -> Self {
        Self {
            rate,
            depth,
            tokens: depth,
            filled: now,
        }
    }

    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.filled).as_secs_f64() * self.rate;
        self.tokens = (self.tokens + gained).min(self.depth);
        self.filled = now;
        let allowed = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(allowed));
        allowed
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn now() -> Instant {
        #[expect(
            clippy::disallowed_methods,
            reason = "an Instant cannot be made in another way"
        )]
        Instant::now()
    }

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn a_proof_counts_for_a_while() {
        let (now, ip) = (now(), address(1));
        let mut addresses = Addresses::new(now);
        assert_eq!(addresses.reached_at(ip, now), None);
        addresses.on_reached(ip, now);
        assert_eq!(addresses.reached_at(ip, now + BELIEVED / 2), Some(now));
        assert_eq!(addresses.reached_at(ip, now + BELIEVED), None);
    }

    /// A flood of addresses that ask forgets none that is known.
    #[test]
    fn tables_are_bounded() {
        let now = now();
        let mut addresses = Addresses::new(now);
        let known = address(0);
        addresses.on_reached(known, now);
        for number in 1..3 * REMEMBERED as u32 {
            addresses.may_answer(now, address(number));
        }
        let answered = &addresses.answered;
        assert!(answered.young.len() + answered.old.len() <= 2 * REMEMBERED);
        assert_eq!(addresses.reached_at(known, now), Some(now));
    }

    #[test]
    fn answers_are_limited_for_each_and_in_all() {
        let now = now();
        let mut addresses = Addresses::new(now);
        let mut answered = |ip| (0..1000).filter(|_| addresses.may_answer(now, ip)).count();
        assert_eq!(answered(address(1)), 200);
        assert_eq!(answered(address(2)), 200);
        // The rest of what all get.
        assert_eq!(answered(address(3)), 100);
        assert_eq!(answered(address(4)), 0);
    }
}
