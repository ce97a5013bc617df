//! Replies as clients read them: the first byte chooses the operation, the results follow.

#![no_main]

use afar_rpc::{rxafs, rxafscb, vl};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, reply)) = data.split_first() else {
        return;
    };
    let tables = [rxafs::OPERATIONS, rxafscb::OPERATIONS, vl::OPERATIONS];
    let decoders = [
        rxafs::canonical_reply,
        rxafscb::canonical_reply,
        vl::canonical_reply,
    ];
    let rows = tables
        .iter()
        .zip(decoders)
        .flat_map(|(rows, canonical)| rows.iter().map(move |row| (row.opcode, canonical)));
    let rows: Vec<_> = rows.collect();
    let (opcode, canonical) = rows[usize::from(choice) % rows.len()];
    if let Ok(Some(once)) = canonical(opcode, reply) {
        assert_eq!(canonical(opcode, &once), Ok(Some(once.clone())));
    }
});
