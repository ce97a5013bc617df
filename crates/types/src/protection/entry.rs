//! An entry of the protection database, as its readers see it and as it is stored.

use std::fmt;

use afar_xdr::{Decode, Encode};

use crate::PtsId;

use super::PrName;

/// Rights to see and change an entry, besides its owner and the administrators. Shown as `pts` does,
/// such as `S-M--`: a capital for everyone, a small letter for members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct PrAccess(pub u32);

impl PrAccess {
    /// Members may remove members.
    pub const REMOVE_MEMBERS: Self = Self(0x01);
    /// Members may add members.
    pub const ADD_MEMBERS: Self = Self(0x02);
    /// Anyone may add members.
    pub const ADD_ANYONE: Self = Self(0x04);
    /// Members may see who is a member.
    pub const MEMBERSHIP_MEMBERS: Self = Self(0x08);
    /// Anyone may see who is a member.
    pub const MEMBERSHIP_ANYONE: Self = Self(0x10);
    /// Anyone may see what it owns.
    pub const OWNED_ANYONE: Self = Self(0x20);
    /// Members may see the entry.
    pub const STATUS_MEMBERS: Self = Self(0x40);
    /// Anyone may see the entry.
    pub const STATUS_ANYONE: Self = Self(0x80);
    /// What a user has from the start: `S----`.
    pub const USER_DEFAULT: Self = Self::STATUS_ANYONE;
    /// What a group has from the start: `S-M--`.
    pub const GROUP_DEFAULT: Self = Self(0x90);

    /// Whether all of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Access as `SOMar`, with a dash for what nobody may, or as an octal number.
    ///
    /// # Errors
    /// What is wrong with the text, in the words of OpenAFS's `pts setfields`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains(|letter: char| letter.is_digit(8)) {
            let number = u32::from_str_radix(text, 8).ok();
            let access = number.filter(|number| *number <= 0xff).map(Self);
            return access
                .ok_or_else(|| format!("Access bits must be octal digits up to 377, not {text}"));
        }
        // A small letter or a dash at least, as pts wants it.
        if text.chars().count() != PLACES.len() || !text.contains(['s', 'o', 'm', 'a', 'r', '-']) {
            return Err(format!(
                "Access bits must be of the form 'somar', not {text}"
            ));
        }
        let mut access = Self::default();
        for (letter, place) in text.chars().zip(PLACES) {
            let known = place.iter().find(|(known, _)| *known == letter);
            match known {
                Some((_, bit)) => access.0 |= bit.0,
                None if letter == '-' => {}
                None => {
                    return Err(format!(
                        "Access bits out of order or illegal:\n  must be a combination of letters \
                         from 'SOMA ' or 's mar' or hyphen, not {text}"
                    ));
                }
            }
        }
        Ok(access)
    }
}

/// The letters of access in their order: a capital for everyone, a small one for members.
const PLACES: [&[(char, PrAccess)]; 5] = [
    &[
        ('S', PrAccess::STATUS_ANYONE),
        ('s', PrAccess::STATUS_MEMBERS),
    ],
    &[('O', PrAccess::OWNED_ANYONE)],
    &[
        ('M', PrAccess::MEMBERSHIP_ANYONE),
        ('m', PrAccess::MEMBERSHIP_MEMBERS),
    ],
    &[('A', PrAccess::ADD_ANYONE), ('a', PrAccess::ADD_MEMBERS)],
    &[('r', PrAccess::REMOVE_MEMBERS)],
];

impl fmt::Display for PrAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let two = |shift: u32, anyone: char, members: char| match self.0 >> shift & 3 {
            0 => '-',
            1 => members,
            2 => anyone,
            _ => 'X',
        };
        let one = |shift: u32, letter: char| match self.0 >> shift & 1 {
            0 => '-',
            _ => letter,
        };
        let letters = [
            two(6, 'S', 's'),
            one(5, 'O'),
            two(3, 'M', 'm'),
            two(1, 'A', 'a'),
            one(0, 'r'),
        ];
        f.pad(&String::from_iter(letters))
    }
}

/// A user or group as ListEntry and ListEntries show it (AFS-3 prcheckentry and prlistentries,
/// both 76 words, 304 bytes).
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct PrEntry {
    /// Rights to see and change it.
    pub access: PrAccess,
    /// Its id.
    pub id: PtsId,
    /// The owner.
    pub owner: PtsId,
    /// The creator.
    pub creator: PtsId,
    /// Groups the user may still make.
    pub n_groups: i32,
    /// Foreign users that may still be registered by it.
    pub n_users: i32,
    /// Members of a group, or groups a user is in.
    pub count: i32,
    /// 0.
    pub reserved: [i32; 5],
    /// Its name, in lower case.
    pub name: PrName,
}

impl PrEntry {
    /// Of the mask of SetFieldsEntry: these access bits count.
    pub const SET_ACCESS: u32 = 0xff;
    /// Of the mask of SetFieldsEntry: `n_users` counts.
    pub const SET_N_USERS: u32 = 1 << 30;
    /// Of the mask of SetFieldsEntry: `n_groups` counts.
    pub const SET_N_GROUPS: u32 = 1 << 31;
}

/// Values to give to an entry (AFS-3 PrUpdateEntry, 77 words). A field counts if its bit is in
/// `mask`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct PrUpdateEntry {
    /// Bits as in the constants.
    pub mask: u32,
    /// Flags as they are stored, access bits in the upper half.
    pub flags: i32,
    /// Id to give it.
    pub id: PtsId,
    /// Unused, as all fields without a bit.
    pub owner: PtsId,
    /// Unused.
    pub creator: PtsId,
    /// Unused.
    pub n_groups: i32,
    /// Unused.
    pub n_users: i32,
    /// Unused.
    pub count: i32,
    /// 0.
    pub reserved: [i32; 5],
    /// Name to give it.
    pub name: PrName,
}

impl PrUpdateEntry {
    /// `name` counts.
    pub const NAME: u32 = 0x01;
    /// `id` counts.
    pub const ID: u32 = 0x02;
    /// `flags` count.
    pub const FLAGS: u32 = 0x04;
    /// The entry is to be found by its name again.
    pub const NAME_HASH: u32 = 0x08;
    /// The entry is to be found by its id again.
    pub const ID_HASH: u32 = 0x10;
}

/// An entry as OpenAFS's database holds it, for those who debug one (AFS-3 prdebugentry, 96 words,
/// 384 bytes).
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct PrDebugEntry {
    /// What it is, and in the upper half its access bits.
    pub flags: i32,
    /// Its id.
    pub id: PtsId,
    /// Its cell.
    pub cell_id: i32,
    /// Where the list of its groups or members goes on.
    pub next: i32,
    /// 0.
    pub reserved: [i32; 5],
    /// Its first ten groups or members.
    pub entries: [PtsId; 10],
    /// The next entry with the same hash of its id.
    pub next_id: i32,
    /// The next entry with the same hash of its name.
    pub next_name: i32,
    /// The owner.
    pub owner: PtsId,
    /// The creator.
    pub creator: PtsId,
    /// Groups the user may still make.
    pub n_groups: i32,
    /// Foreign users that may still be registered by it.
    pub n_users: i32,
    /// Members of a group, or groups a user is in.
    pub count: i32,
    /// Unused.
    pub instance: i32,
    /// The first group it owns.
    pub owned: i32,
    /// The next group of the same owner.
    pub next_owned: i32,
    /// Unused.
    pub parent: i32,
    /// Unused.
    pub sibling: i32,
    /// Unused.
    pub child: i32,
    /// Its name, in lower case.
    pub name: PrName,
}
