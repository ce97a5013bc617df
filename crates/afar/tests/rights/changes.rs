//! What is changed of users and groups counts at once.

use std::time::{Duration, Instant};

use afar_security::Level;
use afar_types::PtsId;
use afar_xdr::XdrString;

use crate::cell::{Cell, REALM, security};
use crate::session::{Act, Client, Content, Session, code};
use crate::{filled, run};

const ANN: PtsId = PtsId(1);
const OPER: PtsId = PtsId(2);

/// How long a file server may take that is told by nobody in its own process.
const SOON: Duration = Duration::from_secs(5);

/// Somebody with a token at a server, as a client that goes on with the connections it has.
fn at(client: &Client, cell: &Cell, user: &str) -> Session {
    let token = cell.token(user, REALM);
    client.session(cell, &security(Some(&token), Level::Crypt))
}

async fn is(session: &Session, act: Act, content: &Content, word: &str, why: &str) {
    let got = session.act(act, content).await;
    assert_eq!(got, code(word), "{why}: {act:?}");
}

async fn named(admin: &Session, id: PtsId, name: &str) {
    let name = XdrString::new(name).unwrap();
    let renamed = admin.users.change_entry(id, name, PtsId(0), PtsId(0));
    renamed.await.unwrap();
}

async fn made(admin: &Session, name: &str) -> PtsId {
    let name = XdrString::new(name).unwrap();
    admin.users.new_entry(name, 0, PtsId(0)).await.unwrap().id
}

#[test]
fn the_file_server_of_the_process_knows_of_each_change() {
    run(async {
        let (cell, client, content) = filled("").await;
        let admin = security(Some(&cell.localauth()), Level::Crypt);
        let admin = client.session(&cell, &admin);
        let [sam, ann, anna, oper] =
            ["sam", "ann", "anna", "oper"].map(|user| at(&client, &cell, user));
        // One who was nobody, is somebody, and is gone.
        is(&sam, Act::ReadUsers, &content, "EACCES", "no user").await;
        let id = made(&admin, "sam").await;
        is(&sam, Act::ReadUsers, &content, "ok", "a new user").await;
        admin.users.delete(id).await.unwrap();
        is(&sam, Act::ReadUsers, &content, "EACCES", "deleted").await;
        // A group joined and left.
        is(&oper, Act::WriteOpen, &content, "EACCES", "no member").await;
        let group = PtsId::ADMINISTRATORS;
        admin.users.add_to_group(OPER, group).await.unwrap();
        is(&oper, Act::WriteOpen, &content, "ok", "a member").await;
        admin.users.remove_from_group(OPER, group).await.unwrap();
        is(
            &oper,
            Act::WriteOpen,
            &content,
            "EACCES",
            "no member any more",
        )
        .await;
        // Another name of the same user.
        is(&ann, Act::ReadPrivate, &content, "ok", "ann").await;
        is(&anna, Act::ReadPrivate, &content, "EACCES", "anna").await;
        named(&admin, ANN, "anna").await;
        is(&ann, Act::ReadPrivate, &content, "EACCES", "renamed").await;
        is(&anna, Act::ReadPrivate, &content, "ok", "renamed").await;
        // Another user of the same name.
        admin.users.delete(ANN).await.unwrap();
        made(&admin, "anna").await;
        is(&anna, Act::ReadPrivate, &content, "EACCES", "made again").await;
    });
}

/// Waits until somebody may do something, or not.
async fn comes(session: &Session, act: Act, content: &Content, word: &str) {
    let begun = Instant::now();
    loop {
        let got = session.act(act, content).await;
        if got == code(word) {
            return;
        }
        assert!(begun.elapsed() < SOON, "{act:?} is {got}, not {word}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn a_file_server_apart_knows_of_each_change_soon() {
    run(async {
        let (cell, client, content) = filled("").await;
        let (address, server) = cell.join(&[cell.key_file()]);
        server.until("registered with the location servers");
        let admin = security(Some(&cell.localauth()), Level::Crypt);
        let home = client.session(&cell, &admin);
        let away = client.session_at(address, &admin);
        let content = crate::apart::filled_away(&away, content).await;
        let token = |user| security(Some(&cell.token(user, REALM)), Level::Crypt);
        let [ann, anna] = ["ann", "anna"].map(|user| client.session_at(address, &token(user)));
        is(&ann, Act::ReadPrivate, &content, "ok", "ann").await;
        is(&anna, Act::ReadPrivate, &content, "EACCES", "anna").await;
        named(&home, ANN, "anna").await;
        comes(&anna, Act::ReadPrivate, &content, "ok").await;
        is(&ann, Act::ReadPrivate, &content, "EACCES", "renamed").await;
        home.users.delete(ANN).await.unwrap();
        comes(&anna, Act::ReadPrivate, &content, "EACCES").await;
    });
}
