//! A dump of a volume on its way to a client, and from it.
//!
//! A restore comes to its end whatever happens to the connection, as a store does. One of which the client has not said
//! that all was sent fails as a call does that is cut off.

use std::sync::Arc;

use afar_oob::ServerFrame;
use afar_oob::frame::{Dump, Restore};
use afar_rpc::afsvol;

use super::receiving::{Arriving, Ending, Receiving};
use super::sending::{Credit, Sending};
use super::transfer::Link;

/// A dump for a client.
pub(super) struct Dumping {
    pub(super) link: Link,
    pub(super) dump: Dump,
    pub(super) credit: Arc<Credit>,
}

impl Dumping {
    /// Makes it, and tells the client how that ended.
    pub(super) async fn run(self) {
        let Dump {
            id,
            transaction,
            from_date,
            flags,
            codecs,
            ..
        } = self.dump;
        let link = &self.link;
        let request = afsvol::dump_v2::Request {
            transaction,
            from_date,
            flags,
        };
        let mut outlet = Sending {
            link,
            id,
            codecs,
            credit: &self.credit,
            at: 0,
        };
        let result = async {
            let volumes = link.volumes()?;
            let dumping = volumes.dump_out_of_band(&link.caller, request, &mut outlet);
            dumping.await
        };
        let done = result
            .await
            .map(|length| ServerFrame::Dumped { id, length });
        link.sent(id, done, &link.serving.counts.dumped).await;
    }
}

/// A volume that is filled from a dump of a client.
pub(super) struct Restoring {
    link: Link,
    restore: Restore,
    inlet: Receiving,
}

impl Restoring {
    /// One that begins, and where its records are to arrive.
    pub(super) fn new(link: Link, restore: Restore) -> (Self, Arriving) {
        let (inlet, arriving) = Receiving::new(link.clone(), restore.id, 0, None);
        let restoring = Self {
            link,
            restore,
            inlet,
        };
        (restoring, arriving)
    }

    /// Does it, and tells the client how it ended.
    pub(super) async fn run(self) -> Ending {
        let Self {
            link,
            restore,
            mut inlet,
        } = self;
        let Restore {
            id,
            transaction,
            flags,
            cookie,
        } = restore;
        let request = afsvol::restore::Request {
            transaction,
            flags,
            cookie,
        };
        let result = async {
            let volumes = link.volumes()?;
            let restoring = volumes.restore_out_of_band(&link.caller, request, &mut inlet);
            restoring.await
        };
        let done = result.await;
        let done = done.map(|afsvol::restore::Reply {}| ServerFrame::Restored { id });
        link.received(id, done, inlet.stopped, &link.serving.counts.restored)
            .await
    }
}
