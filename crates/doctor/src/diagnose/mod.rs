//! From measurements to what binds. Nothing here measures anything.

mod diagnosis;
mod ends;
mod network;
#[cfg(test)]
mod tests;
mod words;

use crate::measured::Measured;
use words::{PerSecond, Time};

pub use diagnosis::{Cause, Diagnosis};

/// What binds, the worst first: what breaks something, then what limits a call to the least, then what only
/// costs time. Nothing in a healthy cell.
#[must_use]
pub fn diagnose(measured: &Measured) -> Vec<Diagnosis> {
    let mut found: Vec<_> = [
        network::mtu_hole(measured),
        ends::cache_full(measured),
        ends::clock(measured),
        network::nat(measured),
        ends::busy_threads(measured),
        ends::databases(measured),
        network::loss(measured),
        network::reordering(measured),
        ends::receive_buffer(measured),
        ends::cache_disk(measured),
        ends::cipher(measured),
        network::window(measured),
    ]
    .into_iter()
    .flatten()
    .collect();
    // The path is to blame only for what nothing else explains.
    let is_explained = |one: &Diagnosis| {
        one.ceiling_bytes_per_s.is_some() || one.cause == Cause::BusyThreads || one.breaks
    };
    if !found.iter().any(is_explained) {
        found.extend(network::path(measured));
    }
    found.sort_by(|a, b| {
        let ceiling = |one: &Diagnosis| one.ceiling_bytes_per_s.unwrap_or(f64::INFINITY);
        (b.breaks.cmp(&a.breaks))
            .then_with(|| match a.breaks {
                // Nothing that is fast helps against what breaks.
                true => a.cause.cmp(&b.cause),
                false => ceiling(a).total_cmp(&ceiling(b)),
            })
            .then_with(|| a.cause.cmp(&b.cause))
    });
    found
}

/// The sentence for a server of which [`diagnose`] says nothing.
#[must_use]
pub fn healthy(measured: &Measured) -> String {
    let mut facts = Vec::new();
    if let Some(rtt) = measured.path.rtt_min_s {
        let loss = match measured.path.lost() {
            0 => "no loss".to_owned(),
            lost => format!("{lost} of {} packets lost", measured.path.sent),
        };
        facts.push(format!("round trip {}, {loss}", Time(rtt)));
    }
    if let Some(call) = measured.small_call {
        facts.push(format!("a small call {}", Time(call.median_s)));
    }
    if let Some(fetch) = &measured.fetch {
        facts.push(format!(
            "{} by one call and {} by {}",
            PerSecond(fetch.one.bytes_per_s),
            PerSecond(fetch.several.bytes_per_s),
            fetch.several.calls
        ));
    }
    let databases = measured.databases.len();
    if databases > 0 {
        let servers = if databases == 1 {
            "server answers"
        } else {
            "servers answer"
        };
        facts.push(format!("{databases} database {servers}"));
    }
    format!("nothing binds: {}", facts.join("; "))
}
