//! What hosts read next, in one answer.
// spec: trees#what-follows

use std::vec;

use afar_net::AbortCode;
use afar_rpc::{DownloadSink, rxafs};
use afar_types::{Fid, FileType, TREE_DATA_MAX, TreeItem, VolumeId};

use super::items::{Answer, Next, Room, anothers, node, send, status, whole};
use super::visit::{EnteredVolume, Visit};
use crate::access::may_fetch_data;

pub(super) async fn fetch_following(
    visit: &Visit,
    request: rxafs::fetch_following::Request,
    data: &mut DownloadSink<'_>,
) -> Result<rxafs::fetch_following::Reply, AbortCode> {
    visit.tally.lock().file = Some(request.now);
    let pair = (request.before, request.now);
    let next = {
        let mut trail = visit.host.trail.lock();
        visit.server.following.follow(&mut trail, pair, visit.began)
    };
    let walk = Walk {
        volume: request.now.volume,
        next: next.into_iter(),
        room: Room::new(request.entries, request.bytes, request.largest),
    };
    send(visit, walk, data).await?;
    Ok(rxafs::fetch_following::Reply {})
}

/// How far the answer is.
struct Walk {
    volume: VolumeId,
    next: vec::IntoIter<Fid>,
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

impl Walk {
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
        if length == 0 || length > largest as u64 {
            return Ok(Next::Item(status(place, visit, &look, &promise)));
        }
        if length > self.room.bytes as u64 {
            // The caller asks for the rest from here on, and gets it with its data.
            return Ok(Next::End);
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
