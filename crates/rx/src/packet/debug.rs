//! DEBUG packets: what rxdebug asks and is told.

