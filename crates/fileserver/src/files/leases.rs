//! What clients say of leases beside batches: they keep them, wish for some, and claim them after a restart.
// spec: leases#messages

use std::collections::BTreeMap;
use std::time::Instant;

use afar_lease::wire::{self, Block, Claim, Lease};
use afar_net::AbortCode;
use afar_rpc::rxafs;
use afar_store::Volume;
use afar_types::{Fid, FileType, Rights, VolumeId, VolumeType};
use afar_xdr::{Encode, List, Opaque, to_bytes};

use super::visit::{Look, Visit};
use crate::leases::read_note;

/// Claimed leases that are looked at in one step.
const AT_ONCE: usize = 256;

pub(super) async fn keep_leases(
    visit: &Visit,
    request: rxafs::keep_leases::Request,
) -> Result<rxafs::keep_leases::Reply, AbortCode> {
    // spec: afs-rpc#unknown-operations
    let unknown = AbortCode::RXGEN_OPCODE;
    if !visit.leases.is_on() {
        return Err(unknown);
    }
    let note = read_note(&request.note)?.ok_or(AbortCode::RXGEN_SS_UNMARSHAL)?;
    visit.leases.hear(&note);
    let wishes = note.wishes.to_vec();
    let first = wishes.first().map(|fid| fid.volume);
    let mut word = answer(visit, wishes.clone(), note.reserve)
        .await?
        .ok_or(unknown)?;
    if let Some(volume) = first.filter(|_| word.grants.is_empty())
        && visit.leases.row_is_durable(volume).await
    {
        word = answer(visit, wishes, note.reserve).await?.ok_or(unknown)?;
    }
    let word = message(&word)?;
    Ok(rxafs::keep_leases::Reply { word })
}

/// A message as it is sent.
pub(super) fn message<const MAX: usize>(message: &impl Encode) -> Result<Opaque<MAX>, AbortCode> {
    Opaque::new(&to_bytes(message)[..]).map_err(|_| AbortCode::RXGEN_SS_MARSHAL)
}

/// The answer to a call's note: which of its wishes are granted, and fids with that. Nothing without a note.
pub(super) async fn answer(
    visit: &Visit,
    wishes: Vec<Fid>,
    reserve: u32,
) -> Result<Option<wire::Word>, AbortCode> {
    visit
        .step_once(move |visit| {
            let wishes: Vec<(Fid, bool)> = wishes
                .into_iter()
                .filter(|fid| visit.leases.enter_freely(*fid))
                .map(|fid| {
                    (
                        fid,
                        may_change(visit, fid) == Some(true) && !is_locked(visit, fid),
                    )
                })
                .collect();
            let (hosts, host) = (&visit.server.hosts, &visit.host);
            let Some(mut word) = visit.leases.answer(hosts, host, &wishes) else {
                return Ok(None);
            };
            if let Some(first) = word.grants.first().filter(|_| reserve > 0)
                && let Ok(place) = visit.enter(first.fid.volume)
            {
                let volume: Volume = place.volume().clone();
                visit.leases.reserve(&volume, reserve, &mut word);
            }
            Ok(Some(word))
        })
        .await
}

/// Whether anybody has a lock of a file. Others will look at such a file soon, and have a lease recalled while programs of its
/// holder look at it under the lock.
// spec: leases#grant
fn is_locked(visit: &Visit, fid: Fid) -> bool {
    visit.server.locks.count(fid, Instant::now()) != 0
}

/// Whether the caller may change a vnode; nothing if there is none, or its volume takes no changes. Blocks.
// spec: leases#grant
fn may_change(visit: &Visit, fid: Fid) -> Option<bool> {
    let mut place = visit.enter(fid.volume).ok()?;
    let look = place.look_only(fid).ok()?;
    Some(place.state.kind == VolumeType::ReadWrite && may(&look))
}

fn may(look: &Look) -> bool {
    let needed = match look.vnode.file_type {
        FileType::Directory => Rights::INSERT | Rights::DELETE,
        FileType::File => Rights::WRITE,
        _ => return false,
    };
    look.grant.own.contains(needed)
}

// spec: leases#restart-of-the-server
pub(super) async fn claim_leases(
    visit: &Visit,
    request: rxafs::claim_leases::Request,
) -> Result<rxafs::claim_leases::Reply, AbortCode> {
    if !visit.leases.is_on() {
        return Err(AbortCode::RXGEN_OPCODE);
    }
    let claim = wire::decode::<Claim>(&request.claim);
    let mut claim = claim.map_err(|_| AbortCode::RXGEN_SS_UNMARSHAL)?;
    drop(request);
    let mut volumes = BTreeMap::new();
    // Of any other claim nothing is looked at.
    if visit.leases.is_awaited(claim.session) {
        let mut looked = Vec::with_capacity(claim.leases.len());
        for leases in claim.leases.chunks(AT_ONCE) {
            let leases = leases.to_vec();
            let step = move |visit: &Visit| Ok(without_foreign(visit, leases));
            looked.extend(visit.step_once(step).await?);
        }
        claim.leases = List::new(looked).unwrap_or_default();
        let blocks = claim.blocks.to_vec();
        let session = claim.session;
        let step = move |visit: &Visit| Ok(claimable(visit, session, blocks));
        let (blocks, its) = visit.step_once(step).await?;
        claim.blocks = List::new(blocks).unwrap_or_default();
        volumes = its;
    }
    let claimed = visit.leases.claim(&claim, &volumes)?;
    let claimed = message(&claimed)?;
    Ok(rxafs::claim_leases::Reply { claimed })
}

/// In the place of what the caller may not change is something that nobody has. Their places are told by number. Blocks.
fn without_foreign(visit: &Visit, leases: Vec<Lease>) -> Vec<Lease> {
    let of_nobody = |lease: Lease| Lease {
        fid: Fid::new(lease.fid.volume.0, 0, 0),
        ..lease
    };
    let looked = leases.into_iter().map(|lease| {
        // One that its holder bore and the server has not seen yet is claimed, too: it is of no use to anybody else.
        match may_change(visit, lease.fid) {
            Some(false) => of_nobody(lease),
            _ => lease,
        }
    });
    looked.collect()
}

/// What of claimed blocks may be granted, and the volumes they are in. Blocks.
fn claimable(
    visit: &Visit,
    session: u64,
    blocks: Vec<Block>,
) -> (Vec<Block>, BTreeMap<VolumeId, Volume>) {
    let (mut left, mut volumes) = (Vec::new(), BTreeMap::new());
    for block in blocks {
        let Ok(place) = visit.enter(block.volume) else {
            continue;
        };
        if let Some(block) = visit.leases.claimable(session, place.volume(), &block) {
            left.push(block);
            volumes.insert(block.volume, place.volume().clone());
        }
    }
    (left, volumes)
}
