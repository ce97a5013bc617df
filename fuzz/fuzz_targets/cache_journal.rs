//! The journal of a mount's cache: what is read is written the same, whatever is in its records.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| afar_cache::fuzz_journal(data));
