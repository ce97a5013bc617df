//! What a hostile end, a wrong clock or a server that was set back can do: make others wait once, no more.
// spec: leases#attacks

use super::*;
use crate::wire::{Claim, EVERYTHING};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_host_that_does_not_give_one_back_is_asked_for_all() {
    for answers in [false, true] {
        let mut server = server(Limits::default());
        let mut holder = holder(&mut server, START, 1, 1..50);
        let (note, _) = holder.note(START, &[], 0);
        let waits = |server: &mut Server, now, place| {
            matches!(server.enter(now, None, None, &[fid(place)]), Entry::Wait(_))
        };
        let mut waited = 0;
        let mut place = 1;
        // Somebody looks at one after the other, as `ls -l` does. The holder renews, and says that it is flushing.
        for second in 0..100 {
            let now = START + SECOND * second;
            server.handle_timeout(now);
            let _heard = hear(&mut server, now, 1, &note);
            if let Some(recall) = server.recall_of(host(1)).filter(|_| answers) {
                let standings = vec![Standing::Flushing; recall.items.len()];
                let answer = RecallAnswer {
                    standings: List::new(standings).unwrap(),
                };
                server.recall_answered(now, host(1), &recall, &answer);
            }
            while place < 50 && !waits(&mut server, now, place) {
                place += 1;
            }
            waited += u32::from(place < 50);
        }
        assert_eq!(place, 50);
        assert!(waited <= 40, "{waited} s for all 49");
        assert_eq!(server.leases(), 0);
    }
}

#[test]
fn a_host_that_did_not_give_one_back_gets_none_for_a_while() {
    let mut server = server(Limits::default());
    let mut lost = holder(&mut server, START, 1, 1..2);
    assert!(matches!(
        server.enter(START, None, None, &[fid(1)]),
        Entry::Wait(_)
    ));
    let later = START + TERM;
    server.handle_timeout(later);
    assert_eq!(server.hosts(), 0, "its notes have stopped as well");
    for second in [1, 9] {
        let now = later + SECOND * second;
        wish(&mut server, now, &mut lost, 1, fid(2));
        persist(&mut server);
    }
    assert_eq!(server.leases(), 0);
    for second in [11, 12, 13, 14] {
        let now = later + SECOND * second;
        wish(&mut server, now, &mut lost, 1, fid(2));
        persist(&mut server);
    }
    assert_eq!(server.holder(fid(2)), Some((host(1), false)));
}

#[test]
fn another_process_with_the_same_identity_is_a_stranger() {
    let mut server = server(Limits::default());
    let first = holder(&mut server, START, 1, 1..2);
    let lease = Lease {
        fid: fid(1),
        number: first.lease(START, fid(1)).unwrap(),
    };
    let mut second = Holder::new();
    wish(&mut server, START, &mut second, 1, fid(2));
    persist(&mut server);
    wish(&mut server, START, &mut second, 1, fid(2));
    assert_eq!(
        second.lease(START, fid(2)),
        None,
        "the session is not its own"
    );
    // It needs what the first one has.
    let (note, _) = second.note(START, &[fid(1)], 0);
    let heard = hear(&mut server, START, 1, &note);
    assert!(!server.covers(heard, lease), "the number is no secret");
    assert!(matches!(
        server.enter(START, None, Some(heard), &[fid(1)]),
        Entry::Wait(_)
    ));
    let recall = server.recall_of(host(1)).unwrap();
    let answer = second.recalled(&recall);
    assert_eq!(answer.standings[..], [Standing::Stranger]);
    server.recall_answered(START, host(1), &recall, &answer);
    assert_eq!(server.holder(fid(1)), Some((host(1), true)));
    assert!(server.recall_of(host(1)).is_some(), "nobody has heard yet");
}

