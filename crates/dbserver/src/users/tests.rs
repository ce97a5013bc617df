//! Passwords and keys, as clients set them and as the login service sees them.

use std::net::SocketAddr;

use afar_login::password::NewPassword;
use afar_net::AbortCode;
use afar_rpc::users::{self, PasswordMessage, Service, SshKeyLine, SshKeyLines};
use afar_rpc::{Caller, Identity, pr};
use afar_types::{PrNameText, PtsId};
use tempfile::TempDir;

use super::*;
use crate::kv::{Database, Options};
use crate::pr::ProtectionConfig;

const PRPERM: AbortCode = AbortCode(267_269);
const PRNOENT: AbortCode = AbortCode(267_268);
const PRBADARG: AbortCode = AbortCode(267_273);
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICeqAS2+aOn4dZ1QJ7RVHsSXU1jCuCTH1PIvA8Tz5Rz3 alice at home";

const ALICE: PtsId = PtsId(1);
const BOB: PtsId = PtsId(2);

struct Cell {
    users: UserServer,
    dir: TempDir,
}

fn admin() -> Caller {
    caller(Identity::Superuser)
}

fn user(name: &str) -> Caller {
    caller(Identity::User(name.into()))
}

fn caller(identity: Identity) -> Caller {
    Caller {
        peer: SocketAddr::from(([127, 0, 0, 1], 7001)),
        service: users::SERVICE,
        identity,
    }
}

impl Cell {
    /// A cell with alice 1 and bob 2.
    async fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let users = open(&dir).await;
        for (name, id) in [("alice", ALICE), ("bob", BOB)] {
            let name = PrNameText::new(name).unwrap();
            let owner = PtsId(0);
            let request = pr::i_new_entry::Request { name, id, owner };
            let protection: &ProtectionServer = &users.protection;
            pr::Service::i_new_entry(protection, &admin(), request)
                .await
                .unwrap();
        }
        Self { users, dir }
    }

    async fn set_password(&self, who: &Caller, id: PtsId, text: &[u8]) -> Result<(), AbortCode> {
        let (new, request) = NewPassword::begin(text).unwrap();
        let request = PasswordMessage::new(request).unwrap();
        let request = users::register_start::Request { id, request };
        let response = self.users.register_start(who, request).await?.response;
        let record = new.finish(&response).unwrap();
        let record = PasswordMessage::new(record.octets()).unwrap();
        let request = users::register_finish::Request { id, record };
        self.users.register_finish(who, request).await.map(drop)
    }

    async fn set_keys(&self, who: &Caller, id: PtsId, lines: &[&str]) -> Result<(), AbortCode> {
        let lines: Vec<_> = lines.iter().map(|&l| SshKeyLine::new(l).unwrap()).collect();
        let keys = SshKeyLines::new(lines).unwrap();
        let request = users::set_keys::Request { id, keys };
        self.users.set_keys(who, request).await.map(drop)
    }

    async fn listed(&self, who: &Caller, id: PtsId) -> Result<users::list_keys::Reply, AbortCode> {
        let request = users::list_keys::Request { id };
        self.users.list_keys(who, request).await
    }

    fn found(&self, name: &str) -> Option<User> {
        let name = self.users.canonical(name);
        self.users.find(&name).unwrap()
    }
}

async fn open(dir: &TempDir) -> UserServer {
    let database = Database::open(dir.path(), &Options::default()).unwrap();
    let config = ProtectionConfig {
        local_realms: vec!["home.arpa".to_owned()],
        ..ProtectionConfig::default()
    };
    let protection = ProtectionServer::open(database, config).await.unwrap();
    UserServer::open(Arc::new(protection)).await.unwrap()
}

