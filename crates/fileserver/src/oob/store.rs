//! A part of a file on its way from a client.
//!
//! A store that has begun comes to its end whatever happens to the connection: it has to tell other hosts of what
//! it has changed. One whose data does not come any more changes nothing.

use afar_oob::ServerFrame;
use afar_oob::frame::{Store, Stored};
use afar_rpc::rxafs;

use super::receiving::{Arriving, Ending, Receiving};
use super::transfer::Link;

/// A part of a file from a client.
pub(super) struct Storing {
    link: Link,
    store: Store,
    inlet: Receiving,
}

impl Storing {
    /// One that begins, and where its records are to arrive.
    pub(super) fn new(link: Link, store: Store) -> (Self, Arriving) {
        let left = Some(store.length);
        let (inlet, arriving) = Receiving::new(link.clone(), store.id, store.offset, left);
        (Self { link, store, inlet }, arriving)
    }

    /// Does it, and tells the client how it ended.
    pub(super) async fn run(self) -> Ending {
        let Self {
            link,
            store,
            mut inlet,
        } = self;
        let Store {
            id,
            fid,
            attributes,
            offset,
            length,
            file_length,
        } = store;
        let request = rxafs::store_data64::Request {
            fid,
            attributes,
            position: offset,
            length,
            file_length,
        };
        let result = async {
            let files = link.files()?;
            let storing = files.store_out_of_band(&link.caller, request, &mut inlet);
            storing.await
        };
        let done = result.await.map(|reply| {
            ServerFrame::Stored(Stored {
                id,
                status: reply.status,
                vol_sync: reply.vol_sync,
            })
        });
        link.received(id, done, inlet.stopped, &link.serving.counts.stored)
            .await
    }
}
