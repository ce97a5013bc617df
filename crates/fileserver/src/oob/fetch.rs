//! A file on its way to a client.

use std::sync::Arc;

use afar_oob::ServerFrame;
use afar_oob::frame::{End, Fetch};
use afar_rpc::rxafs;

use super::sending::{Credit, Sending};
use super::transfer::{Link, signed};

/// One file, or a part of it, for a client.
pub(super) struct Fetching {
    pub(super) link: Link,
    pub(super) fetch: Fetch,
    pub(super) credit: Arc<Credit>,
}

impl Fetching {
    /// Does it, and tells the client how it ended.
    pub(super) async fn run(self) {
        let Fetch {
            id,
            fid,
            offset,
            length,
            codecs,
            ..
        } = self.fetch;
        let request = rxafs::fetch_data64::Request {
            fid,
            position: signed(offset),
            length: signed(length),
        };
        let mut outlet = Sending {
            link: &self.link,
            id,
            codecs,
            credit: &self.credit,
            at: offset,
        };
        let result = async {
            let files = self.link.files()?;
            let fetching = files.fetch_out_of_band(&self.link.caller, request, &mut outlet);
            fetching.await
        };
        let done = result.await.map(|reply| {
            ServerFrame::End(End {
                id,
                status: reply.status,
                callback: reply.callback,
                vol_sync: reply.vol_sync,
            })
        });
        self.link
            .sent(id, done, &self.link.serving.counts.done)
            .await;
    }
}
