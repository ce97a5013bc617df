use super::*;

fn fid(number: u32) -> Fid {
    Fid::new(7, number, 1)
}

/// A host that has read nothing yet reads these.
fn run(table: &Following, numbers: &[u32]) {
    let (mut trail, now) = (Trail::default(), Instant::now());
    for &number in numbers {
        table.read(&mut trail, fid(number), now);
    }
}

fn after(table: &Following, before: u32, now: u32) -> Vec<u32> {
    let all = table.after(fid(before), fid(now));
    all.iter().map(|fid| fid.vnode.0).collect()
}

#[test]
fn one_run_tells_the_order() {
    let table = Following::default();
    // The next piece of a file is no step.
    run(&table, &[5, 3, 3, 9, 1, 8]);
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
fn what_is_read_later_or_elsewhere_follows_nothing() {
    let table = Following::default();
    let (mut trail, now) = (Trail::default(), Instant::now());
    let other = |number| Fid::new(8, number, 1);
    table.read(&mut trail, fid(1), now);
    table.read(&mut trail, other(50), now);
    table.read(&mut trail, fid(2), now + TOGETHER);
    table.read(&mut trail, other(51), now + TOGETHER);
    table.read(&mut trail, fid(3), now + TOGETHER * 2);
    table.read(&mut trail, fid(4), now + TOGETHER * 4);
    table.read(&mut trail, fid(5), now + TOGETHER * 4);
    assert_eq!(after(&table, 0, 1), [2, 3]);
    assert_eq!(after(&table, 0, 4), [5]);
    assert_eq!(table.after(Fid::default(), other(50)), [other(51)]);
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

#[test]
fn a_host_that_was_told_teaches_where_that_ends() {
    let table = Following::default();
    run(&table, &[1, 2, 3, 4, 5]);
    let (mut trail, now) = (Trail::default(), Instant::now());
    let follow = |trail: &mut Trail, before, last| {
        let next = table.follow(trail, (fid(before), fid(last)), now);
        next.iter().map(|fid| fid.vnode.0).collect::<Vec<_>>()
    };
    for number in [1, 2] {
        table.read(&mut trail, fid(number), now);
    }
    assert_eq!(follow(&mut trail, 1, 2), [3, 4, 5]);
    // It reads one for itself before the answer is there, and one that did not come with its data.
    for number in [3, 5] {
        table.read(&mut trail, fid(number), now);
    }
    assert!(follow(&mut trail, 4, 5).is_empty());
    for number in [6, 7] {
        table.read(&mut trail, fid(number), now);
    }
    assert_eq!(after(&table, 1, 2), [3, 4, 5, 6, 7]);
}

#[test]
fn a_host_has_its_place_in_few_volumes() {
    let (mut trail, now) = (Trail::default(), Instant::now());
    for volume in 1..100 {
        trail.read(Fid::new(volume, 1, 1), now);
        assert!(trail.0.len() <= VOLUMES);
    }
    assert!(trail.read(Fid::new(99, 3, 1), now).is_some());
    assert!(trail.read(Fid::new(90, 3, 1), now).is_none());
}
