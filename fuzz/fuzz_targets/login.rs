//! The login service's messages and SSH keys: what is read can be written and reads the same, and
//! nobody has signed anything.

#![no_main]

use std::fmt::Debug;
use std::str;

use afar_login::sshkey::{SshKey, is_signed};
use afar_login::wire::{self, Answer, Reason, Request};
use afar_xdr::{Decode, Encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    again::<Answer>(data);
    again::<Reason>(data);
    again::<Request>(data);
    if let Ok(Request::Keys { signatures, .. }) = wire::decode(data) {
        for signature in &*signatures {
            assert!(!is_signed(signature, b"message"));
        }
    }
    assert!(!is_signed(data, b"message"));
    if let Ok(line) = str::from_utf8(data)
        && let Ok(key) = SshKey::parse(line)
    {
        assert!(!key.comment().contains(char::is_control));
        assert_eq!(SshKey::parse(&key.to_string()).as_ref(), Ok(&key));
    }
});

fn again<T: Debug + Decode + Encode + PartialEq>(data: &[u8]) {
    if let Ok(message) = wire::decode::<T>(data) {
        let octets = wire::encode(&message);
        assert_eq!(wire::decode::<T>(&octets).as_ref(), Ok(&message));
    }
}
