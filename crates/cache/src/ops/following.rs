//! What others read next, asked for when a program begins to read as they did.
//!
//! A program that starts reads hundreds of files and directories one after the other, in no order that a directory tells.
//! A file server of afar is told the order, and tells others what follows in one answer: while a program waits for the second
//! thing that is not here, and again when it has come near the end of what was told.
// spec: trees#what-follows

use std::sync::{Arc, Weak};

use afar_cell::{Class, FollowingWanted, TreePart, Volume};
use afar_types::{Fid, FileType, TREE_DATA_MAX};
use tokio::time::Instant;

use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::{Cache, Inner};
use crate::table::following::{Ask, QUIET, Rest, Told};
use crate::table::prefetched::{FILE_LEAST, Kind};

impl Cache {
    /// A program comes to something that is read; `waits`: it must be fetched. Returns what a server told of it.
    pub(crate) fn come_to(&self, user: &User, vnode: &Vnode, waits: bool) -> Told {
        let volume = &vnode.volume;
        if !volume.may_tell_what_follows() {
            return Told::Nothing;
        }
        let may_ask = || self.0.prefetched.room(Kind::Data) > 0 && self.may_prefetch_data(volume);
        let following = &self.0.following;
        let came = following.come(volume, vnode.fid, (waits, may_ask), Instant::now());
        if !came.watch && came.ask.is_none() {
            return came.told;
        }
        // Of the user it takes whose rights and whose tokens these are.
        let user = Arc::new(User::new(user.id, user.client.clone()));
        if came.watch {
            let (cache, user) = (Arc::downgrade(&self.0), Arc::clone(&user));
            tokio::spawn(tell_when_quiet(cache, user, Arc::clone(volume)));
        }
        if let Some(ask) = came.ask {
            let (cache, volume) = (self.clone(), Arc::clone(volume));
            tokio::spawn(async move { cache.read_following(&user, &volume, ask).await });
        }
        came.told
    }

    /// A directory whose pages are known is looked into.
    pub(crate) fn looked_into(&self, user: &User, vnode: &Vnode) {
        // What a walk through a tree has read is used when it is opened.
        if self.come_to(user, vnode, false) == Told::This {
            self.0.prefetched.take(Kind::Directory, vnode);
        }
    }

    /// How much is wanted of what follows.
    fn following_wanted(&self) -> FollowingWanted {
        let most = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
        let data = self.0.prefetched.room(Kind::Data);
        let directories = self.0.prefetched.room(Kind::Directory);
        FollowingWanted {
            entries: most(data / FILE_LEAST + directories),
            bytes: most(data),
            largest: most(data.min(TREE_DATA_MAX as u64)),
        }
    }

    async fn read_following(&self, user: &Arc<User>, volume: &Arc<Volume>, ask: Ask) {
        let Ask { read, from, wanted } = ask;
        let amount = match wanted {
            true => self.following_wanted(),
            false => FollowingWanted::default(),
        };
        // Nobody knows beforehand what it is.
        let before = self.0.breaks.mark();
        let told = user
            .client
            .following(volume, from.0, from.1, read, amount)
            .await;
        let parts = match told {
            Ok(parts) => parts.unwrap_or_default(),
            Err(error) => {
                tracing::debug!(fid = %from.1, %error, "nobody tells what others read next");
                Vec::new()
            }
        };
        if !wanted {
            return;
        }
        let fids: Vec<_> = parts.iter().map(TreePart::fid).collect();
        // Before it is taken: a program may come to it at once.
        self.0.following.answered(volume, from, &fids);
        let come = self.0.following.come_to_of(volume, &fids);
        tracing::debug!(fid = %from.1, things = fids.len(), "told what others read next");
        let parts = parts.into_iter();
        // Programs did not wait for what others read.
        let parts: Vec<_> = parts.filter(|part| !come.contains(&part.fid())).collect();
        let is_new = |part: &TreePart, vnode: &Vnode| {
            let state = vnode.lock();
            match part {
                TreePart::Directory(..) => state.rare.pages.is_none(),
                _ => state.promised().is_none(),
            }
        };
        let larger = parts.iter().filter_map(larger_file).collect();
        self.take_parts(user, volume, parts, before, is_new);
        self.fetch_larger(user, volume, larger);
        // Nor while it was taken.
        let come = self.0.following.come_to_of(volume, &fids);
        for fid in fids.iter().filter(|fid| come.contains(fid)) {
            let vnode = self.0.vnodes.of(volume, *fid);
            for kind in [Kind::Directory, Kind::Data] {
                self.0.prefetched.take(kind, &vnode);
            }
        }
    }

    /// Fetches files that are too large for an answer, in the order in which they will be read.
    fn fetch_larger(&self, user: &Arc<User>, volume: &Arc<Volume>, fids: Vec<Fid>) {
        let mut room = self.0.prefetched.room(Kind::Data);
        let mut next = Vec::new();
        for fid in fids {
            let vnode = self.0.vnodes.of(volume, fid);
            let Some(status) = self.wanted_of(&vnode, room) else {
                continue;
            };
            if let Some(cost) = self.0.prefetched.ask(Kind::Data, &vnode, status.length) {
                room = room.saturating_sub(cost);
                next.push((vnode, status));
            }
        }
        if !next.is_empty() {
            let (cache, user) = (self.clone(), Arc::clone(user));
            // Nobody waits for it yet.
            tokio::spawn(cache.fetch_files(user, next, Class::BestEffort));
        }
    }
}

/// Tells a server what programs read in a volume when they have come to rest, as long as there is a cache.
async fn tell_when_quiet(cache: Weak<Inner>, user: Arc<User>, volume: Arc<Volume>) {
    let mut quiet = Instant::now() + QUIET;
    loop {
        tokio::time::sleep_until(quiet).await;
        let Some(inner) = cache.upgrade() else {
            return;
        };
        match inner.following.rest(&volume, Instant::now()) {
            Rest::Later(then) => quiet = then,
            Rest::Tell(ask) => {
                return Cache(inner).read_following(&user, &volume, ask).await;
            }
            Rest::Nothing => return,
        }
    }
}

/// A file that came without its data, because it is larger than what comes with an answer.
fn larger_file(part: &TreePart) -> Option<Fid> {
    match part {
        TreePart::Status(fid, promised)
            if promised.status.file_type == FileType::File
                && promised.status.length > TREE_DATA_MAX as u64 =>
        {
            Some(*fid)
        }
        _ => None,
    }
}
