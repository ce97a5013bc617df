//! What a database server tells of itself and its peers (AFS-3 ubik_int).

use afar_xdr::{Decode, Encode};

use crate::UnixTime;

/// Interfaces of a server that are told.
const ADDRESSES: usize = 256;

/// A version of a database: when it was made, and changes since.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct UbikVersion {
    /// Seconds since 1970.
    pub epoch: i32,
    /// Counts changes.
    pub counter: i32,
}

/// How a server votes and what it has (AFS-3 ubik_debug_old, 28 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct UbikState {
    /// The server's clock.
    pub now: UnixTime,
    /// When it last voted for somebody.
    pub last_yes_time: UnixTime,
    /// For whom: an address as a number.
    pub last_yes_host: u32,
    /// Whether that one claimed to be the one that takes changes.
    pub last_yes_state: i32,
    /// When that vote began.
    pub last_yes_claim: UnixTime,
    /// The server it would vote for.
    pub lowest_host: u32,
    /// When it chose that one.
    pub lowest_time: UnixTime,
    /// The one that takes changes.
    pub sync_host: u32,
    /// When that one was last heard.
    pub sync_time: UnixTime,
    /// The version that one says it has.
    pub sync_version: UbikVersion,
    /// Its last transaction.
    pub sync_transaction: UbikVersion,
    /// 1 if the server itself takes changes.
    pub is_sync_site: i32,
    /// Until when; [`FOREVER`](Self::FOREVER) if it is the only one.
    pub sync_site_until: i32,
    /// Servers that vote.
    pub servers: i32,
    /// Pages locked for reading.
    pub locked_pages: i32,
    /// Pages locked for writing.
    pub write_locked_pages: i32,
    /// What the server has.
    pub local_version: UbikVersion,
    /// Whether a change is being made.
    pub active_write: i32,
    /// The number of that change.
    pub transaction_counter: i32,
    /// Whether something is locked for reading.
    pub any_read_locks: i32,
    /// Whether something is locked for writing.
    pub any_write_locks: i32,
    /// How far it has come after its start: all bits of [`RECOVERED`](Self::RECOVERED).
    pub recovery_state: i32,
    /// Whether there is a transaction.
    pub current_transaction: i32,
    /// Whether that changes something.
    pub write_transaction: i32,
    /// When the server started.
    pub started: UnixTime,
}

impl UbikState {
    /// The time at which a server that is alone ceases to take changes.
    pub const FOREVER: i32 = i32::MAX;
    /// It takes changes, has found and fetched the best version, and sent it to all.
    pub const RECOVERED: i32 = 0x1f;
}

/// The same with the server's addresses as numbers, the rest 0 (AFS-3 ubik_debug).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct UbikDebug {
    /// How it votes and what it has.
    pub state: UbikState,
    /// Its addresses.
    pub addresses: [u32; ADDRESSES],
}

impl UbikDebug {
    /// Of a server with these addresses, as far as they fit.
    #[must_use]
    pub fn new(state: UbikState, addresses: impl IntoIterator<Item = u32>) -> Self {
        let mut all = [0; ADDRESSES];
        for (slot, address) in all.iter_mut().zip(addresses) {
            *slot = address;
        }
        Self {
            state,
            addresses: all,
        }
    }
}

/// What a server knows of another one (AFS-3 ubik_sdebug).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct UbikPeer {
    /// Its address as a number.
    pub address: u32,
    /// When it last voted.
    pub last_vote_time: UnixTime,
    /// When it was last asked to.
    pub last_beacon_sent: UnixTime,
    /// Whether it voted for us.
    pub last_vote: i32,
    /// What it has.
    pub version: UbikVersion,
    /// Whether that is what we have.
    pub is_current: i32,
    /// Whether it was asked since it was last noticed to be up.
    pub beacon_since_down: i32,
    /// Whether it is up.
    pub is_up: i32,
    /// Its other addresses.
    pub others: [u32; ADDRESSES - 1],
}
