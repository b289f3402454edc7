//! TLS towards upstreams: trusted authorities, client certificate, ALPN.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::settings::{UpstreamProtocol, UpstreamTls};

/// The paths at which systems keep trusted certificates.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsSetupError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: rustls::pki_types::pem::Error },
    #[error("there is no usable certificate in {}", path.display())]
    NoAuthority { path: PathBuf },
    #[error("the system has no trusted certificates; set a file")]
    NoSystemAuthorities,
    #[error("the client certificate cannot be used: {0}")]
    Unusable(rustls::Error),
}

/// Makes the TLS connector of a group. Reads files, so it blocks.
pub(super) fn connector(
    settings: &UpstreamTls,
    protocol: UpstreamProtocol,
) -> Result<TlsConnector, TlsSetupError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsSetupError::Unusable)?
        .with_root_certificates(trusted(settings)?);
    let mut config = match &settings.client {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let unreadable = |source| TlsSetupError::Unreadable { path: key.clone(), source };
            let secret = PrivateKeyDer::from_pem_file(key).map_err(unreadable)?;
            let chain = certificates(certificate)?;
            config.with_client_auth_cert(chain, secret).map_err(TlsSetupError::Unusable)?
        }
    };
    config.alpn_protocols = match protocol {
        UpstreamProtocol::Auto => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        UpstreamProtocol::Http1 => vec![b"http/1.1".to_vec()],
        UpstreamProtocol::Http2 => vec![b"h2".to_vec()],
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn trusted(settings: &UpstreamTls) -> Result<RootCertStore, TlsSetupError> {
    let path = match &settings.authority {
        Some(path) => path.clone(),
        None => {
            let found = SYSTEM_AUTHORITIES.iter().map(Path::new).find(|path| path.is_file());
            found.ok_or(TlsSetupError::NoSystemAuthorities)?.to_owned()
        }
    };
    let mut roots = RootCertStore::empty();
    let (added, _unusable) = roots.add_parsable_certificates(certificates(&path)?);
    if added == 0 {
        return Err(TlsSetupError::NoAuthority { path });
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsSetupError> {
    let unreadable = |source| TlsSetupError::Unreadable { path: path.to_owned(), source };
    let found = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    found.collect::<Result<_, _>>().map_err(unreadable)
}
