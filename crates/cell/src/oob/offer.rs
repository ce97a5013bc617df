//! What a server offered.
// spec: oob#the-offer

use std::time::Duration;

use afar_oob::offer;
use afar_oob::secret::Side;
use afar_oob::{Agreement, Offer, Question, Secret, VERSION};
use afar_rpc::RpcError;
use afar_types::error::Code;
use afar_xdr::Opaque;
use tokio::time::Instant;

/// An offer as it came, and for how long it holds.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(super) offer: Offer,
    pub(super) secret: Secret,
    pub(super) lasting: Lasting,
}

/// For how long something may be used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lasting {
    until: Instant,
    /// From then on there should be another.
    aging: Instant,
}

impl Lasting {
    /// From this moment on. It ends before the server's time does.
    fn new(begun: Instant, lifetime: Duration) -> Self {
        Self {
            until: begun + lifetime * 9 / 10,
            aging: begun + lifetime * 3 / 4,
        }
    }

    pub(super) fn is_over(self) -> bool {
        Instant::now() >= self.until
    }

    pub(super) fn is_aging(self) -> bool {
        Instant::now() >= self.aging
    }
}

impl Known {
    pub(super) fn is_aging(&self) -> bool {
        self.lasting.is_aging()
    }
}

/// How a question was answered.
#[derive(Debug)]
pub(crate) enum Asked {
    Offered(Known),
    /// The server knows nothing of this, or nothing that is known here.
    Unknown,
    /// It may answer later.
    Failed,
}

/// Asks for an offer of these operations, all of them, by a call.
pub(crate) async fn ask<F>(operations: u32, call: impl FnOnce(Opaque<1024>) -> F) -> Asked
where
    F: Future<Output = Result<Opaque<2048>, RpcError>>,
{
    let begun = Instant::now();
    let own = match Agreement::new() {
        Ok(own) => own,
        Err(error) => {
            tracing::warn!(%error, "cannot ask for out-of-band transfers");
            return Asked::Failed;
        }
    };
    let question = offer::encode(&Question::new(own.share()));
    let Ok(question) = Opaque::new(&question[..]) else {
        return Asked::Unknown;
    };
    let answer = match call(question).await {
        Ok(answer) => answer,
        // spec: afs-rpc#unknown-operations
        Err(error) if Code(error.code().0).is_interface_mismatch() => return Asked::Unknown,
        Err(error) => {
            tracing::debug!("{error}: {}", error.cause);
            return Asked::Failed;
        }
    };
    let known = offer::decode::<Offer>(&answer).ok().and_then(|offer| {
        let is_known = offer.version == VERSION && offer.operations & operations == operations;
        let secret = own.agree(Side::Client, &offer.share.0).ok();
        let lifetime = Duration::from_secs(offer.lifetime.min(MOST).into());
        secret.filter(|_| is_known).map(|secret| Known {
            lasting: Lasting::new(begun, lifetime),
            offer,
            secret,
        })
    });
    known.map_or(Asked::Unknown, Asked::Offered)
}

/// Seconds for which an offer is used at most, whatever the server says.
const MOST: u32 = 3600;
