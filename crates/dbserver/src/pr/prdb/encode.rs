//! Writing the file.

use std::collections::BTreeMap;

use afar_types::PtsId;

use super::{
    BLOCK_LEN, BUCKETS, CONTINUATION, CONTINUATION_IDS, ENTRY_IDS, HEADER_LEN, HEADER_WORDS, Prdb,
    PrdbEntry, PrdbError, SUPERGROUP_IDS, UBIK_LEN, UBIK_MAGIC, VERSION, word,
};

impl Prdb {
    /// The bytes of a `prdb.DB0`. `epoch` and `counter` are ubik's version of the database, of
    /// which servers take the greatest: seconds since 1970, and changes since then.
    ///
    /// Entries come first, one after the other, then what their lists go on in.
    ///
    /// # Errors
    /// When there are more than the file can hold, or a name is too long for it.
    pub fn encode(&self, epoch: u32, counter: u32) -> Result<Vec<u8>, PrdbError> {
        let mut file = File::new(self.entries.len())?;
        let supergroups = self.supergroups();
        for (index, PrdbEntry { entry, elements }) in self.entries.iter().enumerate() {
            let listed = supergroups.get(&entry.id);
            file.put_entry(index, entry)?;
            file.put_list(
                index,
                entry.id,
                elements,
                (word::IDS, ENTRY_IDS, word::NEXT),
            )?;
            let above = listed.map_or(&[][..], Vec::as_slice);
            if !above.is_empty() {
                let place = (word::SUPERGROUPS, SUPERGROUP_IDS, word::NEXT_SUPERGROUPS);
                file.put_list(index, entry.id, above, place)?;
                let count = i32::try_from(above.len()).map_err(|_| PrdbError::TooLarge)?;
                file.set(index, word::SUPERGROUP_COUNT, count);
            }
        }
        let tables = file.hash(self);
        let orphan = file.chain_owned(self);
        let end = i32::try_from(file.len()).map_err(|_| PrdbError::TooLarge)?;
        let mut header = [0_i32; HEADER_WORDS];
        let count = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        let known = &self.header;
        header[..13].copy_from_slice(&[
            VERSION.cast_signed(),
            i32::try_from(HEADER_LEN).map_err(|_| PrdbError::TooLarge)?,
            0,
            end,
            known.max_group.0,
            known.max_user.0,
            0,
            0,
            orphan,
            count(known.users),
            count(known.groups),
            count(known.foreign),
            0,
        ]);

        let mut out = Vec::with_capacity(UBIK_LEN + file.len());
        out.extend(UBIK_MAGIC.to_be_bytes());
        out.extend([0, 0, 0, 64]);
        out.extend(epoch.to_be_bytes());
        out.extend(counter.to_be_bytes());
        out.resize(UBIK_LEN, 0);
        for word in header.iter().chain(&tables) {
            out.extend(word.to_be_bytes());
        }
        out.extend(file.blocks);
        Ok(out)
    }

    /// For each group that is in others, which these are.
    fn supergroups(&self) -> BTreeMap<PtsId, Vec<PtsId>> {
        let mut supergroups: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let groups = self.entries.iter().filter(|group| group.entry.is_group());
        for PrdbEntry { entry, elements } in groups {
            for &member in elements.iter().filter(|member| member.is_group()) {
                supergroups.entry(member).or_default().push(entry.id);
            }
        }
        supergroups
    }
}

/// The blocks of a file.
struct File {
    blocks: Vec<u8>,
}

impl File {
    /// A file with room for this many entries.
    fn new(entries: usize) -> Result<Self, PrdbError> {
        let len = entries.checked_mul(BLOCK_LEN).ok_or(PrdbError::TooLarge)?;
        Ok(Self {
            blocks: vec![0; len],
        })
    }

    /// Bytes of the database, without ubik's header.
    fn len(&self) -> usize {
        HEADER_LEN + self.blocks.len()
    }

    fn set(&mut self, index: usize, number: usize, word: i32) {
        let at = index * BLOCK_LEN + 4 * number;
        if let Some(place) = self.blocks.get_mut(at..at + 4) {
            place.copy_from_slice(&word.to_be_bytes());
        }
    }

