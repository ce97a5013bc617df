//! What others read next, asked for when a program begins to read as they did.
//!
//! A program that starts reads hundreds of files and directories one after the other, in no order that a directory tells.
//! A file server of afar remembers the order, and tells what follows in one answer: while a program waits for the second
//! thing that is not here, and again when it has come near the end of what was told.
// spec: trees#what-follows

use std::sync::Arc;

use afar_cell::{Class, FollowingWanted, TreePart, Volume};
use afar_types::{Fid, FileType, TREE_DATA_MAX};
use tokio::time::Instant;

use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;
use crate::table::prefetched::{FILE_LEAST, Kind};

impl Cache {
    /// A program comes to something that is read; `waits`: it must be fetched. Returns whether a server told that it would be
    /// read.
    pub(crate) fn come_to(&self, user: &User, vnode: &Vnode, waits: bool) -> bool {
        let volume = &vnode.volume;
        let following = &self.0.following;
        let came = following.come(volume, vnode.fid, waits, Instant::now());
        let Some(pair) = came.ask else {
            return came.told;
        };
        let data = self.0.prefetched.room(Kind::Data);
        let may_ask = volume.may_tell_what_follows() && self.may_prefetch_data(volume);
        if data == 0 || !may_ask {
            following.not_asked(volume);
            return came.told;
        }
        let most = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
        let directories = self.0.prefetched.room(Kind::Directory);
        let wanted = FollowingWanted {
            entries: most(data / FILE_LEAST + directories),
            bytes: most(data),
            largest: most(data.min(TREE_DATA_MAX as u64)),
        };
        let (cache, volume) = (self.clone(), Arc::clone(volume));
        // Of the user it takes whose rights and whose tokens these are.
        let user = Arc::new(User::new(user.id, user.client.clone()));
        tokio::spawn(async move { cache.read_following(&user, &volume, pair, wanted).await });
        came.told
    }

    /// A directory that was prefetched is looked into.
    pub(crate) fn looked_into(&self, user: &User, vnode: &Vnode) {
        let prefetched = &self.0.prefetched;
        // What a walk through a tree has read is used when it is opened.
        if prefetched.has(Kind::Directory, vnode) && self.come_to(user, vnode, false) {
            prefetched.take(Kind::Directory, vnode);
        }
    }

    async fn read_following(
        &self,
        user: &Arc<User>,
        volume: &Arc<Volume>,
        pair: (Fid, Fid),
        wanted: FollowingWanted,
    ) {
        // Nobody knows beforehand what it is.
        let before = self.0.breaks.marks();
        let told = user.client.following(volume, pair.0, pair.1, wanted).await;
        let parts = match told {
            Ok(parts) => parts.unwrap_or_default(),
            Err(error) => {
                tracing::debug!(fid = %pair.1, %error, "nobody tells what others read next");
                Vec::new()
            }
        };
        let fids: Vec<_> = parts.iter().map(TreePart::fid).collect();
        // Before it is taken: a program may come to it at once.
        self.0.following.answered(volume, pair, &fids);
        tracing::debug!(fid = %pair.1, things = fids.len(), "told what others read next");
        let is_new = |part: &TreePart, vnode: &Vnode| {
            let state = vnode.lock();
            match part {
                TreePart::Directory(..) => state.rare.pages.is_none(),
                _ => state.promised().is_none(),
            }
        };
        let larger = parts.iter().filter_map(larger_file).collect();
        self.take_parts(user, volume, parts, &before, is_new);
        self.fetch_larger(user, volume, larger);
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
