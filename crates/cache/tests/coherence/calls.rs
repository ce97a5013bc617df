//! Calls that a program waits for when it changes something: each change is made by the requests that Linux sends to
//! FUSE for it, as if Linux kept nothing itself.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use afar_cache::{Attr, Entry, Errno, Handle, Ino, OpenFlags, RenameFlags, SetAttr, Waits};

use crate::world::{Machine, REPLACE, WHO, WRITE, World};

/// How something ends, and the calls to servers that it took.
async fn counted<T>(work: impl Future<Output = T>) -> (T, u32) {
    let waits = Arc::new(Waits::default());
    let done = waits.during(work).await;
    (done, waits.calls())
}

/// What programs ask Linux for, in the requests that come of it.
impl Machine {
    async fn look(&self, parent: Ino, name: &str) -> Result<Entry, Errno> {
        self.cache.lookup(WHO, parent, name.as_bytes()).await
    }

    /// A name that is to be new.
    async fn look_for_none(&self, parent: Ino, name: &str) {
        let found = self.look(parent, name).await;
        assert_eq!(found.err(), Some(Errno::ENOENT), "{name}");
    }

    async fn stat(&self, ino: Ino) -> Attr {
        self.cache.getattr(WHO, ino).await.unwrap()
    }

    async fn new_dir(&self, parent: Ino, name: &str) -> Ino {
        self.look_for_none(parent, name).await;
        let made = self.cache.mkdir(WHO, parent, name.as_bytes(), 0o755);
        let made = made.await.unwrap().attr.ino;
        self.stat(parent).await;
        made
    }

    async fn new_symlink(&self, parent: Ino, name: &str, target: &str) -> Attr {
        self.look_for_none(parent, name).await;
        let (name, target) = (name.as_bytes(), target.as_bytes());
        let made = self.cache.symlink(WHO, parent, name, target);
        let made = made.await.unwrap().attr;
        self.stat(parent).await;
        made
    }

    async fn new_name(&self, ino: Ino, parent: Ino, name: &str) -> Attr {
        self.look_for_none(parent, name).await;
        let linked = self.cache.link(WHO, ino, parent, name.as_bytes());
        let linked = linked.await.unwrap().attr;
        self.stat(parent).await;
        linked
    }

    async fn write_and_close(&self, ino: Ino, handle: Handle, data: &[u8], set: &[SetAttr]) {
        let written = self.cache.write(handle, 0, data).await;
        written.unwrap();
        for &set in set {
            let set = self.cache.setattr(WHO, ino, set, Some(handle));
            set.await.unwrap();
        }
        self.cache.flush(handle, 1).await.unwrap();
        // Nobody waits for this one.
        let cache = self.cache.clone();
        let released = tokio::spawn(async move { cache.release(handle, None).await });
        released.await.unwrap();
    }

    async fn new_file(&self, parent: Ino, name: &str, data: &[u8], set: &[SetAttr]) -> Ino {
        self.look_for_none(parent, name).await;
        let flags = OpenFlags {
            exclusive: true,
            ..WRITE
        };
        let made = self
            .cache
            .create(WHO, parent, name.as_bytes(), 0o600, flags);
        let (entry, handle) = made.await.unwrap();
        let ino = entry.attr.ino;
        self.write_and_close(ino, handle, data, set).await;
        self.stat(parent).await;
        ino
    }

    async fn replace(&self, parent: Ino, name: &str, data: &[u8]) {
        let ino = self.look(parent, name).await.unwrap().attr.ino;
        let opened = self.cache.open_file(WHO, ino, REPLACE).await;
        self.write_and_close(ino, opened.unwrap().0, data, &[])
            .await;
    }

    async fn set(&self, parent: Ino, name: &str, set: SetAttr) -> Attr {
        let ino = self.look(parent, name).await.unwrap().attr.ino;
        self.cache.setattr(WHO, ino, set, None).await.unwrap()
    }

    async fn move_to(&self, (from, name): (Ino, &str), (to, new): (Ino, &str)) {
        let moved = self.look(from, name).await.unwrap().attr.ino;
        // What is there is replaced.
        let there = self.look(to, new).await.err();
        assert!(
            there.is_none_or(|error| error == Errno::ENOENT),
            "{there:?}"
        );
        let (name, new) = (name.as_bytes(), new.as_bytes());
        let flags = RenameFlags::default();
        let renamed = self.cache.rename(WHO, from, name, to, new, flags).await;
        renamed.unwrap();
        for ino in [from, to, moved] {
            self.stat(ino).await;
        }
    }

    async fn remove(&self, parent: Ino, name: &str) {
        let kind = self.look(parent, name).await.unwrap().attr.kind;
        let name = name.as_bytes();
        let removed = match kind {
            afar_cache::Kind::Dir => self.cache.rmdir(WHO, parent, name).await,
            _ => self.cache.unlink(WHO, parent, name).await,
        };
        removed.unwrap();
        self.stat(parent).await;
    }
}

fn mode(mode: u32) -> SetAttr {
    SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    }
}

fn time(seconds: u64) -> SetAttr {
    SetAttr {
        mtime: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
        ..SetAttr::default()
    }
}

/// A machine that has read the top and made something there.
async fn warm(world: &World) -> Machine {
    let machine = world.cache().await;
    machine.put("warm", b"x").await.unwrap();
    machine
}

