use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use proptest::prelude::*;

use crate::layout::*;
use crate::*;

/// Pages that tell which of them were read and written.
#[derive(Default)]
struct Watched {
    data: Vec<u8>,
    read: Vec<usize>,
    written: Vec<usize>,
}

impl Pages for Watched {
    type Error = Infallible;

    fn count(&self) -> usize {
        self.data.count()
    }

    fn read(&mut self, page: usize) -> Result<Arc<Page>, Infallible> {
        self.read.push(page);
        self.data.read(page)
    }
}

impl PagesMut for Watched {
    fn write(&mut self, page: usize, data: &Arc<Page>) -> Result<(), Infallible> {
        self.written.push(page);
        self.data.write(page, data)
    }
}

fn new() -> Editor<Vec<u8>> {
    let Ok(editor) = Editor::create(Vec::new(), EntryId::new(1, 1), EntryId::new(3, 5));
    editor
}

fn id(number: usize) -> EntryId {
    let number = u32::try_from(number).unwrap();
    EntryId::new(2 * number, number)
}

/// What a client finds that reads pages from the first slot to the last and uses no chain.
fn scan(data: &[u8]) -> BTreeMap<Vec<u8>, EntryId> {
    let mut found = BTreeMap::new();
    for (page, bytes) in data.chunks_exact(PAGE_SIZE).enumerate() {
        let mut slot = first_slot(page);
        while slot < SLOTS {
            let entry = &bytes[slot * SLOT_SIZE..];
            if read_bitmap(bytes) >> slot & 1 == 0 || entry[FLAG] != FLAG_FIRST {
                slot += 1;
                continue;
            }
            let name = entry[NAME..].split(|&byte| byte == 0).next().unwrap();
            let id = EntryId::new(read_u32(entry, VNODE), read_u32(entry, UNIQUIFIER));
            assert_eq!(
                found.insert(name.to_vec(), id),
                None,
                "a name was there twice"
            );
            slot += slots_for(name.len());
        }
    }
    found
}

#[test]
fn a_new_directory_is_the_first_page_alone() {
    let editor = new();
    assert_eq!(editor.page_count(), 1);
    assert_eq!(
        **editor.pages(),
        make(EntryId::new(1, 1), EntryId::new(3, 5))
    );
    assert_eq!(check(editor.pages()), Ok(()));
}

fn long_name(n: usize) -> Vec<u8> {
    format!("{n:0>200}").into_bytes()
}

/// A directory of 2503 such names, with many pages beyond the allocation map.
fn large() -> Watched {
    let Ok(mut editor) = Editor::create(Watched::default(), id(1), id(1));
    for n in 0..2503 {
        editor.insert(&long_name(n), id(n)).unwrap();
    }
    editor.into_pages()
}

#[test]
fn few_pages_are_read_and_written() {
    let mut pages = large();
    let place = |data: &[u8], n| {
        let found = Directory::new(data).unwrap().lookup(&long_name(n)).unwrap();
        found.unwrap().position / SLOTS
    };

    pages.read.clear();
    let mut editor = Editor::open(&mut pages).unwrap();
    assert_eq!(editor.lookup(&long_name(1000)), Ok(Some(id(1000))));
    assert!(pages.read.len() < 2500 / 64, "{:?}", pages.read);

    pages.written.clear();
    let at = place(&pages.data, 1000);
    let mut editor = Editor::open(&mut pages).unwrap();
    editor.remove(&long_name(1000)).unwrap();
    assert!(pages.written.len() <= 3, "{:?}", pages.written);
    assert!(pages.written.contains(&at));

    (pages.read, pages.written) = Default::default();
    let mut editor = Editor::open(&mut pages).unwrap();
    editor.insert(&long_name(3000), id(3000)).unwrap();
    assert_eq!(pages.written, [at, 0], "the room made is used");
    assert_eq!(check(&pages.data), Ok(()));

    let beyond = pages.count() - 1;
    assert!(beyond >= 2 * ALLOCATION_PAGES);
    (pages.read, pages.written) = Default::default();
    let mut editor = Editor::open(&mut pages).unwrap();
    editor.insert(&long_name(3001), id(3001)).unwrap();
    let (room, chains) = editor.known();
    assert_eq!(pages.written, [beyond, 0]);
    assert!(
        pages.read.len() >= beyond - ALLOCATION_PAGES,
        "no map leads there"
    );
    pages.read.clear();
    let mut editor = Editor::open(&mut pages).unwrap().knowing(room, chains);
    editor.insert(&long_name(3002), id(3002)).unwrap();
    assert!(pages.read.len() < 2500 / 64, "{:?}", pages.read);
}

