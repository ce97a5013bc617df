//! What a fuzzer reaches of the journal.

use super::index::Reading;
use super::record::{Draft, Found, HEADER, Header, Reader, Record, head, header};

/// Reads a file of these bytes, and one with these bytes in its records.
///
/// # Panics
///
/// If what was read is written differently, or the decoder panics.
pub fn fuzz(data: &[u8]) {
    check(data);
    check(&mended(data));
}

fn check(image: &[u8]) {
    let start = image.len().min(header().len());
    let (start, mut rest) = image.split_at(start);
    if Header::of(start) != Header::Known {
        return;
    }
    let end = image.len() as u64;
    let mut again = header().to_vec();
    let mut reader = Reader::new(&mut rest, end);
    let mut reading = Reading::default();
    let mut changes = 0;
    while let Ok(Found::Record(record, place)) = reader.read() {
        assert_eq!(place.at, again.len() as u64);
        let mut draft = match &record {
            Record::Made(made) => Draft::made(made),
            Record::Sent(batch) => Draft::sent(batch),
            Record::Done(numbers) => Draft::done(numbers),
        };
        again.extend(draft.at(place.at));
        assert_eq!(place.at + place.length, again.len() as u64);
        let is_change = matches!(record, Record::Made(_));
        changes += usize::from(reading.add(record, place) && is_change);
    }
    assert_eq!(reader.at(), again.len() as u64);
    assert!(
        image.starts_with(&again),
        "what was read is written the same"
    );
    let (mut index, left) = reading.finish();
    assert!(left.changes.len() <= changes);
    assert_eq!(index.count(), left.changes.len());
    assert_eq!(
        index.places().len(),
        left.changes.len() + left.batches.len()
    );
    assert!(index.live() <= end - HEADER);
}

/// A file with the right sums. Its payloads are cut out of the data by the two bytes before each.
fn mended(data: &[u8]) -> Vec<u8> {
    let mut image = header().to_vec();
    let mut rest = data;
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length));
        let (payload, after) = after.split_at(length.min(after.len()));
        image.extend(head(image.len() as u64, payload));
        image.extend(payload);
        rest = after;
    }
    image
}
