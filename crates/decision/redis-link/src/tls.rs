//! The TLS client configuration, from the settings.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_rustls::TlsConnector;

use crate::settings::{NameCheck, RedisSettingsError, RedisTls, SettingsResult};

/// Reads the PEM files of the settings.
pub(crate) fn connector(tls: &RedisTls) -> SettingsResult<TlsConnector> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let roots = Arc::new(roots(tls.roots.as_deref())?);
    let verifier =
        WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build().map_err(
            |error| RedisSettingsError(format!("no certificate authority can be used: {error}")),
        )?;
    let verifier: Arc<dyn ServerCertVerifier> = match tls.names {
        NameCheck::Strict => verifier,
        NameCheck::Any => Arc::new(AnyName(verifier)),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| RedisSettingsError(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
            .map_err(|error| in_file(certificate, error))?,
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn roots(path: Option<&Path>) -> SettingsResult<RootCertStore> {
    let mut store = RootCertStore::empty();
    let Some(path) = path else {
        let found = rustls_native_certs::load_native_certs();
        store.add_parsable_certificates(found.certs);
        if store.is_empty() {
            return Err(RedisSettingsError(
                "the system has no certificate authorities: set roots".to_owned(),
            ));
        }
        return Ok(store);
    };
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|error| in_file(path, error))?;
    }
    Ok(store)
}

fn certificates(path: &Path) -> SettingsResult<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).and_then(|certificates| certificates.collect());
    let read = read.map_err(|error| in_file(path, error))?;
    if read.is_empty() {
        return Err(RedisSettingsError(format!("{} contains no certificate", path.display())));
    }
    Ok(read)
}

fn private_key(path: &Path) -> SettingsResult<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| in_file(path, error))
}

/// The error of a file that the settings name.
fn in_file(path: &Path, error: impl std::fmt::Display) -> RedisSettingsError {
    RedisSettingsError(format!("{}: {error}", path.display()))
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
