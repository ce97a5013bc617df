//! What anybody has ever seen: a version of a file has one content, for all times.

use std::collections::HashMap;

use afar_types::{DataVersion, Fid};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

type Sum = [u8; 32];

/// Contents by file and version, as sums.
#[derive(Default)]
pub(crate) struct History(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    contents: HashMap<(Fid, DataVersion), Sum>,
    newest: HashMap<Fid, DataVersion>,
}

impl History {
    /// Somebody has read or stored this.
    ///
    /// # Panics
    /// If that version was something else before: a client that has it cached would not notice.
    pub(crate) fn saw(&self, fid: Fid, version: DataVersion, data: &[u8]) {
        let sum: Sum = Sha256::digest(data).into();
        let seen = &mut *self.0.lock();
        let known = *seen.contents.entry((fid, version)).or_insert(sum);
        assert_eq!(known, sum, "{fid:?} has two contents of version {version}");
        let newest = seen.newest.entry(fid).or_insert(version);
        *newest = version.max(*newest);
    }

    /// The newest version anybody has seen of a file.
    pub(crate) fn newest(&self, fid: Fid) -> Option<DataVersion> {
        self.0.lock().newest.get(&fid).copied()
    }
}
