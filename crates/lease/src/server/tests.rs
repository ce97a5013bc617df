//! What no random life shows: bounds, bursts, hostile holders.

use std::time::Duration;

use afar_types::{AfsUuid, Fid, VolumeId};
use afar_xdr::List;

mod attacks;
mod sums;

use super::*;
use crate::wire::{Note, RecallAnswer, Standing, VERSION};
use crate::{Holder, TERM};

const START: Time = Duration::from_secs(1000);
const VOLUME: VolumeId = VolumeId(7);

fn host(number: u32) -> AfsUuid {
    AfsUuid {
        time_low: number,
        ..AfsUuid::default()
    }
}

fn fid(number: u32) -> Fid {
    Fid::new(VOLUME.0, number, number)
}

fn server(limits: Limits) -> Server {
    Server::new(START, 1, 0, Vec::new(), limits)
}

/// A note that came.
fn hear(server: &mut Server, now: Time, number: u32, note: &Note) -> Heard {
    let fresh = 1 << 63 | server.next();
    server.hear(now, host(number), note, fresh)
}

/// As if a host had said its session.
fn of(server: &Server, number: u32) -> Heard {
    let host = host(number);
    let session = server.hosts.get(&host).map_or(0, |state| state.session);
    Heard {
        host,
        said: (server.instance, session),
        ..Heard::default()
    }
}

/// A host's call with a wish, from the note to the word.
fn wish(server: &mut Server, now: Time, holder: &mut Holder, number: u32, fid: Fid) {
    let (note, sent) = holder.note(now, &[fid], 0);
    let heard = hear(server, now, number, &note);
    let Entry::Proceed(visit) = server.enter(now, None, Some(heard), &[fid]) else {
        return;
    };
    let wishes = note.wishes.iter();
    let wishes: Vec<Wish> = wishes.map(|&fid| Wish { fid, alone: true }).collect();
    let word = server.answer(now, heard, visit, &wishes);
    server.leave(visit);
    holder.answered(now, &sent, &word);
}

/// Makes rows durable, and drops the other actions.
fn persist(server: &mut Server) -> Vec<Action> {
    let mut others = Vec::new();
    while let Some(action) = server.poll_action() {
        match action {
            Action::Persist {
                host,
                volume,
                session,
            } => server.persisted(host, volume, session),
            other => others.push(other),
        }
    }
    others
}

/// A holder with leases of all these.
fn holder(server: &mut Server, now: Time, number: u32, fids: impl Iterator<Item = u32>) -> Holder {
    let mut holder = Holder::new();
    let fids: Vec<u32> = fids.collect();
    wish(server, now, &mut holder, number, fid(fids[0]));
    persist(server);
    for place in fids {
        wish(server, now, &mut holder, number, fid(place));
    }
    holder
}

/// Gives host 1 blocks of four fids, which begin at these vnodes.
fn give_blocks<const N: usize>(
    server: &mut Server,
    mine: &mut Holder,
    firsts: [u32; N],
) -> [Block; N] {
    let blocks = firsts.map(|first| {
        let block = Block {
            volume: VOLUME,
            vnode: first,
            uniquifier: first,
            count: 4,
            quota: 0,
            number: 0,
        };
        server.reserve(host(1), block).unwrap()
    });
    let (note, sent) = mine.note(START, &[], 0);
    let heard = hear(server, START, 1, &note);
    let mut word = server.word(heard);
    word.blocks = List::new(blocks).unwrap();
    mine.answered(START, &sent, &word);
    blocks
}

/// A server that has restarted, and has heard host 1 since.
fn restart(mine: &mut Holder) -> Server {
    let rows = vec![Row {
        host: host(1),
        volume: VOLUME,
        session: mine.session().1,
    }];
    let mut server = Server::new(START, 2, 0, rows, Limits::default());
    let (note, sent) = mine.note(START, &[], 0);
    let heard = hear(&mut server, START, 1, &note);
    mine.answered(START, &sent, &server.word(heard));
    server
}

#[test]
fn the_first_grant_waits_for_the_row() {
    let mut server = server(Limits::default());
    let mut holder = Holder::new();
    wish(&mut server, START, &mut holder, 1, fid(1));
    assert_eq!(holder.lease(START, fid(1)), None);
    persist(&mut server);
    wish(&mut server, START, &mut holder, 1, fid(1));
    assert!(holder.lease(START, fid(1)).is_some());
}

