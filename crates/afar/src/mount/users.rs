//! The users of a mount, and whose tokens their requests are made with.

use std::fmt;

use afar_cache::{Identity, Stamp, Users};
use afar_security::Level;
use rustix::process::geteuid;

use crate::fetch::{Reach, Seen, session};
use crate::tokens::{Finder, UserTokens};

/// The stamp of one who is always the same.
const ALWAYS: Stamp = Stamp(0);
/// The stamp of one who has no tokens.
const NONE: Stamp = Stamp(1);

/// All users of a mount: each with their own tokens, as far as these can be found.
pub(super) struct MountUsers {
    /// The user who mounts.
    own: u32,
    /// Whether that user is an administrator, by the client's own credentials.
    administers: bool,
    /// Whether that user may do nothing without a token.
    required: bool,
    level: Level,
}

impl MountUsers {
    /// The users of a mount that reaches cells so; `None` if all are whoever the client is.
    pub(super) fn of(reach: &Reach) -> Option<Self> {
        let (administers, required) = match reach.seen_as() {
            // Every caller through these sockets is the administrator, with or without tokens.
            Seen::Nobody | Seen::Sockets => return None,
            Seen::Keys => (true, false),
            Seen::Tokens { required } => (false, required),
        };
        Some(Self {
            own: geteuid().as_raw(),
            administers,
            required,
            level: reach.level(),
        })
    }

    /// Only root sees the tokens of others.
    fn sees_others(&self) -> bool {
        self.own == 0
    }

    fn finder(&self, uid: u32) -> Option<Finder> {
        match uid == self.own {
            true => Some(Finder::default()),
            false => self.sees_others().then(|| Finder::of_user(uid)),
        }
    }
}

impl Users for MountUsers {
    fn look(&self, uid: u32, before: Option<Stamp>) -> Option<(Stamp, Identity)> {
        let own = uid == self.own;
        if own && self.administers {
            return (before != Some(ALWAYS)).then_some((ALWAYS, Identity::Client));
        }
        let Some(finder) = self.finder(uid) else {
            return (before != Some(NONE)).then_some((NONE, Identity::Anonymous));
        };
        // The user's own tokens may be where no stamp shows them.
        let stamp = finder.stamp();
        let found = stamp.is_some() || own;
        let stamp = stamp.map_or(NONE, |stamp| Stamp(stamp.max(NONE.0 + 1)));
        if before == Some(stamp) {
            return None;
        }
        tracing::debug!(uid, found, "a user's tokens have changed");
        if !found {
            return Some((stamp, Identity::Anonymous));
        }
        let tokens = UserTokens::new(finder, self.level, own && self.required);
        Some((stamp, Identity::Own(session::renewed(tokens))))
    }
}

impl fmt::Debug for MountUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountUsers")
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}
