//! AES in CBC mode with ciphertext stealing and a zero initial vector (RFC 3962, 5).
//!
//! Of the published crates, `cts` encrypts a message of exactly one block twice; Kerberos does not.

use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit};
use aes::{Aes128, Aes256, Block};

/// Bytes of a block.
pub(super) const BLOCK: usize = 16;

/// A key schedule of either size.
#[expect(
    clippy::large_enum_variant,
    reason = "it is on the stack for one message"
)]
pub(super) enum Aes {
    Short(Aes128),
    Long(Aes256),
}

impl Aes {
    /// The schedule of a key of 16 or 32 bytes.
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        match key.len() {
            16 => Aes128::new_from_slice(key).ok().map(Self::Short),
            32 => Aes256::new_from_slice(key).ok().map(Self::Long),
            _ => None,
        }
    }

    /// Encrypts one block.
    pub(super) fn encrypt_block(&self, block: &mut [u8; BLOCK]) {
        let block = Block::from_mut_slice(block);
        match self {
            Self::Short(aes) => aes.encrypt_block(block),
            Self::Long(aes) => aes.encrypt_block(block),
        }
    }

    fn decrypt_block(&self, block: &mut [u8; BLOCK]) {
        let block = Block::from_mut_slice(block);
        match self {
            Self::Short(aes) => aes.decrypt_block(block),
            Self::Long(aes) => aes.decrypt_block(block),
        }
    }

    /// Encrypts a message in place.
    ///
    /// # Panics
    /// If it has less than a block: callers put a confounder of one block in front.
    pub(super) fn encrypt(&self, data: &mut [u8]) {
        let (whole, last) = split(data);
        let mut previous = [0; BLOCK];
        for block in whole.iter_mut() {
            xor(block, &previous);
            self.encrypt_block(block);
            previous = *block;
        }
        let mut block = [0; BLOCK];
        block[..last.len()].copy_from_slice(last);
        xor(&mut block, &previous);
        self.encrypt_block(&mut block);
        // The last two change places, so that it is the shorter one that stands at the end.
        match whole.last_mut() {
            Some(stolen_from) => {
                *stolen_from = block;
                last.copy_from_slice(&previous[..last.len()]);
            }
            None => last.copy_from_slice(&block),
        }
    }

    /// Decrypts a message in place.
    ///
    /// # Panics
    /// If it has less than a block.
    pub(super) fn decrypt(&self, data: &mut [u8]) {
        let (whole, last) = split(data);
        let Some((stolen_from, whole)) = whole.split_last_mut() else {
            let block: &mut [u8; BLOCK] = last.try_into().expect("the only block is whole");
            self.decrypt_block(block);
            return;
        };
        let mut previous = [0; BLOCK];
        for block in whole {
            let sealed = *block;
            self.decrypt_block(block);
            xor(block, &previous);
            previous = sealed;
        }
        self.decrypt_block(stolen_from);
        let mut block = *stolen_from;
        block[..last.len()].copy_from_slice(last);
        for (octet, mask) in last.iter_mut().zip(stolen_from.iter()) {
            *octet ^= mask;
        }
        self.decrypt_block(&mut block);
        xor(&mut block, &previous);
        *stolen_from = block;
    }
}

/// The blocks before the last one, and that: 1 to 16 bytes.
fn split(data: &mut [u8]) -> (&mut [[u8; BLOCK]], &mut [u8]) {
    assert!(data.len() >= BLOCK, "a confounder is in front");
    let (whole, last) = data.split_at_mut((data.len() - 1) / BLOCK * BLOCK);
    (whole.as_chunks_mut().0, last)
}

fn xor(block: &mut [u8; BLOCK], mask: &[u8; BLOCK]) {
    for (octet, mask) in block.iter_mut().zip(mask) {
        *octet ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 3962, B: the vectors of 17, 31, 32, 47, 48 and 64 bytes.
    #[test]
    fn the_rfc_s_soup() {
        let input = b"I would like the General Gau's Chicken, please, and wonton soup.";
        let aes = Aes::new(b"chicken teriyaki").unwrap();
        for (len, expected) in [
            (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
            (
                31,
                "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5",
            ),
            (
                32,
                "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584",
            ),
            (
                47,
                "97687268d6ecccc0c07b25e25ecfe584b3fffd940c16a18c1b5549d2f838029e\
                 39312523a78662d5be7fcbcc98ebf5",
            ),
            (
                48,
                "97687268d6ecccc0c07b25e25ecfe5849dad8bbb96c4cdc03bc103e1a194bbd8\
                 39312523a78662d5be7fcbcc98ebf5a8",
            ),
            (
                64,
                "97687268d6ecccc0c07b25e25ecfe58439312523a78662d5be7fcbcc98ebf5a8\
                 4807efe836ee89a526730dbc2f7bc8409dad8bbb96c4cdc03bc103e1a194bbd8",
            ),
        ] {
            let mut data = input[..len].to_vec();
            aes.encrypt(&mut data);
            assert_eq!(data, crate::tests::hex(expected), "{len}");
            aes.decrypt(&mut data);
            assert_eq!(data, input[..len]);
        }
    }

    proptest! {
        #[test]
        fn every_length_leads_back(
            message in prop::collection::vec(any::<u8>(), 16..100),
            long: bool,
        ) {
            let aes = Aes::new(&[7; 32][..if long { 32 } else { 16 }]).unwrap();
            let mut data = message.clone();
            aes.encrypt(&mut data);
            prop_assert_ne!(&data, &message);
            aes.decrypt(&mut data);
            prop_assert_eq!(data, message);
        }
    }
}
