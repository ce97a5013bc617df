//! The one binary: flags, wiring, output.

mod about;
mod advice;
mod afs_args;
mod bos;
mod cli;
mod codes;
mod doctor;
mod fetch;
mod fs;
mod keys;
mod metrics;
mod mount;
mod output;
mod password;
mod pts;
mod rxperf;
mod server;
mod service;
mod status;
mod store;
mod tokens;
mod top;
mod units;
mod vos;

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Most of what afar allocates is freed by another thread: a call's buffers, rows and answers go from
/// the threads that make them to those that use them. glibc's allocator is slow at that. It is built
/// without huge pages, of which each small program would have a few.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    if let Err(error) = afar_server::private::process() {
        output::note(&format_args!(
            "a crash of this process may leave its memory in a core: {error}"
        ));
    }
    cli::run()
}
