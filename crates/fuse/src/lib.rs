//! The kernel's file system requests to operations of the cache manager and back, nothing else.
//!
//! - [`Mount`] (`mount`): from a [`Cache`](afar_cache::Cache) to a file system others can use
//! - `requests`: one method for each kind of request
//! - `reply`: the cache's words and the kernel's
//! - `invalidate`: what the kernel must no longer keep
//! - `eyes`: what a mount counts of its requests, and shows in a folder of its own
//! - `interrupt`: who waits for a lock and is to be interrupted
//!
//! # What the kernel keeps
//!
//! Names, attributes and pages are kept by the kernel for as long as the cache manager allows, which
//! is while a promise of a file server holds; when a server breaks it, `invalidate` takes them away
//! from the kernel. So a look-up or a read of what is unchanged costs no request at all, and pages
//! survive a close as long as the file's data version is the same.
//!
//! What is *not* kept is what was written: the kernel's write-back cache stays off. With it the kernel
//! would own size and modification time of every file it has ever seen and no longer take them from
//! us, so that an append by another client would not be seen until the inode is dropped; and errors
//! of writing would surface at a time of the kernel's choosing, not in the write or the close as
//! AFS has it. Writes go to the cache manager as they come, in pieces of up to 1 MiB, and are
//! stored when the file is closed.

mod eyes;
mod interrupt;
mod invalidate;
mod mount;
mod order;
mod reply;
mod requests;

pub use eyes::own::{Report, Text};
pub use mount::{Mount, MountError, Options, Readers};
