//! What hosts read next, in one answer.
// spec: trees#what-follows

use std::collections::HashSet;

use afar_net::AbortCode;
use afar_rpc::{DownloadSink, rxafs};
use afar_types::{Fid, VolumeId};

use super::items::{Room, send};
use super::listed::Listed;
use super::visit::Visit;
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
    send(visit, Listed::new(volume, next, room), data).await?;
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
