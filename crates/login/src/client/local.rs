//! A login service on this machine: it says in its cell's run directory where it is, and by which
//! key it is known. Only the server may write there.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use crate::Fingerprint;

/// The file in the run directory.
const NAME: &str = "login";

/// Where the login service of the cell with this run directory is, and its fingerprint.
#[must_use]
pub fn local(run: &Path) -> Option<(SocketAddr, Fingerprint)> {
    let text = fs::read_to_string(run.join(NAME)).ok()?;
    let (address, fingerprint) = text.trim_end().split_once(' ')?;
    Some((address.parse().ok()?, fingerprint.parse().ok()?))
}

/// Writes that file.
///
/// # Errors
/// When it cannot be written.
pub fn announce(run: &Path, address: SocketAddr, fingerprint: Fingerprint) -> io::Result<()> {
    let new = run.join(format!("{NAME}.new"));
    fs::write(&new, format!("{address} {fingerprint}\n"))?;
    fs::rename(new, run.join(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_announced_is_found() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(local(dir.path()), None);
        let address = "127.0.0.1:7002".parse().unwrap();
        let fingerprint = "SHA256:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";
        let fingerprint = fingerprint.parse().unwrap();
        announce(dir.path(), address, fingerprint).unwrap();
        assert_eq!(local(dir.path()), Some((address, fingerprint)));
        fs::write(dir.path().join(NAME), "127.0.0.1:7002").unwrap();
        assert_eq!(local(dir.path()), None);
    }
}
