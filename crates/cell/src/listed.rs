//! Many small files in one answer, of afar's servers.
// spec: trees#many-files

use std::sync::Arc;

use afar_rpc::rxafs;
use afar_types::Reads;

use crate::client::Client;
use crate::error::Error;
use crate::server::Answers;
use crate::tree::{TreePart, most};
use crate::volume::Volume;

impl Client {
    /// Vnodes of a volume in this order, with their data, of at most so many bytes in all, and the server's promises. A file
    /// that is larger than `largest` comes without its data. What the user may not read, or is gone, is left out, and so is
    /// all from the first on whose data does not fit. `None` if the server is not known to have such answers.
    ///
    /// # Errors
    /// When the volume cannot be read.
    pub async fn listed(
        &self,
        volume: &Arc<Volume>,
        files: Reads,
        bytes: u32,
        largest: u32,
    ) -> Result<Option<Vec<TreePart>>, Error> {
        let entries = u32::try_from(files.len()).unwrap_or(u32::MAX);
        let ask = |server: rxafs::Client| {
            let files = files.clone();
            async move { server.fetch_files(files, bytes, largest).await }
        };
        self.many(volume, Answers::Listed, most(entries, bytes), ask)
            .await
    }
}
