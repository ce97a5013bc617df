//! Being somebody to servers: tokens, what happens when they are refused, and what is said of it.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use afar_cell::{
    Credentials, Error, LastLink, Memory, Node, PathCause, PathError, Secured, Walked,
};
use afar_net::{AbortCode, RxNull, ServerSecurity};
use afar_security::keys::Key;
use afar_security::ticket::{Mint, mint};
use afar_security::{EncryptionKey, EncryptionType, Identities, KeyRing, Level, Token, rxkad};
use afar_types::{CellName, Fid, VolumeId};

use crate::world::{Cell, World};

const VOLUME: u32 = 10;

/// A cell's keys: one, of this number.
fn keys(kvno: u32) -> Arc<KeyRing> {
    let key = EncryptionKey::random(EncryptionType::Aes256Sha1);
    Arc::new(KeyRing::of([Key { kvno, key }]))
}

/// Servers that take tickets made with these keys, and nothing else.
fn rxkad_only(keys: &Arc<KeyRing>) -> Vec<Arc<dyn ServerSecurity>> {
    let identities = Arc::new(Identities::new("test.example"));
    vec![Arc::new(rxkad::Server::new(Arc::clone(keys), identities))]
}

/// A ticket that holds from an hour ago to so many seconds from now.
fn token(keys: &KeyRing, seconds: i64) -> Token {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = i64::try_from(now.unwrap().as_secs()).unwrap();
    let request = Mint {
        client: "alice",
        realm: "TEST.EXAMPLE",
        cell: "test.example",
        start: u32::try_from(now - 3600).unwrap(),
        end: u32::try_from(now + seconds).unwrap(),
    };
    mint(keys, &request).unwrap().token
}

/// Gives these tokens one after the other: the next one when servers refuse one.
#[derive(Debug)]
struct Wallet {
    tokens: Mutex<Vec<Secured>>,
    asked_again: AtomicUsize,
}

impl Wallet {
    fn new(tokens: impl IntoIterator<Item = Token>) -> Arc<Self> {
        let secured = |token| Secured {
            security: Arc::new(rxkad::Client::new(Arc::new(token), Level::Crypt)),
            who: "alice@TEST.EXAMPLE".into(),
            until: Some("noon".into()),
        };
        Arc::new(Self {
            tokens: Mutex::new(tokens.into_iter().map(secured).collect()),
            asked_again: AtomicUsize::new(0),
        })
    }
}

impl Credentials for Wallet {
    fn security(
        &self,
        cell: &CellName,
        refused: Option<&Secured>,
    ) -> Result<Option<Secured>, String> {
        assert_eq!(cell.as_str(), "test.example");
        let mut tokens = self.tokens.lock().unwrap();
        if refused.is_some_and(|refused| tokens.first().is_some_and(|first| refused.is(first))) {
            self.asked_again.fetch_add(1, Ordering::SeqCst);
            if tokens.len() > 1 {
                tokens.remove(0);
            }
        }
        match tokens.first() {
            Some(first) => Ok(Some(first.clone())),
            None => Err("there is none".to_owned()),
        }
    }
}

fn world() -> World {
    let mut world = World::default();
    world.volume("root.cell", VOLUME, None);
    let root = Fid::root(VolumeId(VOLUME));
    world.directory(root, &[("file", 2), ("secret", 4)]);
    world.file(Fid::new(VOLUME, 2, 1), vec![7; 1_000_000]);
    world.file(Fid::new(VOLUME, 4, 1), "secret");
    world
        .vnodes
        .get_mut(&Fid::new(VOLUME, 4, 1))
        .unwrap()
        .refusal = Some(13);
    world
}

fn start(wallet: &Arc<Wallet>, keys: &Arc<KeyRing>) -> Cell {
    Cell::start_secured(
        world(),
        rxkad_only(keys),
        vec![Arc::new(RxNull)],
        |config| {
            config.piece = Some(50_000);
            config.credentials = Some(Arc::clone(wallet) as Arc<_>);
        },
    )
}

