//! TLS towards servers: Redis, the upstreams of the gateway, the servers of key sets.
//!
//! [`ClientTls`] names files; [`ClientTls::connector`] reads them.
//!
//! ```
//! use tidegate_client_tls::ClientTls;
//!
//! let tls = ClientTls { authority: Some("missing.pem".into()), ..ClientTls::default() };
//! let error = tls.connector(&[]).err().expect("there is no such file");
//! assert!(error.to_string().starts_with("cannot read missing.pem"));
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_rustls::TlsConnector;

/// How a client trusts servers, and how it identifies itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// A PEM file with the certificate authorities to trust. Default: those of the system.
    pub authority: Option<PathBuf>,
    /// PEM files with a client certificate and its private key, for servers that demand one. Default: none.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether the server's name is verified.
    pub names: NameCheck,
}

/// Whether the name of a server is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameCheck {
    /// It must be the name that was connected to.
    #[default]
    Strict,
    /// Any name, if a trusted authority signed the certificate.
    Any,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// A file cannot be read, or is not well-formed PEM.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: pem::Error,
    },
    /// A file has no certificate that can be used.
    #[error("there is no usable certificate in {}", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The system has no trusted authorities.
    #[error("the system has no trusted certificates; set a file")]
    NoSystemAuthorities,
    /// The authorities cannot be used.
    #[error("no certificate authority can be used: {0}")]
    Authorities(rustls::server::VerifierBuilderError),
    /// The client certificate or its key cannot be used.
    #[error("the client certificate cannot be used: {0}")]
    Unusable(rustls::Error),
}

impl ClientTls {
    /// The files that it names.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let identity = self.identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.authority.iter().chain(identity).map(PathBuf::as_path)
    }

    /// Reads the files. `alpn` lists the protocols to offer, the preferred one first.
    ///
    /// # Errors
    /// When a file cannot be read or used.
    pub fn connector(&self, alpn: &[&[u8]]) -> Result<TlsConnector, ClientTlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let authorities = Arc::new(self.authorities()?);
        let verifier =
            WebPkiServerVerifier::builder_with_provider(authorities, Arc::clone(&provider))
                .build()
                .map_err(ClientTlsError::Authorities)?;
        let verifier: Arc<dyn ServerCertVerifier> = match self.names {
            NameCheck::Strict => verifier,
            NameCheck::Any => Arc::new(AnyName(verifier)),
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(ClientTlsError::Unusable)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let unreadable = |source| ClientTlsError::Unreadable { path: key.clone(), source };
                let secret = PrivateKeyDer::from_pem_file(key).map_err(unreadable)?;
                let chain = certificates(certificate)?;
                builder.with_client_auth_cert(chain, secret).map_err(ClientTlsError::Unusable)?
            }
        };
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn authorities(&self) -> Result<RootCertStore, ClientTlsError> {
        let mut store = RootCertStore::empty();
        let certificates = match &self.authority {
            Some(path) => certificates(path)?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let (added, _unusable) = store.add_parsable_certificates(certificates);
        match (added, &self.authority) {
            (0, Some(path)) => Err(ClientTlsError::NoCertificate { path: path.clone() }),
            (0, None) => Err(ClientTlsError::NoSystemAuthorities),
            _ => Ok(store),
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ClientTlsError> {
    let read: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).and_then(|certificates| certificates.collect());
    match read {
        Ok(read) if read.is_empty() => Err(ClientTlsError::NoCertificate { path: path.to_owned() }),
        Ok(read) => Ok(read),
        Err(source) => Err(ClientTlsError::Unreadable { path: path.to_owned(), source }),
    }
}

/// Accepts certificates of trusted authorities, whatever name they are for.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified =
            self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name is verified last: the chain is trusted by then.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
