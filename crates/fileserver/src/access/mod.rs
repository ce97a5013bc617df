//! Access decisions: ACL, CPS, owner and permission bits in, rights and refusals out.
//!
//! Nothing here asks anyone or keeps anything; the rules are those of OpenAFS's file server
//! (`viced/afsfileprocs.c`), whose clients show users what it decides.
//!
//! - A [`Person`] is who calls: id, CPS, and the groups of the host that is called from.
//! - [`Grant::of`] evaluates an ACL for a person; [`Grant::on`] adds what ownership of a vnode means.
//! - The `may_*` functions decide on an operation.

mod decide;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use afar_store::VnodeStatus;
use afar_types::{AclRecord, FileType, PtsId, Rights};

pub(crate) use decide::{
    may_change_entries, may_fetch_acl, may_fetch_data, may_fetch_status, may_lock, may_store_acl,
    may_store_data, may_store_status,
};

/// The ids by which ACLs may grant someone rights (AFS: current protection subdomain).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cps(Vec<PtsId>);

impl Cps {
    /// Of these ids, in any order.
    #[must_use]
    pub(crate) fn new(ids: impl IntoIterator<Item = PtsId>) -> Self {
        let mut ids: Vec<_> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        Self(ids)
    }

    /// Of someone nobody knows: `system:anyuser` and `anonymous`.
    #[must_use]
    pub(crate) fn anonymous() -> Self {
        Self(vec![PtsId::ANYUSER, PtsId::ANONYMOUS])
    }

    /// Whether an id is among them.
    #[must_use]
    pub(crate) fn contains(&self, id: PtsId) -> bool {
        self.0.binary_search(&id).is_ok()
    }

    /// What an ACL grants: all that positive entries give but for what negative ones take away.
    fn rights(&self, acl: &AclRecord) -> Rights {
        let sum = |entries: &[afar_types::AclRecordEntry]| {
            let own = entries.iter().filter(|entry| self.contains(entry.id));
            own.fold(Rights::NONE, |all, entry| all | entry.rights)
        };
        Rights(sum(acl.positive()).0 & !sum(acl.negative()).0)
    }
}

/// The caller, as far as access goes.
#[derive(Debug, Clone)]
pub(crate) struct Person {
    /// The user; `anonymous` if not known.
    pub(crate) id: PtsId,
    pub(crate) cps: Arc<Cps>,
    /// Groups the calling host is in.
    pub(crate) host: Arc<Cps>,
    /// Everything is allowed.
    pub(crate) superuser: bool,
}

impl Person {
    /// The cell's administration itself.
    pub(crate) fn superuser() -> Self {
        Self {
            id: PtsId::ADMINISTRATORS,
            cps: Arc::new(Cps::new([PtsId::ADMINISTRATORS, PtsId::ANYUSER])),
            host: Arc::default(),
            superuser: true,
        }
    }

    /// Whether it is a member of `system:administrators`.
    pub(crate) fn is_administrator(&self) -> bool {
        self.superuser || self.cps.contains(PtsId::ADMINISTRATORS)
    }

    /// Whether it owns a vnode. `anonymous` owns what anonymous callers made, so that these can
    /// fill a file they may only insert.
    fn owns(&self, vnode: &VnodeStatus) -> bool {
        self.id == vnode.owner
    }

    /// Whether it owns a volume, which a group can do too.
    // spec: afs-rpc#rights
    fn owns_volume(&self, owner: PtsId) -> bool {
        if owner.is_group() {
            self.cps.contains(owner)
        } else {
            self.id == owner && self.id != PtsId::ANONYMOUS
        }
    }
}

/// The rights that a status shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Of the caller.
    pub(crate) own: Rights,
    /// Of anyone at the caller's host.
    pub(crate) anyone: Rights,
}

impl Grant {
    /// What an ACL grants. Administrators may always look a name up.
    pub(crate) fn of(acl: &AclRecord, person: &Person) -> Self {
        let host = person.host.rights(acl);
        let anyone = Cps(vec![PtsId::ANYUSER]).rights(acl) | host;
        let own = if person.superuser {
            Rights::ALL
        } else if person.is_administrator() {
            // spec: afs-rpc#rights
            person.cps.rights(acl) | host | Rights::LOOKUP
        } else {
            person.cps.rights(acl) | host
        };
        Self { own, anyone }
    }

    /// The rights on a vnode under that ACL: on all but directories `a` says that the caller is
    /// the owner.
    // spec: afs-rpc#status
    pub(crate) fn on(self, vnode: &VnodeStatus, person: &Person) -> Self {
        if vnode.file_type == FileType::Directory || person.superuser {
            return self;
        }
        let own = if person.owns(vnode) {
            self.own | Rights::ADMINISTER
        } else {
            Rights(self.own.0 & !Rights::ADMINISTER.0)
        };
        Self { own, ..self }
    }
}
