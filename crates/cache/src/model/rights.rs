//! What users may do, by the rights a server gives, and what of that is remembered.

use afar_types::{FetchStatus, FileType, Rights};

use crate::model::types::Who;
use crate::model::user::UserId;

pub(crate) const EXECUTE: u32 = 1;
pub(crate) const WRITE: u32 = 2;
pub(crate) const READ: u32 = 4;

const OWNER_READ: u32 = 0o400;
const OWNER_WRITE: u32 = 0o200;
const OWNER_EXECUTE: u32 = 0o100;

/// What is known of users' rights to one file, as long as its status is promised: those of anybody, and
/// of the user who asked last. [`Rare`](crate::model::vnode::Rare) has those of others.
#[derive(Debug)]
pub(crate) struct Known {
    anybody: Short,
    anybody_above: Short,
    user: UserId,
    own: Short,
    own_above: Short,
}

/// One user's rights.
#[derive(Debug, Clone, Copy)]
pub(crate) struct One {
    pub(crate) user: UserId,
    pub(crate) rights: Short,
    /// His rights to the directory at that time, if they were known.
    pub(crate) above: Short,
}

/// Rights, if they are known, in little memory: those that have a letter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Short(u16);

impl Short {
    pub(crate) const UNKNOWN: Self = Self(0);
    const KNOWN: u16 = 0x80;

    pub(crate) fn of(rights: Rights) -> Self {
        let [own, _, _, afs] = rights.0.to_be_bytes();
        Self(u16::from(own) << 8 | Self::KNOWN | u16::from(afs & 0x7f))
    }

    pub(crate) fn if_known(rights: Option<Rights>) -> Self {
        rights.map_or(Self::UNKNOWN, Self::of)
    }

    pub(crate) fn rights(self) -> Rights {
        let [own, afs] = self.0.to_be_bytes();
        Rights(u32::from_be_bytes([own, 0, 0, afs & 0x7f]))
    }
}

impl Default for Known {
    fn default() -> Self {
        Self {
            anybody: Short::UNKNOWN,
            anybody_above: Short::UNKNOWN,
            user: UserId::ANYBODY,
            own: Short::UNKNOWN,
            own_above: Short::UNKNOWN,
        }
    }
}

impl Known {
    /// What a server told a user with a status.
    pub(crate) fn told(user: UserId, status: &FetchStatus, above: Above) -> Self {
        Self {
            anybody: Short::of(status.anonymous_access),
            anybody_above: Short::if_known(above.anybody),
            user,
            own: Short::of(status.caller_access),
            own_above: Short::if_known(above.own),
        }
    }

    /// The rights of the user who asked last, if one did.
    pub(crate) fn last(&self) -> Option<One> {
        let one = One {
            user: self.user,
            rights: self.own,
            above: self.own_above,
        };
        (self.user != UserId::ANYBODY).then_some(one)
    }

    /// The rights of a user, if this is the one who asked last, or of anybody.
    pub(crate) fn of(&self, user: UserId) -> Option<One> {
        let one = match user {
            UserId::ANYBODY => One {
                user,
                rights: self.anybody,
                above: self.anybody_above,
            },
            _ => self.last().filter(|last| last.user == user)?,
        };
        (one.rights != Short::UNKNOWN).then_some(one)
    }
}

/// Rights to a directory that were known when one of its files was asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Above {
    pub(crate) own: Option<Rights>,
    pub(crate) anybody: Option<Rights>,
}

/// What the user may do.
pub(crate) fn rights(status: &FetchStatus) -> Rights {
    status.caller_access | status.anonymous_access
}

/// Whether the caller owns a file and may add files to its directory. He may read and fill it with no more than
/// that: so a file is made that others are not to see. That he is the owner a server says by a right to administer
/// the file, which to files no access list gives.
// spec: afs-rpc#status
fn fills(status: &FetchStatus) -> bool {
    let owner = status.caller_access.contains(Rights::ADMINISTER);
    owner && rights(status).contains(Rights::INSERT)
}

