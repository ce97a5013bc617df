//! What hosts read next, in one answer.
// spec: trees#what-follows

use std::collections::HashSet;
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
    let volume = request.now.volume;
    let read = request.read.into_vec();
    if !read.is_empty() {
        visit
            .step_once(move |visit| learn(visit, volume, &read))
            .await?;
    }
    let following = &visit.server.following;
    let next = match request.entries {
        0 => Vec::new(),
        _ => following.after(request.before, request.now),
    };
    let room = Room::new(request.entries, request.bytes, request.largest);
    let walk = Walk {
        volume,
        next: next.into_iter(),
        asked: room.bytes,
        room,
    };
    send(visit, walk, data).await?;
    Ok(rxafs::fetch_following::Reply {})
}

/// Notes in which order the caller read this, as far as it may. Nobody teaches of what it may not read. Blocks.
// spec: trees#what-the-server-learns
fn learn(visit: &Visit, volume: VolumeId, read: &[Fid]) -> Result<(), AbortCode> {
    let mut place = visit.enter(volume)?;
    let readable: HashSet<Fid> = {
        let mut may_read = |fid: Fid| -> Result<(), AbortCode> {
            let look = place.look_only(fid)?;
            may_fetch_data(&visit.person, &look.vnode, look.grant, place.state.owner)?;
            Ok(())
        };
        let of_volume = read.iter().copied().filter(|fid| fid.volume == volume);
        of_volume.filter(|fid| may_read(*fid).is_ok()).collect()
    };
    for some in read.split(|fid| !readable.contains(fid)) {
        visit.server.following.learn(some);
    }
    Ok(())
}

/// How far the answer is.
struct Walk {
    volume: VolumeId,
    next: vec::IntoIter<Fid>,
    /// Bytes that are wanted in all.
    asked: usize,
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
