//! The operations, each as its callers see it.

mod access;
mod change;
mod create;
mod lists;
mod members;
mod model;

use std::net::SocketAddr;

use afar_net::AbortCode;
use afar_rpc::pr::{self, Service};
use afar_rpc::{Caller, Identity};
use afar_types::{PrEntry, PrIds, PrName, PrNameText, PrNames, PrNamesAsked, PtsId};
use tempfile::TempDir;

use super::{ProtectionConfig, ProtectionServer};
use crate::kv::{Database, Options};

const PREXIST: AbortCode = AbortCode(267_264);
const PRIDEXIST: AbortCode = AbortCode(267_265);
const PRNOIDS: AbortCode = AbortCode(267_266);
const PRNOENT: AbortCode = AbortCode(267_268);
const PRPERM: AbortCode = AbortCode(267_269);
const PRNOTGROUP: AbortCode = AbortCode(267_270);
const PRBADNAM: AbortCode = AbortCode(267_272);
const PRBADARG: AbortCode = AbortCode(267_273);
const PRNOMORE: AbortCode = AbortCode(267_274);
const PRGROUPEMPTY: AbortCode = AbortCode(267_276);
const PRINCONSISTENT: AbortCode = AbortCode(267_277);

/// Type bit of a group.
const GROUP: i32 = 2;

/// A server, and those who call it.
pub(super) struct Cell {
    pub(super) server: ProtectionServer,
    _dir: TempDir,
}

/// One who calls.
#[derive(Clone, Copy)]
pub(super) enum As<'a> {
    Nobody,
    Admin,
    User(&'a str),
}

impl As<'_> {
    fn caller(self) -> Caller {
        Caller {
            peer: SocketAddr::from(([127, 0, 0, 1], 7001)),
            service: pr::SERVICE,
            identity: match self {
                Self::Nobody => Identity::Anonymous,
                Self::Admin => Identity::Superuser,
                Self::User(name) => Identity::User(name.into()),
            },
        }
    }
}

fn text(name: &str) -> PrNameText {
    PrNameText::new(name).unwrap()
}

fn ids(list: &PrIds) -> Vec<i32> {
    list.iter().map(|id| id.0).collect()
}

impl Cell {
    pub(super) async fn new() -> Self {
        Self::with(ProtectionConfig::default()).await
    }

    async fn with(config: ProtectionConfig) -> Self {
        let dir = TempDir::new().unwrap();
        let database = Database::open(dir.path(), &Options::default()).unwrap();
        let server = ProtectionServer::open(database, config).await.unwrap();
        Self { server, _dir: dir }
    }

    /// A cell with alice 1, bob 2, carol 3.
    async fn with_users() -> Self {
        let cell = Self::new().await;
        for name in ["alice", "bob", "carol"] {
            cell.make(As::Admin, name, 0, 0).await.unwrap();
        }
        cell
    }

    pub(super) async fn make(
        &self,
        who: As<'_>,
        name: &str,
        flag: i32,
        owner: i32,
    ) -> Result<i32, AbortCode> {
        let (name, owner) = (text(name), PtsId(owner));
        let request = pr::new_entry::Request { name, flag, owner };
        let made = self.server.new_entry(&who.caller(), request).await?;
        Ok(made.id.0)
    }

    pub(super) async fn make_with_id(
        &self,
        who: As<'_>,
        name: &str,
        id: i32,
        owner: i32,
    ) -> Result<(), AbortCode> {
        let request = pr::i_new_entry::Request {
            name: text(name),
            id: PtsId(id),
            owner: PtsId(owner),
        };
        self.server.i_new_entry(&who.caller(), request).await?;
        Ok(())
    }

    pub(super) async fn add(&self, who: As<'_>, user: i32, group: i32) -> Result<(), AbortCode> {
        let (user, group) = (PtsId(user), PtsId(group));
        let request = pr::add_to_group::Request { user, group };
        self.server.add_to_group(&who.caller(), request).await?;
        Ok(())
    }

    pub(super) async fn remove(&self, who: As<'_>, user: i32, group: i32) -> Result<(), AbortCode> {
        let (user, group) = (PtsId(user), PtsId(group));
        let request = pr::remove_from_group::Request { user, group };
        self.server
            .remove_from_group(&who.caller(), request)
            .await?;
        Ok(())
    }

