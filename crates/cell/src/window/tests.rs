use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Bytes of a packet's payload, and of a piece that is sent in 63 of them.
const PACKET: u64 = 1416;
const PIECE: u64 = 63 * PACKET;

/// A link with an OpenAFS file server behind it, whose packets wait for each other.
#[derive(Debug)]
struct Link {
    round_trip: Duration,
    packet_time: Duration,
    free: Mutex<Instant>,
    /// Packets that were carried.
    carried: AtomicU64,
}

impl Link {
    /// One that carries so many packets in a round trip.
    fn new(round_trip: Duration, packets: u32) -> Arc<Self> {
        Arc::new(Self {
            round_trip,
            packet_time: round_trip / packets,
            free: Mutex::new(Instant::now()),
            carried: AtomicU64::new(0),
        })
    }

    /// Sends a packet now; returns when it arrives.
    fn send(&self) -> Instant {
        let mut free = self.free.lock();
        *free = (*free).max(Instant::now()) + self.packet_time;
        self.carried.fetch_add(1, Ordering::Relaxed);
        *free
    }

    /// How long a packet sent now waits for others.
    fn queue(&self) -> Duration {
        self.free.lock().duration_since(Instant::now())
    }

    /// One call: each packet that arrives has two others sent a round trip later.
    async fn call(&self, mut permit: Permit) {
        permit.begin();
        let begin = Instant::now();
        let mut to_send = VecDeque::from([begin + self.round_trip]);
        let mut coming: VecDeque<Instant> = VecDeque::new();
        let (mut sent, mut arrived) = (0, 0);
        while arrived < 63 {
            let next = to_send.front().into_iter().chain(coming.front()).min();
            tokio::time::sleep_until(*next.expect("more is to come")).await;
            let now = Instant::now();
            while pop_due(&mut to_send, now).is_some() {
                if sent < 63 {
                    coming.push_back(self.send());
                    sent += 1;
                }
            }
            while let Some(at) = pop_due(&mut coming, now) {
                if arrived == 0 {
                    permit.answered(begin.elapsed());
                }
                permit.received(1416);
                to_send.extend([at + self.round_trip; 2]);
                arrived += 1;
            }
        }
    }

    /// Calls, as many as the window allows.
    fn load(self: &Arc<Self>, window: &Arc<Window>) -> tokio::task::JoinHandle<()> {
        let (link, window) = (Arc::clone(self), Arc::clone(window));
        tokio::spawn(async move {
            loop {
                let permit = window.acquire(PIECE).await;
                let link = Arc::clone(&link);
                tokio::spawn(async move { link.call(permit).await });
            }
        })
    }

    /// The share of the time until the moment given that packets were carried in, and the longest
    /// queue meanwhile, in round trips.
    async fn watch(&self, time: Duration) -> (f64, f64) {
        let before = self.carried.load(Ordering::Relaxed);
        let begin = Instant::now();
        let mut longest = Duration::ZERO;
        while begin.elapsed() < time {
            tokio::time::sleep(self.round_trip / 20).await;
            longest = longest.max(self.queue());
        }
        let carried = self.carried.load(Ordering::Relaxed) - before;
        let busy = self.packet_time.as_secs_f64() * bytes_of(carried);
        (
            busy / begin.elapsed().as_secs_f64(),
            longest.as_secs_f64() / self.round_trip.as_secs_f64(),
        )
    }
}

/// The long link of the benchmarks: 230 ms, 30 Mbit/s.
const LONG: Duration = Duration::from_millis(230);
const LONG_PACKETS: u32 = 586;

#[tokio::test(start_paused = true)]
async fn a_long_link_is_kept_full_by_a_short_queue() {
    let link = Link::new(LONG, LONG_PACKETS);
    let window = Arc::new(Window::new(None));
    window.learn(LONG);
    let load = link.load(&window);
    let (first, start_queue) = link.watch(Duration::from_secs(6)).await;
    assert!(first > 0.6, "{first} of the link used in the first 6 s");
    assert!(
        start_queue < 1.5,
        "{start_queue} round trips of queue at first"
    );
    tokio::time::sleep(Duration::from_secs(6)).await;
    for part in 0..10 {
        let (used, queue) = link.watch(Duration::from_secs(20)).await;
        assert!(used > 0.98, "{used} of the link used in part {part}");
        assert!(queue < 0.75, "{queue} round trips of queue in part {part}");
        let delay = window.lock().delay.get().unwrap_or_default();
        assert!(
            delay < 1.05 * LONG.as_secs_f64(),
            "{delay} s seem the least"
        );
    }
    load.abort();
}

#[tokio::test(start_paused = true)]
async fn calls_that_were_held_up_together_get_out_of_step() {
    let link = Link::new(LONG, LONG_PACKETS);
    let window = Arc::new(Window::new(None));
    window.learn(LONG);
    let load = link.load(&window);
    tokio::time::sleep(Duration::from_secs(15)).await;
    // Nothing comes for some round trips; then all calls go on together.
    *link.free.lock() += 4 * LONG;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (used, _) = link.watch(Duration::from_secs(15)).await;
    assert!(used > 0.95, "{used} of the link used");
    load.abort();
}

