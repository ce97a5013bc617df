//! Names that one worker each changes, and everybody sees.

use std::collections::BTreeMap;

use afar_cache::{Cache, Errno, Ino, Kind, OpenFlags, RenameFlags};

use crate::history::tick;
use crate::worker::{READ, WHO, Worker};

/// Directories with names in them that all machines change.
const SHARED: usize = 2;
/// All directories with names in them: of the others each machine mostly changes one.
pub(crate) const DIRECTORIES: usize = SHARED + 3;
/// Names each worker has in each of them.
pub(crate) const NAMES: usize = 5;

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    /// Nothing.
    Absent,
    /// A file, directory or symlink: its fid, once that is known.
    Present(Kind, Option<String>),
}

impl Name {
    /// Whether this is what a look has found.
    fn is(&self, found: &Self) -> bool {
        match (self, found) {
            (Self::Present(kind, None), Self::Present(other, _)) => kind == other,
            _ => self == found,
        }
    }
}

fn text(worker: usize, number: usize) -> String {
    format!("w{worker}-{number}")
}

impl Worker {
    async fn directory(&self, place: usize) -> Result<crate::worker::Known, Errno> {
        self.lookup(Ino::ROOT, &format!("dir{place}")).await
    }

    /// A directory to do something in: every other time that of the worker's machine.
    fn place(&mut self) -> usize {
        match self.rng.bool() {
            true => SHARED + self.machine,
            false => self.rng.usize(0..DIRECTORIES),
        }
    }

    /// Makes, moves or removes one of his names.
    pub(crate) async fn change_name(&mut self) {
        let place = self.place();
        self.change_name_in(place).await;
    }

    /// Does so many times in the directory of the worker's machine, as programs do that unpack and remove trees.
    pub(crate) async fn change_names(&mut self) {
        for _ in 0..self.rng.u32(1..40) {
            self.change_name_in(SHARED + self.machine).await;
        }
    }

    async fn change_name_in(&mut self, place: usize) {
        let number = self.rng.usize(0..NAMES);
        match self.beliefs[place][number].clone() {
            None => self.find_out(place, number).await,
            Some(Name::Absent) => self.make(place, number).await,
            Some(Name::Present(..)) if self.rng.bool() => self.move_away(place, number).await,
            Some(Name::Present(kind, _)) => self.remove(place, number, kind).await,
        }
    }

    /// Looks what became of a name that is in doubt.
    async fn find_out(&mut self, place: usize, number: usize) {
        let begun = self.now();
        match self.found(place, &text(self.number, number)).await {
            Ok(name) => self.beliefs[place][number] = Some(name),
            Err(error) => self.excuse("looking what became of a name", begun, error),
        }
    }

    async fn make(&mut self, place: usize, number: usize) {
        let kind = [Kind::File, Kind::Dir, Kind::Symlink][self.rng.usize(0..3)];
        let (begun, asked) = (self.now(), tick());
        let parent = match self.directory(place).await {
            Ok(parent) => parent,
            Err(error) => return self.excuse("looking up a directory", begun, error),
        };
        let register = &self.world.names[place][self.number][number];
        let change = register.begin(self.machine, Name::Present(kind, None));
        let name = text(self.number, number);
        let made = make(self.cache(), parent.attr.ino, &name, kind).await;
        match made {
            Ok(entry) => {
                let fid = fid(self.cache(), entry.attr.ino).await.unwrap();
                self.cache().forget(entry.attr.ino, 1);
                let known = Name::Present(kind, Some(fid));
                register.done_as(change, |value| *value = known.clone());
                self.here().was_answered(asked);
                self.beliefs[place][number] = Some(known);
            }
            Err(error) => {
                register.in_doubt(change);
                self.beliefs[place][number] = None;
                self.excuse_change("making a name", begun, error);
            }
        }
    }

    async fn remove(&mut self, place: usize, number: usize, kind: Kind) {
        let (begun, asked) = (self.now(), tick());
        let parent = match self.directory(place).await {
            Ok(parent) => parent,
            Err(error) => return self.excuse("looking up a directory", begun, error),
        };
        let register = &self.world.names[place][self.number][number];
        let change = register.begin(self.machine, Name::Absent);
        let (ino, name) = (parent.attr.ino, text(self.number, number).into_bytes());
        let removed = match kind {
            Kind::Dir => self.cache().rmdir(WHO, ino, &name).await,
            _ => self.cache().unlink(WHO, ino, &name).await,
        };
        match removed {
            Ok(()) => {
                register.done(change);
                self.here().was_answered(asked);
                self.beliefs[place][number] = Some(Name::Absent);
            }
            Err(error) => {
                register.in_doubt(change);
                self.beliefs[place][number] = None;
                self.excuse_change("removing a name", begun, error);
            }
        }
    }

