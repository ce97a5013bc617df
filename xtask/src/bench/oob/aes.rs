//! What the machine encrypts in one thread, by OpenSSL.

use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::cell::gathered::Figures;
use crate::sh;

/// Bytes of a TLS record.
const RECORD: &str = "16384";
/// The ciphers that TLS 1.3 may use for the data.
const CIPHERS: [&str; 2] = ["aes-128-gcm", "aes-256-gcm"];

/// Why it cannot be measured, if so.
pub(super) fn missing() -> Option<String> {
    let is_there = sh::has_program("openssl");
    (!is_there).then(|| "openssl is not installed".to_owned())
}

/// Each cipher, so many times.
///
/// # Errors
/// OpenSSL does not tell a rate.
pub(super) fn measure(runs: u32, quick: bool, figures: &mut Figures) -> Result<()> {
    let seconds = if quick { "1" } else { "3" };
    for _ in 0..runs {
        for cipher in CIPHERS {
            let mut command = Command::new("openssl");
            command.args(["speed", "-mr", "-seconds", seconds, "-bytes", RECORD]);
            let said = sh::capture(command.args(["-evp", cipher]))?;
            let rate = rate(&said);
            let rate = rate.with_context(|| format!("openssl tells no rate: {}", said.trim()))?;
            figures.add(cipher, "MB/s", None, rate * 1e-6);
        }
    }
    Ok(())
}

/// Bytes a second in what `openssl speed -mr` prints.
fn rate(said: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix("+F:"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_found() {
        let said = "+H:16384\n+F:25:AES-128-GCM:2741248000.00\n";
        assert_eq!(rate(said), Some(2_741_248_000.0));
        assert_eq!(rate("+H:16384\n"), None);
    }
}