    fn put_entry(&mut self, index: usize, entry: &super::Entry) -> Result<(), PrdbError> {
        let count = i32::try_from(entry.count).map_err(|_| PrdbError::TooLarge)?;
        for (number, word) in [
            (word::FLAGS, entry.flags.0.cast_signed()),
            (word::ID, entry.id.0),
            (word::CELL_GROUP, entry.cell_group.0),
            (word::CREATED, entry.created.cast_signed()),
            (word::ADDED, entry.added.cast_signed()),
            (word::REMOVED, entry.removed.cast_signed()),
            (word::CHANGED, entry.changed.cast_signed()),
            (word::OWNER, entry.owner.0),
            (word::CREATOR, entry.creator.0),
            (word::N_GROUPS, entry.n_groups),
            (word::N_USERS, entry.n_users),
            (word::COUNT, count),
        ] {
            self.set(index, number, word);
        }
        let at = index * BLOCK_LEN + 4 * word::NAME;
        let end = (index + 1) * BLOCK_LEN;
        match self.blocks.get_mut(at..end - 1) {
            Some(place) if entry.name.len() <= place.len() => {
                place[..entry.name.len()].copy_from_slice(&entry.name);
                Ok(())
            }
            _ => Err(PrdbError::Entry {
                id: entry.id.0,
                what: "has a name that is too long",
            }),
        }
    }

    /// Writes a list: so many ids into the entry, from a word on, the others into blocks of their
    /// own, the first of which a third word tells.
    fn put_list(
        &mut self,
        index: usize,
        id: PtsId,
        ids: &[PtsId],
        (words, room, mut next): (usize, usize, usize),
    ) -> Result<(), PrdbError> {
        let (here, rest) = ids.split_at(ids.len().min(room));
        for (number, id) in here.iter().enumerate() {
            self.set(index, words + number, id.0);
        }
        let mut last = index;
        for piece in rest.chunks(CONTINUATION_IDS) {
            let position = i32::try_from(self.len()).map_err(|_| PrdbError::TooLarge)?;
            let more = self.blocks.len() / BLOCK_LEN;
            self.blocks.resize(self.blocks.len() + BLOCK_LEN, 0);
            self.set(last, next, position);
            self.set(more, word::FLAGS, CONTINUATION.cast_signed());
            self.set(more, word::ID, id.0);
            for (number, id) in piece.iter().enumerate() {
                self.set(more, word::IDS + number, id.0);
            }
            (last, next) = (more, word::NEXT);
        }
        Ok(())
    }

    /// Chains the entries of each hash bucket; returns the tables, that of names first.
    fn hash(&mut self, prdb: &Prdb) -> Vec<i32> {
        let mut tables = vec![0; 2 * BUCKETS];
        for (index, PrdbEntry { entry, .. }) in prdb.entries.iter().enumerate() {
            let name = name_bucket(&entry.name);
            let id = BUCKETS + entry.id.0.unsigned_abs() as usize % BUCKETS;
            for (bucket, next) in [(name, word::NEXT_NAME), (id, word::NEXT_ID)] {
                self.set(index, next, tables[bucket]);
                tables[bucket] = position(index);
            }
        }
        tables
    }

    /// Chains the groups of each owner; returns the first whose owner is gone.
    fn chain_owned(&mut self, prdb: &Prdb) -> i32 {
        let indexes: BTreeMap<_, _> = prdb
            .entries
            .iter()
            .enumerate()
            .map(|(index, entry)| (entry.entry.id, index))
            .collect();
        let mut first: BTreeMap<PtsId, i32> = BTreeMap::new();
        for (index, PrdbEntry { entry, .. }) in prdb.entries.iter().enumerate() {
            if entry.is_group() {
                let first = first.entry(entry.owner).or_default();
                self.set(index, word::NEXT_OWNED, *first);
                *first = position(index);
            }
        }
        for (owner, &first) in &first {
            if let Some(&index) = indexes.get(owner) {
                self.set(index, word::OWNED, first);
            }
        }
        first.get(&PtsId(0)).copied().unwrap_or_default()
    }
}

/// Place of an entry. That it can be told is checked once the file's length is known.
fn position(index: usize) -> i32 {
    i32::try_from(HEADER_LEN + index * BLOCK_LEN).unwrap_or(i32::MAX)
}

/// Bucket of a name (OpenAFS src/ptserver/utils.c, NameHash).
fn name_bucket(name: &[u8]) -> usize {
    let hash = name.iter().rev().fold(0_u32, |hash, &byte| {
        hash.wrapping_mul(31)
            .wrapping_add(u32::from(byte).wrapping_sub(31))
    });
    hash as usize % BUCKETS
}