#[test]
fn another_process_claims_nothing_and_ends_no_wait() {
    let rows = vec![Row {
        host: host(1),
        volume: VOLUME,
        session: 77,
    }];
    let mut server = Server::new(START, 2, 0, rows, Limits::default());
    let lease = Lease {
        fid: fid(1),
        number: 5,
    };
    for (number, session, leases) in [(1, 0, vec![]), (1, 78, vec![lease]), (2, 77, vec![lease])] {
        let claim = Claim {
            version: VERSION,
            instance: 2,
            session,
            leases: List::new(leases).unwrap(),
            blocks: List::default(),
        };
        assert_eq!(server.claim(START, host(number), &claim).session, 0);
    }
    assert_eq!(server.leases(), 0);
    assert_eq!(
        server.enter(START, None, None, &[fid(1)]),
        Entry::Wait(START + TERM)
    );
    let mut own = Claim {
        version: VERSION,
        instance: 1,
        session: 77,
        leases: List::new(vec![
            lease,
            Lease {
                fid: Fid::new(8, 1, 1),
                number: 5,
            },
        ])
        .unwrap(),
        blocks: List::default(),
    };
    assert_eq!(
        server.claim(START, host(1), &own).session,
        0,
        "of another life"
    );
    own.instance = 2;
    let claimed = server.claim(START, host(1), &own);
    assert_eq!(claimed.session, 77);
    assert_eq!(claimed.refused[..], [1], "it has no row there");
    assert_eq!(server.claim(START, host(1), &own), claimed, "again");
}

#[test]
fn a_process_that_comes_back_sends_what_is_left_and_gives_everything_back() {
    let mut server = server(Limits::default());
    let before = holder(&mut server, START, 1, 1..9);
    let lease = Lease {
        fid: fid(1),
        number: before.lease(START, fid(1)).unwrap(),
    };
    let mut holder = Holder::resume(before.session(), &[lease]);
    assert_eq!(holder.lease(START, fid(1)), None, "nothing new under it");
    // Its recall of what it does not know of.
    assert!(matches!(
        server.enter(START, None, None, &[fid(1), fid(2)]),
        Entry::Wait(_)
    ));
    let recall = server.recall_of(host(1)).unwrap();
    let answer = holder.recalled(&recall);
    assert_eq!(
        answer.standings[..],
        [Standing::Flushing, Standing::Released]
    );
    server.recall_answered(START, host(1), &recall, &answer);
    let (note, _) = holder.note(START, &[], 0);
    let heard = hear(&mut server, START, 1, &note);
    let named = Lease {
        fid: fid(1),
        number: holder.number(fid(1)).unwrap(),
    };
    assert!(server.covers(heard, named), "its journal is in time");
    holder.flushed(fid(1));
    let (note, sent) = holder.note(START, &[fid(3)], 0);
    assert_eq!(note.given[..], [EVERYTHING]);
    let heard = hear(&mut server, START, 1, &note);
    assert_eq!((server.leases(), server.hosts()), (0, 0));
    holder.answered(START, &sent, &server.word(heard));
    for second in 2..5 {
        let now = START + SECOND * second;
        wish(&mut server, now, &mut holder, 1, fid(3));
        persist(&mut server);
    }
    assert!(holder.lease(START + SECOND * 4, fid(3)).is_some());
}

#[test]
fn a_claim_that_is_repeated_renews_nothing() {
    let mut before = server(Limits::default());
    let mut mine = holder(&mut before, START, 1, 1..2);
    let mut server = restart(&mut mine);
    let at = START + SECOND;
    let (claim, _lost) = mine.claim(at).unwrap();
    server.claim(at, host(1), &claim);
    // The answer is lost. Somebody else waits meanwhile, of which the answer to the next claim does not tell.
    assert!(matches!(
        server.enter(at, None, None, &[fid(1)]),
        Entry::Wait(_)
    ));
    let later = START + SECOND * 15;
    let (claim, sent) = mine.claim(later).unwrap();
    let answer = server.claim(later, host(1), &claim);
    mine.claimed(later, &sent, &claim, &answer);
    assert!(mine.lease(later, fid(1)).is_some());
    let end = at + TERM;
    server.handle_timeout(end);
    assert!(matches!(
        server.enter(end, None, None, &[fid(1)]),
        Entry::Proceed(_)
    ));
    assert_eq!(mine.lease(end, fid(1)), None);
}

