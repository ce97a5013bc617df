//! Following a path: mount points, symlinks, `@sys`, `.` and `..`.
//!
//! `/afs` is made up: it has all cells. `/afs/CELL` is the root of the cell's volume root.cell, the
//! read-only one if there is one; `/afs/.CELL` is the read-write one. Below a read-only volume `#`
//! mount points lead to read-only volumes, as AFS clients do it.

use std::collections::VecDeque;
use std::sync::Arc;

use afar_types::{CellName, FetchStatus, Fid, FileType, VolumeType};
use bytes::Bytes;

use crate::client::Client;
use crate::error::{PathCause, PathError};
use crate::mountpoint::{MountPoint, Wanted};
use crate::sysname;
use crate::volume::Volume;

/// Symlinks followed in one path.
const LINKS_MOST: u32 = 40;
/// The volume at the root of each cell.
const ROOT_CELL: &str = "root.cell";

/// A file, directory or symlink that a path led to.
#[derive(Debug, Clone)]
pub struct Node {
    /// The volume it is in.
    pub volume: Arc<Volume>,
    /// Its name there.
    pub fid: Fid,
    /// Its status.
    pub status: FetchStatus,
    /// If it is the root of a volume, the mount point that led there.
    pub mount: Option<MountPoint>,
}

/// What a path led to.
#[derive(Debug, Clone)]
pub enum Walked {
    /// `/afs` itself.
    Afs,
    /// A file, directory or symlink.
    Node(Node),
}

/// What to do with a symlink at the end of a path. One in its middle is always followed, and so is
/// one with a `/` behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastLink {
    /// Go where it leads.
    Follow,
    /// Stay at it.
    Keep,
}

/// A directory on the way, without its status: one is asked for only at the end.
#[derive(Debug, Clone)]
struct Step {
    volume: Arc<Volume>,
    fid: Fid,
    mount: Option<MountPoint>,
    status: Option<FetchStatus>,
}

/// Following one path.
struct Walk<'a> {
    client: &'a Client,
    path: &'a [u8],
    /// Parts still to be followed.
    parts: VecDeque<Vec<u8>>,
    /// From the root of a cell to where we are; empty at `/afs`.
    trail: Vec<Step>,
    links: u32,
    last: LastLink,
}

impl Client {
    /// Follows a path that starts with `/afs`.
    ///
    /// # Errors
    /// With the path, why it could not be followed, and what to try.
    pub async fn walk(&self, path: &[u8], last: LastLink) -> Result<Walked, PathError> {
        let parts = inside_afs(path).ok_or_else(|| PathError::new(path, PathCause::NotAfs))?;
        let mut walk = Walk {
            client: self,
            path,
            parts: split(parts),
            trail: Vec::new(),
            links: 0,
            last,
        };
        walk.run()
            .await
            .map_err(|cause| PathError::new(walk.path, cause))
    }

    /// Goes from a directory to one of its entries, which is `fid`: through it, if it is a mount
    /// point.
    ///
    /// # Errors
    /// When its text makes no sense or the volume cannot be found.
    pub async fn cross(&self, volume: &Arc<Volume>, fid: Fid) -> Result<Node, PathCause> {
        let text = self.read_link(volume, fid).await?;
        let (volume, mount) = self.mounted(volume, &text).await?;
        let fid = Fid::root(volume.id());
        let status = self.status(&volume, fid).await?;
        Ok(Node {
            volume,
            fid,
            status,
            mount: Some(mount),
        })
    }

    /// The volume that a mount point in `parent` with this text leads to.
    async fn mounted(
        &self,
        parent: &Arc<Volume>,
        text: &[u8],
    ) -> Result<(Arc<Volume>, MountPoint), PathCause> {
        let mount = MountPoint::parse(text)?;
        let cell = match &mount.cell {
            Some(name) => self.cell(name).await?,
            None => Arc::clone(parent.cell()),
        };
        let same_cell = cell.name() == parent.cell_name();
        let wanted = mount.wanted(parent.kind(), same_cell);
        let volume = self.volume(&cell, &mount.volume, wanted).await?;
        Ok((volume, mount))
    }

    /// The root of a cell.
    async fn cell_root(&self, name: &[u8]) -> Result<Step, PathCause> {
        let (dotted, name) = match name.strip_prefix(b".") {
            Some(name) => (true, name),
            None => (false, name),
        };
        let name: CellName = String::from_utf8_lossy(name).parse()?;
        let cell = self.cell(&name).await?;
        let wanted = if dotted {
            Wanted::Exactly(VolumeType::ReadWrite)
        } else {
            Wanted::PreferReadOnly
        };
        let volume = self.volume(&cell, ROOT_CELL, wanted).await?;
        Ok(Step {
            fid: Fid::root(volume.id()),
            volume,
            mount: None,
            status: None,
        })
    }
}

