//! Removing what SOURCE does not have.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use afar_cell::{DirEntry, Node};

use super::directory::Directory;
use super::work::{Done, Item, Syncer, last};
use crate::error::{Context, Error, Result, bail};
use crate::facts::Kind;
use crate::origin::Origin;
use crate::tree::Tree;

impl Syncer {
    /// Removes what has this path below DEST, with all below it but what is left alone. Returns
    /// whether it is gone; if not, an error tells why, unless something in it is excluded.
    pub(super) async fn remove(
        &self,
        path: &[u8],
        there: &Item,
        within: &Directory,
        done: &mut Done,
    ) -> Result<bool> {
        let name = last(path);
        if !self.dry_run {
            within.change();
        }
        match (&there.0, &within.at) {
            (Origin::Local(local), _) => self.remove_local(path, local, done).await,
            (Origin::Afs(node), Some(Origin::Afs(directory))) => {
                let entry = DirEntry {
                    name: name.to_vec(),
                    fid: node.fid,
                };
                self.remove_afs(path, directory, entry, there.1.kind, done)
                    .await
            }
            (Origin::Afs(_), _) => bail!("is in no directory"),
        }
    }

    async fn remove_afs(
        &self,
        path: &[u8],
        directory: &Node,
        entry: DirEntry,
        kind: Kind,
        done: &mut Done,
    ) -> Result<bool> {
        if kind == Kind::MountPoint {
            bail!(RemoveMountPoint => "is a mount point");
        }
        let volume = &directory.volume;
        if kind != Kind::Directory {
            if !self.dry_run {
                let removed = self.client.remove_file(volume, directory.fid, &entry);
                removed.await?;
            }
            done.totals.deleted += 1;
            return Ok(true);
        }
        if self.is_source(volume, entry.fid) {
            bail!("is SOURCE itself; it is not deleted");
        }
        // Paths of a tree are told with DEST before them, for messages.
        let above = self.dest_path(b"").len();
        let stays = |path: &[u8], fid: afar_types::Fid| {
            let path = path.get(above..).unwrap_or_default();
            self.exclude.has(path, fid.vnode.is_directory()) || self.is_source(volume, fid)
        };
        let errors = &mut done.errors;
        let mut tree = Tree {
            client: &self.client,
            volume,
            stays: &stays,
            pretend: self.dry_run,
            removed: 0,
            note: &mut |error| errors.push(error),
        };
        let gone = tree
            .remove(directory.fid, entry, self.dest_path(path))
            .await;
        done.totals.deleted += tree.removed;
        Ok(gone)
    }

    async fn remove_local(&self, path: &[u8], local: &Path, done: &mut Done) -> Result<bool> {
        let mut tree = LocalTree {
            exclude: Arc::clone(&self.exclude),
            pretend: self.dry_run,
            removed: 0,
            errors: Vec::new(),
        };
        let (path, local) = (path.to_vec(), local.to_owned());
        let removing = tokio::task::spawn_blocking(move || {
            let gone = tree.remove(&path, &local);
            (tree, gone)
        });
        let (tree, gone) = removing.await.map_err(io::Error::other)?;
        done.totals.deleted += tree.removed;
        done.errors.extend(tree.errors);
        Ok(gone)
    }
}

/// Removes trees of the local disk.
struct LocalTree {
    exclude: Arc<super::exclude::Exclude>,
    pretend: bool,
    removed: u64,
    errors: Vec<Error>,
}

impl LocalTree {
    /// Removes what has this path, below DEST and altogether; returns whether it is gone.
    fn remove(&mut self, path: &[u8], local: &Path) -> bool {
        match self.try_remove(path, local) {
            Ok(gone) => gone,
            Err(error) => {
                self.errors.push(error);
                false
            }
        }
    }

    fn try_remove(&mut self, path: &[u8], local: &Path) -> Result<bool> {
        let cannot = || format!("cannot delete {}", local.display());
        let metadata = fs::symlink_metadata(local).with_context(cannot)?;
        if !metadata.is_dir() {
            if !self.pretend {
                fs::remove_file(local).with_context(cannot)?;
            }
            self.removed += 1;
            return Ok(true);
        }
        let mut empty = true;
        for entry in fs::read_dir(local).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            let below = super::work::join(path, entry.file_name().as_bytes());
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            empty &= !self.exclude.has(&below, is_directory) && self.remove(&below, &entry.path());
        }
        if empty {
            if !self.pretend {
                fs::remove_dir(local).with_context(cannot)?;
            }
            self.removed += 1;
        }
        Ok(empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::exclude::Exclude;

    #[test]
    fn what_is_excluded_stays_with_what_it_is_in() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("a/b")).unwrap();
        fs::create_dir_all(path("a/c")).unwrap();
        for name in ["a/b/keep", "a/b/x", "a/c/y"] {
            fs::write(path(name), name).unwrap();
        }
        std::os::unix::fs::symlink("b", path("a/link")).unwrap();
        let tree = |pretend| LocalTree {
            exclude: Arc::new(Exclude::new(&["keep".into()]).unwrap()),
            pretend,
            removed: 0,
            errors: Vec::new(),
        };
        for pretend in [true, false] {
            assert!(path("a/c").exists());
            let mut tree = tree(pretend);
            assert!(!tree.remove(b"a", &path("a")));
            // x, y, c and the link; not what the link leads to.
            assert_eq!((tree.removed, tree.errors.len()), (4, 0));
        }
        assert!(path("a/b/keep").exists() && !path("a/b/x").exists() && !path("a/c").exists());
    }
}