#[test]
fn a_server_that_was_set_back_knows_no_session_of_before() {
    let mut first = server(Limits::default());
    let mut mine = holder(&mut first, START, 1, 1..2);
    // The same life again, from a backup of the machine, and the same host there.
    let mut again = server(Limits::default());
    let mut other = Holder::new();
    for _ in 0..2 {
        let (note, sent) = other.note(START, &[fid(1)], 0);
        let heard = again.hear(START, host(1), &note, 99 << 32 | again.last);
        let Entry::Proceed(visit) = again.enter(START, None, Some(heard), &[fid(1)]) else {
            panic!("nobody has it");
        };
        let word = again.answer(
            START,
            heard,
            visit,
            &[Wish {
                fid: fid(1),
                alone: true,
            }],
        );
        again.leave(visit);
        other.answered(START, &sent, &word);
        persist(&mut again);
    }
    assert!(other.lease(START, fid(1)).is_some());
    let (note, sent) = mine.note(START, &[], 0);
    let heard = hear(&mut again, START, 1, &note);
    assert!(!again.fits(heard));
    mine.answered(START, &sent, &again.word(heard));
    assert_eq!(mine.lease(START, fid(1)), None);
}

#[test]
fn clocks_that_jump_end_leases() {
    let mut server = server(Limits::default());
    let mut holder = holder(&mut server, START, 1, 1..2);
    // The client's machine was suspended for an hour. Its first call names the session, and gives everything back.
    let hour = START + SECOND * 3600;
    assert_eq!(holder.lease(hour, fid(1)), None);
    let (note, sent) = holder.note(hour, &[fid(1)], 0);
    assert_eq!(note.given[..], [EVERYTHING]);
    assert!(note.wishes.is_empty());
    let lost = std::iter::from_fn(|| holder.poll_action());
    assert!(
        lost.into_iter()
            .any(|action| action == crate::holder::Action::Lost(fid(1)))
    );
    // The server's was, too, and hears the note before it looks at the clock.
    let heard = hear(&mut server, hour, 1, &note);
    holder.answered(hour, &sent, &server.word(heard));
    assert_eq!(holder.session().1, 0);
    assert!(matches!(
        server.enter(hour, None, None, &[fid(1)]),
        Entry::Proceed(_)
    ));
}

#[test]
fn threads_that_read_the_clock_in_another_order_end_nothing_early() {
    let mut server = server(Limits::default());
    let mut holder = holder(&mut server, START, 1, 1..2);
    let (note, _) = holder.note(START, &[], 0);
    let _heard = hear(&mut server, START + SECOND * 5, 1, &note);
    let _heard = hear(&mut server, START + SECOND * 4, 1, &note);
    server.handle_timeout(START + SECOND * 24);
    assert_eq!(server.leases(), 1);
    server.handle_timeout(START + SECOND * 25);
    assert_eq!(server.leases(), 0);
}

#[test]
fn rows_are_written_once_a_second_and_left_behind() {
    let limits = Limits {
        volumes: 2,
        ..Limits::default()
    };
    let mut server = server(limits);
    let mut holder = Holder::new();
    let root = |volume| Fid::new(volume, 1, 1);
    let mut written = 0;
    let mut at = START;
    for volume in 1..=10 {
        for _ in 0..20 {
            at += SECOND / 10;
            wish(&mut server, at, &mut holder, 1, root(volume));
            while let Some(action) = server.poll_action() {
                if let Action::Persist {
                    host,
                    volume,
                    session,
                } = action
                {
                    written += 1;
                    server.persisted(host, volume, session);
                }
            }
        }
        assert!(holder.lease(at, root(volume)).is_some(), "{volume}");
        if volume % 2 == 0 {
            // It leaves both.
            for left in [volume - 1, volume] {
                holder.give_back(root(left));
                holder.flushed(root(left));
            }
        }
    }
    assert_eq!(written, 10);
    assert!(server.hosts[&host(1)].rows.len() <= 2);
    // Volume after volume in one moment.
    for volume in 11..100 {
        wish(&mut server, at, &mut holder, 1, root(volume));
    }
    let actions = std::iter::from_fn(|| server.poll_action());
    let persists = actions.filter(|action| matches!(action, Action::Persist { .. }));
    assert_eq!(persists.count(), 1);
}

#[test]
fn a_holder_takes_only_what_it_wished_for() {
    let mut server = server(Limits::default());
    let mut mine = holder(&mut server, START, 1, 1..2);
    let (note, sent) = mine.note(START, &[fid(2)], 0);
    let heard = hear(&mut server, START, 1, &note);
    let mut word = server.word(heard);
    let lease = |place| Lease {
        fid: fid(place),
        number: word.told + 1,
    };
    word.grants = List::new([lease(2), lease(3)]).unwrap();
    mine.answered(START, &sent, &word);
    assert!(mine.lease(START, fid(2)).is_some());
    assert_eq!(mine.lease(START, fid(3)), None);
}
