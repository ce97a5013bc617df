//! The shell around the Rx engine: UDP sockets, clock, threads; async connections and calls.
