//! The model in virtual time.

use super::*;

const MS: u64 = 1_000_000;

fn gigabit() -> Shape {
    Shape {
        rate: Some(1_000_000_000),
        queue_bytes: 1_562_500,
        ..Shape::with_delay(Duration::from_micros(6_250))
    }
}

/// Offers `count` packets of `len` bytes every `gap` nanoseconds.
fn offer_all(path: &mut Path, count: u64, len: u32, gap: u64) -> Vec<Option<Passage>> {
    (0..count)
        .map(|i| path.offer(MS + i * gap, len, 0))
        .collect()
}

#[test]
fn a_lone_packet_takes_its_own_time_and_the_delay() {
    let mut path = Path::new(gigabit(), 1, 0);
    let passage = path.offer(5 * MS, 1500, 0).unwrap();
    assert_eq!(passage.due, 5 * MS + 12_000 + 6_250_000);
    assert!(!passage.late && !passage.duplicate && passage.corrupt.is_none() && !passage.mark);
}

#[test]
fn the_rate_is_exact_over_a_million_packets() {
    // 30 Mbit/s: 1447 bytes take 385 866.66… ns, so rounding would show.
    let shape = Shape {
        rate: Some(30_000_000),
        queue_bytes: u64::from(u32::MAX) * 8,
        ..Shape::with_delay(Duration::ZERO)
    };
    let mut path = Path::new(shape, 1, 0);
    let passages = offer_all(&mut path, 1_000_000, 1447, 0);
    let last = passages.last().unwrap().unwrap();
    let expected = 1_000_000_u64 * 1447 * 8 * 1_000 / 30;
    assert!(
        last.due.abs_diff(MS + expected) <= 1,
        "{} {expected}",
        last.due - MS
    );
}

#[test]
fn the_queue_holds_its_limit_and_drops_the_tail() {
    let shape = Shape {
        queue_bytes: 15_000,
        ..gigabit()
    };
    let mut path = Path::new(shape, 1, 0);
    let passages = offer_all(&mut path, 25, 1500, 0);
    assert!(passages[..10].iter().all(Option::is_some));
    assert!(passages[10..].iter().all(Option::is_none));
    assert_eq!(path.counters.dropped_queue, 15);
    assert_eq!(path.bytes_of(path.counters.queue_max_picos), 15_000);
    // A packet's time later there is room for exactly one more.
    assert!(path.offer(MS + 12_000, 1500, 0).is_some());
    assert!(path.offer(MS + 12_000, 1500, 0).is_none());
    // A small one does not fit either before the next has left.
    assert!(path.offer(MS + 12_000, 40, 0).is_none());
}

#[test]
fn a_packet_larger_than_the_queue_passes_an_idle_transmitter() {
    let shape = Shape {
        queue_bytes: 100,
        ..gigabit()
    };
    let mut path = Path::new(shape, 1, 0);
    assert!(path.offer(MS, 1500, 0).is_some());
    assert!(path.offer(MS, 1500, 0).is_none());
}

#[test]
fn slack_admits_what_piled_up_while_nobody_looked() {
    let shape = Shape {
        queue_bytes: 15_000,
        ..gigabit()
    };
    let mut path = Path::new(shape, 1, 0);
    // 120 us of slack are ten packets at this rate.
    let admitted = (0..40)
        .filter(|_| path.offer(MS, 1500, 120_000).is_some())
        .count();
    assert_eq!(admitted, 20);
    assert_eq!(path.counters.admitted_after_stall, 10);
}

#[test]
fn the_share_of_lost_packets_is_the_one_asked_for() {
    for share in [0.001, 0.01, 0.3] {
        let shape = Shape {
            loss: share,
            ..Shape::with_delay(Duration::ZERO)
        };
        let mut path = Path::new(shape, 42, 1);
        let count = 400_000;
        let lost = offer_all(&mut path, count, 1500, 1_000)
            .iter()
            .filter(|p| p.is_none())
            .count();
        let expected = share * count as f64;
        let sigma = (expected * (1.0 - share)).sqrt();
        assert!(
            (lost as f64 - expected).abs() < 4.0 * sigma,
            "{lost} {expected}"
        );
        assert_eq!(path.counters.dropped_loss, lost as u64);
    }
}

