//! What is offered to clients, and what they must show.

use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_net::{AbortCode, Identity};
use afar_oob::offer::{self, DUMP, FETCH, RESTORE, STORE};
use afar_oob::secret::Side;
use afar_oob::{
    Agreement, Codecs, Grant, GrantError, Hello, Holder, Offer, PROTOCOL, Question, Sealer,
    SecretError, Service, VERSION,
};
use afar_rpc::{Caller, afsvol, rxafs};
use afar_tls::{Ephemeral, EphemeralError};
use afar_types::AfsUuid;
use afar_xdr::{FixedOpaque, Opaque, XdrString};

use super::counts::Counts;

/// How long a grant holds, and for how long transfers may begin on connections that were made with it.
// spec: oob#the-grant
const LIFETIME: Duration = Duration::from_secs(600);

/// Out-of-band transfers cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OobError {
    /// There is no key for TLS.
    #[error(transparent)]
    Tls(#[from] EphemeralError),
    /// There is no key for grants.
    #[error(transparent)]
    Grant(#[from] GrantError),
}

/// Makes offers, and knows its own again.
#[derive(Debug)]
pub struct Offers {
    port: u16,
    pub(super) tls: Ephemeral,
    sealer: Sealer,
    started: Instant,
    counts: Arc<Counts>,
}

impl Offers {
    pub(super) fn new(port: u16, counts: Arc<Counts>) -> Result<Self, OobError> {
        Ok(Self {
            port,
            tls: Ephemeral::new(PROTOCOL)?,
            sealer: Sealer::new()?,
            started: Instant::now(),
            counts,
        })
    }

    /// Seconds since this server can have made offers.
    fn now(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// Whether a grant that expires then holds no longer.
    pub(super) fn has_expired(&self, expires: u64) -> bool {
        expires <= self.now()
    }

    /// Answers a client of this service, whose host has this identity.
    // spec: oob#the-offer
    pub(crate) fn offer(
        &self,
        service: Service,
        caller: &Caller,
        uuid: Option<AfsUuid>,
        question: &[u8],
    ) -> Result<Opaque<2048>, AbortCode> {
        let unreadable = AbortCode::RXGEN_SS_UNMARSHAL;
        let question: Question = offer::decode(question).map_err(|_| unreadable)?;
        if question.version < VERSION {
            return Err(AbortCode::RXGEN_OPCODE);
        }
        let own = Agreement::new().map_err(failed)?;
        let share = own.share();
        let secret = match own.agree(Side::Server, &question.share.0) {
            Err(SecretError::Share) => return Err(unreadable),
            agreed => agreed.map_err(failed)?,
        };
        let grant = Grant {
            service,
            holder: holder(&caller.identity)?,
            peer: caller.peer,
            uuid,
            expires: self.now() + LIFETIME.as_secs(),
            secret,
        };
        let offer = Offer {
            version: VERSION,
            port: self.port.into(),
            operations: match service {
                Service::Files => FETCH | STORE,
                Service::Volumes => DUMP | RESTORE,
            },
            lifetime: u32::try_from(LIFETIME.as_secs()).unwrap_or(u32::MAX),
            fingerprint: FixedOpaque(self.tls.fingerprint().into()),
            share: FixedOpaque(share),
            codecs: Codecs::ALL,
            grant: self.sealer.seal(&grant).map_err(failed)?,
            parts: afar_oob::no_parts(),
        };
        let offer = Opaque::new(&offer::encode(&offer)[..]).map_err(failed)?;
        self.counts.offers.inc();
        Ok(offer)
    }

    /// The grant of a client in the TLS session from which these bytes were exported, if it is the client's.
    // spec: oob#the-proof
    pub(super) fn check(&self, hello: &Hello, exported: &[u8; 32]) -> Result<Grant, GrantError> {
        let grant = self.sealer.open(&hello.grant, self.now())?;
        if hello.version != VERSION || !grant.secret.is_proved(exported, &hello.proof.0) {
            return Err(GrantError::Foreign);
        }
        Ok(grant)
    }
}

fn failed(error: impl std::error::Error) -> AbortCode {
    tracing::error!(%error, "cannot offer out-of-band transfers");
    AbortCode::RXGEN_OPCODE
}

fn holder(identity: &Identity) -> Result<Holder, AbortCode> {
    // A name that is too long for a grant is served by Rx.
    let name = |name: &Arc<str>| XdrString::new(&**name).map_err(|_| AbortCode::RXGEN_OPCODE);
    Ok(match identity {
        Identity::Anonymous => Holder::Anonymous,
        Identity::User(user) => Holder::User(name(user)?),
        Identity::Operator(user) => Holder::Operator(name(user)?),
        Identity::Superuser => Holder::Superuser,
    })
}

/// The caller that a grant was given to, as a call of it would say.
pub(super) fn caller(grant: &Grant) -> Caller {
    let name = |name: &[u8]| Arc::from(String::from_utf8_lossy(name));
    let identity = match &grant.holder {
        Holder::Anonymous => Identity::Anonymous,
        Holder::User(user) => Identity::User(name(user.as_bytes())),
        Holder::Operator(user) => Identity::Operator(name(user.as_bytes())),
        Holder::Superuser => Identity::Superuser,
    };
    Caller {
        peer: grant.peer,
        service: match grant.service {
            Service::Files => rxafs::SERVICE,
            Service::Volumes => afsvol::SERVICE,
        },
        identity,
    }
}
