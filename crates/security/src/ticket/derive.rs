//! The key of a session, from the Kerberos key of a ticket.

use hmac::{Hmac, Mac};
use md5::Md5;
use zeroize::Zeroizing;

use crate::SessionKey;
use crate::kerberos::{EncryptionKey, des};

/// What fcrypt uses of a Kerberos key, on both sides of a connection: a DES key as it stands;
/// anything else goes through a function that peers call rxkad-kdf (NIST SP 800-108 in counter mode
/// with HMAC-MD5). `None` for a key that cannot be one: of no type or an obsolete one, or too
/// short. OpenAFS's `tkt_DeriveDesKey` does the same.
// spec: rxkad#tickets
#[must_use]
pub fn session_key(key: &EncryptionKey) -> Option<SessionKey> {
    match key.etype() {
        1..=3 => key.octets().try_into().ok().map(SessionKey::new),
        5 | 7 | 16 => without_parity(key.octets()).and_then(|key| hashed(&key)),
        ..=0 | 4 | 6 | 8..=15 => None,
        _ => hashed(key.octets()),
    }
}

/// The first good key of the function's output.
fn hashed(key: &[u8]) -> Option<SessionKey> {
    if key.len() < 7 {
        return None;
    }
    (1..=u8::MAX).find_map(|counter| {
        let mut mac = <Hmac<Md5> as Mac>::new_from_slice(key).ok()?;
        mac.update(&[counter]);
        mac.update(b"rxkad\0");
        mac.update(&64u32.to_be_bytes());
        let output = Zeroizing::new(<[u8; 16]>::from(mac.finalize().into_bytes()));
        let mut octets = Zeroizing::new([0; des::LEN]);
        octets.copy_from_slice(&output[..des::LEN]);
        des::set_odd_parity(&mut octets);
        (!des::is_weak(&octets)).then(|| SessionKey::new(*octets))
    })
}

/// A key of triple DES as the random bits it was made of: each eighth byte holds the lowest bits
/// of the seven before it, the first one's in bit 1.
fn without_parity(key: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (groups, []) = key.as_chunks::<8>() else {
        return None;
    };
    let octets = groups
        .iter()
        .flat_map(|group| (0..7).map(|i| group[i] & 0xfe | group[7] >> (i + 1) & 1));
    Some(Zeroizing::new(octets.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn derived(etype: i32, octets: Vec<u8>) -> Option<u64> {
        session_key(&EncryptionKey::new(etype, octets)).map(|key| u64::from_be_bytes(*key.octets()))
    }

    #[test]
    fn the_known_key() {
        let key: Vec<u8> = (0..32).collect();
        assert_eq!(derived(18, key.clone()), Some(0xb60d_b5e3_0b26_6b16));
        assert_eq!(derived(20, key.clone()), derived(18, key.clone()));
        assert_eq!(derived(26, key.clone()), derived(18, key));
    }

    #[test]
    fn des_keys_stay() {
        for etype in 1..=3 {
            assert_eq!(derived(etype, vec![2; 8]), Some(0x0202_0202_0202_0202));
            assert_eq!(derived(etype, vec![2; 7]), None);
            assert_eq!(derived(etype, vec![2; 16]), None);
        }
    }

    #[test]
    fn triple_des_loses_its_parity() {
        let key: Vec<u8> = (0..3)
            .flat_map(|_| [0xfe, 1, 0xfe, 1, 0xfe, 1, 0xfe, 0b0101_0101])
            .collect();
        // Bit 1 belongs to the first byte: 0; bit 2 to the second: 1; and so on.
        let random: Vec<u8> = (0..3)
            .flat_map(|_| [0xfe, 1, 0xfe, 1, 0xfe, 1, 0xfe])
            .collect();
        assert_eq!(*without_parity(&key).unwrap(), random);
        assert_eq!(derived(16, key.clone()), derived(18, random.clone()));
        assert_ne!(derived(16, key.clone()), derived(18, key));
        assert_eq!(derived(16, random), None);
    }

    #[test]
    fn other_types_and_short_keys_give_none() {
        for etype in [0, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, -1, i32::MIN] {
            assert_eq!(derived(etype, vec![1; 32]), None, "{etype}");
        }
        assert_eq!(derived(18, vec![1; 6]), None);
        assert!(derived(18, vec![1; 7]).is_some());
        assert_eq!(derived(16, vec![]), None);
    }
}
