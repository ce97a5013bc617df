//! Answers with a whole tree: what is read can be written and reads the same.

#![no_main]

use afar_types::TreeItem;
use afar_xdr::BytesMut;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok((mut items, vol_sync)) = TreeItem::all(data) else {
        return;
    };
    let known = items.clone();
    items.push(TreeItem::End { vol_sync });
    let mut bytes = BytesMut::new();
    for item in &items {
        item.append(&mut bytes);
    }
    assert_eq!(TreeItem::all(&bytes), Ok((known, vol_sync)));
});
