//! ACL texts and records: what is read can be written and reads the same.

#![no_main]

use afar_types::{Acl, AclRecord};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(acl) = Acl::parse(data) {
        let text = acl
            .to_text()
            .expect("a text that was read has names that can be written");
        assert_eq!(Acl::parse(&text), Ok(acl));
    }
    let mut bytes = [0; AclRecord::SIZE];
    let len = data.len().min(bytes.len());
    bytes[..len].copy_from_slice(&data[..len]);
    if let Ok(record) = AclRecord::from_bytes(&bytes) {
        assert_eq!(AclRecord::from_bytes(&record.to_bytes()), Ok(record));
    }
});
