//! Believing a server.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::known::{self, Found};
use super::{LoginError, Server, Trusted, Unknown, connect};
use crate::Fingerprint;

/// By what a server is believed. The first that applies decides.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// It has this fingerprint, which is noted in the file of known cells; else it is refused.
    pub fingerprint: Option<Fingerprint>,
    /// A file that says which fingerprints the cell's servers had before; if this one had another, it
    /// is refused.
    pub known_cells: Option<PathBuf>,
}

impl Server {
    /// Connects, to see who is there, and decides whether it is the right server: by `trust`, else
    /// by a certificate for its name that an authority known to webpki-roots has signed, else
    /// `confirm` decides, and what it agrees to is noted in the file of known cells.
    ///
    /// # Errors
    /// When it cannot be reached or is not believed.
    pub async fn trust(
        self,
        trust: &Trust,
        confirm: impl FnOnce(&Unknown) -> bool,
    ) -> Result<Trusted, LoginError> {
        let stream = connect(&self, None).await?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let damaged = |what: &str| LoginError::Protocol {
            host: self.host.clone(),
            what: what.to_owned(),
        };
        let first = chain.first().ok_or_else(|| damaged("it presents no key"))?;
        let found = Fingerprint::of(first).map_err(|_| damaged("its certificate is damaged"))?;
        let standing = self.standing(trust, found)?;
        let signed = is_signed(chain, &self.host, roots());
        drop(stream);
        let noted = || match &trust.known_cells {
            Some(path) => known::add(path, &self, found),
            None => Ok(()),
        };
        match standing {
            Standing::Asked => {
                // Without a place to note it, it is still the server that was asked for.
                if let Err(error) = noted() {
                    tracing::warn!(%error, "cannot remember the fingerprint");
                }
            }
            Standing::Unknown(others) if !signed => {
                let unknown = Unknown {
                    cell: self.cell.clone(),
                    host: self.host.clone(),
                    port: self.port,
                    fingerprint: found,
                    others,
                };
                if !confirm(&unknown) {
                    return Err(LoginError::NotTrusted(unknown));
                }
                noted()?;
            }
            Standing::Unknown(_) | Standing::Believed => {}
        }
        Ok(Trusted {
            server: self,
            fingerprint: found,
        })
    }

    /// What is known of the server; fails if that says that it is another one.
    fn standing(&self, trust: &Trust, found: Fingerprint) -> Result<Standing, LoginError> {
        if let Some(expected) = trust.fingerprint {
            if expected != found {
                return Err(LoginError::Fingerprint {
                    host: self.host.clone(),
                    expected,
                    found,
                });
            }
            return Ok(Standing::Asked);
        }
        let Some(path) = &trust.known_cells else {
            return Ok(Standing::Unknown(0));
        };
        match known::find(path, self, found)? {
            Found::Known => Ok(Standing::Believed),
            Found::Other(line, expected) => Err(LoginError::Mismatch {
                host: self.host.clone(),
                path: path.clone(),
                line,
                expected,
                found,
            }),
            Found::Unknown(others) => Ok(Standing::Unknown(others)),
        }
    }
}

/// What is known of a server by its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It is the one whose fingerprint was given.
    Asked,
    /// The file of known cells has it.
    Believed,
    /// Nothing but that its cell has so many other keys.
    Unknown(usize),
}

fn roots() -> RootCertStore {
    RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    }
}

/// Whether one of these authorities says that this is the key of the host of this name.
fn is_signed(chain: &[CertificateDer<'_>], host: &str, roots: RootCertStore) -> bool {
    let Some((first, rest)) = chain.split_first() else {
        return false;
    };
    let Ok(name) = ServerName::try_from(host) else {
        return false;
    };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.is_ok_and(|verifier| {
        let verified = verifier.verify_server_cert(first, rest, &name, &[], UnixTime::now());
        verified.is_ok()
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    use super::*;

    #[test]
    fn an_authority_vouches_for_a_name() {
        let authority_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(params, &authority_key);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["db1.example.org".to_owned()]).unwrap();
        let signed = params.signed_by(&key, &issuer).unwrap();
        let chain = [signed.der().clone()];
        let ours = || {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der().clone()).unwrap();
            roots
        };
        assert!(is_signed(&chain, "db1.example.org", ours()));
        assert!(!is_signed(&chain, "db2.example.org", ours()));
        assert!(!is_signed(&chain, "db1.example.org", roots()));
        let own = params.self_signed(&key).unwrap();
        assert!(!is_signed(&[own.der().clone()], "db1.example.org", ours()));
        assert!(!is_signed(&[], "db1.example.org", ours()));
        assert!(!is_signed(&chain, "not a name", ours()));
    }
}
