//! Data of a file or a dump on its way to a server.

use afar_oob::Codec;
use afar_oob::frame::{self, ClientFrame, DataHead, STORE_CREDIT, cost};
use afar_oob::record::checksum;
use afar_types::FetchStatus;
use bytes::Bytes;
use tokio::sync::mpsc;

use super::connection::Number;

/// Events of a transfer that may wait.
pub(super) const EVENTS: usize = 64;

/// What comes of a store or a restore.
#[derive(Debug)]
pub(super) enum Event {
    /// So many bytes of records more may be sent.
    Credit(u32),
    /// It is done; the file's status.
    Stored(Box<FetchStatus>),
    /// A restore is done.
    Restored,
    /// It failed, with this code.
    Abort(i32),
    /// The server has no room for it.
    Decline,
}

/// How a store or a restore ended.
#[derive(Debug)]
pub(crate) enum StoreEnd {
    /// It is done; the file's status.
    Stored(Box<FetchStatus>),
    /// A restore is done.
    Restored,
    /// The server refused it with this code, as it would by Rx.
    Refused(i32),
    /// The server has no room for it, and has done nothing.
    Declined,
    /// The connection ended. Nobody knows what the server has of it.
    Left,
}

/// A store or a restore. Dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Storing {
    number: Number,
    events: mpsc::Receiver<Event>,
    /// Bytes of records that may be sent now.
    credit: u32,
    /// Whether the server has begun with it.
    accepted: bool,
    /// Where in the file, or the dump, what is sent next belongs.
    at: u64,
    /// Bytes to be sent; of a dump nobody knows.
    left: Option<u64>,
}

impl Storing {
    /// One that was begun.
    pub(super) fn new(
        number: Number,
        at: u64,
        left: Option<u64>,
        events: mpsc::Receiver<Event>,
    ) -> Self {
        Self {
            number,
            events,
            credit: STORE_CREDIT,
            accepted: false,
            at,
            left,
        }
    }

    /// Whether the server has begun with it. Before, it may decline it.
    pub(crate) fn is_accepted(&self) -> bool {
        self.accepted
    }

    /// Sends the next bytes, of any number up to a record's, when the server lets it.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) async fn send(&mut self, data: Bytes) -> Result<(), StoreEnd> {
        let plain = u32::try_from(data.len()).map_err(|_| StoreEnd::Left)?;
        // It may have ended before all was sent.
        while let Ok(event) = self.events.try_recv() {
            self.take(Some(event))?;
        }
        while self.credit < cost(plain) {
            let event = self.events.recv().await;
            self.take(event)?;
        }
        self.credit -= cost(plain);
        let head = DataHead {
            id: self.number.id,
            offset: self.at,
            plain,
            codec: Codec::Raw,
            checksum: checksum(&data),
        };
        self.at += u64::from(plain);
        if let Some(left) = &mut self.left {
            debug_assert!(*left >= plain.into(), "{left}: {plain} more");
            *left = left.saturating_sub(plain.into());
        }
        let sent = self.number.shared.send_record(head.encode(plain), data);
        if !sent.await {
            // The connection takes nothing any more: it is about to be noted why, and that this was cut off.
            return Err(self.ended().await);
        }
        Ok(())
    }

    /// Calls are faster.
    pub(crate) fn too_slow(&self) {
        self.number.shared.too_slow();
    }

    /// Tells the server that all of a dump is sent, and how that ends.
    pub(crate) async fn finish(self) -> StoreEnd {
        let finish = frame::encode(&ClientFrame::Finish { id: self.number.id });
        // Behind all records.
        if self.number.shared.send_record(finish, Bytes::new()).await {
            self.end().await
        } else {
            StoreEnd::Left
        }
    }

    /// How it ends, when all is sent.
    pub(crate) async fn end(mut self) -> StoreEnd {
        self.ended().await
    }

    async fn ended(&mut self) -> StoreEnd {
        loop {
            let event = self.events.recv().await;
            if let Err(ended) = self.take(event) {
                return ended;
            }
        }
    }

    fn take(&mut self, event: Option<Event>) -> Result<(), StoreEnd> {
        self.number.over |= !matches!(event, Some(Event::Credit(_)));
        match event {
            Some(Event::Credit(bytes)) => {
                self.credit = self.credit.saturating_add(bytes);
                self.accepted = true;
                Ok(())
            }
            Some(Event::Stored(status)) if self.left == Some(0) => Err(StoreEnd::Stored(status)),
            // What follows the end of a dump is nothing to the server, as by Rx.
            Some(Event::Restored) => Err(StoreEnd::Restored),
            Some(Event::Stored(_)) => {
                self.number.shared.distrust();
                Err(StoreEnd::Left)
            }
            Some(Event::Abort(code)) => Err(StoreEnd::Refused(code)),
            Some(Event::Decline) if !self.accepted => Err(StoreEnd::Declined),
            Some(Event::Decline) | None => Err(StoreEnd::Left),
        }
    }
}