#[test]
fn equal_seeds_give_equal_fates_whatever_the_timing() {
    let shape = Shape {
        loss: 0.05,
        reorder: 0.05,
        duplicate: 0.05,
        corrupt: 0.05,
        ..gigabit()
    };
    let fates = |seed, direction, gap| -> Vec<_> {
        let mut path = Path::new(shape.clone(), seed, direction);
        offer_all(&mut path, 5_000, 1500, gap)
            .into_iter()
            .map(|p| p.map(|p| (p.late, p.duplicate, p.corrupt)))
            .collect()
    };
    assert_eq!(fates(1, 0, 20_000), fates(1, 0, 33_333));
    assert_ne!(fates(1, 0, 20_000), fates(2, 0, 20_000));
    assert_ne!(fates(1, 0, 20_000), fates(1, 1, 20_000));
}

#[test]
fn one_kind_of_event_leaves_the_others_alone() {
    let lost = |duplicate| -> Vec<bool> {
        let shape = Shape {
            loss: 0.1,
            duplicate,
            ..gigabit()
        };
        let mut path = Path::new(shape, 9, 0);
        offer_all(&mut path, 2_000, 100, 20_000)
            .iter()
            .map(Option::is_none)
            .collect()
    };
    assert_eq!(lost(0.0), lost(0.5));
}

#[test]
fn order_is_kept_but_for_those_marked_late() {
    let shape = Shape {
        reorder: 0.01,
        reorder_delay: Duration::from_millis(3),
        ..gigabit()
    };
    let mut path = Path::new(shape, 3, 0);
    let passages: Vec<_> = offer_all(&mut path, 50_000, 1500, 12_000)
        .into_iter()
        .flatten()
        .collect();
    let late = passages.iter().filter(|p| p.late).count();
    assert!((350..650).contains(&late), "{late}");
    assert_eq!(path.counters.reordered, late as u64);
    let mut in_order = passages.iter().filter(|p| !p.late).map(|p| p.due);
    assert!(in_order.by_ref().is_sorted());
    for pair in passages
        .windows(2)
        .filter(|pair| pair[0].late && !pair[1].late)
    {
        assert!(pair[0].due > pair[1].due);
    }
}

#[test]
fn jitter_moves_the_delay_within_its_limits_and_keeps_order() {
    let shape = Shape {
        jitter: Duration::from_millis(1),
        ..Shape::with_delay(Duration::from_millis(10))
    };
    let mut path = Path::new(shape, 5, 0);
    let mut last = 0;
    let (mut least, mut most) = (u64::MAX, 0);
    for i in 0..200_000 {
        let now = i * 50_000;
        let due = path.offer(now, 100, 0).unwrap().due;
        assert!(due >= last);
        last = due;
        least = least.min(due - now);
        most = most.max(due - now);
    }
    assert!((9 * MS..9 * MS + MS / 20).contains(&least), "{least}");
    assert!((11 * MS - MS / 20..=11 * MS).contains(&most), "{most}");
}

#[test]
fn a_hole_swallows_large_packets_only() {
    let shape = Shape {
        path_mtu: Some(1400),
        ..gigabit()
    };
    let mut path = Path::new(shape, 1, 0);
    assert!(path.offer(MS, 1400, 0).is_some());
    assert!(path.offer(MS, 1401, 0).is_none());
    assert_eq!(path.counters.dropped_path_mtu, 1);
    // It takes no time on the wire either.
    assert_eq!(
        path.offer(MS, 100, 0).unwrap().due,
        MS + 11_200 + 800 + 6_250_000
    );
}

#[test]
fn marks_begin_above_the_threshold() {
    let shape = Shape {
        ecn_mark_bytes: Some(4_500),
        ..gigabit()
    };
    let mut path = Path::new(shape, 1, 0);
    let marks: Vec<_> = offer_all(&mut path, 6, 1500, 0)
        .into_iter()
        .map(|p| p.unwrap().mark)
        .collect();
    assert_eq!(marks, [false, false, false, true, true, true]);
}

#[test]
fn duplicates_and_damage_come_in_their_shares() {
    let shape = Shape {
        duplicate: 0.02,
        corrupt: 0.01,
        ..Shape::with_delay(Duration::ZERO)
    };
    let mut path = Path::new(shape, 11, 0);
    let passages: Vec<_> = offer_all(&mut path, 100_000, 100, 0)
        .into_iter()
        .flatten()
        .collect();
    let twice = passages.iter().filter(|p| p.duplicate).count();
    let damaged = passages.iter().filter(|p| p.corrupt.is_some()).count();
    assert!((1_800..2_200).contains(&twice), "{twice}");
    assert!((850..1_150).contains(&damaged), "{damaged}");
    assert_eq!(path.counters.duplicated, twice as u64);
    assert_eq!(path.counters.corrupted, damaged as u64);
}
