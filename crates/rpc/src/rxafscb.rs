//! RXAFSCB, the cache manager's interface (service 1), which file servers call at the port that
//! the client's own calls come from.
//!
//! It must be served before the client's first call: a file server may ask who is there before
//! it answers. Its last operation is afar's own.

use afar_types::{
    AfsUuid, CallBacks, Capabilities, DbCacheEntry, DbCacheEntry64, DbLock, Fids, InterfaceAddr,
};
use afar_xdr::{List, Opaque, XdrString};

/// IPv4 addresses of the database servers of a cell.
type CellHosts = List<u32, 8>;

interface! {
    service 1 "RXAFSCB";

    /// Breaks promises. Vnode 0 stands for all of a volume; the second list is empty or says of
    /// each promise that it is dropped.
    // spec: afs-rpc#breaks
    call 204 call_back(fids: Fids, callbacks: CallBacks) -> ();
    /// All promises of the calling server are over.
    call 205 init_call_back_state() -> ();
    /// Asks whether the client is there.
    call 206 probe() -> ();
    /// Tells about a lock of the client by its number; code 1 ends the list.
    call 207 get_lock(index: i32) -> (lock: DbLock);
    /// Tells about a cached file by its number; code 1 ends the list.
    call 208 get_ce(index: i32) -> (entry: DbCacheEntry);
    /// Tells the version of the collections of counters, 2.
    call 209 x_stats_version() -> (version: i32);
    /// Reads a collection of counters: 0 calls, 1 performance, 2 both.
    call 210 get_x_stats(client_version: i32, collection: i32)
        -> (server_version: i32, time: i32, data: List<i32, 2048>);
    /// All promises of the calling server are over; tells who the client is. Obsolete.
    call 211 init_call_back_state2() -> (host: InterfaceAddr);
    /// Tells who the client is.
    call 212 who_are_you() -> (host: InterfaceAddr);
    /// All promises of the server with this UUID are over.
    call 213 init_call_back_state3(server: AfsUuid) -> ();
    /// Asks whether the client with this UUID is there; another aborts with code 1.
    call 214 probe_uuid(client: AfsUuid) -> ();
    /// Tells the rank of a server by its number; lower is preferred. Address 0xffffffff ends the
    /// list.
    call 215 get_server_prefs(index: i32) -> (address: u32, rank: i32);
    /// Tells about a cell the client knows by its place in the list; an empty name ends it.
    call 216 get_cell_serv_db(index: i32) -> (cell: XdrString<256>, hosts: CellHosts);
    /// Tells the name of the client's cell.
    call 217 get_local_cell() -> (cell: XdrString<256>);
    /// Tells how the cache is set up: numbers by their place.
    call 218 get_cache_config(caller_version: u32)
        -> (server_version: u32, count: u32, config: List<u32, 256>);
    /// Tells about a cached file of any length by its number; code 1 ends the list.
    call 65536 get_ce64(index: i32) -> (entry: DbCacheEntry64);
    /// Tells about a cell the client knows by the number it gave it; an empty name if there is
    /// none.
    call 65537 get_cell_by_num(number: i32) -> (cell: XdrString<256>, hosts: CellHosts);
    /// Tells who the client is and what it can do: a file server's first question.
    call 65538 tell_me_about_yourself() -> (host: InterfaceAddr, capabilities: Capabilities);
    /// Recalls leases. Both messages are those of docs/protocol/leases.md.
    // spec: leases#recall
    call 184156164 recall_leases(recall: Opaque<65536>) -> (answer: Opaque<4096>);
}
