//! What is counted of out-of-band transfers.

use afar_telemetry::{Counter, Desc, Gauge, Registry, Unit};

const CONNECTIONS: Desc = Desc::gauge(
    "afar_oob_connections",
    Unit::None,
    "Connections for out-of-band transfers that clients have.",
);
const OFFERS: Desc = Desc::counter(
    "afar_oob_offers_total",
    Unit::None,
    "Offers of out-of-band transfers made to clients.",
);
const REFUSED: Desc = Desc::counter(
    "afar_oob_refused_total",
    Unit::None,
    "Connections for out-of-band transfers that were refused, by reason.",
);
const TRANSFERS: Desc = Desc::counter(
    "afar_oob_transfers_total",
    Unit::None,
    "Transfers out of band, by how they ended.",
);
const SENT: Desc = Desc::counter(
    "afar_oob_sent_bytes_total",
    Unit::Bytes,
    "Bytes sent out of band, as they are packed and before they are encrypted.",
);
const DATA: Desc = Desc::counter(
    "afar_oob_data_bytes_total",
    Unit::Bytes,
    "Bytes of files and dumps that were sent out of band.",
);
const RECEIVED: Desc = Desc::counter(
    "afar_oob_received_bytes_total",
    Unit::Bytes,
    "Bytes received out of band, as they are packed and after they are decrypted.",
);
const RECEIVED_DATA: Desc = Desc::counter(
    "afar_oob_received_data_bytes_total",
    Unit::Bytes,
    "Bytes of files and dumps that were received out of band.",
);

/// Counters of one server.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) connections: Gauge,
    pub(super) offers: Counter,
    /// There were too many connections of the address, or in all.
    pub(super) full: Counter,
    /// TLS failed, or the client said nothing in time.
    pub(super) handshake: Counter,
    /// The grant was none of this server's, or not the client's.
    pub(super) grant: Counter,
    /// Fetches that ended well.
    pub(super) done: Counter,
    /// Stores that ended well.
    pub(super) stored: Counter,
    /// Dumps that ended well.
    pub(super) dumped: Counter,
    /// Restores that ended well.
    pub(super) restored: Counter,
    pub(super) aborted: Counter,
    /// There was no memory for it.
    pub(super) declined: Counter,
    pub(super) sent: Counter,
    pub(super) data: Counter,
    pub(super) received: Counter,
    pub(super) received_data: Counter,
}

impl Counts {
    pub(super) fn new(registry: &Registry) -> Self {
        let refused = |reason| registry.counter(&REFUSED, &[("reason", reason)]);
        let ended = |how| registry.counter(&TRANSFERS, &[("result", how)]);
        Self {
            connections: registry.gauge(&CONNECTIONS, &[]),
            offers: registry.counter(&OFFERS, &[]),
            full: refused("full"),
            handshake: refused("handshake"),
            grant: refused("grant"),
            done: ended("done"),
            stored: ended("stored"),
            dumped: ended("dumped"),
            restored: ended("restored"),
            aborted: ended("aborted"),
            declined: ended("declined"),
            sent: registry.counter(&SENT, &[]),
            data: registry.counter(&DATA, &[]),
            received: registry.counter(&RECEIVED, &[]),
            received_data: registry.counter(&RECEIVED_DATA, &[]),
        }
    }
}
