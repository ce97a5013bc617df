//! The database's rows: keys, and values in a binary form of our own.
//!
//! docs/formats/databases.md lists them. Whatever can be found by two ways has a row for each: a
//! membership one under the group and one under the member, so that a group of any size grows by
//! the same few rows a member.

use afar_types::{PrAccess, PtsId};

use super::PrError;
use crate::kv::{Change, View};

/// Version of the values of entries and of the header.
const VERSION: u8 = 1;

/// Where the header is.
const HEADER: &[u8] = b"Ph";

/// A kind of rows, by what their keys begin with.
#[derive(Debug, Clone, Copy)]
struct Kind(&'static [u8; 2]);

/// Entries by id.
const ENTRY: Kind = Kind(b"Pe");
/// Ids by name.
const NAME: Kind = Kind(b"Pn");
/// Members by group.
const MEMBER: Kind = Kind(b"Pm");
/// Groups by member, which is a user or group.
const GROUP: Kind = Kind(b"Pg");
/// Groups by owner; the owner 0 has those whose owner is gone.
const OWNED: Kind = Kind(b"Po");
/// Ids in the order in which they were made.
const SLOT: Kind = Kind(b"Ps");

impl Kind {
    fn key(self, rest: &[u8]) -> Vec<u8> {
        [&self.0[..], rest].concat()
    }

    fn of(self, id: PtsId) -> Vec<u8> {
        self.key(&id_key(id))
    }

    fn pair(self, first: PtsId, second: PtsId) -> Vec<u8> {
        [&self.0[..], &id_key(first), &id_key(second)].concat()
    }
}

/// An id so that keys are in the order of the numbers, negative ones first.
pub(crate) fn id_key(id: PtsId) -> [u8; 4] {
    (id.0.cast_unsigned() ^ 0x8000_0000).to_be_bytes()
}

fn id_of_key(key: &[u8]) -> Option<PtsId> {
    let bytes = *key.last_chunk::<4>()?;
    Some(PtsId(
        (u32::from_be_bytes(bytes) ^ 0x8000_0000).cast_signed(),
    ))
}

/// What an entry is and which of its fields count (AFS-3 ptserver's flags word).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// It is a group.
    pub const GROUP: u32 = 0x02;
    /// What type of entry it is.
    pub const TYPE: u32 = 0x3f;
    /// The access bits count, not the defaults.
    pub const ACCESS: u32 = 0x40;
    /// The quota counts.
    pub const QUOTA: u32 = 0x80;
    /// Where the access bits are.
    pub const ACCESS_SHIFT: u32 = 16;

    /// Whether all of these bits are set.
    #[must_use]
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    /// The access bits.
    #[must_use]
    pub fn access(self) -> PrAccess {
        PrAccess(self.0 >> Self::ACCESS_SHIFT)
    }
}

/// A user or group, as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: PtsId,
    /// What it is, and its access bits.
    pub flags: Flags,
    /// Of a foreign user: the group of its cell's users, else 0.
    pub cell_group: PtsId,
    /// The owner; 0 if the owner is gone.
    pub owner: PtsId,
    /// The creator.
    pub creator: PtsId,
    /// Groups it may still make; foreign users that a cell's group may still have.
    pub n_groups: i32,
    /// Of a cell's group: the greatest number given to a foreign user.
    pub n_users: i32,
    /// Members of a group, or groups a user is in.
    pub count: u32,
    /// Its place in the order in which entries were made.
    pub slot: u32,
    /// When it was made, in seconds since 1970, as all its times.
    pub created: u32,
    /// When it last gained a member or a group to be in.
    pub added: u32,
    /// When it last lost one.
    pub removed: u32,
    /// When its name, owner or id last changed.
    pub changed: u32,
    /// Its name.
    pub name: Vec<u8>,
}

impl Entry {
    /// Whether it is a group.
    #[must_use]
    pub fn is_group(&self) -> bool {
        self.flags.has(Flags::GROUP)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for word in [
            self.flags.0,
            self.cell_group.0.cast_unsigned(),
            self.owner.0.cast_unsigned(),
            self.creator.0.cast_unsigned(),
            self.n_groups.cast_unsigned(),
            self.n_users.cast_unsigned(),
            self.count,
            self.slot,
            self.created,
            self.added,
            self.removed,
            self.changed,
        ] {
            out.extend(word.to_be_bytes());
        }
        out.extend(&self.name);
        out
    }

