//! Making, replacing, holding and removing entries (OpenAFS vlprocs.c).

use afar_net::AbortCode;
use afar_types::{VldbEntry, VldbFlags, VolumeType};

use super::codes::{
    VL_BADENTRY, VL_BADNAME, VL_BADPARTITION, VL_BADSERVER, VL_BADSERVERFLAG, VL_BADVOLIDBUMP,
    VL_ENTDELETED, VL_ENTRYLOCKED, VL_IDALREADYHASHED, VL_IDEXIST, VL_NAMEEXIST, VL_NOENT,
    VL_RERELEASE,
};
use super::row::{Entry, IDS, NAME_MAX, SiteBytes, id_key, number_in};
use super::tables::{
    any_id_exists, delete_entry, find_by_id, header, number_by_id, number_by_name, put_entry,
    put_header, server_for_address,
};
use crate::kv::{Change, View};

/// The entry is deleted and still there; only in imported databases.
const DELETED: u32 = 0x2;

/// All flags of operations that can hold an entry.
const OPERATIONS: u32 = VldbFlags::MOVE.0
    | VldbFlags::RELEASE.0
    | VldbFlags::BACKUP.0
    | VldbFlags::DELETE.0
    | VldbFlags::DUMP.0;

/// Bits of what is let go of with an entry.
// spec: afs-rpc#held-entries
const RELEASE_TIMESTAMP: i32 = 1;
const RELEASE_OPERATION: i32 = 2;
const RELEASE_AFSID: i32 = 4;

/// The greatest value of a site's flags that is taken.
const SITE_FLAGS_MAX: u32 = 0x80;

/// Whether a name may be a volume's.
pub(super) fn check_name(name: &[u8]) -> Result<(), AbortCode> {
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if name.len() <= NAME_MAX && name.iter().all(legal) {
        Ok(())
    } else {
        Err(VL_BADNAME)
    }
}

/// A partition's number as it is kept.
pub(super) fn check_partition(number: u32) -> Result<u8, AbortCode> {
    u8::try_from(number).map_err(|_| VL_BADPARTITION)
}

/// A site's flags as they are kept.
pub(super) fn check_site_flags(flags: u32) -> Result<u8, AbortCode> {
    match u8::try_from(flags) {
        Ok(byte) if flags <= SITE_FLAGS_MAX => Ok(byte),
        _ => Err(VL_BADSERVERFLAG),
    }
}

/// An entry that a caller sent, checked as far as it can be without the database.
#[derive(Debug, Clone)]
pub(super) struct Proposed {
    name: Vec<u8>,
    ids: [u32; 3],
    flags: u32,
    clone_id: u32,
    /// Address, partition, flags.
    sites: Vec<(u32, u8, u8)>,
}

impl Proposed {
    /// Takes an entry whose sites are given by address, as the forms that can be sent have them.
    pub(super) fn new(entry: &VldbEntry) -> Result<Self, AbortCode> {
        check_name(entry.name.as_bytes())?;
        if entry.sites.is_empty() {
            return Err(VL_BADSERVER);
        }
        let site = |site: &afar_types::Site| {
            let afar_types::SiteServer::Address(address) = site.server else {
                return Err(VL_BADSERVER);
            };
            let partition = check_partition(site.partition.0)?;
            Ok((address.into(), partition, check_site_flags(site.flags.0)?))
        };
        Ok(Self {
            name: entry.name.as_bytes().to_vec(),
            ids: entry.volume_ids.map(|id| id.0),
            flags: entry.flags.0,
            clone_id: entry.clone_id.0,
            sites: entry.sites.iter().map(site).collect::<Result<_, _>>()?,
        })
    }

