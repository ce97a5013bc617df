//! Knowing a cell: its servers, their addresses, its volumes and paths.
