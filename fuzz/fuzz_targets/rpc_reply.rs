//! Replies as clients read them: the first byte chooses the operation, the results follow.

#![no_main]

use afar_rpc::INTERFACES;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, reply)) = data.split_first() else {
        return;
    };
    let rows = INTERFACES.iter().flat_map(|interface| {
        let canonical = interface.canonical_reply;
        interface
            .operations
            .iter()
            .map(move |row| (row.opcode, canonical))
    });
    let rows: Vec<_> = rows.collect();
    assert!(
        rows.len() <= 256,
        "one byte cannot choose among {} rows",
        rows.len()
    );
    let (opcode, canonical) = rows[usize::from(choice) % rows.len()];
    if let Ok(Some(once)) = canonical(opcode, reply) {
        assert_eq!(canonical(opcode, &once), Ok(Some(once.clone())));
    }
});
