//! Which volume in the one cell is which in the other.

use std::collections::BTreeMap;

use crate::place::Ran;

/// Ids begin here; what is below is another number.
const FIRST: u32 = 0x2000_0000;

/// Ids of OpenAFS's side, and what afar's side has in their place. They differ as soon as one side
/// takes an id for something that then fails.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    known: BTreeMap<u32, u32>,
    taken: BTreeMap<u32, u32>,
}

impl Ids {
    /// Writes the ids of afar's side into what OpenAFS's side has printed. Ids seen for the first
    /// time are those at the same place, if all else is the same.
    pub(crate) fn translate(&mut self, expected: &mut Ran, found: &Ran) {
        let streams = [
            (&mut expected.out, &found.out),
            (&mut expected.err, &found.err),
        ];
        for (expected, found) in streams {
            let ours = split(found);
            let theirs = split(expected);
            if without(&ours) == without(&theirs) {
                for (theirs, ours) in numbers(&theirs).zip(numbers(&ours)) {
                    // An id stands for one id on each side.
                    if !self.known.contains_key(&theirs) && !self.taken.contains_key(&ours) {
                        self.known.insert(theirs, ours);
                        self.taken.insert(ours, theirs);
                    }
                }
            }
            let parts = theirs.into_iter().map(|part| match part {
                Part::Id(id) => self.known.get(&id).unwrap_or(&id).to_string(),
                Part::Other(text) => text,
            });
            *expected = parts.collect();
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Id(u32),
    Other(String),
}

fn split(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let digit = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != digit);
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        let id = part
            .parse()
            .ok()
            .filter(|id| *id >= FIRST && part.len() == 9);
        parts.push(id.map_or_else(|| Part::Other(part.to_owned()), Part::Id));
        rest = after;
    }
    parts
}

fn numbers(parts: &[Part]) -> impl Iterator<Item = u32> {
    parts.iter().filter_map(|part| match part {
        Part::Id(id) => Some(*id),
        Part::Other(_) => None,
    })
}

fn without(parts: &[Part]) -> Vec<Part> {
    let parts = parts.iter().map(|part| match part {
        Part::Id(_) => Part::Id(0),
        other => other.clone(),
    });
    parts.collect()
}

#[test]
fn ids_stand_for_one_id_each() {
    let ran = |out: &str| Ran {
        code: Some(0),
        out: out.to_owned(),
        err: String::new(),
    };
    let mut ids = Ids::default();
    let mut first = ran("volume 536870920 of 77, clone 536870922");
    let found = ran("volume 536870920 of 77, clone 536870921");
    ids.translate(&mut first, &found);
    assert_eq!(first, found);
    // One that is known is not taken for another one.
    let mut second = ran("536870922");
    ids.translate(&mut second, &ran("536870923"));
    assert_eq!(second.out, "536870921");
    let mut third = ran("536870930");
    ids.translate(&mut third, &ran("536870921"));
    assert_eq!(third.out, "536870930");
}
