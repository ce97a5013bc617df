//! Reading the file.

use std::collections::{BTreeMap, BTreeSet};

use afar_types::PtsId;

use super::{
    BLOCK_LEN, CONTINUATION, CONTINUATION_IDS, ENTRY_IDS, FREE, HEADER_LEN, Prdb, PrdbEntry,
    PrdbError, REMOVED, UBIK_LEN, UBIK_MAGIC, VERSION, word,
};
use crate::pr::{Entry, Flags, Header};

impl Prdb {
    /// Reads the bytes of a `prdb.DB0`.
    ///
    /// Blocks are read one after the other, so that an entry is found even if no hash chain leads
    /// to it.
    ///
    /// # Errors
    /// When it is no such file, or is not consistent: a list that leads astray, two entries with
    /// the same id or name, a membership only one side knows of.
    pub fn decode(file: &[u8]) -> Result<Self, PrdbError> {
        let database = Database::of(file)?;
        let mut entries = Vec::new();
        let mut used = BTreeSet::new();
        for index in 0..database.blocks.len() {
            let block = &database.blocks[index];
            match block.word(word::FLAGS).cast_unsigned() & Flags::TYPE {
                FREE | CONTINUATION => {}
                0 | Flags::GROUP => entries.push(database.entry(index, &mut used)?),
                _ => return Err(block.wrong("is of a kind that is not known")),
            }
        }
        check_unique(&entries)?;
        check_memberships(&entries)?;
        let next_slot = u32::try_from(database.blocks.len()).map_err(|_| PrdbError::TooLarge)?;
        let mut header = Header {
            max_group: PtsId(word_at(database.header, 4)),
            max_user: PtsId(word_at(database.header, 5)),
            next_slot,
            ..Header::default()
        };
        for PrdbEntry { entry, .. } in &entries {
            let count = if entry.is_group() {
                &mut header.groups
            } else if entry.cell_group.0 != 0 {
                &mut header.foreign
            } else {
                &mut header.users
            };
            *count = count.saturating_add(1);
        }
        Ok(Self { header, entries })
    }
}

/// The parts of a file.
struct Database<'a> {
    header: &'a [u8],
    blocks: Vec<Block<'a>>,
}

/// A block, and where it is.
struct Block<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Database<'a> {
    fn of(file: &'a [u8]) -> Result<Self, PrdbError> {
        let not = |why| move || PrdbError::NotPrdb(why);
        let (ubik, database) = file
            .split_at_checked(UBIK_LEN)
            .ok_or_else(not("it is shorter than ubik's header"))?;
        if word_at(ubik, 0).cast_unsigned() != UBIK_MAGIC {
            return Err(not("it does not begin with ubik's header")());
        }
        let (header, rest) = database
            .split_at_checked(HEADER_LEN)
            .ok_or_else(not("it is shorter than its header"))?;
        let header_len = usize::try_from(word_at(header, 1)).ok();
        if word_at(header, 0).cast_unsigned() != VERSION || header_len != Some(HEADER_LEN) {
            return Err(not("its version or the size of its header is not known")());
        }
        let len = usize::try_from(word_at(header, 3))
            .ok()
            .and_then(|end| end.checked_sub(HEADER_LEN))
            .ok_or_else(not("its end is in its header"))?;
        let blocks = rest
            .get(..len)
            .ok_or_else(not("it is shorter than its header says"))?;
        let exact = blocks.chunks_exact(BLOCK_LEN);
        if !exact.remainder().is_empty() {
            return Err(not("its end is within a block")());
        }
        let blocks = exact.enumerate().map(|(index, bytes)| Block {
            bytes,
            position: HEADER_LEN + index * BLOCK_LEN,
        });
        Ok(Self {
            header,
            blocks: blocks.collect(),
        })
    }

    /// The block at a place; `None` for 0.
    fn at(&self, from: &Block<'_>, position: i32) -> Result<Option<&Block<'a>>, PrdbError> {
        if position == 0 {
            return Ok(None);
        }
        let index = usize::try_from(position)
            .ok()
            .and_then(|position| position.checked_sub(HEADER_LEN))
            .filter(|offset| offset % BLOCK_LEN == 0)
            .and_then(|offset| self.blocks.get(offset / BLOCK_LEN));
        index
            .map(Some)
            .ok_or_else(|| from.wrong("goes on where no block is"))
    }

    /// The user or group that begins with this block. A block that continues a list is `used` by
    /// one list only.
    fn entry(&self, index: usize, used: &mut BTreeSet<usize>) -> Result<PrdbEntry, PrdbError> {
        let block = &self.blocks[index];
        let id = block.word(word::ID);
        let flags = Flags(block.word(word::FLAGS).cast_unsigned());
        if id == 0 || id == REMOVED || flags.has(Flags::GROUP) != (id < 0) {
            return Err(block.wrong("has an id that its kind cannot have"));
        }
        let mut elements = Vec::new();
        block.ids(word::IDS, ENTRY_IDS, &mut elements);
        let mut next = block.word(word::NEXT);
        let mut from = block;
        while let Some(more) = self.at(from, next)? {
            let kind = more.word(word::FLAGS).cast_unsigned() & Flags::TYPE;
            if kind != CONTINUATION || more.word(word::ID) != id || !used.insert(more.position) {
                return Err(from.wrong("goes on in a block that is not of the same list"));
            }
            more.ids(word::IDS, CONTINUATION_IDS, &mut elements);
            next = more.word(word::NEXT);
            from = more;
        }
        let count = u32::try_from(elements.len()).map_err(|_| PrdbError::TooLarge)?;
        let entry = Entry {
            id: PtsId(id),
            flags,
            cell_group: PtsId(block.word(word::CELL_GROUP)),
            owner: PtsId(block.word(word::OWNER)),
            creator: PtsId(block.word(word::CREATOR)),
            n_groups: block.word(word::N_GROUPS),
            n_users: block.word(word::N_USERS),
            count,
            slot: u32::try_from(index).map_err(|_| PrdbError::TooLarge)?,
            created: block.word(word::CREATED).cast_unsigned(),
            added: block.word(word::ADDED).cast_unsigned(),
            removed: block.word(word::REMOVED).cast_unsigned(),
            changed: block.word(word::CHANGED).cast_unsigned(),
            name: block.name()?,
        };
        Ok(PrdbEntry { entry, elements })
    }
}

