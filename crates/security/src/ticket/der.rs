//! As much of ASN.1's distinguished encoding rules as tickets need.
//!
//! Reading borrows from the input and allocates nothing; writing makes buffers of the exact size,
//! wiped when dropped, as there are keys in them.

use crate::kerberos::Secret;

/// Tags, with their class and whether they are constructed.
pub(super) mod tag {
    pub(in crate::ticket) const INTEGER: u8 = 0x02;
    pub(in crate::ticket) const BIT_STRING: u8 = 0x03;
    pub(in crate::ticket) const OCTET_STRING: u8 = 0x04;
    pub(in crate::ticket) const GENERALIZED_TIME: u8 = 0x18;
    pub(in crate::ticket) const GENERAL_STRING: u8 = 0x1b;
    pub(in crate::ticket) const SEQUENCE: u8 = 0x30;

    /// `[APPLICATION number]`
    pub(in crate::ticket) const fn application(number: u8) -> u8 {
        0x60 | number
    }

    /// `[number]`
    pub(in crate::ticket) const fn field(number: u8) -> u8 {
        0xa0 | number
    }
}

/// Reads elements in a row. Everything gives `None` for what is not DER, or another element than
/// asked for.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(octets: &'a [u8]) -> Self {
        Self(octets)
    }

    /// Whether nothing is left: after the last known field of a sequence.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The content of the next element, which must have this tag.
    pub(super) fn content(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (&first, rest) = self.0.split_first()?;
        if first != tag {
            return None;
        }
        let (len, rest) = length(rest)?;
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some(content)
    }

    /// The elements in the next element, which must have this tag.
    pub(super) fn inside(&mut self, tag: u8) -> Option<Self> {
        self.content(tag).map(Self)
    }

    /// The element in field `number`, which must have this tag and be alone there.
    pub(super) fn field(&mut self, number: u8, tag: u8) -> Option<&'a [u8]> {
        let mut field = self.inside(tag::field(number))?;
        let content = field.content(tag)?;
        field.is_empty().then_some(content)
    }

    /// As [`field`](Self::field), of one that may be left out.
    #[expect(clippy::option_option, reason = "left out, or damaged")]
    pub(super) fn optional(&mut self, number: u8, tag: u8) -> Option<Option<&'a [u8]>> {
        if self.0.first() == Some(&tag::field(number)) {
            self.field(number, tag).map(Some)
        } else {
            Some(None)
        }
    }

    /// Goes past field `number`, whatever is in it, if it is there.
    pub(super) fn skip(&mut self, number: u8) -> Option<()> {
        if self.0.first() == Some(&tag::field(number)) {
            self.content(tag::field(number))?;
        }
        Some(())
    }
}

/// A length in its one shortest form, and what is behind it.
fn length(octets: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, rest) = octets.split_first()?;
    if first < 0x80 {
        return Some((first.into(), rest));
    }
    let (long, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
    // Three bytes would do for much more than a ticket has.
    if long.is_empty() || long.len() > 3 || long[0] == 0 {
        return None;
    }
    let len = long
        .iter()
        .fold(0, |len, &octet| len << 8 | usize::from(octet));
    (len >= 0x80).then_some((len, rest))
}

/// An integer's content as a number, if it is within 64 bits. OpenAFS's server takes longer forms than the
/// shortest one too.
pub(super) fn integer(content: &[u8]) -> Option<i64> {
    let &first = content.first()?;
    if content.len() > 8 {
        return None;
    }
    let start = if first >= 0x80 { -1 } else { 0 };
    let all = content.iter();
    Some(all.fold(start, |number, &octet| number << 8 | i64::from(octet)))
}

/// The first 32 bits of a bit string's content, the first one highest.
pub(super) fn bits(content: &[u8]) -> Option<u32> {
    let (&unused, octets) = content.split_first()?;
    if unused > 7 || (unused > 0 && octets.is_empty()) {
        return None;
    }
    let mut first = [0; 4];
    for (to, from) in first.iter_mut().zip(octets) {
        *to = *from;
    }
    Some(u32::from_be_bytes(first))
}

/// An element with this tag and these bytes in it.
pub(super) fn element(tag: u8, parts: &[&[u8]]) -> Secret {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut octets = Secret::new(Vec::with_capacity(len + 5));
    octets.push(tag);
    let long = len.to_be_bytes();
    let zeros = long.iter().take_while(|&&octet| octet == 0).count();
    let long = &long[zeros.min(long.len() - 1)..];
    if len >= 0x80 {
        octets.extend(u8::try_from(long.len()).map(|count| 0x80 | count));
    }
    octets.extend_from_slice(long);
    for part in parts {
        octets.extend_from_slice(part);
    }
    octets
}

/// Field `number` with an element in it.
pub(super) fn field(number: u8, tag: u8, content: &[u8]) -> Secret {
    element(tag::field(number), &[&element(tag, &[content])])
}

/// An integer's content.
pub(super) fn from_integer(number: i64) -> Vec<u8> {
    let octets = number.to_be_bytes();
    let needless = octets
        .windows(2)
        .take_while(|pair| matches!((pair[0], pair[1]), (0, 0..=0x7f) | (0xff, 0x80..=0xff)))
        .count();
    octets[needless..].to_vec()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_shortest_form_is_read() {
        let content = |octets: &[u8]| Reader::new(octets).content(4).map(<[u8]>::len);
        assert_eq!(content(&[4, 1, 9]), Some(1));
        assert_eq!(content(&[4, 0x81, 1, 9]), None);
        assert_eq!(content(&[4, 0x80, 9, 0, 0]), None);
        assert_eq!(content(&[4, 2, 9]), None);
        assert_eq!(content(&[4, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(content(&[5, 1, 9]), None);
        assert_eq!(content(&[]), None);
        let mut long = vec![4, 0x81, 0x80];
        long.resize(3 + 0x80, 0);
        assert_eq!(content(&long), Some(0x80));
        assert_eq!(content(&[&[4, 0x82, 0, 0x80], &long[3..]].concat()), None);
    }

    #[test]
    fn numbers_may_be_longer_than_they_need() {
        assert_eq!(integer(&[5]), Some(5));
        assert_eq!(integer(&[0, 5]), Some(5));
        assert_eq!(integer(&[0, 0x80]), Some(128));
        assert_eq!(integer(&[0xff, 0x80]), Some(-128));
        assert_eq!(integer(&[0xff, 0x7f]), Some(-129));
        assert_eq!(integer(&[]), None);
        assert_eq!(integer(&[1; 9]), None);
        assert_eq!(bits(&[0, 0, 8, 0, 0]), Some(0x0008_0000));
        assert_eq!(bits(&[3, 0x40]), Some(0x4000_0000));
        assert_eq!(bits(&[0, 1, 2, 3, 4, 5]), Some(0x0102_0304));
        assert_eq!(bits(&[8, 1]), None);
        assert_eq!(bits(&[1]), None);
    }

    proptest! {
        #[test]
        fn numbers_lead_back(number: i64) {
            prop_assert_eq!(integer(&from_integer(number)), Some(number));
        }

        #[test]
        fn elements_lead_back(content in prop::collection::vec(any::<u8>(), 0..400)) {
            let element = field(3, tag::OCTET_STRING, &content);
            let mut reader = Reader::new(&element);
            prop_assert_eq!(reader.field(3, tag::OCTET_STRING), Some(&content[..]));
            prop_assert!(reader.is_empty());
        }
    }
}
