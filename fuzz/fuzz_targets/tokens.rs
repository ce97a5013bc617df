//! Tokens as they are kept, and caches of Kerberos tickets: what is read can be written and reads
//! the same.

#![no_main]

use std::time::{Duration, SystemTime};

use afar_security::ccache::Ccache;
use afar_security::tokens::Held;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(held) = Held::from_octets(data) {
        assert!(!held.who().is_empty());
        if let Ok(octets) = held.to_entry() {
            assert_eq!(Held::from_octets(&octets).as_ref(), Ok(&held));
        }
        // Kernels are not told whose it is.
        if let Ok(octets) = held.to_octets() {
            let nameless = Held { user: None, ..held };
            assert_eq!(Held::from_octets(&octets), Ok(nameless));
        }
    }
    if let Ok(cache) = Ccache::from_octets(data) {
        let octets = cache.to_octets();
        assert_eq!(Ccache::from_octets(&octets).as_ref(), Ok(&cache));
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        if let Some(credential) = cache.for_cell("example.org", now) {
            drop(credential.token());
        }
    }
});