impl Block<'_> {
    fn word(&self, number: usize) -> i32 {
        word_at(self.bytes, number)
    }

    fn wrong(&self, what: &'static str) -> PrdbError {
        PrdbError::Block {
            position: self.position,
            what,
        }
    }

    /// Adds the ids of a list, up to the first 0.
    fn ids(&self, from: usize, count: usize, ids: &mut Vec<PtsId>) {
        let words = (from..from + count).map(|number| self.word(number));
        let listed = words.take_while(|&id| id != 0).filter(|&id| id != REMOVED);
        ids.extend(listed.map(PtsId));
    }

    fn name(&self) -> Result<Vec<u8>, PrdbError> {
        let bytes = self.bytes.get(4 * word::NAME..).unwrap_or_default();
        match bytes.iter().position(|&byte| byte == 0) {
            Some(0) => Err(self.wrong("has no name")),
            Some(end) => Ok(bytes[..end].to_vec()),
            None => Err(self.wrong("has a name without an end")),
        }
    }
}

/// A word by its number; 0 beyond the end, which callers have made sure is not reached.
fn word_at(bytes: &[u8], number: usize) -> i32 {
    let at = bytes.get(4 * number..).and_then(<[u8]>::first_chunk::<4>);
    at.map_or(0, |word| i32::from_be_bytes(*word))
}

fn check_unique(entries: &[PrdbEntry]) -> Result<(), PrdbError> {
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for PrdbEntry { entry, .. } in entries {
        let what = if !ids.insert(entry.id) {
            "is there twice"
        } else if !names.insert(&entry.name) {
            "has the name of another"
        } else {
            continue;
        };
        return Err(PrdbError::Entry {
            id: entry.id.0,
            what,
        });
    }
    Ok(())
}

/// Compares the lists of groups with those of users. What groups a group is in is told by the
/// other groups' lists.
fn check_memberships(entries: &[PrdbEntry]) -> Result<(), PrdbError> {
    let kinds: BTreeMap<_, _> = entries
        .iter()
        .map(|PrdbEntry { entry, .. }| (entry.id, entry.is_group()))
        .collect();
    let (mut by_group, mut by_user) = (Vec::new(), Vec::new());
    for PrdbEntry { entry, elements } in entries {
        for &element in elements {
            let known = kinds.get(&element);
            let what = match known {
                None => "lists an id that has no entry",
                Some(false) if !entry.is_group() => "is a user, and lists another as its group",
                Some(_) if element == entry.id => "lists itself",
                Some(true) if entry.is_group() => continue,
                Some(_) if entry.is_group() => {
                    by_group.push((element, entry.id));
                    continue;
                }
                Some(_) => {
                    by_user.push((entry.id, element));
                    continue;
                }
            };
            return Err(PrdbError::Entry {
                id: entry.id.0,
                what,
            });
        }
    }
    by_group.sort_unstable();
    by_user.sort_unstable();
    for pairs in [&by_group, &by_user] {
        if let Some(pair) = pairs.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(PrdbError::Entry {
                id: pair[0].1.0,
                what: "has a member twice",
            });
        }
    }
    let differing = |a: &[(PtsId, PtsId)], b: &[(PtsId, PtsId)]| {
        a.iter()
            .find(|pair| b.binary_search(pair).is_err())
            .copied()
    };
    let one_sided = differing(&by_group, &by_user).or_else(|| differing(&by_user, &by_group));
    match one_sided {
        None => Ok(()),
        Some((member, group)) => Err(PrdbError::OneSided {
            member: member.0,
            group: group.0,
        }),
    }
}
