//! fcrypt alone, and the key of a session from a Kerberos key.

use afar_security::fcrypt::Schedule;
use afar_security::{EncryptionKey, SessionKey, ticket};

use crate::process::{Kind, Peer, Request};
use crate::{key, octets, random};

const ROUNDS: usize = 100_000;
/// Requests sent at a time.
const BATCH: usize = 10_000;

#[test]
fn fcrypt_gives_what_openafs_does() {
    let Some(mut peer) = Peer::start() else {
        return;
    };
    let mut rng = random();
    for _ in 0..ROUNDS / BATCH {
        let cases: Vec<([u8; 8], Vec<u8>)> = (0..BATCH)
            .map(|_| {
                let len = 8 * rng.usize(1..=20);
                (key(&mut rng), octets(&mut rng, len))
            })
            .collect();
        let request =
            |(key, body): &([u8; 8], Vec<u8>)| Request::new(Kind::Cipher).octets(key).octets(body);
        let answers = peer.ask(cases.iter().map(request));
        for ((key, body), mut answer) in cases.iter().zip(answers) {
            let schedule = Schedule::new(&SessionKey::new(*key));
            let block = u64::from_be_bytes(body[..8].try_into().unwrap());
            let word = |block: u64| block.to_be_bytes().to_vec();
            assert_eq!(word(schedule.encrypt_block(block)), answer.octets());
            assert_eq!(word(schedule.decrypt_block(block)), answer.octets());
            let mut sealed = body.clone();
            schedule.seal(&mut sealed);
            assert_eq!(sealed, answer.octets(), "sealed by {key:x?}: {body:x?}");
            let mut opened = body.clone();
            schedule.open(&mut opened);
            assert_eq!(opened, answer.octets(), "opened by {key:x?}: {body:x?}");
            schedule.open(&mut sealed);
            assert_eq!(&sealed, body);
        }
    }
}

#[test]
fn sessions_have_the_keys_that_openafs_derives() {
    let Some(mut peer) = Peer::start() else {
        return;
    };
    let mut rng = random();
    for _ in 0..ROUNDS / BATCH {
        let cases: Vec<(i32, Vec<u8>)> = (0..BATCH)
            .map(|_| {
                let etype = rng.i32(-2..30);
                let lens = [8, 16, 24, 32, rng.usize(0..50)];
                let len = lens[rng.usize(..lens.len())];
                (etype, octets(&mut rng, len))
            })
            .collect();
        let request = |(etype, octets): &(i32, Vec<u8>)| {
            let request = Request::new(Kind::Derive).int(etype.cast_unsigned());
            request.octets(octets)
        };
        let answers = peer.ask(cases.iter().map(request));
        for ((etype, octets), mut answer) in cases.into_iter().zip(answers) {
            let expected = (answer.code() == 0).then(|| answer.octets());
            let key = EncryptionKey::new(etype, octets.clone());
            let found = ticket::session_key(&key).map(|key| key.octets().to_vec());
            assert_eq!(found, expected, "type {etype}: {octets:x?}");
        }
    }
}