#[test]
fn full_pages_are_looked_at_once() {
    let mut pages = large();
    let beyond = pages.count() - 1;
    let mut known = Default::default();
    // Each comes before the one goes that has the other's place, as with names that change.
    for n in 0..8 {
        let (old, new) = (if n == 0 { 1000 } else { 2999 + n }, 3000 + n);
        (pages.read, pages.written) = Default::default();
        let (room, chains) = known;
        let mut editor = Editor::open(&mut pages).unwrap().knowing(room, chains);
        editor.insert(&long_name(new), id(new)).unwrap();
        editor.remove(&long_name(old)).unwrap();
        known = editor.known();
        let searched = pages.read.len() >= beyond - ALLOCATION_PAGES;
        assert_eq!(searched, n == 0, "{n}: {:?}", pages.read);
        assert!(pages.written.contains(&beyond));
    }
}

/// Names that are on one chain.
fn on_one_chain() -> impl Iterator<Item = Vec<u8>> {
    let names = (0..).map(|number: u32| format!("name{number}").into_bytes());
    names.filter(|name| hash(name) == 5)
}

#[test]
fn a_long_chain_is_walked_once() {
    let mut pages = Watched::default();
    let Ok(_) = Editor::create(&mut pages, EntryId::new(1, 1), EntryId::new(3, 5));
    let fill = (0..4000usize).map(|number| format!("name{number}").into_bytes());
    let mut editor = Editor::open(&mut pages).unwrap();
    for (number, name) in fill.enumerate() {
        editor.insert(&name, id(number)).unwrap();
    }
    let names: Vec<_> = on_one_chain().take(20).collect();
    let (room, chains) = editor.known();
    assert!(chains.octets() > 0);
    pages.read.clear();
    let mut editor = Editor::open(&mut pages).unwrap().knowing(room, chains);
    // The oldest is the last on its chain.
    assert!(editor.lookup(&names[0]).unwrap().is_some());
    assert_eq!(editor.lookup(b"no such name"), Ok(None));
    assert_eq!(pages.read.len(), 2, "{:?}", pages.read);
    pages.read.clear();
    let mut editor = Editor::open(&mut pages).unwrap();
    assert!(editor.lookup(&names[0]).unwrap().is_some());
    assert!(pages.read.len() > 20);
}

#[test]
fn a_directory_of_short_names_grows_to_its_limit() {
    let mut editor = new();
    let name = |n: usize| format!("{n}").into_bytes();
    let most = 1022 * 63 + 51 - 2;
    for n in 0..most {
        editor.insert(&name(n), id(n)).unwrap();
    }
    assert_eq!(editor.page_count(), MAX_PAGES);
    assert_eq!(editor.insert(b"more", id(1)), Err(EditError::Full));
    assert_eq!(editor.remove(&name(60_000)), Ok(id(60_000)));
    assert_eq!(editor.insert(&[b'x'; 16], id(1)), Err(EditError::Full));
    assert_eq!(editor.insert(b"more", id(1)), Ok(()));
    assert_eq!(editor.replace(b"more", id(2)), Ok(id(1)));
    assert_eq!(editor.insert(b"still", id(1)), Err(EditError::Full));
    assert_eq!(check(editor.pages()), Ok(()));
    assert_eq!(editor.lookup(&name(most - 1)), Ok(Some(id(most - 1))));

    // Without what it knows of the room, it finds the same.
    let mut editor = Editor::open(editor.into_pages()).unwrap();
    assert_eq!(editor.insert(b"still", id(1)), Err(EditError::Full));
    for n in (0..most).filter(|&n| n != 60_000) {
        editor.remove(&name(n)).unwrap();
    }
    assert_eq!(editor.is_empty(), Ok(false));
    assert_eq!(editor.remove(b"more"), Ok(id(2)));
    assert_eq!(editor.is_empty(), Ok(true));
    assert_eq!(editor.page_count(), MAX_PAGES, "pages stay");
    assert_eq!(check(editor.pages()), Ok(()));
}

