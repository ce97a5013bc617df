//! For which process of its machine a client asks, as far as it says so.
//!
//! It stands behind the arguments of a request, where servers ignore what there is
//! ([in full](../../../docs/protocol/asker.md)). A server believes none of it: it is only for the audit.

use afar_xdr::{Decoder, Encode};
use bytes::BytesMut;

use crate::{Kind, Operation};

tokio::task_local! {
    static ASKER: Option<Asker>;
}

/// The word that it begins with, "afar", and the kind of what follows.
// spec: asker#layout
const MAGIC: u32 = 0x6166_6172;
const KIND: u32 = 1;

/// A process, and its user, by the numbers that they have on the client's machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    /// The user.
    pub uid: u32,
    /// The process, or its thread that asks.
    pub pid: u32,
}

impl Asker {
    /// Has changes that `work` asks servers for be told as asked for by this process; by none without.
    pub fn scope<F: Future>(asker: Option<Self>, work: F) -> impl Future<Output = F::Output> {
        ASKER.scope(asker, work)
    }

    /// Adds it to a request that changes something, if this task asks for a process. What data follows cannot have it.
    pub(crate) fn append(operation: &Operation, request: &mut BytesMut) {
        if !operation.changes || operation.kind != Kind::Call {
            return;
        }
        let Ok(Some(Self { uid, pid })) = ASKER.try_with(|asker| *asker) else {
            return;
        };
        for word in [MAGIC, KIND, uid, pid] {
            word.encode(request);
        }
    }

    /// What a client says of itself behind the arguments of a request.
    pub(crate) fn read(rest: &[u8]) -> Option<Self> {
        let mut input = Decoder::new(rest);
        let mut word = || input.read::<u32>().ok();
        if (word()?, word()?) != (MAGIC, KIND) {
            return None;
        }
        let (uid, pid) = (word()?, word()?);
        Some(Self { uid, pid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{rxafs, vl};

    #[tokio::test]
    async fn changes_tell_for_whom_they_are_and_nothing_else_does() {
        let asker = Some(Asker { uid: 7, pid: 9 });
        let behind = |operation| {
            let mut request = BytesMut::from(&b"arguments"[..]);
            Asker::append(operation, &mut request);
            Asker::read(&request[9..])
        };
        Asker::scope(asker, async {
            assert_eq!(behind(rxafs::make_dir::OPERATION), asker);
            assert_eq!(behind(vl::delete_entry::OPERATION), asker);
            for operation in [
                rxafs::fetch_status::OPERATION,
                rxafs::store_data64::OPERATION,
                vl::get_entry_by_id::OPERATION,
            ] {
                assert_eq!(behind(operation), None, "{}", operation.name);
            }
            let work = async { behind(rxafs::make_dir::OPERATION) };
            assert_eq!(Asker::scope(None, work).await, None);
        })
        .await;
        assert_eq!(behind(rxafs::make_dir::OPERATION), None);
    }

    #[test]
    fn anything_else_behind_arguments_is_nobody() {
        let whole = [&b"afar\0\0\0\x01\0\0\0\x07\0\0\0\x09"[..], b"more"].concat();
        assert_eq!(Asker::read(&whole), Some(Asker { uid: 7, pid: 9 }));
        for end in 0..16 {
            assert_eq!(Asker::read(&whole[..end]), None);
        }
        for place in 0..8 {
            let mut other = whole.clone();
            other[place] ^= 1;
            assert_eq!(Asker::read(&other), None);
        }
    }
}