impl Walk<'_> {
    async fn run(&mut self) -> Result<Walked, PathCause> {
        while let Some(part) = self.parts.pop_front() {
            match part.as_slice() {
                b"" | b"." => {}
                b".." => {
                    // Not by the directory's own entry: in the root of a volume that leads back to the root.
                    // spec: volumes#entries-and-chains
                    self.trail.pop();
                }
                _ => self.enter(&part).await?,
            }
        }
        let Some(step) = self.trail.last() else {
            return Ok(Walked::Afs);
        };
        let status = match step.status {
            Some(status) => status,
            None => self.client.status(&step.volume, step.fid).await?,
        };
        Ok(Walked::Node(Node {
            volume: Arc::clone(&step.volume),
            fid: step.fid,
            status,
            mount: step.mount.clone(),
        }))
    }

    /// Goes one part down.
    async fn enter(&mut self, part: &[u8]) -> Result<(), PathCause> {
        let Some(here) = self.trail.last() else {
            self.trail.push(self.client.cell_root(part).await?);
            return Ok(());
        };
        if !here.fid.vnode.is_directory() {
            return Err(PathCause::NotDirectory);
        }
        let volume = Arc::clone(&here.volume);
        let fid = self.find(&volume, here.fid, part).await?;
        let step = Step {
            volume,
            fid,
            mount: None,
            status: None,
        };
        // spec: volumes#vnodes
        // Odd numbers are directories, and cost nothing more. Of the others only the status tells
        // what they are; in the middle of a path they should be symlinks, whose data comes with it.
        if fid.vnode.is_directory() {
            self.trail.push(step);
            return Ok(());
        }
        self.enter_leaf(step).await
    }

    /// Looks a name up, `@sys` replaced.
    async fn find(
        &self,
        volume: &Arc<Volume>,
        directory: Fid,
        part: &[u8],
    ) -> Result<Fid, PathCause> {
        let sysnames = &self.client.config().sysnames;
        let names = sysname::expand(part, sysnames);
        for name in &names {
            if let Some(fid) = self.client.lookup(volume, directory, name).await? {
                return Ok(fid);
            }
        }
        Err(match names.as_slice() {
            [name] if name == part => PathCause::NotFound,
            _ => PathCause::NoSysname(sysnames.join(" ")),
        })
    }

    /// Goes to a file, or on from a symlink or mount point.
    async fn enter_leaf(&mut self, mut step: Step) -> Result<(), PathCause> {
        let at_end = self.parts.is_empty();
        let (status, data) = if at_end {
            (self.client.status(&step.volume, step.fid).await?, None)
        } else {
            // Reading a file in the middle of a path would be in vain and may be denied: of what is
            // none of ours to read only the status is asked.
            let status = self.client.link_contents(&step.volume, step.fid).await;
            match status {
                Ok(contents) => (contents.promised.status, Some(contents.data)),
                Err(error) if error.is_denied() || error.code().is_none() => {
                    (self.client.status(&step.volume, step.fid).await?, None)
                }
                Err(error) => return Err(error.into()),
            }
        };
        if status.file_type != FileType::Symlink {
            // `file/` and `file/.` name nothing.
            if !at_end {
                return Err(PathCause::NotDirectory);
            }
            step.status = Some(status);
            self.trail.push(step);
            return Ok(());
        }
        if !status.is_mount_point() && at_end && self.last == LastLink::Keep {
            step.status = Some(status);
            self.trail.push(step);
            return Ok(());
        }
        let data = match data {
            Some(data) => data,
            None => self.client.read_link(&step.volume, step.fid).await?,
        };
        if status.is_mount_point() {
            let (volume, mount) = self.client.mounted(&step.volume, &data).await?;
            self.trail.push(Step {
                fid: Fid::root(volume.id()),
                volume,
                mount: Some(mount),
                status: None,
            });
            return Ok(());
        }
        self.follow(&data)
    }

    /// Has the parts of a symlink's target followed next.
    fn follow(&mut self, target: &Bytes) -> Result<(), PathCause> {
        self.links += 1;
        if self.links > LINKS_MOST {
            return Err(PathCause::Loop);
        }
        let relative = if target.starts_with(b"/") {
            let inside = inside_afs(target).ok_or_else(|| {
                PathCause::OutsideAfs(String::from_utf8_lossy(target).into_owned())
            })?;
            self.trail.clear();
            inside
        } else {
            target
        };
        for part in split(relative).into_iter().rev() {
            self.parts.push_front(part);
        }
        Ok(())
    }
}

/// The part of an absolute path below `/afs`; `None` if it is elsewhere.
fn inside_afs(path: &[u8]) -> Option<&[u8]> {
    let start = path.iter().position(|&byte| byte != b'/')?;
    let rest = path.get(start..)?.strip_prefix(b"afs")?;
    (start > 0 && (rest.is_empty() || rest.starts_with(b"/"))).then_some(rest)
}

fn split(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|&byte| byte == b'/')
        .enumerate()
        // Empty parts mean nothing, but for the last: `link/` is what the link leads to.
        .filter(|(index, part)| *index > 0 || !part.is_empty())
        .map(|(_, part)| part.to_vec())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_afs_are_told_from_others() {
        assert_eq!(inside_afs(b"/afs"), Some(&b""[..]));
        assert_eq!(inside_afs(b"//afs/a/b"), Some(&b"/a/b"[..]));
        for other in [&b"afs/a"[..], b"/afsx/a", b"/", b"", b"/home", b"relative"] {
            assert_eq!(inside_afs(other), None);
        }
    }
}