/// Pages of which only the first can be reached.
struct Broken(Vec<u8>);

impl Pages for Broken {
    type Error = usize;

    fn count(&self) -> usize {
        self.0.count()
    }

    fn read(&mut self, page: usize) -> Result<Arc<Page>, usize> {
        let Ok(data) = self.0.read(page);
        if page == 0 { Ok(data) } else { Err(page) }
    }
}

impl PagesMut for Broken {
    fn write(&mut self, page: usize, _data: &Arc<Page>) -> Result<(), usize> {
        Err(page)
    }
}

#[test]
fn pages_that_cannot_be_reached() {
    let mut editor = new();
    for n in 0..60 {
        editor.insert(format!("{n}").as_bytes(), id(n)).unwrap();
    }
    let mut editor = Editor::open(Broken(editor.into_pages())).unwrap();
    assert_eq!(editor.lookup(b"0"), Ok(Some(id(0))));
    assert_eq!(editor.lookup(b"59"), Err(EditError::Pages(1)));
    assert_eq!(editor.remove(b"0"), Err(EditError::Pages(0)));
}

#[test]
fn what_cannot_be_done_changes_nothing() {
    let mut editor = new();
    editor.insert(b"there", id(2)).unwrap();
    let before = editor.pages().clone();
    assert_eq!(editor.insert(b"there", id(3)), Err(EditError::Exists));
    for name in [&b"."[..], b".."] {
        assert_eq!(editor.insert(name, id(3)), Err(EditError::Exists));
        assert_eq!(editor.remove(name), Err(EditError::Name));
        assert_eq!(editor.replace(name, id(3)), Err(EditError::Name));
    }
    for name in [&b"not there"[..], b"", b"a/b", b"there\0", &[b'x'; 300]] {
        assert_eq!(editor.lookup(name), Ok(None));
        assert_eq!(editor.remove(name), Err(EditError::NotFound));
        assert_eq!(editor.replace(name, id(3)), Err(EditError::NotFound));
    }
    assert_eq!(*editor.pages(), before);
}

#[test]
fn another_parent() {
    let mut editor = new();
    editor.set_parent(EntryId::new(7, 8)).unwrap();
    assert_eq!(editor.lookup(b".."), Ok(Some(EntryId::new(7, 8))));
    assert_eq!(
        **editor.pages(),
        make(EntryId::new(1, 1), EntryId::new(7, 8))
    );
    assert_eq!(editor.is_empty(), Ok(true));
}

#[test]
fn old_directories_begin_to_count_their_pages() {
    let mut data = new().into_pages();
    data[1] = 0;
    let mut editor = Editor::open(data).unwrap();
    editor.insert(b"short", id(1)).unwrap();
    assert_eq!(check(editor.pages()), Ok(()));
    assert_eq!(read_u16(editor.pages(), PAGE_COUNT), 0);
    for n in 0..6 {
        editor.insert(&[b'a' + n; 255], id(2)).unwrap();
    }
    assert_eq!(read_u16(editor.pages(), PAGE_COUNT), 2);
    assert_eq!(check(editor.pages()), Ok(()));
}