    fn decode(id: PtsId, value: &[u8]) -> Result<Self, PrError> {
        let mut input = Words::of(value)?;
        Ok(Self {
            id,
            flags: Flags(input.word()?),
            cell_group: PtsId(input.signed()?),
            owner: PtsId(input.signed()?),
            creator: PtsId(input.signed()?),
            n_groups: input.signed()?,
            n_users: input.signed()?,
            count: input.word()?,
            slot: input.word()?,
            created: input.word()?,
            added: input.word()?,
            removed: input.word()?,
            changed: input.word()?,
            name: input.0.to_vec(),
        })
    }
}

/// What is known of the database as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// The least id given to a group.
    pub max_group: PtsId,
    /// The greatest id given to a user.
    pub max_user: PtsId,
    /// Users of this cell.
    pub users: u32,
    /// Groups.
    pub groups: u32,
    /// Users of other cells.
    pub foreign: u32,
    /// Place of the next entry.
    pub next_slot: u32,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for word in [
            self.max_group.0.cast_unsigned(),
            self.max_user.0.cast_unsigned(),
            self.users,
            self.groups,
            self.foreign,
            self.next_slot,
        ] {
            out.extend(word.to_be_bytes());
        }
        out
    }

    fn decode(value: &[u8]) -> Result<Self, PrError> {
        let mut input = Words::of(value)?;
        Ok(Self {
            max_group: PtsId(input.signed()?),
            max_user: PtsId(input.signed()?),
            users: input.word()?,
            groups: input.word()?,
            foreign: input.word()?,
            next_slot: input.word()?,
        })
    }
}

/// The words of a value, after its version.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn of(value: &'a [u8]) -> Result<Self, PrError> {
        match value.split_first() {
            Some((&VERSION, rest)) => Ok(Self(rest)),
            _ => Err(PrError::Damaged("a row is of a version not known here")),
        }
    }

    fn word(&mut self) -> Result<u32, PrError> {
        let (word, rest) = self
            .0
            .split_first_chunk::<4>()
            .ok_or(PrError::Damaged("a row is cut short"))?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*word))
    }

    fn signed(&mut self) -> Result<i32, PrError> {
        self.word().map(u32::cast_signed)
    }
}

/// The rows of the protection server, to read.
pub(super) trait Rows {
    /// The rows as they are now.
    fn view(&self) -> View<'_>;

    /// The header; `None` where nothing has been stored yet.
    fn header(&self) -> Result<Option<Header>, PrError> {
        self.view().get(HEADER)?.map(Header::decode).transpose()
    }

    /// The entry with this id.
    fn find(&self, id: PtsId) -> Result<Option<Entry>, PrError> {
        let value = self.view().get(&ENTRY.of(id))?;
        value.map(|value| Entry::decode(id, value)).transpose()
    }

    /// The entry with this id, or PRNOENT.
    fn entry(&self, id: PtsId) -> Result<Entry, PrError> {
        self.find(id)?.ok_or(PrError::NoEntry)
    }

    fn exists(&self, id: PtsId) -> Result<bool, PrError> {
        Ok(self.view().get(&ENTRY.of(id))?.is_some())
    }

    /// The id with this name.
    fn id_of(&self, name: &[u8]) -> Result<Option<PtsId>, PrError> {
        // No name is longer, and the keys of the store have a limit too.
        if name.len() > super::name::LEN_MAX {
            return Ok(None);
        }
        let value = self.view().get(&NAME.key(name))?;
        let id = value.map(|value| id_of_key(value).ok_or(PrError::Damaged("a name has no id")));
        id.transpose()
    }

    fn is_direct_member(&self, member: PtsId, group: PtsId) -> Result<bool, PrError> {
        Ok(self.view().get(&GROUP.pair(member, group))?.is_some())
    }

    /// The entry at this place.
    fn at_slot(&self, slot: u32) -> Result<Option<Entry>, PrError> {
        let value = self.view().get(&SLOT.key(&slot.to_be_bytes()))?;
        match value.and_then(id_of_key) {
            Some(id) => self.find(id),
            None => Ok(None),
        }
    }
}

/// Places and ids in the order in which entries were made, from a place on.
pub(super) fn slots(
    rows: View<'_>,
    from: u32,
) -> impl Iterator<Item = Result<(u32, PtsId), PrError>> {
    let from = SLOT.key(&from.to_be_bytes());
    rows.range(&from, SLOT.0).map(|row| {
        let (key, value) = row?;
        let slot = key.last_chunk::<4>().map(|slot| u32::from_be_bytes(*slot));
        slot.zip(id_of_key(value))
            .ok_or(PrError::Damaged("a place has no id"))
    })
}

