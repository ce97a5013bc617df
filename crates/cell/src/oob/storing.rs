//! Data of a file on its way to its server.

use afar_oob::Codec;
use afar_oob::frame::{DataHead, STORE_CREDIT, Store, cost};
use afar_oob::record::checksum;
use afar_types::FetchStatus;
use bytes::Bytes;
use tokio::sync::mpsc;

use super::connection::Number;

/// Events of a store that may wait.
pub(super) const EVENTS: usize = 64;

/// What comes of a store.
#[derive(Debug)]
pub(super) enum Event {
    /// So many bytes of records more may be sent.
    Credit(u32),
    /// It is done; the file's status.
    Stored(Box<FetchStatus>),
    /// It failed, with this code.
    Abort(i32),
    /// The server has no room for it.
    Decline,
}

/// How a store ended.
#[derive(Debug)]
pub(crate) enum StoreEnd {
    /// It is done; the file's status.
    Stored(Box<FetchStatus>),
    /// The server refused it with this code, as it would by Rx.
    Refused(i32),
    /// The connection ended, or the server has no room. Nobody knows what the server has of it.
    Left,
}

/// A store. Dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Storing {
    number: Number,
    events: mpsc::Receiver<Event>,
    /// Bytes of records that may be sent now.
    credit: u32,
    /// Where in the file what is sent next belongs.
    at: u64,
    /// Bytes to be sent.
    left: u64,
}

impl Storing {
    /// One that was begun.
    pub(super) fn new(number: Number, store: &Store, events: mpsc::Receiver<Event>) -> Self {
        Self {
            number,
            events,
            credit: STORE_CREDIT,
            at: store.offset,
            left: store.length,
        }
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
        debug_assert!(self.left >= plain.into(), "{self:?}: {plain} more");
        self.left = self.left.saturating_sub(plain.into());
        let sent = self.number.shared.send_record(head.encode(plain), data);
        if !sent.await {
            // The connection takes nothing any more: it is about to be noted why, and that this was cut off.
            return Err(self.ended().await);
        }
        Ok(())
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
                Ok(())
            }
            Some(Event::Stored(status)) if self.left == 0 => Err(StoreEnd::Stored(status)),
            Some(Event::Stored(_)) => {
                self.number.shared.distrust();
                Err(StoreEnd::Left)
            }
            Some(Event::Abort(code)) => Err(StoreEnd::Refused(code)),
            Some(Event::Decline) | None => Err(StoreEnd::Left),
        }
    }
}