#[tokio::test]
async fn a_change_costs_one_call() {
    let world = World::new().await;
    let machine = warm(&world).await;
    let top = Ino::ROOT;
    let (dir, calls) = counted(machine.new_dir(top, "dir")).await;
    assert_eq!(calls, 1, "mkdir");
    let ((), calls) = counted(async {
        machine.new_dir(dir, "below").await;
        machine.remove(dir, "below").await;
    })
    .await;
    assert_eq!(calls, 2, "mkdir and rmdir in a new directory");
    let (_, calls) = counted(machine.new_file(dir, "file", b"data", &[])).await;
    assert_eq!(calls, 2, "create, write and close");
    // Nothing with two names is moved to another directory.
    let two = machine.new_file(dir, "two", b"data", &[]).await;
    let (linked, calls) = counted(machine.new_name(two, dir, "other")).await;
    assert_eq!((linked.nlink, calls), (2, 1), "link");
    let (set, calls) = counted(machine.set(dir, "file", mode(0o640))).await;
    assert_eq!((set.mode, calls), (0o640, 1), "chmod");
    let (set, calls) = counted(machine.set(dir, "file", time(5))).await;
    assert_eq!((set.mtime, calls), (time(5).mtime.unwrap(), 1), "utimes");
    let (_, calls) = counted(machine.set(top, "dir", time(5))).await;
    assert_eq!(calls, 1, "utimes of a directory");
    let ((), calls) = counted(machine.move_to((dir, "file"), (dir, "moved"))).await;
    assert_eq!(calls, 1, "rename");
    let ((), calls) = counted(machine.move_to((dir, "moved"), (top, "moved"))).await;
    assert_eq!(calls, 1, "rename to another directory");
    let ((), calls) = counted(machine.move_to((top, "moved"), (top, "warm"))).await;
    assert_eq!(calls, 1, "rename over another");
    let ((), calls) = counted(machine.remove(top, "warm")).await;
    assert_eq!(calls, 1, "unlink");
}

#[tokio::test]
async fn a_symlink_is_made_and_followed_by_few_calls() {
    let world = World::new().await;
    let machine = warm(&world).await;
    let (made, calls) = counted(machine.new_symlink(Ino::ROOT, "link", "to/there")).await;
    assert_eq!((made.size, calls), (8, 1), "symlink");
    // The server's answer has no promise.
    assert_eq!(made.valid, Duration::ZERO);
    let (set, calls) = counted(machine.cache.setattr(WHO, made.ino, time(5), None)).await;
    assert_eq!((set.unwrap().valid, calls), (Duration::ZERO, 1), "utimes");
    let read = async || machine.cache.readlink(WHO, made.ino).await.unwrap();
    let (target, calls) = counted(read()).await;
    assert_eq!((&target[..], calls), (&b"to/there"[..], 1), "readlink");
    let (_, calls) = counted(read()).await;
    assert_eq!(calls, 0, "it is promised now");
    assert!(!machine.stat(made.ino).await.valid.is_zero());
    let ((), calls) = counted(machine.remove(Ino::ROOT, "link")).await;
    assert_eq!(calls, 1, "unlink");
}

#[tokio::test]
async fn what_is_replaced_or_set_before_it_is_closed_goes_along() {
    let world = World::new().await;
    let (machine, other) = (warm(&world).await, world.cache().await);
    let top = Ino::ROOT;
    let set = [time(5), mode(0o444)];
    let (_, calls) = counted(machine.new_file(top, "file", b"first", &set)).await;
    assert_eq!(calls, 2, "create, write, set and close");
    let attr = other.attr("file").await.unwrap();
    assert_eq!((attr.mode, attr.mtime), (0o444, time(5).mtime.unwrap()));
    for data in [&b"longer than before"[..], b"short"] {
        let ((), calls) = counted(machine.replace(top, "warm", data)).await;
        assert_eq!(calls, 1, "replacing a file");
        assert_eq!(other.get("warm").await.unwrap(), data);
    }
}

#[tokio::test]
async fn answers_serve_where_a_promise_was_broken() {
    let world = World::new().await;
    let (machine, other) = (warm(&world).await, world.cache().await);
    let ino = machine.at("warm").await.unwrap().attr.ino;
    let break_it = async |bits| other.set(Ino::ROOT, "warm", mode(bits)).await;
    break_it(0o600).await;
    let (set, calls) = counted(machine.cache.setattr(WHO, ino, mode(0o604), None)).await;
    let set = set.unwrap();
    assert_eq!((set.mode, set.valid, calls), (0o604, Duration::ZERO, 1));
    break_it(0o640).await;
    let (linked, calls) = counted(machine.new_name(ino, Ino::ROOT, "other")).await;
    assert_eq!((linked.mode, linked.nlink), (0o640, 2));
    assert_eq!((linked.valid, calls), (Duration::ZERO, 1));
}

#[tokio::test]
async fn a_tree_that_was_not_read_is_removed_by_a_call_for_each() {
    let world = World::new().await;
    let (maker, machine) = (world.cache().await, world.cache().await);
    maker.mkdir("tree").await.unwrap();
    let names: Vec<String> = (0..30).map(|number| format!("file{number}")).collect();
    for name in &names {
        maker.put(&format!("tree/{name}"), b"x").await.unwrap();
    }
    let tree = machine.at("tree").await.unwrap().attr.ino;
    let (listed, calls) = counted(machine.list("tree", true)).await;
    assert_eq!(listed.unwrap().len(), names.len());
    assert_eq!(calls, 1, "the directory with what its files are");
    let ((), calls) = counted(async {
        for name in &names {
            machine.remove(tree, name).await;
        }
    })
    .await;
    assert_eq!(calls, 30);
    let ((), calls) = counted(machine.remove(Ino::ROOT, "tree")).await;
    assert_eq!(calls, 1, "rmdir");
}