    pub(super) async fn delete(&self, who: As<'_>, id: i32) -> Result<(), AbortCode> {
        let request = pr::delete::Request { id: PtsId(id) };
        self.server.delete(&who.caller(), request).await?;
        Ok(())
    }

    /// Changes name ("" to keep), owner and id (0 to keep).
    pub(super) async fn change(
        &self,
        who: As<'_>,
        id: i32,
        (name, owner, new_id): (&str, i32, i32),
    ) -> Result<(), AbortCode> {
        let request = pr::change_entry::Request {
            id: PtsId(id),
            name: text(name),
            owner: PtsId(owner),
            new_id: PtsId(new_id),
        };
        self.server.change_entry(&who.caller(), request).await?;
        Ok(())
    }

    async fn set(
        &self,
        who: As<'_>,
        id: i32,
        mask: u32,
        (access, n_groups, n_users): (u32, i32, i32),
    ) -> Result<(), AbortCode> {
        let request = pr::set_fields_entry::Request {
            id: PtsId(id),
            mask,
            access: afar_types::PrAccess(access),
            n_groups,
            n_users,
            spare: [0; 2],
        };
        self.server.set_fields_entry(&who.caller(), request).await?;
        Ok(())
    }

    /// Sets the access bits.
    async fn set_access(&self, who: As<'_>, id: i32, access: u32) -> Result<(), AbortCode> {
        let mask = PrEntry::SET_ACCESS;
        self.set(who, id, mask, (access, 0, 0)).await
    }

    pub(super) async fn entry(&self, who: As<'_>, id: i32) -> Result<PrEntry, AbortCode> {
        let request = pr::list_entry::Request { id: PtsId(id) };
        Ok(self.server.list_entry(&who.caller(), request).await?.entry)
    }

    pub(super) async fn name_of(&self, id: i32) -> String {
        let ids = PrIds::new([PtsId(id)]).unwrap();
        let request = pr::id_to_name::Request { ids };
        let reply = self.server.id_to_name(&As::Nobody.caller(), request).await;
        let names: PrNames = reply.unwrap().names;
        names[0].to_string()
    }

    pub(super) async fn id_of(&self, name: &str) -> i32 {
        let names = PrNamesAsked::new([PrName::new(name).unwrap()]).unwrap();
        let request = pr::name_to_id::Request { names };
        let reply = self.server.name_to_id(&As::Nobody.caller(), request).await;
        reply.unwrap().ids[0].0
    }

    pub(super) async fn elements(&self, who: As<'_>, id: i32) -> Result<Vec<i32>, AbortCode> {
        let request = pr::list_elements::Request { id: PtsId(id) };
        let reply = self.server.list_elements(&who.caller(), request).await?;
        assert_eq!(reply.over, 0);
        Ok(ids(&reply.elements))
    }

    async fn owned(&self, who: As<'_>, id: i32, last: i32) -> Result<(Vec<i32>, i32), AbortCode> {
        let id = PtsId(id);
        let request = pr::list_owned::Request { id, last };
        let reply = self.server.list_owned(&who.caller(), request).await?;
        Ok((ids(&reply.owned), reply.last))
    }

    pub(super) async fn cps(&self, who: As<'_>, id: i32) -> Result<Vec<i32>, AbortCode> {
        let request = pr::get_cps::Request { id: PtsId(id) };
        Ok(ids(&self.server.get_cps(&who.caller(), request).await?.cps))
    }

    pub(super) async fn is_member(
        &self,
        who: As<'_>,
        user: i32,
        group: i32,
    ) -> Result<bool, AbortCode> {
        let (user, group) = (PtsId(user), PtsId(group));
        let request = pr::is_a_member_of::Request { user, group };
        let reply = self.server.is_a_member_of(&who.caller(), request).await?;
        Ok(reply.member != 0)
    }

    async fn max(&self) -> (i32, i32) {
        let reply = self
            .server
            .list_max(&As::Nobody.caller(), pr::list_max::Request {})
            .await
            .unwrap();
        (reply.user.0, reply.group.0)
    }
}
