//! UpdateEntry and UpdateEntryByName: parts of an entry (OpenAFS `get_vldbupdateentry`).

use afar_net::AbortCode;
use afar_types::{VldbUpdateEntry, VolumeType};

use super::codes::{
    VL_BADNAME, VL_BADSERVER, VL_DUPREPSERVER, VL_IDALREADYHASHED, VL_IDEXIST, VL_NAMEEXIST,
    VL_NOENT, VL_NOREPSERVER, VL_REPSFULL,
};
use super::entries::{check_name, check_partition, check_site_flags, let_go};
use super::row::{Entry, NAME_MAX, SiteBytes};
use super::tables::{
    any_id_exists, find_by_id, find_by_name, number_by_id, number_by_name, put_entry,
    server_for_address,
};
use crate::kv::Change;

/// Sites that these operations know of.
const SITES: usize = 8;

/// Which entry is changed.
#[derive(Debug, Clone)]
pub(super) enum Which {
    /// By id.
    Id(u32, Option<VolumeType>),
    /// By name, which is not taken for an id.
    Name(Vec<u8>),
}

/// Changes the fields that count, and lets go of the entry as far as `release` says.
pub(super) fn update(
    change: &mut Change<'_>,
    which: &Which,
    update: &VldbUpdateEntry,
    release: i32,
) -> Result<(), AbortCode> {
    let view = change.view();
    let found = match which {
        Which::Id(id, kind) => find_by_id(&view, *id, *kind)?,
        Which::Name(name) if name.len() > NAME_MAX => return Err(VL_BADNAME),
        Which::Name(name) => find_by_name(&view, name)?,
    };
    let (number, old) = found.ok_or(VL_NOENT)?;
    let mut new = old.clone();
    fields(change, update, &old, &mut new)?;
    if update.mask & VldbUpdateEntry::SITES != 0 {
        sites(change, update, &mut new)?;
    }
    let_go(&mut new, release);
    put_entry(change, number, Some(&old), &new)
}

fn fields(
    change: &Change<'_>,
    update: &VldbUpdateEntry,
    old: &Entry,
    new: &mut Entry,
) -> Result<(), AbortCode> {
    let view = change.view();
    let counts = |bit: u32| update.mask & bit != 0;
    let given = [
        (VldbUpdateEntry::READ_WRITE_ID, update.spare),
        (VldbUpdateEntry::READ_ONLY_ID, update.read_only_id.0),
        (VldbUpdateEntry::BACKUP_ID, update.backup_id.0),
    ];
    if any_id_exists(
        &view,
        given.map(|(bit, id)| if counts(bit) { id } else { 0 }),
    )? {
        return Err(VL_IDEXIST);
    }
    if counts(VldbUpdateEntry::NAME) {
        let name = update.name.as_bytes();
        check_name(name)?;
        if number_by_name(&view, name)?.is_some() {
            return Err(VL_NAMEEXIST);
        }
        new.name = name.to_vec();
    }
    if counts(VldbUpdateEntry::FLAGS) {
        new.flags = update.flags.0;
    }
    if counts(VldbUpdateEntry::CLONE_ID) {
        new.clone_id = update.clone_id.0;
    }
    for (kind, (bit, id)) in given.into_iter().enumerate() {
        if counts(bit) {
            if kind == 0 && id != old.ids[0] && number_by_id(&view, id, 0)?.is_some() {
                return Err(VL_IDALREADYHASHED);
            }
            new.ids[kind] = id;
        }
    }
    Ok(())
}

/// The place of the site that is at this server and partition.
fn site_at(
    change: &mut Change<'_>,
    entry: &Entry,
    address: u32,
    partition: u32,
) -> Result<Option<usize>, AbortCode> {
    let server = server_for_address(change, address)?;
    let mut known = entry.places.iter().take(SITES);
    Ok(known.position(|place| place.server == server && u32::from(place.partition) == partition))
}

fn sites(
    change: &mut Change<'_>,
    update: &VldbUpdateEntry,
    entry: &mut Entry,
) -> Result<(), AbortCode> {
    let count = usize::try_from(update.n_modified_sites).unwrap_or(usize::MAX);
    if !(1..=SITES).contains(&count) {
        return Err(VL_BADSERVER);
    }
    for slot in 0..count {
        let target = (
            update.site_target_server[slot],
            update.site_target_partition[slot].0,
        );
        check_partition(target.1)?;
        let does = |bit: u32| update.site_mask[slot] & bit != 0;
        let find = |change: &mut Change<'_>, entry: &Entry| {
            site_at(change, entry, target.0, target.1)?.ok_or(VL_NOREPSERVER)
        };
        if does(VldbUpdateEntry::SITE_DELETE) {
            let at = find(change, entry)?;
            entry.places.remove(at);
        }
        if does(VldbUpdateEntry::SITE_ADD) {
            add(change, update, slot, entry)?;
        }
        if does(VldbUpdateEntry::SITE_SERVER) {
            let at = find(change, entry)?;
            entry.places[at].server = server_for_address(change, update.site_new_server[slot])?;
        }
        if does(VldbUpdateEntry::SITE_PARTITION) {
            let partition = check_partition(update.site_new_partition[slot].0)?;
            let at = find(change, entry)?;
            entry.places[at].partition = partition;
        }
        if does(VldbUpdateEntry::SITE_FLAGS) {
            let at = find(change, entry)?;
            entry.places[at].flags = check_site_flags(update.site_new_flags[slot].0)?;
        }
    }
    Ok(())
}

fn add(
    change: &mut Change<'_>,
    update: &VldbUpdateEntry,
    slot: usize,
    entry: &mut Entry,
) -> Result<(), AbortCode> {
    let address = update.site_new_server[slot];
    let partition = check_partition(update.site_new_partition[slot].0)?;
    if site_at(change, entry, address, partition.into())?.is_some() {
        return Err(VL_DUPREPSERVER);
    }
    if entry.places.len() >= SITES {
        return Err(VL_REPSFULL);
    }
    entry.places.push(SiteBytes {
        server: server_for_address(change, address)?,
        partition,
        flags: check_site_flags(update.site_new_flags[slot].0)?,
    });
    Ok(())
}
