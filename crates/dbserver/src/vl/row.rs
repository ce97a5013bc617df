//! The rows of the location database: keys and values.
//!
//! Numbers are big-endian, so that rows come in the order of their numbers. Each value starts with
//! the version of its form. docs/formats/databases.md shows them.

use afar_types::AfsUuid;

/// The greatest number of a server; 255 servers are as many as VL can tell of.
pub(crate) const SERVER_MAX: u8 = 254;

/// Sites of an entry that VL can tell of.
pub(crate) const SITES_MAX: usize = 13;

/// Addresses of a server that VL keeps.
pub(crate) const ADDRESSES_MAX: usize = 15;

/// The longest volume name.
pub(crate) const NAME_MAX: usize = 64;

/// The version of every form below.
const VERSION: u8 = 1;

/// The greatest volume id of a new database.
pub(crate) const FIRST_VOLUME_ID: u32 = 0x2000_0000;

/// What all keys of VL start with.
pub(crate) const HEADER: &[u8] = b"Vh";
pub(crate) const ENTRIES: &[u8] = b"Ve";
pub(crate) const IDS: &[u8] = b"Vi";
const NAMES: &[u8] = b"Vn";
pub(crate) const SERVERS: &[u8] = b"Vs";

/// The key of the entry of this number.
pub(crate) fn entry_key(number: u32) -> [u8; 6] {
    numbered(ENTRIES, number)
}

/// The key that leads from a volume id to its entry.
pub(crate) fn id_key(id: u32, kind: usize) -> [u8; 7] {
    let mut key = [0; 7];
    key[..6].copy_from_slice(&numbered(IDS, id));
    key[6] = u8::try_from(kind).unwrap_or(u8::MAX);
    key
}

/// The key that leads from a name to its entry.
pub(crate) fn name_key(name: &[u8]) -> Vec<u8> {
    [NAMES, name].concat()
}

/// The key of the server of this number.
pub(crate) fn server_key(number: u8) -> [u8; 3] {
    [SERVERS[0], SERVERS[1], number]
}

fn numbered(table: &[u8], number: u32) -> [u8; 6] {
    let mut key = [0; 6];
    key[..2].copy_from_slice(table);
    key[2..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The number at the end of a key of [`ENTRIES`], or before the type in one of [`IDS`].
pub(crate) fn number_in(key: &[u8]) -> Option<u32> {
    key.get(2..6)?.try_into().ok().map(u32::from_be_bytes)
}

/// A place of a volume: server number, partition and flags, a byte each as in OpenAFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteBytes {
    /// Number of the server, at most 254.
    pub server: u8,
    /// Number of the partition.
    pub partition: u8,
    /// What is there: bits of [`SiteFlags`](afar_types::SiteFlags).
    pub flags: u8,
}

/// An entry as it is kept: servers are numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// Name of the read-write volume, at most 64 bytes.
    pub name: Vec<u8>,
    /// Read-write, read-only and backup id; 0 where there is none.
    pub ids: [u32; 3],
    /// Bits of [`VldbFlags`](afar_types::VldbFlags).
    pub flags: u32,
    /// The clone of a release in progress.
    pub clone_id: u32,
    /// The holder of the entry; always 0 in practice.
    pub lock_id: u32,
    /// Since when the entry is held, in seconds since 1970; 0 if it is not.
    pub lock_time: u32,
    /// Where the volumes are, at most 13.
    pub places: Vec<SiteBytes>,
}

impl Entry {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(32 + self.name.len() + 3 * self.places.len());
        row.push(VERSION);
        let words = [self.flags, self.ids[0], self.ids[1], self.ids[2]];
        for word in words
            .into_iter()
            .chain([self.clone_id, self.lock_id, self.lock_time])
        {
            row.extend_from_slice(&word.to_be_bytes());
        }
        row.push(u8::try_from(self.name.len()).unwrap_or(u8::MAX));
        row.extend_from_slice(&self.name);
        for place in &self.places {
            row.extend_from_slice(&[place.server, place.partition, place.flags]);
        }
        row
    }

    /// The entry of a row; `None` if it is none.
    pub(crate) fn decode(row: &[u8]) -> Option<Self> {
        let (&version, mut rest) = row.split_first()?;
        if version != VERSION {
            return None;
        }
        let mut word = || {
            let (word, after) = rest.split_first_chunk()?;
            rest = after;
            Some(u32::from_be_bytes(*word))
        };
        let flags = word()?;
        let ids = [word()?, word()?, word()?];
        let (clone_id, lock_id, lock_time) = (word()?, word()?, word()?);
        let (&length, rest) = rest.split_first()?;
        let (name, places) = rest.split_at_checked(usize::from(length))?;
        let (places, []) = places.as_chunks::<3>() else {
            return None;
        };
        let valid = name.len() <= NAME_MAX
            && places.len() <= SITES_MAX
            && places.iter().all(|place| place[0] <= SERVER_MAX);
        valid.then(|| Self {
            name: name.to_vec(),
            ids,
            flags,
            clone_id,
            lock_id,
            lock_time,
            places: places
                .iter()
                .map(|&[server, partition, flags]| SiteBytes {
                    server,
                    partition,
                    flags,
                })
                .collect(),
        })
    }
}

