//! What a cache holds, as metrics.

use std::sync::{Arc, Weak};

use afar_telemetry::{Cells, Collect, Desc, Registry, Unit};

use crate::ops::cache::{Cache, Inner};

const USED: Desc = Desc::gauge(
    "afar_cache_used_bytes",
    Unit::Bytes,
    "Bytes that the cache's data takes on the disk.",
);
const LIMIT: Desc = Desc::gauge(
    "afar_cache_limit_bytes",
    Unit::Bytes,
    "Bytes that the cache's data may take.",
);
const UNSTORED: Desc = Desc::gauge(
    "afar_cache_unstored_bytes",
    Unit::Bytes,
    "Bytes that were written and are not stored at a server yet.",
);
const UNSTORED_FILES: Desc = Desc::gauge(
    "afar_cache_unstored_files",
    Unit::None,
    "Files with something written that is not stored at a server yet.",
);

/// Tells of a cache as long as there is one.
struct Told(Weak<Inner>);

impl Cache {
    /// Has a registry show what the cache holds. It does not keep the cache alive.
    pub fn tell(&self, registry: &Registry) {
        registry.collector(Told(Arc::downgrade(&self.0)));
    }
}

impl Collect for Told {
    fn describe(&self) -> Vec<Desc> {
        vec![USED, LIMIT, UNSTORED, UNSTORED_FILES]
    }

    #[expect(clippy::cast_precision_loss, reason = "levels to be shown")]
    fn collect(&self, cells: &mut Cells) {
        let Some(cache) = self.0.upgrade() else {
            return;
        };
        let usage = cache.storage.usage();
        let files = cache.all_dirty().len();
        for (desc, level) in [
            (&USED, usage.taken as f64),
            (&LIMIT, usage.limit as f64),
            (&UNSTORED, usage.written as f64),
            (&UNSTORED_FILES, files as f64),
        ] {
            cells.level(desc, &[], level);
        }
    }
}
