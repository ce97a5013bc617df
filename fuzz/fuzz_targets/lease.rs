//! What passes of leases: what is read can be written and reads the same, and neither end panics on any of it.

#![no_main]

use std::fmt::Debug;
use std::time::Duration;

use afar_lease::wire::{self, Claim, Claimed, Note, Recall, RecallAnswer, Word};
use afar_lease::{Holder, Limits, Server};
use afar_types::{AfsUuid, Fid};
use afar_xdr::{Decode, Encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let now = Duration::from_secs(1);
    let mut server = Server::new(now, 1, 0, Vec::new(), Limits::default());
    let mut holder = Holder::new();
    let host = AfsUuid::default();
    let note = holder.note(now, &[Fid::new(1, 1, 1)], 0);
    if let Some(note) = again::<Note>(data) {
        let _heard = server.hear(now, host, &note, 7);
    }
    if let Some(word) = again::<Word>(data) {
        holder.answered(now, &note.1, &word);
    }
    if let Some(recall) = again::<Recall>(data) {
        let answer = holder.recalled(now, &recall);
        server.recall_answered(now, host, &recall, &answer);
    }
    if let Some(answer) = again::<RecallAnswer>(data) {
        server.recall_answered(now, host, &Recall::default(), &answer);
    }
    if let Some(claim) = again::<Claim>(data) {
        server.claim(now, host, &claim);
    }
    if let Some(claimed) = again::<Claimed>(data) {
        holder.claimed(now, &note.1, &Claim::default(), &claimed);
    }
    while holder.poll_action().is_some() {}
    while server.poll_action().is_some() {}
    server.handle_timeout(now * 100);
    holder.handle_timeout(now * 100);
});

fn again<T: Debug + Decode + Encode + PartialEq>(data: &[u8]) -> Option<T> {
    let message = wire::decode::<T>(data).ok()?;
    let bytes = afar_xdr::to_bytes(&message);
    assert_eq!(wire::decode::<T>(&bytes).as_ref(), Ok(&message));
    Some(message)
}
