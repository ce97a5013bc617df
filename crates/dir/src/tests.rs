mod check;
mod edit;

use proptest::prelude::*;

use crate::layout::*;
use crate::*;

fn builder() -> DirectoryBuilder {
    DirectoryBuilder::new(EntryId::new(1, 1), EntryId::new(3, 5))
}

fn names(directory: Directory<'_>) -> Vec<String> {
    let text = |name| String::from_utf8_lossy(name).into_owned();
    directory
        .entries()
        .map(|entry| text(entry.unwrap().name))
        .collect()
}

#[test]
fn hashes_and_slots_of_the_format() {
    let hashes = [
        ("", 0),
        (".", 46),
        ("..", 68),
        ("a", 97),
        ("root.cell", 90),
        ("hello.txt", 18),
    ];
    for (name, chain) in hashes {
        assert_eq!(hash(name.as_bytes()), chain, "{name}");
    }
    assert_eq!(hash(&[b'x'; 20]), 32);
    for (len, slots) in [
        (1, 1),
        (15, 1),
        (16, 2),
        (47, 2),
        (48, 3),
        (79, 3),
        (255, 9),
    ] {
        assert_eq!(slots_for(len), slots, "{len}");
    }
}

#[test]
fn an_empty_directory_byte_by_byte() {
    let data = builder().finish();
    assert_eq!(data.len(), PAGE_SIZE);
    // One page, tag, and slots 0 to 14 in use: 13 of the page itself, `.` and `..`.
    assert_eq!(data[..8], [0, 1, 0x04, 0xd2, 51, 0xff, 0x7f, 0]);
    assert_eq!((data[32], data[33], data[159]), (49, 64, 64));
    assert_eq!(read_u16(&data, HASH_TABLE + 2 * 46), 13);
    assert_eq!(read_u16(&data, HASH_TABLE + 2 * 68), 14);
    assert_eq!(data[13 * 32..][..14], *b"\x01\0\0\0\0\0\0\x01\0\0\0\x01.\0");
    assert_eq!(
        data[14 * 32..][..15],
        *b"\x01\0\0\0\0\0\0\x03\0\0\0\x05..\0"
    );
}

#[test]
fn a_directory_grows_to_its_limit() {
    let mut builder = builder();
    let name = |n: u32| format!("{n:0>255}").into_bytes();
    let mut count = 0;
    let full = loop {
        match builder.add(&name(count), EntryId::new(2 * count, count)) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full, EditError::Full);
    // A page has room for 7 such entries, page 0 for 5.
    assert_eq!(count, 5 + 7 * 1022);
    let data = builder.finish();
    let directory = Directory::new(&data).unwrap();
    assert_eq!(directory.pages(), 1023);
    assert_eq!(directory.entries().filter(Result::is_ok).count(), 7159 + 2);
    for n in [0, 4, 5, 895, 896, 7158] {
        let found = directory.lookup(&name(n)).unwrap().unwrap();
        assert_eq!(found.id, EntryId::new(2 * n, n));
        let next = directory
            .entries_from(found.position)
            .next()
            .unwrap()
            .unwrap();
        assert_eq!(next, found);
    }
    assert_eq!(directory.lookup(&name(7159)).unwrap(), None);
}

#[test]
fn names_that_cannot_be_are_not_added() {
    let mut builder = builder();
    for (name, error) in [
        (&b""[..], EditError::Name),
        (b"a/b", EditError::Name),
        (b"a\0b", EditError::Name),
        (&[b'x'; 256], EditError::NameTooLong),
        (b".", EditError::Exists),
        (b"..", EditError::Exists),
    ] {
        assert_eq!(builder.add(name, EntryId::new(2, 2)), Err(error));
    }
}

#[test]
fn data_that_is_no_directory() {
    let data = builder().finish();
    for len in [0, 100, 2047, 2049] {
        let bytes = vec![0; len];
        assert_eq!(Directory::new(&bytes).unwrap_err(), DirError::Length(len));
    }
    assert_eq!(
        Directory::new(&[data.clone(), vec![0; PAGE_SIZE]].concat())
            .unwrap()
            .pages(),
        1,
        "pages that are not counted do not count"
    );
    let mut more = data.clone();
    more[1] = 2;
    assert_eq!(
        Directory::new(&more).unwrap_err(),
        DirError::PageCount {
            counted: 2,
            present: 1
        }
    );
    let mut old = [data.clone(), data].concat();
    old[1] = 0;
    assert_eq!(Directory::new(&old).unwrap().pages(), 2);
    old[PAGE_SIZE + 3] = 0;
    assert_eq!(
        Directory::new(&old).unwrap_err(),
        DirError::Tag {
            page: 1,
            tag: 0x400
        }
    );
}