/// How a server with a UUID is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The UUID.
    pub uuid: AfsUuid,
    /// Changes when the addresses do.
    pub uniquifier: u32,
    /// Its place among the servers with UUIDs, as GetAddrs tells it: block (0 to 3) and index in
    /// it (1 to 63).
    pub slot: (u8, u8),
}

/// A file server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Server {
    /// Its UUID; none if the server is known only by the address in entries.
    pub identity: Option<Identity>,
    /// Its IPv4 addresses, at most 15; exactly one without UUID.
    pub addresses: Vec<u32>,
}

impl Server {
    /// The address entries name it by: 0 if none is left.
    #[must_use]
    pub fn address(&self) -> u32 {
        self.addresses.first().copied().unwrap_or(0)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut row = vec![VERSION, u8::from(self.identity.is_some())];
        if let Some(identity) = &self.identity {
            row.extend_from_slice(&[identity.slot.0, identity.slot.1]);
            row.extend_from_slice(&identity.uniquifier.to_be_bytes());
            row.extend_from_slice(&identity.uuid.to_bytes());
        }
        for address in &self.addresses {
            row.extend_from_slice(&address.to_be_bytes());
        }
        row
    }

    pub(crate) fn decode(row: &[u8]) -> Option<Self> {
        let (identity, addresses) = match row {
            [VERSION, 0, rest @ ..] => (None, rest),
            [VERSION, 1, block, index, rest @ ..] => {
                let (uniquifier, rest) = rest.split_first_chunk()?;
                let (uuid, rest) = rest.split_first_chunk()?;
                let identity = Identity {
                    uuid: AfsUuid::from_bytes(*uuid),
                    uniquifier: u32::from_be_bytes(*uniquifier),
                    slot: (*block, *index),
                };
                (Some(identity), rest)
            }
            _ => return None,
        };
        let (addresses, []) = addresses.as_chunks::<4>() else {
            return None;
        };
        (addresses.len() <= ADDRESSES_MAX).then(|| Self {
            identity,
            addresses: addresses.iter().map(|&a| u32::from_be_bytes(a)).collect(),
        })
    }
}

/// What is kept of the database as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Volume ids from this one on have not been given out.
    pub(crate) max_volume_id: u32,
    /// Number of the entry made last.
    pub(crate) last_entry: u32,
    /// Entries made.
    pub(crate) allocs: u32,
    /// Entries removed.
    pub(crate) frees: u32,
    /// The greatest uniquifier of a server that was removed: one that comes back must not look
    /// like before to who remembers it.
    pub(crate) uniquifier: u32,
}

impl Default for Header {
    fn default() -> Self {
        Self {
            max_volume_id: FIRST_VOLUME_ID,
            last_entry: 0,
            allocs: 0,
            frees: 0,
            uniquifier: 0,
        }
    }
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let words = [
            self.max_volume_id,
            self.last_entry,
            self.allocs,
            self.frees,
            self.uniquifier,
        ];
        let bytes = words.into_iter().flat_map(u32::to_be_bytes);
        std::iter::once(VERSION).chain(bytes).collect()
    }

    pub(crate) fn decode(row: &[u8]) -> Option<Self> {
        let (words, []) = row.strip_prefix(&[VERSION])?.as_chunks::<4>() else {
            return None;
        };
        let words: &[[u8; 4]; 5] = words.try_into().ok()?;
        let [max_volume_id, last_entry, allocs, frees, uniquifier] = words.map(u32::from_be_bytes);
        Some(Self {
            max_volume_id,
            last_entry,
            allocs,
            frees,
            uniquifier,
        })
    }
}
