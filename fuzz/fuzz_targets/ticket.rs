//! Tickets: whole ones, encrypted parts, and what is inside when a key opens it.

#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use afar_security::keys::Key;
use afar_security::{EncryptionKey, KeyRing, TicketPolicy, kvno, ticket};
use libfuzzer_sys::fuzz_target;

/// One key of each family that can open a ticket; the newest is the one that seals.
static KEYS: LazyLock<KeyRing> = LazyLock::new(|| {
    let key = |kvno, etype, octets| Key {
        kvno,
        key: EncryptionKey::new(etype, vec![7; octets]),
    };
    KeyRing::of([
        key(1, 17, 16),
        key(1, 23, 16),
        key(1, 20, 32),
        key(2, 18, 32),
    ])
});

fuzz_target!(|data: &[u8]| {
    let Some((form, octets)) = data.split_first() else {
        return;
    };
    let policy = TicketPolicy {
        allow_dotted_principals: form & 4 != 0,
        danger_allow_des: form & 8 != 0,
    };
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let open = |kvno, octets: &[u8]| ticket::open(kvno, octets, &KEYS, &policy, now);
    let opened = match form & 3 {
        0 => open(kvno::K5, octets),
        1 => open(kvno::K5_ENC_PART, octets),
        2 => open(u32::from(*form), octets),
        _ => {
            let sealed = ticket::seal_anything(&KEYS, octets).expect("there is a key");
            open(kvno::K5_ENC_PART, &sealed)
        }
    };
    if let Ok(opened) = opened {
        assert!(!opened.client.name.is_empty(), "{opened:?}");
        assert!(opened.start <= opened.end, "{opened:?}");
    }
});
