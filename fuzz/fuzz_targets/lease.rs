//! What passes of leases: what is read can be written and reads the same, and neither end panics on any of it.

#![no_main]

use std::fmt::Debug;
use std::time::Duration;

use afar_lease::wire::{self, Claim, Claimed, Note, Recall, RecallAnswer, Word};
use afar_lease::{Entry, Holder, Limits, Row, Server, Wish};
use afar_types::{AfsUuid, Fid};
use afar_xdr::{Decode, Encode};
use libfuzzer_sys::fuzz_target;

const NOW: Duration = Duration::from_secs(1);
const SESSION: u64 = 7;

fuzz_target!(|data: &[u8]| {
    let host = AfsUuid::default();
    let fid = Fid::new(1, 1, 1);
    let row = Row {
        host,
        volume: fid.volume,
        session: SESSION,
    };
    let mut restarted = Server::new(NOW, 1, 0, vec![row], Limits::default());
    let mut server = Server::new(NOW, 1, 0, Vec::new(), Limits::default());
    let mut holder = Holder::new();
    // The host has the lease when the bytes come.
    let mut sent = None;
    for _ in 0..2 {
        let (note, said) = holder.note(NOW, &[fid], 0);
        let heard = server.hear(NOW, host, &note, SESSION);
        let Entry::Proceed(visit) = server.enter(NOW, Some(host), Some(heard), &[fid]) else {
            return;
        };
        let word = server.answer(NOW, heard, visit, &[Wish { fid, alone: true }]);
        server.leave(visit);
        holder.answered(NOW, &said, &word);
        server.persisted(host, fid.volume, SESSION);
        sent = Some(said);
    }
    let Some(sent) = sent else { return };
    if let Some(note) = again::<Note>(data) {
        let _heard = server.hear(NOW, host, &note, 8);
        let own = Note {
            instance: 1,
            session: SESSION,
            ..note
        };
        let _heard = server.hear(NOW, host, &own, 9);
    }
    if let Some(recall) = again::<Recall>(data) {
        let own = Recall {
            session: SESSION,
            ..recall
        };
        let answer = holder.recalled(&own);
        server.recall_answered(NOW, host, &own, &answer);
    }
    if let Some(answer) = again::<RecallAnswer>(data) {
        let _wait = server.enter(NOW, None, None, &[fid]);
        let recall = server.recall_of(host).unwrap_or_default();
        server.recall_answered(NOW, host, &recall, &answer);
    }
    if let Some(claim) = again::<Claim>(data) {
        let own = Claim {
            instance: 1,
            session: SESSION,
            ..claim
        };
        restarted.claim(NOW, host, &own);
    }
    if let Some(word) = again::<Word>(data) {
        holder.answered(NOW, &sent, &word);
        let own = Word {
            instance: 1,
            session: SESSION,
            ..word
        };
        holder.answered(NOW, &sent, &own);
    }
    if let Some((claim, sent)) = holder.claim(NOW)
        && let Some(claimed) = again::<Claimed>(data)
    {
        holder.claimed(NOW, &sent, &claim, &claimed);
    }
    for server in [&mut server, &mut restarted] {
        server.handle_timeout(NOW * 100);
        while server.poll_action().is_some() {}
    }
    holder.handle_timeout(NOW * 100);
    while holder.poll_action().is_some() {}
});

fn again<T: Debug + Decode + Encode + PartialEq>(data: &[u8]) -> Option<T> {
    let message = wire::decode::<T>(data).ok()?;
    let bytes = afar_xdr::to_bytes(&message);
    assert_eq!(wire::decode::<T>(&bytes).as_ref(), Ok(&message));
    Some(message)
}
