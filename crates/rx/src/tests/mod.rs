//! Two endpoints in virtual time.

mod pair;
mod transfer;

/// How many seeds a randomised test runs: `AFAR_SIM_SEEDS`, or what it takes by itself.
fn seeds(usual: u64) -> u64 {
    std::env::var("AFAR_SIM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}
