//! RXSTATS, the counters of Rx (service 409), which any server serves at its port.
//!
//! Counters of the process are one entry for each operation of its interfaces, those of peers one
//! for each peer as well (see [`RpcStat`](afar_types::RpcStat)). They start when enabled.

use afar_types::RpcStatWords;

interface! {
    service 409 "RXSTATS";

    /// Reads the counters of the process in the format of this version, which is 1. The time is
    /// the server's; nothing but the version comes while nothing is counted.
    call 0 retrieve_process_rpc_stats(client_version: u32)
        -> (server_version: u32, seconds: u32, microseconds: u32, count: u32,
            stats: RpcStatWords);
    /// Reads the counters of peers. AFS-3 defines the count before the time, but servers and
    /// tools of OpenAFS hold to the order of the process's.
    // spec: afs-rpc#counters
    call 1 retrieve_peer_rpc_stats(client_version: u32)
        -> (server_version: u32, seconds: u32, microseconds: u32, count: u32,
            stats: RpcStatWords);
    /// Tells whether the process is counted.
    call 2 query_process_rpc_stats() -> (on: i32);
    /// Tells whether peers are counted.
    call 3 query_peer_rpc_stats() -> (on: i32);
    /// Starts to count the process.
    call 4 enable_process_rpc_stats() -> ();
    /// Starts to count peers.
    call 5 enable_peer_rpc_stats() -> ();
    /// Stops to count the process.
    call 6 disable_process_rpc_stats() -> ();
    /// Stops to count peers.
    call 7 disable_peer_rpc_stats() -> ();
    /// Tells the version of the format.
    call 8 query_rpc_stats_version() -> (version: u32);
    /// Sets counters of the process to 0, those of which a bit is given.
    call 9 clear_process_rpc_stats(flags: u32) -> ();
    /// Sets counters of peers to 0, those of which a bit is given.
    call 10 clear_peer_rpc_stats(flags: u32) -> ();
}
