//! Bits by which a program runs with its owner's rights go when its content or owner is changed by
//! another. The kernel leaves that to us (`FUSE_HANDLE_KILLPRIV_V2`), so that it need not ask before
//! each write.

use afar_cache::{Cache, Ino, SetAttr, Who};

/// Set user id.
const SET_UID: u32 = 0o4000;
/// Set group id, and that it is meant: without the right to execute it marks files to be locked.
const SET_GID: u32 = 0o2010;
/// The user without restrictions.
const ROOT: u32 = 0;

/// The mode after a change, if it is another one.
fn after_change(mode: u32) -> Option<u32> {
    let mut left = mode & !SET_UID;
    if mode & SET_GID == SET_GID {
        left &= !(SET_GID & 0o7000);
    }
    (left != mode).then_some(left)
}

/// Adds to a change of attributes that it ends these rights, where it does.
pub(super) async fn drop_by(cache: &Cache, who: Who, ino: Ino, set: &mut SetAttr) {
    let by_length = set.size.is_some() && who.uid != ROOT;
    let by_owner = set.uid.is_some() || set.gid.is_some();
    if set.mode.is_some() || !(by_length || by_owner) {
        return;
    }
    // Where this fails, so does the change.
    if let Ok(attr) = cache.getattr(who, ino).await
        && attr.kind == afar_cache::Kind::File
    {
        set.mode = after_change(attr.mode & 0o7777);
    }
}

/// Ends these rights after a write.
pub(super) async fn drop_now(cache: &Cache, who: Who, ino: Ino) {
    let Ok(attr) = cache.getattr(who, ino).await else {
        return;
    };
    let Some(mode) = after_change(attr.mode & 0o7777) else {
        return;
    };
    let set = SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    };
    if let Err(error) = cache.setattr(who, ino, set, None).await {
        tracing::warn!(?ino, %error, "the mode still lets a changed program run as its owner");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bits_that_give_rights_go() {
        for (mode, after) in [
            (0o644, None),
            (0o4755, Some(0o755)),
            (0o2755, Some(0o755)),
            (0o6755, Some(0o755)),
            // Marked for mandatory locking.
            (0o2644, None),
            (0o1777, None),
        ] {
            assert_eq!(after_change(mode), after, "{mode:o}");
        }
    }
}