#[test]
fn a_call_of_the_holder_s_own_host_without_a_note_damps_nothing() {
    let mut server = server(Limits::default());
    let mut holder = holder(&mut server, START, 1, 1..2);
    for by_another in [false, true] {
        let own = server.enter(START, Some(host(1)), None, &[fid(1)]);
        assert_eq!(own, Entry::Wait(START + TERM));
        if by_another {
            // It waits for the same recall.
            let another = server.enter(START, Some(host(2)), None, &[fid(1)]);
            assert_eq!(another, Entry::Wait(START + TERM));
        }
        let recall = server.recall_of(host(1)).unwrap();
        let answer = holder.recalled(&recall);
        server.recall_answered(START, host(1), &recall, &answer);
        holder.flushed(fid(1));
        let (note, sent) = holder.note(START, &[], 0);
        let heard = hear(&mut server, START, 1, &note);
        holder.answered(START, &sent, &server.word(heard));
        let entry = server.enter(START, Some(host(1)), None, &[fid(1)]);
        let Entry::Proceed(visit) = entry else {
            panic!("it is given back: {entry:?}");
        };
        server.leave(visit);
        wish(&mut server, START, &mut holder, 1, fid(1));
        assert_eq!(holder.lease(START, fid(1)).is_none(), by_another);
    }
}

#[test]
fn a_call_of_another_waits_until_it_is_given_back() {
    let mut server = server(Limits::default());
    let mut holder = holder(&mut server, START, 1, 1..2);
    assert_eq!(
        server.enter(START, None, None, &[fid(1)]),
        Entry::Wait(START + TERM)
    );
    let actions = persist(&mut server);
    assert_eq!(actions, [Action::Recall(host(1))]);
    let recall = server.recall_of(host(1)).unwrap();
    let answer = holder.recalled(&recall);
    assert_eq!(answer.standings[..], [Standing::Flushing]);
    server.recall_answered(START, host(1), &recall, &answer);
    assert_eq!(holder.lease(START, fid(1)), None, "it stops at once");
    assert!(matches!(
        server.enter(START, None, None, &[fid(1)]),
        Entry::Wait(_)
    ));
    holder.flushed(fid(1));
    let (note, _) = holder.note(START, &[], 0);
    let _heard = hear(&mut server, START, 1, &note);
    assert_eq!(persist(&mut server), [Action::Freed(fid(1))]);
    assert!(matches!(
        server.enter(START, None, None, &[fid(1)]),
        Entry::Proceed(_)
    ));
    wish(
        &mut server,
        START + Duration::from_secs(9),
        &mut holder,
        1,
        fid(1),
    );
    assert_eq!(server.leases(), 0, "it is damped");
}

#[test]
fn a_call_that_takes_what_is_free_waits_for_nothing_and_is_in_the_way_of_grants() {
    let mut server = server(Limits::default());
    let first = holder(&mut server, START, 1, 1..2);
    let (visit, free) = server.enter_free(None, &[fid(1), fid(2)]);
    assert_eq!(free, [fid(2)]);
    assert_eq!(server.holder(fid(1)), Some((host(1), false)));
    let mut holder = first;
    wish(&mut server, START, &mut holder, 1, fid(2));
    assert_eq!(holder.lease(START, fid(2)), None);
    server.leave(visit);
    wish(&mut server, START, &mut holder, 1, fid(2));
    assert!(holder.lease(START, fid(2)).is_some());
    let (note, _) = holder.note(START, &[], 0);
    let heard = hear(&mut server, START, 1, &note);
    let (visit, free) = server.enter_free(Some(heard), &[fid(1), fid(2)]);
    assert_eq!(free, [fid(1), fid(2)], "its own");
    server.leave(visit);
}

#[test]
fn a_holder_that_has_heard_has_fifteen_seconds_while_it_says_something() {
    for (talks, limit) in [(true, 15), (false, 5)] {
        let mut server = server(Limits::default());
        let mut holder = holder(&mut server, START, 1, 1..2);
        assert!(matches!(
            server.enter(START, None, None, &[fid(1)]),
            Entry::Wait(_)
        ));
        let recall = server.recall_of(host(1)).unwrap();
        let answer = holder.recalled(&recall);
        server.recall_answered(START, host(1), &recall, &answer);
        for second in 1..=limit {
            assert_eq!(server.leases(), 1, "{second} s");
            let now = START + Duration::from_secs(second);
            server.handle_timeout(now);
            if talks {
                let (note, _) = holder.note(now, &[], 0);
                let _heard = hear(&mut server, now, 1, &note);
            }
        }
        assert_eq!(server.leases(), 0);
        let revoked = Action::Revoked {
            host: host(1),
            fid: fid(1),
        };
        assert!(persist(&mut server).contains(&revoked));
    }
}

