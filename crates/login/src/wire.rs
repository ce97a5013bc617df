//! The messages. Each is a frame: its length in a word of 32 bits, then so many bytes, which are
//! a word with the version and what [`Request`] or [`Answer`] is in XDR.
//!
//! spec: login#messages

use afar_xdr::{Decode, Decoder, Encode, FixedOpaque, List, Opaque, XdrString};
use bytes::{BufMut, Bytes, BytesMut};
use zeroize::Zeroize;

/// The version of the protocol.
// spec: login#messages
pub const VERSION: u32 = 1;
/// Bytes of a frame, at most.
pub const FRAME_MAX: usize = 16 << 10;
/// Signatures that may be shown at once.
pub const SIGNATURES_MAX: usize = 8;

/// The name of a cell.
pub type Cell = XdrString<255>;
/// The name of a user.
pub type User = XdrString<64>;
/// A part of a principal's name.
pub type Part = XdrString<64>;
/// A message of OPAQUE.
pub type Opaqued = Opaque<1024>;
/// A signature in the form of `ssh-keygen -Y` (SSHSIG), without its armour.
pub type Signature = Opaque<1536>;

/// The user who wants to log in, and where.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Who {
    /// The cell.
    pub cell: Cell,
    /// The user, in this cell's protection database.
    pub user: User,
    /// Seconds the token is to hold; 0 for as long as the cell gives them. It may give less.
    pub lifetime: u32,
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Request {
    /// Begins a login with a password.
    #[xdr(case = 1)]
    Password {
        /// The user.
        who: Who,
        /// OPAQUE's KE1.
        ke1: Opaqued,
    },
    /// Ends a login with a password.
    #[xdr(case = 2)]
    Proof {
        /// OPAQUE's KE3.
        ke3: Opaqued,
    },
    /// Logs in with keys; one that is the user's will do.
    #[xdr(case = 3)]
    Keys {
        /// The user.
        who: Who,
        /// A signature of each key.
        signatures: List<Signature, SIGNATURES_MAX>,
    },
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Answer {
    /// The password's proof is wanted.
    #[xdr(case = 1)]
    Challenge {
        /// OPAQUE's KE2.
        ke2: Opaqued,
    },
    /// The login has succeeded.
    #[xdr(case = 2)]
    Granted(Ticket),
    /// It has not.
    #[xdr(case = 3)]
    Refused {
        /// Why.
        reason: Reason,
        /// Seconds until it is worth while to try again, if that is why.
        wait: u32,
    },
}

/// A ticket and the keys that belong to it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Ticket {
    /// The user's name in Kerberos: one component or two.
    pub client: List<Part, 2>,
    /// The service's name in Kerberos.
    pub service: List<Part, 2>,
    /// The realm of both.
    pub realm: Cell,
    /// From when on it holds, in seconds since 1970.
    pub start: u32,
    /// When it expires.
    pub end: u32,
    /// The ticket's flags.
    pub flags: u32,
    /// The encryption type of the session's key.
    pub etype: i32,
    /// The session's key.
    pub session: Secret<Opaque<64>>,
    /// The key of rxkad that follows from it.
    pub key: Secret<FixedOpaque<8>>,
    /// The number by which rxkad names tickets of this sort.
    pub kvno: u32,
    /// The ticket in DER.
    pub ticket: Opaque<8192>,
}

/// Why a login was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Reason {
    /// Wrong password, no such user, no such key: they are all the same.
    #[xdr(case = 1)]
    Refused,
    /// There were too many attempts; a while later it may be tried again.
    #[xdr(case = 2)]
    Wait,
    /// The server is of another cell.
    #[xdr(case = 3)]
    Cell,
    /// A message is of another version, or makes no sense.
    #[xdr(case = 4)]
    Message,
    /// Something is wrong with the server; its log tells.
    #[xdr(case = 5)]
    Server,
    /// A newer server knows why.
    #[xdr(default)]
    Other(u32),
}

/// Something that is not printed.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
pub struct Secret<T>(pub T);

impl<T> std::fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(..)")
    }
}

/// A message could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// It is of another version of the protocol.
    #[error("it has version {0} of the login protocol; this program knows {VERSION}")]
    Version(u32),
    /// Its bytes are no message.
    #[error(transparent)]
    Damaged(#[from] afar_xdr::DecodeError),
}

/// The bytes of a message, without the frame's length.
#[must_use]
pub fn encode(message: &impl Encode) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u32(VERSION);
    message.encode(&mut out);
    out.freeze()
}

/// The message in a frame.
///
/// # Errors
/// When it is of another version, cannot be read, or has bytes to spare.
pub fn decode<T: Decode>(frame: &[u8]) -> Result<T, WireError> {
    let version = Decoder::new(frame).read::<u32>()?;
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    Ok(afar_xdr::from_bytes(&frame[4..])?)
}

impl Ticket {
    /// Overwrites what is secret.
    pub fn wipe(&mut self) {
        std::mem::take(&mut self.session.0).into_bytes().zeroize();
        self.key.0.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn who() -> Who {
        Who {
            cell: "home.arpa".try_into().unwrap(),
            user: "alice".try_into().unwrap(),
            lifetime: 60,
        }
    }

    #[test]
    fn octets_are_those_of_the_protocol() {
        let request = Request::Password {
            who: who(),
            ke1: Opaque::new(*b"abc").unwrap(),
        };
        let octets = encode(&request);
        assert_eq!(
            &octets[..],
            b"\0\0\0\x01\0\0\0\x01\0\0\0\x09home.arpa\0\0\0\0\0\0\x05alice\0\0\0\0\0\0\x3c\0\0\0\x03abc\0"
        );
        assert_eq!(decode(&octets), Ok(request));
        let refused = Answer::Refused {
            reason: Reason::Wait,
            wait: 7,
        };
        let octets = encode(&refused);
        assert_eq!(&octets[..], b"\0\0\0\x01\0\0\0\x03\0\0\0\x02\0\0\0\x07");
        assert_eq!(decode(&octets), Ok(refused));
    }

    #[test]
    fn other_versions_and_what_is_left_over_are_refused() {
        let octets = encode(&Reason::Refused);
        let mut other = octets.to_vec();
        other[3] = 9;
        assert_eq!(decode::<Reason>(&other), Err(WireError::Version(9)));
        let longer = [&octets[..], &[0; 4]].concat();
        assert!(matches!(
            decode::<Reason>(&longer),
            Err(WireError::Damaged(_))
        ));
        assert!(decode::<Reason>(&[0, 0]).is_err());
    }

    #[test]
    fn the_longest_messages_fit_a_frame() {
        const { assert!(<Request as Decode>::MAX_LEN + 4 <= FRAME_MAX) };
        const { assert!(<Answer as Decode>::MAX_LEN + 4 <= FRAME_MAX) };
    }

    proptest! {
        #[test]
        fn any_octets_are_read_or_refused(octets in proptest::collection::vec(any::<u8>(), 0..400)) {
            let framed = [&VERSION.to_be_bytes()[..], &octets].concat();
            if let Ok(request) = decode::<Request>(&framed) {
                prop_assert_eq!(&encode(&request)[..], &framed[..]);
            }
            if let Ok(answer) = decode::<Answer>(&framed) {
                prop_assert_eq!(&encode(&answer)[..], &framed[..]);
            }
        }
    }
}
