//! A certificate authority for one test.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// A certificate authority, and the files of the certificates that it signed.
#[derive(Debug)]
pub struct Authority {
    files: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// The files of a certificate and its key.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The certificate, as PEM.
    pub certificate: PathBuf,
    /// Its private key, as PEM.
    pub key: PathBuf,
}

impl Default for Authority {
    fn default() -> Self {
        Authority::new()
    }
}

impl Authority {
    /// An authority with a new key.
    pub fn new() -> Self {
        let files = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // With the name of a certificate that it signs, that one would look self-signed.
        params.distinguished_name.push(DnType::CommonName, "authority of the tests");
        let key = KeyPair::generate().unwrap();
        fs::write(files.path().join("roots.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { files, issuer: Issuer::new(params, key) }
    }

    /// The authority's own certificate.
    pub fn roots(&self) -> PathBuf {
        self.files.path().join("roots.pem")
    }

    /// A certificate for this name or address.
    pub fn signs(&self, name: &str) -> CertificateFiles {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let write = |kind: &str, text: &str| -> PathBuf {
            let path = self.files.path().join(format!("{name}.{kind}.pem"));
            fs::write(&path, text).unwrap();
            path
        };
        CertificateFiles {
            certificate: write("certificate", &certificate),
            key: write("key", &key.serialize_pem()),
        }
    }
}

/// A path as text, for configuration files and URLs.
pub fn text(path: &Path) -> String {
    path.display().to_string()
}
