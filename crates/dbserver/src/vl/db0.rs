//! OpenAFS's own file of the location database, `vldb.DB0`: reading and writing it.
//!
//! The file is ubik's header of 64 bytes, then the database (OpenAFS vlserver.p.h): a header with
//! server addresses and hash tables, blocks of servers with several addresses, and entries of 148
//! bytes in chains. Addresses in the file count from the end of ubik's header. All numbers are
//! big-endian. What is read here is versions 3 and 4; what is written is version 4.

use std::io::{self, Read};

use afar_types::AfsUuid;

use super::load::Vldb;
use super::row::{
    ADDRESSES_MAX, Entry, Identity, NAME_MAX, SERVER_MAX, SITES_MAX, Server, SiteBytes,
};

/// Ubik's header: its magic number, its length; and the length of its pages.
const UBIK_MAGIC: u32 = 0x0035_4545;
const UBIK_LEN: usize = 64;
const UBIK_PAGE: usize = 1024;

const VERSIONS: [u32; 2] = [3, 4];
/// Chains of each hash table.
const HASH_SIZE: usize = 8191;
/// Where the parts of the header are.
const MAPPED_AT: usize = 40;
const NAME_HASH_AT: usize = MAPPED_AT + 255 * 4;
const ID_HASH_AT: usize = NAME_HASH_AT + HASH_SIZE * 4;
const EXTENTS_AT: usize = ID_HASH_AT + 3 * HASH_SIZE * 4;
pub(super) const HEADER_LEN: usize = EXTENTS_AT + 4;

const ENTRY_LEN: usize = 148;
const NAME_AT: usize = 44;
const PLACES_AT: usize = NAME_AT + 65;
const NO_SERVER: u8 = 255;

/// A block of servers with several addresses, and one of them. The first of a block is its head.
const BLOCK_LEN: usize = 8192;
const EXTENT_LEN: usize = 128;
const BLOCKS: usize = 4;

/// Flags of places in the file: free, and the beginning of a block.
const FREE: u32 = 1;
const BLOCK: u32 = 8;

/// The longest file: addresses in it are positive words.
const FILE_MAX: u64 = 1 << 31;