    /// The entry with servers by number; those not known yet are noted.
    fn resolve(&self, change: &mut Change<'_>) -> Result<Entry, AbortCode> {
        let mut places = Vec::with_capacity(self.sites.len());
        for &(address, partition, flags) in &self.sites {
            places.push(SiteBytes {
                server: server_for_address(change, address)?,
                partition,
                flags,
            });
        }
        Ok(Entry {
            name: self.name.clone(),
            ids: self.ids,
            flags: self.flags,
            clone_id: self.clone_id,
            lock_id: 0,
            lock_time: 0,
            places,
        })
    }
}

/// CreateEntry, CreateEntryN.
pub(super) fn create(change: &mut Change<'_>, proposed: &Proposed) -> Result<(), AbortCode> {
    let view = change.view();
    if any_id_exists(&view, proposed.ids)? {
        return Err(VL_IDEXIST);
    }
    if number_by_name(&view, &proposed.name)?.is_some() {
        return Err(VL_NAMEEXIST);
    }
    // Only one entry can have no read-write id.
    if number_by_id(&view, proposed.ids[0], 0)?.is_some() {
        return Err(VL_IDALREADYHASHED);
    }
    let mut header = header(&view)?;
    let entry = proposed.resolve(change)?;
    append(change, &mut header, &entry)?;
    put_header(change, &header)
}

/// Writes a new entry under the next number.
pub(super) fn append(
    change: &mut Change<'_>,
    header: &mut super::row::Header,
    entry: &Entry,
) -> Result<u32, AbortCode> {
    // Numbers are positive in VL's answers.
    let number = header.last_entry + 1;
    if i32::try_from(number).is_err() {
        return Err(super::codes::VL_REPSFULL);
    }
    header.last_entry = number;
    header.allocs = header.allocs.saturating_add(1);
    put_entry(change, number, None, entry)?;
    Ok(number)
}

/// The entry that a request to change one is about.
fn wanted(
    view: &View<'_>,
    volume: u32,
    kind: Option<VolumeType>,
) -> Result<(u32, Entry), AbortCode> {
    find_by_id(view, volume, kind)?.ok_or(VL_NOENT)
}

/// The same, if it is not deleted.
fn wanted_alive(
    view: &View<'_>,
    volume: u32,
    kind: Option<VolumeType>,
) -> Result<(u32, Entry), AbortCode> {
    let found = wanted(view, volume, kind)?;
    if found.1.flags & DELETED != 0 {
        return Err(VL_ENTDELETED);
    }
    Ok(found)
}

/// Refuses an entry that is marked as deleted.
pub(super) fn alive(found: Option<(u32, Entry)>) -> Result<Entry, AbortCode> {
    match found {
        Some((_, entry)) if entry.flags & DELETED != 0 => Err(VL_ENTDELETED),
        Some((_, entry)) => Ok(entry),
        None => Err(VL_NOENT),
    }
}

/// DeleteEntry.
pub(super) fn delete(
    change: &mut Change<'_>,
    volume: u32,
    kind: Option<VolumeType>,
) -> Result<(), AbortCode> {
    let (number, entry) = wanted_alive(&change.view(), volume, kind)?;
    delete_entry(change, number, &entry)?;
    let mut header = header(&change.view())?;
    header.frees = header.frees.saturating_add(1);
    put_header(change, &header)
}

/// How strictly a new entry is compared with the others: ReplaceEntry looks for its ids among all
/// types, ReplaceEntryN only where they would be in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Uniqueness {
    /// ReplaceEntry.
    AnyType,
    /// ReplaceEntryN.
    SameType,
}

