//! Tokens of OpenAFS's kernel client: pioctls through the file its module has in `/proc`.
//!
//! New ones (VIOC_SETTOK2, VIOC_GETTOK2: `ktc_setTokenData`) come first, and those of clients before
//! 1.8 where these are not known.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;

use afar_types::CellName;
use afar_xdr::Decoder;
use bytes::Bytes;
use zeroize::Zeroizing;

use super::Held;
use super::entry::{EntryError, cell_name};
use super::sys;
use crate::{SessionKey, Token};

/// Where the module takes calls.
const DEVICE: &CStr = c"/proc/fs/openafs/afs_ioctl";
/// What an answer may have: a pioctl's size is a `short`.
const ANSWER_MAX: usize = 20_000;
/// Cells that are looked for.
const CELLS_MAX: u32 = 200;
/// Bytes of a `ClearToken`.
const CLEAR_TOKEN: i32 = 24;

const VIOCSETTOK: libc::c_ulong = sys::vice(3);
const VIOCGETTOK: libc::c_ulong = sys::vice(8);
const VIOCUNLOG: libc::c_ulong = sys::vice(9);
const VIOC_GETTOK2: libc::c_ulong = sys::common(7);
const VIOC_SETTOK2: libc::c_ulong = sys::common(8);

/// OpenAFS's client or kafs does not take or give a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// This machine does not run it.
    #[error("it is not running here ({0})")]
    Missing(#[source] io::Error),
    /// It refuses.
    #[error("it refuses: {0}")]
    Refused(#[from] io::Error),
    /// What it gives is no token, or what it is given cannot be one.
    #[error(transparent)]
    Entry(#[from] EntryError),
}

/// OpenAFS's client on this machine.
#[derive(Debug)]
pub struct Client(OwnedFd);

impl Client {
    /// The client, if it runs here.
    ///
    /// # Errors
    /// [`ClientError::Missing`]
    pub fn open() -> Result<Self, ClientError> {
        sys::open(DEVICE).map(Self).map_err(ClientError::Missing)
    }

    /// Gives the client a token, in place of the one it has for the cell, for this user or PAG.
    ///
    /// # Errors
    /// When it does not know the cell, or does not take the token.
    pub fn put(&self, held: &Held) -> Result<(), ClientError> {
        let octets = held.to_octets()?;
        match sys::pioctl(&self.0, VIOC_SETTOK2, &octets, &mut []) {
            // spec: security#tokens-of-kernel-clients
            Err(error) if is_unknown(&error) => {
                let octets = old_form(held);
                Ok(sys::pioctl(&self.0, VIOCSETTOK, &octets, &mut [])?)
            }
            done => Ok(done?),
        }
    }

    /// The token it has for a cell.
    ///
    /// # Errors
    /// When what it gives is no token of rxkad.
    pub fn find(&self, cell: &CellName) -> Result<Option<Held>, ClientError> {
        let mut answer = Zeroizing::new(vec![0; ANSWER_MAX]);
        let asked = [cell.as_str().as_bytes(), &[0]].concat();
        match sys::pioctl(&self.0, VIOC_GETTOK2, &asked, &mut answer) {
            Ok(()) => Ok(Some(Held::read(&mut Decoder::new(&answer))?)),
            Err(error) if is_unknown(&error) => Ok(self
                .old_tokens()?
                .into_iter()
                .find(|held| held.cell == *cell)),
            Err(error) if is_none(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// All tokens it has for this user or PAG. Those that are of other classes, or expired, may be
    /// missing.
    ///
    /// # Errors
    /// When it answers nonsense.
    pub fn all(&self) -> Result<Vec<Held>, ClientError> {
        let mut held = self.old_tokens()?;
        for old in &mut held {
            // The new form has whole tickets, which the old one may not.
            if let Ok(Some(new)) = self.find(&old.cell) {
                *old = new;
            }
        }
        Ok(held)
    }

    fn old_tokens(&self) -> Result<Vec<Held>, ClientError> {
        let mut found = Vec::new();
        for number in 0..CELLS_MAX {
            let mut answer = Zeroizing::new(vec![0; ANSWER_MAX]);
            match sys::pioctl(&self.0, VIOCGETTOK, &number.to_ne_bytes(), &mut answer) {
                Ok(()) => found.push(of_old_form(&answer)?),
                Err(error) if error.raw_os_error() == Some(libc::EDOM) => break,
                Err(error) if is_none(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    /// Has the client forget its token for a cell. It can only forget all, so the others are given
    /// back to it. Says whether there was one.
    ///
    /// # Errors
    /// When it does not take the others back.
    pub fn remove(&self, cell: &CellName) -> Result<bool, ClientError> {
        let all = self.all()?;
        if all.iter().all(|held| held.cell != *cell) {
            return Ok(false);
        }
        self.remove_all()?;
        for held in all.iter().filter(|held| held.cell != *cell) {
            self.put(held)?;
        }
        Ok(true)
    }

    /// Has the client forget all tokens of this user or PAG.
    ///
    /// # Errors
    /// When it refuses.
    pub fn remove_all(&self) -> Result<(), ClientError> {
        Ok(sys::pioctl(&self.0, VIOCUNLOG, &[], &mut [])?)
    }
}

/// Whether the client does not know what it was asked for.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS))
}

/// Whether the client says that there is no token.
fn is_none(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(
        code,
        Some(libc::EDOM | libc::ENOTCONN | libc::ENOENT | libc::ESRCH)
    )
}

/// What VIOCSETTOK takes, in the machine's order of bytes: ticket, `ClearToken`, whether the cell
/// is the primary one, and its name.
fn old_form(held: &Held) -> Zeroizing<Vec<u8>> {
    let (token, cell) = (&held.token, held.cell.as_str());
    let mut out = Zeroizing::new(Vec::with_capacity(token.ticket.len() + cell.len() + 64));
    let word = |out: &mut Vec<u8>, word: u32| out.extend_from_slice(&word.to_ne_bytes());
    word(
        &mut out,
        u32::try_from(token.ticket.len()).unwrap_or(u32::MAX),
    );
    out.extend_from_slice(&token.ticket);
    word(&mut out, CLEAR_TOKEN.unsigned_abs());
    word(&mut out, token.kvno);
    out.extend_from_slice(token.key.octets());
    word(&mut out, held.vice_id.unwrap_or(0));
    word(&mut out, held.begin());
    word(&mut out, token.end);
    word(&mut out, 0);
    out.extend_from_slice(cell.as_bytes());
    out.push(0);
    out
}

/// What VIOCGETTOK gives: the same.
fn of_old_form(octets: &[u8]) -> Result<Held, EntryError> {
    let mut rest = octets;
    let ticket_length = old_word(&mut rest)?;
    let ticket = take(
        &mut rest,
        usize::try_from(ticket_length).unwrap_or(usize::MAX),
    )?;
    if old_word(&mut rest)? != CLEAR_TOKEN.unsigned_abs() {
        return Err(EntryError::OtherClass);
    }
    let kvno = old_word(&mut rest)?;
    let key = take(&mut rest, 8)?.first_chunk().copied();
    let (vice_id, start, end) = (
        old_word(&mut rest)?,
        old_word(&mut rest)?,
        old_word(&mut rest)?,
    );
    let _primary = old_word(&mut rest)?;
    let cell = rest.split(|octet| *octet == 0).next().unwrap_or_default();
    let known = end.wrapping_sub(start) % 2 == 1;
    Ok(Held {
        cell: cell_name(cell)?,
        user: None,
        vice_id: known.then_some(vice_id),
        token: Token {
            kvno,
            key: SessionKey::new(key.ok_or(EntryError::OtherClass)?),
            ticket: Bytes::copy_from_slice(ticket),
            start,
            end,
        },
    })
}

fn old_word(rest: &mut &[u8]) -> Result<u32, EntryError> {
    let word = take(rest, 4)?.first_chunk().copied();
    word.map(u32::from_ne_bytes).ok_or(EntryError::OtherClass)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], EntryError> {
    let (taken, left) = rest
        .split_at_checked(length)
        .ok_or(EntryError::OtherClass)?;
    *rest = left;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::entry::tests::alice;
    use super::*;

    #[test]
    fn the_numbers_are_those_of_openafs() {
        // From its headers, compiled on x86_64 (aarch64 has the same).
        assert_eq!(VIOCSETTOK, 0x4018_5603);
        assert_eq!(VIOCGETTOK, 0x4018_5608);
        assert_eq!(VIOCUNLOG, 0x4018_5609);
        assert_eq!(VIOC_GETTOK2, 0x4018_4307);
        assert_eq!(VIOC_SETTOK2, 0x4018_4308);
    }

    #[test]
    fn the_old_form_is_that_of_old_clients() {
        let held = alice("a.org", b"ticket", 1_700_003_601);
        let word = |word: u32| word.to_ne_bytes().to_vec();
        let expected = [
            word(6),
            b"ticket".to_vec(),
            word(24),
            word(256),
            vec![1, 2, 4, 7, 8, 11, 13, 14],
            word(1000),
            word(1_700_000_000),
            word(1_700_003_601),
            word(0),
            b"a.org\0".to_vec(),
        ]
        .concat();
        assert_eq!(*old_form(&held), expected);
        let read = of_old_form(&[&expected[..], &[0; 40]].concat()).unwrap();
        assert_eq!(read, Held { user: None, ..held });
    }

    #[test]
    fn an_answer_may_be_longer_than_what_is_in_it() {
        let held = alice("a.org", b"ticket", 1_700_003_601);
        let mut answer = held.to_octets().unwrap().to_vec();
        answer.resize(ANSWER_MAX, 0);
        let read = Held::read(&mut Decoder::new(&answer)).unwrap();
        assert_eq!(read, Held { user: None, ..held });
    }

    proptest! {
        #[test]
        fn no_answer_panics(octets in prop::collection::vec(any::<u8>(), 0..120)) {
            let _read = of_old_form(&octets);
            let _read = Held::read(&mut Decoder::new(&octets));
        }
    }
}
