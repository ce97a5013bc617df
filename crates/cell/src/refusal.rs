//! Tokens that servers refuse, and clients that have none.

use afar_types::error::{Code, RXKADEXPIRED, RXKADUNKNOWNKEY};

/// What an anonymous client is called.
pub const ANONYMOUS: &str = "anonymous";

/// Whether a code says that the token is refused, whatever it was to be used for.
// spec: security#refused-tokens
pub(crate) const fn is_refusal(code: i32) -> bool {
    Code(code).is_token_refused()
}

/// What is wrong with a token that is refused with this code.
pub(crate) fn problem(code: i32, until: Option<&str>) -> String {
    match (code, until) {
        (RXKADEXPIRED, Some(until)) => format!("it expired at {until}"),
        (RXKADUNKNOWNKEY, _) => "they do not have the key it was made with".to_owned(),
        _ => {
            let known = afar_types::error::lookup(code);
            known.map_or_else(|| format!("code {code}"), |known| known.text.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use afar_types::error::{RXKADILLEGALLEVEL, RXKADINCONSISTENCY};

    use super::*;

    #[test]
    fn problems_are_told() {
        assert_eq!(problem(RXKADEXPIRED, Some("noon")), "it expired at noon");
        assert!(problem(RXKADUNKNOWNKEY, None).contains("the key"));
        for code in RXKADINCONSISTENCY..=RXKADILLEGALLEVEL {
            assert!(is_refusal(code));
            assert!(!problem(code, None).starts_with("code"), "{code}");
        }
        assert!(!is_refusal(RXKADINCONSISTENCY - 1) && !is_refusal(RXKADILLEGALLEVEL + 1));
    }
}
