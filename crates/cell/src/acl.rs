//! Access control lists.

use std::sync::Arc;

use afar_types::{Acl, AclText, FetchStatus, Fid};

use crate::change::text_error;
use crate::client::Client;
use crate::error::Error;
use crate::promise::checked;
use crate::volume::Volume;

impl Client {
    /// The access control list of a directory; of a file, that of the directory it is in
    /// (RXAFS FetchACL).
    ///
    /// # Errors
    /// When no server of the volume gives it, or it makes no sense.
    pub async fn fetch_acl(&self, volume: &Arc<Volume>, fid: Fid) -> Result<Acl, Error> {
        let reply = self
            .on_volume(volume, |server| async move { server.fetch_acl(fid).await })
            .await?;
        Ok(Acl::parse(&reply.acl)?)
    }

    /// Replaces the access control list of a directory (RXAFS StoreACL, or OldStoreACL where that
    /// is not known). Storing the same one twice does no harm, so it is tried again.
    ///
    /// # Errors
    /// When the list is too long, names users that do not exist, or the server refuses.
    pub async fn store_acl(
        &self,
        volume: &Arc<Volume>,
        directory: Fid,
        acl: &Acl,
    ) -> Result<FetchStatus, Error> {
        volume.check_writable()?;
        let text = acl.to_text()?;
        let text = AclText::new(text.clone())
            .map_err(|problem| text_error("the access control list", &text, problem))?;
        let status = self
            .on_volume(volume, |server| {
                let text = text.clone();
                async move {
                    match server.store_acl(directory, text.clone()).await {
                        // spec: afs-rpc#unknown-operations
                        Err(error) if error.is_unknown_operation() => {
                            let reply = server.old_store_acl(directory, text).await;
                            reply.map(|reply| reply.status)
                        }
                        other => other.map(|reply| reply.status),
                    }
                }
            })
            .await?;
        checked(status)
    }
}
