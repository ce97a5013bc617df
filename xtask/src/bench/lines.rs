//! Results as they are kept: a JSON object a line.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads all lines; none if there is no such file.
///
/// # Errors
/// The file cannot be read or is of another form.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    text.lines()
        .enumerate()
        .map(|(number, line)| {
            serde_json::from_str(line)
                .with_context(|| format!("{}, line {}", path.display(), number + 1))
        })
        .collect()
}

/// Writes all lines, in place of what there was.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write<T: Serialize>(path: &Path, lines: impl Iterator<Item = T>) -> Result<()> {
    let mut text = String::new();
    for line in lines {
        text += &serde_json::to_string(&line).context("encoding a result")?;
        text.push('\n');
    }
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
