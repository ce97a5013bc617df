//! What a server gives to itself through a client: who the client is, sealed so that only this server, while it
//! runs, can read it. Its form is the server's own business and may change with each release.
// spec: oob#the-grant

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use afar_types::AfsUuid;
use afar_xdr::{Decode, Encode, FixedOpaque, Opaque, XdrString, from_bytes, to_bytes};
use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use zeroize::Zeroizing;

use crate::offer::SealedGrant;
use crate::secret::Secret;

/// What is authenticated with each grant.
const LABEL: &[u8] = b"afar-oob/1 grant";
/// Bytes of a nonce, which stands before what is sealed with it.
const NONCE: usize = 12;
/// Bytes of the longest name of a user.
const NAME: usize = 256;

/// The identity that a grant was given to.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Holder {
    /// Nobody in particular.
    #[xdr(case = 0)]
    Anonymous,
    /// A user.
    #[xdr(case = 1)]
    User(XdrString<NAME>),
    /// A user who may administer the server.
    #[xdr(case = 2)]
    Operator(XdrString<NAME>),
    /// The cell's administration.
    #[xdr(case = 3)]
    Superuser,
}

/// The service whose operations a grant is good for, by its number in Rx.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Service {
    /// Files: RXAFS.
    #[xdr(case = 1)]
    Files,
    /// Volumes: AFSVol.
    #[xdr(case = 4)]
    Volumes,
}

/// What a server wants to find again when a client connects.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The service that gave it. No other takes it.
    pub service: Service,
    /// The identity of the caller.
    pub holder: Holder,
    /// Where it called from: where it is called back.
    pub peer: SocketAddr,
    /// The identity of its cache manager, if it told one.
    pub uuid: Option<AfsUuid>,
    /// When it expires, by a clock of the server's own, in seconds.
    pub expires: u64,
    /// The secret of the offer.
    pub secret: Secret,
}

/// A grant is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    /// Another server, or one that has ended, gave it; or nobody did.
    #[error("this server did not give the grant")]
    Foreign,
    /// It has expired.
    #[error("the grant has expired")]
    Expired,
    /// It cannot be sealed.
    #[error("the grant cannot be sealed")]
    Seal,
}

/// As it is sealed.
#[derive(Encode, Decode)]
struct Form {
    service: Service,
    holder: Holder,
    address: FixedOpaque<16>,
    port: u32,
    uuid: Option16,
    expires: u64,
    secret: FixedOpaque<32>,
}

/// A UUID, or none.
#[derive(Encode, Decode)]
enum Option16 {
    #[xdr(case = 0)]
    None,
    #[xdr(case = 1)]
    Some(FixedOpaque<16>),
}

/// Seals grants and opens them again, by a key that lasts as long as this does.
pub struct Sealer(RandomizedNonceKey);

impl Sealer {
    /// With a new key.
    ///
    /// # Errors
    /// [`GrantError::Seal`]: the system gives no random numbers.
    pub fn new() -> Result<Self, GrantError> {
        let mut key = Zeroizing::new([0; 32]);
        aws_lc_rs::rand::fill(&mut *key).map_err(|_| GrantError::Seal)?;
        let key = RandomizedNonceKey::new(&AES_256_GCM, &*key).map_err(|_| GrantError::Seal)?;
        Ok(Self(key))
    }

    /// Seals a grant.
    ///
    /// # Errors
    /// [`GrantError::Seal`].
    pub fn seal(&self, grant: &Grant) -> Result<SealedGrant, GrantError> {
        let form = Form {
            service: grant.service,
            holder: grant.holder.clone(),
            address: FixedOpaque(in_six(grant.peer.ip()).octets()),
            port: grant.peer.port().into(),
            uuid: grant.uuid.map_or(Option16::None, |uuid| {
                Option16::Some(FixedOpaque(uuid.to_bytes()))
            }),
            expires: grant.expires,
            secret: FixedOpaque(*grant.secret.bytes()),
        };
        let mut sealed = Zeroizing::new(to_bytes(&form).to_vec());
        let nonce = self
            .0
            .seal_in_place_append_tag(Aad::from(LABEL), &mut *sealed)
            .map_err(|_| GrantError::Seal)?;
        let bytes = [&nonce.as_ref()[..], &sealed].concat();
        Opaque::new(bytes).map_err(|_| GrantError::Seal)
    }

