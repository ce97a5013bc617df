//! Users' rights to a vnode, as long as its status is promised.

use afar_types::FetchStatus;

use super::VnodeState;
use crate::model::rights::{Above, Known, One};
use crate::model::user::UserId;

/// Users whose rights to one file are remembered, besides the last one.
const OTHERS_MOST: usize = 62;

impl VnodeState {
    /// Forgets all users' rights.
    pub(crate) fn clear_rights(&mut self) {
        self.rights = Known::default();
        if let Some(rare) = self.rare.if_any() {
            rare.rights = Vec::new();
            rare.asked_again = None;
        }
    }

    /// Keeps what a server told a user with a status that is promised.
    pub(crate) fn note_rights(&mut self, user: UserId, status: &FetchStatus, above: Above) {
        if let Some(before) = self.rights.last().filter(|last| last.user != user) {
            let others = &mut self.rare.rights;
            others.retain(|other| other.user != user);
            if others.len() >= OTHERS_MOST {
                others.remove(0);
            }
            others.push(before);
        }
        let mut others = self.rare.rights.iter();
        debug_assert!(others.all(|other| other.user != user), "{user:?} twice");
        self.rights = Known::told(user, status, above);
    }

    /// What is known of a user's rights, or of anybody's.
    pub(crate) fn rights_of(&self, user: UserId) -> Option<One> {
        let others = &self.rare.rights;
        let other = || others.iter().find(|one| one.user == user).copied();
        self.rights.of(user).or_else(other)
    }
}
