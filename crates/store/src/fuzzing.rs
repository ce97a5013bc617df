//! What a fuzzer reaches of the decoders that are nobody else's business.

use crate::meta::{
    Base, DoomedKey, MemberState, Record, SegmentRow, VnodeRow, VolumeInfo, VolumeRow, change_key,
    dead_key, logged_rows, member_key, row_key, split_change_key, split_dead_key, split_member_key,
    split_row_key,
};
use crate::vnode::{apply, difference, pack_page, unpack_page};

/// Decodes a row of the database. The first byte says of which sort; the rest is the row.
///
/// # Panics
///
/// If what was read is written differently, or a decoder panics.
pub fn row(data: &[u8]) {
    let Some((sort, bytes)) = data.split_first() else {
        return;
    };
    let again = match sort % 15 {
        0 => VolumeRow::from_bytes(bytes).map(VolumeRow::to_bytes),
        1 => VolumeInfo::from_bytes(bytes).map(|info| info.to_bytes()),
        2 => VnodeRow::from_bytes(bytes).map(|row| row.to_bytes()),
        3 => Record::from_bytes(bytes).map(|record| record.to_bytes()),
        4 => SegmentRow::from_bytes(bytes).map(SegmentRow::to_bytes),
        5 => MemberState::from_bytes(bytes).map(MemberState::to_bytes),
        6 => split_row_key(bytes).map(|(at, item)| row_key(at, item).to_vec()),
        7 => split_change_key(bytes).map(|(at, item)| change_key(at, item).to_vec()),
        8 => split_member_key(bytes).map(|(at, volume)| member_key(at, volume).to_vec()),
        9 => split_dead_key(bytes).map(|(segment, offset)| dead_key(segment, offset).to_vec()),
        10 => DoomedKey::from_bytes(bytes).map(|key| key.to_bytes().to_vec()),
        11 => return page(bytes),
        12 => return log(bytes),
        13 => return changes(bytes),
        // Its checksum keeps all but a few inputs from getting far.
        _ => return drop(Base::from_bytes(bytes)),
    };
    if let Some(again) = again {
        assert_eq!(again, bytes, "row of sort {}", sort % 15);
    }
}

/// The rows of a frame are of its bytes, one after the other, up to the first that cannot be.
fn log(bytes: &[u8]) {
    let mut left = bytes.len();
    for row in logged_rows(bytes) {
        let Some((_, key, value)) = row else { return };
        let len = 6 + key.len() + value.unwrap_or_default().len();
        left = left.checked_sub(len).expect("rows lie in their frame");
    }
    assert_eq!(left, 0, "a frame without a bad row is all rows");
}

/// What has changed can be told in many ways, so not its row but the page is the same again.
fn changes(bytes: &[u8]) {
    let base = [7; afar_dir::PAGE_SIZE];
    let mut page = base;
    if apply(bytes, &mut page).is_some()
        && let Some(changes) = difference(&base, &page)
    {
        let mut again = base;
        let made = apply(&changes, &mut again);
        assert!(made.is_some() && again == page, "a page that was changed");
    }
}

/// A page can be packed in two ways, so not its row but the page is the same again.
fn page(bytes: &[u8]) {
    let mut page = [0; afar_dir::PAGE_SIZE];
    if unpack_page(bytes, &mut page).is_some() {
        let mut again = [1; afar_dir::PAGE_SIZE];
        let unpacked = unpack_page(&pack_page(&page), &mut again);
        assert!(
            unpacked.is_some() && again == page,
            "a page that was packed"
        );
    }
}
