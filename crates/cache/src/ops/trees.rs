//! Whole trees in one answer, from servers that have such answers.

use std::sync::Arc;

use afar_cell::{TreePart, TreeWanted, Volume};
use afar_types::{DataVersion, FileType};
use bytes::Bytes;

use crate::model::error::Errno;
use crate::model::place::Spot;
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;
use crate::ops::prefetch::{BULK, SMALL};
use crate::table::breaks::Mark;
use crate::table::prefetched::Kind;

/// Levels that are asked for: what is deeper is asked for when a program comes near.
const DEPTH: u32 = 16;
/// Entries that are asked for with each directory, and bytes of pages: few have more.
const ENTRIES: u32 = 256;
const PAGES: u64 = 8 << 10;
/// Of the first directory a program opens, what a listing of it takes: its pages, and the statuses of so many entries.
const FIRST: TreeWanted = TreeWanted {
    depth: 0,
    entries: ENTRIES,
    bytes: 64 << 10,
    largest: 0,
};

impl Cache {
    /// Reads a directory that will be opened, with the statuses of its entries. If its server has whole trees, so many
    /// directories come, of those below it.
    pub(crate) async fn read_below(
        &self,
        user: &Arc<User>,
        spot: &Spot,
        directories: u64,
    ) -> Result<(), Errno> {
        let volume = &spot.mount.volume;
        // When files are read as well, their data comes with it.
        let data = match self.0.walks.reads_files() && self.may_prefetch_data(volume) {
            true => self.0.prefetched.room(Kind::Data),
            false => 0,
        };
        let most = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
        let wanted = TreeWanted {
            depth: DEPTH,
            entries: most(directories * u64::from(ENTRIES)),
            bytes: most(directories * PAGES + data),
            largest: most(data),
        };
        match self.read_tree(user, &spot.vnode, wanted, false).await? {
            true => Ok(()),
            false => self.read_all(user, spot).await,
        }
    }

    /// Reads a directory that is opened, and with it what a listing takes, if its pages are not known and its server
    /// tells both at once. An error is told by what comes next.
    pub(crate) async fn read_to_list(&self, user: &User, spot: &Spot) {
        let vnode = &spot.vnode;
        if vnode.lock().rare.pages.is_some() {
            return;
        }
        self.come_to(user, vnode, true);
        self.in_order(vnode).await;
        if let Err(error) = self.read_tree(user, vnode, FIRST, false).await {
            tracing::debug!(fid = %vnode.fid, %error, "a directory is not read with what is in it");
        }
    }

    /// Reads a directory in which a name is looked up, and with it the statuses of as many entries as may be prefetched:
    /// this one's is asked for next, and often those of others. False if its server does not tell both at once.
    pub(crate) async fn read_to_look(
        &self,
        user: &User,
        vnode: &Arc<Vnode>,
    ) -> Result<bool, Errno> {
        let length = vnode.lock().status().map(|status| status.length);
        if length.is_some_and(|length| length > FIRST.bytes.into()) {
            return Ok(false);
        }
        let room = self.0.prefetched.room(Kind::Status).max(BULK);
        let wanted = TreeWanted {
            entries: u32::try_from(room).unwrap_or(u32::MAX),
            ..FIRST
        };
        self.read_tree(user, vnode, wanted, true).await
    }

    /// Reads so much of a tree; whether its statuses count as prefetched. False if its server has none.
    async fn read_tree(
        &self,
        user: &User,
        vnode: &Arc<Vnode>,
        wanted: TreeWanted,
        statuses: bool,
    ) -> Result<bool, Errno> {
        let volume = &vnode.volume;
        // Nobody knows beforehand what is in it.
        let before = self.0.breaks.mark();
        let root = vnode.fid;
        let told = user.client.tree(volume, root, wanted).await;
        let told = told.map_err(|error| self.failed(vnode, "reading a tree", &error))?;
        let Some(parts) = told else {
            return Ok(false);
        };
        self.take_parts(user, volume, parts, before, |part, vnode| match part {
            TreePart::Directory(..) => part.fid() != root,
            TreePart::Status(..) => statuses && vnode.lock().promised().is_none(),
            _ => false,
        });
        Ok(true)
    }

    /// Takes what one answer told of many things, which was asked for when there had been these breaks. Directories and
    /// statuses of which `is_ahead` says so count as prefetched; files always do.
    pub(crate) fn take_parts(
        &self,
        user: &User,
        volume: &Arc<Volume>,
        parts: Vec<TreePart>,
        before: Mark,
        is_ahead: impl Fn(&TreePart, &Vnode) -> bool,
    ) {
        for part in parts {
            let vnode = self.0.vnodes.of(volume, part.fid());
            let promised = match &part {
                TreePart::Directory(_, promised, _)
                | TreePart::Status(_, promised)
                | TreePart::File(_, promised, _) => *promised,
                _ => continue,
            };
            let is_ahead = is_ahead(&part, &vnode);
            // A change of it that was made since, here or elsewhere, is not undone by what is from before. A wrong answer was
            // logged.
            if self.accept(user, &vnode, &promised, before).is_err() {
                continue;
            }
            let version = promised.status.data_version;
            match part {
                TreePart::Directory(_, _, pages) => {
                    self.keep_pages(&vnode, version, Arc::new(pages.to_vec()));
                    if is_ahead {
                        self.0.prefetched.ask(Kind::Directory, &vnode, 1);
                    }
                }
                TreePart::File(_, _, data) => self.keep_small(&vnode, version, &data),
                TreePart::Status(..) if is_ahead => {
                    self.0.prefetched.ask(Kind::Status, &vnode, 1);
                }
                _ => {}
            }
        }
    }

    /// Keeps the data of a file or symlink, if it is of the version that it has now.
    fn keep_small(&self, vnode: &Arc<Vnode>, version: DataVersion, data: &Bytes) {
        let lacking = self.lacking(vnode, SMALL);
        let Some(status) = lacking.filter(|status| status.data_version == version) else {
            return;
        };
        // Where a program waits for it, it was counted when it was asked for, and is used.
        let is_awaited = !vnode.lock().rare.flights.is_empty();
        if !is_awaited {
            self.0.prefetched.ask(Kind::Data, vnode, status.length);
        }
        if status.file_type == FileType::Symlink {
            vnode.lock().rare.link = Some((version, data.clone()));
        } else {
            let storage = &self.0.storage;
            storage.write_clean(&vnode.key(), version, 0, data, status.length);
        }
    }
}
