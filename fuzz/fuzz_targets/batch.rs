//! The operations of batches: what is read can be written and reads the same, and names vnodes that are told apart.

#![no_main]

use afar_types::{BATCH_OPERATIONS, BatchOperations, BatchVnode, VolumeId};
use afar_xdr::{from_bytes, to_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(operations) = from_bytes::<BatchOperations>(data) else {
        return;
    };
    assert!(operations.len() <= BATCH_OPERATIONS);
    assert_eq!(
        from_bytes::<BatchOperations>(&to_bytes(&operations)).as_ref(),
        Ok(&operations)
    );
    for vnode in operations.iter().flat_map(|one| one.vnodes()).flatten() {
        match vnode.maker() {
            Some(place) => assert_eq!(vnode, BatchVnode::made_by(place)),
            None => assert_eq!(BatchVnode::from(vnode.fid(VolumeId(7))), vnode),
        }
    }
});
