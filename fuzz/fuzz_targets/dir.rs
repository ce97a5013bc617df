//! Directory pages: listing and looking up end, and agree on what a name is.

#![no_main]

use afar_dir::{Directory, MAX_NAME, PAGE_SIZE};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // Whole pages with their tags, so that the interesting part is reached.
    let pages = data.len().div_ceil(PAGE_SIZE).clamp(1, 4);
    let mut pages = vec![0; pages * PAGE_SIZE];
    let len = data.len().min(pages.len());
    pages[..len].copy_from_slice(&data[..len]);
    for page in pages.chunks_exact_mut(PAGE_SIZE) {
        page[2..4].copy_from_slice(&1234u16.to_be_bytes());
    }
    let Ok(directory) = Directory::new(&pages) else {
        return;
    };
    assert!(directory.entries().count() <= directory.pages() * 64);
    for entry in directory.entries().flatten() {
        assert!(!entry.name.is_empty() && entry.name.len() <= MAX_NAME);
        assert!(!entry.name.contains(&b'/') && !entry.name.contains(&0));
        assert_eq!(
            directory.entries_from(entry.position).next(),
            Some(Ok(entry))
        );
        if let Ok(Some(found)) = directory.lookup(entry.name) {
            assert_eq!(found.name, entry.name);
        }
    }
});
