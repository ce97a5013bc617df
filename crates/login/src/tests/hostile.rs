//! Clients that do not keep to the protocol.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::PROTOCOL;
use crate::frame;
use crate::password::PasswordLogin;
use crate::proof::Binding;
use crate::wire::{Answer, Opaqued, Reason, Request, Signature, Who};

impl Service {
    async fn connect(&self) -> TlsStream<TcpStream> {
        let config = afar_tls::client(PROTOCOL, Some(self.fingerprint)).unwrap();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let name = self.address.ip().into();
        connector.connect(name, stream).await.unwrap()
    }
}

fn who(user: &str) -> Who {
    Who {
        cell: CELL.try_into().unwrap(),
        user: user.try_into().unwrap(),
        lifetime: 0,
    }
}

fn reason(answer: Answer) -> Reason {
    match answer {
        Answer::Refused { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn another_key_than_the_expected_is_not_talked_to() {
    let (one, other) = (Service::start().await, Service::start().await);
    let config = afar_tls::client(PROTOCOL, Some(one.fingerprint)).unwrap();
    let stream = TcpStream::connect(other.address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let refused = connector.connect(other.address.ip().into(), stream).await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn junk_is_answered_or_dropped_and_harms_nobody() {
    let service = Service::start().await;
    service.users.set("alice", 7, Some(b"right"), &[]);
    for junk in [
        &b"\0\0\x40\x01too long"[..],
        b"\xff\xff\xff\xff",
        b"\0\0\0\x08\0\0\0\x01\0\0\0\x63",
        b"\0\0\0\x04\0\0\0\x02",
        b"\0\0\0\0",
    ] {
        let mut stream = service.connect().await;
        stream.write_all(junk).await.unwrap();
        let answer = frame::receive(&mut stream).await.unwrap();
        assert_eq!(reason(answer), Reason::Message, "{junk:?}");
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "it is closed");
    }
    // One that says half a message and leaves, and one that speaks no TLS.
    let mut stream = service.connect().await;
    stream.write_all(b"\0\0\0\x08\0").await.unwrap();
    drop(stream);
    let mut plain = TcpStream::connect(service.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    drop(plain);
    let trusted = service.trusted().await;
    trusted
        .with_password("alice", b"right", None)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_proof_without_a_beginning_or_of_another_session_is_refused() {
    let service = Service::start().await;
    service.users.set("alice", 7, Some(b"right"), &[]);
    let mut stream = service.connect().await;
    let ke3 = Opaqued::new([0; 64]).unwrap();
    frame::send(&mut stream, &Request::Proof { ke3 })
        .await
        .unwrap();
    let answer = frame::receive(&mut stream).await.unwrap();
    assert_eq!(reason(answer), Reason::Message);
    // A login is passed on to the server by one in between, who ends TLS at both sides.
    let (mut to_victim, mut to_server) = (service.connect().await, service.connect().await);
    let (login, ke1) = PasswordLogin::begin(b"right").unwrap();
    let ke1 = Opaqued::new(ke1).unwrap();
    let request = Request::Password {
        who: who("alice"),
        ke1,
    };
    frame::send(&mut to_server, &request).await.unwrap();
    let Answer::Challenge { ke2 } = frame::receive(&mut to_server).await.unwrap() else {
        panic!("no challenge");
    };
    let seen = Binding::of_client(to_victim.get_ref().1).unwrap();
    let seen = seen.of_password(CELL.as_bytes(), b"alice");
    assert!(login.prove(&ke2, &seen).is_err(), "the victim notices");
    to_victim.shutdown().await.unwrap();
    let ke3 = Opaqued::new([0; 64]).unwrap();
    frame::send(&mut to_server, &Request::Proof { ke3 })
        .await
        .unwrap();
    let answer = frame::receive(&mut to_server).await.unwrap();
    assert_eq!(reason(answer), Reason::Refused);
}

#[tokio::test]
async fn a_signature_is_worth_nothing_in_another_session_or_for_another_user() {
    let service = Service::start().await;
    let Some((path, key)) = ssh_key(service.dir.path(), &["ed25519"], "") else {
        return;
    };
    service
        .users
        .set("alice", 7, None, std::slice::from_ref(&key));
    service.users.set("bob", 8, None, &[key]);
    let text = std::fs::read(&path).unwrap();
    let private = ssh_key::PrivateKey::from_openssh(text).unwrap();
    let sign = |binding: &Binding| {
        let message = binding.of_signature(CELL.as_bytes(), b"alice");
        let signed = private.sign("afar-login", ssh_key::HashAlg::Sha512, &message);
        let mut octets = Vec::new();
        ssh_encoding::Encode::encode(&signed.unwrap(), &mut octets).unwrap();
        vec![Signature::new(octets).unwrap()].try_into().unwrap()
    };
    let (mut one, mut two) = (service.connect().await, service.connect().await);
    let of_one = Binding::of_client(one.get_ref().1).unwrap();
    let request = |user, signatures| Request::Keys {
        who: who(user),
        signatures,
    };
    frame::send(&mut two, &request("alice", sign(&of_one)))
        .await
        .unwrap();
    let answer = frame::receive(&mut two).await.unwrap();
    assert_eq!(reason(answer), Reason::Refused, "another session");
    let mut three = service.connect().await;
    let of_three = Binding::of_client(three.get_ref().1).unwrap();
    frame::send(&mut three, &request("bob", sign(&of_three)))
        .await
        .unwrap();
    let answer = frame::receive(&mut three).await.unwrap();
    assert_eq!(reason(answer), Reason::Refused, "another user");
    frame::send(&mut one, &request("alice", sign(&of_one)))
        .await
        .unwrap();
    let answer: Answer = frame::receive(&mut one).await.unwrap();
    assert!(matches!(answer, Answer::Granted(_)), "{answer:?}");
}

#[tokio::test]
async fn no_address_takes_all_connections() {
    let service = Service::start().await;
    service.users.set("alice", 7, Some(b"right"), &[]);
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(TcpStream::connect(service.address).await.unwrap());
    }
    let refused = service.server().trust(&Trust::default(), |_| true).await;
    assert!(refused.is_err(), "there is no room for this address");
    drop(idle);
    while service
        .server()
        .trust(&Trust::default(), |_| true)
        .await
        .is_err()
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
