//! What a server remembers of itself between runs.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use afar_cell::new_uuid;
use afar_types::AfsUuid;
use anyhow::Context;

/// The UUID by which location servers and clients know this file server: made at the first start.
pub(crate) fn uuid(data: &Path) -> anyhow::Result<AfsUuid> {
    let path = data.join("uuid");
    match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().with_context(|| {
            format!(
                "{}: not a UUID; restore the file, or remove it and then the old addresses with \
                 `vos changeaddr -remove`",
                path.display()
            )
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let uuid = new_uuid();
            let write = || -> io::Result<()> {
                let new = path.with_extension("new");
                let mut file = fs::File::create(&new)?;
                writeln!(file, "{uuid}")?;
                file.sync_all()?;
                fs::rename(&new, &path)?;
                fs::File::open(data)?.sync_all()
            };
            write().with_context(|| format!("cannot write {}", path.display()))?;
            Ok(uuid)
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uuid_stays_the_same_and_a_broken_one_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let first = uuid(dir.path()).unwrap();
        assert_eq!(uuid(dir.path()).unwrap(), first);
        fs::write(dir.path().join("uuid"), "nonsense").unwrap();
        let error = uuid(dir.path()).unwrap_err();
        assert!(format!("{error:#}").contains("not a UUID"), "{error:#}");
    }
}
