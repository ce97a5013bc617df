//! VOTE, by which the database servers of OpenAFS agree who takes changes (service 50, at the ports of the
//! databases): the part that tells about it, which `udebug` asks for.

use afar_types::{UbikDebug, UbikPeer, UbikState};

interface! {
    service 50 "VOTE";

    /// Tells how the server votes and what it has.
    call 10001 debug_old() -> (state: UbikState);
    /// The same with the server's addresses.
    call 10004 debug() -> (state: UbikDebug);
    /// Tells of another server by its number; the code 2 says that there are no more.
    call 10005 s_debug(number: i32) -> (peer: UbikPeer);
    /// As `debug`, and whether the server has no vote.
    call 10006 x_debug() -> (state: UbikDebug, is_clone: i32);
    /// As `s_debug`, and whether that server has no vote.
    call 10007 xs_debug(number: i32) -> (peer: UbikPeer, is_clone: i32);
}
