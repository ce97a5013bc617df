//! A client beside a cell in memory.

mod batches;
mod changes;
mod credentials;
mod fetches;
mod oob;
mod paths;
mod readers;
mod silence;
mod sites;
mod slow;
mod world;
