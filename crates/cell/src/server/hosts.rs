//! The hosts that file servers take us for.
//!
//! An OpenAFS file server tells hosts apart by their addresses and ports. For each new connection it asks the
//! host who it is (TellMeAboutYourself), and begins no call of that host meanwhile: from one port, a long way's
//! many connections take a round trip each, in which nothing else comes. So data is read from other ports, each
//! with an identity of its own, as if several clients were behind one address. What these are promised counts
//! for nothing: that the data is of the version looked for is told with it, and all else is asked for by the first
//! host. Their promises are given back when nothing was read for a while.

use std::io;
use std::sync::Arc;

use afar_net::Endpoint;
use parking_lot::Mutex;

use crate::callback::CallbackService;

/// Hosts that only read data.
pub(super) const READERS: usize = 8;

/// An endpoint with what servers ask back there.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    pub(crate) callbacks: CallbackService,
}

impl Host {
    /// The host at this endpoint, with a new identity.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn start(endpoint: Endpoint) -> Self {
        let callbacks = CallbackService::start(&endpoint);
        Self {
            endpoint,
            callbacks,
        }
    }
}

/// The one that does everything, and those that only read.
#[derive(Debug)]
pub(crate) struct Hosts {
    pub(crate) first: Arc<Host>,
    readers: Mutex<Vec<Arc<Host>>>,
}

impl Hosts {
    pub(crate) fn new(first: Host) -> Self {
        Self {
            first: Arc::new(first),
            readers: Mutex::default(),
        }
    }

    /// One of those that only read data; none if there are not so many, or the first is not at a port of its own.
    ///
    /// # Errors
    /// The system's: there are no more sockets or threads.
    pub(super) fn reader(&self, number: usize) -> io::Result<Option<Arc<Host>>> {
        let mut readers = self.readers.lock();
        while number < READERS && readers.len() <= number {
            let Some(endpoint) = self.first.endpoint.another()? else {
                break;
            };
            let callbacks = self.first.callbacks.beside(&endpoint);
            readers.push(Arc::new(Host {
                endpoint,
                callbacks,
            }));
        }
        Ok(readers.get(number).cloned())
    }
}
