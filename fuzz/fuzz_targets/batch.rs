//! The changes of batches: what is read can be written and reads the same, and names vnodes that are told apart.

#![no_main]

use afar_types::{BATCH_OPERATIONS, BatchChanges, BatchVnode, VolumeId};
use afar_xdr::{from_bytes, to_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(changes) = from_bytes::<BatchChanges>(data) else {
        return;
    };
    assert!(changes.len() <= BATCH_OPERATIONS);
    assert_eq!(
        from_bytes::<BatchChanges>(&to_bytes(&changes)).as_ref(),
        Ok(&changes)
    );
    for vnode in changes
        .iter()
        .flat_map(|one| one.operation.vnodes())
        .flatten()
    {
        match vnode.maker() {
            Some(place) => assert_eq!(vnode, BatchVnode::made_by(place)),
            None => assert_eq!(BatchVnode::from(vnode.fid(VolumeId(7))), vnode),
        }
    }
});