/// Why a file cannot be read or written as a location database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Db0Error {
    /// The file cannot be read.
    #[error("the file cannot be read")]
    Io(#[from] io::Error),
    /// It is no location database.
    #[error("this is no location database of OpenAFS: {0}")]
    Not(&'static str),
    /// It is one that has not been written since 1995 or so.
    #[error("the location database has version {0}; 3 and 4 can be read")]
    Version(u32),
    /// It is damaged.
    #[error("the location database is damaged at byte {at}: {what} (vldb_check may repair it)")]
    Damaged {
        /// Where, without ubik's header.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The database does not fit into a file of this kind.
    #[error("the database has more than fits into a vldb.DB0: {0}")]
    TooMuch(&'static str),
}

/// Reads a `vldb.DB0`; at most 2 GiB, which is as long as it can be.
///
/// # Errors
/// When it cannot be read, is none, or is damaged.
pub fn import_vldb(from: &mut impl Read) -> Result<Vldb, Db0Error> {
    let mut file = Vec::new();
    from.take(FILE_MAX).read_to_end(&mut file)?;
    decode(&file)
}

/// The database in a `vldb.DB0`. Never panics, and takes no more memory than a few times the
/// file.
///
/// # Errors
/// When it is none, or is damaged.
pub fn decode(file: &[u8]) -> Result<Vldb, Db0Error> {
    let (ubik, data) = file
        .split_at_checked(UBIK_LEN)
        .ok_or(Db0Error::Not("it is shorter than ubik's header"))?;
    let data = Data(data);
    if Data(ubik).word(0)? != UBIK_MAGIC {
        return Err(Db0Error::Not("it does not start as ubik's databases do"));
    }
    let version = data.word(0)?;
    if !VERSIONS.contains(&version) {
        return Err(Db0Error::Version(version));
    }
    if data.place(4)? != HEADER_LEN {
        return Err(Db0Error::Not("its header has another length"));
    }
    let end = data.place(12)?;
    if end > data.0.len() || end < HEADER_LEN {
        return Err(data.damaged(12, "the end is not in the file"));
    }
    Ok(Vldb {
        max_volume_id: data.word(24)?,
        servers: data.servers()?,
        entries: data.entries(end)?,
    })
}

/// The database's part of a file.
struct Data<'a>(&'a [u8]);

impl<'a> Data<'a> {
    fn damaged(&self, at: usize, what: &'static str) -> Db0Error {
        Db0Error::Damaged { at, what }
    }

    fn bytes(&self, at: usize, length: usize) -> Result<&'a [u8], Db0Error> {
        let part = at.checked_add(length).and_then(|end| self.0.get(at..end));
        part.ok_or(Db0Error::Damaged {
            at,
            what: "the file ends too early",
        })
    }

    fn word(&self, at: usize) -> Result<u32, Db0Error> {
        let bytes = self.bytes(at, 4)?;
        Ok(bytes.try_into().map_or(0, u32::from_be_bytes))
    }

    /// A word that is an address in the file, or a length.
    fn place(&self, at: usize) -> Result<usize, Db0Error> {
        usize::try_from(self.word(at)?).map_err(|_| self.damaged(at, "an address is too large"))
    }

    fn servers(&self) -> Result<Vec<(u8, Server)>, Db0Error> {
        let mut servers = Vec::new();
        for number in 0..=SERVER_MAX {
            let at = MAPPED_AT + 4 * usize::from(number);
            let server = match self.word(at)?.to_be_bytes() {
                [0, 0, 0, 0] => continue,
                [0xff, block, 0, index] => self.extent(at, block, index)?,
                [0xff, ..] => return Err(self.damaged(at, "a server is at no place")),
                address => Server {
                    identity: None,
                    addresses: vec![u32::from_be_bytes(address)],
                },
            };
            servers.push((number, server));
        }
        Ok(servers)
    }

    /// A server with several addresses, which the word at `from` leads to.
    fn extent(&self, from: usize, block: u8, index: u8) -> Result<Server, Db0Error> {
        let (blocks, places) = (BLOCKS, BLOCK_LEN / EXTENT_LEN);
        if usize::from(block) >= blocks || !(1..places).contains(&usize::from(index)) {
            return Err(self.damaged(from, "a server is at no place"));
        }
        let first = self.place(EXTENTS_AT)?;
        if first == 0 {
            return Err(self.damaged(from, "there are no blocks of servers"));
        }
        let block_at = self.place(first + 16 + 4 * usize::from(block))?;
        if self.word(block_at + 12)? != BLOCK {
            return Err(self.damaged(block_at, "there is no block of servers"));
        }
        let at = block_at + EXTENT_LEN * usize::from(index);
        let uuid = self.bytes(at, 16)?.first_chunk().copied();
        let mut addresses = Vec::new();
        for slot in 0..ADDRESSES_MAX {
            let address = self.word(at + 20 + 4 * slot)?;
            if address != 0 && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(Server {
            identity: Some(Identity {
                uuid: AfsUuid::from_bytes(uuid.unwrap_or_default()),
                uniquifier: self.word(at + 16)?,
                slot: (block, index),
            }),
            addresses,
        })
    }

    fn entries(&self, end: usize) -> Result<Vec<Entry>, Db0Error> {
        let mut entries = Vec::new();
        let mut at = HEADER_LEN;
        while at < end {
            match self.word(at + 12)? {
                BLOCK => at += BLOCK_LEN,
                FREE => at += ENTRY_LEN,
                _ => {
                    entries.push(self.entry(at)?);
                    at += ENTRY_LEN;
                }
            }
        }
        Ok(entries)
    }

    fn entry(&self, at: usize) -> Result<Entry, Db0Error> {
        let row = Data(self.bytes(at, ENTRY_LEN)?);
        let name = row.bytes(NAME_AT, NAME_MAX + 1)?;
        let length = name
            .iter()
            .position(|&byte| byte == 0)
            .ok_or_else(|| self.damaged(at, "an entry's name has no end"))?;
        let (servers, rest) = row.0[PLACES_AT..].split_at(SITES_MAX);
        let (partitions, flags) = rest.split_at(SITES_MAX);
        let places = servers.iter().zip(partitions).zip(flags);
        Ok(Entry {
            name: name[..length].to_vec(),
            ids: [row.word(0)?, row.word(4)?, row.word(8)?],
            flags: row.word(12)?,
            lock_id: row.word(16)?,
            lock_time: row.word(20)?,
            clone_id: row.word(24)?,
            places: places
                .map(|((&server, &partition), &flags)| SiteBytes {
                    server,
                    partition,
                    flags,
                })
                .take_while(|place| place.server != NO_SERVER)
                .collect(),
        })
    }
}

/// Writes a `vldb.DB0`. `epoch` is the time of its version, in seconds since 1970.
///
/// # Errors
/// When it has more than such a file can hold.
pub fn export_vldb(vldb: &Vldb, epoch: u32) -> Result<Vec<u8>, Db0Error> {
    let identities = || {
        let servers = vldb.servers.iter();
        servers.filter_map(|(_, server)| Some((server.identity?, &server.addresses)))
    };
    let blocks = identities().map(|(identity, _)| usize::from(identity.slot.0) + 1);
    let blocks = blocks.max().unwrap_or(0);
    if blocks > BLOCKS {
        return Err(Db0Error::TooMuch("servers with UUIDs"));
    }
    let first = HEADER_LEN + blocks * BLOCK_LEN;
    let end = first + vldb.entries.len() * ENTRY_LEN;
    if end as u64 >= FILE_MAX {
        return Err(Db0Error::TooMuch("entries"));
    }
    let mut out = Out(vec![0; end]);
    out.header(vldb, end);
    for (number, server) in &vldb.servers {
        let word = match &server.identity {
            Some(Identity { slot, .. }) => u32::from_be_bytes([0xff, slot.0, 0, slot.1]),
            None => server.address(),
        };
        out.word(MAPPED_AT + 4 * usize::from(*number), word);
    }
    if blocks > 0 {
        out.place(EXTENTS_AT, HEADER_LEN);
    }
    for block in 0..blocks {
        let at = HEADER_LEN + block * BLOCK_LEN;
        out.word(at + 12, BLOCK);
        out.place(HEADER_LEN + 16 + 4 * block, at);
    }
    for (identity, addresses) in identities() {
        let (block, index) = (usize::from(identity.slot.0), usize::from(identity.slot.1));
        if !(1..BLOCK_LEN / EXTENT_LEN).contains(&index) || addresses.len() > ADDRESSES_MAX {
            return Err(Db0Error::TooMuch("servers with UUIDs"));
        }
        out.extent(
            HEADER_LEN + block * BLOCK_LEN + index * EXTENT_LEN,
            &identity,
            addresses,
        );
    }
    for (n, entry) in vldb.entries.iter().enumerate() {
        if entry.name.len() > NAME_MAX || entry.places.len() > SITES_MAX {
            return Err(Db0Error::TooMuch("sites of an entry"));
        }
        out.entry(first + n * ENTRY_LEN, entry);
    }
    let mut file = vec![0; UBIK_LEN];
    file[..4].copy_from_slice(&UBIK_MAGIC.to_be_bytes());
    file[7] = 64;
    file[8..12].copy_from_slice(&epoch.to_be_bytes());
    file[15] = 1;
    file.append(&mut out.0);
    // Ubik reads and writes whole pages.
    let pages = end.div_ceil(UBIK_PAGE);
    file.resize(UBIK_LEN + pages * UBIK_PAGE, 0);
    Ok(file)
}

/// The database's part of a file that is being written. All addresses were checked to be in it.
struct Out(Vec<u8>);

impl Out {
    fn word(&mut self, at: usize, word: u32) {
        self.0[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }

    /// Writes an address; all are below 2^31.
    fn place(&mut self, at: usize, place: usize) {
        self.word(at, u32::try_from(place).unwrap_or(u32::MAX));
    }

    fn header(&mut self, vldb: &Vldb, end: usize) {
        self.word(0, 4);
        self.place(4, HEADER_LEN);
        self.place(12, end);
        self.place(16, vldb.entries.len());
        self.word(24, vldb.max_volume_id);
    }

    fn extent(&mut self, at: usize, identity: &Identity, addresses: &[u32]) {
        self.0[at..at + 16].copy_from_slice(&identity.uuid.to_bytes());
        self.word(at + 16, identity.uniquifier);
        for (slot, address) in addresses.iter().enumerate() {
            self.word(at + 20 + 4 * slot, *address);
        }
    }

    fn entry(&mut self, at: usize, entry: &Entry) {
        let [read_write, read_only, backup] = entry.ids;
        let words = [
            read_write,
            read_only,
            backup,
            entry.flags,
            entry.lock_id,
            entry.lock_time,
            entry.clone_id,
        ];
        for (n, word) in words.into_iter().enumerate() {
            self.word(at + 4 * n, word);
        }
        for (kind, &id) in entry.ids.iter().enumerate() {
            if kind == 0 || id != 0 {
                let table = ID_HASH_AT + 4 * HASH_SIZE * kind;
                self.chain(table + 4 * id_hash(id), at + 28 + 4 * kind, at);
            }
        }
        let name_hash = NAME_HASH_AT + 4 * name_hash(&entry.name);
        self.chain(name_hash, at + 40, at);
        self.0[at + NAME_AT..][..entry.name.len()].copy_from_slice(&entry.name);
        self.0[at + PLACES_AT..at + ENTRY_LEN].fill(NO_SERVER);
        for (slot, place) in entry.places.iter().enumerate() {
            let at = at + PLACES_AT + slot;
            self.0[at] = place.server;
            self.0[at + SITES_MAX] = place.partition;
            self.0[at + 2 * SITES_MAX] = place.flags;
        }
    }

    /// Puts an entry before the others of its chain.
    fn chain(&mut self, head: usize, next: usize, entry: usize) {
        self.0.copy_within(head..head + 4, next);
        self.place(head, entry);
    }
}

fn id_hash(id: u32) -> usize {
    usize::try_from(id.cast_signed().unsigned_abs()).unwrap_or(0) % HASH_SIZE
}

fn name_hash(name: &[u8]) -> usize {
    let hash = name.iter().rev().fold(0u32, |hash, &byte| {
        let letter = u32::from(byte).wrapping_sub(63);
        hash.wrapping_mul(63).wrapping_add(letter)
    });
    usize::try_from(hash).unwrap_or(0) % HASH_SIZE
}
