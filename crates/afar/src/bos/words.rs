//! Errors, in the words of OpenAFS's `bos`.

use afar_rpc::RpcError;
use afar_types::error::lookup;

use crate::output;

/// First code of the overseer.
const BZ: i32 = 39_424;

/// What the overseer's codes mean, from the first one on, as scripts know it.
const BZ_TEXTS: [&str; 13] = [
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
];

/// What a code means.
fn text(code: i32) -> String {
    let row = code
        .checked_sub(BZ)
        .and_then(|row| usize::try_from(row).ok());
    match (row.and_then(|row| BZ_TEXTS.get(row)), code) {
        (Some(text), _) => (*text).to_owned(),
        (None, -1) => "communications failure (-1)".to_owned(),
        (None, -3) => "communications timeout (-3)".to_owned(),
        (None, _) => match lookup(code) {
            Some(known) => known.text.to_owned(),
            None => format!("unknown code {code}"),
        },
    }
}

/// Tells what an overseer did not do, and why.
pub(super) fn failed(what: &str, error: &RpcError) {
    let why = text(error.code().0);
    output::usage(&format!("bos: failed to {what} ({why})\n"));
}

/// Tells that an overseer does not say what processes it has.
pub(super) fn no_overseer(error: &RpcError) {
    let why = text(error.code().0);
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
        assert_eq!(text(39_425), "no such entity");
        assert_eq!(text(39_430), "you are not authorized for this operation");
        assert_eq!(text(-1), "communications failure (-1)");
        assert_eq!(text(BZ + 13), format!("unknown code {}", BZ + 13));
    }
}
