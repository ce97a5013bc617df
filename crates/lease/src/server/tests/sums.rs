//! Hosts that say anything at any time: what the table counts stays what there is.

use super::*;
use crate::wire::{Claim, EVERYTHING, Item};

/// What is counted beside what is there.
fn check(server: &Server) {
    let mut leases = 0;
    let mut reserved = 0;
    let mut quota: BTreeMap<VolumeId, u64> = BTreeMap::new();
    for (host, state) in &server.hosts {
        leases += state.leases.len();
        for fid in &state.leases {
            assert_eq!(server.leases[fid].holder, *host);
        }
        for sequence in &state.unheard {
            assert_eq!(server.recalls[sequence].host, *host);
        }
        for reserve in &state.blocks {
            let used: u32 = reserve.used.iter().map(|word| word.count_ones()).sum();
            assert_eq!(reserve.left, reserve.block.count - used);
            reserved += reserve.left as usize;
            *quota.entry(reserve.block.volume).or_default() += reserve.block.quota;
        }
        assert!(state.leases.len() <= server.limits.of_host);
        assert!(state.rows.len() <= server.limits.volumes);
    }
    quota.retain(|_, bytes| *bytes > 0);
    assert_eq!(server.leases.len(), leases);
    assert_eq!(server.reserved, reserved);
    assert_eq!(server.quota, quota);
    assert!(leases + reserved <= server.limits.leases);
    assert!(server.hosts.len() <= server.limits.hosts);
    for (sequence, recall) in &server.recalls {
        let under = server.leases.values();
        let under = under.filter(|held| held.recall == Some(*sequence));
        assert_eq!(under.count(), recall.left);
        let unheard = server.hosts[&recall.host].unheard.contains(sequence);
        assert!(recall.left > 0 || unheard, "it has no purpose");
    }
    for held in server.leases.values() {
        assert!(
            held.recall
                .is_none_or(|recall| server.recalls.contains_key(&recall))
        );
    }
}

fn anything(random: &mut fastrand::Rng) -> Fid {
    Fid::new(random.u32(1..4), random.u32(0..12), random.u32(0..2))
}

fn number(server: &Server, random: &mut fastrand::Rng) -> u64 {
    match random.u8(..10) {
        0 => u64::MAX,
        1 => 0,
        _ => server.last.saturating_sub(random.u64(..20)),
    }
}

fn note(server: &Server, random: &mut fastrand::Rng, session: u64) -> Note {
    let given = (0..random.usize(..4)).map(|_| match random.u8(..20) {
        0 => EVERYTHING,
        _ => Lease {
            fid: anything(random),
            number: number(server, random),
        },
    });
    let given: Vec<Lease> = given.collect();
    Note {
        version: VERSION,
        instance: 2,
        session,
        heard: number(server, random),
        given: List::new(given).unwrap(),
        ..Note::default()
    }
}

fn step(server: &mut Server, random: &mut fastrand::Rng, now: Time) {
    let number_of = random.u32(..5);
    let its = host(number_of);
    let session = match random.u8(..8) {
        0 => 0,
        1 => 7,
        _ => server.hosts.get(&its).map_or(0, |state| state.session),
    };
    let note = note(server, random, session);
    match random.u8(..12) {
        0 => {
            let claim = Claim {
                version: VERSION,
                instance: 2,
                session: 7,
                leases: List::new(note.given.to_vec()).unwrap(),
                blocks: List::default(),
            };
            server.claim(now, its, &claim);
        }
        1 => {
            let items: Vec<Item> = (0..4)
                .map(|_| Item {
                    fid: anything(random),
                    number: number(server, random),
                    sequence: number(server, random),
                })
                .collect();
            let recall = server.recall_of(its).filter(|_| random.bool());
            let recall = recall.unwrap_or_else(|| crate::wire::Recall {
                version: VERSION,
                session,
                items: List::new(items).unwrap(),
            });
            let kinds = [Standing::Released, Standing::Flushing, Standing::Stranger];
            let standings = recall.items.iter().map(|_| kinds[random.usize(..3)]);
            let answer = RecallAnswer {
                standings: List::new(standings.collect::<Vec<_>>()).unwrap(),
            };
            server.recall_answered(now, its, &recall, &answer);
        }
        2 => {
            let volume = VolumeId(random.u32(1..4));
            server.close_volume(volume);
            let _wait = server.enter_volume(now, volume);
            server.open_volume(volume);
        }
        3 => server.end_host(now, its),
        kind => {
            let heard = hear(server, now, number_of, &note);
            let fids = [anything(random), anything(random)];
            let Entry::Proceed(visit) = server.enter(now, None, Some(heard), &fids) else {
                return;
            };
            if kind > 5 {
                let wishes = fids.map(|fid| Wish { fid, alone: true });
                server.answer(now, heard, visit, &wishes);
            }
            let block = Block {
                volume: fids[0].volume,
                vnode: random.u32(..9),
                uniquifier: 0,
                count: random.u32(..6),
                quota: random.u64(..100),
                number: 0,
            };
            let _block = server.reserve(its, block);
            server.spend(its, fids[0].volume, random.u64(..60));
            let parent = Lease {
                fid: fids[0],
                number: server.leases.get(&fids[0]).map_or(0, |held| held.number),
            };
            let _born = server.born(now, heard, parent, fids[1]);
            server.leave(visit);
        }
    }
}

#[test]
fn whatever_hosts_say_the_sums_are_right() {
    let limits = Limits {
        leases: 20,
        of_host: 9,
        volumes: 2,
        hosts: 4,
        ..Limits::default()
    };
    let (mut granted, mut recalled) = (0, 0);
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let rows = [(1, 1), (1, 2), (2, 1)].map(|(number, volume)| Row {
            host: host(number),
            volume: VolumeId(volume),
            session: 7,
        });
        let mut server = Server::new(START, 2, 0, rows.to_vec(), limits);
        let mut now = START;
        for _ in 0..2000 {
            now += Duration::from_millis(random.u64(..400));
            server.handle_timeout(now);
            step(&mut server, &mut random, now);
            persist(&mut server);
            check(&server);
            granted += server.leases.len();
            recalled += server.recalls.len();
        }
        // Nobody says anything any longer.
        server.handle_timeout(now + TERM);
        server.handle_timeout(now + TERM * 2);
        check(&server);
        assert_eq!((server.leases.len(), server.hosts.len()), (0, 0));
        assert!(server.recalls.is_empty() && server.reserved == 0);
    }
    assert!(granted > 1000 && recalled > 1000, "{granted} {recalled}");
}
