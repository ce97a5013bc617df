//! The AFS-3 RPC interfaces, one table each: client stubs and server traits.