#[test]
fn a_holder_that_never_answers_delays_a_call_for_a_term() {
    let mut server = server(Limits::default());
    let mut holder = holder(&mut server, START, 1, 1..2);
    assert!(matches!(
        server.enter(START, None, None, &[fid(1)]),
        Entry::Wait(_)
    ));
    let (note, _) = holder.note(START, &[], 0);
    for second in 1..20 {
        let now = START + Duration::from_secs(second);
        server.handle_timeout(now);
        // It goes on renewing, and never says that it has heard.
        let _heard = hear(&mut server, now, 1, &note);
        assert!(
            matches!(server.enter(now, None, None, &[fid(1)]), Entry::Wait(_)),
            "{second} s"
        );
    }
    server.handle_timeout(START + TERM);
    assert!(matches!(
        server.enter(START + TERM, None, None, &[fid(1)]),
        Entry::Proceed(_)
    ));
    assert!(
        server.recall_of(host(1)).is_some(),
        "it is told until it has heard"
    );
    assert_eq!(server.room(host(1)), 0, "and gets nothing before");
}

#[test]
fn a_volume_of_ten_thousand_hosts_is_recalled_with_one_call_each() {
    let hosts = 10_000;
    let mut server = server(Limits::default());
    let mut holders: Vec<Holder> = (0..hosts)
        .map(|number| holder(&mut server, START, number, 2 * number + 1..2 * number + 3))
        .collect();
    assert_eq!(server.leases(), 20_000);
    server.close_volume(VOLUME);
    assert!(matches!(
        server.enter_volume(START, VOLUME),
        VolumeEntry::Wait(_)
    ));
    assert!(matches!(
        server.enter_volume(START, VOLUME),
        VolumeEntry::Wait(_)
    ));
    let actions = persist(&mut server);
    assert_eq!(actions.len(), hosts as usize, "one call each");
    for (number, holder) in (0..).zip(&mut holders) {
        let recall = server.recall_of(host(number)).unwrap();
        assert_eq!(recall.items.len(), 1);
        drop(holder.recalled(&recall));
        let released = RecallAnswer {
            standings: List::new([Standing::Released]).unwrap(),
        };
        server.recall_answered(START, host(number), &recall, &released);
    }
    assert_eq!(server.enter_volume(START, VOLUME), VolumeEntry::Proceed);
}

#[test]
fn bounds_hold() {
    let limits = Limits {
        leases: 10,
        of_host: 6,
        volumes: 2,
        hosts: 3,
        ..Limits::default()
    };
    let mut server = server(limits);
    drop(holder(&mut server, START, 1, 1..10));
    assert_eq!(server.leases(), 6, "of a host");
    drop(holder(&mut server, START, 2, 11..20));
    assert_eq!(server.leases(), 10, "of all");
    drop(holder(&mut server, START, 3, 21..22));
    assert_eq!(server.hosts(), 2, "no session without room for a lease");
}

#[test]
fn hosts_are_bounded_until_one_ends() {
    let limits = Limits {
        hosts: 3,
        ..Limits::default()
    };
    let mut server = server(limits);
    for number in 1..=4 {
        drop(holder(&mut server, START, number, number..number + 1));
    }
    assert_eq!((server.hosts(), server.leases()), (3, 3));
    server.end_host(START, host(2));
    drop(holder(&mut server, START, 4, 4..5));
    assert_eq!((server.hosts(), server.leases()), (3, 3));
    assert_eq!(server.holder(fid(4)), Some((host(4), false)));
}