    /// Opens a grant that this server has sealed, and that has not expired at `now` seconds of its clock.
    ///
    /// # Errors
    /// [`GrantError::Foreign`], [`GrantError::Expired`].
    pub fn open(&self, sealed: &[u8], now: u64) -> Result<Grant, GrantError> {
        let (nonce, sealed) = sealed
            .split_first_chunk::<NONCE>()
            .ok_or(GrantError::Foreign)?;
        let mut bytes = Zeroizing::new(sealed.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = self.0.open_in_place(nonce, Aad::from(LABEL), &mut bytes);
        let plain = plain.map_err(|_| GrantError::Foreign)?;
        let form: Form = from_bytes(plain).map_err(|_| GrantError::Foreign)?;
        let port = u16::try_from(form.port).map_err(|_| GrantError::Foreign)?;
        if form.expires <= now {
            return Err(GrantError::Expired);
        }
        Ok(Grant {
            service: form.service,
            holder: form.holder,
            peer: SocketAddr::new(
                IpAddr::V6(Ipv6Addr::from(form.address.0)).to_canonical(),
                port,
            ),
            uuid: match form.uuid {
                Option16::None => None,
                Option16::Some(bytes) => Some(AfsUuid::from_bytes(bytes.0)),
            },
            expires: form.expires,
            secret: Secret::from_bytes(form.secret.0),
        })
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer(..)")
    }
}

fn in_six(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> Grant {
        Grant {
            service: Service::Files,
            holder: Holder::User(XdrString::new("ann").unwrap()),
            peer: "192.0.2.7:7001".parse().unwrap(),
            uuid: Some(AfsUuid::from_bytes([3; 16])),
            expires: 700,
            secret: Secret::from_bytes([4; 32]),
        }
    }

    #[test]
    fn a_grant_is_found_again_until_it_expires() {
        let sealer = Sealer::new().unwrap();
        for peer in ["192.0.2.7:7001", "[2001:db8::1]:9"] {
            let given = Grant {
                service: Service::Volumes,
                peer: peer.parse().unwrap(),
                uuid: None,
                ..grant()
            };
            let found = sealer.open(&sealer.seal(&given).unwrap(), 699).unwrap();
            assert_eq!(found.service, Service::Volumes);
            assert_eq!((&found.holder, found.peer), (&given.holder, given.peer));
            assert_eq!(found.secret.bytes(), given.secret.bytes());
            assert_eq!((found.uuid, found.expires), (None, 700));
        }
        let sealed = sealer.seal(&grant()).unwrap();
        let found = sealer.open(&sealed, 699).unwrap();
        assert_eq!((found.service, found.uuid), (Service::Files, grant().uuid));
        let late = sealer.open(&sealed, 700).map(drop);
        assert_eq!(late, Err(GrantError::Expired));
    }

    #[test]
    fn no_other_server_and_no_wrong_bit_opens_it() {
        let (one, other) = (Sealer::new().unwrap(), Sealer::new().unwrap());
        let sealed = one.seal(&grant()).unwrap();
        let refused = |sealer: &Sealer, bytes: &[u8]| {
            sealer.open(bytes, 0).map(drop) == Err(GrantError::Foreign)
        };
        assert!(refused(&other, &sealed));
        for place in 0..sealed.len() {
            let mut wrong = sealed.to_vec();
            wrong[place] ^= 1;
            assert!(refused(&one, &wrong), "{place}");
            assert!(refused(&one, &sealed[..place]), "{place}");
        }
        assert_ne!(one.seal(&grant()).unwrap(), sealed, "no two are the same");
    }

    #[test]
    fn the_longest_name_has_room() {
        let name = XdrString::new("n".repeat(NAME)).unwrap();
        let longest = Grant {
            holder: Holder::Operator(name),
            ..grant()
        };
        Sealer::new().unwrap().seal(&longest).unwrap();
    }
}
