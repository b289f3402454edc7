//! TLS with certificates from files, which may change while connections are open.
//!
//! Changes are detected by `stat` (inode behind all links, length, time), which is cheap enough for every few seconds
//! and notices a symlink that was switched to another directory, as Kubernetes does. Only changed files are read, and
//! only a certificate with a matching key replaces the one in use. New connections get the new certificate; open ones
//! keep theirs.
//!
//! [`Tls::load`] and [`Tls::refresh`] read files, so they block.

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

/// The PEM files of an endpoint's certificate, key and client authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by the intermediate ones.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the authorities that sign client certificates. If set, a client without such a certificate is
    /// rejected.
    pub client_authority: Option<PathBuf>,
    /// A DNS name that a client's certificate must be valid for. Needs `client_authority`.
    pub client_name: Option<String>,
}

impl TlsFiles {
    /// A certificate with its key; clients need no certificate.
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

/// Why the files cannot be used.
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
    /// A file is not PEM.
    #[error("{} is not well-formed PEM", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: rustls::pki_types::pem::Error,
    },
    /// A file contains no certificate.
    #[error("there is no certificate in {}", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A file contains no private key.
    #[error("there is no private key in {}", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The key belongs to another certificate.
    #[error("the key in {} does not fit the certificate in {}", key.display(), certificate.display())]
    KeyDoesNotFit {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The contents of a file cannot be used.
    #[error("the contents of {} cannot be used", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The client name is not a DNS name.
    #[error("{name:?} is not a DNS name")]
    BadClientName {
        /// The name.
        name: String,
    },
    /// There is a client name without a client authority.
    #[error("a client name needs a client authority")]
    NameWithoutAuthority,
    /// The TLS library cannot be set up.
    #[error("cannot set up TLS")]
    Setup(#[from] rustls::Error),
}

/// The TLS configuration of an endpoint. Clones share it, and a [`Tls::refresh`] of one is seen by all.
#[derive(Clone)]
pub struct Tls {
    inner: Arc<Inner>,
}

struct Inner {
    files: TlsFiles,
    current: RwLock<ServerConfigs>,
    versions: Mutex<FileVersions>,
}

/// One configuration per protocol: the ALPN protocols differ.
struct ServerConfigs {
    http2: Arc<ServerConfig>,
    auto: Arc<ServerConfig>,
}

/// The version of the files that was last read.
struct FileVersions {
    stamps: Vec<FileStamp>,
    digest: u64,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When they cannot be read, or do not match.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let stamps = stamps(&files);
        let contents = PemFiles::read(&files)?;
        let current = RwLock::new(contents.configs(&files)?);
        let versions = Mutex::new(FileVersions { stamps, digest: contents.digest() });
        Ok(Tls { inner: Arc::new(Inner { files, current, versions }) })
    }

    /// Loads the files if they have changed, and returns whether they have. Cheap otherwise: one `stat` per file.
    ///
    /// # Errors
    /// When changed files cannot be used. The certificate in use stays, and the files are not tried again until they
    /// change.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        let Inner { files, current, versions } = &*self.inner;
        let mut versions = versions.lock();
        // Before reading: a change in between is noticed by the next refresh.
        let stamps = stamps(files);
        if stamps == versions.stamps {
            return Ok(false);
        }
        versions.stamps = stamps;
        let contents = PemFiles::read(files)?;
        if contents.digest() == versions.digest {
            return Ok(false);
        }
        *current.write() = contents.configs(files)?;
        versions.digest = contents.digest();
        Ok(true)
    }

    /// The files of this configuration.
    pub fn files(&self) -> &TlsFiles {
        &self.inner.files
    }

    pub(super) fn config(&self, protocol: Protocol) -> Arc<ServerConfig> {
        let current = self.inner.current.read();
        Arc::clone(match protocol {
            Protocol::Http2 => &current.http2,
            Protocol::Auto => &current.auto,
        })
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.inner.files).finish_non_exhaustive()
    }
}

/// Identifies a version of a file: device, inode, length, and the seconds and nanoseconds of its last change. `None`
/// when it does not exist.
type FileStamp = Option<(u64, u64, u64, i64, i64)>;

fn stamps(files: &TlsFiles) -> Vec<FileStamp> {
    let stamp = |path: &Path| {
        let file = fs::metadata(path).ok()?;
        Some((file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
    };
    files.paths().map(stamp).collect()
}

/// The contents of the files.
struct PemFiles {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_authority: Option<Vec<u8>>,
}

impl PemFiles {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        Ok(PemFiles {
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

    fn configs(&self, files: &TlsFiles) -> Result<ServerConfigs, TlsError> {
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
        Ok(ServerConfigs { http2, auto: Arc::new(config) })
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
            Ok(name @ ServerName::DnsName(_)) => {
                Ok(Some(Arc::new(NamedClientVerifier { inner, name })))
            }
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

/// Accepts client certificates that `inner` accepts and that are valid for `name`.
#[derive(Debug)]
struct NamedClientVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    name: ServerName<'static>,
}

impl ClientCertVerifier for NamedClientVerifier {
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
