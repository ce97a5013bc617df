//! XDR codec (RFC 4506): bounded, never panics on any input.
