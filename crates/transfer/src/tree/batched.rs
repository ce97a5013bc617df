//! Removing trees by batches: hundreds of names in a call, what is in a directory before the directory.

use std::collections::HashSet;
use std::sync::Arc;

use afar_cell::{Batched, Batches, DirEntry, Error as CellError, Outcome};
use afar_types::{BATCH_OPERATIONS, BatchChange, BatchChanges, BatchOperation, Fid, FileName};
use tokio::task::JoinSet;

use super::{AT_A_TIME, Tree};
use crate::error::{Error, Remedy};

/// A name that is to be removed.
struct Wanted {
    directory: Fid,
    entry: DirEntry,
    /// For messages.
    path: Vec<u8>,
}

/// What is in a directory, and which of it is a mount point.
type Listing = Result<Vec<(DirEntry, bool)>, CellError>;

/// A tree on its way out.
struct Removal<'t, 'a> {
    tree: &'t mut Tree<'a>,
    /// None once the server takes no more.
    batches: Option<Batches>,
    waiting: Vec<Wanted>,
    /// Directories in which something stays, of which that was said.
    kept: HashSet<Fid>,
}

impl Tree<'_> {
    /// Removes a directory with all below it; returns whether it is gone.
    pub(super) async fn remove_by_batches(
        &mut self,
        batches: Batches,
        parent: Fid,
        entry: DirEntry,
        path: Vec<u8>,
    ) -> bool {
        let reading = read(self.client.clone(), Arc::clone(self.volume), entry.fid);
        let listing = reading.await;
        let mut removal = Removal {
            tree: self,
            batches: Some(batches),
            waiting: Vec::new(),
            kept: HashSet::new(),
        };
        let top = Wanted {
            directory: parent,
            entry,
            path,
        };
        let fid = top.entry.fid;
        removal.directory(top, listing).await;
        removal.send().await;
        !removal.kept.contains(&fid)
    }
}

async fn read(client: afar_cell::Client, volume: Arc<afar_cell::Volume>, fid: Fid) -> Listing {
    let list = client.list(&volume, fid).await?;
    let others = |entry: &&DirEntry| !entry.fid.vnode.is_directory();
    let fids: Vec<Fid> = list.iter().filter(others).map(|entry| entry.fid).collect();
    let mut statuses = client.statuses(&volume, &fids).await.into_iter();
    let with_kind = |entry: DirEntry| {
        let is_directory = entry.fid.vnode.is_directory();
        let status = (!is_directory).then(|| statuses.next()).flatten();
        let mounts =
            status.is_some_and(|status| status.is_ok_and(|status| status.is_mount_point()));
        (entry, mounts)
    };
    Ok(list.into_iter().map(with_kind).collect())
}

impl Removal<'_, '_> {
    /// Has all in a directory removed, and then the directory.
    async fn directory(&mut self, wanted: Wanted, listing: Listing) {
        let fid = wanted.entry.fid;
        let list = match listing {
            Ok(list) => list,
            Err(error) => {
                self.keep(&wanted);
                self.tree.failed(error, &wanted.path);
                return;
            }
        };
        let mut directories = Vec::new();
        for (entry, mounts) in list {
            let below = Wanted {
                directory: fid,
                path: [&wanted.path, b"/".as_slice(), &entry.name].concat(),
                entry,
            };
            if (self.tree.stays)(&below.path, below.entry.fid) {
                self.kept.insert(fid);
            } else if mounts {
                self.keep(&below);
                let path = String::from_utf8_lossy(&below.path);
                let why = format!("{path}: is a mount point");
                (self.tree.note)(Error::unless(Remedy::RemoveMountPoint, why));
            } else if below.entry.fid.vnode.is_directory() {
                directories.push(below);
            } else {
                self.add(below).await;
            }
        }
        let mut directories = directories.into_iter();
        loop {
            // They are read at the same time, and only so many are in memory.
            let some: Vec<_> = directories.by_ref().take(AT_A_TIME).collect();
            if some.is_empty() {
                break;
            }
            let mut reading = JoinSet::new();
            for (place, below) in some.iter().enumerate() {
                let (client, volume) = (self.tree.client.clone(), Arc::clone(self.tree.volume));
                let fid = below.entry.fid;
                reading.spawn(async move { (place, read(client, volume, fid).await) });
            }
            let mut listings: Vec<_> = some.iter().map(|_| None).collect();
            while let Some(read) = reading.join_next().await {
                match read {
                    Ok((place, listing)) => listings[place] = Some(listing),
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                }
            }
            for (below, listing) in some.into_iter().zip(listings) {
                if let Some(listing) = listing {
                    Box::pin(self.directory(below, listing)).await;
                }
            }
        }
        if self.kept.contains(&fid) {
            self.kept.insert(wanted.directory);
        } else {
            self.add(wanted).await;
        }
    }

    /// Something stays, and what it is in.
    fn keep(&mut self, wanted: &Wanted) {
        self.kept.extend([wanted.entry.fid, wanted.directory]);
    }

    async fn add(&mut self, wanted: Wanted) {
        self.waiting.push(wanted);
        if self.waiting.len() >= BATCH_OPERATIONS {
            self.send().await;
        }
    }

    /// Removes what waits.
    async fn send(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return;
        }
        let changes = waiting.iter().map(change).collect::<Option<Vec<_>>>();
        let changes = changes.and_then(|all| BatchChanges::new(all).ok());
        let run = match (&mut self.batches, changes) {
            (Some(batches), Some(changes)) => batches.run(&changes, None).await,
            _ => return self.singly(waiting).await,
        };
        match run {
            Ok(Batched::Done(ran)) => {
                for (wanted, outcome) in waiting.iter().zip(ran.outcomes) {
                    self.ended(wanted, outcome);
                }
            }
            Ok(Batched::NotDone(_) | Batched::Unfit(_)) => {
                self.batches = None;
                self.singly(waiting).await;
            }
            Err(error) => {
                // Which of them are gone is not known, and neither is what the directories are now.
                for wanted in &waiting {
                    self.keep(wanted);
                }
                self.batches = None;
                if let Some(first) = waiting.first() {
                    self.tree.failed(error, &first.path);
                }
            }
        }
    }

    /// Removes them by a call for each.
    async fn singly(&mut self, waiting: Vec<Wanted>) {
        for wanted in waiting {
            if self.kept.contains(&wanted.entry.fid) {
                self.kept.insert(wanted.directory);
                continue;
            }
            let (client, volume) = (self.tree.client, self.tree.volume);
            let removed = if wanted.entry.fid.vnode.is_directory() {
                let removing = client.remove_dir(volume, wanted.directory, &wanted.entry);
                removing.await
            } else {
                let removing = client.remove_file(volume, wanted.directory, &wanted.entry);
                removing.await
            };
            self.ended(&wanted, removed.map(|_| None));
        }
    }

    fn ended(&mut self, wanted: &Wanted, outcome: Outcome) {
        let Err(error) = outcome else {
            self.tree.removed += 1;
            return;
        };
        // That something in it could not be removed was said.
        let is_told = self.kept.contains(&wanted.entry.fid);
        self.keep(wanted);
        if !is_told {
            self.tree.failed(error, &wanted.path);
        }
    }
}

fn change(wanted: &Wanted) -> Option<BatchChange> {
    let name = FileName::new(&*wanted.entry.name).ok()?;
    let directory = wanted.directory.into();
    let operation = match wanted.entry.fid.vnode.is_directory() {
        true => BatchOperation::RemoveDir { directory, name },
        false => BatchOperation::RemoveFile { directory, name },
    };
    Some(operation.into())
}
