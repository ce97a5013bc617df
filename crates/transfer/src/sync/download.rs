//! A file from AFS to the local disk.

use std::path::Path;
use std::time::Instant;

use afar_cell::Node;

use super::work::{Done, Syncer};
use crate::error::Result;
use crate::resume::{Publish, fetch_into};

impl Syncer {
    /// Copies a file; goes on with what an interrupted run left of the same version.
    pub(super) async fn download(
        &self,
        node: &Node,
        directory: &Path,
        name: &[u8],
        done: &mut Done,
    ) -> Result<()> {
        let begin = Instant::now();
        let publish = Publish {
            preserve: true,
            fsync: self.fsync,
        };
        let by = (&self.client, &self.progress);
        fetch_into(by, node, (directory, name), publish, &mut done.totals).await?;
        done.transfer = Some((begin, Instant::now()));
        Ok(())
    }
}
