//! What an answer is made of that tells of many vnodes: pages of directories, statuses, data of small files.
//!
//! Each item is decided on and promised as the call would be that asks for it alone. One that the caller may not have, or
//! that is gone, is left out.
// spec: trees#items

use afar_net::AbortCode;
use afar_rpc::DownloadSink;
use afar_store::VnodeStatus;
use afar_types::error::VBUSY;
use afar_types::{CallBack, FetchStatus, Fid, TREE_DATA_MAX, TreeItem, TreeNode, VolumeId};
use afar_xdr::Opaque;
use bytes::{Bytes, BytesMut};

use super::snapshot::{Piece, Snapshot, Taking};
use super::visit::{EnteredVolume, Look, Visit};
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

/// How much an answer may still have.
pub(super) struct Room {
    /// Statuses.
    pub(super) left: u32,
    /// Bytes of data.
    pub(super) bytes: usize,
    /// Bytes of the largest file that comes with its data.
    pub(super) largest: usize,
    /// Bytes of data in the last part.
    data: u64,
}

/// An answer while it is made.
pub(super) trait Answer: Sized + Send + 'static {
    /// The volume all of it is of.
    fn volume(&self) -> VolumeId;

    /// What it may still have.
    fn room(&mut self) -> &mut Room;

    /// What comes next. Blocks.
    ///
    /// # Errors
    /// The whole call fails.
    fn next(&mut self, visit: &Visit, place: &mut EnteredVolume<'_>) -> Result<Next, AbortCode>;
}

/// What comes next in an answer.
pub(super) enum Next {
    Item(TreeItem),
    /// Something that is left out, or comes later.
    Nothing,
    End,
}

/// A vnode with all of its data.
pub(super) struct Whole {
    pub(super) status: FetchStatus,
    pub(super) data: Vec<u8>,
}

/// Sends an answer, in parts.
pub(super) async fn send(
    visit: &Visit,
    mut answer: impl Answer,
    data: &mut DownloadSink<'_>,
) -> Result<(), AbortCode> {
    let mut ended = false;
    while !ended {
        let (rest, part, is_last) = visit
            .step_once(move |visit| {
                let (part, ended) = part(&mut answer, visit)?;
                Ok((answer, part, ended))
            })
            .await?;
        (answer, ended) = (rest, is_last);
        // It does not wait where somebody has a lease.
        visit.leases.go_on();
        visit.fetched(std::mem::take(&mut answer.room().data));
        data.send(part).await?;
    }
    Ok(())
}

/// The next items, and whether they are the last. Blocks.
fn part(answer: &mut impl Answer, visit: &Visit) -> Result<(Bytes, bool), AbortCode> {
    let mut place = visit.enter(answer.volume())?;
    let mut out = BytesMut::new();
    while out.len() < PART {
        match answer.next(visit, &mut place)? {
            Next::Item(item) => item.append(&mut out),
            Next::Nothing => {}
            Next::End => {
                let vol_sync = place.vol_sync();
                TreeItem::End { vol_sync }.append(&mut out);
                return Ok((out.freeze(), true));
            }
        }
    }
    Ok((out.freeze(), false))
}

impl Room {
    /// What is asked for, as far as an answer goes.
    pub(super) fn new(entries: u32, bytes: u32, largest: u32) -> Self {
        let size = |asked: u32| usize::try_from(asked).unwrap_or(usize::MAX);
        Self {
            left: entries.min(ENTRIES_MOST),
            bytes: size(bytes.min(BYTES_MOST)),
            largest: size(largest).min(TREE_DATA_MAX),
            data: 0,
        }
    }

    /// Counts data that comes.
    pub(super) fn take(&mut self, data: &[u8]) {
        self.leave(data.len() as u64);
        self.data += data.len() as u64;
    }

    /// So many bytes do not come, and may all the same not be of something else.
    pub(super) fn leave(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Leaves out what another host has a lease of, which is not recalled for the sake of what may not be needed.
pub(super) fn anothers(visit: &Visit, fid: Fid) -> Result<(), AbortCode> {
    match visit.leases.is_anothers(fid) {
        true => Err(AbortCode(VBUSY)),
        false => Ok(()),
    }
}

pub(super) fn status(
    place: &EnteredVolume<'_>,
    visit: &Visit,
    look: &Look,
    promise: &Promise,
) -> TreeItem {
    TreeItem::Status {
        fid: look.vnode.fid,
        status: place.status(&look.vnode, look.grant),
        callback: visit.callback(promise),
    }
}

/// All data, and the status it belongs to; nothing if there are more bytes than that.
pub(super) fn whole(
    place: &EnteredVolume<'_>,
    look: &Look,
    most: usize,
) -> Result<Option<Whole>, AbortCode> {
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

pub(super) fn node(
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
