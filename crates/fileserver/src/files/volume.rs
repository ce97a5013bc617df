//! Volumes as clients see them: quota, usage, messages.

use std::path::Path;

use afar_net::AbortCode;
use afar_rpc::rxafs;
use afar_store::{Volume, VolumeChange};
use afar_types::{FetchVolumeStatus, StoreVolumeStatus, VolumeType};
use afar_xdr::XdrString;

use super::visit::{Visit, failed};
use crate::abort::errno;
use crate::space::DiskSpace;

/// KiB as status words carry them: 31 bits, as old clients take the words for signed.
// spec: afs-rpc#volume-status
fn clamped(kib: u64) -> u32 {
    u32::try_from(kib.min(i32::MAX.unsigned_abs().into())).unwrap_or_default()
}

/// A partition's space, as the volume server tells it too.
pub(super) fn disk_space(path: &Path) -> Result<DiskSpace, AbortCode> {
    DiskSpace::of(path).map_err(|error| {
        tracing::error!(path = %path.display(), %error, "looking at a partition's disk");
        AbortCode(errno::EIO)
    })
}

/// The part of a text that fits.
fn text<const MAX: usize>(bytes: &[u8]) -> Result<XdrString<MAX>, AbortCode> {
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    XdrString::new(&bytes[..end.min(MAX)]).map_err(|_| AbortCode::RXGEN_SS_MARSHAL)
}

pub(super) async fn get_volume_status(
    visit: &Visit,
    request: rxafs::get_volume_status::Request,
) -> Result<rxafs::get_volume_status::Reply, AbortCode> {
    visit
        .step(move |visit| {
            let place = visit.enter(request.volume)?;
            let state = place.volume().state().map_err(failed)?;
            let disk = disk_space(place.volume().partition().path())?;
            let status = FetchVolumeStatus {
                volume: state.id,
                parent: state.parent,
                online: state.online,
                in_service: state.in_service,
                blessed: state.blessed,
                needs_salvage: false,
                kind: u32::from(state.kind == VolumeType::ReadWrite),
                min_quota: clamped(state.min_quota),
                max_quota: clamped(state.max_quota),
                blocks_in_use: clamped(state.disk_used),
                partition_blocks_available: clamped(disk.free),
                partition_max_blocks: clamped(disk.total),
            };
            Ok(rxafs::get_volume_status::Reply {
                status,
                name: text(state.name.as_bytes())?,
                offline_message: text(&state.offline_message)?,
                message_of_the_day: text(&state.motd)?,
            })
        })
        .await
}

/// Sets quotas and messages, for administrators. A volume's name is changed by the volume server,
/// which the VLDB follows; the one given here is ignored.
pub(super) async fn set_volume_status(
    visit: &Visit,
    request: rxafs::set_volume_status::Request,
) -> Result<rxafs::set_volume_status::Reply, AbortCode> {
    visit
        .step_once(move |visit| {
            // Of clones as well: what is set is the volume's and not of what is in it.
            let place = visit.enter(request.volume)?;
            if !visit.person.is_administrator() {
                return Err(AbortCode(errno::EACCES));
            }
            let volume: Volume = place.volume().clone();
            volume.change(change_of(request)).map_err(failed)?;
            Ok(rxafs::set_volume_status::Reply {})
        })
        .await
}

fn change_of(request: rxafs::set_volume_status::Request) -> VolumeChange {
    let wanted = request.status;
    let quota = |bit, quota: u32| (wanted.mask & bit != 0).then_some(u64::from(quota));
    let text = |text: XdrString<1024>| {
        let bytes = text.into_bytes();
        (!bytes.is_empty()).then_some(bytes)
    };
    VolumeChange {
        min_quota: quota(StoreVolumeStatus::SET_MIN_QUOTA, wanted.min_quota),
        max_quota: quota(StoreVolumeStatus::SET_MAX_QUOTA, wanted.max_quota),
        offline_message: text(request.offline_message),
        motd: text(request.message_of_the_day),
        ..VolumeChange::default()
    }
}
