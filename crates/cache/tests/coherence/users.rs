//! Several users of one cache.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use afar_cache::{Errno, Identity, Ino, OpenFlags, RenameFlags, Stamp, Users, Who};
use afar_cell::{Credentials, Secured};
use afar_types::CellName;

use crate::world::{READ, WRITE, World};

const ANN: u32 = 501;
const BOB: u32 = 502;
/// Longer than it is not looked again who a user is.
const LOOKED_AGAIN: Duration = Duration::from_millis(1300);

fn who(uid: u32) -> Who {
    Who {
        uid,
        gid: 0,
        pid: 1,
    }
}

/// One whose token is good, or has just been thrown away.
#[derive(Debug)]
struct Holder {
    good: bool,
}

impl Credentials for Holder {
    fn security(&self, _: &CellName, _: Option<&Secured>) -> Result<Option<Secured>, String> {
        match self.good {
            // The file server of this world takes everybody for anybody.
            true => Ok(None),
            false => Err("there is no token any more".to_owned()),
        }
    }
}

/// Whose tokens are good.
#[derive(Debug, Default)]
struct Tokens(Mutex<BTreeMap<u32, (u64, bool)>>);

impl Tokens {
    fn set(&self, uid: u32, good: bool) {
        let mut all = self.0.lock().unwrap();
        let entry = all.entry(uid).or_default();
        *entry = (entry.0 + 1, good);
    }
}

impl Users for Tokens {
    fn look(&self, uid: u32, before: Option<Stamp>) -> Option<(Stamp, Identity)> {
        let (stamp, good) = self
            .0
            .lock()
            .unwrap()
            .get(&uid)
            .copied()
            .unwrap_or_default();
        let stamp = Stamp(stamp);
        let identity = || Identity::Own(Arc::new(Holder { good }));
        (before != Some(stamp)).then(|| (stamp, identity()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_stored_without_a_token_is_stored_with_the_next_one() {
    let world = World::new().await;
    let tokens = Arc::new(Tokens::default());
    for uid in [ANN, BOB] {
        tokens.set(uid, true);
    }
    let users = Arc::clone(&tokens);
    let machine = world
        .cache_with(|config| config.users = Some(users as _))
        .await;
    let (cache, root) = (&machine.cache, Ino::ROOT);
    let flags = OpenFlags {
        exclusive: true,
        ..WRITE
    };
    let (entry, file) = cache
        .create(who(ANN), root, b"file", 0o644, flags)
        .await
        .unwrap();
    cache.write(file, 0, b"kept").await.unwrap();
    tokens.set(ANN, false);
    tokio::time::sleep(LOOKED_AGAIN).await;
    // Of that somebody else has a token, she has nothing.
    let (other, _) = cache
        .open_file(who(BOB), entry.attr.ino, READ)
        .await
        .unwrap();
    assert_eq!(cache.flush(file, 1).await, Err(Errno::EACCES));
    assert_eq!(cache.fsync(file).await, Err(Errno::EACCES));
    assert_eq!(&cache.read(other, 0, 100).await.unwrap()[..], b"kept");
    let there = world.cache().await;
    let stored = there.get("file").await.unwrap();
    assert_eq!(stored, b"", "nothing is stored as another user");
    tokens.set(ANN, true);
    tokio::time::sleep(LOOKED_AGAIN).await;
    cache.flush(file, 1).await.unwrap();
    let there = world.cache().await;
    assert_eq!(there.get("file").await.unwrap(), b"kept");
    cache.release(file, None).await;
    cache.release(other, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_without_a_token_uses_nothing_of_others() {
    let world = World::new().await;
    let tokens = Arc::new(Tokens::default());
    tokens.set(ANN, true);
    tokens.set(BOB, false);
    let users = Arc::clone(&tokens);
    let machine = world
        .cache_with(|config| config.users = Some(users as _))
        .await;
    let (cache, root) = (&machine.cache, Ino::ROOT);
    let made = cache.create(who(ANN), root, b"file", 0o644, WRITE).await;
    let (entry, file) = made.unwrap();
    cache.write(file, 0, b"text").await.unwrap();
    cache.flush(file, 1).await.unwrap();
    cache.release(file, None).await;
    // She looks what may be done with it: what is known since it was made does not tell.
    cache.access(who(ANN), entry.attr.ino, 4).await.unwrap();
    // What anybody may do, so may he; to change something he must ask as himself.
    let (file, _) = cache
        .open_file(who(BOB), entry.attr.ino, READ)
        .await
        .unwrap();
    assert_eq!(&cache.read(file, 0, 100).await.unwrap()[..], b"text");
    cache.release(file, None).await;
    let made = cache.create(who(BOB), root, b"other", 0o644, WRITE).await;
    assert_eq!(made.unwrap_err(), Errno::EACCES);
    let moved = cache
        .rename(
            who(BOB),
            root,
            b"file",
            root,
            b"moved",
            RenameFlags::default(),
        )
        .await;
    assert_eq!(moved, Err(Errno::EACCES));
    cache.unlink(who(ANN), root, b"file").await.unwrap();
}
