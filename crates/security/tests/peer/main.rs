//! OpenAFS's and MIT's own code against this crate: random keys, packets and tickets go through both.
//!
//! `peer.c` and its neighbours are a program around OpenAFS's librxkad (fcrypt, rxkad, tickets) and MIT's
//! libkrb5, which the tests build and talk to through pipes ([`process`]). Where these libraries are not
//! installed (Debian: libopenafs-dev, libkrb5-dev, gcc) the tests say so and do nothing.
//!
//! A failure prints the seed; `AFAR_PEER_SEED` repeats it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(
    clippy::print_stderr,
    reason = "why a test does nothing, and the seed of a failure, are shown"
)]

mod cipher;
mod handshake;
mod process;
mod tickets;

use fastrand::Rng;

/// A generator of random numbers whose seed is printed, which a failed test shows.
fn random() -> Rng {
    let seed = std::env::var("AFAR_PEER_SEED").map_or_else(
        |_| fastrand::u64(..),
        |seed| seed.parse().expect("AFAR_PEER_SEED is a number"),
    );
    eprintln!("AFAR_PEER_SEED={seed}");
    Rng::with_seed(seed)
}

/// So many random bytes.
fn octets(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    rng.fill(&mut octets);
    octets
}

/// Eight random bytes.
fn key(rng: &mut Rng) -> [u8; 8] {
    rng.u64(..).to_be_bytes()
}
