//! Lines that tell a machine of a cell, as people paste them.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| afar_login::uri::fuzz(line));
