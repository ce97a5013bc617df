//! Servers that are not in one process know each other by the cell's key.

use std::net::Ipv4Addr;

use afar_security::Level;
use afar_types::{
    AttachFlags, DestServer, Fid, PartitionId, RestoreCookie, TransactionFlags, TransactionId,
    UnixTime, VolintName, VolintNameText, VolumeId,
};

use crate::cell::{Cell, REALM, security};
use crate::session::{Act, Client, Content, PRIVATE, Session, code};
use crate::{filled, run};

const ANN: VolumeId = VolumeId(536_900_000);
const COPY: VolumeId = VolumeId(536_900_003);

/// Begins a new volume on a server's first partition; without a parent it has a root directory, with
/// itself for one it waits for a dump.
async fn begin(session: &Session, name: &str, parent: VolumeId, volume: VolumeId) -> TransactionId {
    let name = VolintNameText::new(name).unwrap();
    let made = session
        .volumes
        .create_volume(PartitionId::default(), name, 0, parent, volume);
    made.await.unwrap().transaction
}

/// Brings it on line.
async fn end(session: &Session, transaction: TransactionId) {
    let flags = TransactionFlags::default();
    session.volumes.set_flags(transaction, flags).await.unwrap();
    session.volumes.end_trans(transaction).await.unwrap();
}

/// A volume of the cell, sent by its volume server to another one.
async fn forward(from: &Session, content: &Content, to: &Session, address: Ipv4Addr) -> i32 {
    let begun =
        from.volumes
            .trans_create(content.volume, PartitionId::default(), AttachFlags::BUSY);
    let source = begun.await.unwrap().transaction;
    let destination = begin(to, "copy", COPY, COPY).await;
    let cookie = RestoreCookie {
        name: VolintName::new("copy").unwrap(),
        kind: 0,
        clone_id: VolumeId(0),
        parent_id: COPY,
    };
    let server = DestServer::new(address);
    let sent = from
        .volumes
        .forward(source, UnixTime(0), server, destination, cookie);
    let sent = sent.await.map_or_else(|error| error.code().0, |_| 0);
    from.volumes.end_trans(source).await.unwrap();
    end(to, destination).await;
    sent
}

/// What there is, with a secret of ann's on a server elsewhere.
pub(crate) async fn filled_away(away: &Session, content: Content) -> Content {
    let transaction = begin(away, "user.ann", VolumeId(0), ANN).await;
    end(away, transaction).await;
    let root = Fid::root(ANN);
    let secret = away.file(root).await;
    // Its names are asked for there, and then who is in which group.
    away.set_acl(root, PRIVATE).await.unwrap();
    Content { secret, ..content }
}

#[test]
fn a_file_server_elsewhere_is_known_by_the_key_it_has() {
    run(async {
        let least = "[security.minimum]\npt = \"crypt\"\nvl = \"crypt\"\n";
        let (cell, client, content) = filled(least).await;
        let (address, server) = cell.join(&[cell.key_file()]);
        server.until("registered with the location servers");
        cell.until("who=superuser from=127.0.0.1");
        let admin = security(Some(&cell.localauth()), Level::Crypt);
        let (home, away) = (
            client.session(&cell, &admin),
            client.session_at(address, &admin),
        );
        let content_away = filled_away(&away, content).await;
        for (user, word) in [("ann", "ok"), ("oper", "EACCES")] {
            let token = security(Some(&cell.token(user, REALM)), Level::Crypt);
            let session = client.session_at(address, &token);
            let got = session.act(Act::ReadPrivate, &content_away).await;
            assert_eq!(got, code(word), "{user}");
        }
        assert_eq!(forward(&home, &content, &away, address).await, 0);
        let all = away.volumes.x_list_volumes(PartitionId::default(), 1);
        assert_eq!(all.await.unwrap().volumes.len(), 2);
    });
}

#[test]
fn a_file_server_with_another_key_is_nobody() {
    run(async {
        let cell = Cell::start("");
        let stranger = Cell::start("");
        let client = Client::new();
        let (_, server) = cell.join(&[stranger.key_file()]);
        server.until("not registered yet");
        let admin = security(Some(&cell.localauth()), Level::Clear);
        let session = client.session(&cell, &admin);
        let addresses = session.places.get_addrs(0, 0).await.unwrap();
        assert_eq!(addresses.addresses.len(), 1, "only its own");
    });
}
