//! SHA-256 in hexadecimal digits.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// What a file hashes to.
pub(super) fn file(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("reading {}", path.display()))?;
    let mut hasher = Sha256::new();
    io::copy(&mut file, &mut hasher)?;
    Ok(hex(hasher))
}

/// The digits of a hash.
pub(super) fn hex(hasher: Sha256) -> String {
    hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    #[test]
    fn files_are_hashed() {
        let path = std::env::temp_dir().join(format!("afar-bench-hash-{}", std::process::id()));
        fs::write(&path, "abc").unwrap();
        assert_eq!(
            super::file(&path).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        fs::remove_file(&path).unwrap();
    }
}
