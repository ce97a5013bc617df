//! Names of users and groups: which are allowed for whom.

use afar_types::PrName;

use super::PrError;

/// The name that a cell's group of foreign users begins with; `@` and the cell's name follow.
const AUTHUSER: &[u8] = b"system:authuser";

/// The greatest number of bytes of a name.
pub(super) const LEN_MAX: usize = 63;

/// An argument as the name it stands for: letters of ASCII in lower case.
pub(super) fn lower(text: &[u8]) -> Vec<u8> {
    text.to_ascii_lowercase()
}

/// The part from the `@` on, if there is one.
pub(super) fn at_cell(name: &[u8]) -> Option<&[u8]> {
    let at = name.iter().position(|&byte| byte == b'@')?;
    name.get(at..)
}

/// Name of the group that all users of the cell of `user@cell` are in.
pub(super) fn cell_group(at_cell: &[u8]) -> Vec<u8> {
    [AUTHUSER, at_cell].concat()
}

/// Whether a group named with an `@` is one of foreign users.
pub(super) fn is_cell_group(name: &[u8]) -> bool {
    let head = at_cell(name).map_or(name, |at| &name[..name.len() - at.len()]);
    head == AUTHUSER
}

/// Refuses what cannot be a user's name: one that looks like a group's, has a line break or is too
/// long. An empty one is refused too, as no client could name it; OpenAFS makes such an entry.
pub(super) fn check_user(name: &[u8]) -> Result<(), PrError> {
    let confusing = |byte: &u8| matches!(byte, b':' | b'\n' | 0);
    if name.is_empty() || name.len() > LEN_MAX || name.iter().any(confusing) {
        return Err(PrError::BadName);
    }
    Ok(())
}

/// Refuses what cannot be the name of a user or group.
pub(super) fn check_any(name: &[u8]) -> Result<(), PrError> {
    let mut parts = name.splitn(2, |&byte| byte == b':');
    let (_, Some(suffix)) = (parts.next(), parts.next()) else {
        return check_user(name);
    };
    let confusing = |byte: &u8| matches!(byte, b'\n' | 0);
    if name.len() > LEN_MAX || suffix.contains(&b':') || name.iter().any(confusing) {
        return Err(PrError::BadName);
    }
    Ok(())
}

/// The owner's part of the name of a group that this owner owns.
pub(super) fn prefix(owner_name: &[u8]) -> &[u8] {
    let end = owner_name.iter().position(|&byte| byte == b':');
    &owner_name[..end.unwrap_or(owner_name.len())]
}

/// The name that a group asked for by `name` has to have with an owner of this prefix.
///
/// Only administrators name groups `system:…`, and groups without an owner's part.
// spec: afs-rpc#making-users-and-groups
pub(super) fn correct(name: &[u8], prefix: &[u8], admin: bool) -> Result<Vec<u8>, PrError> {
    if name.len() > LEN_MAX {
        return Err(PrError::BadName);
    }
    if prefix == b"system" && !admin {
        return Err(PrError::Permission);
    }
    let colon = name.iter().position(|&byte| byte == b':');
    let correct = match colon.and_then(|at| name.get(at..)) {
        Some(suffix) => [prefix, suffix].concat(),
        None if admin => name.to_vec(),
        None => return Err(PrError::BadName),
    };
    check_any(&correct)?;
    Ok(correct)
}

/// In the form that results carry.
pub(super) fn on_wire(name: &[u8]) -> Result<PrName, PrError> {
    PrName::new(name).map_err(|_| PrError::Damaged("a name is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_no_colon() {
        assert!(check_user(b"alice").is_ok());
        assert!(check_user(b"alice@other.org").is_ok());
        for bad in [&b"a:b"[..], b"a\nb", b"", &[b'x'; 64]] {
            assert!(check_user(bad).is_err());
        }
        assert!(check_user(&[b'x'; 63]).is_ok());
    }

    #[test]
    fn groups_take_their_owners_name() {
        let correct = |name: &[u8], prefix: &[u8], admin| correct(name, prefix, admin);
        assert_eq!(
            correct(b"bob:friends", b"alice", false).unwrap(),
            b"alice:friends"
        );
        assert_eq!(
            correct(b"friends", b"alice", false).unwrap_err().code().0,
            267_272
        );
        assert_eq!(correct(b"friends", b"alice", true).unwrap(), b"friends");
        assert_eq!(
            correct(b"a:b", b"system", false).unwrap_err().code().0,
            267_269
        );
        assert!(correct(b"a:b:c", b"a", true).is_err());
        assert!(correct(b"a:b", &[b'x'; 62], false).is_err());
    }

    #[test]
    fn a_group_that_owns_gives_its_first_part() {
        assert_eq!(prefix(b"alice:friends"), b"alice");
        assert_eq!(prefix(b"staff"), b"staff");
    }

    #[test]
    fn foreign_names_have_a_cell() {
        assert_eq!(at_cell(b"u@c.org"), Some(&b"@c.org"[..]));
        assert_eq!(at_cell(b"u"), None);
        assert_eq!(cell_group(b"@c.org"), b"system:authuser@c.org");
        assert!(is_cell_group(b"system:authuser@c.org"));
        assert!(!is_cell_group(b"system:other@c.org"));
    }
}
