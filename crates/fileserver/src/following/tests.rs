use super::*;

fn fid(number: u32) -> Fid {
    Fid::new(7, number, 1)
}

/// A host tells that it has read these.
fn run(table: &Following, numbers: &[u32]) {
    let read: Vec<Fid> = numbers.iter().copied().map(fid).collect();
    table.learn(&read);
}

fn after(table: &Following, before: u32, now: u32) -> Vec<u32> {
    let all = table.after(fid(before), fid(now));
    all.iter().map(|fid| fid.vnode.0).collect()
}

#[test]
fn one_run_tells_the_order() {
    let table = Following::default();
    run(&table, &[5, 3, 9, 1, 8]);
    assert_eq!(after(&table, 5, 3), [9, 1, 8]);
    assert_eq!(after(&table, 9, 1), [8]);
    let of_one = table.after(Fid::default(), fid(5));
    assert_eq!(of_one, [3, 9, 1, 8].map(fid));
    assert_eq!(after(&table, 2, 5), [3, 9, 1, 8], "another before it");
    assert!(after(&table, 3, 5) == [9, 1, 8] && after(&table, 3, 1).is_empty());
    assert!(after(&table, 1, 8).is_empty() && after(&table, 5, 77).is_empty());
}

#[test]
fn what_comes_first_alone_leads_where_it_did_with_another() {
    let table = Following::default();
    run(&table, &[1, 2, 10, 11]);
    run(&table, &[4, 2, 20, 21]);
    assert_eq!(after(&table, 1, 2), [10, 11]);
    assert_eq!(after(&table, 4, 2), [20, 21]);
}

#[test]
fn another_order_is_learnt() {
    let table = Following::default();
    run(&table, &[1, 2, 3, 4]);
    run(&table, &[1, 2, 4, 3]);
    assert_eq!(after(&table, 1, 2), [4, 3]);
}

#[test]
fn one_that_is_wrong_loses() {
    let table = Following::default();
    for _ in 0..20 {
        run(&table, &[1, 2, 3, 4]);
    }
    for _ in 0..SURE_MOST - 1 {
        run(&table, &[1, 2, 99]);
        assert_eq!(after(&table, 1, 2), [3, 4]);
    }
    run(&table, &[1, 2, 99]);
    assert_eq!(after(&table, 1, 2), [99]);
    run(&table, &[1, 2, 3]);
    assert_eq!(after(&table, 1, 2), [3, 4]);
}

#[test]
fn a_run_may_be_told_in_pieces() {
    let table = Following::default();
    for piece in [&[1, 2, 3][..], &[2, 3, 4, 5], &[4, 5, 6], &[7], &[]] {
        run(&table, piece);
    }
    assert_eq!(after(&table, 1, 2), [3, 4, 5, 6]);
}

#[test]
fn loops_end_and_each_is_told_once() {
    let table = Following::default();
    run(&table, &[1, 2, 3, 1, 2, 3, 1, 2, 3]);
    assert_eq!(after(&table, 1, 2), [3]);
    run(&table, &[11, 12, 13, 12, 14]);
    assert_eq!(after(&table, 11, 12), [13, 14]);
    let long: Vec<u32> = (100..100 + 3 * 1024).collect();
    run(&table, &long);
    assert_eq!(after(&table, 100, 101).len(), STEPS_MOST);
}

#[test]
fn many_pairs_share_few_entries_and_none_is_told_for_another() {
    let table = Following::with_entries(16);
    let all: Vec<u32> = (1..1000).collect();
    for _ in 0..3 {
        run(&table, &all);
    }
    assert_eq!(table.entries.lock().len(), 16);
    let mut known = 0;
    for number in 1..998 {
        let next = after(&table, number, number + 1);
        assert!(next.first().is_none_or(|next| *next == number + 2));
        known += usize::from(!next.is_empty());
    }
    assert!(known <= 16, "{known}");
}