async fn find(cell: &Cell, name: &str) -> Result<Node, PathError> {
    let path = format!("/afs/test.example/{name}");
    match cell.client.walk(path.as_bytes(), LastLink::Keep).await? {
        Walked::Node(node) => Ok(node),
        Walked::Afs => panic!("a path into a cell"),
    }
}

async fn fetch(cell: &Cell, name: &str) -> Result<Vec<u8>, Error> {
    let node = match find(cell, name).await.map_err(|error| error.cause) {
        Ok(node) => node,
        Err(PathCause::Cell(error)) => return Err(error),
        Err(other) => panic!("{other}"),
    };
    let sink = Arc::new(Memory::default());
    let fetched = cell
        .client
        .fetch(&node.volume, node.fid, node.status, &sink);
    fetched.await?;
    Ok(sink.take())
}

#[tokio::test]
async fn a_token_opens_what_wants_one() {
    let keys = keys(1);
    let wallet = Wallet::new([token(&keys, 3600)]);
    let cell = start(&wallet, &keys);
    assert_eq!(fetch(&cell, "file").await.unwrap(), vec![7; 1_000_000]);
    assert_eq!(wallet.asked_again.load(Ordering::SeqCst), 0);
    let denied = fetch(&cell, "secret").await.unwrap_err();
    assert!(denied.is_denied());
    let text = denied.to_string();
    assert_eq!(text, "permission denied to alice@TEST.EXAMPLE");
}

#[tokio::test]
async fn a_token_that_is_refused_is_replaced_once() {
    let keys = keys(1);
    for stale in [token(&keys, -1000), token(&self::keys(9), 3600)] {
        let wallet = Wallet::new([stale, token(&keys, 3600)]);
        let cell = start(&wallet, &keys);
        assert_eq!(fetch(&cell, "file").await.unwrap(), vec![7; 1_000_000]);
        assert_eq!(wallet.asked_again.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn why_a_token_is_refused_is_told() {
    let keys = keys(1);
    for (stale, expected) in [
        (token(&keys, -1000), "it expired at noon"),
        (
            token(&self::keys(9), 3600),
            "they do not have the key it was made with",
        ),
    ] {
        let wallet = Wallet::new([stale]);
        let cell = start(&wallet, &keys);
        let text = fetch(&cell, "file").await.unwrap_err().to_string();
        let begin = "cell test.example: its servers refuse the token of alice@TEST.EXAMPLE: ";
        assert!(text == format!("{begin}{expected}"), "{text}");
    }
}

#[tokio::test]
async fn without_a_token_that_must_be_nothing_is_asked() {
    let keys = keys(1);
    let cell = start(&Wallet::new([]), &keys);
    let text = fetch(&cell, "file").await.unwrap_err().to_string();
    assert_eq!(text, "cell test.example: there is none");
}

#[tokio::test]
async fn anonymous_clients_are_told_that_they_are() {
    let cell = Cell::start(world(), |_| ());
    let denied = fetch(&cell, "secret").await.unwrap_err();
    let text = denied.to_string();
    assert!(
        text.starts_with("permission denied to anonymous: without a token"),
        "{text}"
    );
    // A server that wants tokens says no more than that it will not.
    let keys = keys(1);
    let cell = Cell::start_secured(world(), rxkad_only(&keys), vec![Arc::new(RxNull)], |_| ());
    let refused = fetch(&cell, "file").await.unwrap_err();
    let code = refused.code();
    assert_eq!(code, Some(AbortCode::RX_INVALID_OPERATION.0), "{refused}");
}

#[tokio::test]
async fn location_servers_get_a_token_only_if_they_want_one() {
    let keys = keys(1);
    let wallet = Wallet::new([token(&keys, -1000), token(&keys, 3600)]);
    let classes = (rxkad_only(&keys), rxkad_only(&keys));
    let cell = Cell::start_secured(world(), classes.0, classes.1, |config| {
        config.credentials = Some(Arc::clone(&wallet) as Arc<_>);
    });
    assert_eq!(fetch(&cell, "file").await.unwrap(), vec![7; 1_000_000]);
}
