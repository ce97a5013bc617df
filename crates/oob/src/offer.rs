//! What is asked and answered over Rx.
// spec: oob#the-offer

use afar_xdr::{Decode, DecodeError, Decoder, Encode, FixedOpaque, Opaque, to_bytes};
use bytes::Bytes;

use crate::record::Codecs;
use crate::{Parts, VERSION};

/// A sealed grant: of no meaning to anybody but the server that made it.
pub type SealedGrant = Opaque<512>;

/// A client asks for an offer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Question {
    /// The highest version that it knows.
    pub version: u32,
    /// Its public key for the agreement (X25519).
    pub share: FixedOpaque<32>,
    /// What else it says.
    pub parts: Parts,
}

/// Where and how a server takes transfers out of band.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Offer {
    /// The version it is of, no higher than the one asked for.
    pub version: u32,
    /// The TCP port, at the address that was called.
    pub port: u32,
    /// Operations that are served, as bits: see [`FETCH`] and the others.
    pub operations: u32,
    /// Seconds until the grant expires.
    pub lifetime: u32,
    /// The SHA-256 of the server's public key (its SubjectPublicKeyInfo).
    pub fingerprint: FixedOpaque<32>,
    /// The server's public key for the agreement (X25519).
    pub share: FixedOpaque<32>,
    /// The ways of packing that the server uses and unpacks, as bits.
    pub codecs: Codecs,
    /// The grant, to be shown.
    pub grant: SealedGrant,
    /// What else it says.
    pub parts: Parts,
}

/// The bit of [`Offer::operations`] for fetching files.
pub const FETCH: u32 = 1;
/// The bit of [`Offer::operations`] for storing into files.
pub const STORE: u32 = 2;
/// The bit of [`Offer::operations`] for dumping volumes.
pub const DUMP: u32 = 4;
/// The bit of [`Offer::operations`] for filling volumes from dumps.
pub const RESTORE: u32 = 8;

impl Question {
    /// With this public key.
    #[must_use]
    pub fn new(share: [u8; 32]) -> Self {
        Self {
            version: VERSION,
            share: FixedOpaque(share),
            parts: Parts::default(),
        }
    }
}

/// The bytes of a message of either side.
#[must_use]
pub fn encode(message: &impl Encode) -> Bytes {
    to_bytes(message)
}

/// Reads a message of either side. What follows it is of a later version and ignored.
///
/// # Errors
/// The bytes are no such message.
pub fn decode<T: Decode>(bytes: &[u8]) -> Result<T, DecodeError> {
    T::decode(&mut Decoder::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Part;

    fn offer() -> Offer {
        Offer {
            version: VERSION,
            port: 7000,
            operations: FETCH,
            lifetime: 600,
            fingerprint: FixedOpaque([1; 32]),
            share: FixedOpaque([2; 32]),
            codecs: Codecs::ALL,
            grant: Opaque::new(*b"abc").unwrap(),
            parts: Parts::default(),
        }
    }

    #[test]
    fn bytes_are_those_of_the_protocol() {
        let question = encode(&Question::new([9; 32]));
        assert_eq!(question[..4], [0, 0, 0, 1]);
        assert_eq!(question[4..36], [9; 32]);
        assert_eq!(question[36..], [0; 4]);
        let bytes = encode(&offer());
        assert_eq!(
            bytes[..16],
            *b"\0\0\0\x01\0\0\x1b\x58\0\0\0\x01\0\0\x02\x58"
        );
        assert_eq!(bytes[80..], *b"\0\0\0\x07\0\0\0\x03abc\0\0\0\0\0");
        assert_eq!(decode::<Offer>(&bytes), Ok(offer()));
    }

    #[test]
    fn later_versions_may_add_parts_and_bytes() {
        let mut later = offer();
        let part = Part {
            number: 77,
            bytes: Opaque::new(*b"new").unwrap(),
        };
        later.parts = Parts::new([part]).unwrap();
        let bytes = [&encode(&later)[..], b"and more"].concat();
        assert_eq!(decode::<Offer>(&bytes), Ok(later));
        for end in 0..encode(&offer()).len() {
            assert!(decode::<Offer>(&bytes[..end]).is_err(), "{end}");
        }
    }
}
