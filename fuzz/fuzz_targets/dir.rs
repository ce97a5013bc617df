//! Directory pages: listing and looking up end, and agree on what a name is. Edits end too, and
//! leave a sound directory sound.

#![no_main]

use afar_dir::{Directory, EditError, Editor, EntryId, MAX_NAME, PAGE_SIZE, check, make};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // Edits first, so that the bytes of the pages keep their places when the edits change.
    let (edits, data) = data.split_at(data.len().min(64));
    let pages = pages(data);
    read(&pages);
    edit(pages, edits);
    edit(make(EntryId::new(1, 1), EntryId::new(1, 1)).to_vec(), edits);
});

/// Whole pages with their tags, so that the interesting part is reached.
fn pages(data: &[u8]) -> Vec<u8> {
    let pages = data.len().div_ceil(PAGE_SIZE).clamp(1, 4);
    let mut pages = vec![0; pages * PAGE_SIZE];
    let len = data.len().min(pages.len());
    pages[..len].copy_from_slice(&data[..len]);
    for page in pages.chunks_exact_mut(PAGE_SIZE) {
        page[2..4].copy_from_slice(&1234u16.to_be_bytes());
    }
    pages
}

fn read(pages: &[u8]) {
    let Ok(directory) = Directory::new(pages) else {
        return;
    };
    assert!(directory.entries().count() <= directory.pages() * 64);
    let sound = check(pages).is_ok();
    for entry in directory.entries() {
        let Ok(entry) = entry else {
            assert!(!sound, "a sound directory has no damaged entry");
            continue;
        };
        assert!(!entry.name.is_empty() && entry.name.len() <= MAX_NAME);
        assert!(!entry.name.contains(&b'/') && !entry.name.contains(&0));
        assert_eq!(
            directory.entries_from(entry.position).next(),
            Some(Ok(entry))
        );
        match directory.lookup(entry.name) {
            Ok(Some(found)) => assert_eq!(found.name, entry.name),
            missing => assert!(!sound, "{missing:?} in a sound directory"),
        }
    }
}

/// An edit takes two bytes: what to do and with what letter, and how often the letter is there.
fn edit(pages: Vec<u8>, edits: &[u8]) {
    let mut sound = check(&pages).is_ok();
    let Ok(mut editor) = Editor::open(pages) else {
        assert!(!sound, "a sound directory can be opened");
        return;
    };
    for (number, edit) in (2..).zip(edits.chunks_exact(2)) {
        let name = vec![b'a' + edit[0] / 4 % 8; usize::from(edit[1])];
        let id = EntryId::new(number, number);
        let done = match edit[0] % 4 {
            0 | 1 if edit[0] >= 0xf0 => editor.set_parent(id),
            0 | 1 => editor.insert(&name, id),
            2 => editor.remove(&name).map(|_| ()),
            _ => editor.replace(&name, id).map(|_| ()),
        };
        if let Err(EditError::Damaged(problem)) = done {
            assert!(!sound, "{problem} in a sound directory");
        }
        let still = check(editor.pages()).is_ok();
        assert!(still || !sound, "an edit damaged the directory");
        sound = still;
        let there = editor.lookup(&name);
        assert!(!sound || there.is_ok());
        let empty = editor.is_empty();
        assert!(!sound || empty.is_ok());
    }
    read(editor.pages());
}
