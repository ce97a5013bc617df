//! A client beside a cell in memory.

mod changes;
mod credentials;
mod fetches;
mod paths;
mod sites;
mod world;
