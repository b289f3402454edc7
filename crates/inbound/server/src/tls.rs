//! Encryption: certificates from files, changed while connections live.
//!
//! Files are compared by what the system says of them (the file behind all
//! links, its length and its time), which is cheap to ask for every few seconds and sees
//! a link that was turned to another directory, as Kubernetes does it. Only then
//! are they read, and only a pair that fits replaces the one in use. New
//! connections get the new certificate; those that live keep theirs.
//!
//! The calls here read files and block; make them where that does no harm.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};
use xxhash_rust::xxh3::Xxh3;

use super::settings::Protocol;

/// Which files a door's encryption is made of, all in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those between it and the root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who vouches for clients. When set, a client without a certificate of
    /// theirs is refused.
    pub client_authority: Option<PathBuf>,
    /// A DNS name that a client's certificate must be good for. Needs `client_authority`.
    pub client_name: Option<String>,
}

impl TlsFiles {
    /// A certificate with its key; clients need none.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        TlsFiles {
            certificate: certificate.into(),
            key: key.into(),
            client_authority: None,
            client_name: None,
        }
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        [Some(&self.certificate), Some(&self.key), self.client_authority.as_ref()]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
    }
}

/// Why files cannot be used for encryption.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is no PEM.
    #[error("{} is not well-formed PEM", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: rustls::pki_types::pem::Error,
    },
    /// A file holds no certificate.
    #[error("there is no certificate in {}", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A file holds no private key.
    #[error("there is no private key in {}", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The key is of another certificate.
    #[error("the key in {} does not fit the certificate in {}", key.display(), certificate.display())]
    KeyDoesNotFit {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// What a file holds cannot be used.
    #[error("what is in {} cannot be used", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The name asked of clients is no DNS name.
    #[error("{name:?} is no DNS name")]
    BadClientName {
        /// The name.
        name: String,
    },
    /// A name is asked of clients, but nobody vouches for them.
    #[error("a client name needs a client authority")]
    NameWithoutAuthority,
    /// The library cannot be set up.
    #[error("cannot set up TLS")]
    Setup(#[from] rustls::Error),
}

/// A door's encryption. Clones share what [`Tls::refresh`] puts in place.
#[derive(Clone)]
pub struct Tls {
    shared: Arc<Shared>,
}

struct Shared {
    files: TlsFiles,
    current: RwLock<Configs>,
    looked: Mutex<Looked>,
}

/// One configuration for each protocol: what a client may choose differs.
struct Configs {
    http2: Arc<ServerConfig>,
    auto: Arc<ServerConfig>,
}

/// What the files were when they were last looked at.
struct Looked {
    stamps: Vec<Stamp>,
    digest: u64,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When they cannot be read, or do not belong together.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let stamps = stamps(&files);
        let texts = Texts::read(&files)?;
        let current = RwLock::new(texts.configs(&files)?);
        let looked = Mutex::new(Looked { stamps, digest: texts.digest() });
        Ok(Tls { shared: Arc::new(Shared { files, current, looked }) })
    }

    /// Puts changed files to use, and says whether there were any. Cheap while
    /// nothing changed: it only asks the system about the files.
    ///
    /// # Errors
    /// When changed files cannot be used. The certificate in use stays, and
    /// the same files are not tried again until they change.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        let Shared { files, current, looked } = &*self.shared;
        let mut looked = looked.lock();
        // Asked before reading: a change in between shows at the next look.
        let stamps = stamps(files);
        if stamps == looked.stamps {
            return Ok(false);
        }
        looked.stamps = stamps;
        let texts = Texts::read(files)?;
        if texts.digest() == looked.digest {
            return Ok(false);
        }
        *current.write() = texts.configs(files)?;
        looked.digest = texts.digest();
        Ok(true)
    }

    /// The files it is made of.
    pub fn files(&self) -> &TlsFiles {
        &self.shared.files
    }

    pub(super) fn config(&self, protocol: Protocol) -> Arc<ServerConfig> {
        let current = self.shared.current.read();
        Arc::clone(match protocol {
            Protocol::Http2 => &current.http2,
            Protocol::Auto => &current.auto,
        })
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.shared.files).finish_non_exhaustive()
    }
}

/// What tells a file from another, and from itself after a change: device,
/// number, length, and the seconds and nanoseconds of its last change.
/// `None` when it is not there.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

fn stamps(files: &TlsFiles) -> Vec<Stamp> {
    let stamp = |path: &Path| {
        let file = fs::metadata(path).ok()?;
        Some((file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
    };
    files.paths().map(stamp).collect()
}

/// The files' contents.
struct Texts {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_authority: Option<Vec<u8>>,
}

impl Texts {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        Ok(Texts {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
            client_authority: files.client_authority.as_deref().map(read).transpose()?,
        })
    }

    fn digest(&self) -> u64 {
        let mut hasher = Xxh3::new();
        for text in [Some(&self.certificate), Some(&self.key), self.client_authority.as_ref()] {
            let text = text.map_or(&[][..], Vec::as_slice);
            hasher.update(&text.len().to_le_bytes());
            hasher.update(text);
        }
        hasher.digest()
    }

    fn configs(&self, files: &TlsFiles) -> Result<Configs, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = certificates(&self.certificate, &files.certificate)?;
        let key = private_key(&self.key, &files.key)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match self.clients(files, provider)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|source| match source {
            rustls::Error::InconsistentKeys(_) => TlsError::KeyDoesNotFit {
                certificate: files.certificate.clone(),
                key: files.key.clone(),
            },
            rustls::Error::InvalidCertificate(_) => {
                TlsError::Unusable { path: files.certificate.clone(), source }
            }
            _ => TlsError::Unusable { path: files.key.clone(), source },
        })?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let http2 = Arc::new(config.clone());
        config.alpn_protocols.push(b"http/1.1".to_vec());
        Ok(Configs { http2, auto: Arc::new(config) })
    }

    fn clients(
        &self,
        files: &TlsFiles,
        provider: Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
        let (Some(text), Some(path)) = (&self.client_authority, &files.client_authority) else {
            let named = files.client_name.is_some();
            return if named { Err(TlsError::NameWithoutAuthority) } else { Ok(None) };
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(text, path)? {
            let added = roots.add(certificate);
            added.map_err(|source| TlsError::Unusable { path: path.clone(), source })?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let inner = verifier.build().map_err(|error| TlsError::Unusable {
            path: path.clone(),
            source: rustls::Error::General(error.to_string()),
        })?;
        let Some(name) = &files.client_name else { return Ok(Some(inner)) };
        match ServerName::try_from(name.clone()) {
            Ok(name @ ServerName::DnsName(_)) => Ok(Some(Arc::new(NamedClients { inner, name }))),
            _ => Err(TlsError::BadClientName { name: name.clone() }),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })
}

fn certificates(text: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|source| TlsError::Malformed { path: path.to_owned(), source })?;
    if found.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(found)
}

fn private_key(text: &[u8], path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|source| match source {
        rustls::pki_types::pem::Error::NoItemsFound => TlsError::NoKey { path: path.to_owned() },
        source => TlsError::Malformed { path: path.to_owned(), source },
    })
}

/// Clients that somebody vouches for, and whose certificate is good for a name.
#[derive(Debug)]
struct NamedClients {
    inner: Arc<dyn ClientCertVerifier>,
    name: ServerName<'static>,
}

impl ClientCertVerifier for NamedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, &self.name)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
