//! What LMDB calls before it looks at pages, and when it writes them.

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use heed::{EnvOpenOptions, WithoutTls};
use lmdb_master_sys::{MDB_CORRUPTED, MDB_page_hooks, mdb_env_next_hooks};

use crate::sums::Sums;
use crate::{Durability, Env, flags};

/// Opens an environment that asks `sums`.
#[expect(unsafe_code, reason = "a memory map, and functions that C calls")]
pub(crate) fn open(
    dir: &Path,
    options: &mut EnvOpenOptions<WithoutTls>,
    durability: Durability,
    sums: &Arc<Sums>,
) -> heed::Result<Env> {
    // SAFETY: NO_SYNC leaves the file inconsistent if power fails: with checkpoints the caller puts back
    // the pages that lead to the state that was synced. NO_READ_AHEAD is advice.
    unsafe { options.flags(flags(durability)) };
    let hooks = MDB_page_hooks {
        ctx: Arc::into_raw(Arc::clone(sums)).cast_mut().cast(),
        check: Some(check),
        wrote: Some(wrote),
        commit: Some(commit),
        closed: Some(closed),
    };
    // SAFETY: it copies them; this thread creates no environment but the one opened next, which owns
    // a reference to `sums` until `closed` is called.
    unsafe { mdb_env_next_hooks(&hooks) };
    // SAFETY: the caller keeps other processes from the files; nobody else has business there.
    let opened = unsafe { options.open(dir) };
    let none = MDB_page_hooks {
        ctx: ptr::null_mut(),
        check: None,
        wrote: None,
        commit: None,
        closed: None,
    };
    // SAFETY: as above.
    let untaken = unsafe { mdb_env_next_hooks(&none) };
    if !untaken.is_null() {
        // It failed before it came to creating one.
        // SAFETY: nobody has taken the reference.
        unsafe { closed(untaken) };
    }
    opened
}

#[expect(unsafe_code, reason = "called by C")]
unsafe extern "C" fn check(ctx: *mut c_void, page: usize, count: usize) -> c_int {
    // SAFETY: the environment's own reference, see `open`.
    let sums = unsafe { &*ctx.cast::<Sums>() };
    match sums.check(page as u64, count as u64) {
        true => 0,
        false => MDB_CORRUPTED,
    }
}

#[expect(unsafe_code, reason = "called by C")]
unsafe extern "C" fn wrote(ctx: *mut c_void, page: usize, pages: *const c_void, count: usize) {
    // SAFETY: the environment's own reference, see `open`.
    let sums = unsafe { &*ctx.cast::<Sums>() };
    let Some(len) = sums.page_size().checked_mul(count) else {
        return;
    };
    // SAFETY: LMDB is about to write so many bytes from there.
    let bytes = unsafe { std::slice::from_raw_parts(pages.cast::<u8>(), len) };
    sums.wrote(page as u64, bytes);
}

#[expect(unsafe_code, reason = "called by C")]
unsafe extern "C" fn commit(
    ctx: *mut c_void,
    number: usize,
    last_page: usize,
    meta: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: the environment's own reference, see `open`.
    let sums = unsafe { &*ctx.cast::<Sums>() };
    // SAFETY: LMDB is about to write so many bytes from there.
    let meta = unsafe { std::slice::from_raw_parts(meta.cast::<u8>(), len) };
    match sums.commit(number as u64, last_page as u64, meta) {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    }
}

#[expect(unsafe_code, reason = "called by C")]
unsafe extern "C" fn closed(ctx: *mut c_void) {
    // SAFETY: the reference that `open` gave away; the environment is gone.
    drop(unsafe { Arc::from_raw(ctx.cast_const().cast::<Sums>()) });
}
