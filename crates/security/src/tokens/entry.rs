//! What is kept of a token, and its bytes: those that OpenAFS's client is given by VIOCSETTOK2 and
//! kafs by `add_key` (`ktc_setTokenData` with one `token_rxkad`), then, in afar's own stores only,
//! whose it is.

use std::time::SystemTime;

use afar_types::CellName;
use afar_xdr::{DecodeError, Decoder, FixedOpaque, List, Opaque, XdrString};
use bytes::Bytes;
use zeroize::Zeroizing;

use crate::{SessionKey, Token};

/// The longest name of a cell, as others have it.
pub(super) const CELL_MAX: usize = 64;
/// The longest ticket.
const TICKET_MAX: usize = 12_000;
/// The longest token.
const TOKEN_MAX: usize = 16_384;
/// Tokens of one cell: one a security class.
const TOKENS_MAX: usize = 8;
/// The longest name of a user with its realm.
const USER_MAX: usize = 512;
/// The security class of a token of rxkad.
const RXKAD: i32 = 2;
/// Bytes that no entry exceeds.
pub(super) const ENTRY_MAX: usize = TOKENS_MAX * (TOKEN_MAX + 4) + CELL_MAX + USER_MAX + 32;

/// A token as it is kept: for which cell, and whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The cell whose servers take it.
    pub cell: CellName,
    /// The user it was given to, as `name@REALM`. A kernel's client does not remember that.
    pub user: Option<String>,
    /// The user's number in the cell's protection database, where it is known. It is for people to
    /// read only: servers look at the ticket.
    pub vice_id: Option<u32>,
    /// The token.
    pub token: Token,
}

/// A token that cannot be kept or given away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// Others keep no such names.
    #[error("the name of cell {0} has more than 64 bytes, so its tokens cannot be stored")]
    Cell(CellName),
    /// No ticket is so long.
    #[error("the ticket has {0} bytes; tickets of AFS have up to 12,000")]
    Ticket(usize),
    /// Names are shorter.
    #[error("the user's name has {0} bytes, or contains a NUL byte")]
    User(usize),
    /// The bytes are not those of a token.
    #[error("not a token: {0}")]
    Damaged(#[from] DecodeError),
    /// The cell's name is none.
    #[error("not a token: its cell name is invalid")]
    CellName,
    /// There is no token of rxkad in it.
    #[error("it contains no rxkad token")]
    OtherClass,
}

impl Held {
    /// Whose it is, as far as that is known.
    #[must_use]
    pub fn who(&self) -> String {
        match (&self.user, self.vice_id) {
            (Some(user), _) => user.clone(),
            (None, Some(id)) => format!("AFS ID {id}"),
            (None, None) => "a user".to_owned(),
        }
    }

