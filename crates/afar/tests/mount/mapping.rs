//! A part of a file, mapped into memory.

#![expect(
    unsafe_code,
    reason = "mapped memory is read and written by its address"
)]

use std::ffi::c_void;
use std::fs::File;
use std::ptr;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

const PAGE: u64 = 4096;

/// Pages of a file. Those beyond its end must not be touched.
struct Mapping {
    pages: *mut c_void,
    size: usize,
    /// Where in the pages the part begins that was asked for.
    start: usize,
}

impl Mapping {
    fn new(file: &File, offset: u64, size: usize, rights: ProtFlags) -> Self {
        let start = (offset % PAGE) as usize;
        let (from, size) = (offset - start as u64, start + size);
        // SAFETY: the kernel chooses the place, so nothing that is there already is mapped over.
        let pages = unsafe { mmap(ptr::null_mut(), size, rights, MapFlags::SHARED, file, from) };
        Self {
            pages: pages.unwrap(),
            size,
            start,
        }
    }

    fn at_start(&self) -> *mut u8 {
        self.pages.cast::<u8>().wrapping_add(self.start)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the pages were mapped by this value, and nothing refers to them any more.
        unsafe { munmap(self.pages, self.size) }.unwrap();
    }
}

/// What a part of a file holds, and then what the last of its pages holds beyond it. The part must lie
/// within the file.
pub(crate) fn read(file: &File, offset: u64, size: usize) -> (Vec<u8>, Vec<u8>) {
    let rest = ((offset + size as u64).next_multiple_of(PAGE) - offset) as usize - size;
    let mapping = Mapping::new(file, offset, size + rest, ProtFlags::READ);
    let mut part = vec![0; size + rest];
    // SAFETY: as much was mapped, and its pages are of a file that only this test changes.
    unsafe { ptr::copy_nonoverlapping(mapping.at_start(), part.as_mut_ptr(), part.len()) };
    let rest = part.split_off(size);
    (part, rest)
}

/// Writes to a part of a file, which must lie within it; waits until the file system has it if
/// `synced`.
pub(crate) fn write(file: &File, offset: u64, data: &[u8], synced: bool) {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let mapping = Mapping::new(file, offset, data.len(), rights);
    // SAFETY: as much was mapped, and its pages are of a file that only this test changes.
    unsafe { ptr::copy_nonoverlapping(data.as_ptr(), mapping.at_start(), data.len()) };
    if synced {
        // SAFETY: the pages are mapped; that others see their content harms nobody.
        unsafe { msync(mapping.pages, mapping.size, MsyncFlags::SYNC) }.unwrap();
    }
}
