//! How both sides use TLS: version 1.3 only, and no session is taken up again, because what is proved
//! within one is bound to it.

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{
    CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct, Error, ServerConfig,
    SignatureScheme,
};

use crate::Fingerprint;

/// What encrypts. Of the ciphers, AES-128-GCM costs the least on processors with instructions for AES, and comes first.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    let first = CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider
        .cipher_suites
        .sort_by_key(|known| known.suite() != first);
    Arc::new(provider)
}

/// A server of this protocol (ALPN) with this certificate.
///
/// # Errors
/// The key is of no use, or is not the certificate's.
pub fn server(
    protocol: &[u8],
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(config)
}

/// A client of this protocol (ALPN), for the server whose key has this fingerprint; without one for any server, to see
/// which key it has.
///
/// # Errors
/// TLS cannot be used at all.
pub fn client(protocol: &[u8], expected: Option<Fingerprint>) -> Result<ClientConfig, Error> {
    let provider = provider();
    let verifier = Verifier {
        expected,
        provider: Arc::clone(&provider),
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(config)
}

/// A server's key that lasts as long as the process: clients hear its fingerprint from the process itself.
#[derive(Clone)]
pub struct Ephemeral {
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
}

/// No key could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EphemeralError {
    /// The certificate.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    /// TLS does not take it.
    #[error("cannot use a certificate that was just made")]
    Use(#[from] Error),
    /// Its key has no fingerprint.
    #[error("cannot read a certificate that was just made")]
    Read(#[from] webpki::Error),
}

impl Ephemeral {
    /// A new key for servers of this protocol (ALPN).
    ///
    /// # Errors
    /// [`EphemeralError`].
    pub fn new(protocol: &[u8]) -> Result<Self, EphemeralError> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(Vec::new())?.self_signed(&key)?;
        let chain = vec![certificate.der().clone()];
        let fingerprint = Fingerprint::of(certificate.der())?;
        let config = server(protocol, chain, key.into())?;
        Ok(Self {
            config: Arc::new(config),
            fingerprint,
        })
    }

    /// The settings of a server with this key.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// The key's fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

impl std::fmt::Debug for Ephemeral {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ephemeral").field(&self.fingerprint).finish()
    }
}

/// Believes whoever has the private key of the expected public one. Names and dates in certificates
/// do not count: what the fingerprint stands for was decided before.
#[derive(Debug)]
struct Verifier {
    expected: Option<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = Fingerprint::of(certificate)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        match self.expected {
            Some(expected) if expected != found => Err(Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            )),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not supported".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