#[test]
fn chains_that_run_in_circles_or_nowhere() {
    let mut data = builder().finish();
    data[13 * 32 + 3] = 13;
    let directory = Directory::new(&data).unwrap();
    // `.` itself is found before the circle shows.
    assert!(directory.lookup(b".").unwrap().is_some());
    let other = (0..)
        .map(|n| n.to_string())
        .find(|name| hash(name.as_bytes()) == 46)
        .unwrap();
    assert_eq!(
        directory.lookup(other.as_bytes()),
        Err(DirError::Cycle { chain: 46 })
    );
    for (slot, problem) in [
        (3, EntryProblem::Place),
        (64, EntryProblem::Place),
        (20, EntryProblem::Free),
    ] {
        data[13 * 32 + 3] = slot;
        let error = Directory::new(&data)
            .unwrap()
            .lookup(other.as_bytes())
            .unwrap_err();
        assert!(
            matches!(error, DirError::Entry { problem: p, .. } if p == problem),
            "{error}"
        );
    }
}

#[test]
fn one_damaged_entry_does_not_hide_the_others() {
    let mut builder = builder();
    for name in [&b"first"[..], &[b'n'; 40], b"last"] {
        builder.add(name, EntryId::new(2, 2)).unwrap();
    }
    let mut data = builder.finish();
    // The long name, in slots 16 and 17, gets a slash.
    data[16 * 32 + 12 + 30] = b'/';
    let directory = Directory::new(&data).unwrap();
    let found: Vec<_> = directory.entries().collect();
    assert_eq!(found.len(), 5);
    let error = found[3].as_ref().unwrap_err();
    assert_eq!(
        error.to_string(),
        "page 0, entry at slot 16: its name is not one"
    );
    assert_eq!(found[4].as_ref().unwrap().name, b"last");
}

#[test]
fn a_name_without_an_end() {
    let mut data = builder().finish();
    data[BITMAP..BITMAP + 8].fill(0xff);
    data[63 * 32..].fill(b'x');
    data[63 * 32] = FLAG_FIRST;
    let last = Directory::new(&data)
        .unwrap()
        .entries()
        .last()
        .unwrap()
        .unwrap_err();
    let problem = EntryProblem::Unterminated;
    assert_eq!(
        last,
        DirError::Entry {
            page: 0,
            slot: 63,
            problem
        }
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_added_is_listed_and_found(
        added in prop::collection::btree_map("[a-zA-Z0-9.~\u{e4}-]{3,120}", any::<(u32, u32)>(), 0..200)
    ) {
        let mut builder = builder();
        for (name, &(vnode, uniquifier)) in &added {
            builder.add(name.as_bytes(), EntryId::new(vnode, uniquifier)).unwrap();
        }
        let data = builder.finish();
        let directory = Directory::new(&data).unwrap();
        let mut listed = names(directory);
        listed.sort();
        let mut expected: Vec<_> = added.keys().cloned().chain([".".into(), "..".into()]).collect();
        expected.sort();
        prop_assert_eq!(listed, expected);
        for (name, &(vnode, uniquifier)) in &added {
            let entry = directory.lookup(name.as_bytes()).unwrap().unwrap();
            prop_assert_eq!(entry.id, EntryId::new(vnode, uniquifier));
        }
        prop_assert_eq!(directory.lookup(b"no").unwrap(), None);
    }

    #[test]
    fn damaged_directories_end_and_never_panic(
        count in 0u32..120,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
    ) {
        let mut builder = builder();
        for n in 0..count {
            builder.add(format!("{n}-{}", "x".repeat(n as usize)).as_bytes(), EntryId::new(n, n)).unwrap();
        }
        let mut data = builder.finish();
        for (place, byte) in damage {
            let place = place.index(data.len());
            data[place] = byte;
        }
        if let Ok(directory) = Directory::new(&data) {
            prop_assert!(directory.entries().count() <= directory.pages() * SLOTS);
            for entry in directory.entries().flatten() {
                prop_assert!(!entry.name.is_empty() && entry.name.len() <= MAX_NAME);
                prop_assert!(!entry.name.contains(&b'/') && !entry.name.contains(&0));
                if let Ok(Some(found)) = directory.lookup(entry.name) {
                    prop_assert_eq!(found.name, entry.name);
                }
            }
        }
    }

    #[test]
    fn arbitrary_pages_end_and_never_panic(mut data in prop::collection::vec(any::<u8>(), PAGE_SIZE * 2)) {
        for page in [0, PAGE_SIZE] {
            data[page..page + 4].copy_from_slice(&[0, 2, 0x04, 0xd2]);
        }
        let directory = Directory::new(&data).unwrap();
        let count = directory.entries().count();
        prop_assert!(count <= 2 * SLOTS);
        for n in 0..200u8 {
            if let Ok(Some(found)) = directory.lookup(&[n]) {
                prop_assert_eq!(found.name, [n]);
            }
        }
    }
}
