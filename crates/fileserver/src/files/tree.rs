//! A tree in one answer: pages of directories, statuses of what is in them, data of small files.
// spec: trees#the-call

use std::collections::VecDeque;
use std::vec;

use afar_dir::Directory;
use afar_net::AbortCode;
use afar_rpc::{DownloadSink, rxafs};
use afar_types::{Fid, FileType, TREE_DATA_MAX, TreeItem, VolumeId};

use super::items::{Answer, Next, Room, anothers, node, send, status, whole};
use super::visit::{EnteredVolume, Visit};
use crate::abort::errno;
use crate::access::{may_fetch_data, may_fetch_status};

pub(super) async fn fetch_tree(
    visit: &Visit,
    request: rxafs::fetch_tree::Request,
    data: &mut DownloadSink<'_>,
) -> Result<rxafs::fetch_tree::Reply, AbortCode> {
    let root = request.fid;
    visit.tally.lock().file = Some(root);
    // Only here it waits for leases.
    let look = move |visit: &Visit| visit.enter(root.volume)?.look(root).map(drop);
    visit.step(look).await?;
    send(visit, Walk::new(&request), data).await?;
    Ok(rxafs::fetch_tree::Reply {})
}

/// How far the answer is.
struct Walk {
    volume: VolumeId,
    root: Fid,
    /// Directories that come, each with how many levels of those in it come too.
    directories: VecDeque<(Fid, u32)>,
    /// What is in the last one.
    entries: vec::IntoIter<Fid>,
    depth: u32,
    room: Room,
}

impl Answer for Walk {
    fn volume(&self) -> VolumeId {
        self.volume
    }

    fn room(&mut self) -> &mut Room {
        &mut self.room
    }

    fn next(&mut self, visit: &Visit, place: &mut EnteredVolume<'_>) -> Result<Next, AbortCode> {
        if self.room.left > 0
            && let Some(fid) = self.entries.next()
        {
            self.room.left -= 1;
            // A damaged directory may have the root in it, which comes once.
            if fid.vnode.is_directory() && self.depth > 0 && fid != self.root {
                self.directories.push_back((fid, self.depth - 1));
                return Ok(Next::Nothing);
            }
            let entry = self.entry(visit, place, fid);
            return Ok(entry.map_or(Next::Nothing, Next::Item));
        }
        let Some((fid, depth)) = self.directories.pop_front() else {
            return Ok(Next::End);
        };
        match self.directory(visit, place, fid) {
            Ok(item) => {
                self.depth = depth;
                Ok(Next::Item(item))
            }
            Err(code) if fid == self.root => Err(code),
            Err(_) => Ok(Next::Nothing),
        }
    }
}

impl Walk {
    fn new(request: &rxafs::fetch_tree::Request) -> Self {
        Self {
            volume: request.fid.volume,
            root: request.fid,
            directories: VecDeque::from([(request.fid, request.depth)]),
            entries: Vec::new().into_iter(),
            depth: 0,
            room: Room::new(request.entries, request.bytes, request.largest),
        }
    }

    /// A directory, whose entries come next.
    fn directory(
        &mut self,
        visit: &Visit,
        place: &mut EnteredVolume<'_>,
        fid: Fid,
    ) -> Result<TreeItem, AbortCode> {
        self.entries = Vec::new().into_iter();
        if fid != self.root {
            anothers(visit, fid)?;
        }
        let promise = place.promise(fid, true);
        let look = place.directory(fid)?;
        let allowed = may_fetch_data(&visit.person, &look.vnode, look.grant, place.state.owner);
        match allowed {
            Err(denied) if fid == self.root => return Err(denied.into()),
            // Everybody may know that it is there.
            Err(_) => return Ok(status(place, visit, &look, &promise)),
            Ok(()) => {}
        }
        // Of what would not come, nothing is read: there may be thousands.
        let most = match self.room.left {
            0 => 0,
            _ => self.room.bytes.min(TREE_DATA_MAX),
        };
        let Some(whole) = whole(place, &look, most)? else {
            return Ok(TreeItem::Left { fid });
        };
        self.room.take(&whole.data);
        let pages = Directory::new(&whole.data).map_err(|_| AbortCode(errno::EIO))?;
        // A damaged entry ends it, as it does for a client that reads the pages.
        let entries = pages.entries().map_while(Result::ok);
        let entries = entries.filter(|entry| !matches!(entry.name, b"." | b".."));
        let entries: Vec<_> = entries.map(|entry| entry.id.fid(fid.volume)).collect();
        self.entries = entries.into_iter();
        Ok(TreeItem::Directory(node(
            fid,
            whole,
            visit.callback(&promise),
        )?))
    }

    /// What is in a directory: its status, and its data if there is little.
    fn entry(
        &mut self,
        visit: &Visit,
        place: &mut EnteredVolume<'_>,
        fid: Fid,
    ) -> Result<TreeItem, AbortCode> {
        anothers(visit, fid)?;
        let promise = place.promise(fid, true);
        let look = place.look(fid)?;
        let (person, owner) = (&visit.person, place.state.owner);
        may_fetch_status(person, &look.vnode, look.grant, owner)?;
        let is_wanted = look.vnode.file_type != FileType::Directory && look.vnode.length > 0;
        if is_wanted && may_fetch_data(person, &look.vnode, look.grant, owner).is_ok() {
            let most = self.room.bytes.min(self.room.largest);
            if let Some(whole) = whole(place, &look, most)? {
                self.room.take(&whole.data);
                return Ok(TreeItem::File(node(fid, whole, visit.callback(&promise))?));
            }
        }
        Ok(status(place, visit, &look, &promise))
    }
}