#[tokio::test]
async fn administrators_and_users_themselves_set_passwords_and_keys() {
    let cell = Cell::new().await;
    cell.set_password(&admin(), ALICE, b"first").await.unwrap();
    let first = cell.found("alice").unwrap();
    assert_eq!((first.id, first.name.as_str()), (1, "alice"));
    assert!(first.password.is_some() && first.keys.is_empty());
    cell.set_password(&user("alice"), ALICE, b"second")
        .await
        .unwrap();
    cell.set_keys(&user("alice"), ALICE, &[KEY]).await.unwrap();
    let second = cell.found("Alice@HOME.ARPA").unwrap();
    assert_ne!(first.password, second.password);
    assert_eq!(second.keys, [SshKey::parse(KEY).unwrap()]);
    let listed = cell.listed(&user("alice"), ALICE).await.unwrap();
    assert_eq!(listed.keys[0].as_bytes(), KEY.as_bytes());
    assert!(listed.password_changed > 0 && listed.keys_changed > 0);
    let request = users::remove::Request { id: ALICE };
    cell.users.remove(&user("alice"), request).await.unwrap();
    let gone = cell.found("alice").unwrap();
    assert!(gone.password.is_none() && gone.keys.is_empty());
}

#[tokio::test]
async fn nobody_else_sets_or_sees_them_and_not_everybody_has_them() {
    let cell = Cell::new().await;
    for who in [
        caller(Identity::Anonymous),
        user("bob"),
        user("eve"),
        user("alice@other.org"),
    ] {
        assert_eq!(
            cell.set_password(&who, ALICE, b"x").await,
            Err(PRPERM),
            "{who:?}"
        );
        assert_eq!(cell.set_keys(&who, ALICE, &[]).await, Err(PRPERM));
        assert_eq!(cell.listed(&who, ALICE).await.unwrap_err(), PRPERM);
        let request = users::remove::Request { id: ALICE };
        assert_eq!(cell.users.remove(&who, request).await.unwrap_err(), PRPERM);
    }
    let nobody = caller(Identity::Anonymous);
    let everybody = PtsId::ANONYMOUS;
    assert_eq!(
        cell.set_password(&nobody, everybody, b"x").await,
        Err(PRPERM)
    );
    for group in [everybody, PtsId::ADMINISTRATORS] {
        assert_eq!(
            cell.set_password(&admin(), group, b"x").await,
            Err(PRBADARG)
        );
    }
    assert_eq!(
        cell.set_keys(&admin(), PtsId(99), &[KEY]).await,
        Err(PRNOENT)
    );
    for wrong in ["", "ssh-dss AAAA", "nonsense"] {
        assert_eq!(
            cell.set_keys(&admin(), ALICE, &[wrong]).await,
            Err(PRBADARG)
        );
    }
    let record = PasswordMessage::new(*b"short").unwrap();
    let request = users::register_finish::Request { id: ALICE, record };
    let refused = cell.users.register_finish(&admin(), request).await;
    assert_eq!(refused.unwrap_err(), PRBADARG);
    assert!(cell.found("system:administrators").is_none());
    assert!(cell.found("anonymous").is_none());
    assert!(cell.found("eve").is_none());
}

#[tokio::test]
async fn they_go_with_the_user_and_stay_over_a_restart() {
    let cell = Cell::new().await;
    cell.set_password(&admin(), ALICE, b"x").await.unwrap();
    cell.set_keys(&admin(), ALICE, &[KEY]).await.unwrap();
    cell.set_keys(&admin(), BOB, &[KEY]).await.unwrap();
    let setup = cell.users.read_setup().unwrap().to_octets();
    let Cell { users, dir } = cell;
    drop(users);
    let cell = Cell {
        users: open(&dir).await,
        dir,
    };
    assert_eq!(cell.users.read_setup().unwrap().to_octets(), setup);
    assert!(cell.found("alice").unwrap().password.is_some());
    let pr: &ProtectionServer = &cell.users.protection;
    // A password is bound to the id, keys are not.
    let request = pr::change_entry::Request {
        id: ALICE,
        name: PrNameText::new("alicia").unwrap(),
        owner: PtsId(0),
        new_id: PtsId(7),
    };
    pr::Service::change_entry(pr, &admin(), request)
        .await
        .unwrap();
    let moved = cell.found("alicia").unwrap();
    assert!(moved.password.is_none() && moved.keys.len() == 1);
    for id in [PtsId(7), BOB] {
        let request = pr::delete::Request { id };
        pr::Service::delete(pr, &admin(), request).await.unwrap();
    }
    let rows = pr.database().read(|rows| {
        let left = rows.range(b"Pu", b"Pu").count();
        Ok::<_, PrError>(left)
    });
    assert_eq!(rows.unwrap(), 0);
}