#[test]
fn births_need_a_lease_and_a_reserve() {
    let mut server = server(Limits::default());
    let other = holder(&mut server, START, 2, 5..6);
    let mine = holder(&mut server, START, 1, 1..2);
    let block = Block {
        volume: VOLUME,
        vnode: 100,
        uniquifier: 1000,
        count: 4,
        quota: 50,
        number: 0,
    };
    let block = server.reserve(host(1), block).unwrap();
    let number = mine.lease(START, fid(1)).unwrap();
    let parent = Lease {
        fid: fid(1),
        number,
    };
    let new = block.fid(0).unwrap();
    let of_other = Lease {
        fid: fid(5),
        number: other.lease(START, fid(5)).unwrap(),
    };
    assert_eq!(
        server.born(START, of(&server, 2), of_other, new),
        Err(NotBorn::NotReserved)
    );
    assert_eq!(
        server.born(START, of(&server, 2), parent, new),
        Err(NotBorn::NoLease)
    );
    let false_number = Lease {
        number: number + 1,
        ..parent
    };
    assert_eq!(
        server.born(START, of(&server, 1), false_number, new),
        Err(NotBorn::NoLease)
    );
    assert_eq!(
        server.born(START, of(&server, 1), parent, fid(104)),
        Err(NotBorn::NotReserved)
    );
    assert_eq!(server.born(START, of(&server, 1), parent, new), Ok(()));
    assert_eq!(server.holder(new), Some((host(1), false)));
    assert_eq!(
        server.born(START, of(&server, 1), parent, new),
        Err(NotBorn::NotReserved),
        "each once"
    );
    assert_eq!(server.reserved_quota(VOLUME), 50);
    assert_eq!(server.spend(host(1), VOLUME, 30), 30);
    assert_eq!(server.reserved_quota(VOLUME), 20);
    assert_eq!(server.spend(host(1), VOLUME, 25), 20);
    assert_eq!(server.spend(host(2), VOLUME, 25), 0);
    assert_eq!(server.reserved_quota(VOLUME), 0);
    server.end_host(START, host(1));
    let returned = Action::Returned {
        host: host(1),
        block: Block { quota: 0, ..block },
    };
    assert!(persist(&mut server).contains(&returned));
    assert_eq!(server.reserved, 0);
}

#[test]
fn a_claimed_lease_of_what_is_not_made_after_all_is_over() {
    let mut before = server(Limits::default());
    let mut mine = holder(&mut before, START, 1, 1..2);
    give_blocks(&mut before, &mut mine, [100]);
    let new = mine.born(START, fid(1), false).unwrap();

    let mut server = restart(&mut mine);
    let (claim, sent) = mine.claim(START).unwrap();
    let claimed = server.claim(START, host(1), &claim);
    mine.claimed(START, &sent, &claim, &claimed);
    let named = |fid: Fid| Lease {
        fid,
        number: claimed.number,
    };
    assert!(
        server.covers(of(&server, 1), named(new)),
        "it may yet be made"
    );

    // The directory is recalled, and its lease over before the birth is sent.
    assert!(matches!(
        server.enter(START, None, None, &[fid(1)]),
        Entry::Wait(_)
    ));
    server.handle_timeout(START + TERM);
    assert_eq!(
        server.born(START + TERM, of(&server, 1), named(fid(1)), new),
        Err(NotBorn::NoLease)
    );
    assert!(!server.covers(of(&server, 1), named(new)));
    assert_eq!(server.leases(), 0);
}

#[test]
fn of_the_blocks_of_a_claim_each_is_given_back_alone() {
    let mut before = server(Limits::default());
    let mut mine = holder(&mut before, START, 1, 1..2);
    let blocks = give_blocks(&mut before, &mut mine, [100, 200]);

    let mut server = restart(&mut mine);
    let (claim, sent) = mine.claim(START).unwrap();
    let claimed = server.claim(START, host(1), &claim);
    mine.claimed(START, &sent, &claim, &claimed);

    // The first block is used up, and given back.
    let parent = Lease {
        fid: fid(1),
        number: claimed.number,
    };
    for _ in 0..2 {
        let new = mine.born(START, fid(1), false).unwrap();
        assert!(blocks[0].place(new).is_some());
        assert_eq!(server.born(START, of(&server, 1), parent, new), Ok(()));
        mine.settled(new);
    }
    let (note, sent) = mine.note(START, &[], 0);
    assert_eq!(note.given.len(), 1);
    let heard = hear(&mut server, START, 1, &note);
    mine.answered(START, &sent, &server.word(heard));
    let next = mine.born(START, fid(1), false).unwrap();
    assert!(blocks[1].place(next).is_some());
    assert_eq!(server.born(START, of(&server, 1), parent, next), Ok(()));
}

#[test]
fn numbers_of_another_host_mean_nothing() {
    let mut server = server(Limits::default());
    let mine = holder(&mut server, START, 1, 1..2);
    let other = holder(&mut server, START, 2, 5..6);
    drop(other);
    let lease = Lease {
        fid: fid(1),
        number: mine.lease(START, fid(1)).unwrap(),
    };
    assert!(server.covers(of(&server, 1), lease));
    assert!(!server.covers(of(&server, 2), lease));
    let note = Note {
        version: VERSION,
        instance: 1,
        session: server.hosts[&host(2)].session,
        heard: u64::MAX,
        given: List::new([lease]).unwrap(),
        ..Note::default()
    };
    let _heard = hear(&mut server, START, 2, &note);
    assert!(server.covers(of(&server, 1), lease));
}
