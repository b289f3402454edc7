//! TLS towards targets: trusted authorities, client certificate, ALPN.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::{HttpProtocol, HttpSetupError, TlsSettings};

/// Makes the TLS connector. Reads files, so it blocks.
pub(super) fn connector(
    settings: &TlsSettings,
    protocol: HttpProtocol,
) -> Result<TlsConnector, HttpSetupError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(HttpSetupError::Unusable)?
        .with_root_certificates(trusted(settings)?);
    let mut config = match &settings.client {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let unreadable = |source| HttpSetupError::Unreadable { path: key.clone(), source };
            let secret = PrivateKeyDer::from_pem_file(key).map_err(unreadable)?;
            let chain = certificates(certificate)?;
            config.with_client_auth_cert(chain, secret).map_err(HttpSetupError::Unusable)?
        }
    };
    config.alpn_protocols = match protocol {
        HttpProtocol::Auto => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        HttpProtocol::Http1 => vec![b"http/1.1".to_vec()],
        HttpProtocol::Http2 => vec![b"h2".to_vec()],
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn trusted(settings: &TlsSettings) -> Result<RootCertStore, HttpSetupError> {
    let found = match &settings.authority {
        Some(path) => certificates(path)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    let (added, _unusable) = roots.add_parsable_certificates(found);
    // A machine without authorities can still send in plain text.
    if added == 0 && settings.authority.is_some() {
        return Err(HttpSetupError::NoAuthority);
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, HttpSetupError> {
    let unreadable = |source| HttpSetupError::Unreadable { path: path.to_owned(), source };
    let found = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    found.collect::<Result<_, _>>().map_err(unreadable)
}
