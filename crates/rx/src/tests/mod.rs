//! Endpoints in virtual time: two of them with a network between, or one and a scripted peer.

mod calls;
mod congestion;
mod hostile;
mod limits;
mod links;
mod mtu;
mod oldpeer;
mod pair;
mod properties;
mod random;
mod raw;
mod restart;
mod roaming;
mod security;
mod shares;
mod strangers;
mod timers;
mod transfer;
mod vectors;

/// How many seeds a randomised test runs: `AFAR_SIM_SEEDS`, or what it takes by itself.
fn seeds(usual: u64) -> u64 {
    std::env::var("AFAR_SIM_SEEDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(usual)
}

/// What an old peer is: no extension, and OpenAFS's window.
fn old_peer() -> crate::Config {
    crate::Config {
        extension: false,
        classic_window: 32,
        ..crate::Config::default()
    }
}
