//! Errors, in the words of OpenAFS's `bos`.

use afar_rpc::RpcError;
use afar_types::error::{BZNOTACTIVE, RX_CALL_DEAD, RX_CALL_TIMEOUT};

use crate::codes::Words;
use crate::output;

/// The overseer's codes.
const BZ: Words = Words {
    first: BZNOTACTIVE,
    texts: &[
        "process not active",
        "no such entity",
        "can't do operation now",
        "entity already exists",
        "failed to create entity",
        "index out of range",
        "you are not authorized for this operation",
        "syntax error in create parameter",
        "I/O error",
        "network problem",
        "unrecognized bnode type",
        "kvno already used - have to remove existing kvno's before reuse",
        "this function requires encrypted input, use a newer client program",
    ],
    others: &[
        (RX_CALL_DEAD, "communications failure (-1)"),
        (RX_CALL_TIMEOUT, "communications timeout (-3)"),
    ],
};

/// Tells what an overseer did not do, and why.
pub(super) fn failed(what: &str, error: &RpcError) {
    let why = BZ.text(error.code().0);
    output::usage(&format!("bos: failed to {what} ({why})\n"));
}

/// Tells that somebody stays an administrator.
pub(super) fn not_removed(user: &str, error: &RpcError, unknown: bool) {
    let why = if unknown {
        "no such user".to_owned()
    } else {
        BZ.text(error.code().0)
    };
    output::usage(&format!("bos: failed to delete user '{user}', ({why})\n"));
}

/// Tells that two things do not go together.
pub(super) fn not_both(what: &str) {
    output::usage(&format!("bos: can't specify both {what}.\n"));
}

/// Tells that it is not said what is to be restarted.
pub(super) fn no_instance() {
    output::usage("bos: specify at least one instance to restart, or -all, or -bosserver.\n");
}

/// Tells why a list of keys ends.
pub(super) fn keys_ended(error: &RpcError) {
    let why = BZ.text(error.code().0);
    output::usage(&format!(
        "bos: {why} error encountered while listing keys\n"
    ));
}

/// Tells why a log is not there, or not whole.
pub(super) fn log_ended(error: &RpcError) {
    let why = BZ.text(error.code().0);
    output::usage(&format!("bos: {why} (while reading log)\n"));
}

/// Tells that an overseer does not say what processes it has.
pub(super) fn no_overseer(error: &RpcError) {
    let why = BZ.text(error.code().0);
    output::usage(&format!(
        "bos: failed to contact host's bosserver ({why}).\n"
    ));
}

/// Tells that there is no such machine.
pub(super) fn no_host(server: &str) {
    output::usage(&format!("bos: can't find address for host '{server}'\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_said_in_known_words() {
        let text = |code| BZ.text(code);
        assert_eq!(text(39_425), "no such entity");
        assert_eq!(text(39_430), "you are not authorized for this operation");
        assert_eq!(text(-1), "communications failure (-1)");
        assert_eq!(
            text(BZ.first + 13),
            format!("unknown code {}", BZ.first + 13)
        );
    }
}
