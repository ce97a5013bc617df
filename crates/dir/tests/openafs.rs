//! Directories as OpenAFS 1.8.9's file server leaves them after the same edits.
//!
//! `data/edits.txt` is what a client did, in the order it did it; the `.dir` files are what
//! `vos dump` then had for the directory. They differ from ours in bytes that mean nothing only:
//! what is left of removed names in free slots and in the unused second byte of entries. `scrub`
//! clears these, and did so before the digests were taken.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use afar_dir::{Directory, Editor, EntryId, PAGE_SIZE, check, slots_for};

const EDITS: &str = include_str!("data/edits.txt");
const FILES: [(&str, &[u8]); 4] = [
    ("fresh.dir", include_bytes!("data/fresh.dir")),
    ("renamed.dir", include_bytes!("data/renamed.dir")),
    ("before-move.dir", include_bytes!("data/before-move.dir")),
    ("after-move.dir", include_bytes!("data/after-move.dir")),
];

/// Digests of a directory of 138 pages, after 960 names of 255 bytes were made, and after some of
/// them made room for short ones.
const GROWN: u64 = 0x6f6e_3236_9614_ab9f;
const REFILLED: u64 = 0x5e23_1237_1e84_ff20;

/// A name is given as its start, the byte that fills it up, and its length.
fn name(token: &str) -> Vec<u8> {
    let parts: Vec<_> = token.split(':').collect();
    let [start, fill, len] = parts[..] else {
        panic!("{token:?} is no name");
    };
    let mut name = start.as_bytes().to_vec();
    name.resize(len.parse().unwrap(), fill.as_bytes()[0]);
    name
}

fn id(vnode: &str, uniquifier: &str) -> EntryId {
    EntryId::new(vnode.parse().unwrap(), uniquifier.parse().unwrap())
}

/// Clears what stands in free slots, behind the ends of names and in the unused byte.
fn scrub(data: &[u8]) -> Vec<u8> {
    let mut scrubbed = vec![0; data.len()];
    for page in 0..data.len() / PAGE_SIZE {
        let headers = if page == 0 { 13 * 32 } else { 32 };
        scrubbed[page * PAGE_SIZE..][..headers]
            .copy_from_slice(&data[page * PAGE_SIZE..][..headers]);
    }
    for entry in Directory::new(data).unwrap().entries() {
        let entry = entry.unwrap();
        let (at, len) = (entry.position * 32, 12 + entry.name.len() + 1);
        assert!(len <= slots_for(entry.name.len()) * 32);
        scrubbed[at..][..len].copy_from_slice(&data[at..][..len]);
        scrubbed[at + 1] = 0;
    }
    scrubbed
}

/// FNV-1a, which tells two directories apart in a word.
fn digest(data: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    data.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[test]
fn the_same_edits_give_the_same_pages() {
    let mut editor = None;
    let mut compared = 0;
    for line in EDITS.lines() {
        let words: Vec<_> = line.split(' ').collect();
        if let ["make", vnode, uniquifier, parent, of_parent] = words[..] {
            let (own, parent) = (id(vnode, uniquifier), id(parent, of_parent));
            editor = Some(Editor::create(Vec::new(), own, parent).unwrap());
            continue;
        }
        let editor = editor.as_mut().unwrap();
        match words[..] {
            ["insert", token, vnode, uniquifier] => {
                editor.insert(&name(token), id(vnode, uniquifier)).unwrap();
            }
            ["remove", token] => {
                editor.remove(&name(token)).unwrap();
            }
            ["rename", old, new] => {
                let (old, new) = (name(old), name(new));
                let moved = editor.lookup(&old).unwrap().unwrap();
                if editor.lookup(&new).unwrap().is_some() {
                    editor.replace(&new, moved).unwrap();
                } else {
                    editor.insert(&new, moved).unwrap();
                }
                assert_eq!(editor.remove(&old).unwrap(), moved);
            }
            ["parent", vnode, uniquifier] => editor.set_parent(id(vnode, uniquifier)).unwrap(),
            ["digest", expected] => {
                let ours = digest(editor.pages());
                assert_eq!(format!("{ours:x}"), expected);
                compared += 1;
            }
            ["same", file] => {
                let (_, theirs) = FILES.iter().find(|(name, _)| *name == file).unwrap();
                assert!(*editor.pages() == scrub(theirs), "{file} differs");
                compared += 1;
            }
            _ => panic!("{line:?} is no edit"),
        }
        check(editor.pages()).unwrap();
    }
    assert_eq!(compared, 7);
}

#[test]
fn directories_of_the_server_are_sound() {
    for (name, data) in FILES {
        assert_eq!(check(data), Ok(()), "{name}");
    }
}

/// The numbers of the vnodes are left out of these digests: a server gives them out again.
#[test]
fn the_same_edits_beyond_the_allocation_map_give_the_same_pages() {
    let nothing = EntryId::new(0, 0);
    let long = |n: u32| name(&format!("{n}-:x:255"));
    let mut editor = Editor::create(Vec::new(), nothing, nothing).unwrap();
    for n in 0..960 {
        editor.insert(&long(n), nothing).unwrap();
    }
    assert_eq!(editor.page_count(), 138);
    assert_eq!(digest(editor.pages()), GROWN);
    for n in (3..940).step_by(31) {
        editor.remove(&long(n)).unwrap();
    }
    for n in 0..200 {
        editor.insert(format!("s{n}").as_bytes(), nothing).unwrap();
    }
    assert_eq!(digest(editor.pages()), REFILLED);
    assert_eq!(check(editor.pages()), Ok(()));
}