/// Whether the caller's rights allow reading a file.
// spec: afs-rpc#rights
pub(crate) fn may_read(status: &FetchStatus) -> bool {
    rights(status).contains(Rights::READ) || fills(status)
}

/// Whether a server takes what the caller writes to a file. Of the permission bits the owner's counts, except for an
/// owner who fills a file of their own.
// spec: afs-rpc#rights
pub(crate) fn may_write(status: &FetchStatus) -> bool {
    fills(status)
        || rights(status).contains(Rights::WRITE) && status.unix_mode_bits & OWNER_WRITE != 0
}

/// Whether rights allow reading (4), writing (2), executing or entering (1).
pub(crate) fn allowed(status: &FetchStatus, mask: u32) -> bool {
    let has = rights(status);
    let wants = |bit| mask & bit != 0;
    if status.file_type == FileType::Directory {
        let changes = has.contains(Rights::INSERT) || has.contains(Rights::DELETE);
        return (!wants(READ | EXECUTE) || has.contains(Rights::LOOKUP))
            && (!wants(WRITE) || changes);
    }
    if status.file_type == FileType::Symlink {
        return has.contains(Rights::LOOKUP) || has.contains(Rights::READ);
    }
    let reads = may_read(status);
    (!wants(READ | EXECUTE) || reads) && (!wants(WRITE) || may_write(status))
}

/// Whether a file's permission bits leave this to the one who asks. The file server lets an owner write to what is
/// protected from writing; programs that protect a file from themselves count on clients to refuse it, as OpenAFS's
/// does. Root reads and writes what no bit allows, as on a local disk.
pub(crate) fn has_bits(who: Who, status: &FetchStatus, mask: u32) -> bool {
    if status.file_type != FileType::File {
        return true;
    }
    let has = |asked, bits| mask & asked == 0 || status.unix_mode_bits & bits != 0;
    let may_use = who.uid == 0 || has(READ, OWNER_READ) && has(WRITE, OWNER_WRITE);
    may_use && has(EXECUTE, OWNER_EXECUTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether an ordinary user may, and root.
    fn may(file_type: FileType, rights: &str, mode: u32, mask: u32) -> [bool; 2] {
        let status = FetchStatus {
            file_type,
            caller_access: rights.parse().unwrap(),
            unix_mode_bits: mode,
            ..FetchStatus::default()
        };
        let is = |uid| {
            let who = Who {
                uid,
                ..Who::default()
            };
            allowed(&status, mask) && has_bits(who, &status, mask)
        };
        [is(1000), is(0)]
    }

    #[test]
    fn rights_decide_and_the_owners_bits_take_away() {
        use FileType::{Directory, File};
        const YES: [bool; 2] = [true; 2];
        const NO: [bool; 2] = [false; 2];
        const ROOT: [bool; 2] = [false, true];
        for (file_type, rights, mode, mask, expected) in [
            (File, "rl", 0o444, READ, YES),
            (File, "rl", 0o044, READ, ROOT),
            (File, "l", 0o777, READ, NO),
            (File, "rlw", 0o444, WRITE, NO),
            (File, "rlwia", 0o444, WRITE, ROOT),
            (File, "rlw", 0o644, READ | WRITE, YES),
            (File, "rl", 0o644, EXECUTE, NO),
            (File, "rl", 0o755, READ | EXECUTE, YES),
            // An owner in a drop box.
            (File, "ia", 0o644, WRITE, YES),
            (Directory, "l", 0o000, READ | EXECUTE, YES),
            (Directory, "rl", 0o777, WRITE, NO),
            (Directory, "li", 0o000, WRITE, YES),
        ] {
            let found = may(file_type, rights, mode, mask);
            assert_eq!(found, expected, "{file_type:?} {rights} {mode:o} {mask}");
        }
    }
}
