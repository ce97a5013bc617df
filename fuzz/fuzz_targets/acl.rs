//! ACL texts: what is read can be written and reads the same.

#![no_main]

use afar_types::Acl;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(acl) = Acl::parse(data) {
        let text = acl
            .to_text()
            .expect("a text that was read has names that can be written");
        assert_eq!(Acl::parse(&text), Ok(acl));
    }
});