/// ReplaceEntry, ReplaceEntryN. Unlike OpenAFS, the latter too refuses a name that another entry
/// has: one of the two could not be found any more.
pub(super) fn replace(
    change: &mut Change<'_>,
    volume: u32,
    kind: Option<VolumeType>,
    proposed: &Proposed,
    release: i32,
    uniqueness: Uniqueness,
) -> Result<(), AbortCode> {
    let view = change.view();
    let (number, old) = wanted(&view, volume, kind)?;
    if proposed.ids[0] != old.ids[0] {
        return Err(VL_BADENTRY);
    }
    let changed: [u32; 3] = std::array::from_fn(|kind| match proposed.ids[kind] {
        new if kind != 0 && new != old.ids[kind] => new,
        _ => 0,
    });
    if uniqueness == Uniqueness::AnyType && any_id_exists(&view, changed)? {
        return Err(VL_IDEXIST);
    }
    if proposed.name != old.name && number_by_name(&view, &proposed.name)?.is_some() {
        return Err(VL_NAMEEXIST);
    }
    for (kind, id) in changed.into_iter().enumerate() {
        if id != 0 && number_by_id(&view, id, kind)?.is_some() {
            return Err(VL_IDALREADYHASHED);
        }
    }
    let mut new = proposed.resolve(change)?;
    (new.lock_id, new.lock_time) = (old.lock_id, old.lock_time);
    let_go(&mut new, release);
    put_entry(change, number, Some(&old), &new)
}

/// Lets go of an entry as far as `release` says.
pub(super) fn let_go(entry: &mut Entry, release: i32) {
    if release & RELEASE_TIMESTAMP != 0 {
        entry.lock_time = 0;
    }
    if release & RELEASE_OPERATION != 0 {
        entry.flags &= !OPERATIONS;
    }
    if release & RELEASE_AFSID != 0 {
        entry.lock_id = 0;
    }
}

/// SetLock. Locks do not expire. An operation other than exactly one is the caller's to refuse.
pub(super) fn lock(
    change: &mut Change<'_>,
    volume: u32,
    kind: Option<VolumeType>,
    operation: u32,
    now: u32,
) -> Result<(), AbortCode> {
    let (number, old) = wanted_alive(&change.view(), volume, kind)?;
    if old.lock_time != 0 {
        return Err(VL_ENTRYLOCKED);
    }
    // spec: afs-rpc#held-entries
    if old.flags & VldbFlags::RELEASE.0 != 0 {
        return Err(VL_RERELEASE);
    }
    let new = Entry {
        lock_time: now,
        lock_id: 0,
        flags: old.flags & !OPERATIONS | operation,
        ..old.clone()
    };
    put_entry(change, number, Some(&old), &new)
}

/// ReleaseLock.
pub(super) fn unlock(
    change: &mut Change<'_>,
    volume: u32,
    kind: Option<VolumeType>,
    release: i32,
) -> Result<(), AbortCode> {
    let (number, old) = wanted_alive(&change.view(), volume, kind)?;
    let mut new = old.clone();
    let_go(&mut new, release);
    put_entry(change, number, Some(&old), &new)
}

/// Whether exactly one operation is named.
pub(super) fn is_operation(operation: u32) -> bool {
    operation.is_power_of_two() && operation & OPERATIONS != 0
}

/// Whether `release` names something, or nothing at all.
pub(super) fn is_release(release: i32) -> bool {
    let all = RELEASE_TIMESTAMP | RELEASE_OPERATION | RELEASE_AFSID;
    release == 0 || release & all != 0
}

/// GetNewVolumeId: the first of `count` ids in a row that no entry has.
pub(super) fn new_volume_ids(change: &mut Change<'_>, count: u32) -> Result<u32, AbortCode> {
    let view = change.view();
    let mut header = header(&view)?;
    let mut first = header.max_volume_id;
    for row in view.range(&id_key(first, 0), IDS) {
        let (key, _) = row?;
        let used = number_in(key).ok_or(super::codes::VL_DBBAD)?;
        if used.checked_sub(first).is_some_and(|gap| gap >= count) {
            break;
        }
        first = used.checked_add(1).ok_or(VL_BADVOLIDBUMP)?;
    }
    header.max_volume_id = first.checked_add(count).ok_or(VL_BADVOLIDBUMP)?;
    put_header(change, &header)?;
    Ok(first)
}
