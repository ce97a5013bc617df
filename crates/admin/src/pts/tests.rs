//! Steps against a server that answers from a short list.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use afar_net::{AbortCode, Config, Endpoint};
use afar_rpc::{Caller, pr};
use afar_types::{PrIds, PrName, PrNames, PtsId};

use super::*;
use crate::{Security, Servers};

/// Answers by a list of names, and notes the names it is asked for.
#[derive(Clone, Default)]
struct Server {
    asked: Arc<Mutex<Vec<String>>>,
    /// Answers with one less than it is asked for.
    miscounts: bool,
    /// Does not know groups in groups.
    old: bool,
}

fn known() -> BTreeMap<String, i32> {
    [("alice", 1), ("7", 2), ("a:b", -206), ("a:c", -207)]
        .map(|(name, id)| (name.to_owned(), id))
        .into()
}

impl pr::Service for Server {
    async fn name_to_id(
        &self,
        _: &Caller,
        request: pr::name_to_id::Request,
    ) -> Result<pr::name_to_id::Reply, AbortCode> {
        let known = known();
        let names = request.names.iter().map(ToString::to_string);
        let names: Vec<_> = names.collect();
        let ids = names.iter().map(|name| known.get(name).copied());
        let ids = ids.map(|id| PtsId(id.unwrap_or(32766)));
        let ids: Vec<_> = ids.skip(usize::from(self.miscounts)).collect();
        self.asked.lock().unwrap().extend(names);
        let ids = PrIds::new(ids).unwrap();
        Ok(pr::name_to_id::Reply { ids })
    }

    async fn id_to_name(
        &self,
        _: &Caller,
        request: pr::id_to_name::Request,
    ) -> Result<pr::id_to_name::Reply, AbortCode> {
        let known = known();
        let name = |id: &PtsId| {
            let found = known.iter().find(|(_, known)| **known == id.0);
            found.map_or_else(|| id.0.to_string(), |(name, _)| name.clone())
        };
        let names = request.ids.iter().map(name);
        let names: Vec<_> = names.map(|name| PrName::new(name).unwrap()).collect();
        let names = PrNames::new(names).unwrap();
        Ok(pr::id_to_name::Reply { names })
    }

    async fn list_elements(
        &self,
        _: &Caller,
        request: pr::list_elements::Request,
    ) -> Result<pr::list_elements::Reply, AbortCode> {
        // a:b has alice and a:c; a:c has the user 9, and a:b again.
        let elements: &[i32] = match request.id.0 {
            -206 => &[-207, 1],
            -207 => &[-206, 9],
            1 => &[-206],
            _ => return Err(AbortCode(267_268)),
        };
        let elements = elements.iter().map(|&id| PtsId(id));
        let elements = PrIds::new(elements.collect::<Vec<_>>()).unwrap();
        Ok(pr::list_elements::Reply { elements, over: 0 })
    }

    async fn list_super_groups(
        &self,
        _: &Caller,
        request: pr::list_super_groups::Request,
    ) -> Result<pr::list_super_groups::Reply, AbortCode> {
        if self.old {
            return Err(AbortCode::RXGEN_OPCODE);
        }
        let above = if request.id.0 == -206 { -207 } else { -206 };
        let groups = PrIds::new([PtsId(above)]).unwrap();
        Ok(pr::list_super_groups::Reply { groups, over: 0 })
    }

    async fn list_owned(
        &self,
        _: &Caller,
        request: pr::list_owned::Request,
    ) -> Result<pr::list_owned::Reply, AbortCode> {
        // A page each, the last of which says by 1 that there is more, which is not available.
        let (id, last) = match request.last {
            0 => (-206, 77),
            77 => (-207, 1),
            _ => return Err(AbortCode(267_273)),
        };
        let owned = PrIds::new([PtsId(id)]).unwrap();
        Ok(pr::list_owned::Reply { owned, last })
    }
}

fn serve(server: Server) -> (Servers, Endpoint) {
    let loopback = "127.0.0.1:0".parse().unwrap();
    let endpoint = Endpoint::bind(loopback, Config::default()).unwrap();
    endpoint.serve(pr::SERVICE, pr::NAME, pr::Server::new(server));
    let address = [endpoint.local_addr()];
    let client = Endpoint::bind(loopback, Config::default()).unwrap();
    let servers = Servers::with_addresses(client, &address, &address, 7005, Security::none());
    (servers, endpoint)
}

#[tokio::test]
async fn names_are_asked_for_in_lower_case() {
    let server = Server::default();
    let (servers, _endpoint) = serve(server.clone());
    assert_eq!(id(&servers, "Alice").await, Ok(PtsId(1)));
    assert_eq!(*server.asked.lock().unwrap(), ["alice"]);
    assert_eq!(id(&servers, "bob").await, Err(PtsError::NoEntry));
    let long = "x".repeat(64);
    assert_eq!(id(&servers, &long).await, Err(PtsError::NameTooLong));
    assert_eq!(ids(&servers, &[]).await, Ok(vec![]));
    assert_eq!(name(&servers, PtsId(-206)).await.unwrap(), "a:b");
}

#[tokio::test]
async fn what_is_given_is_a_name_before_it_is_a_number() {
    let (servers, _endpoint) = serve(Server::default());
    let found = find(&servers, &["-206", "7", "bob", "5", "alice"]).await;
    let known = |id, name: &str| Found::Known {
        id: PtsId(id),
        name: name.into(),
    };
    let unknown = Found::Unknown { name: "bob".into() };
    let expected = [
        known(2, "7"),
        unknown,
        known(1, "alice"),
        known(-206, "a:b"),
        known(5, "5"),
    ];
    assert_eq!(found.unwrap(), expected);
}

#[tokio::test]
async fn an_answer_of_another_length_is_none() {
    let (servers, _endpoint) = serve(Server {
        miscounts: true,
        ..Server::default()
    });
    let found = ids(&servers, &["alice", "bob"]).await;
    assert_eq!(found, Err(PtsError::AnswerLength));
}

#[tokio::test]
async fn groups_in_groups_are_expanded_and_circles_end() {
    let (servers, _endpoint) = serve(Server::default());
    let names = |names: Result<Vec<String>, PtsError>| names.unwrap();
    let users = names(expanded_elements(&servers, PtsId(-206)).await);
    assert_eq!(users, ["alice", "9"]);
    let groups = names(expanded_elements(&servers, PtsId(1)).await);
    assert_eq!(groups, ["a:b", "a:c"]);
    let gone = elements(&servers, PtsId(50)).await.unwrap_err();
    assert_eq!(gone.code().0, 267_268);
    let (servers, _endpoint) = serve(Server {
        old: true,
        ..Server::default()
    });
    let groups = names(expanded_elements(&servers, PtsId(1)).await);
    assert_eq!(groups, ["a:b"]);
}

#[tokio::test]
async fn owned_groups_are_asked_for_to_the_last_page() {
    let (servers, _endpoint) = serve(Server::default());
    assert_eq!(owned(&servers, PtsId(1)).await.unwrap(), ["a:b", "a:c"]);
}