#[test]
fn a_wrong_allocation_map_is_not_made_worse() {
    let fail = |page: usize, says: u8, free: u8| {
        let mut editor = new();
        editor.insert(b"name", id(1)).unwrap();
        let mut data = editor.into_pages();
        data[ALLOCATION + page] = says;
        let editor = Editor::open(data).unwrap();
        let expected = DirError::AllocationMap { page, says, free };
        (editor, expected)
    };
    let (mut editor, expected) = fail(0, 64, 48);
    assert_eq!(
        editor.insert(b"b", id(1)),
        Err(EditError::Damaged(expected))
    );
    let (mut editor, expected) = fail(0, 51, 48);
    assert_eq!(editor.remove(b"name"), Err(EditError::Damaged(expected)));
    let (mut editor, expected) = fail(1, 5, 64);
    for n in 0..5 {
        editor.insert(&[b'a' + n; 255], id(2)).unwrap();
    }
    let error = editor.insert(&[b'x'; 255], id(2));
    assert_eq!(error, Err(EditError::Damaged(expected)));
}

#[derive(Debug, Clone)]
enum Op {
    Insert(Vec<u8>),
    Remove(Vec<u8>),
    Replace(Vec<u8>),
    Parent,
    Reopen,
}

/// Few enough that they meet, of all numbers of slots.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let len = prop::sample::select(vec![1, 2, 15, 16, 19, 20, 47, 48, 111, 200, 254, 255]);
    (b'a'..b'k', len).prop_map(|(letter, len)| vec![letter; len])
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => name().prop_map(Op::Insert),
        5 => name().prop_map(Op::Remove),
        2 => name().prop_map(Op::Replace),
        1 => Just(Op::Parent),
        1 => Just(Op::Reopen),
    ]
}

/// Does the edit and says what came of it, as the model would.
fn apply(editor: &mut Editor<Vec<u8>>, op: &Op, new: EntryId) -> Result<(), EditError<Infallible>> {
    match op {
        Op::Insert(name) => editor.insert(name, new),
        Op::Remove(name) => editor.remove(name).map(|_| ()),
        Op::Replace(name) => editor.replace(name, new).map(|_| ()),
        Op::Parent => editor.set_parent(new),
        Op::Reopen => {
            *editor = Editor::open(editor.pages().clone())?;
            Ok(())
        }
    }
}

