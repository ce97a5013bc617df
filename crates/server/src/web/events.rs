//! The stream of events that a viewer reads, and whether it does.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, timeout_at};

/// When a connection last took something.
#[derive(Debug, Clone)]
pub(super) struct Progress(Arc<Mutex<Instant>>);

impl Progress {
    /// Of a connection that begins now.
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    fn note(&self) {
        *self.0.lock() = Instant::now();
    }

    /// Until when it has to take something again.
    pub(super) fn due(&self, limit: Duration) -> Instant {
        *self.0.lock() + limit
    }
}

/// The next event and what comes after it, or the end.
type Next = Pin<Box<dyn Future<Output = Option<(Bytes, watch::Receiver<Bytes>)>> + Send>>;

/// Events for a viewer. One that is slow misses some: each has all that is shown.
pub(super) struct Events {
    next: Next,
    ends: Instant,
    progress: Progress,
    /// The viewer's place.
    _place: OwnedSemaphorePermit,
}

impl Events {
    /// From what the sampler makes, for so long. The browser comes again then.
    pub(super) fn new(
        events: watch::Receiver<Bytes>,
        lasts: Duration,
        progress: Progress,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let ends = Instant::now() + lasts;
        Self {
            next: next(events, ends),
            ends,
            progress,
            _place: place,
        }
    }
}

fn next(mut events: watch::Receiver<Bytes>, ends: Instant) -> Next {
    Box::pin(async move {
        loop {
            timeout_at(ends, events.changed()).await.ok()?.ok()?;
            let event = events.borrow_and_update().clone();
            if !event.is_empty() {
                return Some((event, events));
            }
        }
    })
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = ready!(self.next.as_mut().poll(cx)).map(|(event, events)| {
            self.next = next(events, self.ends);
            self.progress.note();
            Ok(Frame::data(event))
        });
        Poll::Ready(event)
    }
}