#[tokio::test(start_paused = true)]
async fn a_link_that_gets_wider_is_filled_again() {
    let window = Arc::new(Window::new(None));
    window.learn(LONG);
    let narrow = Link::new(LONG, LONG_PACKETS / 6);
    let load = narrow.load(&window);
    tokio::time::sleep(Duration::from_secs(20)).await;
    load.abort();
    let limit = window.limit();
    assert!((9..25).contains(&limit), "{limit} calls on the narrow link");
    let wide = Link::new(LONG, LONG_PACKETS);
    let load = wide.load(&window);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (used, _) = wide.watch(Duration::from_secs(10)).await;
    assert!(used > 0.9, "{used} of the wide link used");
    load.abort();
}

#[tokio::test(start_paused = true)]
async fn the_limit_settles_somewhat_above_what_the_link_holds() {
    for calls in [10, 58, 130] {
        let round_trip = Duration::from_millis(100);
        let link = Link::new(round_trip, calls * 63 / 6);
        let window = Arc::new(Window::new(None));
        let load = link.load(&window);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let found = window.limit();
        load.abort();
        let least = usize::try_from(calls).unwrap();
        assert!(
            (least..least + least / 3 + 2 * BASIC).contains(&found),
            "{found} calls for {calls}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn how_fast_a_server_is_is_known_when_more_would_have_been_taken() {
    let link = Link::new(LONG, LONG_PACKETS);
    let window = Arc::new(Window::new(None));
    for _ in 0..20 {
        link.call(window.acquire(PIECE).await).await;
    }
    assert_eq!(window.best_rate(), None, "one call at a time");
    let load = link.load(&window);
    tokio::time::sleep(Duration::from_secs(20)).await;
    load.abort();
    let all = f64::from(LONG_PACKETS) * bytes_of(PACKET) / LONG.as_secs_f64();
    let found = window.best_rate().unwrap_or_default() / all;
    assert!((0.95..1.1).contains(&found), "{found} of the link");
    tokio::time::sleep(BEST_LIFETIME + Duration::from_secs(10)).await;
    assert_eq!(window.best_rate(), None, "long ago");
    let load = link.load(&window);
    tokio::time::sleep(Duration::from_secs(5)).await;
    load.abort();
    let found = window.best_rate().unwrap_or_default() / all;
    assert!(
        (0.5..1.1).contains(&found),
        "{found} of the link after a pause"
    );
}

#[tokio::test(start_paused = true)]
async fn one_large_call_tells_how_fast_a_server_is() {
    let window = Arc::new(Window::new(None));
    window.learn(LONG);
    let mut permit = window.acquire(64 << 20).await;
    permit.begin();
    permit.answered(LONG);
    for times in 1..500 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        permit.received(100_000);
        // Until it has gone on for as long as is averaged over.
        let early = Duration::from_millis(10 * times) < LONG.mul_f64(ROUND_TRIPS);
        assert!(!early || window.best_rate().is_none(), "{times}");
    }
    let found = window.best_rate().unwrap_or_default() / 1e7;
    assert!((0.95..1.05).contains(&found), "{found}");
}

#[tokio::test(start_paused = true)]
async fn busy_servers_get_fewer_calls_and_permits_are_not_lost() {
    let window = Arc::new(Window::new(None));
    for _ in 0..4 {
        window.acquire(PIECE).await.refused();
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let limit = window.limit();
    assert!((LEAST..INITIAL).contains(&limit), "{limit}");
    assert_eq!(window.permits.available_permits(), limit);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_limit_stays() {
    let window = Arc::new(Window::new(Some(3)));
    for _ in 0..100 {
        for mut permit in [window.acquire(PIECE).await, window.acquire(PIECE).await] {
            permit.begin();
            permit.answered(Duration::from_millis(5));
            permit.received(100_000);
        }
        window.acquire(PIECE).await.refused();
    }
    assert_eq!(window.permits.available_permits(), 3);
    assert_eq!(window.most_running(), 1);
}

impl Link {
    /// Calls of a reader that wants no more than this share of the link, but what it misses as soon as
    /// possible. Counts those that are over.
    fn want(
        self: &Arc<Self>,
        window: Window,
        share: f64,
    ) -> (tokio::task::JoinHandle<()>, Arc<AtomicU64>) {
        let (link, window) = (Arc::clone(self), Arc::new(window));
        window.learn(self.round_trip);
        let over = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&over);
        let distance = self.packet_time.mul_f64(63.0 / share);
        let task = tokio::spawn(async move {
            let mut next = Instant::now();
            loop {
                tokio::time::sleep_until(next).await;
                next += distance;
                let permit = window.acquire(PIECE).await;
                let (link, over) = (Arc::clone(&link), Arc::clone(&counter));
                tokio::spawn(async move {
                    link.call(permit).await;
                    over.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        (task, over)
    }
}

#[tokio::test(start_paused = true)]
async fn who_gives_way_leaves_others_what_they_want_and_takes_the_rest() {
    // A share of more than all is wanted by one who never has enough.
    for (share, least_used) in [(0.64, 0.8), (2.0, 0.95)] {
        let link = Link::new(LONG, LONG_PACKETS);
        let window = Arc::new(Window::giving_way(None));
        let load = link.load(&window);
        let (other, over) = link.want(Window::new(None), share);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let before = over.load(Ordering::Relaxed);
        let (used, _) = link.watch(Duration::from_secs(50)).await;
        let packets = bytes_of((over.load(Ordering::Relaxed) - before) * 63);
        let got = packets * link.packet_time.as_secs_f64() / 50.0;
        let wanted = share.min(1.0);
        assert!(got > 0.96 * wanted, "{got} for others who want {wanted}");
        assert!(used > least_used, "{used} of the link used");
        // It has all of the link again soon after.
        other.abort();
        tokio::time::sleep(Duration::from_secs(20)).await;
        let (used, _) = link.watch(Duration::from_secs(20)).await;
        assert!(used > 0.75, "{used} of the link used alone");
        load.abort();
    }
}

/// The first of these times, if it has come.
fn pop_due(times: &mut VecDeque<Instant>, now: Instant) -> Option<Instant> {
    let due = times.front().is_some_and(|at| *at <= now);
    if due { times.pop_front() } else { None }
}

#[tokio::test(start_paused = true)]
async fn two_share_a_link_evenly_and_who_comes_first_gets_three_times_as_much() {
    let link = Link::new(LONG, LONG_PACKETS);
    // Only what each of them gets differs.
    let [first, other] = [(); 2].map(|()| Arc::new(Window::new(None)));
    for window in [&first, &other] {
        window.learn(LONG);
    }
    let loads = [&first, &other].map(|window| link.load(window));
    let came = || [&first, &other].map(|window| bytes_of(window.lock().came));
    for (shares, low, high) in [(1, 0.4, 0.6), (3, 0.65, 0.9), (1, 0.4, 0.6)] {
        let mut before = came();
        for second in 0..120 {
            if shares > 1 {
                first.come_first();
            }
            if second == 60 {
                before = came();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let after = came();
        let [one, two] = [after[0] - before[0], after[1] - before[1]];
        let share = one / (one + two);
        assert!((low..high).contains(&share), "{share} with {shares} shares");
        // They do not take each other's queue for the way.
        let delay = [&first, &other].map(|window| window.lock().delay.get().unwrap_or_default());
        let long = LONG.as_secs_f64();
        assert!(delay.iter().all(|delay| *delay < 1.5 * long), "{delay:?}");
    }
    for load in loads {
        load.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_ends_when_the_way_takes_longer_twice_in_a_row() {
    let (own, burst, queue) = (LONG, LONG.mul_f64(1.4), LONG.mul_f64(1.6));
    for (first, trips, starting) in [
        (false, [own, burst, own, burst], true),
        (false, [own, own, burst, burst], false),
        // A reader with priority bears more.
        (true, [own, own, burst, burst], true),
        (true, [own, own, queue, queue], false),
        // There was a queue before.
        (false, [queue, queue, queue, queue], true),
    ] {
        let window = Window::new(None);
        if first {
            window.come_first();
        }
        for trip in trips {
            assert!(window.wants_round_trip());
            assert!(
                !window.wants_round_trip(),
                "no more often than it is measured"
            );
            window.note_round_trip(trip);
            tokio::time::advance(TRIP_EVERY).await;
        }
        assert_eq!(window.is_starting(), starting, "{trips:?}");
        assert_eq!(window.wants_round_trip(), starting);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_stuck_sooner_while_others_go_on() {
    let window = Arc::new(Window::new(None));
    let [mut one, mut other] = [window.acquire(PIECE).await, window.acquire(PIECE).await];
    for permit in [&mut one, &mut other] {
        permit.begin();
        permit.answered(LONG);
    }
    let long = STUCK.max(LONG.mul_f64(STUCK_TRIPS));
    // Nothing comes of any.
    for (late, is_stuck) in [(long.mul_f64(1.8), false), (long.mul_f64(2.2), true)] {
        let found = one.unless_stuck(tokio::time::sleep(late)).await;
        assert_eq!(found.is_none(), is_stuck, "{late:?}");
    }
    let goes_on = async {
        loop {
            tokio::time::sleep(LONG).await;
            other.received(1000);
        }
    };
    let begun = Instant::now();
    tokio::select! {
        found = one.unless_stuck(std::future::pending::<()>()) => assert!(found.is_none()),
        () = goes_on => {}
    }
    assert!(begun.elapsed() >= long && begun.elapsed() < 2 * long);
}
