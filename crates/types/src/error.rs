//! The numbers that AFS services abort calls with: their names and what they say.
//!
//! Positive numbers under 512 are VICE codes or the server's own `errno`; Rx and RPC codes are
//! negative; every other service has a range of its own. A code is never unique to one meaning
//! across services, but in practice the ranges do not overlap.

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:expr;)*) => {
        $($(#[$doc])* pub const $name: i32 = $code;)*
    };
}

pub mod errno;
mod tables;
mod uae;

use std::fmt;

pub use tables::*;

use errno::{EACCES, EAGAIN, EDQUOT, EIO, ENODEV, ENOENT, ENOSPC};

/// What is known of one code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorInfo {
    /// The code.
    pub code: i32,
    /// The package that gives it that meaning, such as `VICE` or `VL`.
    pub space: &'static str,
    /// Its name in AFS, such as `VNOVOL`.
    pub name: &'static str,
    /// What it says, without a full stop.
    pub text: &'static str,
}

/// `VNOVOL: the volume is not attached here (103)`
impl fmt::Display for ErrorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{}: {} ({})",
            self.prefix(),
            self.name,
            self.text,
            self.code
        )
    }
}

impl ErrorInfo {
    fn prefix(&self) -> &'static str {
        if self.space == "UAE" { "UA" } else { "" }
    }
}

codes! {
    /// The file server is starting; like `VBUSY`, but negative so that old clients go elsewhere.
    VRESTARTING = -100;
    /// The volume may not use this server's storage.
    VRESTRICTED = 120;
}

/// A code that a call ended with, for what codes have in common; each of them is a constant of
/// this module.
///
/// ```
/// use afar_types::error::{Code, RXGEN_OPCODE, VL_NOENT};
///
/// assert!(Code(RXGEN_OPCODE).is_interface_mismatch());
/// assert!(!Code(VL_NOENT).is_interface_mismatch());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub i32);

impl Code {
    /// Whether the sides do not agree on operations or their arguments (RXGEN): another server of
    /// the kind answers the same.
    #[must_use]
    pub const fn is_interface_mismatch(self) -> bool {
        RXGEN_CC_XDRFREE <= self.0 && self.0 <= RXGEN_CC_MARSHAL
    }

    /// Whether the security class refuses the token, as every server of the cell does (rxkad).
    #[must_use]
    pub const fn is_token_refused(self) -> bool {
        RXKADINCONSISTENCY <= self.0 && self.0 <= RXKADILLEGALLEVEL
    }

    /// Whether it is ubik's: this server of a database cannot answer now, and another may.
    #[must_use]
    // spec: afs-rpc#database-servers-that-agree
    pub const fn is_ubik(self) -> bool {
        UNOQUORUM <= self.0 && self.0 < UNOQUORUM + PACKAGE
    }
}

/// The text of [`describe`].
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match lookup(self.0) {
            Some(info) => info.fmt(f),
            None => write!(f, "error {}", self.0),
        }
    }
}

/// Codes that a service may have: a table of `com_err`.
const PACKAGE: i32 = 256;

/// Looks a code up. Codes from 1 to 100 and 114 to 511, VICE codes apart, are taken for `errno`
/// values of Linux.
#[must_use]
pub fn lookup(code: i32) -> Option<ErrorInfo> {
    for table in TABLES {
        let row = code
            .checked_sub(table.base)
            .and_then(|n| usize::try_from(n).ok());
        if let Some(&(name, text)) = row.and_then(|row| table.rows.get(row)) {
            return Some(ErrorInfo {
                code,
                space: table.space,
                name,
                text,
            });
        }
    }
    if let Some(&(_, name, text)) = SINGLE.iter().find(|(known, ..)| *known == code) {
        let space = if code < 0 { "RX" } else { "VICE" };
        return Some(ErrorInfo {
            code,
            space,
            name,
            text,
        });
    }
    if let Some(&(name, _, text)) = uae_row(code) {
        return Some(ErrorInfo {
            code,
            space: "UAE",
            name,
            text,
        });
    }
    let &(name, _, text) = uae::ROWS
        .iter()
        .find(|(_, errno, _)| *errno == code && code > 0)?;
    Some(ErrorInfo {
        code,
        space: "errno",
        name,
        text,
    })
}

/// One line on a code, for users: name, meaning, number.
///
/// ```
/// use afar_types::error::describe;
///
/// assert_eq!(describe(103), "VNOVOL: the volume is not on this server (103)");
/// assert_eq!(describe(123_456), "error 123456");
/// ```
#[must_use]
pub fn describe(code: i32) -> String {
    Code(code).to_string()
}

fn uae_row(code: i32) -> Option<&'static uae::Row> {
    let row = code
        .checked_sub(uae::BASE)
        .and_then(|n| usize::try_from(n).ok())?;
    uae::ROWS.get(row)
}

/// The `errno` of Linux that a UAE code stands for.
#[must_use]
pub fn uae_to_errno(code: i32) -> Option<i32> {
    uae_row(code)
        .map(|(_, errno, _)| *errno)
        .filter(|&errno| errno != 0)
}

/// The UAE code for an `errno` of Linux, as servers send it to clients that announced
/// [`CAPABILITY_ERROR_TRANSLATION`](crate::CAPABILITY_ERROR_TRANSLATION).
#[must_use]
pub fn errno_to_uae(errno: i32) -> Option<i32> {
    if errno <= 0 {
        return None;
    }
    let row = uae::ROWS.iter().position(|(_, known, _)| *known == errno)?;
    i32::try_from(row).ok().map(|row| uae::BASE + row)
}