    /// Gives something another of his names, which nothing has, or a file if it is one.
    async fn move_away(&mut self, place: usize, number: usize) {
        let (to, other) = (self.place(), self.rng.usize(0..NAMES));
        let (Some(moved), Some(there)) = (
            self.beliefs[place][number].clone(),
            self.beliefs[to][other].clone(),
        ) else {
            return;
        };
        let is_file = |name: &Name| matches!(name, Name::Present(Kind::File, _));
        let free = there == Name::Absent || is_file(&there) && is_file(&moved);
        if !free || (place, number) == (to, other) {
            return;
        }
        let (begun, asked) = (self.now(), tick());
        let parents = (self.directory(place).await, self.directory(to).await);
        let (Ok(from), Ok(into)) = &parents else {
            let error = parents.0.err().or_else(|| parents.1.err());
            return self.excuse("looking up a directory", begun, error.unwrap());
        };
        let registers = &self.world.names;
        let (leaving, coming) = (
            &registers[place][self.number][number],
            &registers[to][self.number][other],
        );
        let left = leaving.begin(self.machine, Name::Absent);
        let came = coming.begin(self.machine, moved.clone());
        let (old, new) = (text(self.number, number), text(self.number, other));
        let renamed = self.cache().rename(
            WHO,
            from.attr.ino,
            old.as_bytes(),
            into.attr.ino,
            new.as_bytes(),
            RenameFlags::default(),
        );
        match renamed.await {
            Ok(()) => {
                leaving.done(left);
                coming.done(came);
                self.here().was_answered(asked);
                self.beliefs[place][number] = Some(Name::Absent);
                self.beliefs[to][other] = Some(moved);
            }
            Err(error) => {
                leaving.in_doubt(left);
                coming.in_doubt(came);
                (self.beliefs[place][number], self.beliefs[to][other]) = (None, None);
                self.excuse_change("moving a name", begun, error);
            }
        }
    }

    /// Looks anybody's name up.
    pub(crate) async fn look_up(&mut self) {
        let place = self.place();
        let all = &self.world.names[place];
        let (worker, number) = (self.rng.usize(0..all.len()), self.rng.usize(0..NAMES));
        let (register, begun) = (&all[worker][number], self.now());
        let seen = register.seen(self.machine);
        let from = self.knows_since(tick());
        let found = match self.found(place, &text(worker, number)).await {
            Ok(found) => found,
            Err(error) => return self.excuse("looking a name up", begun, error),
        };
        let allowed = register.allowed(from, seen);
        let matching = allowed.matching(|name| name.is(&found));
        assert!(
            !matching.is_empty(),
            "machine {} found dir{place}/{} to be {found:?}, looking from {from}, having seen {seen}; \
             it might see {allowed:?}",
            self.machine,
            text(worker, number)
        );
        register.saw(self.machine, &matching);
    }

    async fn found(&self, place: usize, name: &str) -> Result<Name, Errno> {
        let parent = self.directory(place).await?;
        match self.lookup(parent.attr.ino, name).await {
            Ok(known) => {
                let fid = fid(self.cache(), known.attr.ino).await?;
                Ok(Name::Present(known.attr.kind, Some(fid)))
            }
            Err(Errno::ENOENT) => Ok(Name::Absent),
            Err(error) => Err(error),
        }
    }

    /// Lists a directory.
    pub(crate) async fn list(&mut self) {
        let (place, plus) = (self.place(), self.rng.bool());
        let begun = self.now();
        let registers = &self.world.names[place];
        let seen: Vec<Vec<_>> = registers
            .iter()
            .map(|of| of.iter().map(|one| one.seen(self.machine)).collect())
            .collect();
        let from = self.knows_since(tick());
        let listed = match self.entries(place, plus).await {
            Ok(listed) => listed,
            Err(error) => return self.excuse("listing a directory", begun, error),
        };
        for (worker, registers) in registers.iter().enumerate() {
            for (number, register) in registers.iter().enumerate() {
                let found = listed.get(&text(worker, number));
                let allowed = register.allowed(from, seen[worker][number]);
                let matching = allowed.matching(|name| match (name, found) {
                    (Name::Absent, None) | (Name::Present(..), Some(None)) => true,
                    (Name::Present(kind, _), Some(Some(found))) => kind == found,
                    _ => false,
                });
                assert!(
                    !matching.is_empty(),
                    "machine {} listed dir{place}/{} as {found:?}, looking from {from}; it might see \
                     {allowed:?}",
                    self.machine,
                    text(worker, number)
                );
            }
        }
    }

    /// The names in a directory, and what they are if that is told.
    async fn entries(
        &self,
        place: usize,
        plus: bool,
    ) -> Result<BTreeMap<String, Option<Kind>>, Errno> {
        let (cache, parent) = (self.cache(), self.directory(place).await?);
        let handle = cache.opendir(WHO, parent.attr.ino).await?;
        let (mut names, mut offset) = (BTreeMap::new(), 0);
        let result = loop {
            let entries = match cache.readdir(handle, offset, plus).await {
                Ok(entries) => entries,
                Err(error) => break Err(error),
            };
            let Some(last) = entries.last() else {
                break Ok(names);
            };
            offset = last.offset;
            for entry in entries {
                let name = String::from_utf8(entry.name).unwrap();
                if let Some(told) = &entry.entry {
                    cache.forget(told.attr.ino, 1);
                }
                let kind = entry.entry.map(|told| told.attr.kind).or(entry.kind);
                assert!(names.insert(name.clone(), kind).is_none(), "{name} twice");
            }
        };
        cache.releasedir(handle);
        result
    }
}

async fn make(
    cache: &Cache,
    parent: Ino,
    name: &str,
    kind: Kind,
) -> Result<afar_cache::Entry, Errno> {
    let name = name.as_bytes();
    match kind {
        Kind::Dir => cache.mkdir(WHO, parent, name, 0o755).await,
        Kind::Symlink => cache.symlink(WHO, parent, name, b"target").await,
        Kind::File => {
            let flags = OpenFlags {
                write: true,
                exclusive: true,
                ..READ
            };
            let made = cache.create(WHO, parent, name, 0o644, flags).await;
            let (entry, handle) = made?;
            cache.release(handle, None).await;
            Ok(entry)
        }
    }
}

async fn fid(cache: &Cache, ino: Ino) -> Result<String, Errno> {
    let fid = cache.getxattr(WHO, ino, b"afs.fid").await?;
    Ok(String::from_utf8(fid.to_vec()).unwrap())
}
