//! Errors, in the words of OpenAFS's `pts`.

use afar_admin::pts::PtsError;
use afar_types::error::{PRBADARG, PREXIST, RX_CALL_DEAD};

use crate::codes::Words;
use crate::output;

/// The protection service's codes.
const PT: Words = Words {
    first: PREXIST,
    texts: &[
        "Entry for name already exists",
        "Entry for id already exists",
        "Couldn't allocate an id for this entry",
        "Couldn't read/write the database",
        "User or group doesn't exist",
        "Permission denied",
        "No group specified",
        "No user specified",
        "Badly formed name (group prefix doesn't match owner?)",
        "argument illegal or out of range",
        "may not create more groups",
        "database needs rebuilding",
        "can't make owner an empty group",
        "database is inconsistent",
        "bad database address",
        "too many elements in group",
        "malloc failed to alloc enough memory",
        "Protection library internal error",
        "name is too long (maximum 63 characters)",
    ],
    others: &[(RX_CALL_DEAD, "server or network not responding")],
};

/// Tells an error, and what it kept from being done.
pub(super) fn tell(error: &PtsError, what: &str) {
    output::usage(&format!("pts: {} {what}\n", PT.text(error.code().0)));
}

/// Tells that an argument cannot be what it is given for.
pub(super) fn tell_argument(what: &str) {
    output::usage(&format!("pts: {} {what}\n", PT.text(PRBADARG)));
}

/// Tells that an argument is no number, in the words `pts` has for that.
pub(super) fn tell_no_number(what: &str) {
    output::usage(&format!("pts: {} {what}\n", PT.text(RX_CALL_DEAD)));
}

/// Tells what is wrong with the command line.
pub(super) fn tell_usage(what: &str) {
    output::usage(&format!("{what}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_said_in_known_words() {
        let text = |code| PT.text(code);
        let said = |error: PtsError| text(error.code().0);
        assert_eq!(said(PtsError::NoEntry), "User or group doesn't exist");
        assert!(said(PtsError::NameTooLong).starts_with("name is too long"));
        assert!(said(PtsError::AnswerLength).contains("internal error"));
        assert_eq!(text(-1), "server or network not responding");
        assert_eq!(text(PT.first - 1), format!("unknown code {}", PT.first - 1));
        assert!(!text(5376).contains("unknown"));
    }
}
