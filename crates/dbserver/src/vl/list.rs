//! Listing entries by their attributes (OpenAFS vlprocs.c).

use afar_net::AbortCode;
use afar_types::{ListByAttributes, NvldbEntry, SiteFlags, VldbEntryO, VldbFlags};
use regex::bytes::Regex;

use super::codes::{VL_NOENT, VL_SIZEEXCEEDED};
use super::form::{to_nvldb, to_vldb_o};
use super::row::{Entry, SITES_MAX};
use super::tables::{Found, Servers, entries_after, find_by_id, server_by_address, servers};
use crate::kv::View;

/// Attributes that count.
const SERVER: u32 = 0x1;
const PARTITION: u32 = 0x2;
const VOLUME: u32 = 0x8;
const FLAG: u32 = 0x10;

/// Entries in a part of a list.
const PART: usize = 500;

/// A part of a list, and the place after which it goes on.
pub(super) type Part = (Vec<NvldbEntry>, Option<u32>);

/// What has to be so of an entry, the volume id apart.
struct Filter {
    server: Option<u8>,
    partition: Option<u32>,
    flag: Option<u32>,
}

impl Filter {
    /// `None` if a server is asked for that is not known: nothing is there then.
    fn new(wanted: &ListByAttributes, servers: &Servers) -> Option<Self> {
        let given = |bit: u32| wanted.mask & bit != 0;
        let server = if given(SERVER) {
            Some(server_by_address(servers, wanted.server)?)
        } else {
            None
        };
        Some(Self {
            server,
            partition: given(PARTITION).then_some(wanted.partition.0),
            flag: given(FLAG).then_some(wanted.flag),
        })
    }

    fn flag_fits(&self, entry: &Entry) -> bool {
        self.flag.is_none_or(|flag| entry.flags & flag != 0)
    }

    /// The older rule: a server and a partition are compared with the first site at that server
    /// only.
    fn fits(&self, entry: &Entry, sites: usize) -> bool {
        let mut places = entry.places.iter().take(sites);
        let partition = |number: u8| self.partition.is_none_or(|p| p == u32::from(number));
        let at = match self.server {
            Some(server) => places
                .find(|place| place.server == server)
                .is_some_and(|place| partition(place.partition)),
            None => self.partition.is_none() || places.any(|place| partition(place.partition)),
        };
        at && self.flag_fits(entry)
    }
}

/// The one entry that is asked for by a volume id, or all that fit, at most `limit`.
fn older<T>(
    view: &View<'_>,
    wanted: &ListByAttributes,
    (sites, limit): (usize, usize),
    form: impl Fn(&Entry, &Servers) -> Result<T, AbortCode>,
) -> Result<Vec<T>, AbortCode> {
    let servers = servers(view)?;
    if wanted.mask & VOLUME != 0 {
        let (_, entry) = find_by_id(view, wanted.volume.0, None)?.ok_or(VL_NOENT)?;
        return Ok(vec![form(&entry, &servers)?]);
    }
    let Some(filter) = Filter::new(wanted, &servers) else {
        return Ok(Vec::new());
    };
    let mut list = Vec::new();
    for found in entries_after(view, 0) {
        let (_, entry) = found?;
        if filter.fits(&entry, sites) {
            if list.len() == limit {
                return Err(VL_SIZEEXCEEDED);
            }
            list.push(form(&entry, &servers)?);
        }
    }
    Ok(list)
}

/// ListAttributes, LinkedList: these look at the first 8 sites.
pub(super) fn list_o(
    view: &View<'_>,
    wanted: &ListByAttributes,
    limit: usize,
) -> Result<Vec<VldbEntryO>, AbortCode> {
    older(view, wanted, (8, limit), to_vldb_o)
}

/// ListAttributesN, LinkedListN.
pub(super) fn list_n(
    view: &View<'_>,
    wanted: &ListByAttributes,
    limit: usize,
) -> Result<Vec<NvldbEntry>, AbortCode> {
    older(view, wanted, (SITES_MAX, limit), to_nvldb)
}

/// ListEntry, ListEntryN: the entry after this place, with an estimate of how many follow it.
pub(super) fn next(
    view: &View<'_>,
    after: u32,
    last: u32,
) -> Result<Option<(Found, u32)>, AbortCode> {
    match entries_after(view, after).next() {
        Some(found) => {
            let found = found?;
            let remaining = last.saturating_sub(found.0);
            Ok(Some((found, remaining)))
        }
        None => Ok(None),
    }
}

/// ListAttributesN2.
pub(super) fn part(
    view: &View<'_>,
    wanted: &ListByAttributes,
    name: Option<&Regex>,
    after: u32,
) -> Result<Part, AbortCode> {
    let servers = servers(view)?;
    if wanted.mask & VOLUME != 0 {
        let (_, entry) = find_by_id(view, wanted.volume.0, None)?.ok_or(VL_NOENT)?;
        return Ok((vec![to_nvldb(&entry, &servers)?], None));
    }
    let Some(filter) = Filter::new(wanted, &servers) else {
        return Ok((Vec::new(), None));
    };
    let mut list = Vec::new();
    for found in entries_after(view, after) {
        let (number, entry) = found?;
        let Some(matched) = best_site(&entry, &filter, name) else {
            continue;
        };
        let mut form = to_nvldb(&entry, &servers)?;
        form.match_index = matched;
        list.push(form);
        if list.len() == PART {
            return Ok((list, Some(number)));
        }
    }
    Ok((list, None))
}

/// Which site of an entry is meant, in the lower half, and which volume there, in the upper one.
///
/// The last read-only site that fits is taken, unless a read-write site comes first or fits later:
/// that one stands for the read-write volume or, if that does not fit, for the backup.
fn best_site(entry: &Entry, filter: &Filter, name: Option<&Regex>) -> Option<u32> {
    if !filter.flag_fits(entry) {
        return None;
    }
    let named = |suffix: &str| {
        name.is_none_or(|name| name.is_match(&[&entry.name, suffix.as_bytes()].concat()))
    };
    let exists = |flag: VldbFlags| entry.flags & flag.0 != 0;
    let read_write = if exists(VldbFlags::READ_WRITE_EXISTS) && named("") {
        Some(SiteFlags::READ_WRITE)
    } else if exists(VldbFlags::BACKUP_EXISTS) && named(".backup") {
        Some(SiteFlags::BACKUP)
    } else {
        None
    };
    let read_only = named(".readonly").then_some(SiteFlags::READ_ONLY);
    let (mut matched, mut tried_read_write) = (None, false);
    for (index, place) in (0u32..).zip(&entry.places) {
        let flags = SiteFlags(place.flags.into());
        let volume = if flags.contains(SiteFlags::READ_WRITE) {
            tried_read_write = true;
            read_write
        } else if flags.contains(SiteFlags::READ_ONLY) {
            read_only
        } else {
            None
        };
        let here = filter.server.is_none_or(|server| server == place.server)
            && filter
                .partition
                .is_none_or(|partition| partition == u32::from(place.partition));
        if let Some(volume) = volume.filter(|_| here) {
            matched = Some(volume.0 << 16 | index);
        }
        if matched.is_some() && tried_read_write {
            break;
        }
    }
    matched
}
