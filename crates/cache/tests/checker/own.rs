//! Files that one worker each writes in parts, and everybody reads.

use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use afar_cache::{Errno, Handle, Ino, OpenFlags, SetAttr};

use crate::history::tick;
use crate::worker::{READ, WHO, Worker};

/// The greatest length.
const LENGTH_MAX: usize = 150_000;

/// What a worker's own file holds, as programs on his machine see it.
#[derive(Debug, Default)]
pub(crate) struct Own {
    content: Vec<u8>,
}

/// What a content is known by.
pub(crate) fn hash(octets: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(octets);
    hasher.finish()
}

impl Own {
    fn write(&mut self, at: usize, data: &[u8]) {
        let end = self.content.len().max(at + data.len());
        self.content.resize(end, 0);
        self.content[at..at + data.len()].copy_from_slice(data);
    }
}

impl Worker {
    /// Opens his file, changes parts of it, and closes it.
    pub(crate) async fn edit_own(&mut self) {
        let begun = self.now();
        let known = match self.lookup(Ino::ROOT, &format!("own{}", self.number)).await {
            Ok(known) => known,
            Err(error) => return self.excuse("looking his file up", begun, error),
        };
        let ino = known.attr.ino;
        let flags = OpenFlags {
            write: true,
            ..READ
        };
        let handle = match self.cache().open_file(WHO, ino, flags).await {
            Ok((handle, _)) => handle,
            Err(error) => return self.excuse("opening his file", begun, error),
        };
        let world = std::sync::Arc::clone(&self.world);
        let register = &world.own[self.number];
        let change = register.begin(self.machine, 0);
        for _ in 0..self.rng.usize(1..5) {
            self.edit(ino, handle).await;
        }
        let begun = self.now();
        let flushed = self.cache().flush(handle, 1).await;
        let known = hash(&self.own.content);
        match flushed {
            Ok(()) => register.done_as(change, |value| *value = known),
            Err(error) => {
                register.in_doubt(change);
                self.excuse("closing his file", begun, error);
            }
        }
        self.cache().release(handle, None).await;
    }

    async fn edit(&mut self, ino: Ino, handle: Handle) {
        let begun = self.now();
        let at = self.rng.usize(0..LENGTH_MAX);
        match self.rng.u32(0..10) {
            0..6 => {
                let length = match self.rng.u32(0..4) {
                    0 => self.rng.usize(1..20_000),
                    _ => self.rng.usize(1..300),
                };
                let data = vec![self.rng.u8(1..); length];
                match self.cache().write(handle, at as u64, &data).await {
                    Ok(_) => self.own.write(at, &data),
                    Err(error) => self.excuse("writing his file", begun, error),
                }
            }
            6..8 => self.cut(ino, handle, at).await,
            _ => match self.read_all(handle).await {
                Ok(read) => self.compare(&read),
                Err(error) => self.excuse("reading his file", begun, error),
            },
        }
    }

    async fn cut(&mut self, ino: Ino, handle: Handle, length: usize) {
        let set = SetAttr {
            size: Some(length as u64),
            ..SetAttr::default()
        };
        let begun = self.now();
        let cut = self.cache().setattr(WHO, ino, set, Some(handle)).await;
        if let Err(error) = cut {
            self.excuse("cutting his file", begun, error);
            // It may be cut all the same.
            let before = self.own.content.len() as u64;
            match self.size(ino).await {
                size if size == before => return,
                size => assert_eq!(size, length as u64),
            }
        }
        self.own.content.resize(length, 0);
    }

    /// How long it is, whatever stands in the way of asking.
    async fn size(&self, ino: Ino) -> u64 {
        loop {
            let begun = self.now();
            match self.cache().getattr(WHO, ino).await {
                Ok(attr) => return attr.size,
                Err(error) => self.excuse("looking at his file", begun, error),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn compare(&self, read: &[u8]) {
        let own = &self.own.content;
        let differs = read.iter().zip(own).position(|(one, other)| one != other);
        assert!(
            read == own,
            "machine {} reads {} bytes of own{} and not {}; first other one: {differs:?}",
            self.machine,
            read.len(),
            self.number,
            own.len()
        );
    }

    /// Reads anybody's file.
    pub(crate) async fn read_own(&mut self) {
        let place = self.rng.usize(0..self.world.own.len());
        let (register, begun) = (&self.world.own[place], self.now());
        let seen = register.seen(self.machine);
        let from = self.knows_since(tick());
        let read = match self.get(&format!("own{place}")).await {
            Ok(read) => read,
            Err(error) => return self.excuse("reading a file written in parts", begun, error),
        };
        if place == self.number {
            return self.compare(&read);
        }
        let allowed = register.allowed(from, seen);
        let matching = allowed.matching(|value| *value == hash(&read));
        assert!(
            !matching.is_empty() || allowed.unsettled,
            "machine {} reads {} bytes of own{place} that it never held, looking from {from}, having \
             seen {seen}: {allowed:?}",
            self.machine,
            read.len()
        );
        register.saw(self.machine, &matching);
    }

    /// Stores what could not be stored yet.
    pub(crate) async fn settle_own(&self) -> Result<(), Errno> {
        let known = self
            .lookup(Ino::ROOT, &format!("own{}", self.number))
            .await?;
        let flags = OpenFlags {
            write: true,
            ..READ
        };
        let opened = self.cache().open_file(WHO, known.attr.ino, flags).await;
        let (handle, _) = opened?;
        let stored = self.cache().fsync(handle).await;
        let read = self.read_all(handle).await;
        self.cache().release(handle, None).await;
        stored?;
        self.compare(&read?);
        Ok(())
    }
}
