use super::*;

const FILE: Fid = Fid::new(1, 2, 3);
const ALL: MayRelease = MayRelease {
    shared: true,
    exclusive: true,
};
const NONE: MayRelease = MayRelease {
    shared: false,
    exclusive: false,
};

/// A user at a host with an identity.
fn owner(host: u8, user: i32) -> Owner {
    Owner {
        host: Some(AfsUuid::from_random([host; 16])),
        address: SocketAddr::from(([192, 0, 2, host], 7001)),
        user: PtsId(user),
    }
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let (locks, now) = (FileLocks::default(), Instant::now());
    let (one, two) = (owner(1, 7), owner(2, 7));
    let set = |owner, exclusive| locks.set(FILE, owner, exclusive, now);
    assert_eq!((set(one, false), set(one, false)), (Ok(()), Ok(())));
    assert_eq!(set(two, false), Ok(()));
    assert_eq!(locks.count(FILE, now), 3);
    assert_eq!(set(one, true), Err(LockError::Held));
    let release = |owner| locks.release(FILE, &owner, ALL);
    assert_eq!(
        [one, one, two].map(release),
        [Ok(false), Ok(false), Ok(true)]
    );
    assert_eq!(set(two, true), Ok(()));
    assert_eq!(locks.count(FILE, now), -1);
    assert_eq!(set(one, false), Err(LockError::Held));
    assert_eq!(set(two, true), Err(LockError::Held));
    assert_eq!(release(two), Ok(true));
    // One too many changes nothing.
    assert_eq!(release(two), Ok(false));
    assert_eq!(locks.count(FILE, now), 0);
    let state = locks.0.lock();
    assert_eq!((state.files.len(), state.machines.all), (0, 0));
    assert!(state.machines.locks.is_empty());
}

#[test]
fn only_its_host_keeps_a_lock_or_gives_it_up() {
    let (locks, now) = (FileLocks::default(), Instant::now());
    let mine = owner(1, 7);
    locks.set(FILE, mine, true, now).unwrap();
    let stranger = owner(2, 32766);
    assert_eq!(locks.extend(FILE, &stranger, now), Err(LockError::NotHeld));
    assert_eq!(locks.release(FILE, &stranger, NONE), Err(LockError::Denied));
    // With all rights it is not theirs either, and the same user elsewhere is another.
    assert_eq!(locks.release(FILE, &stranger, ALL), Ok(false));
    assert_eq!(locks.release(FILE, &owner(2, 7), ALL), Ok(false));
    assert_eq!(locks.count(FILE, now), -1);
    // Hosts without an identity are told apart by address and port.
    let nameless = |port| Owner {
        host: None,
        address: SocketAddr::from(([192, 0, 2, 1], port)),
        user: PtsId(7),
    };
    assert_eq!(locks.release(FILE, &nameless(7002), ALL), Ok(false));
    assert_eq!(locks.release(FILE, &nameless(7001), NONE), Ok(true));
}

#[test]
fn others_at_the_same_host_give_up_what_they_may_lock() {
    let (locks, now) = (FileLocks::default(), Instant::now());
    let (mine, other) = (owner(1, 7), owner(1, 8));
    locks.set(FILE, mine, false, now).unwrap();
    assert_eq!(locks.extend(FILE, &other, now), Ok(()));
    assert_eq!(locks.release(FILE, &other, NONE), Err(LockError::Denied));
    let readers = MayRelease {
        shared: true,
        exclusive: false,
    };
    assert_eq!(locks.release(FILE, &other, readers), Ok(true));
    locks.set(FILE, mine, true, now).unwrap();
    assert_eq!(locks.release(FILE, &other, readers), Ok(false));
    assert_eq!(locks.count(FILE, now), -1);
    // It is its own, whatever became of its rights.
    assert_eq!(locks.release(FILE, &mine, NONE), Ok(true));
}

#[test]
fn locks_end_after_300_s_unless_they_are_extended() {
    let (locks, began) = (FileLocks::default(), Instant::now());
    let at = |seconds| began + Duration::from_secs(seconds);
    let (one, two) = (owner(1, 7), owner(2, 7));
    assert_eq!(locks.extend(FILE, &one, at(0)), Err(LockError::NotHeld));
    locks.set(FILE, one, true, at(0)).unwrap();
    locks.extend(FILE, &one, at(200)).unwrap();
    assert_eq!(locks.count(FILE, at(400)), -1);
    assert_eq!(locks.set(FILE, two, false, at(400)), Err(LockError::Held));
    assert_eq!(locks.count(FILE, at(501)), 0);
    // Nobody took it meanwhile.
    assert_eq!(locks.extend(FILE, &one, at(501)), Ok(()));
    assert_eq!(locks.count(FILE, at(501)), -1);
    assert_eq!(locks.set(FILE, two, false, at(802)), Ok(()));
    assert_eq!(locks.count(FILE, at(802)), 1);
    assert_eq!(locks.extend(FILE, &one, at(802)), Err(LockError::NotHeld));
    locks.discard(FILE);
    assert_eq!(locks.extend(FILE, &two, at(802)), Err(LockError::NotHeld));
    assert_eq!(locks.0.lock().machines.all, 0);
}

#[test]
fn one_reader_does_not_keep_anothers_lock() {
    let (locks, began) = (FileLocks::default(), Instant::now());
    let at = |seconds| began + Duration::from_secs(seconds);
    let (one, two) = (owner(1, 7), owner(2, 7));
    locks.set(FILE, one, false, at(0)).unwrap();
    locks.set(FILE, two, false, at(0)).unwrap();
    locks.extend(FILE, &one, at(200)).unwrap();
    assert_eq!(locks.count(FILE, at(301)), 1);
}

#[test]
fn a_machine_has_its_share_and_what_is_over_makes_room() {
    let (locks, began) = (FileLocks::default(), Instant::now());
    let file = |number: usize| Fid::new(1, u32::try_from(number).unwrap(), 1);
    for number in 0..MAX_OF_MACHINE {
        let port = u16::try_from(number % 60_000).unwrap();
        let owner = Owner {
            host: None,
            address: SocketAddr::from(([192, 0, 2, 1], port)),
            user: PtsId(7),
        };
        locks.set(file(number), owner, true, began).unwrap();
    }
    let one_more = |at| locks.set(FILE, owner(1, 7), true, at);
    assert_eq!(one_more(began), Err(LockError::TooMany));
    assert_eq!(locks.set(FILE, owner(2, 7), false, began), Ok(()));
    locks.discard(FILE);
    assert_eq!(one_more(began + LIFE + SWEEP), Ok(()));
    assert_eq!(locks.0.lock().machines.all, 1);
}
