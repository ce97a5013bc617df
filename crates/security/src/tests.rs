//! What several tests of this crate use.

pub(crate) mod kdc;

/// The bytes of a hexadecimal text; blanks are skipped.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| u8::try_from(c.to_digit(16).unwrap()).unwrap())
        .collect();
    let (pairs, rest) = digits.as_chunks::<2>();
    assert!(rest.is_empty());
    pairs.iter().map(|[high, low]| high << 4 | low).collect()
}