fn expect(
    model: &mut BTreeMap<Vec<u8>, EntryId>,
    op: &Op,
    new: EntryId,
) -> Result<(), EditError<Infallible>> {
    let there = |model: &BTreeMap<_, _>, name| match model.contains_key(name) {
        true => Ok(()),
        false => Err(EditError::NotFound),
    };
    match op {
        Op::Insert(name) if model.contains_key(name) => return Err(EditError::Exists),
        Op::Insert(name) => model.insert(name.clone(), new),
        Op::Remove(name) => {
            there(model, name)?;
            model.remove(name)
        }
        Op::Replace(name) => {
            there(model, name)?;
            model.insert(name.clone(), new)
        }
        Op::Parent => model.insert(b"..".to_vec(), new),
        Op::Reopen => None,
    };
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn edits_do_what_a_map_does(ops in prop::collection::vec(op(), 0..250)) {
        let mut editor = new();
        let mut model = scan(editor.pages());
        for (number, op) in ops.iter().enumerate() {
            let mut unknowing = Editor::open(editor.pages().clone()).unwrap();
            let done = apply(&mut editor, op, id(number));
            prop_assert_eq!(&done, &expect(&mut model, op, id(number)));
            prop_assert_eq!(check(editor.pages()), Ok(()));
            prop_assert_eq!(apply(&mut unknowing, op, id(number)), done);
            prop_assert!(unknowing.pages() == editor.pages(), "what is known of the room shows");
            prop_assert_eq!(editor.is_empty(), Ok(model.len() == 2));
        }
        prop_assert_eq!(&scan(editor.pages()), &model);
        for (name, id) in &model {
            prop_assert_eq!(editor.lookup(name), Ok(Some(*id)));
        }
        let directory = Directory::new(editor.pages()).unwrap();
        let listed: BTreeMap<_, _> = directory
            .entries()
            .map(|entry| entry.map(|entry| (entry.name.to_vec(), entry.id)))
            .collect::<Result<_, _>>()
            .unwrap();
        prop_assert_eq!(listed, model);
    }

    /// Of which some are remembered and some are not, as they come to be long.
    #[test]
    fn edits_of_a_long_chain_do_what_they_do_without_knowing_it(
        ops in prop::collection::vec((0usize..40, 0u8..8), 0..200),
    ) {
        let names: Vec<_> = on_one_chain().take(40).collect();
        let mut editor = new();
        for (number, name) in names.iter().enumerate().take(30) {
            editor.insert(name, id(number)).unwrap();
        }
        for (number, (name, what)) in ops.into_iter().enumerate() {
            let name = names[name].clone();
            let op = match what {
                0..3 => Op::Insert(name),
                3..6 => Op::Remove(name),
                6 => Op::Replace(name),
                _ => Op::Parent,
            };
            let mut unknowing = Editor::open(editor.pages().clone()).unwrap();
            let done = apply(&mut editor, &op, id(number));
            prop_assert_eq!(apply(&mut unknowing, &op, id(number)), done);
            prop_assert!(unknowing.pages() == editor.pages());
            for name in &names {
                prop_assert_eq!(editor.lookup(name), unknowing.lookup(name));
            }
        }
        prop_assert_eq!(check(editor.pages()), Ok(()));
    }

    #[test]
    fn room_is_found_where_it_is_without_knowing_it(
        ops in prop::collection::vec((0usize..120, any::<bool>()), 0..300),
    ) {
        // From one slot to all that a name can take.
        let name = |n: usize| format!("{n:0>width$}", width = 3 + n * 7 % 253).into_bytes();
        let mut editor = new();
        for n in 0..60 {
            editor.insert(&name(n), id(n)).unwrap();
        }
        for (number, (n, insert)) in ops.into_iter().enumerate() {
            let op = match insert {
                true => Op::Insert(name(n)),
                false => Op::Remove(name(n)),
            };
            let mut unknowing = Editor::open(editor.pages().clone()).unwrap();
            let done = apply(&mut editor, &op, id(number));
            prop_assert_eq!(apply(&mut unknowing, &op, id(number)), done);
            prop_assert!(unknowing.pages() == editor.pages());
        }
    }

    #[test]
    fn edits_of_damaged_pages_end_and_never_panic(
        count in 0usize..120,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        headers in prop::collection::vec((0usize..416, any::<u8>()), 0..4),
        ops in prop::collection::vec(op(), 0..30),
    ) {
        let mut editor = new();
        for n in 0..count {
            editor.insert(&vec![b'a' + u8::try_from(n % 10).unwrap(); 1 + n / 10 * 9], id(n)).unwrap();
        }
        let mut data = editor.into_pages();
        for (place, byte) in damage {
            let place = place.index(data.len());
            data[place] = byte;
        }
        for (place, byte) in headers {
            data[place] = byte;
        }
        let sound = check(&data);
        if let Err(problems) = &sound {
            prop_assert!((1..=MAX_PROBLEMS).contains(&problems.len()));
        }
        if let Ok(mut editor) = Editor::open(data) {
            for (number, op) in ops.iter().enumerate() {
                let done = apply(&mut editor, op, id(number));
                let damaged = matches!(done, Err(EditError::Damaged(_)));
                prop_assert!(!(damaged && sound.is_ok()), "{:?}", done);
                let _empty = editor.is_empty().is_ok_and(|empty| empty);
            }
        }
    }
}
