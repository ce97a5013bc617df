//! Rows and keys of the volume store's database: what is read is written the same.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| afar_store::fuzzing::row(data));