/// Members of a group from an id on, ascending.
pub(super) fn members(
    rows: View<'_>,
    group: PtsId,
    from: PtsId,
) -> impl Iterator<Item = Result<PtsId, PrError>> {
    seconds(rows, MEMBER, group, from)
}

/// Groups that a user or group is in, from an id on, ascending.
pub(super) fn groups(
    rows: View<'_>,
    member: PtsId,
    from: PtsId,
) -> impl Iterator<Item = Result<PtsId, PrError>> {
    seconds(rows, GROUP, member, from)
}

/// Groups of an owner, from an id on, ascending.
pub(super) fn owned(
    rows: View<'_>,
    owner: PtsId,
    from: PtsId,
) -> impl Iterator<Item = Result<PtsId, PrError>> {
    seconds(rows, OWNED, owner, from)
}

/// The second ids of keys with this first one.
fn seconds(
    rows: View<'_>,
    kind: Kind,
    first: PtsId,
    from: PtsId,
) -> impl Iterator<Item = Result<PtsId, PrError>> {
    let rows = rows.range(&kind.pair(first, from), &kind.of(first));
    rows.map(|row| id_of_key(row?.0).ok_or(PrError::Damaged("a key has no id")))
}

/// Takes away all rows of a database, so many at a time; returns whether none are left.
pub(super) fn clear(rows: &mut Change<'_>, count: usize) -> Result<bool, PrError> {
    let keys = rows
        .range(b"P", b"P")
        .take(count)
        .map(|row| row.map(|(key, _)| key.to_vec()))
        .collect::<Result<Vec<_>, _>>()?;
    for key in &keys {
        rows.delete(key)?;
    }
    Ok(keys.len() < count)
}

/// The least number that an id can be, where a list begins.
pub(super) const LEAST: PtsId = PtsId(i32::MIN);

/// The rows of the protection server, to change.
pub(super) trait RowsMut: Rows {
    fn put_header(&mut self, header: &Header) -> Result<(), PrError>;
    /// Writes an entry that stays where it is found.
    fn put_entry(&mut self, entry: &Entry) -> Result<(), PrError>;
    /// Writes an entry and the ways to find it.
    fn insert(&mut self, entry: &Entry) -> Result<(), PrError>;
    /// Takes away what [`Self::insert`] wrote.
    fn erase(&mut self, entry: &Entry) -> Result<(), PrError>;
    fn put_membership(&mut self, member: PtsId, group: PtsId) -> Result<(), PrError>;
    fn delete_membership(&mut self, member: PtsId, group: PtsId) -> Result<(), PrError>;
}

impl RowsMut for Change<'_> {
    fn put_header(&mut self, header: &Header) -> Result<(), PrError> {
        Ok(self.put(HEADER, &header.encode())?)
    }

    fn put_entry(&mut self, entry: &Entry) -> Result<(), PrError> {
        Ok(self.put(&ENTRY.of(entry.id), &entry.encode())?)
    }

    fn insert(&mut self, entry: &Entry) -> Result<(), PrError> {
        self.put_entry(entry)?;
        self.put(&NAME.key(&entry.name), &id_key(entry.id))?;
        self.put(&SLOT.key(&entry.slot.to_be_bytes()), &id_key(entry.id))?;
        if entry.is_group() {
            self.put(&OWNED.pair(entry.owner, entry.id), &[])?;
        }
        Ok(())
    }

    fn erase(&mut self, entry: &Entry) -> Result<(), PrError> {
        self.delete(&ENTRY.of(entry.id))?;
        self.delete(&NAME.key(&entry.name))?;
        self.delete(&SLOT.key(&entry.slot.to_be_bytes()))?;
        if entry.is_group() {
            self.delete(&OWNED.pair(entry.owner, entry.id))?;
        }
        Ok(())
    }

    fn put_membership(&mut self, member: PtsId, group: PtsId) -> Result<(), PrError> {
        self.put(&MEMBER.pair(group, member), &[])?;
        Ok(self.put(&GROUP.pair(member, group), &[])?)
    }

    fn delete_membership(&mut self, member: PtsId, group: PtsId) -> Result<(), PrError> {
        self.delete(&MEMBER.pair(group, member))?;
        Ok(self.delete(&GROUP.pair(member, group))?)
    }
}

impl Rows for View<'_> {
    fn view(&self) -> View<'_> {
        *self
    }
}

impl Rows for Change<'_> {
    fn view(&self) -> View<'_> {
        Change::view(self)
    }
}