/// The `errno` of Linux closest to what a code says, for programs that know no others: UAE codes
/// translated, VICE codes by their meaning, `errno` values as they are.
#[must_use]
// spec: afs-rpc#error-codes
pub fn errno_of(code: i32) -> Option<i32> {
    match code {
        VNOVNODE => Some(ENOENT),
        VNOVOL | VNOSERVICE | VMOVED | VL_NOENT => Some(ENODEV),
        VDISKFULL => Some(ENOSPC),
        VOVERQUOTA => Some(EDQUOT),
        VBUSY | VRESTARTING => Some(EAGAIN),
        VSALVAGE | VOFFLINE | VIO | VSALVAGING => Some(EIO),
        VRESTRICTED => Some(EACCES),
        _ => uae_to_errno(code).or_else(|| {
            let info = lookup(code)?;
            (info.space == "errno").then_some(code)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_every_service() {
        let name = |code| lookup(code).map(|info| (info.space, info.name));
        assert_eq!(name(-1), Some(("RX", "RX_CALL_DEAD")));
        assert_eq!(name(-100), Some(("RX", "VRESTARTING")));
        assert_eq!(name(-455), Some(("RXGEN", "RXGEN_OPCODE")));
        assert_eq!(name(-453), Some(("RXGEN", "RXGEN_SS_UNMARSHAL")));
        assert_eq!(name(13), Some(("errno", "EACCES")));
        assert_eq!(name(110), Some(("VICE", "VBUSY")));
        assert_eq!(name(120), Some(("VICE", "VRESTRICTED")));
        assert_eq!(name(5377), Some(("U", "UNOTSYNC")));
        assert_eq!(name(267_268), Some(("PT", "PRNOENT")));
        assert_eq!(name(363_524), Some(("VL", "VL_NOENT")));
        assert_eq!(name(363_552), Some(("VL", "VL_DBBAD")));
        assert_eq!(name(19_270_409), Some(("RXK", "RXKADEXPIRED")));
        assert_eq!(name(1_233_242_880), Some(("RXGK", "RXGK_INCONSISTENCY")));
        assert_eq!(name(1_492_325_133), Some(("VOLS", "VOLSERVOLBUSY")));
        assert_eq!(name(49_733_376 + 0x78), Some(("UAE", "EDQUOT")));
        for unknown in [0, i32::MIN, i32::MAX, 600, -449, -2000, 363_553] {
            assert_eq!(name(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn constants_are_the_codes_of_their_rows() {
        assert_eq!((VSALVAGE, VIO, VSALVAGING), (101, 112, 113));
        assert_eq!((RX_CALL_DEAD, RX_CALL_TIMEOUT, RX_MSGSIZE), (-1, -3, -8));
        assert_eq!((RXGEN_CC_MARSHAL, RXGEN_OPCODE), (-450, -455));
        assert_eq!((UNOQUORUM, UINTERNAL), (5376, 5380));
        assert_eq!((BZNOENT, BZDOM, BZACCESS), (39_425, 39_429, 39_430));
        assert_eq!((PREXIST, PRNAMETOOLONG), (267_264, 267_282));
        assert_eq!(
            (VL_IDEXIST, VL_NOENT, VL_DBBAD),
            (363_520, 363_524, 363_552)
        );
        assert_eq!((RXKADINCONSISTENCY, RXKADEXPIRED), (19_270_400, 19_270_409));
        assert_eq!(RXGK_BAD_QOP, 1_233_242_891);
        assert_eq!(
            (VOLSERTRELE_ERROR, VOLSERVOLBUSY),
            (1_492_325_120, 1_492_325_133)
        );
    }

    #[test]
    fn what_codes_have_in_common() {
        let which = |is: fn(Code) -> bool, codes: [i32; 4]| codes.map(|code| is(Code(code)));
        let inside = [false, true, true, false];
        assert_eq!(
            which(Code::is_interface_mismatch, [-458, -457, -450, -449]),
            inside
        );
        assert_eq!(which(Code::is_ubik, [5375, 5376, 5631, 5632]), inside);
        let rxkad = [19_270_399, 19_270_400, 19_270_412, 19_270_413];
        assert_eq!(which(Code::is_token_refused, rxkad), inside);
    }

    #[test]
    fn uae_and_errno_are_each_others_inverse() {
        for (code, errno) in [
            (0, 1),
            (1, 2),
            (0x0a, 11),
            (0x0c, 13),
            (0x26, 39),
            (0x72, 116),
        ] {
            assert_eq!(uae_to_errno(49_733_376 + code), Some(errno));
        }
        for errno in 1..=133 {
            if let Some(code) = errno_to_uae(errno) {
                assert_eq!(uae_to_errno(code), Some(errno));
            }
        }
        assert_eq!(
            (errno_to_uae(0), errno_to_uae(-1), uae_to_errno(49_733_375)),
            (None, None, None)
        );
    }

    #[test]
    fn meanings_for_programs_that_know_errno_only() {
        assert_eq!(errno_of(VNOVOL), Some(19));
        assert_eq!(errno_of(49_733_376 + 0x0c), Some(13));
        assert_eq!(errno_of(13), Some(13));
        assert_eq!(errno_of(-455), None);
    }

    #[test]
    fn every_row_has_a_name_and_one_sentence() {
        let rows = TABLES.iter().flat_map(|table| table.rows.iter().copied());
        let single = SINGLE.iter().map(|(_, name, text)| (*name, *text));
        let uae = uae::ROWS.iter().map(|(name, _, text)| (*name, *text));
        for (name, text) in rows.chain(single).chain(uae) {
            assert!(!name.is_empty() && !text.is_empty(), "{name}");
            assert!(!text.ends_with('.'), "{name}");
        }
        assert_eq!(
            describe(49_733_388),
            "UAEACCES: the access control list does not allow this (49733388)"
        );
    }
}
