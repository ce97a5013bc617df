//! What clients of other kinds get from a file server, byte by byte: Linux's refuses what OpenAFS does not send.
//!
//! The calls and the words are those of OpenAFS's file server (`src/viced/host.c` h_GetHost_r, `callback.c`
//! MultiBreakCallBack_r with an empty AFSCBs, `src/fsint/afscbint.xg` for the opcodes; rxgen marshals an afsUUID
//! as 11 words).

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use afar_types::{Fid, VolumeId};

use crate::support::*;

/// Bytes of an Rx header.
const HEADER: usize = 28;
const DATA: u8 = 1;
const ABORT: u8 = 4;
/// Flags: the packet is the client's of the call; the call's last.
const OF_CLIENT: u8 = 1;
const LAST: u8 = 4;
const RXGEN_OPCODE: i32 = -455;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// The words of `AfsUuid::from_random([byte; 16])`: a random one of version 4 (RFC 9562).
fn uuid_words(byte: u8) -> Vec<u32> {
    let byte = u32::from(byte);
    let low = byte * 0x0101_0101;
    let short = byte * 0x0101;
    let mut words = vec![low, short, short & 0x0fff | 0x4000, byte & 0x3f | 0x80];
    words.extend([byte; 7]);
    words
}

/// A cache manager by hand: answers as told, and passes on what it was asked.
struct Raw {
    address: SocketAddr,
    asked: mpsc::Receiver<Vec<u8>>,
}

impl Raw {
    /// `answer`: the results by opcode, or none if it does not know that.
    fn new(answer: impl Fn(u32) -> Option<Vec<u8>> + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let (sender, asked) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let packet = &buffer[..length];
                if length <= HEADER || packet[20] != DATA || packet[21] & OF_CLIENT == 0 {
                    continue;
                }
                let body = packet[HEADER..].to_vec();
                let opcode = u32::from_be_bytes(body[..4].try_into().unwrap());
                let mut reply = packet[..HEADER].to_vec();
                reply[16..20].copy_from_slice(&1u32.to_be_bytes());
                match answer(opcode) {
                    Some(results) => {
                        reply[21] = LAST;
                        reply.extend(results);
                    }
                    None => {
                        (reply[20], reply[21]) = (ABORT, 0);
                        reply[12..16].fill(0);
                        reply.extend(RXGEN_OPCODE.to_be_bytes());
                    }
                }
                // The test may look as soon as the reply is there.
                if sender.send(body).is_err() {
                    return;
                }
                socket.send_to(&reply, from).unwrap();
            }
        });
        Self { address, asked }
    }

    /// What it was asked, in order of the opcodes; each once, however often it was sent.
    fn asked(&self) -> Vec<Vec<u8>> {
        let mut asked: Vec<_> = self.asked.try_iter().collect();
        asked.sort();
        asked.dedup();
        asked
    }

    fn next(&self) -> Vec<u8> {
        self.asked.recv_timeout(Duration::from_secs(10)).unwrap()
    }
}

/// An `interfaceAddr`: 108 words.
fn interfaces(uuid: u8) -> Vec<u8> {
    let mut all = vec![0];
    all.extend(uuid_words(uuid));
    all.resize(108, 0);
    words(&all)
}

fn server() -> Server {
    Server::new(patient())
}

fn current(uuid: u8) -> impl Fn(u32) -> Option<Vec<u8>> + Send + 'static {
    move |opcode| match opcode {
        65538 => Some([interfaces(uuid), words(&[1, 1])].concat()),
        204 | 213 | 214 => Some(Vec::new()),
        _ => None,
    }
}

#[tokio::test]
async fn a_new_client_is_asked_as_openafs_asks() {
    let server = server();
    let client = Raw::new(current(1));
    server.identify_at(client.address).await;
    let reset = [vec![213], uuid_words(9)].concat();
    assert_eq!(client.asked(), [words(&reset), words(&[65538])]);
}

#[tokio::test]
async fn older_clients_are_asked_as_openafs_asks() {
    let server = server();
    let older = Raw::new(|opcode| match opcode {
        212 => Some(interfaces(2)),
        213 => Some(Vec::new()),
        _ => None,
    });
    server.identify_at(older.address).await;
    let reset = [vec![213], uuid_words(9)].concat();
    let expected = [words(&[212]), words(&reset), words(&[65538])];
    assert_eq!(older.asked(), expected);

    let oldest = Raw::new(|opcode| matches!(opcode, 205 | 206).then(Vec::new));
    server.identify_at(oldest.address).await;
    let mut expected = [205, 206, 212, 65538]
        .map(|opcode| words(&[opcode]))
        .to_vec();
    expected.insert(3, words(&reset));
    assert_eq!(oldest.asked(), expected);
}

#[tokio::test]
async fn a_break_has_an_empty_second_list() {
    let server = server();
    let client = Raw::new(current(1));
    let host = server.identify_at(client.address).await;
    client.asked();
    let (one, two) = (Fid::new(7, 8, 9), Fid::new(7, 10, 11));
    assert!(server.give(&host, one) > 0 && server.give(&host, two) > 0);
    server.hosts.break_fids(&[one], None).await;
    assert_eq!(client.next(), words(&[204, 1, 7, 8, 9, 0]));
    assert!(server.give(&host, one) > 0);
    server.hosts.break_fids(&[one, two], None).await;
    assert_eq!(client.next(), words(&[204, 2, 7, 8, 9, 7, 10, 11, 0]));
    let volume = server.hosts.promise_volume(&host, one);
    assert!(server.hosts.callback(&volume).expires_in > 0);
    server.hosts.break_volume(VolumeId(7)).await;
    assert_eq!(client.next(), words(&[204, 1, 7, 0, 0, 0]));
}

#[tokio::test]
async fn a_known_client_is_asked_for_by_its_uuid() {
    let server = server();
    let (known, other) = (Raw::new(current(1)), Raw::new(current(1)));
    let host = server.identify_at(known.address).await;
    known.asked();
    let new = server.identify_at(other.address).await;
    assert!(!Arc::ptr_eq(&host, &new));
    let probe = [vec![214], uuid_words(1)].concat();
    assert_eq!(known.next(), words(&probe));
}
