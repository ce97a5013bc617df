use crate::layout::*;
use crate::*;

/// A directory with `name`, a name of three slots, and one more on the chain of `name`.
fn sound() -> Vec<u8> {
    let mut builder = DirectoryBuilder::new(EntryId::new(1, 1), EntryId::new(1, 1));
    builder.add(b"name", EntryId::new(2, 2)).unwrap();
    builder.add(&[b'n'; 48], EntryId::new(4, 3)).unwrap();
    let same = |n: &u32| hash(n.to_string().as_bytes()) == hash(b"name");
    let other = (0..).find(same).unwrap().to_string();
    builder.add(other.as_bytes(), EntryId::new(6, 4)).unwrap();
    let data = builder.finish();
    assert_eq!(check(&data), Ok(()));
    data
}

fn problems(change: impl FnOnce(&mut Vec<u8>)) -> Vec<DirError> {
    let mut data = sound();
    change(&mut data);
    check(&data).unwrap_err()
}

fn entry(slot: usize, problem: EntryProblem) -> DirError {
    DirError::Entry {
        page: 0,
        slot,
        problem,
    }
}

#[test]
fn headers() {
    assert_eq!(check(&[]), Err(vec![DirError::Length(0)]));
    assert_eq!(check(&[0; 2000]), Err(vec![DirError::Length(2000)]));
    let tag = DirError::Tag {
        page: 0,
        tag: 0x4d3,
    };
    assert_eq!(problems(|data| data[PAGE_TAG + 1] += 1), [tag]);
    let count = DirError::PageCount {
        counted: 2,
        present: 1,
    };
    assert_eq!(problems(|data| data[PAGE_COUNT + 1] = 2), [count]);
    let mut old = sound();
    old[PAGE_COUNT + 1] = 0;
    assert_eq!(check(&old), Ok(()));
}

#[test]
fn maps() {
    let wrong = |page, says, free| DirError::AllocationMap { page, says, free };
    assert_eq!(problems(|data| data[ALLOCATION] = 43), [wrong(0, 43, 44)]);
    assert_eq!(
        problems(|data| data[ALLOCATION + 9] = 63),
        [wrong(9, 63, 64)]
    );
    let marked = problems(|data| data[BITMAP + 7] |= 0x80);
    let bitmap = DirError::Bitmap {
        page: 0,
        marked: 0x8000_0000_000f_ffff,
        used: 0xf_ffff,
    };
    assert_eq!(marked, [bitmap, wrong(0, 44, 43)]);
    // `name` is in slot 15, behind the last one on its chain.
    let free = problems(|data| data[BITMAP + 1] &= 0x7f);
    assert_eq!(free[0], entry(15, EntryProblem::Free));
}

#[test]
fn chains() {
    let at = |slot: usize| slot * SLOT_SIZE;
    let circle = problems(|data| data[at(15) + NEXT + 1] = 19);
    assert_eq!(circle, [entry(19, EntryProblem::Overlap)]);
    let itself = problems(|data| data[at(15) + NEXT + 1] = 15);
    assert_eq!(itself, [entry(15, EntryProblem::Overlap)]);
    // Within the long name.
    let inside = problems(|data| data[at(15) + NEXT + 1] = 17);
    assert_eq!(inside[0], entry(17, EntryProblem::Flag));
    for place in [3, 64, 0xffff] {
        let [high, low] = u16::to_be_bytes(place);
        let nowhere = problems(|data| data[at(15) + NEXT..][..2].copy_from_slice(&[high, low]));
        let place = usize::from(place);
        let expected = DirError::Entry {
            page: place / SLOTS,
            slot: place % SLOTS,
            problem: EntryProblem::Place,
        };
        assert_eq!(nowhere, [expected]);
    }
    let flag = problems(|data| data[at(15)] = 0);
    assert_eq!(flag, [entry(15, EntryProblem::Flag)]);

    let moved = problems(|data| data[at(15) + NAME] = b'm');
    let wrong = DirError::Chain {
        page: 0,
        slot: 15,
        chain: hash(b"name"),
        belongs: hash(b"mame"),
    };
    assert_eq!(moved, [wrong]);
    let lost = problems(|data| data[at(19) + NEXT..][..2].fill(0));
    assert!(matches!(lost[..], [DirError::Bitmap { page: 0, .. }]));
}

#[test]
fn names() {
    let twice = problems(|data| {
        let name = data[15 * SLOT_SIZE + NAME..][..8].to_vec();
        data[19 * SLOT_SIZE + NAME..][..8].copy_from_slice(&name);
    });
    assert_eq!(twice, [DirError::Duplicate { page: 0, slot: 15 }]);
    let slash = problems(|data| data[15 * SLOT_SIZE + NAME + 1] = b'/');
    assert_eq!(slash[0], entry(15, EntryProblem::Name));
    let dots = problems(|data| data[14 * SLOT_SIZE + NAME + 1] = b'x');
    assert!(dots.contains(&DirError::Dots("..")), "{dots:?}");
    let no_dot = problems(|data| data[head(hash(b"."))..][..2].fill(0));
    assert_eq!(no_dot[0], DirError::Dots("."));
}

#[test]
fn many_problems_are_cut_off() {
    let mut data = vec![0xff; 200 * PAGE_SIZE];
    data[..2].copy_from_slice(&200u16.to_be_bytes());
    assert_eq!(check(&data).unwrap_err().len(), MAX_PROBLEMS);
}