    /// Whether it has expired.
    #[must_use]
    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.token.left(now).is_none()
    }

    /// The bytes that kernels are given. They do not say whose it is.
    ///
    /// # Errors
    /// When something is too long.
    pub fn to_octets(&self) -> Result<Zeroizing<Vec<u8>>, EntryError> {
        let (cell, ticket) = (self.cell.as_str(), &self.token.ticket);
        if cell.len() > CELL_MAX {
            return Err(EntryError::Cell(self.cell.clone()));
        }
        if ticket.len() > TICKET_MAX {
            return Err(EntryError::Ticket(ticket.len()));
        }
        // Reserved whole, lest a part with the key stay behind where the buffer was before.
        let mut out = Zeroizing::new(Vec::with_capacity(256 + USER_MAX + ticket.len()));
        word(&mut out, 0);
        counted(&mut out, cell.as_bytes());
        word(&mut out, 1);
        word(&mut out, length(36 + padded(ticket.len())));
        word(&mut out, RXKAD.unsigned_abs());
        word(&mut out, self.vice_id.unwrap_or(0));
        word(&mut out, self.token.kvno);
        out.extend_from_slice(self.token.key.octets());
        word(&mut out, self.begin());
        word(&mut out, self.token.end);
        word(&mut out, 0);
        counted(&mut out, ticket);
        Ok(out)
    }

    /// When it begins, as others are told: they take the user's number for known when the lifetime
    /// is odd.
    pub(super) fn begin(&self) -> u32 {
        let odd = self.token.end.wrapping_sub(self.token.start) % 2 == 1;
        match odd == self.vice_id.is_some() {
            true => self.token.start,
            false => self.token.start.saturating_sub(1),
        }
    }

    /// The same with whose it is, as afar keeps it.
    ///
    /// # Errors
    /// When something is too long, or the user's name has a byte that is zero.
    pub fn to_entry(&self) -> Result<Zeroizing<Vec<u8>>, EntryError> {
        let mut out = self.to_octets()?;
        let user = self.user.as_deref().unwrap_or_default();
        if user.len() > USER_MAX || user.contains('\0') {
            return Err(EntryError::User(user.len()));
        }
        counted(&mut out, user.as_bytes());
        Ok(out)
    }

    /// Reads either form.
    ///
    /// # Errors
    /// When these are not the bytes of a token, or there is none of rxkad among them.
    pub fn from_octets(octets: &[u8]) -> Result<Self, EntryError> {
        let mut input = Decoder::new(octets);
        let mut held = Self::read(&mut input)?;
        if !input.rest().is_empty() {
            let user: XdrString<USER_MAX> = input.read()?;
            held.user = Some(user.to_string()).filter(|user| !user.is_empty());
        }
        input.finish()?;
        Ok(held)
    }

    /// Reads the kernel's form, and nothing behind it.
    pub(super) fn read(input: &mut Decoder<'_>) -> Result<Self, EntryError> {
        let _flags: i32 = input.read()?;
        let cell: XdrString<CELL_MAX> = input.read()?;
        let cell = cell_name(cell.as_bytes())?;
        let tokens: List<Opaque<TOKEN_MAX>, TOKENS_MAX> = input.read()?;
        for token in tokens.iter() {
            let mut input = Decoder::new(token);
            if input.read::<i32>()? == RXKAD {
                let (vice_id, token) = rxkad(&mut input)?;
                return Ok(Self {
                    cell,
                    user: None,
                    vice_id,
                    token,
                });
            }
        }
        Err(EntryError::OtherClass)
    }
}

/// The cell of this name.
pub(super) fn cell_name(octets: &[u8]) -> Result<CellName, EntryError> {
    let name = std::str::from_utf8(octets).ok();
    let cell = name.and_then(|name| name.parse().ok());
    cell.ok_or(EntryError::CellName)
}

/// A `token_rxkad`, and the user's number if it counts.
fn rxkad(input: &mut Decoder<'_>) -> Result<(Option<u32>, Token), EntryError> {
    let vice_id: u32 = input.read()?;
    let kvno: u32 = input.read()?;
    let FixedOpaque(key): FixedOpaque<8> = input.read()?;
    let key = SessionKey::new(key);
    let (start, end): (u32, u32) = (input.read()?, input.read()?);
    let _primary: u32 = input.read()?;
    let ticket: Opaque<TICKET_MAX> = input.read()?;
    let known = end.wrapping_sub(start) % 2 == 1;
    let token = Token {
        kvno,
        key,
        ticket: Bytes::from(ticket.into_bytes()),
        start,
        end,
    };
    Ok((known.then_some(vice_id), token))
}

fn word(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_be_bytes());
}

fn counted(out: &mut Vec<u8>, octets: &[u8]) {
    word(out, length(octets.len()));
    out.extend_from_slice(octets);
    out.resize(out.len() + padded(octets.len()) - octets.len(), 0);
}

const fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn length(length: usize) -> u32 {
    u32::try_from(length).expect("lengths were held against their limits")
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kvno;

    /// A token of alice's.
    pub(in crate::tokens) fn alice(cell: &str, ticket: &'static [u8], end: u32) -> Held {
        Held {
            cell: cell.parse().unwrap(),
            user: Some("alice@EXAMPLE.ORG".to_owned()),
            vice_id: Some(1000),
            token: Token {
                kvno: kvno::K5,
                key: SessionKey::new([1, 2, 4, 7, 8, 11, 13, 14]),
                ticket: Bytes::from_static(ticket),
                start: end - 3601,
                end,
            },
        }
    }

    #[test]
    fn the_octets_are_those_that_openafs_takes() {
        let held = alice("a.org", b"ticket", 1_700_003_601);
        let expected: Vec<u8> = [
            &[0, 0, 0, 0, 0, 0, 0, 5][..],
            b"a.org\0\0\0",
            &[0, 0, 0, 1, 0, 0, 0, 44, 0, 0, 0, 2],
            &[0, 0, 0x03, 0xe8, 0, 0, 1, 0, 1, 2, 4, 7, 8, 11, 13, 14],
            &1_700_000_000u32.to_be_bytes(),
            &1_700_003_601u32.to_be_bytes(),
            &[0, 0, 0, 0, 0, 0, 0, 6],
            b"ticket\0\0",
        ]
        .concat();
        assert_eq!(*held.to_octets().unwrap(), expected);
        let read = Held::from_octets(&expected).unwrap();
        let nameless = Held { user: None, ..held };
        assert_eq!(read, nameless);
        assert_eq!(read.who(), "AFS ID 1000");
    }

    #[test]
    fn an_unknown_number_makes_the_lifetime_even() {
        let mut held = alice("a.org", b"ticket", 1_700_003_601);
        held.vice_id = None;
        let read = Held::from_octets(&held.to_entry().unwrap()).unwrap();
        assert_eq!((read.vice_id, read.token.start), (None, 1_699_999_999));
        assert_eq!(read.user.as_deref(), Some("alice@EXAMPLE.ORG"));
    }

    #[test]
    fn tokens_of_other_classes_are_passed_over() {
        let rxgk = [&[0, 0, 0, 8][..], &[0, 0, 0, 4], &[9; 4]].concat();
        let whole = alice("a.org", b"ticket", 1_700_003_601)
            .to_octets()
            .unwrap();
        let two = [&whole[..16], &[0, 0, 0, 2], &rxgk, &whole[20..]].concat();
        assert_eq!(Held::from_octets(&two).unwrap().token.kvno, kvno::K5);
        let other = [&whole[..16], &[0, 0, 0, 1], &rxgk].concat();
        assert_eq!(Held::from_octets(&other), Err(EntryError::OtherClass));
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let long = format!("{}.org", "a".repeat(61));
        let held = alice(&long, b"ticket", 1_700_003_601);
        assert!(matches!(held.to_octets(), Err(EntryError::Cell(_))));
        let mut held = alice("a.org", b"ticket", 1_700_003_601);
        held.token.ticket = Bytes::from(vec![0; 12_001]);
        assert_eq!(held.to_octets(), Err(EntryError::Ticket(12_001)));
        held.token.ticket = Bytes::new();
        held.user = Some("a".repeat(513));
        assert_eq!(held.to_entry(), Err(EntryError::User(513)));
    }

    fn any_held() -> impl Strategy<Value = Held> {
        let ticket = prop::collection::vec(any::<u8>(), 0..600);
        let user = prop::option::of("[a-z./]{1,20}@[A-Z.]{1,20}");
        let numbers = (any::<u32>(), 2u32.., any::<u32>());
        let cell = "[a-z]{1,20}\\.[a-z]{2,20}";
        (
            cell,
            user,
            prop::option::of(any::<u32>()),
            any::<[u8; 8]>(),
            ticket,
            numbers,
        )
            .prop_map(
                |(cell, user, vice_id, key, ticket, (kvno, start, end))| Held {
                    cell: cell.parse().unwrap(),
                    user,
                    vice_id,
                    token: Token {
                        kvno,
                        key: SessionKey::new(key),
                        ticket: ticket.into(),
                        start,
                        end,
                    },
                },
            )
    }

    proptest! {
        #[test]
        fn entries_are_read_as_they_were_written(held in any_held()) {
            let entry = held.to_entry().unwrap();
            let begin = held.begin();
            let mut expected = held.clone();
            expected.token.start = begin;
            let read = Held::from_octets(&entry).unwrap();
            prop_assert_eq!(&read, &expected);
            // What was read is written the same.
            prop_assert_eq!(&read.to_entry().unwrap()[..], &entry[..]);
        }

        #[test]
        fn no_octets_panic(octets in prop::collection::vec(any::<u8>(), 0..200)) {
            let _read = Held::from_octets(&octets);
        }

        #[test]
        fn no_damaged_entry_panics(held in any_held(), at in any::<prop::sample::Index>(),
                                   octet: u8, cut in any::<prop::sample::Index>()) {
            let mut entry = held.to_entry().unwrap().to_vec();
            let at = at.index(entry.len());
            entry[at] = octet;
            let _read = Held::from_octets(&entry);
            let cut = cut.index(entry.len());
            // All of an entry is needed, down to the word that says that nobody is named.
            let shorter = Held::from_octets(&held.to_entry().unwrap()[..cut]);
            let whole = held.to_octets().unwrap().len();
            prop_assert!(shorter.is_err() || cut == whole);
        }
    }
}
