//! A tree in one answer: pages of directories, statuses of what is in them, data of small files.
//!
//! Each item is decided on and promised as the call would be that asks for it alone. One that the caller may not have, or
//! that is gone, is left out.
// spec: trees#the-call

use std::collections::VecDeque;
use std::vec;

use afar_dir::Directory;
use afar_net::AbortCode;
use afar_rpc::{DownloadSink, rxafs};
use afar_store::VnodeStatus;
use afar_types::error::VBUSY;
use afar_types::{
    CallBack, FetchStatus, Fid, FileType, TREE_DATA_MAX, TreeItem, TreeNode, VolumeId,
};
use afar_xdr::Opaque;
use bytes::{Bytes, BytesMut};

use super::snapshot::{Piece, Snapshot, Taking};
use super::visit::{EnteredVolume, Look, Visit};
use crate::abort::errno;
use crate::access::{may_fetch_data, may_fetch_status};
use crate::hosts::Promise;

/// Bytes of items that are made in one step and sent then, and the largest item behind them: so much of a call is in
/// memory.
const PART: usize = 32 << 10;
/// Statuses in an answer, whatever is asked for.
// spec: trees#the-call
const ENTRIES_MOST: u32 = 4096;
/// The same of bytes of data.
// spec: trees#the-call
const BYTES_MOST: u32 = 8 << 20;

pub(super) async fn fetch_tree(
    visit: &Visit,
    request: rxafs::fetch_tree::Request,
    data: &mut DownloadSink<'_>,
) -> Result<rxafs::fetch_tree::Reply, AbortCode> {
    visit.tally.lock().file = Some(request.fid);
    let mut walk = Walk::new(&request);
    while !walk.ended {
        if let Some(root) = walk.starts_at() {
            // Only here it waits for leases.
            let look = move |visit: &Visit| visit.enter(root.volume)?.look(root).map(drop);
            visit.step(look).await?;
        }
        let part;
        (walk, part) = visit
            .step_once(move |visit| {
                let part = walk.part(visit)?;
                Ok((walk, part))
            })
            .await?;
        visit.leases.go_on();
        visit.fetched(std::mem::take(&mut walk.data));
        data.send(part).await?;
    }
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
    /// Statuses that may come.
    left: u32,
    /// Bytes of data that may.
    bytes: usize,
    /// Bytes of the largest file that comes with its data.
    largest: usize,
    /// Bytes of data in the last part.
    data: u64,
    ended: bool,
}

/// A vnode with all of its data.
struct Whole {
    status: FetchStatus,
    data: Vec<u8>,
}

impl Walk {
    fn new(request: &rxafs::fetch_tree::Request) -> Self {
        let bytes = |asked: u32| usize::try_from(asked).unwrap_or(usize::MAX);
        Self {
            volume: request.fid.volume,
            root: request.fid,
            directories: VecDeque::from([(request.fid, request.depth)]),
            entries: Vec::new().into_iter(),
            depth: 0,
            left: request.entries.min(ENTRIES_MOST),
            bytes: bytes(request.bytes.min(BYTES_MOST)),
            largest: bytes(request.largest).min(TREE_DATA_MAX),
            data: 0,
            ended: false,
        }
    }

    /// The directory it is about to begin with, if it has not begun.
    fn starts_at(&self) -> Option<Fid> {
        let next = self.directories.front();
        next.map(|next| next.0).filter(|fid| *fid == self.root)
    }

    /// The next items. Blocks.
    fn part(&mut self, visit: &Visit) -> Result<Bytes, AbortCode> {
        let mut place = visit.enter(self.volume)?;
        let mut out = BytesMut::new();
        while out.len() < PART && !self.ended {
            if self.left > 0
                && let Some(fid) = self.entries.next()
            {
                self.left -= 1;
                if fid.vnode.is_directory() && self.depth > 0 {
                    self.directories.push_back((fid, self.depth - 1));
                } else if let Ok(item) = self.entry(visit, &mut place, fid) {
                    item.append(&mut out);
                }
                continue;
            }
            match self.directories.pop_front() {
                Some((fid, depth)) => match self.directory(visit, &mut place, fid) {
                    Ok(item) => {
                        self.depth = depth;
                        item.append(&mut out);
                    }
                    Err(code) if fid == self.root => return Err(code),
                    Err(_) => {}
                },
                None => {
                    let vol_sync = place.vol_sync();
                    TreeItem::End { vol_sync }.append(&mut out);
                    self.ended = true;
                }
            }
        }
        Ok(out.freeze())
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
        let most = match self.left {
            0 => 0,
            _ => self.bytes.min(TREE_DATA_MAX),
        };
        let Some(whole) = whole(place, &look, most)? else {
            return Ok(TreeItem::Left { fid });
        };
        self.take(&whole.data);
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
            let most = self.bytes.min(self.largest);
            if let Some(whole) = whole(place, &look, most)? {
                self.take(&whole.data);
                return Ok(TreeItem::File(node(fid, whole, visit.callback(&promise))?));
            }
        }
        Ok(status(place, visit, &look, &promise))
    }

    /// Counts data that comes.
    fn take(&mut self, data: &[u8]) {
        self.bytes = self.bytes.saturating_sub(data.len());
        self.data += data.len() as u64;
    }
}

/// Leaves out what another host has a lease of, which is not recalled for the sake of what may not be needed.
fn anothers(visit: &Visit, fid: Fid) -> Result<(), AbortCode> {
    match visit.leases.is_anothers(fid) {
        true => Err(AbortCode(VBUSY)),
        false => Ok(()),
    }
}

fn status(place: &EnteredVolume<'_>, visit: &Visit, look: &Look, promise: &Promise) -> TreeItem {
    TreeItem::Status {
        fid: look.vnode.fid,
        status: place.status(&look.vnode, look.grant),
        callback: visit.callback(promise),
    }
}

/// All data, and the status it belongs to; nothing if there are more bytes than that.
fn whole(place: &EnteredVolume<'_>, look: &Look, most: usize) -> Result<Option<Whole>, AbortCode> {
    let fits = |vnode: &VnodeStatus| vnode.length <= most as u64;
    if !fits(&look.vnode) {
        return Ok(None);
    }
    let fid = look.vnode.fid;
    let (mut snapshot, vnode) = Snapshot::take(place.volume(), fid, 0, u64::MAX, most.max(1))?;
    if !fits(&vnode) {
        return Ok(None);
    }
    let mut data = Vec::new();
    while snapshot.remaining() > 0 {
        for piece in snapshot.next(Taking::plain(most.max(1)))? {
            if let Piece::Plain(bytes) = piece {
                data.extend_from_slice(&bytes);
            }
        }
    }
    Ok((data.len() as u64 == vnode.length).then(|| Whole {
        status: place.status(&vnode, look.grant),
        data,
    }))
}

fn node(
    fid: Fid,
    Whole { status, data }: Whole,
    callback: CallBack,
) -> Result<TreeNode, AbortCode> {
    Ok(TreeNode {
        fid,
        status,
        callback,
        data: Opaque::new(data).map_err(|_| AbortCode::RXGEN_SS_MARSHAL)?,
    })
}
