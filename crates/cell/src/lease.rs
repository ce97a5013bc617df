//! What a client and one file server say to each other of leases. Each server has leases of its own, so none of this
//! is asked of another server of the volume instead.
// spec: leases#messages

use std::sync::Arc;

use afar_lease::wire::{self, Claim, Claimed, Note, Word};
use afar_rpc::{RpcError, rxafs};
use afar_xdr::{LengthError, Opaque, to_bytes};

use crate::client::Client;
use crate::error::Error;
use crate::server::{FileServer, Verdict, verdict};

impl Client {
    /// Renews what this host has of a server, with wishes and what it gives back (afar's KeepLeases). Wishes are granted
    /// to users who may change the vnodes. The call is made once.
    ///
    /// # Errors
    /// When the server does not answer. [`Error::Refused`] as an unknown operation, when it gives no leases.
    pub async fn keep_leases(&self, site: &Arc<FileServer>, note: &Note) -> Result<Word, Error> {
        let note = noted(note)?;
        let reply = self
            .on_site(site, |server| {
                let note = note.clone();
                async move { server.keep_leases(note).await }
            })
            .await?;
        word_of(&reply.word)?.ok_or(Error::Nonsense("an empty word"))
    }

    /// Tells a server that has restarted what this host had of its earlier life (afar's ClaimLeases). May be repeated.
    ///
    /// # Errors
    /// As those of [`keep_leases`](Self::keep_leases).
    pub async fn claim_leases(
        &self,
        site: &Arc<FileServer>,
        claim: &Claim,
    ) -> Result<Claimed, Error> {
        let claim = Opaque::new(&to_bytes(claim)[..]).map_err(too_long)?;
        let reply = self
            .on_site(site, |server| {
                let claim = claim.clone();
                async move { server.claim_leases(claim).await }
            })
            .await?;
        wire::decode(&reply.claimed).map_err(|_| Error::Nonsense("an answer to a claim"))
    }

    /// Makes an RPC to just this server, and once more with a newer token when it refuses the one there was.
    async fn on_site<T, Q, F>(&self, site: &Arc<FileServer>, request: Q) -> Result<T, Error>
    where
        Q: Fn(rxafs::Client) -> F + Sync,
        F: Future<Output = Result<T, RpcError>> + Send,
    {
        let server = self.own(site);
        let mut renewed = false;
        loop {
            let (mut lane, introduction) = server.lane().await?;
            let error = match request(lane.client()).await {
                Ok(reply) => {
                    server.answered();
                    return Ok(reply);
                }
                Err(error) => error,
            };
            lane.failed();
            let secured = lane.secured().cloned();
            match verdict(&error) {
                Verdict::Down => server.silent(),
                _ => server.answered(),
            }
            drop(lane);
            drop(introduction);
            match secured {
                Some(refused) if verdict(&error) == Verdict::Token => {
                    if renewed || !server.renew(&refused).await? {
                        return Err(server.access().refused(&refused, error.code().0));
                    }
                    renewed = true;
                }
                _ => return Err(Error::refused(error, server.who())),
            }
        }
    }
}

/// A note as it is sent.
pub(crate) fn noted(note: &Note) -> Result<Opaque<65536>, Error> {
    Opaque::new(&to_bytes(note)[..]).map_err(too_long)
}

fn too_long(_: LengthError) -> Error {
    Error::Nonsense("a message on leases that is too long")
}

/// A word as it came; `None` if the server says nothing.
pub(crate) fn word_of(bytes: &[u8]) -> Result<Option<Word>, Error> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let word = wire::decode(bytes).map_err(|_| Error::Nonsense("a word that cannot be read"))?;
    Ok(Some(word))
}
