//! RXAFSCB, the cache manager's interface (service 1), which file servers call at the port that
//! the client's own calls come from.
//!
//! It must be served before the client's first call: a file server may ask who is there before
//! it answers.

use afar_types::{AfsUuid, CallBacks, Capabilities, Fids, InterfaceAddr};
use afar_xdr::XdrString;

interface! {
    service 1 "RXAFSCB";

    /// Breaks promises. Vnode 0 stands for all of a volume; the second list is empty or says of
    /// each promise that it is dropped.
    call 204 call_back(fids: Fids, callbacks: CallBacks) -> ();
    /// All promises of the calling server are over.
    call 205 init_call_back_state() -> ();
    /// Asks whether the client is there.
    call 206 probe() -> ();
    /// All promises of the calling server are over; tells who the client is. Obsolete.
    call 211 init_call_back_state2() -> (host: InterfaceAddr);
    /// Tells who the client is.
    call 212 who_are_you() -> (host: InterfaceAddr);
    /// All promises of the server with this UUID are over.
    call 213 init_call_back_state3(server: AfsUuid) -> ();
    /// Asks whether the client with this UUID is there; another aborts with code 1.
    call 214 probe_uuid(client: AfsUuid) -> ();
    /// Tells the name of the client's cell.
    call 217 get_local_cell() -> (cell: XdrString<256>);
    /// Tells who the client is and what it can do: a file server's first question.
    call 65538 tell_me_about_yourself() -> (host: InterfaceAddr, capabilities: Capabilities);
}
