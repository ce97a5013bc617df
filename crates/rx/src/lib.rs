//! The Rx engine, sans-IO: packets, calls, acks, RTT, loss recovery, congestion.
