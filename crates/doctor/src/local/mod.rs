//! This machine: limits of sockets, speed of the packet cipher, the disk of the cache.

mod cipher;
mod disk;
mod sockets;

use std::path::Path;

use crate::measured::Local;

pub(crate) use sockets::datagrams_dropped;

/// Looks at all of it, in two seconds at the most; `cache` is where the cache lies or will lie.
pub(crate) fn look(cache: Option<&Path>) -> Local {
    Local {
        rmem_max: sockets::receive_buffer_max(),
        receive_buffer: sockets::receive_buffer(),
        receive_buffer_wanted: sockets::WANTED as u64,
        cipher: Some(cipher::speed()),
        cache: cache.and_then(disk::look),
    }
}
