//! By which key a server is known.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls;
use zeroize::Zeroizing;

use crate::{Fingerprint, PROTOCOL};

/// A server's certificate and private key.
#[derive(Clone)]
pub struct Certificate {
    pub(super) config: Arc<rustls::ServerConfig>,
    fingerprint: Fingerprint,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read or written.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// Reading or writing.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// What a file has is not what is needed.
    #[error("{} has no {wanted} in PEM", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What is needed.
        wanted: &'static str,
    },
    /// Certificate and key do not belong together, or are of no use.
    #[error("the certificate in {} cannot be used with its key", path.display())]
    Unusable {
        /// The certificate's file.
        path: PathBuf,
        /// What went wrong.
        source: rustls::Error,
    },
    /// None could be made.
    #[error("cannot make a certificate for {name}")]
    Make {
        /// For which name.
        name: String,
        /// What went wrong.
        source: rcgen::Error,
    },
}

impl Certificate {
    /// The certificate in a file in PEM, with its chain, and its private key, in the same file or
    /// another one.
    ///
    /// # Errors
    /// [`CertificateError`], if they cannot be read or do not belong together.
    pub fn open(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let read = |path: &Path| {
            let text = fs::read(path).map_err(file("read", path));
            text.map(Zeroizing::new)
        };
        let missing = |path: &Path, wanted| CertificateError::Missing {
            path: path.to_owned(),
            wanted,
        };
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(&read(certificate)?)
                .collect::<Result<_, _>>()
                .map_err(|_| missing(certificate, "certificate"))?;
        let first = chain
            .first()
            .ok_or_else(|| missing(certificate, "certificate"))?;
        let fingerprint =
            Fingerprint::of(first).map_err(|_| missing(certificate, "certificate of version 3"))?;
        let private =
            PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|_| missing(key, "private key"))?;
        let config = afar_tls::server(PROTOCOL, chain, private).map_err(|source| {
            CertificateError::Unusable {
                path: certificate.to_owned(),
                source,
            }
        })?;
        Ok(Self {
            config: Arc::new(config),
            fingerprint,
        })
    }

    /// The certificate in this file, with its key; one that the server signs itself is put there
    /// first if there is none.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if none could be made or written.
    pub fn open_or_make(path: &Path, names: &[String]) -> Result<Self, CertificateError> {
        if !path.exists() {
            make(path, names)?;
        }
        Self::open(path, path)
    }

    /// By what people know it.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Certificate")
            .field(&self.fingerprint)
            .finish()
    }
}

fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CertificateError {
    move |source| CertificateError::File {
        doing,
        path: path.to_owned(),
        source,
    }
}

/// Puts a new key and its certificate where only the server may read them.
fn make(path: &Path, names: &[String]) -> Result<(), CertificateError> {
    let failed = |source| CertificateError::Make {
        name: names.join(", "),
        source,
    };
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    if let Some(name) = names.first() {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    let certificate = params.self_signed(&key).map_err(failed)?;
    let private = Zeroizing::new(key.serialize_pem());
    let write = || -> io::Result<()> {
        let new = path.with_extension("new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(certificate.pem().as_bytes())?;
        file.write_all(private.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        fs::File::open(path.parent().unwrap_or_else(|| Path::new(".")))?.sync_all()
    };
    write().map_err(file("write", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_certificate_is_made_once_and_kept_from_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("login.pem");
        let names = ["home.arpa".to_owned()];
        let made = Certificate::open_or_make(&path, &names).unwrap();
        let again = Certificate::open_or_make(&path, &names).unwrap();
        assert_eq!(made.fingerprint(), again.fingerprint());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let other = dir.path().join("other.pem");
        let other_made = Certificate::open_or_make(&other, &names).unwrap();
        assert_ne!(made.fingerprint(), other_made.fingerprint());
        let error = Certificate::open(&path, &other).unwrap_err();
        assert!(
            matches!(error, CertificateError::Unusable { .. }),
            "{error}"
        );
        fs::write(&other, "nothing").unwrap();
        let error = Certificate::open(&path, &other).unwrap_err();
        assert!(
            error.to_string().ends_with("no private key in PEM"),
            "{error}"
        );
        let error = Certificate::open(&other, &path).unwrap_err();
        assert!(error.to_string().contains("no certificate"), "{error}");
    }
}
