//! RFC 3961's n-fold, and the derivation of keys with it.

use zeroize::Zeroizing;

use super::Secret;
use super::aes_cts::{Aes, BLOCK};

/// Stretches or shrinks bytes to `len` of them (RFC 3961, 5.1): the input is repeated, each time
/// turned right by 13 bits, up to the least common multiple of both lengths; the pieces of the
/// output's length are added in ones' complement.
fn n_fold(input: &[u8], len: usize) -> Vec<u8> {
    let bits = input.len() * 8;
    let bit = |repetition: usize, position: usize| -> u16 {
        let turned = (position + bits - repetition * 13 % bits) % bits;
        u16::from(input[turned / 8] >> (7 - turned % 8) & 1)
    };
    let octet = |index: usize| -> u16 {
        let (repetition, at) = (index / input.len(), index % input.len());
        (0..8).fold(0, |octet, i| octet << 1 | bit(repetition, at * 8 + i))
    };
    let mut sum = vec![0u16; len];
    for index in 0..lcm(input.len(), len) {
        sum[index % len] += octet(index);
    }
    // Carries go to the left, and from the leftmost byte around to the right.
    let mut carry = 0;
    while carry > 0 || sum.iter().any(|&octet| octet > 0xff) {
        for octet in sum.iter_mut().rev() {
            *octet += carry;
            carry = *octet >> 8;
            *octet &= 0xff;
        }
    }
    sum.into_iter()
        .map(|octet| u8::try_from(octet).unwrap_or(u8::MAX))
        .collect()
}

const fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

/// The key of the same length derived from this one and a constant (RFC 3961, 5.1: DK; of AES
/// every byte string is a key). `None` if the key has no length of AES.
pub(super) fn derive(key: &[u8], constant: &[u8]) -> Option<Secret> {
    let aes = Aes::new(key)?;
    let mut block = Zeroizing::new([0; BLOCK]);
    block.copy_from_slice(&n_fold(constant, BLOCK));
    let mut derived = Zeroizing::new(Vec::with_capacity(key.len()));
    while derived.len() < key.len() {
        aes.encrypt_block(&mut block);
        derived.extend_from_slice(&*block);
    }
    Some(derived)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::hex;

    /// RFC 3961, A.1.
    #[test]
    fn folds_of_the_rfc() {
        for (input, expected) in [
            ("012345", "be072631276b1955"),
            ("password", "78a07b6caf85fa"),
            ("Rough Consensus, and Running Code", "bb6ed30870b7f0e0"),
            ("password", "59e4a8ca7c0385c3c37b3f6d2000247cb6e6bd5b3e"),
            (
                "MASSACHVSETTS INSTITVTE OF TECHNOLOGY",
                "db3b0d8f0b061e603282b308a50841229ad798fab9540c1b",
            ),
            ("Q", "518a54a215a8452a518a54a215a8452a518a54a215"),
            ("ba", "fb25d531ae8974499f52fd92ea9857c4ba24cf297e"),
            ("kerberos", "6b65726265726f73"),
            ("kerberos", "6b65726265726f737b9b5b2b93132b93"),
        ] {
            let expected = hex(expected);
            assert_eq!(
                n_fold(input.as_bytes(), expected.len()),
                expected,
                "{input}"
            );
        }
    }

    /// MIT krb5, t_derive.c: the keys of usage 2.
    #[test]
    fn derived_keys() {
        for (key, purpose, expected) in [
            (
                "42263c6e89f4fc28b8df68ee09799f15",
                0x99,
                "34280a382bc92769b2da2f9ef066854b",
            ),
            (
                "42263c6e89f4fc28b8df68ee09799f15",
                0xaa,
                "5b14fc4e250e14ddf9dccf1af6674f53",
            ),
            (
                "fe697b52bc0d3ce14432ba036a92e65bbb52280990a2fa27883998d72af30161",
                0x55,
                "97151b4c76945063e2eb0529dc067d97d7bba90776d8126d91f34f3101aea8ba",
            ),
        ] {
            let derived = derive(&hex(key), &super::super::constant(2, purpose)).unwrap();
            assert_eq!(*derived, hex(expected));
        }
        assert!(derive(&[0; 8], b"kerberos").is_none());
    }
}
