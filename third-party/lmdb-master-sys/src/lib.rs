//! LMDB for Rust: see README.md.

#![allow(warnings)]
#![allow(rustdoc::broken_intra_doc_links)]
#![allow(rustdoc::invalid_html_tags)]
#![allow(non_camel_case_types)]
#![allow(clippy::all)]
#![doc(html_root_url = "https://docs.rs/lmdb-master-sys/0.2.6")]

extern crate libc;

#[cfg(unix)]
#[allow(non_camel_case_types)]
pub type mdb_mode_t = ::libc::mode_t;
#[cfg(windows)]
#[allow(non_camel_case_types)]
pub type mdb_mode_t = ::libc::c_int;

#[cfg(unix)]
#[allow(non_camel_case_types)]
pub type mdb_filehandle_t = ::libc::c_int;
#[cfg(windows)]
#[allow(non_camel_case_types)]
pub type mdb_filehandle_t = *mut ::libc::c_void;

include!("bindings.rs");

/// Functions that are asked about the pages of an environment: see lmdb.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MDB_page_hooks {
    pub ctx: *mut libc::c_void,
    pub check: Option<unsafe extern "C" fn(*mut libc::c_void, usize, usize) -> libc::c_int>,
    pub wrote: Option<unsafe extern "C" fn(*mut libc::c_void, usize, *const libc::c_void, usize)>,
    pub commit: Option<
        unsafe extern "C" fn(
            *mut libc::c_void,
            usize,
            usize,
            *const libc::c_void,
            usize,
        ) -> libc::c_int,
    >,
    pub closed: Option<unsafe extern "C" fn(*mut libc::c_void)>,
}

extern "C" {
    /// Sets the functions of the next environment that this thread creates. Returns the `ctx` of those
    /// set before if no environment has taken them.
    pub fn mdb_env_next_hooks(hooks: *const MDB_page_hooks) -> *mut libc::c_void;
}
