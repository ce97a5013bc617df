//! Requests as servers read them: opcode and arguments of every interface.

#![no_main]

use afar_rpc::INTERFACES;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for interface in INTERFACES {
        let canonical = interface.canonical_request;
        if let Ok(Some(once)) = canonical(data) {
            assert_eq!(canonical(&once), Ok(Some(once.clone())));
        }
    }
});
