//! Vnodes that are named one by one, in one answer.
// spec: trees#many-files

use std::vec;

use afar_net::AbortCode;
use afar_rpc::{DownloadSink, rxafs};
use afar_types::{Fid, FileType, TREE_DATA_MAX, TreeItem, VolumeId};

use super::items::{Answer, Next, Room, anothers, node, send, status, whole};
use super::visit::{EnteredVolume, Visit};
use crate::abort::errno;
use crate::access::may_fetch_data;

pub(super) async fn fetch_files(
    visit: &Visit,
    request: rxafs::fetch_files::Request,
    data: &mut DownloadSink<'_>,
) -> Result<rxafs::fetch_files::Reply, AbortCode> {
    let mut files = request.files.into_vec();
    let first = *files.first().ok_or(AbortCode(errno::EINVAL))?;
    visit.tally.lock().file = Some(first);
    files.retain(|fid| fid.volume == first.volume);
    let room = Room::new(u32::MAX, request.bytes, request.largest);
    send(visit, Listed::new(first.volume, files, room), data).await?;
    Ok(rxafs::fetch_files::Reply {})
}

/// Vnodes of a volume in an order, and how far the answer is.
pub(super) struct Listed {
    volume: VolumeId,
    next: vec::IntoIter<Fid>,
    /// Bytes that are wanted in all.
    asked: usize,
    room: Room,
}

impl Answer for Listed {
    fn volume(&self) -> VolumeId {
        self.volume
    }

    fn room(&mut self) -> &mut Room {
        &mut self.room
    }

    fn next(&mut self, visit: &Visit, place: &mut EnteredVolume<'_>) -> Result<Next, AbortCode> {
        if self.room.left == 0 {
            return Ok(Next::End);
        }
        let Some(fid) = self.next.next() else {
            return Ok(Next::End);
        };
        self.room.left -= 1;
        // What may not be read, or is gone, is left out.
        Ok(self.item(visit, place, fid).unwrap_or(Next::Nothing))
    }
}

impl Listed {
    pub(super) fn new(volume: VolumeId, next: Vec<Fid>, room: Room) -> Self {
        Self {
            volume,
            next: next.into_iter(),
            asked: room.bytes,
            room,
        }
    }

    fn item(
        &mut self,
        visit: &Visit,
        place: &mut EnteredVolume<'_>,
        fid: Fid,
    ) -> Result<Next, AbortCode> {
        anothers(visit, fid)?;
        let promise = place.promise(fid, true);
        let look = place.look(fid)?;
        may_fetch_data(&visit.person, &look.vnode, look.grant, place.state.owner)?;
        let is_directory = look.vnode.file_type == FileType::Directory;
        let largest = match is_directory {
            true => TREE_DATA_MAX,
            false => self.room.largest,
        };
        let length = look.vnode.length;
        // The caller fetches files that are larger than what comes, but for those that it has no room for at all.
        let comes = length <= largest as u64;
        let counts = comes || !is_directory && length <= self.asked as u64;
        if counts && length > self.room.bytes as u64 {
            // The caller asks for the rest from here on, and gets it with its data.
            return Ok(Next::End);
        }
        if length == 0 || !comes {
            if counts {
                self.room.leave(length);
            }
            return Ok(Next::Item(status(place, visit, &look, &promise)));
        }
        let most = largest.min(self.room.bytes);
        let Some(whole) = whole(place, &look, most)? else {
            // It became longer a moment ago.
            return Ok(Next::Item(status(place, visit, &look, &promise)));
        };
        self.room.take(&whole.data);
        let node = node(fid, whole, visit.callback(&promise))?;
        Ok(Next::Item(match is_directory {
            true => TreeItem::Directory(node),
            false => TreeItem::File(node),
        }))
    }
}
